//! Lists single directories with all that lies in them, a page each and side by side, where flat listings would read
//! page after page.
//!
//! A client that descends level by level will go on: the first directory at the third depth is read whole, in one
//! request beside its listing. If one page held it all and it has at least `MIN_KEYS` keys, the directories beside it are
//! read in the same way once the client comes to the second, so many ahead as may be requested at a time.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use super::flat_listing::{DirLister, run};
use super::listing_prefetch::ListingPrefetch;
use crate::store::Key;
use lru::LruCache;

/// How many keys of a directory are worth a request of its own; a page of a flat listing holds several smaller ones.
const MIN_KEYS: u64 = 125;

/// How many keys may be read ahead of the client.
const MAX_KEYS_AHEAD: u64 = 16_000;

/// How many directories are read at a time: a page of names costs a server more than an object, and more pages at a
/// time come no sooner.
const MAX_PARALLEL: usize = 8;

/// How many parents are remembered.
const MAX_PARENTS: NonZeroUsize = NonZeroUsize::new(1 << 10).unwrap();

/// How much the directories in one directory hold, and which of them were read ahead.
pub(super) struct SiblingStats(LruCache<Key, SiblingRow>);

struct SiblingRow {
    /// Keys of the one that was read last; nothing if that was more than a page.
    keys: Option<u64>,
    /// Directories before this place were requested.
    requested: usize,
}

impl Default for SiblingStats {
    fn default() -> SiblingStats {
        SiblingStats(LruCache::new(MAX_PARENTS))
    }
}

impl SiblingStats {
    /// Notes how many keys a directory inside `parent` holds.
    fn note(&mut self, parent: Key, keys: Option<u64>) {
        let first = || SiblingRow { keys, requested: 0 };
        self.0.get_or_insert_mut(parent, first).keys = keys;
    }

    /// Returns the places from `place` on whose directories to request now, where at most `window` are ahead.
    fn advance(&mut self, parent: &Key, place: usize, window: usize) -> Range<usize> {
        let Some(row) = self.0.get_mut(parent) else {
            return 0..0;
        };
        let Some(keys) = row.keys.filter(|keys| *keys >= MIN_KEYS) else {
            return 0..0;
        };
        let within_keys = usize::try_from(MAX_KEYS_AHEAD / keys).unwrap_or(usize::MAX);
        let end = place
            .saturating_add(1)
            .saturating_add(window.min(within_keys));
        let is_ahead = row.requested > place && row.requested <= end;
        let start = if is_ahead { row.requested } else { place };
        row.requested = end;
        start..end
    }
}

impl DirLister {
    /// Reads the directories from this one on ahead, if what is known of others beside it makes that worthwhile.
    pub(super) fn prefetch_siblings(self: &Arc<Self>, dir: &Key) {
        let Some(parent) = dir.parent() else {
            return;
        };
        let Some((above, place)) = self.dirs.get(&parent).and_then(|above| {
            let place = above.place_of(dir.name())?;
            Some((above, place))
        }) else {
            return;
        };
        let window = self.window.min(MAX_PARALLEL);
        let next = self.siblings.lock().advance(&parent, place, window);
        for name in above.directories(next.start, next.end) {
            if let Ok(dir) = parent.child(&name)
                && self.dirs.get(&dir).is_none()
            {
                self.prefetch_dir(dir);
            }
        }
    }

    /// Reads a page of all that lies in a directory, in another thread.
    pub(super) fn prefetch_dir(self: &Arc<Self>, dir: Key) {
        let prefetch = Arc::new(ListingPrefetch::new(dir.clone(), dir));
        self.prefetches.lock().push(prefetch.clone());
        let (lister, on) = (Arc::downgrade(self), prefetch.clone());
        let clock = self.inner.info().clock.clone();
        let is_submitted = self.pool.submit(move || {
            let listing = lister.upgrade().and_then(|lister| {
                let listing = lister.inner.list_all(&on.prefix, &on.prefix);
                listing.ok().flatten()
            });
            run(&lister, &on, (listing, clock));
        });
        if !is_submitted {
            self.end(&prefetch);
        }
    }

    /// Notes how many keys a directory holds, or that they are more than a page.
    pub(super) fn note_size(&self, dir: &Key, keys: Option<u64>) {
        if let Some(parent) = dir.parent() {
            self.siblings.lock().note(parent, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_requested_once_while_that_is_worthwhile() {
        let mut siblings = SiblingStats::default();
        let parent = Key::new("a").unwrap();
        assert_eq!(siblings.advance(&parent, 0, 4), 0..0);
        for (keys, next) in [
            (Some(MIN_KEYS - 1), 0..0),
            (None, 0..0),
            (Some(MIN_KEYS), 1..6),
        ] {
            siblings.note(parent.clone(), keys);
            assert_eq!(siblings.advance(&parent, 1, 4), next);
        }
        assert_eq!(siblings.advance(&parent, 1, 4), 6..6);
        assert_eq!(siblings.advance(&parent, 3, 4), 6..8);
        assert_eq!(siblings.advance(&parent, 90, 4), 90..95);
        siblings.note(parent.clone(), Some(MAX_KEYS_AHEAD / 2));
        assert_eq!(siblings.advance(&parent, 200, 4), 200..203);
    }
}
