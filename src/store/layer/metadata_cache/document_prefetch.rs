//! Who reads the same document of one directory after the other, and which come next.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::store::Key;
use lru::LruCache;

/// How many courses are followed at a time.
const MOST: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Courses by the directory above and the document's name.
pub(super) struct DocumentPrefetch {
    by_name: Mutex<LruCache<(Key, Vec<u8>), SiblingRun>>,
    /// How many directories ahead are looked at.
    window: usize,
}

struct SiblingRun {
    last: usize,
    /// Before which place everything was asked for.
    reached: usize,
}

impl DocumentPrefetch {
    /// Builds an empty record.
    pub(super) fn new(window: usize) -> DocumentPrefetch {
        DocumentPrefetch {
            by_name: Mutex::new(LruCache::new(MOST)),
            window,
        }
    }

    /// Notes that a document of the directory at `place` was asked for; returns the places of the directories
    /// that it is time to ask ahead, none before the second.
    pub(super) fn advance(&self, course: (Key, Vec<u8>), place: usize) -> Range<usize> {
        let mut courses = self.by_name.lock();
        let Some(known) = courses.get_mut(&course) else {
            let reached = 0;
            courses.put(
                course,
                SiblingRun {
                    last: place,
                    reached,
                },
            );
            return 0..0;
        };
        if known.last == place {
            return 0..0;
        }
        let end = place.saturating_add(1).saturating_add(self.window);
        // Who jumps beyond what was asked for, or back, begins there.
        let is_ahead = known.reached > place && known.reached <= end;
        let start = if is_ahead { known.reached } else { place + 1 };
        known.last = place;
        known.reached = end;
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_asked_ahead_once() {
        let courses = DocumentPrefetch::new(4);
        let at = |place| courses.advance((Key::root(), b"zarr.json".to_vec()), place);
        assert_eq!(at(0), 0..0);
        assert_eq!(at(0), 0..0);
        assert_eq!(at(1), 2..6);
        assert_eq!(at(2), 6..7);
        assert_eq!(at(3), 7..8);
        assert_eq!(at(100), 101..105);
        assert_eq!(at(50), 51..55);
    }
}
