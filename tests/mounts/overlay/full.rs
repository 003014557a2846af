//! An upper folder on a full disk: writers get the error, no content is truncated.
//!
//! Files can still be removed.

use std::fs;
use std::sync::Arc;

use zarr_format::error::Kind;
use zarrfs_overlay::Overlay;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{AttrChange, OpenMode, RenameMode, TreeFile};
use zarrfs_store::{Condition, PutBody, Store, Tree as _};

use crate::common::tmpfs::Tmpfs;
use crate::overlay::fixture::{MAKER, NAME, key, opened, shown};
use crate::overlay::reference::Shown;
use zarrfs_store::request_context::UNLIMITED;

const MIB: u64 = 1 << 20;

/// An overlay whose upper folder is on a 4 MiB disk. The store has one small object.
struct Small {
    overlay: Option<Overlay>,
    lower: Arc<dyn Store>,
    disk: Tmpfs,
}

impl Small {
    fn new() -> Option<Small> {
        let disk = Tmpfs::new(4 * MIB)?;
        let lower: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let old = PutBody::Bytes(b"old");
        lower
            .put(&UNLIMITED, &key("a"), old, &Condition::Any)
            .unwrap();
        let mut small = Small {
            overlay: None,
            lower,
            disk,
        };
        small.remount();
        Some(small)
    }

    fn remount(&mut self) {
        self.overlay = None;
        self.overlay = Some(opened(&self.disk.path().join("upper"), &self.lower, NAME).unwrap());
    }

    fn overlay(&self) -> &Overlay {
        self.overlay.as_ref().unwrap()
    }

    fn create(&self, name: &str) -> Arc<dyn TreeFile> {
        self.overlay()
            .create(&UNLIMITED, &key(name), &MAKER)
            .unwrap()
    }

    fn open(&self, name: &str, truncate: bool) -> Arc<dyn TreeFile> {
        let mode = if truncate {
            OpenMode::Truncate
        } else {
            OpenMode::Write
        };
        zarrfs_store::Tree::open(self.overlay(), &UNLIMITED, &key(name), mode).unwrap()
    }

    fn committed(&self, name: &str) -> Option<Vec<u8>> {
        let done = self
            .overlay()
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .and_then(zarrfs_overlay::commit::Outcome::or_failed);
        assert!(done.unwrap().conflicts.is_empty());
        let stored = self.lower.open(&UNLIMITED, &key(name), None).ok()?;
        Some(stored.read_at(&UNLIMITED, 0, usize::MAX >> 1).unwrap())
    }
}

/// Writes to a file until the disk is full; returns the number of bytes that were written.
fn write_too_much(file: &dyn TreeFile) -> u64 {
    for piece in 0.. {
        if let Err(error) = file.write_at(&UNLIMITED, piece * MIB / 4, &vec![7; MIB as usize / 4]) {
            assert_eq!(error.kind(), Kind::NoSpace);
            return piece * MIB / 4;
        }
    }
    unreachable!("there is always room");
}

fn no_room(file: &dyn TreeFile) {
    let error = file.flush(&UNLIMITED).unwrap_err();
    assert_eq!(error.kind(), Kind::NoSpace, "{error}");
    assert!(error.to_string().contains("incomplete"), "{error}");
}

/// Invariant (overlay): An incomplete file never gets a key of the store, and names can be removed when the disk is
/// full.
#[test]
fn an_incomplete_write_leaves_the_old_content() {
    let Some(small) = Small::new() else { return };
    let file = small.open("a", true);
    write_too_much(&*file);
    no_room(&*file);
    drop(file);
    let tree = shown(small.overlay(), true);
    assert_eq!(tree["a"], Shown::File(b"old".to_vec()));
    assert_eq!(small.committed("a").unwrap(), b"old");
}

/// Invariant of `an_incomplete_write_leaves_the_old_content`.
#[test]
fn an_incomplete_new_file_is_shown_but_not_committed() {
    let Some(mut small) = Small::new() else {
        return;
    };
    let file = small.create("new");
    let written = write_too_much(&*file);
    no_room(&*file);
    drop(file);
    assert_eq!(small.committed("new"), None);
    // The incomplete file cannot be published either after it was opened again or renamed.
    let again = small.open("new", false);
    no_room(&*again);
    let size = again.stat(&UNLIMITED).unwrap().meta.size;
    assert!(size >= written, "{size}");
    drop(again);
    let (overlay, other) = (small.overlay(), key("other"));
    overlay
        .rename(&UNLIMITED, &key("new"), &other, RenameMode::Replace)
        .unwrap();
    let refused = overlay
        .link(&UNLIMITED, &other, &key("second"))
        .unwrap_err();
    assert_eq!(refused.kind(), Kind::NoSpace);
    assert_eq!(small.committed("other"), None);
    no_room(&*small.open("other", false));
    let kept = small.overlay().changes(&UNLIMITED).unwrap().uncommittable;
    assert!(kept[0].1.contains("incomplete file"), "{kept:?}");
    // When the upper folder is opened again, the incomplete file is moved to `rescued/`.
    small.remount();
    assert_eq!(
        small.overlay().stat(&UNLIMITED, &key("other")).unwrap(),
        None
    );
    let rescued = small.disk.path().join("upper/rescued/other~0");
    assert_eq!(rescued.metadata().unwrap().len(), size);
}

#[test]
fn a_file_completed_after_a_full_disk_is_committed() {
    for name in ["a", "new"] {
        // Use a new disk for each case, because a thread removes the files of an earlier commit and frees space at any
        // time.
        let Some(small) = Small::new() else { return };
        let file = match name {
            "a" => small.open(name, true),
            _ => small.create(name),
        };
        file.write_at(&UNLIMITED, 0, b"begun").unwrap();
        let filler = small.disk.fill();
        let end = write_too_much(&*file);
        no_room(&*file);
        small.disk.free(&filler);
        no_room(&*file);
        file.write_at(&UNLIMITED, end, &vec![7; MIB as usize / 4])
            .unwrap();
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        let stored = small.committed(name).unwrap();
        assert_eq!(stored.len() as u64, end + MIB / 4, "{name}");
        assert!(stored.iter().skip(5).all(|&byte| byte == 7), "{name}");
    }
}

#[test]
fn truncating_an_incomplete_file_makes_it_complete() {
    let Some(small) = Small::new() else { return };
    let file = small.create("new");
    write_too_much(&*file);
    let size = Some(0);
    let empty = AttrChange {
        size,
        ..AttrChange::default()
    };
    file.change(&UNLIMITED, &empty).unwrap();
    file.write_at(&UNLIMITED, 0, b"short").unwrap();
    file.flush(&UNLIMITED).unwrap();
    drop(file);
    assert_eq!(small.committed("new").unwrap(), b"short");
}

/// Invariant of `an_incomplete_write_leaves_the_old_content`.
#[test]
fn names_can_be_removed_on_a_full_disk() {
    let Some(small) = Small::new() else { return };
    for number in 0..200 {
        let name = format!("b/{number}");
        let some = PutBody::Bytes(b"some");
        small
            .lower
            .put(&UNLIMITED, &key(&name), some, &Condition::Any)
            .unwrap();
    }
    small.create("new").flush(&UNLIMITED).unwrap();
    let filler = small.disk.fill();
    for number in 0..200 {
        small
            .overlay()
            .unlink(&UNLIMITED, &key(&format!("b/{number}")))
            .unwrap();
    }
    small.overlay().unlink(&UNLIMITED, &key("new")).unwrap();
    small
        .overlay()
        .rename(&UNLIMITED, &key("a"), &key("c"), RenameMode::Replace)
        .unwrap();
    small.disk.free(&filler);
    assert_eq!(small.committed("b/7"), None);
    assert_eq!(small.committed("c").unwrap(), b"old");
}

/// The disk is full at the first page that the creation of an upper folder writes, then at the second, and so on.
#[test]
fn an_upper_folder_can_be_made_after_a_full_disk_has_space() {
    const PAGE: u64 = 4096;
    for pages in 0..4 {
        let Some(disk) = Tmpfs::new(4 * MIB) else {
            return;
        };
        let small = Small {
            overlay: None,
            lower: Arc::new(MemoryStore::default()),
            disk,
        };
        let filler = small.disk.fill();
        let size = filler.metadata().unwrap().len() - pages * PAGE;
        let shorter = fs::File::options().write(true).open(&filler);
        shorter.unwrap().set_len(size).unwrap();
        let upper = small.disk.path().join("upper");
        let open = || opened(&upper, &small.lower, NAME);
        match open() {
            Ok(_) => assert!(pages >= 2, "{pages}"),
            Err(error) => assert_eq!(error.kind(), Kind::NoSpace, "{pages}: {error}"),
        }
        small.disk.free(&filler);
        open().unwrap();
    }
}

/// An upper folder on a read-only file system, such as a snapshot, can be opened to see its changes.
#[test]
fn a_read_only_upper_folder_shows_its_changes() {
    let Some(mut small) = Small::new() else {
        return;
    };
    let file = small.create("new");
    file.write_at(&UNLIMITED, 0, b"written").unwrap();
    file.flush(&UNLIMITED).unwrap();
    drop(file);
    small.overlay().unlink(&UNLIMITED, &key("a")).unwrap();
    small.overlay = None;
    assert!(small.disk.mount(&["-o", "remount,ro"]));
    small.remount();
    let tree = shown(small.overlay(), true);
    assert_eq!(tree["new"], Shown::File(b"written".to_vec()));
    assert!(!tree.contains_key("a"));
    let changes = small.overlay().changes(&UNLIMITED).unwrap();
    assert_eq!(changes.keys.len(), 2);
    let refused = small
        .overlay()
        .create(&UNLIMITED, &key("more"), &MAKER)
        .err()
        .unwrap();
    assert_eq!(refused.kind(), Kind::ReadOnly);
}
