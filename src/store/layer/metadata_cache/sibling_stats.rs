//! How much the directories beside each other hold, and which of them were read ahead.

use std::num::NonZeroUsize;
use std::ops::Range;

use lru::LruCache;

use crate::store::Key;

/// How many keys of a directory are worth a request of its own; a page of a flat listing holds several smaller ones.
const MIN_KEYS: u64 = 125;

/// How many keys may be read ahead of the client.
const MAX_KEYS_AHEAD: u64 = 16_000;

/// How many parents are remembered.
const MAX_PARENTS: NonZeroUsize = NonZeroUsize::new(1 << 10).unwrap();

/// What is known of the directories in each directory.
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
    pub(super) fn note(&mut self, parent: Key, keys: Option<u64>) {
        let first = || SiblingRow { keys, requested: 0 };
        self.0.get_or_insert_mut(parent, first).keys = keys;
    }

    /// Returns the places from `place` on whose directories to request now, where at most `window` are ahead.
    pub(super) fn advance(&mut self, parent: &Key, place: usize, window: usize) -> Range<usize> {
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
