//! Folders that move while programs walk into them: concurrent requests must still succeed.
//!
//! A program that has found a folder gets answers about this folder, under its current name.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::waiting;
use zarr_format::error::{Kind, Result};
use zarrfs::vfs::{Caller, DirEntry, Ino, NameIn, NewNode, OpenOptions, Vfs, VfsConfig};
use zarrfs::view::store::StoreView;
use zarrfs_overlay::{Overlay, OverlayConfig};
use zarrfs_store::StoreConfig;
use zarrfs_store::backend::local::LocalStore;
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::tree::{Credentials, RenameMode};

const MAKER: Credentials = Credentials {
    uid: 0,
    gid: 0,
    mode: 0o755,
};

/// How many times a test renames the folder.
const MOVES: usize = 3000;

/// Opens a view with an overlay, over a store with the file `a/x/file`.
fn opened(folder: &Path) -> Vfs {
    let (store, upper) = (folder.join("store"), folder.join("upper"));
    std::fs::create_dir_all(store.join("a/x")).unwrap();
    std::fs::write(store.join("a/x/file"), "one").unwrap();
    std::fs::create_dir_all(store.join("a/full")).unwrap();
    std::fs::write(store.join("a/full/kept"), "two").unwrap();
    let lower = LocalStore::open(&store, &StoreConfig::default()).unwrap();
    let config = OverlayConfig {
        uid: 0,
        gid: 0,
        write_through: false,
    };
    let overlay = Overlay::open(&upper, Arc::new(lower), "/store", config).unwrap();
    let overlay = Arc::new(overlay);
    let view = StoreView::new(overlay.clone()).with_tree(Some(overlay));
    let config = VfsConfig {
        uid: 0,
        gid: 0,
        umask: 0,
        writable: true,
    };
    Vfs::new(Arc::new(view), config, Arc::default())
}

fn look_up(vfs: &Vfs, parent: Ino, name: &str, caller: Caller) -> Option<Ino> {
    let found = waiting::ask(|context| vfs.lookup(context, parent, name.as_bytes(), caller));
    found.unwrap().map(|entry| entry.ino)
}

/// Calls `ask` in a loop with the inode of a folder, while the folder is renamed between `a/x` and `a/y`.
fn beside_moves(ask: impl Fn(&Vfs, Ino, Caller) + Sync) {
    let move_it = |vfs: &Vfs, above: Ino, number: usize| {
        let names: (&[u8], &[u8]) = if number.is_multiple_of(2) {
            (b"x", b"y")
        } else {
            (b"y", b"x")
        };
        let (from, to) = (NameIn::new(above, names.0), NameIn::new(above, names.1));
        vfs.rename(&UNLIMITED, from, to, RenameMode::Replace)
            .unwrap();
    };
    beside(move_it, ask);
}

/// Calls `ask` in a loop with the inode of `a/x`, while `rename` is called with the inode of `a`. There is also the
/// file `a/full/kept`.
fn beside(rename: impl Fn(&Vfs, Ino, usize), ask: impl Fn(&Vfs, Ino, Caller) + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let vfs = opened(folder.path());
    let above = look_up(&vfs, Ino::ROOT, "a", Caller(1)).unwrap();
    let moved = look_up(&vfs, above, "x", Caller(1)).unwrap();
    beside_in((&vfs, above, moved), rename, ask);
}

/// Calls `ask` in a loop with the inode of a folder, while `rename` is called with its parent's inode.
fn beside_in(
    (vfs, above, moved): (&Vfs, Ino, Ino),
    rename: impl Fn(&Vfs, Ino, usize),
    ask: impl Fn(&Vfs, Ino, Caller) + Sync,
) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for caller in 2..4 {
            let (has_ended, ask) = (&has_ended, &ask);
            scope.spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    ask(vfs, moved, Caller(caller));
                }
            });
        }
        let moved = catch_unwind(AssertUnwindSafe(|| {
            (0..MOVES).for_each(|number| rename(vfs, above, number));
        }));
        has_ended.store(true, Ordering::Relaxed);
        moved.unwrap();
    });
}

/// Returns an answer as the kernel gives it to programs: after the error `Changed` (ESTALE), it asks once more.
fn answer<T>(ask: impl Fn() -> Result<T>) -> T {
    match ask() {
        Err(error) if error.kind() == Kind::Changed => ask().unwrap(),
        answer => answer.unwrap(),
    }
}

#[test]
fn a_moving_folder_is_listed_with_its_names() {
    beside_moves(|vfs, ino, caller| {
        let fh = vfs.opendir(&UNLIMITED, ino, caller).unwrap();
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut sink = |entry: DirEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        vfs.readdir(&UNLIMITED, fh, 0, &mut sink).unwrap();
        vfs.releasedir(fh);
        assert!(names.contains(&b"file".to_vec()), "{names:?}");
    });
}

#[test]
fn a_moving_folder_has_attributes() {
    beside_moves(|vfs, ino, caller| {
        waiting::ask(|context| vfs.getattr(context, ino, caller)).unwrap();
    });
}

#[test]
fn a_file_in_a_moving_folder_is_found_and_opened() {
    beside_moves(|vfs, ino, caller| {
        let file = look_up(vfs, ino, "file", caller).expect("it is there all the time");
        let opened = answer(|| vfs.open(&UNLIMITED, file, caller));
        vfs.release(&UNLIMITED, opened.fh);
        vfs.forget(file, 1);
    });
}

#[test]
fn files_are_made_and_removed_in_a_moving_folder() {
    beside_moves(|vfs, ino, caller| {
        let name = format!("new{}", caller.0);
        let mode = OpenOptions {
            writes: true,
            ..OpenOptions::default()
        };
        let (entry, open) = vfs
            .create(&UNLIMITED, ino, name.as_bytes(), &MAKER, mode, caller)
            .unwrap();
        vfs.release(&UNLIMITED, open.fh);
        let other = format!("other{}", caller.0);
        let (from, to) = (
            NameIn::new(ino, name.as_bytes()),
            NameIn::new(ino, other.as_bytes()),
        );
        vfs.rename(&UNLIMITED, from, to, RenameMode::Replace)
            .unwrap();
        vfs.unlink(&UNLIMITED, ino, other.as_bytes()).unwrap();
        vfs.forget(entry.ino, 1);
        let folder = format!("folder{}", caller.0);
        vfs.make(&UNLIMITED, ino, folder.as_bytes(), &NewNode::Folder, &MAKER)
            .unwrap();
        vfs.remove_folder(&UNLIMITED, ino, folder.as_bytes())
            .unwrap();
    });
}

#[test]
fn a_failed_rename_onto_a_folder_does_not_mix_their_children() {
    let fail_to_move = |vfs: &Vfs, above: Ino, _| {
        let (from, to) = (NameIn::new(above, b"x"), NameIn::new(above, b"full"));
        let failed = vfs
            .rename(&UNLIMITED, from, to, RenameMode::Replace)
            .unwrap_err();
        assert_eq!(failed.kind(), Kind::NotEmpty);
        assert!(look_up(vfs, above, "full", Caller(1)).is_some());
    };
    beside(fail_to_move, |vfs, ino, caller| {
        assert!(look_up(vfs, ino, "kept", caller).is_none(), "never here");
        let removed = vfs.unlink(&UNLIMITED, ino, b"kept").unwrap_err();
        assert_eq!(
            removed.kind(),
            Kind::NotFound,
            "it lies in the other folder"
        );
    });
}

/// After ESTALE the kernel looks up the path again. It must then get the current state, also if the folder was removed
/// and created again.
#[test]
fn a_second_path_walk_gets_the_current_state() {
    let folder = tempfile::tempdir().unwrap();
    let vfs = opened(folder.path());
    let above = look_up(&vfs, Ino::ROOT, "a", Caller(1)).unwrap();
    let old = look_up(&vfs, above, "x", Caller(1)).unwrap();
    let file = look_up(&vfs, old, "file", Caller(1)).unwrap();
    vfs.rename(
        &UNLIMITED,
        NameIn::new(above, b"x"),
        NameIn::new(above, b"z"),
        RenameMode::Replace,
    )
    .unwrap();
    vfs.make(&UNLIMITED, above, b"x", &NewNode::Folder, &MAKER)
        .unwrap();
    let new = look_up(&vfs, above, "x", Caller(1)).unwrap();
    vfs.unlink(&UNLIMITED, old, b"file").unwrap();
    vfs.remove_folder(&UNLIMITED, above, b"z").unwrap();
    assert_ne!(new, old);
    for caller in [Caller(2), Caller(3)] {
        let first = vfs.lookup(&UNLIMITED, old, b"file", caller).unwrap_err();
        assert_eq!(first.kind(), Kind::Changed);
        assert!(
            vfs.lookup(&UNLIMITED, old, b"file", caller)
                .unwrap()
                .is_none()
        );
    }
    let first = vfs.open(&UNLIMITED, file, Caller(4)).unwrap_err();
    assert_eq!(first.kind(), Kind::Changed);
    let second = vfs.open(&UNLIMITED, file, Caller(4)).unwrap_err();
    assert_eq!(second.kind(), Kind::NotFound);
}

/// C libraries call `fstat` for each directory that they have opened, so a removed directory must have attributes.
#[test]
fn a_removed_folder_has_attributes_while_it_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let vfs = opened(folder.path());
    let above = look_up(&vfs, Ino::ROOT, "a", Caller(1)).unwrap();
    vfs.make(&UNLIMITED, above, b"new", &NewNode::Folder, &MAKER)
        .unwrap();
    let ino = look_up(&vfs, above, "new", Caller(1)).unwrap();
    let fh = vfs.opendir(&UNLIMITED, ino, Caller(1)).unwrap();
    vfs.remove_folder(&UNLIMITED, above, b"new").unwrap();
    let attr = vfs.getattr(&UNLIMITED, ino, Caller(1)).unwrap();
    assert_eq!(attr.kind, zarrfs_store::EntryKind::Directory);
    vfs.releasedir(fh);
    assert!(vfs.getattr(&UNLIMITED, ino, Caller(1)).is_err());
}
