//! Follows a program that uses names in an order, to fetch ahead of it.

use std::ops::Range;

/// How many places a name may be away from the next one and still be in order: concurrent requests change places, and
/// numbers are not counted in the order of their digits.
const MAX_DEVIATION: usize = 16;

/// A program that goes through names in an order. A name stands for itself or for something in it, such as a document of
/// a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameOrder {
    /// How many names it has used in order.
    count: usize,
    /// The furthest place of them.
    last: usize,
    /// Names before this place were fetched.
    fetched: usize,
    /// How far names were from the place after the last one, on average, in sixteenths.
    deviation: usize,
}

impl NameOrder {
    /// Describes a program that comes to the first name next, after it has used `count` other names in order; `fetched`
    /// names were fetched.
    pub(crate) fn at_first(count: usize, fetched: usize) -> NameOrder {
        NameOrder {
            count,
            fetched,
            ..NameOrder::default()
        }
    }

    /// Notes that the name at a place is used. The same name again changes nothing.
    pub(crate) fn note(&mut self, place: usize) {
        if self.count > 0 && place == self.last {
            return;
        }
        let deviation = place.abs_diff(self.next());
        *self = if self.count > 0 && deviation <= MAX_DEVIATION {
            NameOrder {
                count: self.count.saturating_add(1),
                last: self.last.max(place),
                deviation: (self.deviation * 3 + deviation * 16) / 4,
                ..*self
            }
        } else {
            NameOrder {
                count: 1,
                last: place,
                ..NameOrder::default()
            }
        };
    }

    /// Returns how many names were used in order.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the place after the furthest one.
    pub(crate) fn next(&self) -> usize {
        self.last.saturating_add(1)
    }

    /// Returns how badly the names fit the order, 0 if each came after the other.
    pub(crate) fn deviation(&self) -> usize {
        self.deviation
    }

    /// Returns the places to fetch now, so that at most `window` names are fetched ahead; each place is returned once.
    pub(crate) fn fetch(&mut self, window: usize) -> Range<usize> {
        let next = self.next();
        let end = next.saturating_add(window);
        let start = self.fetched.clamp(next, end);
        self.fetched = self.fetched.max(end);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_fetched_once() {
        let mut order = NameOrder::default();
        let mut at = |place| {
            order.note(place);
            let window = if order.count() > 1 { 4 } else { 0 };
            order.fetch(window)
        };
        assert_eq!(at(0), 1..1);
        assert_eq!(at(0), 1..1, "the same name");
        assert_eq!(at(1), 2..6);
        assert_eq!(at(3), 6..8);
        assert_eq!(at(2), 8..8, "out of order");
        assert_eq!(at(100), 101..101, "elsewhere");
        assert_eq!(at(101), 102..106);
    }

    #[test]
    fn the_window_may_grow() {
        let mut order = NameOrder::default();
        let places = (0..5).map(|place| {
            order.note(place);
            let count = order.count();
            order.fetch(if count < 3 { 0 } else { count })
        });
        let places: Vec<Range<usize>> = places.collect();
        assert_eq!(places, [1..1, 2..2, 3..6, 6..8, 8..10]);
    }

    #[test]
    fn a_program_may_begin_in_order() {
        let mut order = NameOrder::at_first(2, 4);
        order.note(0);
        assert_eq!((order.count(), order.fetch(8)), (2, 4..9));
        order.note(1);
        assert_eq!((order.count(), order.deviation()), (3, 0));
    }
}
