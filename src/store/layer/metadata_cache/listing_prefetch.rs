//! A walk under way: how far it is, who follows it, and whether it should go on.
//!
//! The walk waits when it is far ahead of those who follow, and ends when nobody does.

use crate::store::Key;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long nobody may follow.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many keys a walk may be ahead of who follows.
const LEAD: u64 = 16_000;

/// How many keys a walk reads at most.
const MOST_KEYS: u64 = 100_000;

/// How many pages a reader waits for a folder before he lists it himself.
const WORTHWHILE: u64 = 2;

/// A walk over the folders below `prefix`, from `from` on; where that is the prefix, an excursion: one page of what
/// that folder holds, itself included.
pub(super) struct ListingPrefetch {
    pub(super) prefix: Key,
    from: Key,
    state: Mutex<PrefetchState>,
    bell: Condvar,
}

struct PrefetchState {
    pages: u64,
    keys: u64,
    /// The last key that was seen, and whether names come folder by folder rather than byte by byte.
    last: Key,
    by_names: bool,
    followed: u64,
    last_followed: Instant,
    ended: bool,
}

/// A place on a trail: how many keys were read when it was passed.
#[derive(Clone)]
pub(super) struct PassedFolder {
    pub(super) trail: Arc<ListingPrefetch>,
    pub(super) keys: u64,
}

impl ListingPrefetch {
    /// Begins a trail.
    pub(super) fn new(prefix: Key, from: Key) -> ListingPrefetch {
        ListingPrefetch {
            prefix,
            from,
            state: Mutex::new(PrefetchState {
                pages: 0,
                keys: 0,
                last: Key::root(),
                by_names: false,
                followed: 0,
                last_followed: Instant::now(),
                ended: false,
            }),
            bell: Condvar::new(),
        }
    }

    /// Whether this is a look into one folder.
    pub(super) fn is_excursion(&self) -> bool {
        self.from == self.prefix
    }

    /// Whether the walk may still come to a folder.
    pub(super) fn leads_to(&self, folder: &Key) -> bool {
        let lies_below = folder
            .below(&self.prefix)
            .is_some_and(|rest| !rest.is_root() || self.is_excursion());
        let state = self.state.lock();
        lies_below && !state.ended && *folder >= self.from && !state.has_passed(folder)
    }

    /// Waits until the walk has passed a folder, if that is soon; returns whether it has.
    pub(super) fn await_folder(&self, folder: &Key) -> bool {
        let mut state = self.state.lock();
        let pages = state.pages;
        while !state.ended && !state.has_passed(folder) {
            if state.pages >= pages + WORTHWHILE {
                return false;
            }
            state.last_followed = Instant::now();
            state.followed = state.keys;
            self.bell.notify_all();
            self.bell.wait(&mut state);
        }
        true
    }

    /// Whether the walk is in a folder inside this one: the names here are not known yet, those there soon are.
    pub(super) fn is_deep_in(&self, folder: &Key) -> bool {
        let state = self.state.lock();
        let rest = state.last.below(folder);
        rest.is_some_and(|rest| rest.names().nth(1).is_some())
    }

    /// Hears that somebody has read a folder that the walk found.
    pub(super) fn follow(&self, keys: u64) {
        let mut state = self.state.lock();
        state.followed = state.followed.max(keys);
        state.last_followed = Instant::now();
        self.bell.notify_all();
    }

    /// Notes a page whose last key was `last`.
    pub(super) fn note_page(&self, keys: u64, last: Key, by_names: bool) {
        let mut state = self.state.lock();
        state.pages += 1;
        state.keys = keys;
        state.last = last;
        state.by_names = by_names;
        self.bell.notify_all();
    }

    /// Waits until the walk may read another page; false if it should end.
    pub(super) fn may_go_on(&self) -> bool {
        let mut state = self.state.lock();
        if self.is_excursion() {
            return !state.ended && state.pages == 0;
        }
        loop {
            let idle = state.last_followed.elapsed();
            if state.ended || idle >= PATIENCE || state.keys >= MOST_KEYS {
                return false;
            }
            if state.keys <= state.followed + LEAD {
                return true;
            }
            let rest = PATIENCE - idle;
            self.bell.wait_for(&mut state, rest);
        }
    }

    /// Whether it was ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Ends the trail, and the wait of everybody on it.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.bell.notify_all();
    }
}

impl PrefetchState {
    /// Whether no key below `folder` can come any more.
    fn has_passed(&self, folder: &Key) -> bool {
        if self.pages == 0 || self.last.below(folder).is_some() {
            return false;
        }
        match self.by_names {
            true => self.last.names().gt(folder.names()),
            false => *self.last.as_bytes() > *[folder.as_bytes(), b"/"].concat(),
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
    fn a_folder_is_passed_when_a_key_after_it_came() {
        let trail = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(trail.leads_to(&key("a/c")) && !trail.leads_to(&key("a/a")));
        assert!(!trail.leads_to(&key("a")) && !trail.leads_to(&key("b")));
        trail.note_page(10, key("a/c/x"), false);
        assert!(!trail.leads_to(&key("a/b")), "passed");
        assert!(
            trail.leads_to(&key("a/c")),
            "its last key may not have come"
        );
        assert!(!trail.leads_to(&key("a/c.d")) && trail.leads_to(&key("a/c0")));
        trail.note_page(10, key("a/c/x"), true);
        assert!(trail.leads_to(&key("a/c.d")), "in the order of names");
        trail.end();
        assert!(!trail.leads_to(&key("a/d")));
    }

    #[test]
    fn an_excursion_has_its_own_folder_and_one_page() {
        let trail = ListingPrefetch::new(key("a/b"), key("a/b"));
        assert!(trail.leads_to(&key("a/b")) && trail.leads_to(&key("a/b/c")));
        assert!(!trail.leads_to(&key("a/c")) && !trail.leads_to(&key("a")));
        assert!(trail.may_go_on());
        trail.note_page(9, key("a/b/c"), false);
        assert!(!trail.may_go_on());
    }

    #[test]
    fn a_walk_ends_at_its_bounds() {
        let trail = ListingPrefetch::new(key("a"), key("a/b"));
        assert!(trail.may_go_on());
        trail.note_page(MOST_KEYS, key("a/c"), false);
        trail.follow(MOST_KEYS);
        assert!(!trail.may_go_on());
        let other = ListingPrefetch::new(key("a"), key("a/b"));
        other.state.lock().last_followed = Instant::now() - PATIENCE;
        assert!(!other.may_go_on());
        other.follow(0);
        assert!(other.may_go_on());
    }
}
