//! Chunk arithmetic: boxes of elements, the chunks under them, and the runs of bytes they share.
//!
//! Pure: no I/O, no types of elements. Everything is in C order. Coordinates are `u64` and checked where a
//! product could overflow; `usize` stands only for bytes of buffers that exist. `boxes` cuts ranges into
//! boxes, `runs` finds the bytes that two buffers share.

use smallvec::SmallVec;

use crate::error::Error;
use crate::error::Result;

mod boxes;
mod runs;

pub use boxes::boxes;
pub use runs::Layout;
pub use runs::Runs;

/// A place or lengths, one number a dimension; few dimensions need no memory of their own, since every read
/// of a file computes several of them.
pub type Coordinates = SmallVec<[u64; 6]>;

/// A box of elements: `start[i] .. start[i] + shape[i]` along each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first element.
    pub start: Coordinates,
    /// Elements along each dimension.
    pub shape: Coordinates,
}

impl Region {
    /// Returns the box of a whole array.
    pub fn whole(shape: &[u64]) -> Region {
        Region {
            start: SmallVec::from_elem(0, shape.len()),
            shape: shape.into(),
        }
    }

    /// Moves `at` to the next element in C order; false after the last.
    pub fn step(&self, at: &mut [u64]) -> bool {
        for axis in (0..at.len()).rev() {
            at[axis] += 1;
            if at[axis] < self.start[axis] + self.shape[axis] {
                return true;
            }
            at[axis] = self.start[axis];
        }
        false
    }

    /// Returns the elements that lie in both boxes.
    fn overlap(&self, other: &Region) -> Region {
        let mut both = self.clone();
        for axis in 0..self.shape.len() {
            let start = self.start[axis].max(other.start[axis]);
            let end =
                (self.start[axis] + self.shape[axis]).min(other.start[axis] + other.shape[axis]);
            both.start[axis] = start;
            both.shape[axis] = end.saturating_sub(start);
        }
        both
    }
}

/// The number of a chunk in C order of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkIndex(pub u64);

/// A regular grid of chunks over an array.
#[derive(Clone, Debug)]
pub struct Grid {
    shape: Vec<u64>,
    chunk: Vec<u64>,
    counts: Vec<u64>,
}

impl Grid {
    /// Builds the grid; `TooLarge` if the chunks cannot be numbered.
    pub fn new(shape: &[u64], chunk: &[u64]) -> Result<Grid> {
        if shape.len() != chunk.len() || chunk.contains(&0) {
            return Err(Error::corrupt(
                "chunk_grid",
                format!("chunks of {chunk:?} for a shape of {shape:?}"),
            ));
        }
        let counts: Vec<u64> = shape
            .iter()
            .zip(chunk)
            .map(|(&length, &chunk)| length.div_ceil(chunk))
            .collect();
        if !counts.contains(&0)
            && counts
                .iter()
                .try_fold(1u64, |all, &count| all.checked_mul(count))
                .is_none()
        {
            return Err(Error::too_large(
                "chunk_grid",
                format!("{counts:?} chunks are more than 2^64"),
            ));
        }
        Ok(Grid {
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            counts,
        })
    }

    /// Returns the number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of chunks.
    pub fn len(&self) -> u64 {
        if self.counts.contains(&0) {
            0
        } else {
            self.counts.iter().product()
        }
    }

    /// Whether there is no chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the chunk at `indices`, or nothing outside the grid.
    pub fn index(&self, indices: &[u64]) -> Option<ChunkIndex> {
        let inside = indices.len() == self.counts.len()
            && indices.iter().zip(&self.counts).all(|(i, n)| i < n);
        inside.then(|| {
            ChunkIndex(
                indices
                    .iter()
                    .zip(&self.counts)
                    .fold(0, |number, (i, n)| number * n + i),
            )
        })
    }

    /// Returns the indices of a chunk.
    pub fn indices(&self, chunk: ChunkIndex) -> Coordinates {
        let mut rest = chunk.0;
        let mut indices = Coordinates::from_elem(0, self.counts.len());
        for (index, &count) in indices.iter_mut().zip(&self.counts).rev() {
            *index = rest % count.max(1);
            rest /= count.max(1);
        }
        indices
    }

    /// Returns the chunk that an element lies in, and its number there in C order.
    pub fn locate(&self, element: &[u64]) -> (ChunkIndex, usize) {
        let (mut number, mut place) = (0, 0);
        for (axis, &at) in element.iter().enumerate() {
            number = number * self.counts[axis] + at / self.chunk[axis];
            place = place * self.chunk[axis] + at % self.chunk[axis];
        }
        (ChunkIndex(number), place as usize)
    }

    /// Returns the elements of a chunk, cut off at the array's edge.
    pub fn region(&self, indices: &[u64]) -> Region {
        let start: Coordinates = indices
            .iter()
            .zip(&self.chunk)
            .map(|(i, n)| i * n)
            .collect();
        let shape = (0..start.len())
            .map(|axis| self.chunk[axis].min(self.shape[axis].saturating_sub(start[axis])))
            .collect();
        Region { start, shape }
    }

    /// Returns the shape of a chunk, the array's edge not regarded.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk
    }

    /// Calls `visit` with each chunk under a box, its first element, and what they share, in C order, until
    /// it returns false.
    pub fn visit(&self, part: &Region, mut visit: impl FnMut(ChunkIndex, &[u64], &Region) -> bool) {
        if part.shape.contains(&0) {
            return;
        }
        let first: Coordinates = part
            .start
            .iter()
            .zip(&self.chunk)
            .map(|(s, n)| s / n)
            .collect();
        let last: Coordinates = (0..first.len())
            .map(|axis| (part.start[axis] + part.shape[axis] - 1) / self.chunk[axis])
            .collect();
        let mut at = first.clone();
        loop {
            let region = self.region(&at);
            let Some(index) = self.index(&at) else { return };
            if !visit(index, &region.start, &region.overlap(part)) {
                return;
            }
            if !step(&mut at, &first, &last) {
                return;
            }
        }
    }
}

/// Moves `at` to the next indices in C order between `first` and `last`; false after the last.
fn step(at: &mut [u64], first: &[u64], last: &[u64]) -> bool {
    for axis in (0..at.len()).rev() {
        if at[axis] < last[axis] {
            at[axis] += 1;
            return true;
        }
        at[axis] = first[axis];
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shapes() -> impl Strategy<Value = (Vec<u64>, Vec<u64>)> {
        (0usize..5).prop_flat_map(|rank| {
            (
                prop::collection::vec(1u64..6, rank),
                prop::collection::vec(1u64..5, rank),
            )
        })
    }

    proptest! {
        #[test]
        fn chunks_put_together_are_the_whole((shape, chunk) in shapes(), size in 1usize..18) {
            let grid = Grid::new(&shape, &chunk).unwrap();
            let whole = Region::whole(&shape);
            let bytes: Vec<u8> = (0..shape.iter().product::<u64>() as usize * size).map(|i| (i * 7 % 251) as u8).collect();
            let mut copied = vec![0; bytes.len()];
            let from_whole = Layout { start: &whole.start, shape: &whole.shape, skipped: 0 };
            let mut seen = 0;
            grid.visit(&whole, |index, start, part| {
                assert_eq!(grid.index(&grid.indices(index)), Some(index));
                let layout = Layout { start, shape: grid.chunk_shape(), skipped: 0 };
                let mut stored = vec![0xff; chunk.iter().product::<u64>() as usize * size];
                Runs::new(part, from_whole, layout, size).copy(&bytes, &mut stored);
                Runs::new(part, layout, from_whole, size).copy(&stored, &mut copied);
                seen += 1;
                true
            });
            prop_assert_eq!(seen, grid.len());
            prop_assert_eq!(copied, bytes);
        }
    }

    #[test]
    fn grids_that_cannot_be_numbered_are_refused() {
        assert!(Grid::new(&[u64::MAX, 2], &[1, 1]).is_err());
        assert!(Grid::new(&[4], &[0]).is_err());
        assert!(Grid::new(&[4, 0], &[2, 3]).unwrap().is_empty());
    }
}
