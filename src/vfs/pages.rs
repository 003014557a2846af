//! The pages that the kernel has of each inode: when they are kept, and when they are dropped.
//!
//! They belong to all handles of the inode, which have one content. Its bytes may change all the same, as those of a
//! decoded file do when a chunk is written under another name: then the kernel has to drop them.
//!
//! While a program writes a file, nobody drops its pages. The kernel drops those that are clean without waiting for a
//! write that is in them and on its way to us; a map that reads the page then has the bytes before that write, and
//! writes them back. The kernel drops pages by itself when the answer to an open does not say that they are to be kept,
//! and when it finds another time of change (FUSE_AUTO_INVAL_DATA, which is not asked for). So they are dropped here,
//! before an open is answered, and only while no handle is open for writing.

use std::collections::HashMap;
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use crate::vfs::Ino;

/// What the kernel has to ask for again of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Its length may have changed.
    Length,
    /// Its content changed: pages are dropped before the call returns, or soon if requests hold them for long.
    ContentNow,
    /// Its content changed: pages are dropped soon, unless it is open for writing.
    Content,
    /// What was written to it cannot be stored: pages are dropped soon, also while it is open for writing.
    LostContent,
}

/// Has the kernel ask again; returns whether the kernel has done so.
pub type Invalidator = Box<dyn Fn(Ino, Invalidation) -> bool + Send + Sync>;

/// A handle that is about to be answered.
pub(super) struct Opening {
    pub(super) ino: Ino,
    /// The number of the bytes that it reads; `None` if the kernel may keep no pages of them.
    pub(super) version: Option<u64>,
    /// Whether the length that the kernel has may be that of another content.
    pub(super) is_mixed: bool,
}

/// Which bytes the pages of an inode are of. The kernel may have pages of inodes that have such an entry, and no others.
#[derive(Clone, Copy, Default)]
struct CachedPages {
    /// The number of the bytes that all of them are of; `None` if that is unknown.
    version: Option<u64>,
    /// The number of the bytes for which the kernel was last told to drop them.
    dropped_for: Option<u64>,
}

/// Inodes that share a lock are rare among as many.
const LOCKS: usize = 64;

/// The pages that the kernel has.
pub(super) struct KernelPages {
    by_ino: Mutex<HashMap<Ino, CachedPages>>,
    /// Each is held while pages of an inode are dropped and nobody has it open for writing: the answer to an open for
    /// writing waits for that.
    locks: [Mutex<()>; LOCKS],
    invalidator: OnceLock<Invalidator>,
}

impl Default for KernelPages {
    fn default() -> KernelPages {
        KernelPages {
            by_ino: Mutex::default(),
            locks: std::array::from_fn(|_| Mutex::default()),
            invalidator: OnceLock::new(),
        }
    }
}

impl KernelPages {
    /// Has `invalidator` called when something about an inode is seen to have changed.
    pub(super) fn set_invalidator(&self, invalidator: Invalidator) {
        // Only the session that serves this file system sets it, once.
        let _ = self.invalidator.set(invalidator);
    }

    /// Has the kernel ask again. Without a kernel there is nothing to drop.
    pub(super) fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        let invalidator = self.invalidator.get();
        invalidator.is_none_or(|invalidate| invalidate(ino, what))
    }

    fn lock(&self, ino: Ino) -> MutexGuard<'_, ()> {
        // The remainder is below the number of locks.
        #[allow(clippy::cast_possible_truncation, reason = "a remainder of 64")]
        let at = (ino.0 % LOCKS as u64) as usize;
        self.locks[at].lock()
    }

    /// Makes the pages fit a handle that is about to be answered; returns whether the kernel is to keep those that it has
    /// then. `is_written` tells whether another handle is open for writing of which `note_open` was called.
    pub(super) fn open(
        &self,
        opening: &Opening,
        is_written: impl Fn() -> bool,
        note_open: impl FnOnce(),
    ) -> bool {
        let _gate = self.lock(opening.ino);
        let keeps = self.prepare(opening, is_written());
        note_open();
        keeps
    }

    fn prepare(&self, opening: &Opening, is_written: bool) -> bool {
        let Opening { ino, version, .. } = *opening;
        if is_written {
            // What is written goes through the pages, and they have it.
            self.by_ino.lock().entry(ino).or_default().version = None;
            if opening.is_mixed {
                self.invalidate(ino, Invalidation::Length);
            }
            return true;
        }
        let known = self.by_ino.lock().get(&ino).copied();
        let is_same =
            known.is_some_and(|pages| pages.version.is_some() && pages.version == version);
        if !is_same || opening.is_mixed {
            // With pages that are kept, the kernel keeps the length, and cuts the content off there.
            self.invalidate(ino, Invalidation::Length);
        }
        let are_gone = is_same || known.is_none() || self.invalidate(ino, Invalidation::ContentNow);
        let pages = CachedPages {
            version: version.filter(|_| are_gone),
            dropped_for: None,
        };
        self.by_ino.lock().insert(ino, pages);
        are_gone
    }

    /// Notes that an inode whose bytes were `opened` has others by now: the kernel is told once to drop its pages.
    pub(super) fn change(&self, ino: Ino, now: u64) {
        {
            let mut by_ino = self.by_ino.lock();
            let pages = by_ino.entry(ino).or_default();
            if pages.version == Some(now) || pages.dropped_for == Some(now) {
                return;
            }
            *pages = CachedPages {
                version: None,
                dropped_for: Some(now),
            };
        }
        self.invalidate(ino, Invalidation::Content);
    }

    /// Calls `drop_pages` unless an inode is open for writing; no open of it is answered meanwhile.
    pub(super) fn drop_unless(
        &self,
        ino: Ino,
        is_written: impl Fn() -> bool,
        drop_pages: impl FnOnce(),
    ) {
        let _gate = self.lock(ino);
        if !is_written() {
            drop_pages();
        }
    }

    /// Notes that the kernel has forgotten an inode.
    pub(super) fn forget(&self, ino: Ino) {
        self.by_ino.lock().remove(&ino);
    }
}
