//! The programs that are followed through directories.

use std::num::NonZeroUsize;
use std::ops::Range;

use lru::LruCache;
use parking_lot::Mutex;

use crate::Key;
use crate::name_order::NameOrder;

/// How many programs are followed at a time.
const MAX_FOLLOWED: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// What a program goes through.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Followed {
    /// The files of a directory.
    Files(Key),
    /// A document of each directory in a directory.
    Documents { above: Key, name: Vec<u8> },
}

/// How far programs have come.
pub(super) struct NameOrders(Mutex<LruCache<Followed, NameOrder>>);

impl Default for NameOrders {
    fn default() -> NameOrders {
        NameOrders(Mutex::new(LruCache::new(MAX_FOLLOWED)))
    }
}

impl NameOrders {
    /// Whether a program goes through something.
    pub(super) fn has(&self, followed: &Followed) -> bool {
        self.0.lock().contains(followed)
    }

    /// Notes that the name at a place is used; returns the places to fetch now. `window` says how many names may be fetched
    /// ahead of a program that has used a number of them in order.
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
