//! Tests writes to decoded files through the tree of the files view.

use std::sync::Arc;
use std::time::Duration;

use zarr_format::error::Kind;
use zarrfs::view::{PathInTree, View};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{AttrChange, OpenMode};
use zarrfs_store::{EntryKind, Key, Tree};

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::fixture::{MAKER, tree};
use zarrfs_store::request_context::UNLIMITED;

fn fixture() -> (MemoryStore, Sample, Arc<dyn View>, Arc<dyn Tree>) {
    let memory = MemoryStore::default();
    let sample = Sample::new(&[6, 5], &[4, 2], Form::Packed);
    sample.put(&memory, "g/a");
    let (view, tree) = tree(Arc::new(memory.clone()));
    (memory, sample, view, tree)
}

pub fn sized(size: u64) -> AttrChange {
    AttrChange {
        size: Some(size),
        ..AttrChange::default()
    }
}

#[test]
fn a_write_is_seen_in_every_file_at_once() {
    let (memory, sample, view, tree) = fixture();
    let mut expected = sample.whole();
    let [raw, other] = [(); 2].map(|()| {
        tree.open(&UNLIMITED, &key("g/a/a.raw"), OpenMode::Write)
            .unwrap()
    });
    let reader = view.open(&UNLIMITED, &key("g/a/a.raw")).unwrap();
    let before = reader.file.version();
    raw.write_at(&UNLIMITED, 0, &[1, 2, 3]).unwrap();
    // Element 0 of the chunk 1.1 is at [4, 2]. The write covers its second byte, and element 1 at [4, 3].
    other.write_at(&UNLIMITED, 2 * 22 + 1, &[4, 5, 6]).unwrap();
    expected[..3].copy_from_slice(&[1, 2, 3]);
    expected[2 * 22 + 1..2 * 22 + 4].copy_from_slice(&[4, 5, 6]);
    assert_eq!(
        reader.file.read_at(&UNLIMITED, 0, 100).unwrap()[..],
        expected
    );
    assert_ne!(reader.file.version(), before);
    assert_eq!(common::read(&view, "g/a/a.raw").unwrap(), expected);
    assert_eq!(
        common::read(&view, "g/a/chunks/1.1.npy").unwrap()[129..132],
        [4, 5, 6]
    );
    assert_eq!(raw.read_at(&UNLIMITED, 0, 100).unwrap(), expected);
    // A flush of one of the two handles also stores the writes of the other.
    other.flush(&UNLIMITED).unwrap();
    let (fresh, _) = self::tree(Arc::new(memory));
    assert_eq!(common::read(&fresh, "g/a/a.raw").unwrap(), expected);
}

#[test]
fn a_decoded_file_cannot_change_its_length() {
    let (_, sample, view, tree) = fixture();
    for path in ["g/a/a.raw", "g/a/a.npy"] {
        let path = key(path);
        let size = view.lookup(&UNLIMITED, &path).unwrap().unwrap().size;
        let error = tree
            .open(&UNLIMITED, &path, OpenMode::Truncate)
            .err()
            .unwrap();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("conv=notrunc"), "{error}");
        let file = tree.open(&UNLIMITED, &path, OpenMode::Write).unwrap();
        assert_eq!(file.stat(&UNLIMITED).unwrap().meta.size, size);
        for wrong in [0, size - 1, size + 1] {
            assert_eq!(
                file.change(&UNLIMITED, &sized(wrong)).unwrap_err().kind(),
                Kind::Invalid
            );
            let error = tree.change(&UNLIMITED, &path, &sized(wrong)).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
        }
        file.change(&UNLIMITED, &sized(size)).unwrap();
        tree.change(&UNLIMITED, &path, &sized(size)).unwrap();
        file.allocate(&UNLIMITED, 0, 0, size).unwrap();
        let beyond = file.allocate(&UNLIMITED, 0, size, 1).unwrap_err();
        assert_eq!(beyond.kind(), Kind::TooLarge);
        assert_eq!(
            file.write_at(&UNLIMITED, size, &[1]).unwrap_err().kind(),
            Kind::TooLarge
        );
        tree.change(
            &UNLIMITED,
            &path,
            &AttrChange {
                mode: Some(0o600),
                ..AttrChange::default()
            },
        )
        .unwrap();
    }
    assert_eq!(common::read(&view, "g/a/a.raw").unwrap(), sample.whole());
}

/// Invariant of `the_files_view_refuses_all_edits_except_attributes`.
#[test]
fn all_forms_except_npy_and_raw_are_read_only() {
    let (_, _, view, tree) = fixture();
    for (path, is_read_only) in [
        ("g/a/a.npy", false),
        ("g/a/a.raw", false),
        ("g/a/a.f.npy", true),
        ("g/a/a@0.npy", true),
        ("g/a/a@0:6,0:5.raw", true),
        ("g/a/a.cf.npy", true),
        ("g/a/a.nrrd", true),
        ("g/a/a.nii", true),
        ("g/a/a.csv", true),
        ("g/a/a.h5", true),
        ("g/a/chunks", true),
        ("g/a/chunks/0.0.npy", true),
        ("g/a/chunks/0.0.raw", true),
        ("g/g.h5", true),
    ] {
        let path = key(path);
        let attr = view.lookup(&UNLIMITED, &path).unwrap();
        let attr = attr.unwrap_or_else(|| panic!("no {path}"));
        assert_eq!(attr.is_read_only, is_read_only, "{path}");
        if is_read_only && attr.kind == EntryKind::File {
            let error = tree.open(&UNLIMITED, &path, OpenMode::Write).err().unwrap();
            assert_eq!(error.kind(), Kind::Denied, "{error}");
            assert!(error.to_string().contains("write NAME.npy"), "{error}");
            let error = tree.change(&UNLIMITED, &path, &sized(0)).unwrap_err();
            assert_eq!(error.kind(), Kind::Denied, "{error}");
        }
    }
}

/// Invariant (writing): Only one file of an array is open for writing, and a dirty page never overwrites a change that
/// it does not contain.
#[test]
fn one_file_of_an_array_is_open_for_writing_at_a_time() {
    let (_, sample, view, tree) = fixture();
    let open = |path: &str| tree.open(&UNLIMITED, &key(path), OpenMode::Write);
    let npy = [open("g/a/a.npy").unwrap(), open("g/a/a.npy").unwrap()];
    let error = open("g/a/a.raw").err().unwrap();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    assert!(error.to_string().contains("g/a/a.npy"), "{error}");
    // All files of the array can still be read.
    assert_eq!(common::read(&view, "g/a/a.raw").unwrap(), sample.whole());
    let [first, second] = npy;
    drop(first);
    assert_eq!(open("g/a/a.raw").err().unwrap().kind(), Kind::Busy);
    drop(second);
    open("g/a/a.raw").unwrap();
}

/// Invariant of `one_file_of_an_array_is_open_for_writing_at_a_time`.
///
/// The kernel caches separate pages for the same file at a second path.
#[test]
fn a_view_that_is_shown_in_two_directories_has_two_files() {
    let (memory, ..) = fixture();
    let views = common::views_of(Arc::new(memory), Duration::from_secs(20));
    let open = |path: &str| {
        let place = views.files.tree(&UNLIMITED, &key(path)).unwrap().unwrap();
        place.tree.open(&UNLIMITED, &place.at, OpenMode::Write)
    };
    let top = open("g/a/a.npy").unwrap();
    let error = open(".zarrfs/files/g/a/a.npy").err().unwrap();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    drop(top);
    let below = open(".zarrfs/files/g/a/a.npy").unwrap();
    let error = open("g/a/a.npy").err().unwrap();
    assert!(
        error.to_string().contains(".zarrfs/files/g/a/a.npy"),
        "{error}"
    );
    drop(below);
}

/// Invariant of `one_file_of_an_array_is_open_for_writing_at_a_time`.
#[test]
fn chunks_of_an_array_that_is_written_are_not_changed_in_the_store_view() {
    let (memory, ..) = fixture();
    let views = common::views_of(Arc::new(memory), Duration::from_secs(20));
    let PathInTree { tree, at: path } = views
        .files
        .tree(&UNLIMITED, &key("g/a/a.npy"))
        .unwrap()
        .unwrap();
    let chunk = key("g/a/c/1/1");
    let is_free = |name: &Key| {
        let written = views.stored.begin_writing(name);
        written.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(is_free(&chunk), Ok(()));
    let file = tree.open(&UNLIMITED, &path, OpenMode::Write).unwrap();
    assert_eq!(is_free(&chunk), Err(Kind::Busy));
    for other in ["g/a/zarr.json", "g/a/c/1", "g/a/c/1/1.tmp", "g/b/c/1/1"] {
        assert_eq!(is_free(&key(other)), Ok(()), "{other}");
    }
    assert!(common::read(&views.stored, "g/a/c/1/1").is_ok());
    drop(file);
    assert_eq!(is_free(&chunk), Ok(()));
}

#[test]
fn opening_or_creating_other_paths_for_writing_fails() {
    let (_, _, _, tree) = fixture();
    let kind = |path: &str| {
        tree.open(&UNLIMITED, &key(path), OpenMode::Write)
            .err()
            .unwrap()
            .kind()
    };
    assert_eq!(kind("g/a"), Kind::IsADirectory);
    assert_eq!(kind("g/a/chunks"), Kind::IsADirectory);
    assert_eq!(kind("g/none"), Kind::NotFound);
    assert_eq!(kind("g/a/chunks/9.9.raw"), Kind::NotFound);
    let made = tree
        .create(&UNLIMITED, &key("g/a/a.raw"), &MAKER)
        .err()
        .unwrap();
    assert_eq!(made.kind(), Kind::Exists);
    let made = tree
        .create(&UNLIMITED, &key("g/data.csv"), &MAKER)
        .err()
        .unwrap();
    assert_eq!(made.kind(), Kind::NotPermitted);
    assert!(tree.free_space().unwrap().available > 0);
    assert!(tree.stat(&UNLIMITED, &key("g/a/a.raw")).unwrap().is_some());
    assert!(tree.stat(&UNLIMITED, &key("g/none")).unwrap().is_none());
}
