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
    /// Nothing yet: the call returns once the requests are answered that may hold pages, or says that they take long.
    Settled,
    /// Its content changed: pages are dropped before the call returns.
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

impl CachedPages {
    /// Whether all of them are of the bytes with this number.
    fn are_of(self, version: Option<u64>) -> bool {
        self.version.is_some() && self.version == version
    }
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
        let mut are_free = None;
        loop {
            let gate = self.lock(opening.ino);
            let is_written = is_written();
            if are_free.is_none() && !is_written && self.has_others(opening) {
                // Nobody waits for a store with the lock: others open the same file, or one that shares the lock.
                drop(gate);
                are_free = Some(self.invalidate(opening.ino, Invalidation::Settled));
                continue;
            }
            let keeps = self.prepare(opening, is_written, are_free.unwrap_or(true));
            note_open();
            return keeps;
        }
    }

    /// Whether the kernel may have pages of other bytes than those that a handle reads.
    fn has_others(&self, opening: &Opening) -> bool {
        let known = self.by_ino.lock().get(&opening.ino).copied();
        known.is_some_and(|pages| !pages.are_of(opening.version))
    }

    /// Makes the pages fit a handle; those of other bytes are dropped if they `are_free`: no request holds them.
    fn prepare(&self, opening: &Opening, is_written: bool, are_free: bool) -> bool {
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
        let is_same = known.is_some_and(|pages| pages.are_of(version));
        if !is_same || opening.is_mixed {
            // With pages that are kept, the kernel keeps the length, and cuts the content off there.
            self.invalidate(ino, Invalidation::Length);
        }
        let drop_pages = || are_free && self.invalidate(ino, Invalidation::ContentNow);
        let are_gone = is_same || known.is_none() || drop_pages();
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    fn opening(ino: u64, version: u64) -> Opening {
        Opening {
            ino: Ino(ino),
            version: Some(version),
            is_mixed: false,
        }
    }

    /// Requests of a file hang whose bytes have changed. An open of it that waits for them holds up no other file, though
    /// both have one lock, and no other open of the same file.
    #[test]
    fn an_open_that_waits_for_requests_holds_up_no_other() {
        let pages = KernelPages::default();
        let (waits, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        pages.set_invalidator(Box::new(move |_, what| {
            if what == Invalidation::Settled {
                waits.send(()).unwrap();
                released.lock().recv().unwrap();
            }
            log.lock().push(what);
            what != Invalidation::Settled
        }));
        let open = |ino, version| pages.open(&opening(ino, version), || false, || ());
        assert!(open(7, 1));
        told.lock().clear();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| open(7, 2));
            has_begun.recv().unwrap();
            assert!(open(7 + LOCKS as u64, 1));
            assert!(open(7, 1), "its pages are of these bytes");
            release.send(()).unwrap();
            assert!(!waiting.join().unwrap(), "they may have stayed");
        });
        assert!(!told.lock().contains(&Invalidation::ContentNow));
    }
}
