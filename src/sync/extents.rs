//! Free ranges of addresses: neighbours are one range, and the shortest one that is long enough is used first, so that
//! what is in use stays close together.
//!
//! The ranges are described apart from the memory that they are, which may therefore be the kernel's. Nothing here
//! allocates much at once: the allocator of the process (`arena`) is what this belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Ranges that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// The length of each range by its start.
    by_start: BTreeMap<usize, usize>,
    /// Length and start of each range.
    by_length: BTreeSet<(usize, usize)>,
    total: usize,
}

impl Extents {
    /// Builds an empty set.
    pub(super) const fn new() -> Extents {
        Extents {
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
            total: 0,
        }
    }

    /// Returns the bytes of all ranges.
    pub(super) fn total(&self) -> usize {
        self.total
    }

    /// Adds a range that overlaps none, merged with those that it touches.
    pub(super) fn insert(&mut self, range: Range<usize>) {
        let merged = self.take_neighbours(range);
        self.put(merged.start, merged.len());
    }

    /// Removes the ranges that touch one that is not in the set; returns it with them.
    pub(super) fn take_neighbours(&mut self, range: Range<usize>) -> Range<usize> {
        let before = self.by_start.range(..range.start).next_back();
        let before = before.map(|(&start, &length)| start..start + length);
        let before = before.filter(|before| before.end == range.start);
        let after = self.by_start.get(&range.end);
        let after = after.map(|&length| range.end..range.end + length);
        for neighbour in before.iter().chain(&after) {
            self.remove(neighbour.start, neighbour.len());
        }
        let start = before.map_or(range.start, |before| before.start);
        start..after.map_or(range.end, |after| after.end)
    }

    /// Takes `length` bytes of the shortest range that has as many, the first one of several; returns where they start.
    pub(super) fn take(&mut self, length: usize) -> Option<usize> {
        let &(found, start) = self.by_length.range((length, 0)..).next()?;
        self.remove(start, found);
        if found > length {
            self.put(start + length, found - length);
        }
        Some(start)
    }

    /// Removes the longest range.
    pub(super) fn take_longest(&mut self) -> Option<Range<usize>> {
        let &(length, start) = self.by_length.last()?;
        self.remove(start, length);
        Some(start..start + length)
    }

    fn put(&mut self, start: usize, length: usize) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
        self.total += length;
    }

    fn remove(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        self.total -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one_range() {
        let mut free = Extents::new();
        free.insert(10..20);
        free.insert(30..40);
        free.insert(20..30);
        assert_eq!((free.take(31), free.total()), (None, 30));
        assert_eq!((free.take(30), free.total()), (Some(10), 0));
    }

    #[test]
    fn the_shortest_that_is_long_enough_is_taken() {
        let mut free = Extents::new();
        for range in [0..50, 60..80, 90..110] {
            free.insert(range);
        }
        assert_eq!(free.take(15), Some(60));
        assert_eq!(free.take(15), Some(90));
        assert_eq!(free.take_longest(), Some(0..50));
        assert_eq!(free.take_longest(), Some(105..110));
        assert_eq!(free.total(), 5);
    }

    proptest! {
        #[test]
        fn every_byte_is_free_or_taken_once(lengths in prop::collection::vec((1usize..40, any::<bool>()), 1..200)) {
            let mut free = Extents::new();
            free.insert(0..1000);
            let mut taken: Vec<Range<usize>> = Vec::new();
            for (length, give_back) in lengths {
                if let Some(start) = free.take(length) {
                    let range = start..start + length;
                    prop_assert!(taken.iter().all(|other| other.end <= range.start || range.end <= other.start));
                    prop_assert!(range.end <= 1000);
                    taken.push(range);
                }
                if give_back && !taken.is_empty() {
                    free.insert(taken.swap_remove(length % taken.len()));
                }
                let in_use: usize = taken.iter().map(Range::len).sum();
                prop_assert_eq!(free.total() + in_use, 1000);
            }
            taken.into_iter().for_each(|range| free.insert(range));
            prop_assert_eq!(free.take_longest(), Some(0..1000));
        }
    }
}
