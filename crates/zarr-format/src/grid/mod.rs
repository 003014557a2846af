//! Computes which chunks and byte ranges a region of an array covers.
//!
//! There is no I/O and there are no element types. Everything is in C order. Coordinates are `u64` and checked where a
//! product could overflow; `usize` counts bytes of buffers in memory. `region` has the boxes of elements, `runs` finds
//! the runs of bytes that two buffers share, `axis` is for chunks of different lengths, `selection` for strided
//! elements, `element_blocks` for loops over elements.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::model::Array;
use region::step;

mod axis;
pub mod element_blocks;
mod numbered_name;
mod region;
mod runs;
mod selection;

pub use axis::Axis;
pub use numbered_name::{NumberedName, join_indices};
pub use region::{Coordinates, Region, boxes, permuted};
pub use runs::{Layout, Runs};
pub use selection::{SelectedAxis, Selection};

/// Number of a chunk, counted in C order of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkIndex(pub u64);

/// A grid of chunks over an array, regular or rectilinear.
#[derive(Clone, Debug)]
pub struct Grid {
    shape: Vec<u64>,
    /// Chunk shape; in a rectilinear grid, the longest chunk length along each dimension.
    chunk: Vec<u64>,
    counts: Vec<u64>,
    /// Chunks along each dimension of a rectilinear grid; empty if the grid is regular.
    axes: Vec<Axis>,
}

impl Grid {
    /// Builds a regular grid; fails with `TooLarge` if the number of chunks overflows.
    pub fn new(shape: &[u64], chunk: &[u64]) -> Result<Grid> {
        if shape.len() != chunk.len() || chunk.contains(&0) {
            return Err(Error::corrupt(
                "chunk_grid",
                format!("invalid chunk shape {chunk:?} for an array of shape {shape:?}"),
            ));
        }
        let counts = shape.iter().zip(chunk);
        Grid {
            counts: counts
                .map(|(&length, &chunk)| length.div_ceil(chunk))
                .collect(),
            shape: shape.to_vec(),
            chunk: chunk.to_vec(),
            axes: Vec::new(),
        }
        .checked()
    }

    /// Builds the chunk grid of an array. Fails with `TooLarge` if the number of chunks overflows, with `Corrupt` if
    /// the chunks do not cover the array. Chunks that begin beyond the array are not counted (chunk grid
    /// "rectilinear").
    pub fn of(array: &Array) -> Result<Grid> {
        if array.chunk_edges.is_empty() {
            return Grid::new(&array.shape, &array.chunk_shape);
        }
        if array.chunk_edges.len() != array.shape.len() {
            let (chunks, rank) = (array.chunk_edges.len(), array.shape.len());
            let found = format!("chunks have {chunks} dimensions, and the array has {rank}");
            return Err(Error::corrupt("chunk_grid", found));
        }
        let axes = array.shape.iter().zip(&array.chunk_edges);
        let axes: Vec<Axis> = axes
            .map(|(&length, edges)| Axis::new(length, edges))
            .collect::<Result<_>>()?;
        let chunk: Vec<u64> = axes.iter().map(Axis::longest).collect();
        if axes.iter().all(Axis::is_regular) {
            return Grid::new(&array.shape, &chunk);
        }
        Grid {
            shape: array.shape.clone(),
            counts: axes.iter().map(Axis::count).collect(),
            chunk,
            axes,
        }
        .checked()
    }

    fn checked(self) -> Result<Grid> {
        let mut numbers = self.counts.iter();
        let product = numbers.try_fold(1u64, |all, &count| all.checked_mul(count));
        if product.is_none() && !self.counts.contains(&0) {
            return Err(Error::too_large(
                "chunk_grid",
                format!("a grid of {:?} has more than 2^64 chunks", self.counts),
            ));
        }
        Ok(self)
    }

    /// Whether the grid is regular: all chunks have the same shape.
    pub fn is_regular(&self) -> bool {
        self.axes.is_empty()
    }

    /// Returns the number of chunks along each dimension.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the number of chunks of the grid.
    pub fn len(&self) -> u64 {
        if self.counts.contains(&0) {
            0
        } else {
            self.counts.iter().product()
        }
    }

    /// Whether the grid has no chunks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of the chunk at `indices`, or `None` if they are outside the grid.
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

    /// Returns the indices of a chunk along all dimensions.
    pub fn indices(&self, chunk: ChunkIndex) -> Coordinates {
        let mut rest = chunk.0;
        let mut indices = Coordinates::from_elem(0, self.counts.len());
        for (index, &count) in indices.iter_mut().zip(&self.counts).rev() {
            *index = rest % count.max(1);
            rest /= count.max(1);
        }
        indices
    }

    /// Returns the index, along dimension `axis`, of the chunk that contains an element of the array.
    pub fn chunk_at(&self, axis: usize, element: u64) -> u64 {
        match self.axes.get(axis) {
            None => element / self.chunk[axis],
            Some(edges) => edges.chunk_at(element),
        }
    }

    /// Returns the first element and the length of a chunk along a dimension. The chunk may end beyond the array.
    pub fn span(&self, axis: usize, index: u64) -> (u64, u64) {
        match self.axes.get(axis) {
            None => (index * self.chunk[axis], self.chunk[axis]),
            Some(edges) => edges.span(index),
        }
    }

    /// Returns the chunk that contains an element of the array, and the number of the element in that chunk, in C
    /// order.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a chunk that is decoded fits memory"
    )]
    pub fn locate(&self, element: &[u64]) -> (ChunkIndex, usize) {
        let (mut number, mut place) = (0, 0);
        for (axis, &at) in element.iter().enumerate() {
            let index = self.chunk_at(axis, at);
            let (start, length) = self.span(axis, index);
            number = number * self.counts[axis] + index;
            place = place * length + (at - start);
        }
        (ChunkIndex(number), place as usize)
    }

    /// Returns the box of elements that a chunk covers, clipped to the array.
    pub fn region(&self, indices: &[u64]) -> Region {
        let mut region = Region {
            start: Coordinates::from_elem(0, indices.len()),
            shape: Coordinates::from_elem(0, indices.len()),
        };
        for (axis, &index) in indices.iter().enumerate() {
            let (start, length) = self.span(axis, index);
            region.start[axis] = start;
            region.shape[axis] = length.min(self.shape[axis].saturating_sub(start));
        }
        region
    }

    /// Returns the shape of a whole chunk; in a rectilinear grid, the longest chunk length along each dimension.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk
    }

    /// Returns the shape of one chunk, not clipped to the array.
    pub fn shape_of(&self, chunk: ChunkIndex) -> Cow<'_, [u64]> {
        if self.is_regular() {
            return Cow::Borrowed(&self.chunk);
        }
        let indices = self.indices(chunk);
        let lengths = indices.iter().enumerate();
        Cow::Owned(
            lengths
                .map(|(axis, &index)| self.span(axis, index).1)
                .collect(),
        )
    }

    /// Returns the largest chunk shape of a regular grid whose borders include all borders between chunks of this grid.
    pub fn regular_step(&self) -> Vec<u64> {
        if self.is_regular() {
            return self.chunk.clone();
        }
        self.axes.iter().map(Axis::common_step).collect()
    }

    /// Whether `subchunks`, a length for each dimension, divides every chunk evenly.
    pub fn divides_into(&self, subchunks: &[u64]) -> bool {
        let whole = |length: u64, subchunk: u64| length.checked_rem(subchunk) == Some(0);
        if self.is_regular() {
            return self
                .chunk
                .iter()
                .zip(subchunks)
                .all(|(&chunk, &subchunk)| whole(chunk, subchunk));
        }
        let mut axes = self.axes.iter().zip(subchunks);
        axes.all(|(edges, &subchunk)| edges.lengths().all(|length| whole(length, subchunk)))
    }

    /// Calls `visit` for each chunk that overlaps a box, in C order, with the chunk, its first element and the overlap,
    /// until `visit` returns false.
    pub fn visit(&self, part: &Region, mut visit: impl FnMut(ChunkIndex, &[u64], &Region) -> bool) {
        if part.shape.contains(&0) {
            return;
        }
        let axes = 0..part.start.len();
        let first: Coordinates = axes
            .clone()
            .map(|axis| self.chunk_at(axis, part.start[axis]))
            .collect();
        let last: Coordinates = axes
            .map(|axis| self.chunk_at(axis, part.start[axis] + part.shape[axis] - 1))
            .collect();
        let (mut at, mut start, mut shared) = (first.clone(), first.clone(), part.clone());
        let mut changed = 0;
        loop {
            for axis in changed..at.len() {
                (start[axis], shared.start[axis], shared.shape[axis]) =
                    self.overlap(axis, at[axis], part);
            }
            let Some(index) = self.index(&at) else { return };
            if !visit(index, &start, &shared) {
                return;
            }
            match step(&mut at, &first, &last) {
                Some(axis) => changed = axis,
                None => return,
            }
        }
    }

    /// Returns, along one dimension, the first element of a chunk, and the start and the length of its overlap with a
    /// box.
    fn overlap(&self, axis: usize, index: u64, part: &Region) -> (u64, u64, u64) {
        let (start, length) = self.span(axis, index);
        let end = (start + length)
            .min(self.shape[axis])
            .min(part.start[axis] + part.shape[axis]);
        let first = start.max(part.start[axis]);
        (start, first, end.saturating_sub(first))
    }
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
        fn chunks_copied_out_and_back_give_the_whole_array((shape, chunk) in shapes(), size in 1usize..18) {
            let grid = Grid::new(&shape, &chunk).unwrap();
            let whole = Region::whole(&shape);
            let bytes: Vec<u8> = (0..shape.iter().product::<u64>() as usize * size).map(|i| (i * 7 % 251) as u8).collect();
            let mut copied = vec![0; bytes.len()];
            let from_whole = Layout { start: &whole.start, shape: &whole.shape, skipped: 0 };
            let mut visited = 0;
            grid.visit(&whole, |index, start, part| {
                assert_eq!(grid.index(&grid.indices(index)), Some(index));
                let layout = Layout { start, shape: grid.chunk_shape(), skipped: 0 };
                let mut stored = vec![0xff; chunk.iter().product::<u64>() as usize * size];
                Runs::new(part, from_whole, layout, size).copy(&bytes, &mut stored);
                Runs::new(part, layout, from_whole, size).copy(&stored, &mut copied);
                visited += 1;
                true
            });
            prop_assert_eq!(visited, grid.len());
            prop_assert_eq!(copied, bytes);
        }
    }

    #[test]
    fn grids_with_too_many_or_empty_chunks_are_refused() {
        assert!(Grid::new(&[u64::MAX, 2], &[1, 1]).is_err());
        assert!(Grid::new(&[4], &[0]).is_err());
        assert!(Grid::new(&[4, 0], &[2, 3]).unwrap().is_empty());
    }
}
