//! Tracks the kernel's cached pages of each inode, and when to drop them.
//!
//! All handles of an inode read the same file and share its pages. The bytes of the file may change without a write to
//! it, for example when a chunk of a decoded file is written under its key. Then the kernel must drop the pages.
//!
//! The pages of a file that is open for writing are not dropped. The kernel drops clean pages although a write that has
//! modified them may still be on its way to us; an mmap that reads such a page again gets the old bytes and writes them
//! back. The kernel drops pages on its own when the reply to an open has no FOPEN_KEEP_CACHE, and when the mtime
//! changes (FUSE_AUTO_INVAL_DATA, which we do not request). So we tell it to drop pages before the reply to an open,
//! and only while no handle is open for writing.
//!
//! Before the kernel drops a page, it waits for the request that has locked the page. So a stalled store could delay
//! every open of the file by the time limit of a read. Instead, an open for reading waits at most `OPEN_WAIT`, and then
//! its handle bypasses the pages.
//!
//! A program that reads many small files waits for four requests per file: lookup, open, getattr and read. At the first
//! open of a file in a read-only mount, the kernel may already have the length, so it needs no getattr. If the file is
//! small and in memory, the kernel also gets all pages before the reply to the open, so it needs no read.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::vfs::Ino;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// The part of the kernel's cache for an inode that is invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Invalidates the kernel's cached length of the file.
    Length,
    /// Invalidates nothing. Waits, at most `OPEN_WAIT`, for requests that may have locked pages, and returns whether
    /// they were answered.
    Settled,
    /// Drops the kernel's cached pages of the file before the call returns.
    ContentNow,
    /// Drops the kernel's cached pages of the file soon, unless the inode is open for writing.
    Content,
    /// Drops the kernel's cached pages of the file soon, even if the inode is open for writing, because its writes are
    /// lost.
    LostContent,
}

/// The kernel's page cache for a mount. A closure can implement `invalidate`, and then `add_pages` does nothing.
pub trait KernelCache: Send + Sync {
    /// Invalidates the kernel's cache for an inode. Returns whether the kernel has done so.
    fn invalidate(&self, ino: Ino, what: Invalidation) -> bool;

    /// Adds all pages of an inode to the kernel's cache, which has none of them. Pages that cannot be added are
    /// requested when a program reads them.
    fn add_pages(&self, _ino: Ino, _content: &[u8]) {}
}

impl<F: Fn(Ino, Invalidation) -> bool + Send + Sync> KernelCache for F {
    fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        self(ino, what)
    }
}

/// Maximum time that an open waits for requests that have locked pages of the file.
pub const OPEN_WAIT: Duration = Duration::from_secs(1);

/// A file that is being opened, before the kernel gets the reply.
pub(super) struct Opening<'a> {
    pub(super) ino: Ino,
    /// The version of the bytes that the handle reads, or `None` if the kernel must not cache pages of the file.
    pub(super) version: Option<u64>,
    /// Whether the kernel may have the length of another file, because the name was replaced.
    pub(super) is_mixed: bool,
    pub(super) writes: bool,
    /// Returns whether the kernel has the exact length of the inode. Only called if the kernel has had no pages of it.
    pub(super) has_length: &'a dyn Fn() -> bool,
    /// Returns all bytes of the file if they are in memory and few enough to be sent with the reply, or else `None`.
    pub(super) small_content: &'a dyn Fn() -> Option<ReadBytes>,
}

/// What happens to the kernel's cached pages of a file when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageUse {
    /// The kernel's cached pages are valid and stay cached.
    Keep,
    /// The kernel drops its cached pages when it gets the reply to the open.
    Drop,
    /// Stale pages may stay cached, because they cannot be dropped now. Reads of the handle bypass them.
    Bypass,
}

/// The version of the pages that the kernel may have cached for an inode.
#[derive(Clone, Copy, Default)]
struct CachedPages {
    /// The version of the bytes in all cached pages, or `None` if it is unknown.
    version: Option<u64>,
    /// The version of the file at which the kernel was last told to drop the pages.
    dropped_for: Option<u64>,
}

impl CachedPages {
    /// Whether all cached pages are known to have the given version.
    fn have_version(self, version: Option<u64>) -> bool {
        self.version.is_some() && self.version == version
    }
}

/// The versions of the kernel's cached pages, by inode.
#[derive(Default)]
pub(super) struct KernelPages {
    by_ino: Mutex<HashMap<Ino, CachedPages>>,
    /// Inodes whose cached pages a thread is checking or dropping. Other opens of these inodes wait.
    gates: Mutex<HashSet<Ino>>,
    opened: Condvar,
    cache: OnceLock<Box<dyn KernelCache>>,
}

/// Lets other opens of an inode wait until it is dropped.
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
    pub(super) fn set_cache(&self, cache: Box<dyn KernelCache>) {
        // The cache is set only once, by the session that serves this file system.
        let _ = self.cache.set(cache);
    }

    /// Invalidates the kernel's cache for an inode. Does nothing before the cache is set, as in tests.
    pub(super) fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        let cache = self.cache.get();
        cache.is_none_or(|cache| cache.invalidate(ino, what))
    }

    /// Waits until no other open of an inode checks its pages, and makes later opens wait. Returns `None` at the time
    /// `end`.
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

    /// Decides what happens to the kernel's cached pages when a file is opened, and drops stale pages. `is_written`
    /// returns whether another handle is open for writing. `mark_open` is called before other opens of the inode
    /// proceed.
    pub(super) fn open(
        &self,
        opening: &Opening<'_>,
        is_written: impl Fn() -> bool,
        mark_open: impl FnOnce(),
    ) -> PageUse {
        // A writable mmap needs the page cache, so an open for writing waits as long as necessary.
        let end = (!opening.writes).then(|| Instant::now() + OPEN_WAIT);
        let mut are_free = None;
        loop {
            let Some(gate) = self.gate(opening.ino, end) else {
                mark_open();
                return PageUse::Bypass;
            };
            let is_written = is_written();
            if are_free.is_none() && !is_written && self.has_others(opening) {
                // While this open waits for requests, other opens of the file may proceed.
                drop(gate);
                are_free = Some(self.invalidate(opening.ino, Invalidation::Settled));
                continue;
            }
            let page_use = self.prepare(opening, is_written, are_free.unwrap_or(true));
            mark_open();
            return page_use;
        }
    }

    /// Whether the kernel may have cached pages of another version than the handle reads.
    fn has_others(&self, opening: &Opening<'_>) -> bool {
        let known = self.by_ino.lock().get(&opening.ino).copied();
        known.is_some_and(|pages| !pages.have_version(opening.version))
    }

    /// Decides what happens to the kernel's cached pages when a file is opened. Stale pages are only dropped if
    /// `are_free`, that is, no request has locked a page.
    fn prepare(&self, opening: &Opening<'_>, is_written: bool, are_free: bool) -> PageUse {
        let Opening { ino, version, .. } = *opening;
        if is_written {
            // Programs write into the cached pages, so the pages are current.
            self.by_ino.lock().entry(ino).or_default().version = None;
            if opening.is_mixed {
                self.invalidate(ino, Invalidation::Length);
            }
            return PageUse::Keep;
        }
        let known = self.by_ino.lock().get(&ino).copied();
        let is_same = known.is_some_and(|pages| pages.have_version(version));
        if known.is_none() && !opening.is_mixed && (opening.has_length)() {
            self.add_small(opening);
        } else if !is_same || opening.is_mixed {
            // With the pages, the kernel would keep the old length of the file, and cut the new bytes off there.
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

    /// Adds all pages of a small file to the kernel's cache at its first open, so that the program's read needs no
    /// request. No request can have locked a page, because the inode has no other open before this one is answered.
    fn add_small(&self, opening: &Opening<'_>) {
        if let Some(cache) = self.cache.get()
            && let Some(content) = (opening.small_content)()
        {
            cache.add_pages(opening.ino, &content);
        }
    }

    /// Records that the bytes of an open inode have the version `now`, and tells the kernel once to drop the older
    /// pages.
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

    /// Calls `drop_pages` unless the inode is open for writing. Opens of the inode wait until `drop_pages` returns.
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

    pub(super) fn forget(&self, ino: Ino) {
        self.by_ino.lock().remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    fn opening(ino: u64, version: u64) -> Opening<'static> {
        Opening {
            ino: Ino(ino),
            version: Some(version),
            is_mixed: false,
            writes: false,
            has_length: &|| false,
            small_content: &|| None,
        }
    }

    /// A simulated kernel that signals each call and blocks until the test releases it.
    struct Kernel {
        calls: Arc<Mutex<Vec<Invalidation>>>,
        waits: mpsc::Receiver<()>,
        release: mpsc::Sender<()>,
    }

    /// Returns page versions whose simulated kernel blocks at the invalidation `blocked`, as if requests had locked
    /// pages, and then returns `false`.
    fn pages_blocked_at(blocked: Invalidation) -> (KernelPages, Kernel) {
        let pages = KernelPages::default();
        let (waits, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let log = Arc::new(Mutex::new(Vec::new()));
        let calls = log.clone();
        pages.set_cache(Box::new(move |_, what| {
            if what == blocked {
                waits.send(()).unwrap();
                released.lock().recv().unwrap();
            }
            calls.lock().push(what);
            what != blocked
        }));
        let waits = has_begun;
        let kernel = Kernel {
            calls: log,
            waits,
            release,
        };
        (pages, kernel)
    }

    /// Reads of a changed file hang, so an open waits for them and in the end bypasses the page cache. Other opens of
    /// the file do not wait.
    #[test]
    fn an_open_that_waits_for_requests_does_not_block_others() {
        let (pages, kernel) = pages_blocked_at(Invalidation::Settled);
        let open = |version| pages.open(&opening(7, version), || false, || ());
        assert_eq!(open(1), PageUse::Keep);
        kernel.calls.lock().clear();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| open(2));
            kernel.waits.recv().unwrap();
            assert_eq!(open(1), PageUse::Keep, "its pages are of these bytes");
            kernel.release.send(()).unwrap();
            assert_eq!(waiting.join().unwrap(), PageUse::Bypass);
        });
        assert!(!kernel.calls.lock().contains(&Invalidation::ContentNow));
    }

    /// The number of length invalidations, and the bytes that were added to the page cache.
    #[derive(Default)]
    struct Calls(Mutex<(usize, Vec<Vec<u8>>)>);

    impl KernelCache for Arc<Calls> {
        fn invalidate(&self, _ino: Ino, what: Invalidation) -> bool {
            self.0.lock().0 += usize::from(what == Invalidation::Length);
            true
        }

        fn add_pages(&self, _ino: Ino, content: &[u8]) {
            self.0.lock().1.push(content.to_vec());
        }
    }

    #[test]
    fn a_small_file_is_put_into_the_page_cache_at_its_first_open() {
        let small = || Some(ReadBytes::Own(b"small".to_vec().into()));
        let open_twice = |first: Opening<'_>| {
            let (pages, calls) = (KernelPages::default(), Arc::<Calls>::default());
            pages.set_cache(Box::new(calls.clone()));
            for _ in 0..2 {
                pages.open(&first, || false, || ());
            }
            let (lengths, added) = std::mem::take(&mut *calls.0.lock());
            (lengths, added.len())
        };
        let known = Opening {
            has_length: &|| true,
            small_content: &small,
            ..opening(7, 1)
        };
        assert_eq!(open_twice(Opening { ..known }), (0, 1));
        let another_length = Opening {
            has_length: &|| false,
            ..known
        };
        assert_eq!(open_twice(another_length), (1, 0));
        let mixed = Opening {
            is_mixed: true,
            ..known
        };
        assert_eq!(open_twice(mixed), (2, 0));
    }

    /// While the pages of a file are being dropped, which waits for a locked page, opens of the file do not wait.
    #[test]
    fn an_open_bypasses_pages_that_are_being_dropped() {
        let (pages, kernel) = pages_blocked_at(Invalidation::ContentNow);
        let drop_pages = || _ = pages.invalidate(Ino(7), Invalidation::ContentNow);
        let mut is_marked = false;
        thread::scope(|scope| {
            scope.spawn(|| pages.drop_unless(Ino(7), || false, drop_pages));
            kernel.waits.recv().unwrap();
            let opened = pages.open(&opening(7, 1), || false, || is_marked = true);
            assert_eq!(opened, PageUse::Bypass);
            assert_eq!(pages.open(&opening(8, 1), || false, || ()), PageUse::Keep);
            kernel.release.send(()).unwrap();
        });
        assert!(is_marked);
        assert_eq!(pages.open(&opening(7, 1), || false, || ()), PageUse::Keep);
    }
}
