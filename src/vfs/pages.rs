//! Tracks the kernel's cached pages of each inode, and when to drop them.
//!
//! The pages are shared by all handles of the inode, which have one content. Its bytes may still change, for example
//! when a chunk of a decoded file is written under its key: then the kernel must drop them.
//!
//! While a program has a file open for writing, its pages are not dropped. The kernel drops clean pages without waiting
//! for a write that has modified them and is on its way to us; an mmap that reads such a page gets the old bytes and
//! writes them back. The kernel drops pages on its own when the reply to an open has no FOPEN_KEEP_CACHE, and when the
//! mtime changes (FUSE_AUTO_INVAL_DATA, which we do not request). So we drop them, before the reply to an open, and
//! only while no handle is open for writing.
//!
//! The kernel does not drop a page that a request has locked, but waits for it. A stalled store would delay every open
//! of the file by the time limit of a read. An open for reading that would wait longer than `OPEN_WAIT` is answered at
//! once instead, and its handle bypasses the pages.
//!
//! A program that reads many small files pays for each request: a lookup, an open, a getattr and a read for each file.
//! At the first open of a file in a read-only mount the kernel may already have the length, and then keeps it. If the
//! file is small and in memory, it also gets all pages before the reply, and the program's read needs no request.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::vfs::Ino;
use zarrfs_store::sync::read_bytes::ReadBytes;

/// What the kernel has to invalidate for an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The length, which may have changed.
    Length,
    /// Nothing yet: only waits, at most `OPEN_WAIT`, until the requests that may hold pages are answered; returns
    /// whether they are.
    Settled,
    /// Content, synchronously: pages are dropped before the call returns.
    ContentNow,
    /// Content, asynchronously: pages are dropped soon, unless the inode is open for writing.
    Content,
    /// Content whose writes are lost: pages are dropped soon, even if the inode is open for writing.
    LostContent,
}

/// The kernel's cache of a mount. A closure that invalidates also implements it, and ignores `add_pages`.
pub trait KernelCache: Send + Sync {
    /// Invalidates an inode; returns whether the kernel has done so.
    fn invalidate(&self, ino: Ino, what: Invalidation) -> bool;

    /// Adds the whole content of an inode of which the kernel has no page. The kernel requests the pages that cannot be
    /// added when a program reads them.
    fn add_pages(&self, _ino: Ino, _content: &[u8]) {}
}

impl<F: Fn(Ino, Invalidation) -> bool + Send + Sync> KernelCache for F {
    fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        self(ino, what)
    }
}

/// How long an open waits for pages that other requests hold.
pub const OPEN_WAIT: Duration = Duration::from_secs(1);

/// A handle whose open is about to be answered.
pub(super) struct Opening<'a> {
    pub(super) ino: Ino,
    /// The version of the bytes that the handle reads; `None` if the kernel must not cache pages of these bytes.
    pub(super) version: Option<u64>,
    /// Whether the kernel may have the length of another content.
    pub(super) is_mixed: bool,
    /// Whether the handle is open for writing.
    pub(super) writes: bool,
    /// Returns whether the kernel has the exact length of an inode of which it has had no pages.
    pub(super) has_length: &'a dyn Fn() -> bool,
    /// Returns the whole content of the file, if it is in memory and small enough for the kernel to get it with the
    /// open.
    pub(super) small_content: &'a dyn Fn() -> Option<ReadBytes>,
}

/// How an open treats the kernel's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageUse {
    /// The pages have the bytes that the handle reads.
    Keep,
    /// The kernel drops the pages.
    Drop,
    /// The pages may be stale but cannot be dropped now: they stay, and the handle bypasses them.
    Bypass,
}

/// The version of an inode's cached pages. Only inodes with such an entry may have pages in the kernel.
#[derive(Clone, Copy, Default)]
struct CachedPages {
    /// The version of all pages; `None` if it is unknown.
    version: Option<u64>,
    /// The version for which the kernel was last told to drop the pages.
    dropped_for: Option<u64>,
}

impl CachedPages {
    /// Whether all pages have this version.
    fn have_version(self, version: Option<u64>) -> bool {
        self.version.is_some() && self.version == version
    }
}

/// The kernel's cached pages.
#[derive(Default)]
pub(super) struct KernelPages {
    by_ino: Mutex<HashMap<Ino, CachedPages>>,
    /// Inodes whose pages a thread is checking or dropping: other opens of them wait.
    gates: Mutex<HashSet<Ino>>,
    opened: Condvar,
    cache: OnceLock<Box<dyn KernelCache>>,
}

/// While a gate exists, other opens of its inode wait.
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
    /// Sets the kernel's cache.
    pub(super) fn set_cache(&self, cache: Box<dyn KernelCache>) {
        // Only the session that serves this file system sets it, once.
        let _ = self.cache.set(cache);
    }

    /// Invalidates the kernel's cache. Without a kernel this does nothing.
    pub(super) fn invalidate(&self, ino: Ino, what: Invalidation) -> bool {
        let cache = self.cache.get();
        cache.is_none_or(|cache| cache.invalidate(ino, what))
    }

    /// Waits until no other thread holds the gate of an inode; `None` if `end` passes first.
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

    /// Decides how a handle whose open is about to be answered uses the kernel's pages, and drops stale ones.
    /// `is_written` returns whether another handle is open for writing and its `mark_open` was called.
    pub(super) fn open(
        &self,
        opening: &Opening<'_>,
        is_written: impl Fn() -> bool,
        mark_open: impl FnOnce(),
    ) -> PageUse {
        // A writable mmap needs the pages, so an open for writing waits for them.
        let end = (!opening.writes).then(|| Instant::now() + OPEN_WAIT);
        let mut are_free = None;
        loop {
            let Some(gate) = self.gate(opening.ino, end) else {
                mark_open();
                return PageUse::Bypass;
            };
            let is_written = is_written();
            if are_free.is_none() && !is_written && self.has_others(opening) {
                // Other opens of the file may proceed.
                drop(gate);
                are_free = Some(self.invalidate(opening.ino, Invalidation::Settled));
                continue;
            }
            let page_use = self.prepare(opening, is_written, are_free.unwrap_or(true));
            mark_open();
            return page_use;
        }
    }

    /// Whether the kernel may have pages of a version that is not the one that the handle reads.
    fn has_others(&self, opening: &Opening<'_>) -> bool {
        let known = self.by_ino.lock().get(&opening.ino).copied();
        known.is_some_and(|pages| !pages.have_version(opening.version))
    }

    /// Decides how a handle uses the kernel's pages. Drops stale pages only if `are_free`, that is, no request holds
    /// them.
    fn prepare(&self, opening: &Opening<'_>, is_written: bool, are_free: bool) -> PageUse {
        let Opening { ino, version, .. } = *opening;
        if is_written {
            // Programs write through these pages, so the pages are current.
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
            // A kernel that keeps pages also keeps the file's length, and would cut the new content off there.
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

    /// Adds the pages of a small file before its first open is answered, so that the program's read needs no request.
    /// No request can have locked a page: no other open of the inode has been answered, or will be until this one is.
    fn add_small(&self, opening: &Opening<'_>) {
        if let Some(cache) = self.cache.get()
            && let Some(content) = (opening.small_content)()
        {
            cache.add_pages(opening.ino, &content);
        }
    }

    /// Records that an open inode has the version `now`; tells the kernel once to drop its pages.
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

    /// Calls `drop_pages` unless an inode is open for writing; opens of the inode wait until it returns.
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

    /// Records that the kernel has forgotten an inode.
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

    /// A test kernel: signals that it is called, and blocks until it is released.
    struct Kernel {
        calls: Arc<Mutex<Vec<Invalidation>>>,
        waits: mpsc::Receiver<()>,
        release: mpsc::Sender<()>,
    }

    /// The pages of a kernel that blocks on the invalidation `blocked`, as if requests held pages, and returns `false`
    /// for it.
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

    /// Requests of a file whose bytes have changed hang. An open that waits for them does not block other opens of the
    /// file, and bypasses the pages in the end.
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

    /// The lengths that were invalidated, and the contents that were added.
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

    /// Dropping the pages of a file waits for a locked page. Opens of the file do not.
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
