//! Finds chunks of different lengths along one dimension by binary search.
//!
//! A run of chunks of equal length is stored once, however long it is, so memory is bounded by the metadata. Only
//! chunks that begin inside the array count, so no chunk number and no first element exceeds the array's length.

use std::slice;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::{EdgeRun, Edges};

/// Chunks of a rectilinear grid along one dimension.
#[derive(Clone, Debug)]
pub struct Axis {
    runs: Arc<[Run]>,
    count: u64,
    longest: u64,
}

/// Consecutive chunks of equal length.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of the first chunk in a run of equal chunks.
    chunk: u64,
    /// First element in a run of equal chunks.
    start: u64,
    length: u64,
}

impl Axis {
    /// Divides `length` elements into chunks (chunk grid "rectilinear", "Chunk edge lengths"). Fails with `Corrupt` if
    /// a run of chunks is empty, or if the chunks end before the array does.
    pub fn new(length: u64, edges: &Edges) -> Result<Axis> {
        match edges {
            Edges::Runs(runs) => Axis::from_runs(length, runs),
            Edges::Every(each) => {
                let run = EdgeRun {
                    length: *each,
                    count: u64::MAX,
                };
                Axis::from_runs(length, slice::from_ref(&run))
            }
        }
    }

    fn from_runs(length: u64, edges: &[EdgeRun]) -> Result<Axis> {
        let (mut runs, mut count, mut end) = (Vec::new(), 0, 0u64);
        for run in edges {
            if run.length == 0 || run.count == 0 {
                return Err(Error::corrupt(
                    "chunk_shapes",
                    "a chunk cannot have length 0",
                ));
            }
            if end < length {
                runs.push(Run {
                    chunk: count,
                    start: end,
                    length: run.length,
                });
                let used = run.count.min((length - end).div_ceil(run.length));
                count += used;
                end = end.saturating_add(used.saturating_mul(run.length));
            }
        }
        if end < length {
            let found = format!("the chunks end at {end}, before the end of the array at {length}");
            return Err(Error::corrupt("chunk_shapes", found));
        }
        let longest = runs.iter().map(|run| run.length).max();
        let first = edges.first().map(|run| run.length);
        Ok(Axis {
            runs: runs.into(),
            count,
            longest: longest.or(first).unwrap_or(1),
        })
    }

    /// Returns the number of chunks that begin inside the array, along one dimension.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the length of the longest chunk. If there is no chunk, returns the length of the first run, or 1.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Whether all chunks have the same length.
    pub fn is_regular(&self) -> bool {
        self.runs.len() < 2
    }

    /// Returns the chunk length of each run of equal chunks.
    pub fn lengths(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().map(|run| run.length)
    }

    /// Returns the greatest length that divides the first element of every chunk; if there is only one chunk, its
    /// length.
    pub fn common_step(&self) -> u64 {
        let last = self.count.saturating_sub(1);
        let before_last = self.runs.iter().filter(|run| run.chunk < last);
        let step = before_last.fold(0, |step, run| common_divisor(step, run.length));
        if step == 0 { self.longest } else { step }
    }

    /// Returns the number of the chunk that contains an element of the array.
    pub fn chunk_at(&self, element: u64) -> u64 {
        let run = self.run(|run| run.start <= element);
        run.map_or(0, |run| run.chunk + (element - run.start) / run.length)
    }

    /// Returns the first element and the length of a chunk, which may end beyond the array.
    pub fn span(&self, chunk: u64) -> (u64, u64) {
        let run = self.run(|run| run.chunk <= chunk);
        run.map_or((0, 1), |run| {
            let start = (chunk - run.chunk).saturating_mul(run.length);
            (run.start.saturating_add(start), run.length)
        })
    }

    /// Returns the last run of equal chunks for which `begins_before` is true. The predicate must hold for a prefix of
    /// the runs.
    fn run(&self, begins_before: impl Fn(&Run) -> bool) -> Option<&Run> {
        let after = self.runs.partition_point(begins_before);
        self.runs.get(after.checked_sub(1)?)
    }
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(lengths: &[(u64, u64)]) -> Edges {
        let runs = lengths.iter();
        Edges::Runs(
            runs.map(|&(length, count)| EdgeRun { length, count })
                .collect(),
        )
    }

    fn spans(axis: &Axis) -> Vec<(u64, u64)> {
        (0..axis.count()).map(|chunk| axis.span(chunk)).collect()
    }

    #[test]
    fn the_examples_of_the_specification_give_the_right_chunks() {
        for (edges, expected) in [
            (Edges::Every(4), vec![(0, 4), (4, 4)]),
            (
                runs(&[(1, 1), (2, 1), (3, 1)]),
                vec![(0, 1), (1, 2), (3, 3)],
            ),
            (runs(&[(4, 2)]), vec![(0, 4), (4, 4)]),
            (
                runs(&[(1, 3), (3, 1)]),
                vec![(0, 1), (1, 1), (2, 1), (3, 3)],
            ),
            // Three chunks of 4 elements, but the third begins beyond the 6 elements of the array.
            (runs(&[(4, 3)]), vec![(0, 4), (4, 4)]),
        ] {
            let axis = Axis::new(6, &edges).unwrap();
            assert_eq!(spans(&axis), expected, "{edges:?}");
        }
    }

    #[test]
    fn the_common_step_divides_the_start_of_each_chunk() {
        for (length, edges, step) in [
            (6, Edges::Every(4), 4),
            (60, runs(&[(10, 1), (20, 2), (10, 1)]), 10),
            (6, runs(&[(1, 1), (2, 1), (3, 1)]), 1),
            // The length of the last chunk does not matter for the start of any chunk.
            (31, runs(&[(12, 1), (8, 2), (7, 1)]), 4),
            (7, runs(&[(9, 1)]), 9),
            (0, runs(&[(5, 3)]), 5),
        ] {
            let axis = Axis::new(length, &edges).unwrap();
            assert_eq!(axis.common_step(), step, "{edges:?}");
            assert!(spans(&axis).iter().all(|(start, _)| start % step == 0));
        }
    }

    #[test]
    fn long_runs_are_not_expanded() {
        let edges = runs(&[(3, 1 << 40), (1 << 63, 1), (u64::MAX, u64::MAX)]);
        let axis = Axis::new(u64::MAX, &edges).unwrap();
        assert_eq!(axis.runs.len(), 3);
        assert_eq!(axis.count(), (1 << 40) + 2);
        assert_eq!(axis.longest(), u64::MAX);
        assert_eq!(axis.chunk_at((3 << 40) - 1), (1 << 40) - 1);
        assert_eq!(axis.chunk_at(u64::MAX - 1), (1 << 40) + 1);
        assert_eq!(axis.span((1 << 40) + 1), ((3 << 40) + (1 << 63), u64::MAX));
    }

    #[test]
    fn chunks_that_do_not_cover_the_array_are_refused() {
        for edges in [
            runs(&[]),
            runs(&[(2, 2), (1, 1)]),
            runs(&[(0, 9)]),
            runs(&[(6, 1), (0, 1)]),
            runs(&[(6, 0)]),
            Edges::Every(0),
        ] {
            let error = Axis::new(6, &edges).unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Corrupt, "{edges:?}");
        }
        let nothing = Axis::new(0, &runs(&[])).unwrap();
        assert_eq!((nothing.count(), nothing.longest()), (0, 1));
    }

    proptest! {
        #[test]
        fn the_span_of_the_chunk_at_an_element_contains_it(
            lengths in prop::collection::vec((1u64..5, 1u64..4), 1..6),
            beyond in 0u64..5,
        ) {
            let sum: u64 = lengths.iter().map(|(length, count)| length * count).sum();
            let axis = Axis::new(sum.saturating_sub(beyond), &runs(&lengths)).unwrap();
            for element in 0..sum.saturating_sub(beyond) {
                let chunk = axis.chunk_at(element);
                let (start, length) = axis.span(chunk);
                prop_assert!(chunk < axis.count());
                prop_assert!((start..start + length).contains(&element));
            }
        }
    }
}
