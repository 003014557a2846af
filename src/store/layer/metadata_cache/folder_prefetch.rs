//! Looks into single folders, a page each and side by side, where walks would read page after page.
//!
//! Who goes down from folder to folder will go on: the first folder at the third depth is read whole, in one
//! request beside its listing. If that was all of it and not little, the folders beside it are read in the same way
//! once somebody comes to the second, so many ahead as may be asked at a time.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

use super::flat_listing::run;
use super::listing_prefetch::ListingPrefetch;
use super::shared::MetadataCacheState;
use crate::store::Key;
use lru::LruCache;

/// How many keys of a folder are worth a request of its own; of what holds fewer, a page of a walk has several.
const WORTHWHILE: u64 = 125;

/// How many keys may be known before somebody comes to them.
const LEAD: u64 = 16_000;

/// How many folders are looked into at a time: a server has more work with a page of names than with an object, and
/// more pages at a time come no sooner.
const ABREAST: usize = 8;

/// How many parents are remembered.
const MOST: NonZeroUsize = NonZeroUsize::new(1 << 10).unwrap();

/// How much the folders in one folder hold, and which of them were looked into.
pub(super) struct SiblingStats(LruCache<Key, SiblingRow>);

struct SiblingRow {
    /// Keys of the one that was seen last; nothing if that was more than a page.
    keys: Option<u64>,
    /// Before which place all were looked into.
    reached: usize,
}

impl Default for SiblingStats {
    fn default() -> SiblingStats {
        SiblingStats(LruCache::new(MOST))
    }
}

impl SiblingStats {
    /// Notes how many keys a folder inside `parent` holds.
    fn note(&mut self, parent: Key, keys: Option<u64>) {
        let row = self
            .0
            .get_or_insert_mut(parent, || SiblingRow { keys, reached: 0 });
        row.keys = keys;
    }

    /// Returns the places from `place` on that it is time to look into, where at most `window` are ahead.
    fn advance(&mut self, parent: &Key, place: usize, window: usize) -> Range<usize> {
        let Some(row) = self.0.get_mut(parent) else {
            return 0..0;
        };
        let Some(keys) = row.keys.filter(|keys| *keys >= WORTHWHILE) else {
            return 0..0;
        };
        let window = window.min((LEAD / keys) as usize);
        let end = place.saturating_add(1).saturating_add(window);
        let is_ahead = row.reached > place && row.reached <= end;
        let start = if is_ahead { row.reached } else { place };
        row.reached = end;
        start..end
    }
}

impl MetadataCacheState {
    /// Looks into the folders from this one on, if what is known of others beside it says that this is worthwhile.
    pub(super) fn look_beside(self: &Arc<Self>, folder: &Key) {
        let Some(parent) = folder.parent() else {
            return;
        };
        let Some((above, place)) = self.folders.get(&parent).and_then(|above| {
            let place = above.place_of(folder.name())?;
            Some((above, place))
        }) else {
            return;
        };
        let window = self.window.min(ABREAST);
        let next = self.neighbours.lock().advance(&parent, place, window);
        for name in above.directories(next.start, next.end) {
            if let Ok(folder) = parent.child(&name)
                && self.folders.get(&folder).is_none()
            {
                self.look_into(folder);
            }
        }
    }

    /// Reads a page of all that lies in a folder, in another thread.
    pub(super) fn look_into(self: &Arc<Self>, folder: Key) {
        let trail = Arc::new(ListingPrefetch::new(folder.clone(), folder.clone()));
        self.trails.lock().push(trail.clone());
        let (memory, on) = (Arc::downgrade(self), trail.clone());
        let is_begun = self.pool.submit(move || {
            let walk = memory.upgrade().and_then(|shared| {
                let walk = shared.inner.list_all(&on.prefix, &on.prefix);
                walk.ok().flatten()
            });
            run(&memory, &on, walk);
        });
        if !is_begun {
            self.end(&trail);
        }
    }

    /// Notes what an excursion has found: so many keys, or that they are more than a page.
    pub(super) fn note_excursion(&self, folder: &Key, keys: Option<u64>) {
        if let Some(parent) = folder.parent() {
            self.neighbours.lock().note(parent, keys);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_looked_into_once_while_that_is_worthwhile() {
        let mut neighbours = SiblingStats::default();
        let parent = Key::new("a").unwrap();
        assert_eq!(neighbours.advance(&parent, 0, 4), 0..0);
        for (keys, next) in [
            (Some(WORTHWHILE - 1), 0..0),
            (None, 0..0),
            (Some(WORTHWHILE), 1..6),
        ] {
            neighbours.note(parent.clone(), keys);
            assert_eq!(neighbours.advance(&parent, 1, 4), next);
        }
        assert_eq!(neighbours.advance(&parent, 1, 4), 6..6);
        assert_eq!(neighbours.advance(&parent, 3, 4), 6..8);
        assert_eq!(neighbours.advance(&parent, 90, 4), 90..95);
        neighbours.note(parent.clone(), Some(LEAD / 2));
        assert_eq!(neighbours.advance(&parent, 200, 4), 200..203);
    }
}
