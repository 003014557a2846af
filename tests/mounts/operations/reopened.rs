//! Names that are replaced between a lookup and the open after it.
//!
//! The kernel then has the length of an older content than the one that is opened. These tests send the requests in the
//! worst order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use zarr_format::error::{Kind, Result};
use zarrfs::vfs::{Caller, Ino, Invalidation, OpenOptions, OpenReply, Vfs, VfsConfig};
use zarrfs::view::store::StoreView;
use zarrfs::view::{Attr, OpenedFile, PathInTree, View};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::{Key, Listing};

use crate::operations::swapping::SwappedTree;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

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

/// A tree with one file, which other programs replace, and the view that has the tree.
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
            .lookup(&UNLIMITED, Ino::ROOT, b"file", Caller(1))
            .unwrap()
            .unwrap()
            .ino
    }

    fn open(&self, ino: Ino, caller: u32, mode: OpenOptions) -> Result<OpenReply> {
        if mode.writes {
            self.vfs
                .open_for_writing(&UNLIMITED, ino, mode, Caller(caller))
        } else {
            self.vfs.open(&UNLIMITED, ino, Caller(caller))
        }
    }

    /// Opens the file with an inode whose lookup found an older content, after the kernel's second lookup of the path.
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

/// The kernel appends at the length that its last lookup has returned, which may belong to an older content.
#[test]
fn a_file_replaced_after_its_lookup_is_appended_at_its_end() {
    let replaced = Replaced::new();
    let (_, opened) = replaced.open_replaced(APPENDS);
    assert!(opened.direct, "the kernel has another content's pages");
    let vfs = &replaced.vfs;
    vfs.write(&UNLIMITED, opened.fh, 7, b", longer").unwrap();
    vfs.write(&UNLIMITED, opened.fh, 15, b" now").unwrap();
    let whole = vfs.read(&UNLIMITED, opened.fh, 0, 100).unwrap();
    assert_eq!(whole.to_vec(), b"the last one, longer now");
}

/// Invariant (mount): The length of an inode is not relied on while the kernel may have the length of another content.
///
/// A reader would be cut off at the length of its last lookup: the kernel drops the answer with the right length if it
/// is told to invalidate the attributes at the same time.
#[test]
fn no_reader_relies_on_the_length_of_another_content() {
    let replaced = Replaced::new();
    let late = replaced.look_up();
    let (ino, first) = replaced.open_replaced(READS);
    assert_ne!(late, ino);
    assert!(first.direct);
    // Other programs open the same inode, after lookups that found the second or the last content.
    let second = replaced.open(ino, 2, READS).unwrap();
    assert_eq!(replaced.look_up(), ino);
    let appending = replaced.open(ino, 3, APPENDS).unwrap();
    assert!(second.direct && appending.direct);
    let vfs = &replaced.vfs;
    vfs.write(&UNLIMITED, appending.fh, 7, b", longer").unwrap();
    let whole = vfs.read(&UNLIMITED, second.fh, 0, 100).unwrap();
    assert_eq!(whole.to_vec(), b"the last one, longer");
    for opened in [first, second, appending] {
        vfs.release(&UNLIMITED, opened.fh);
    }
    // The kernel may still have an older content's length for the inode, so a new lookup returns another inode.
    let fresh = replaced.look_up();
    assert_ne!(fresh, ino);
    assert!(!replaced.open(fresh, 4, READS).unwrap().direct);
}

/// If a lookup returns another inode than the kernel has, the kernel may discard the answer and use the inode that it
/// had.
#[test]
fn a_lookup_taken_back_does_not_invalidate_the_length_again() {
    let replaced = Replaced::new();
    let lengths = Arc::new(AtomicUsize::new(0));
    let counted = lengths.clone();
    replaced.vfs.set_kernel_cache(move |_, what| {
        if what == Invalidation::Length {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        true
    });
    let ino = replaced.look_up();
    let held = replaced.open(ino, 1, READS).unwrap();
    assert_eq!(replaced.look_up(), ino);
    replaced.vfs.forget(ino, 1);
    replaced.open(ino, 2, READS).unwrap();
    assert_eq!(lengths.load(Ordering::Relaxed), 1);
    replaced.vfs.release(&UNLIMITED, held.fh);
}

/// A view of a store that lets the kernel cache its answers for a long time.
struct LongKept(StoreView);

const LONG: Duration = Duration::from_secs(600);

fn long(attr: Attr) -> Attr {
    Attr { ttl: LONG, ..attr }
}

impl View for LongKept {
    fn lookup(&self, context: &RequestContext, path: &Key) -> Result<Option<Attr>> {
        Ok(self.0.lookup(context, path)?.map(long))
    }

    fn list(&self, context: &RequestContext, path: &Key) -> Result<Box<dyn Listing>> {
        self.0.list(context, path)
    }

    fn open(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        self.0.open(context, path)
    }

    fn read_link(&self, context: &RequestContext, path: &Key) -> Result<Vec<u8>> {
        self.0.read_link(context, path)
    }

    fn tree(&self, context: &RequestContext, path: &Key) -> Result<Option<PathInTree>> {
        self.0.tree(context, path)
    }
}

/// The kernel stores the attributes of an answer one by one. They must not be cached here, because a program that calls
/// stat at the same time might get the length of another content.
#[test]
fn attributes_of_an_inode_with_a_new_content_are_not_cached() {
    let store = MemoryStore::default();
    let put = |bytes: &[u8]| store.set(Key::new("file").unwrap(), bytes.to_vec());
    put(b"one");
    let view = Arc::new(LongKept(StoreView::new(Arc::new(store.clone()))));
    let config = VfsConfig {
        uid: 0,
        gid: 0,
        umask: 0,
        writable: false,
    };
    let vfs = Vfs::new(view, config, Arc::default());
    let lengths = Arc::new(AtomicUsize::new(0));
    let counted = lengths.clone();
    vfs.set_kernel_cache(move |_, what| {
        if what == Invalidation::Length {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        true
    });
    let look_up = || {
        vfs.lookup(&UNLIMITED, Ino::ROOT, b"file", Caller(1))
            .unwrap()
            .unwrap()
    };
    let first = look_up();
    assert_eq!(first.attr.ttl, LONG);
    put(b"another");
    let refused = vfs.open(&UNLIMITED, first.ino, Caller(1)).unwrap_err();
    assert_eq!(refused.kind(), Kind::Changed);
    let second = look_up();
    put(b"the last one");
    let opened = vfs.open(&UNLIMITED, second.ino, Caller(1)).unwrap();
    let attr = vfs.getattr(&UNLIMITED, second.ino, Caller(1)).unwrap();
    assert_eq!((attr.size, attr.ttl), (12, Duration::ZERO));
    let before = lengths.load(Ordering::Relaxed);
    let again = vfs.open(&UNLIMITED, second.ino, Caller(2)).unwrap();
    assert_eq!(lengths.load(Ordering::Relaxed), before + 1);
    for opened in [opened, again] {
        vfs.release(&UNLIMITED, opened.fh);
    }
}
