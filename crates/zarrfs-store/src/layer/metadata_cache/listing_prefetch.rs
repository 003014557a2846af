//! A flat listing that is read ahead of listings of directories: how far it is, which listings follow it, and whether it
//! should go on; and when to start one.
//!
//! It waits while it is far ahead of its readers, and ends when there are none.

use parking_lot::{Condvar, Mutex};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::Key;

/// How long a flat listing goes on without a reader.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// How many keys a flat listing may be ahead of its readers.
const MAX_KEYS_AHEAD: u64 = 16_000;

/// How many keys a flat listing reads at most.
const MAX_KEYS: u64 = 100_000;

/// Pages to wait for a directory before it is listed directly.
const MAX_PAGES_AWAITED: u64 = 2;

/// A flat listing of the directories below `prefix`, from `from` on, which may lie deeper.
pub(super) struct ListingPrefetch {
    pub(super) prefix: Key,
    pub(super) from: Key,
    state: Mutex<PrefetchState>,
    changed: Condvar,
    readers: Arc<Readers>,
}

struct PrefetchState {
    pages: u64,
    /// How many keys came, with those that come in the listings before this one.
    keys: u64,
    /// The last key that came.
    last: Key,
    /// Whether keys come sorted by names, directory by directory, rather than by bytes.
    by_names: bool,
    /// The directory from which on another listing reads.
    until: Option<Key>,
    ended: bool,
}

/// Who lists the directories that flat listings find which were begun together.
struct Readers {
    state: Mutex<ReaderState>,
    changed: Condvar,
}

struct ReaderState {
    /// How many keys had been read when the last directory came that a reader asked for.
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

/// Where a flat listing found a directory: after how many keys.
#[derive(Clone)]
pub(super) struct PassedDir {
    pub(super) prefetch: Arc<ListingPrefetch>,
    pub(super) keys: u64,
}

impl ListingPrefetch {
    /// Describes a flat listing that reads its first page next.
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

    /// Describes one of the same directories and for the same readers that begins later, after `keys` keys.
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

    /// Returns how many keys came so far, with those before it.
    pub(super) fn keys(&self) -> u64 {
        self.state.lock().keys
    }

    /// Has it end at a directory, from which on another one reads.
    pub(super) fn end_at(&self, dir: Key) {
        self.state.lock().until = Some(dir);
        self.changed.notify_all();
    }

    /// Whether another one reads from some directory on.
    pub(super) fn is_bounded(&self) -> bool {
        self.state.lock().until.is_some()
    }

    /// Whether it has come to the directory from which on another one reads.
    pub(super) fn is_at_end(&self, key: &Key) -> bool {
        self.state.lock().ends_before(key)
    }

    /// Whether it comes to all names of a directory: not of those above the first one.
    pub(super) fn is_whole(&self, dir: &Key) -> bool {
        let rest = self.from.below(dir);
        rest.is_none_or(|rest| rest.is_root())
    }

    /// Whether it may still come to a directory.
    pub(super) fn leads_to(&self, dir: &Key) -> bool {
        let rest = dir.below(&self.prefix);
        let lies_below = rest.is_some_and(|rest| !rest.is_root());
        let state = self.state.lock();
        lies_below && *dir >= self.from && state.may_come_to(dir)
    }

    /// Waits until the flat listing has passed a directory, or will not come to it; false if that takes too many pages.
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

    /// Whether it is in a directory inside this one: the names here are not complete yet, those there soon are.
    pub(super) fn is_deep_in(&self, dir: &Key) -> bool {
        let state = self.state.lock();
        let rest = state.last.below(dir);
        rest.is_some_and(|rest| rest.names().nth(1).is_some())
    }

    /// Notes that a directory was read which it found after so many keys.
    pub(super) fn note_reader(&self, keys: u64) {
        self.readers.note(keys);
    }

    /// Notes a page whose last key was `last`.
    pub(super) fn note_page(&self, keys: u64, last: Key, by_names: bool) {
        let mut state = self.state.lock();
        state.pages += 1;
        state.keys = keys;
        state.last = last;
        state.by_names = by_names;
        self.changed.notify_all();
    }

    /// Waits until another page may be read; false if the flat listing should end.
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

    /// Ends the flat listing; its waiters go on.
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

    /// Whether no key below `dir` can come any more.
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

/// Within which time two directories count as listed one after the other.
const SEQUENCE_WINDOW: Duration = Duration::from_secs(30);

/// For how long no flat listing is tried again where one was of no use.
const BACKOFF: Duration = Duration::from_secs(300);

/// Which directories were listed last, by the one above, and where flat listings are of no use.
pub(super) struct ListHistory {
    last: LruCache<Key, (Key, Instant)>,
    backed_off: LruCache<Key, Instant>,
    /// Whether the keys of the store come in no order.
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
    /// Notes that a directory is listed. If another one beside it was listed shortly before, returns the directory below
    /// which a flat listing may be of use: the one above, or one further up from which the client came down by listings.
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

    /// Whether a directory was listed shortly before, and none beside it since.
    fn was_listed(&mut self, dir: &Key) -> bool {
        let last = dir.parent().and_then(|above| self.last.get(&above));
        last.is_some_and(|(listed, then)| listed == dir && then.elapsed() < SEQUENCE_WINDOW)
    }

    fn is_backed_off(&mut self, dir: &Key) -> bool {
        let since = self.backed_off.get(dir);
        since.is_some_and(|since| since.elapsed() < BACKOFF)
    }

    /// Notes that flat listings below a directory are of no use.
    pub(super) fn back_off(&mut self, prefix: &Key) {
        self.backed_off.put(prefix.clone(), Instant::now());
    }

    /// Notes that the keys of the store come in no order, so that flat listings are of no use anywhere.
    pub(super) fn give_up(&mut self) {
        self.is_unsorted = true;
    }

    /// Whether the keys of the store come in no order.
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
