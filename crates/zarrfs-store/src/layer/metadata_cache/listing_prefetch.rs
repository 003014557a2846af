//! State of a flat listing: progress, readers, pauses; and when to start one.
//!
//! It pauses while it is far ahead of its readers, and ends without readers.

use parking_lot::{Condvar, Mutex};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::Key;

/// How long a flat listing continues without a reader.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of keys ahead of the readers.
const MAX_KEYS_AHEAD: u64 = 16_000;

/// Maximum number of keys to read.
const MAX_KEYS: u64 = 100_000;

/// Number of pages to wait for a directory before it is listed directly.
const MAX_PAGES_AWAITED: u64 = 2;

/// A flat listing below `prefix`, from the directory `from` on, which may be deeper.
pub(super) struct ListingPrefetch {
    pub(super) prefix: Key,
    pub(super) from: Key,
    state: Mutex<PrefetchState>,
    changed: Condvar,
    readers: Arc<Readers>,
}

struct PrefetchState {
    pages: u64,
    /// Number of keys so far, including those before this part.
    keys: u64,
    /// The last key so far.
    last: Key,
    /// Whether keys are sorted by names, directory by directory, instead of by bytes.
    by_names: bool,
    /// The directory at which the next part takes over.
    until: Option<Key>,
    ended: bool,
}

/// The readers of flat listings that were begun together.
struct Readers {
    state: Mutex<ReaderState>,
    changed: Condvar,
}

struct ReaderState {
    /// Number of keys up to the last directory that a reader requested.
    followed: u64,
    last_followed: Instant,
}

impl Readers {
    fn note(&self, keys: u64) {
        let mut state = self.state.lock();
        state.followed = state.followed.max(keys);
        state.last_followed = Instant::now();
        self.changed.notify_all();
    }
}

/// The position of a directory in a flat listing: the number of keys before its end.
#[derive(Clone)]
pub(super) struct PassedDir {
    pub(super) prefetch: Arc<ListingPrefetch>,
    pub(super) keys: u64,
}

impl ListingPrefetch {
    /// Builds a flat listing before its first page.
    pub(super) fn new(prefix: Key, from: Key) -> ListingPrefetch {
        let readers = Readers {
            state: Mutex::new(ReaderState {
                followed: 0,
                last_followed: Instant::now(),
            }),
            changed: Condvar::new(),
        };
        ListingPrefetch::begun(prefix, from, 0, Arc::new(readers))
    }

    /// Builds a part with the same top and readers that begins at `from`, after `keys` keys.
    pub(super) fn later(&self, from: Key, keys: u64) -> ListingPrefetch {
        ListingPrefetch::begun(self.prefix.clone(), from, keys, self.readers.clone())
    }

    fn begun(prefix: Key, from: Key, keys: u64, readers: Arc<Readers>) -> ListingPrefetch {
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

    /// Returns the number of keys so far, including those before this part.
    pub(super) fn keys(&self) -> u64 {
        self.state.lock().keys
    }

    /// Sets the directory at which the next part takes over.
    pub(super) fn end_at(&self, dir: Key) {
        self.state.lock().until = Some(dir);
        self.changed.notify_all();
    }

    /// Whether another part takes over at some directory.
    pub(super) fn is_bounded(&self) -> bool {
        self.state.lock().until.is_some()
    }

    /// Whether the key belongs to the next part.
    pub(super) fn is_at_end(&self, key: &Key) -> bool {
        self.state.lock().ends_before(key)
    }

    /// Whether it sees all names of a directory; it does not for the ancestors of its first directory.
    pub(super) fn is_whole(&self, dir: &Key) -> bool {
        let rest = self.from.below(dir);
        rest.is_none_or(|rest| rest.is_root())
    }

    /// Whether it may still reach a directory.
    pub(super) fn leads_to(&self, dir: &Key) -> bool {
        let rest = dir.below(&self.prefix);
        let lies_below = rest.is_some_and(|rest| !rest.is_root());
        let state = self.state.lock();
        lies_below && *dir >= self.from && state.may_come_to(dir)
    }

    /// Waits until it has passed a directory or will not reach it; returns false if that takes too many pages.
    pub(super) fn wait_for(&self, dir: &Key) -> bool {
        let pages = self.state.lock().pages;
        loop {
            self.readers.note(self.keys());
            let mut state = self.state.lock();
            if !state.may_come_to(dir) {
                return true;
            }
            if state.pages >= pages + MAX_PAGES_AWAITED {
                return false;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Whether it is more than one level below a directory, whose own names are incomplete while those of the inner
    /// ones soon are complete.
    pub(super) fn is_deep_in(&self, dir: &Key) -> bool {
        let state = self.state.lock();
        let rest = state.last.below(dir);
        rest.is_some_and(|rest| rest.names().nth(1).is_some())
    }

    /// Records the read of a directory that was found after `keys` keys.
    pub(super) fn note_reader(&self, keys: u64) {
        self.readers.note(keys);
    }

    /// Records a page with the last key `last`.
    pub(super) fn note_page(&self, keys: u64, last: Key, by_names: bool) {
        let mut state = self.state.lock();
        state.pages += 1;
        state.keys = keys;
        state.last = last;
        state.by_names = by_names;
        self.changed.notify_all();
    }

    /// Waits until the next page may be read; returns false if the listing should end.
    pub(super) fn may_go_on(&self) -> bool {
        let mut readers = self.readers.state.lock();
        loop {
            let idle = readers.last_followed.elapsed();
            let keys = self.keys();
            if self.has_ended() || idle >= IDLE_TIMEOUT || keys >= MAX_KEYS {
                return false;
            }
            if keys <= readers.followed + MAX_KEYS_AHEAD {
                return true;
            }
            let wait = IDLE_TIMEOUT - idle;
            self.readers.changed.wait_for(&mut readers, wait);
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends it and wakes those who wait.
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

    fn may_come_to(&self, dir: &Key) -> bool {
        !self.ended && !self.ends_before(dir) && !self.has_passed(dir)
    }

    /// Whether no more keys below `dir` can follow.
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

/// Two listings of sibling directories within this time are a sequence.
const SEQUENCE_WINDOW: Duration = Duration::from_secs(30);

/// How long no flat listing is started where one was useless.
const BACKOFF: Duration = Duration::from_secs(300);

/// The directories listed last, by parent, and where flat listings are useless.
pub(super) struct ListHistory {
    last: LruCache<Key, (Key, Instant)>,
    backed_off: LruCache<Key, Instant>,
    /// Whether the keys of the store are unsorted.
    is_unsorted: bool,
}

impl Default for ListHistory {
    fn default() -> ListHistory {
        let most = const { NonZeroUsize::new(1 << 10).unwrap() };
        ListHistory {
            last: LruCache::new(most),
            backed_off: LruCache::new(most),
            is_unsorted: false,
        }
    }
}

impl ListHistory {
    /// Records the listing of a directory. If a sibling was listed shortly before, returns the directory for a flat
    /// listing: the parent, or an ancestor from which the client descended by listings.
    pub(super) fn note(&mut self, dir: &Key) -> Option<Key> {
        let mut top = dir.parent()?;
        let now = Instant::now();
        let before = self.last.put(top.clone(), (dir.clone(), now));
        let (other, then) = before?;
        let is_second = other != *dir && now.duration_since(then) < SEQUENCE_WINDOW;
        if !is_second || self.is_unsorted || self.is_backed_off(&top) {
            return None;
        }
        while let Some(above) = top.parent()
            && self.was_listed(&above)
            && self.was_listed(&top)
            && !self.is_backed_off(&above)
        {
            top = above;
        }
        Some(top)
    }

    /// Whether a directory was listed shortly before, and no sibling since.
    fn was_listed(&mut self, dir: &Key) -> bool {
        let last = dir.parent().and_then(|above| self.last.get(&above));
        last.is_some_and(|(listed, then)| listed == dir && then.elapsed() < SEQUENCE_WINDOW)
    }

    fn is_backed_off(&mut self, dir: &Key) -> bool {
        let since = self.backed_off.get(dir);
        since.is_some_and(|since| since.elapsed() < BACKOFF)
    }

    /// Records that flat listings below a directory are useless.
    pub(super) fn back_off(&mut self, prefix: &Key) {
        self.backed_off.put(prefix.clone(), Instant::now());
    }

    /// Records that the keys of the store are unsorted, so that flat listings are useless.
    pub(super) fn give_up(&mut self) {
        self.is_unsorted = true;
    }

    /// Whether the keys of the store are unsorted.
    pub(super) fn is_unsorted(&self) -> bool {
        self.is_unsorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_directory_is_passed_when_a_key_after_it_came() {
        let prefetch = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(prefetch.leads_to(&key("a/c")) && !prefetch.leads_to(&key("a/a")));
        assert!(!prefetch.leads_to(&key("a")) && !prefetch.leads_to(&key("b")));
        prefetch.note_page(10, key("a/c/x"), false);
        assert!(!prefetch.leads_to(&key("a/b")), "passed");
        assert!(
            prefetch.leads_to(&key("a/c")),
            "its last key may not have come"
        );
        assert!(!prefetch.leads_to(&key("a/c.d")) && prefetch.leads_to(&key("a/c0")));
        prefetch.note_page(10, key("a/c/x"), true);
        assert!(prefetch.leads_to(&key("a/c.d")), "in the order of names");
        prefetch.end();
        assert!(!prefetch.leads_to(&key("a/d")));
    }

    #[test]
    fn a_flat_listing_ends_at_its_bounds() {
        let prefetch = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(prefetch.may_go_on());
        prefetch.note_page(MAX_KEYS, key("a/c"), false);
        prefetch.note_reader(MAX_KEYS);
        assert!(!prefetch.may_go_on());
        let other = ListingPrefetch::new(key("a"), key("a/b"));
        other.readers.state.lock().last_followed = Instant::now() - IDLE_TIMEOUT;
        assert!(!other.may_go_on());
        other.note_reader(0);
        assert!(other.may_go_on());
    }
}
