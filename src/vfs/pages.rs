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
//!
//! The kernel drops no page that a request has locked, and waits for it. A store that stalls would hold up every open of
//! the file for as long as a read may take. An open for reading that would wait longer than `OPEN_WAIT` is answered at
//! once instead, and its handle reads past the pages.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::vfs::Ino;

/// What the kernel has to ask for again of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Its length may have changed.
    Length,
    /// Nothing yet: the call returns whether the requests are answered that may hold pages, and waits `OPEN_WAIT` for them.
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

/// How long the answer to an open waits for pages that others hold.
pub const OPEN_WAIT: Duration = Duration::from_secs(1);

/// A handle that is about to be answered.
pub(super) struct Opening {
    pub(super) ino: Ino,
    /// The number of the bytes that it reads; `None` if the kernel may keep no pages of them.
    pub(super) version: Option<u64>,
    /// Whether the length that the kernel has may be that of another content.
    pub(super) is_mixed: bool,
    /// Whether it is open for writing.
    pub(super) writes: bool,
}

/// What becomes of the kernel's pages when an open is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageUse {
    /// They are of the bytes that the handle reads.
    Keep,
    /// The kernel drops them.
    Drop,
    /// They may be of other bytes and cannot be dropped now: they stay, and the handle reads past them.
    Bypass,
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

/// The pages that the kernel has.
#[derive(Default)]
pub(super) struct KernelPages {
    by_ino: Mutex<HashMap<Ino, CachedPages>>,
    /// The inodes whose pages one thread is dropping or has just found to fit: no other open of them is answered.
    gates: Mutex<HashSet<Ino>>,
    opened: Condvar,
    invalidator: OnceLock<Invalidator>,
}

/// Keeps other opens of an inode waiting until it is dropped.
struct Gate<'a> {
    pages: &'a KernelPages,
    ino: Ino,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.pages.gates.lock().remove(&self.ino);
        self.pages.opened.notify_all();
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

    /// Waits until no other thread has the gate of an inode, until `end` at most.
    fn gate(&self, ino: Ino, end: Option<Instant>) -> Option<Gate<'_>> {
        let mut gates = self.gates.lock();
        while !gates.insert(ino) {
            match end {
                Some(end) if self.opened.wait_until(&mut gates, end).timed_out() => return None,
                Some(_) => {}
                None => self.opened.wait(&mut gates),
            }
        }
        Some(Gate { pages: self, ino })
    }

    /// Makes the pages fit a handle that is about to be answered. `is_written` tells whether another handle is open for
    /// writing of which `note_open` was called.
    pub(super) fn open(
        &self,
        opening: &Opening,
        is_written: impl Fn() -> bool,
        note_open: impl FnOnce(),
    ) -> PageUse {
        // A program that maps the file for writing needs the pages, and waits for them.
        let end = (!opening.writes).then(|| Instant::now() + OPEN_WAIT);
        let mut are_free = None;
        loop {
            let Some(gate) = self.gate(opening.ino, end) else {
                note_open();
                return PageUse::Bypass;
            };
            let is_written = is_written();
            if are_free.is_none() && !is_written && self.has_others(opening) {
                // Others may open the same file meanwhile.
                drop(gate);
                are_free = Some(self.invalidate(opening.ino, Invalidation::Settled));
                continue;
            }
            let page_use = self.prepare(opening, is_written, are_free.unwrap_or(true));
            note_open();
            return page_use;
        }
    }

    /// Whether the kernel may have pages of other bytes than those that a handle reads.
    fn has_others(&self, opening: &Opening) -> bool {
        let known = self.by_ino.lock().get(&opening.ino).copied();
        known.is_some_and(|pages| !pages.are_of(opening.version))
    }

    /// Makes the pages fit a handle; those of other bytes are dropped if they `are_free`: no request holds them.
    fn prepare(&self, opening: &Opening, is_written: bool, are_free: bool) -> PageUse {
        let Opening { ino, version, .. } = *opening;
        if is_written {
            // What is written goes through the pages, and they have it.
            self.by_ino.lock().entry(ino).or_default().version = None;
            if opening.is_mixed {
                self.invalidate(ino, Invalidation::Length);
            }
            return PageUse::Keep;
        }
        let known = self.by_ino.lock().get(&ino).copied();
        let is_same = known.is_some_and(|pages| pages.are_of(version));
        if !is_same || opening.is_mixed {
            // With pages that are kept, the kernel keeps the length, and cuts the content off there.
            self.invalidate(ino, Invalidation::Length);
        }
        let drop_pages = || are_free && self.invalidate(ino, Invalidation::ContentNow);
        let page_use = match known {
            _ if is_same => PageUse::Keep,
            None => PageUse::Keep,
            Some(_) if drop_pages() => PageUse::Keep,
            Some(_) if opening.writes => PageUse::Drop,
            Some(_) => PageUse::Bypass,
        };
        let pages = CachedPages {
            version: version.filter(|_| page_use == PageUse::Keep),
            dropped_for: None,
        };
        self.by_ino.lock().insert(ino, pages);
        page_use
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
        let _gate = self.gate(ino, None);
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
            writes: false,
        }
    }

    /// Tells the test when the kernel is asked for something, and lets it wait until it is released.
    struct Kernel {
        told: Arc<Mutex<Vec<Invalidation>>>,
        waits: mpsc::Receiver<()>,
        release: mpsc::Sender<()>,
    }

    /// Pages of a kernel of which requests hold some: it waits when it is asked for `held`, and answers `false`.
    fn pages_held_at(held: Invalidation) -> (KernelPages, Kernel) {
        let pages = KernelPages::default();
        let (waits, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        pages.set_invalidator(Box::new(move |_, what| {
            if what == held {
                waits.send(()).unwrap();
                released.lock().recv().unwrap();
            }
            log.lock().push(what);
            what != held
        }));
        let waits = has_begun;
        let kernel = Kernel {
            told,
            waits,
            release,
        };
        (pages, kernel)
    }

    /// Requests of a file hang whose bytes have changed. An open of it that waits for them holds up no other open of the
    /// file, and reads past the pages in the end.
    #[test]
    fn an_open_that_waits_for_requests_holds_up_no_other() {
        let (pages, kernel) = pages_held_at(Invalidation::Settled);
        let open = |version| pages.open(&opening(7, version), || false, || ());
        assert_eq!(open(1), PageUse::Keep);
        kernel.told.lock().clear();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| open(2));
            kernel.waits.recv().unwrap();
            assert_eq!(open(1), PageUse::Keep, "its pages are of these bytes");
            kernel.release.send(()).unwrap();
            assert_eq!(waiting.join().unwrap(), PageUse::Bypass);
        });
        assert!(!kernel.told.lock().contains(&Invalidation::ContentNow));
    }

    /// The kernel waits for a page when the pages of a file are dropped. Opens of it do not.
    #[test]
    fn an_open_waits_a_moment_for_pages_that_are_being_dropped() {
        let (pages, kernel) = pages_held_at(Invalidation::ContentNow);
        let drop_pages = || _ = pages.invalidate(Ino(7), Invalidation::ContentNow);
        let mut is_noted = false;
        thread::scope(|scope| {
            scope.spawn(|| pages.drop_unless(Ino(7), || false, drop_pages));
            kernel.waits.recv().unwrap();
            let opened = pages.open(&opening(7, 1), || false, || is_noted = true);
            assert_eq!(opened, PageUse::Bypass);
            assert_eq!(pages.open(&opening(8, 1), || false, || ()), PageUse::Keep);
            kernel.release.send(()).unwrap();
        });
        assert!(is_noted);
        assert_eq!(pages.open(&opening(7, 1), || false, || ()), PageUse::Keep);
    }
}
