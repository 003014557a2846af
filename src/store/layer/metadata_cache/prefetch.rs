//! Which documents come next when the same document of one directory after the other is read.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::ops::Range;

use crate::store::Key;
use lru::LruCache;

/// How many runs are followed at a time.
const MAX_RUNS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The runs of readers through sibling directories.
pub(super) struct DocumentPrefetch {
    /// By the directory above and the document's name.
    runs: Mutex<LruCache<(Key, Vec<u8>), SiblingRun>>,
    /// How many directories ahead documents are fetched.
    window: usize,
}

struct SiblingRun {
    last: usize,
    /// Documents of directories before this place were requested.
    requested: usize,
}

impl DocumentPrefetch {
    /// Follows no run yet.
    pub(super) fn new(window: usize) -> DocumentPrefetch {
        DocumentPrefetch {
            runs: Mutex::new(LruCache::new(MAX_RUNS)),
            window,
        }
    }

    /// Notes that the document of the directory at `place` was read; returns the places of the directories whose
    /// documents to request now, none before a second directory was read.
    pub(super) fn advance(&self, run: (Key, Vec<u8>), place: usize) -> Range<usize> {
        let mut runs = self.runs.lock();
        let Some(known) = runs.get_mut(&run) else {
            let first = SiblingRun {
                last: place,
                requested: 0,
            };
            runs.put(run, first);
            return 0..0;
        };
        if known.last == place {
            return 0..0;
        }
        let end = place.saturating_add(1).saturating_add(self.window);
        // A jump outside the requested window restarts the window here.
        let is_ahead = known.requested > place && known.requested <= end;
        let start = if is_ahead { known.requested } else { place + 1 };
        known.last = place;
        known.requested = end;
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_requested_once() {
        let prefetch = DocumentPrefetch::new(4);
        let at = |place| prefetch.advance((Key::root(), b"zarr.json".to_vec()), place);
        assert_eq!(at(0), 0..0);
        assert_eq!(at(0), 0..0);
        assert_eq!(at(1), 2..6);
        assert_eq!(at(2), 6..7);
        assert_eq!(at(3), 7..8);
        assert_eq!(at(100), 101..105);
        assert_eq!(at(50), 51..55);
    }
}
