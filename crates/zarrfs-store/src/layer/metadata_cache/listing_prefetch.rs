//! Prefetches directories by one recursive ("flat") listing in a thread.
//!
//! The listing pauses while it is far ahead of its readers. It ends if it has no readers for a while; later readers
//! list their directories directly.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::assembler::{AssembledDir, DirAssembler, Unsorted};
use super::lister::DirLister;
use crate::request_context::UNLIMITED;
use crate::sync::clock::Clock;
use crate::{FlatListing, Key, Meta};
use zarr_format::error::Kind;

/// How long a recursive listing goes on after a reader has last used its directories.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

const MAX_KEYS: u64 = 100_000;

/// A recursive listing below `prefix`, in the order of keys from the directory `from` on, which may be deeper. It may
/// be one of several parts that are listed concurrently.
pub(super) struct ListingPrefetch {
    pub(super) prefix: Key,
    pub(super) from: Key,
    state: Mutex<PrefetchState>,
    changed: Condvar,
    readers: Arc<Readers>,
}

struct PrefetchState {
    pages: u64,
    /// Number of keys that the listing has read, plus the estimated number of keys before its first one.
    keys: u64,
    last: Key,
    /// Whether the store sorts keys by names, directory by directory, instead of by bytes.
    by_names: bool,
    /// The directory at which another concurrent listing begins, so that this one ends there.
    until: Option<Key>,
    ended: bool,
}

/// The readers of the directories that one recursive listing, or all its concurrent parts, have found.
struct Readers {
    state: Mutex<ReaderState>,
    changed: Condvar,
}

struct ReaderState {
    /// Number of keys that the listing had read when it found the directory that a reader used last, or a later one.
    requested: u64,
    last_request: Instant,
}

impl Readers {
    fn record(&self, keys: u64) {
        let mut state = self.state.lock();
        state.requested = state.requested.max(keys);
        state.last_request = Instant::now();
        self.changed.notify_all();
    }
}

/// Where a recursive listing found a directory: the number of keys that it had read by the directory's end.
#[derive(Clone)]
pub(super) struct PassedDir {
    pub(super) prefetch: Arc<ListingPrefetch>,
    pub(super) keys: u64,
}

impl ListingPrefetch {
    pub(super) fn new(prefix: Key, from: Key) -> ListingPrefetch {
        let readers = Readers {
            state: Mutex::new(ReaderState {
                requested: 0,
                last_request: Instant::now(),
            }),
            changed: Condvar::new(),
        };
        ListingPrefetch::build(prefix, from, 0, Arc::new(readers))
    }

    /// Builds a part of the recursive listing that begins at `from`, after about `keys` keys, and is read concurrently.
    pub(super) fn part_from(&self, from: Key, keys: u64) -> ListingPrefetch {
        ListingPrefetch::build(self.prefix.clone(), from, keys, self.readers.clone())
    }

    fn build(prefix: Key, from: Key, keys: u64, readers: Arc<Readers>) -> ListingPrefetch {
        ListingPrefetch {
            prefix,
            from,
            state: Mutex::new(PrefetchState {
                pages: 0,
                keys,
                last: Key::root(),
                by_names: false,
                until: None,
                ended: false,
            }),
            changed: Condvar::new(),
            readers,
        }
    }

    /// Starts the thread that reads the recursive listing `listing` and caches its directories through `lister`.
    pub(super) fn spawn(
        self: &Arc<Self>,
        lister: Weak<DirLister>,
        listing: Box<dyn FlatListing>,
        clock: Clock,
    ) -> io::Result<()> {
        let mut read = FlatRead {
            lister,
            prefetch: self.clone(),
            clock,
            assembler: DirAssembler::new(self.prefix.clone()),
            keys: self.keys(),
            pages: 0,
            cached: Vec::new(),
        };
        let run = move || {
            if let Err(Unsorted) = read.read(listing) {
                let prefix = &read.prefetch.prefix;
                log::debug!("{prefix}: keys come in no order; folders are listed");
                if let Some(lister) = read.lister.upgrade() {
                    lister.mark_unsorted(&read.cached);
                }
            }
        };
        let thread = thread::Builder::new().name("zarrfs-walk".to_string());
        thread.spawn(run).map(drop)
    }

    /// Returns the number of keys that the listing has read, plus the estimated number of keys before its first one.
    pub(super) fn keys(&self) -> u64 {
        self.state.lock().keys
    }

    /// Ends the listing before a directory, at which another concurrent listing begins.
    pub(super) fn set_end(&self, dir: Key) {
        self.state.lock().until = Some(dir);
        self.changed.notify_all();
    }

    /// Whether the listing ends at a directory where another concurrent listing begins.
    pub(super) fn is_bounded(&self) -> bool {
        self.state.lock().until.is_some()
    }

    /// Whether the key belongs to the concurrent listing that begins where this one ends.
    pub(super) fn is_at_end(&self, key: &Key) -> bool {
        self.state.lock().ends_before(key)
    }

    /// Whether the listing may still find a directory.
    pub(super) fn may_reach(&self, dir: &Key) -> bool {
        let rest = dir.below(&self.prefix);
        let is_below = rest.is_some_and(|rest| !rest.is_root());
        let state = self.state.lock();
        is_below && *dir >= self.from && state.is_ahead(dir)
    }

    /// Waits until the recursive listing has passed a directory or will not reach it. Returns false if that takes more
    /// than two pages: the directory should then be listed directly.
    pub(super) fn wait_for(&self, dir: &Key) -> bool {
        let pages = self.state.lock().pages;
        loop {
            self.readers.record(self.keys());
            let mut state = self.state.lock();
            if !state.is_ahead(dir) {
                return true;
            }
            if state.pages >= pages + 2 {
                return false;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether the last key of the listing is more than one level below a directory. It will then be long until the
    /// directory is complete, but the directories in it are soon complete.
    pub(super) fn is_deep_in(&self, dir: &Key) -> bool {
        let state = self.state.lock();
        let rest = state.last.below(dir);
        rest.is_some_and(|rest| rest.names().nth(1).is_some())
    }

    /// Records that a reader uses a directory that the listing found after `keys` keys.
    pub(super) fn record_reader(&self, keys: u64) {
        self.readers.record(keys);
    }

    pub(super) fn record_page(&self, keys: u64, last: Key, by_names: bool) {
        let mut state = self.state.lock();
        state.pages += 1;
        state.keys = keys;
        state.last = last;
        state.by_names = by_names;
        self.changed.notify_all();
    }

    /// Waits while the recursive listing is far ahead of its readers. Returns false if it should end.
    pub(super) fn wait_for_readers(&self) -> bool {
        let mut readers = self.readers.state.lock();
        loop {
            let idle = readers.last_request.elapsed();
            let keys = self.keys();
            if self.has_ended() || idle >= IDLE_TIMEOUT || keys >= MAX_KEYS {
                return false;
            }
            // The listing goes on while it is at most 16,000 keys ahead of its readers.
            if keys <= readers.requested + 16_000 {
                return true;
            }
            let wait = IDLE_TIMEOUT - idle;
            self.readers.changed.wait_for(&mut readers, wait);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends the recursive listing, and wakes the threads that wait for it.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
        let _readers = self.readers.state.lock();
        self.readers.changed.notify_all();
    }
}

impl PrefetchState {
    fn ends_before(&self, key: &Key) -> bool {
        self.until.as_ref().is_some_and(|until| key >= until)
    }

    fn is_ahead(&self, dir: &Key) -> bool {
        !self.ended && !self.ends_before(dir) && !self.has_passed(dir)
    }

    /// Whether all keys below `dir` come before the last key of the listing.
    fn has_passed(&self, dir: &Key) -> bool {
        if self.pages == 0 || self.last.below(dir).is_some() {
            return false;
        }
        if self.by_names {
            self.last.names().gt(dir.names())
        } else {
            *self.last.as_bytes() > *[dir.as_bytes(), b"/"].concat()
        }
    }
}

/// A recursive listing that a thread reads. The listing is marked as ended when this struct is dropped, even if the
/// thread panics.
struct FlatRead {
    lister: Weak<DirLister>,
    prefetch: Arc<ListingPrefetch>,
    clock: Clock,
    assembler: DirAssembler,
    keys: u64,
    pages: u64,
    cached: Vec<Key>,
}

impl Drop for FlatRead {
    fn drop(&mut self) {
        self.prefetch.end();
        if let Some(lister) = self.lister.upgrade() {
            lister.end(&self.prefetch);
        }
    }
}

impl FlatRead {
    /// Reads the listing's pages until the end, or until the listing has no readers.
    fn read(&mut self, mut listing: Box<dyn FlatListing>) -> Result<(), Unsorted> {
        while !listing.has_ended() {
            if !self.prefetch.wait_for_readers() {
                return Ok(());
            }
            let request_time = self.clock.now();
            match listing.next(&UNLIMITED) {
                Ok(page) => {
                    if self.take(page.unwrap_or_default(), request_time)? {
                        return Ok(());
                    }
                }
                Err(error) => {
                    log::debug!("{}: a walk ended: {error}", self.prefetch.prefix);
                    // The server repeats its pages or sends invalid ones, so another recursive listing would fail too.
                    if error.kind() == Kind::Corrupt
                        && let Some(lister) = self.lister.upgrade()
                    {
                        lister.back_off(&self.prefetch);
                    }
                    return Ok(());
                }
            }
        }
        let empty = DirAssembler::new(Key::root());
        let assembler = std::mem::replace(&mut self.assembler, empty);
        self.cache(assembler.end());
        Ok(())
    }

    /// Adds a page of the recursive listing, and caches the directories that it completes if the whole page is sorted.
    /// Returns whether another listing takes over from here.
    fn take(&mut self, page: Vec<(Key, Meta)>, request_time: Instant) -> Result<bool, Unsorted> {
        let (is_first, length) = (self.pages == 0, page.len() as u64);
        self.pages += 1;
        let mut complete = Vec::new();
        let mut last = None;
        let mut is_at_end = false;
        for (key, meta) in page {
            self.keys += 1;
            // The first key of the next listing is read too, since it shows that the directories before it are
            // complete.
            is_at_end = self.prefetch.is_at_end(&key);
            complete.extend(self.assembler.take(key.clone(), meta, request_time)?);
            last = Some(key);
            if is_at_end {
                break;
            }
        }
        self.cache(complete);
        if let Some(last) = last {
            let by_names = self.assembler.is_by_names();
            self.prefetch.record_page(self.keys, last.clone(), by_names);
            if is_first
                && !is_at_end
                && let Some(lister) = self.lister.upgrade()
            {
                lister.split(&UNLIMITED, &self.prefetch, &last, length);
            }
        }
        Ok(is_at_end)
    }

    /// Caches complete directories of the listing, which do not include those above the directory where it began.
    fn cache(&mut self, dirs: Vec<AssembledDir>) {
        let Some(lister) = self.lister.upgrade() else {
            return self.prefetch.end();
        };
        let from = &self.prefetch.from;
        let is_complete =
            |dir: &AssembledDir| from.below(&dir.prefix).is_none_or(|rest| rest.is_root());
        for dir in dirs.into_iter().filter(is_complete) {
            self.cached.push(dir.prefix.clone());
            let passed = PassedDir {
                prefetch: self.prefetch.clone(),
                keys: self.keys,
            };
            lister.put_flat(dir, passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_listing_cannot_reach_a_directory_that_it_passed() {
        let prefetch = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(prefetch.may_reach(&key("a/c")) && !prefetch.may_reach(&key("a/a")));
        assert!(!prefetch.may_reach(&key("a")) && !prefetch.may_reach(&key("b")));
        prefetch.record_page(10, key("a/c/x"), false);
        assert!(!prefetch.may_reach(&key("a/b")), "passed");
        assert!(
            prefetch.may_reach(&key("a/c")),
            "its last key may not have come"
        );
        assert!(!prefetch.may_reach(&key("a/c.d")) && prefetch.may_reach(&key("a/c0")));
        prefetch.record_page(10, key("a/c/x"), true);
        assert!(prefetch.may_reach(&key("a/c.d")), "in the order of names");
        prefetch.end();
        assert!(!prefetch.may_reach(&key("a/d")));
    }

    #[test]
    fn a_flat_listing_ends_at_its_key_and_idle_limits() {
        let prefetch = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(prefetch.wait_for_readers());
        prefetch.record_page(MAX_KEYS, key("a/c"), false);
        prefetch.record_reader(MAX_KEYS);
        assert!(!prefetch.wait_for_readers());
        let other = ListingPrefetch::new(key("a"), key("a/b"));
        other.readers.state.lock().last_request = Instant::now() - IDLE_TIMEOUT;
        assert!(!other.wait_for_readers());
        other.record_reader(0);
        assert!(other.wait_for_readers());
    }
}
