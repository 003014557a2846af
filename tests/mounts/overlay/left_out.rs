//! Open files that a commit leaves out, closed while the frozen layer still exists.
//!
//! The files are in the layer above the frozen layer, and must not depend on what happens to the frozen layer.

use std::sync::Arc;

use zarr_format::error::Kind;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::RenameMode;
use zarrfs_store::{Condition, PutBody, Store, Tree};

use crate::overlay::fixture::{Fixture, Lower, MAKER, folder, key};
use zarrfs_store::request_context::UNLIMITED;

/// Runs a commit that ends with a conflict, so that its frozen layer stays.
fn freeze(fixture: &Fixture, lower: &dyn Store) {
    let theirs = PutBody::Bytes(b"theirs");
    lower
        .put(&UNLIMITED, &key("x"), theirs, &Condition::Any)
        .unwrap();
    let outcome = fixture
        .overlay()
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .and_then(zarrfs_overlay::commit::Outcome::or_failed);
    assert_eq!(outcome.unwrap().conflicts.len(), 1);
}

fn shown(fixture: &Fixture, path: &str) -> Option<Vec<u8>> {
    let object = fixture.overlay().get(&UNLIMITED, &key(path), 100).unwrap();
    object.map(|object| object.bytes)
}

/// Invariant (overlay): Each layer of the upper folder is recovered by its own journal: files closed after a freeze
/// survive a crash.
///
/// The frozen layer's journal says that the file is incomplete, and never records its close.
#[test]
fn a_file_closed_after_a_freeze_survives_a_crash() {
    let lower = Arc::new(MemoryStore::default());
    lower.set(key("x"), b"old".to_vec());
    let mut fixture = Fixture::over(folder(), lower.clone());
    fixture.write("x", b"ours");
    let file = fixture
        .overlay()
        .create(&UNLIMITED, &key("new"), &MAKER)
        .unwrap();
    file.write_at(&UNLIMITED, 0, b"half ").unwrap();
    freeze(&fixture, &*lower);
    file.write_at(&UNLIMITED, 5, b"and half").unwrap();
    file.flush(&UNLIMITED).unwrap();
    drop(file);
    assert_eq!(shown(&fixture, "new").unwrap(), b"half and half");
    fixture.remount();
    assert_eq!(shown(&fixture, "new").unwrap(), b"half and half");
    let force = CommitConfig {
        force: true,
        ..CommitConfig::default()
    };
    fixture
        .overlay()
        .commit(&UNLIMITED, force, &|_, _| {})
        .and_then(zarrfs_overlay::commit::Outcome::or_failed)
        .unwrap();
    let stored = lower.get(&UNLIMITED, &key("new"), 100).unwrap().unwrap();
    assert_eq!(stored.bytes, b"half and half");
}

/// A file that was not closed before a crash must not appear as a complete file.
#[test]
fn a_file_left_open_after_a_freeze_is_moved_to_rescued() {
    let lower = Arc::new(MemoryStore::default());
    lower.set(key("x"), b"old".to_vec());
    let mut fixture = Fixture::over(folder(), lower.clone());
    fixture.write("x", b"ours");
    let file = fixture
        .overlay()
        .create(&UNLIMITED, &key("new"), &MAKER)
        .unwrap();
    file.write_at(&UNLIMITED, 0, b"half").unwrap();
    freeze(&fixture, &*lower);
    file.write_at(&UNLIMITED, 4, b", no more").unwrap();
    // The journal must stay unchanged when the file is dropped, as if the process had been killed.
    let journal = fixture.upper().join("journal");
    let before = std::fs::read(&journal).unwrap();
    drop(file);
    assert_eq!(std::fs::read(&journal).unwrap(), before);
    fixture.remount();
    assert_eq!(shown(&fixture, "new"), None);
    let rescued = fixture.upper().join("rescued/new~0");
    assert_eq!(std::fs::read(rescued).unwrap(), b"half, no more");
}

/// Invariant (overlay): A path that no store can hold does not prevent committing others.
///
/// A folder is renamed into another one. Neither of their paths is too long by itself.
#[test]
fn a_path_too_long_for_a_store_does_not_block_other_keys() {
    let mut fixture = Fixture::new(Lower::Memory, &[]);
    let name = "n".repeat(200);
    let make = |path: &str| {
        fixture
            .overlay()
            .make_folder(&UNLIMITED, &key(path), &MAKER)
    };
    let [old, new] = ["a", "b"].map(|root| {
        let mut path = root.to_string();
        make(&path).unwrap();
        for _ in 0..14 {
            path = format!("{path}/{name}");
            make(&path).unwrap();
        }
        path
    });
    fixture.write(&format!("{old}/file"), b"deep");
    fixture.write("other", b"1");
    let (to, below) = (format!("{new}/a"), &old["a".len()..]);
    let renamed = fixture
        .overlay()
        .rename(&UNLIMITED, &key("a"), &key(&to), RenameMode::Replace);
    renamed.unwrap();
    let deepest = format!("{to}{below}");
    for refused in [
        make(&format!("{deepest}/folder")).err(),
        fixture
            .overlay()
            .create(&UNLIMITED, &key(&format!("{deepest}/new")), &MAKER)
            .err(),
    ] {
        assert_eq!(refused.unwrap().kind(), Kind::NameTooLong);
    }
    let changes = fixture.overlay().changes(&UNLIMITED).unwrap();
    let changed: Vec<String> = changes
        .keys
        .iter()
        .map(|change| change.key.to_string())
        .collect();
    assert_eq!(
        (changed, changes.uncommittable.len()),
        (vec!["other".to_string()], 1)
    );
    let outcome = fixture
        .overlay()
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .unwrap();
    assert_eq!((outcome.put, outcome.uncommittable.len()), (1, 1));
    assert!(outcome.failed.is_none(), "{:?}", outcome.failed);
    let deep = format!("{deepest}/file");
    for _ in 0..2 {
        assert_eq!(shown(&fixture, &deep).as_deref(), Some(b"deep".as_slice()));
        fixture.remount();
    }
    fixture.overlay().unlink(&UNLIMITED, &key(&deep)).unwrap();
    fixture
        .overlay()
        .remove_folder(&UNLIMITED, &key(&deepest))
        .unwrap();
    assert_eq!(fixture.overlay().changes(&UNLIMITED).unwrap().keys, []);
}
