//! Detects that names are used in sequence, to prefetch the next ones.

use std::ops::Range;

/// How far a program has gone in a sorted list of names. A name counts as used if its entry is used, or something in
/// the entry, such as the metadata document of a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameSequence {
    /// Number of names that the program has used in sequence.
    count: usize,
    /// The highest index that the program has used.
    last: usize,
    /// All names before this index were prefetched.
    fetched: usize,
    /// Moving average of the distance between the used and the expected index, in sixteenths.
    deviation: usize,
}

impl NameSequence {
    /// Builds the progress of a program that used `count` names in sequence in another list and is now before the first
    /// name of this list. The first `fetched` names of this list were prefetched.
    pub fn at_first(count: usize, fetched: usize) -> NameSequence {
        NameSequence {
            count,
            fetched,
            ..NameSequence::default()
        }
    }

    /// Records that the program uses the name at an index. A repetition of the last name changes nothing.
    pub fn record(&mut self, index: usize) {
        if self.count > 0 && index == self.last {
            return;
        }
        // A distance of at most 16 is still sequential: concurrent requests overtake each other, and "10" sorts before
        // "9".
        let deviation = index.abs_diff(self.next());
        *self = if self.count > 0 && deviation <= 16 {
            NameSequence {
                count: self.count.saturating_add(1),
                last: self.last.max(index),
                deviation: (self.deviation * 3 + deviation * 16) / 4,
                ..*self
            }
        } else {
            NameSequence {
                count: 1,
                last: index,
                ..NameSequence::default()
            }
        };
    }

    /// Returns the number of names that the program has used in sequence.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the index that the program is expected to use next.
    pub fn next(&self) -> usize {
        self.last.saturating_add(1)
    }

    /// Returns the average distance from strictly sequential use, in sixteenths of a name. It is 0 if each name
    /// followed the one before.
    pub fn deviation(&self) -> usize {
        self.deviation
    }

    /// Returns the indices of the names to prefetch now, so that up to `window` names are ahead of the program. Each
    /// index is returned only once.
    pub fn take_window(&mut self, window: usize) -> Range<usize> {
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
    fn each_name_is_prefetched_once() {
        let mut sequence = NameSequence::default();
        let mut at = |index| {
            sequence.record(index);
            let window = if sequence.count() > 1 { 4 } else { 0 };
            sequence.take_window(window)
        };
        assert_eq!(at(0), 1..1);
        assert_eq!(at(0), 1..1, "the same name");
        assert_eq!(at(1), 2..6);
        assert_eq!(at(3), 6..8);
        assert_eq!(at(2), 8..8, "out of sequence");
        assert_eq!(at(100), 101..101, "elsewhere");
        assert_eq!(at(101), 102..106);
    }

    #[test]
    fn a_growing_window_prefetches_no_name_twice() {
        let mut sequence = NameSequence::default();
        let indices = (0..5).map(|index| {
            sequence.record(index);
            let count = sequence.count();
            sequence.take_window(if count < 3 { 0 } else { count })
        });
        let indices: Vec<Range<usize>> = indices.collect();
        assert_eq!(indices, [1..1, 2..2, 3..6, 6..8, 8..10]);
    }

    #[test]
    fn a_sequence_begun_elsewhere_continues_at_the_first_name() {
        let mut sequence = NameSequence::at_first(2, 4);
        sequence.record(0);
        assert_eq!((sequence.count(), sequence.take_window(8)), (2, 4..9));
        sequence.record(1);
        assert_eq!((sequence.count(), sequence.deviation()), (3, 0));
    }
}
