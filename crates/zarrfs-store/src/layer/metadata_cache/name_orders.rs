//! Tracks programs that use names sequentially.

use std::num::NonZeroUsize;
use std::ops::Range;

use lru::LruCache;
use parking_lot::Mutex;

use crate::Key;
use crate::name_order::NameOrder;

/// Maximum number of programs to track.
const MAX_FOLLOWED: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// The names that a program goes through.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Followed {
    /// The files of a directory.
    Files(Key),
    /// The same document in each subdirectory of `above`.
    Documents { above: Key, name: Vec<u8> },
}

/// The progress of the tracked programs.
pub(super) struct NameOrders(Mutex<LruCache<Followed, NameOrder>>);

impl Default for NameOrders {
    fn default() -> NameOrders {
        NameOrders(Mutex::new(LruCache::new(MAX_FOLLOWED)))
    }
}

impl NameOrders {
    /// Whether a program is tracked there.
    pub(super) fn has(&self, followed: &Followed) -> bool {
        self.0.lock().contains(followed)
    }

    /// Records the use of the name at an index; returns the indices to prefetch. `window` maps the number of names used
    /// in sequence to the maximum number of names to prefetch.
    pub(super) fn advance(
        &self,
        followed: Followed,
        place: usize,
        window: impl Fn(usize) -> usize,
    ) -> Range<usize> {
        let mut orders = self.0.lock();
        let order = orders.get_or_insert_mut(followed, NameOrder::default);
        order.note(place);
        order.fetch(window(order.count()))
    }
}
