//! Names that are replaced between each lookup and the opening after it: the kernel then has the length of another content
//! than the one that is opened. Here its requests come in the order that does most harm.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zarrfs::error::{Kind, Result};
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::vfs::{Caller, Ino, Invalidation, OpenOptions, OpenReply, Vfs, VfsConfig};
use zarrfs::view::store::StoreView;

use crate::swapping::SwappedTree;

const READS: OpenOptions = OpenOptions {
    writes: false,
    appends: false,
    truncates: false,
    is_new: false,
};

const APPENDS: OpenOptions = OpenOptions {
    writes: true,
    appends: true,
    ..READS
};

/// A tree whose one file others replace, and the operations on it.
struct Replaced {
    tree: Arc<SwappedTree>,
    vfs: Vfs,
}

impl Replaced {
    fn new() -> Replaced {
        let tree = Arc::new(SwappedTree::default());
        tree.put("file", b"one");
        let view = StoreView::new(Arc::new(MemoryStore::default()));
        let config = VfsConfig {
            uid: 0,
            gid: 0,
            umask: 0,
            writable: true,
        };
        let view = Arc::new(view.with_tree(Some(tree.clone())));
        let vfs = Vfs::new(view, config, Arc::default());
        Replaced { tree, vfs }
    }

    fn look_up(&self) -> Ino {
        self.vfs
            .lookup(Ino::ROOT, b"file", Caller(1))
            .unwrap()
            .unwrap()
            .ino
    }

    fn open(&self, ino: Ino, caller: u32, mode: OpenOptions) -> Result<OpenReply> {
        if mode.writes {
            self.vfs.open_for_writing(ino, mode, Caller(caller))
        } else {
            self.vfs.open(ino, Caller(caller))
        }
    }

    /// Opens the file by an inode whose lookup has found another content; the kernel has walked the path twice.
    fn open_replaced(&self, mode: OpenOptions) -> (Ino, OpenReply) {
        let first = self.look_up();
        self.tree.put("file", b"another");
        let refused = self.open(first, 1, mode).unwrap_err();
        assert_eq!(refused.kind(), Kind::Changed);
        let second = self.look_up();
        self.tree.put("file", b"the last one");
        (second, self.open(second, 1, mode).unwrap())
    }
}

/// The kernel takes the length of what its last lookup found for the end.
#[test]
fn a08_a_file_that_is_replaced_after_each_lookup_is_appended_to_at_its_end() {
    let replaced = Replaced::new();
    let (_, opened) = replaced.open_replaced(APPENDS);
    assert!(opened.direct, "the kernel has another content's pages");
    let vfs = &replaced.vfs;
    vfs.write(opened.fh, 7, b", longer").unwrap();
    vfs.write(opened.fh, 15, b" now").unwrap();
    let whole = vfs.read(opened.fh, 0, 100).unwrap();
    assert_eq!(whole.to_vec(), b"the last one, longer now");
}

/// A reader would be cut off at the length of what its last lookup found: the kernel drops the answer in which it hears of
/// the right one if it is told to ask again meanwhile.
#[test]
fn a08_no_reader_relies_on_the_length_of_another_content() {
    let replaced = Replaced::new();
    let late = replaced.look_up();
    let (ino, first) = replaced.open_replaced(READS);
    assert_ne!(late, ino);
    assert!(first.direct);
    // Others open the inode by a lookup that found the second content, or the last one.
    let second = replaced.open(ino, 2, READS).unwrap();
    assert_eq!(replaced.look_up(), ino);
    let appending = replaced.open(ino, 3, APPENDS).unwrap();
    assert!(second.direct && appending.direct);
    let vfs = &replaced.vfs;
    vfs.write(appending.fh, 7, b", longer").unwrap();
    let whole = vfs.read(second.fh, 0, 100).unwrap();
    assert_eq!(whole.to_vec(), b"the last one, longer");
    for opened in [first, second, appending] {
        vfs.release(opened.fh);
    }
    // The kernel may still have that length: whoever looks the name up now gets another inode.
    let fresh = replaced.look_up();
    assert_ne!(fresh, ino);
    assert!(!replaced.open(fresh, 4, READS).unwrap().direct);
}

/// The kernel takes back a lookup whose answer was another inode than it had, and goes on using that one.
#[test]
fn a_lookup_that_is_taken_back_has_nobody_ask_for_the_length_again() {
    let replaced = Replaced::new();
    let lengths = Arc::new(AtomicUsize::new(0));
    let counted = lengths.clone();
    replaced.vfs.set_invalidator(Box::new(move |_, what| {
        if what == Invalidation::Length {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let ino = replaced.look_up();
    let held = replaced.open(ino, 1, READS).unwrap();
    assert_eq!(replaced.look_up(), ino);
    replaced.vfs.forget(ino, 1);
    replaced.open(ino, 2, READS).unwrap();
    assert_eq!(lengths.load(Ordering::Relaxed), 1);
    replaced.vfs.release(held.fh);
}
