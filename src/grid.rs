//! Chunk arithmetic: boxes of elements, the chunks under them, and the runs of bytes they share.
//!
//! Pure: no I/O, no types of elements. Everything is in C order. Coordinates are `u64` and checked where a
//! product could overflow; `usize` stands only for bytes of buffers that exist.

use std::ops::Range;

use smallvec::SmallVec;

use crate::error::Error;
use crate::error::Result;

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

/// Cuts a range of elements of a C-order sequence of the given shape into boxes: at most 2 * rank - 1,
/// in order. The range must lie inside.
pub fn boxes(shape: &[u64], range: Range<u64>) -> Vec<Region> {
    let mut found = Vec::new();
    if range.start < range.end {
        cut(shape, range, &mut Coordinates::new(), &mut found);
    }
    found
}

/// Cuts along the first axis of `shape`; `outer` holds the coordinates before it.
fn cut(shape: &[u64], range: Range<u64>, outer: &mut Coordinates, found: &mut Vec<Region>) {
    let Some((_, inner)) = shape.split_first() else {
        found.push(Region {
            start: outer.clone(),
            shape: SmallVec::from_elem(1, outer.len()),
        });
        return;
    };
    let row: u64 = inner.iter().product();
    let (first, last) = (range.start / row, (range.end - 1) / row);
    let (head, tail) = (range.start % row, (range.end - 1) % row + 1);
    if first == last && (head > 0 || tail < row) {
        return cut_row(inner, first, head..tail, outer, found);
    }
    if head > 0 {
        cut_row(inner, first, head..row, outer, found);
    }
    let whole = first + u64::from(head > 0)..last + u64::from(tail == row);
    if whole.start < whole.end {
        found.push(rows(inner, whole, outer));
    }
    if tail < row {
        cut_row(inner, last, 0..tail, outer, found);
    }
}

fn cut_row(
    inner: &[u64],
    row: u64,
    range: Range<u64>,
    outer: &mut Coordinates,
    found: &mut Vec<Region>,
) {
    outer.push(row);
    cut(inner, range, outer, found);
    outer.pop();
}

/// Returns the box of whole rows.
fn rows(inner: &[u64], rows: Range<u64>, outer: &[u64]) -> Region {
    let mut start = Coordinates::from_slice(outer);
    let mut shape = Coordinates::from_elem(1, outer.len());
    start.push(rows.start);
    shape.push(rows.end - rows.start);
    start.extend(inner.iter().map(|_| 0));
    shape.extend_from_slice(inner);
    Region { start, shape }
}

/// A C-order buffer of a box of elements.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    /// The element that the sequence begins with.
    pub start: &'a [u64],
    /// Elements along each dimension.
    pub shape: &'a [u64],
    /// How many elements of the sequence come before the buffer.
    pub skipped: u64,
}

impl Layout<'_> {
    /// Returns the byte at which an element lies in the buffer.
    fn offset(&self, element: &[u64], size: usize) -> usize {
        let mut place = 0;
        for (axis, at) in element.iter().enumerate() {
            place = place * self.shape[axis] + (at - self.start[axis]);
        }
        (place - self.skipped) as usize * size
    }
}

/// The runs of bytes that a box has in two buffers: equally long, equally many.
pub struct Runs {
    from: usize,
    to: usize,
    /// Bytes of a run.
    length: usize,
    /// Times to repeat, step in the one buffer and in the other, outermost axis first.
    axes: SmallVec<[(u64, usize, usize); 6]>,
}

impl Runs {
    /// Finds the runs of `part`, whose elements have `size` bytes, in the buffers `from` and `to`.
    pub fn new(part: &Region, from: Layout, to: Layout, size: usize) -> Runs {
        let (from_at, to_at) = (from.offset(&part.start, size), to.offset(&part.start, size));
        let mut axes = SmallVec::new();
        let (mut length, mut from_step, mut to_step) = (size, size, size);
        let mut joined = true;
        for axis in (0..part.shape.len()).rev() {
            let count = part.shape[axis];
            joined &= from_step == length && to_step == length;
            if joined {
                length *= count as usize;
            } else if count > 1 {
                axes.push((count, from_step, to_step));
            }
            from_step = from_step.saturating_mul(from.shape[axis] as usize);
            to_step = to_step.saturating_mul(to.shape[axis] as usize);
        }
        axes.reverse();
        Runs {
            from: from_at,
            to: to_at,
            length,
            axes,
        }
    }

    /// Returns the bytes of the first buffer if there is but one run.
    pub fn single(&self) -> Option<Range<usize>> {
        self.axes
            .is_empty()
            .then(|| self.from..self.from + self.length)
    }

    /// Returns the bytes of a run.
    pub fn run_length(&self) -> usize {
        self.length
    }

    /// Returns where each run lies in both buffers, ascending in both.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        self.each(|from, to| places.push((from, to)));
        places
    }

    /// Copies every run.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        match self.length {
            1 => self.each(|a, b| copy_fixed::<1>(from, a, to, b)),
            2 => self.each(|a, b| copy_fixed::<2>(from, a, to, b)),
            4 => self.each(|a, b| copy_fixed::<4>(from, a, to, b)),
            8 => self.each(|a, b| copy_fixed::<8>(from, a, to, b)),
            16 => self.each(|a, b| copy_fixed::<16>(from, a, to, b)),
            n => self.each(|a, b| to[b..b + n].copy_from_slice(&from[a..a + n])),
        }
    }

    /// Fills every run of the second buffer with an element.
    pub fn fill(&self, element: &[u8], to: &mut [u8]) {
        if element.iter().all(|&byte| byte == 0) {
            return self.each(|_, b| to[b..b + self.length].fill(0));
        }
        self.each(|_, b| {
            for place in to[b..b + self.length].chunks_exact_mut(element.len()) {
                place.copy_from_slice(element);
            }
        });
    }

    /// Calls `run` with both offsets of each run.
    fn each(&self, mut run: impl FnMut(usize, usize)) {
        let Some((&(count, from_step, to_step), outer)) = self.axes.split_last() else {
            return run(self.from, self.to);
        };
        let last: Coordinates = outer.iter().map(|axis| axis.0 - 1).collect();
        let first = Coordinates::from_elem(0, outer.len());
        let mut at = first.clone();
        loop {
            let (mut from, mut to) = (self.from, self.to);
            for (&place, axis) in at.iter().zip(outer) {
                from += place as usize * axis.1;
                to += place as usize * axis.2;
            }
            for _ in 0..count {
                run(from, to);
                from += from_step;
                to += to_step;
            }
            if !step(&mut at, &first, &last) {
                return;
            }
        }
    }
}

/// Copies a run whose length the compiler knows: small elements cost no call.
fn copy_fixed<const N: usize>(from: &[u8], a: usize, to: &mut [u8], b: usize) {
    to[b..b + N].copy_from_slice(&from[a..a + N]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every element of a box in C order.
    fn elements(part: &Region) -> Vec<Vec<u64>> {
        let mut all = vec![vec![]];
        for axis in 0..part.shape.len() {
            let range = part.start[axis]..part.start[axis] + part.shape[axis];
            all = all
                .iter()
                .flat_map(|e| range.clone().map(|i| [e.clone(), vec![i]].concat()))
                .collect();
        }
        all
    }

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
        fn boxes_are_the_range((shape, _) in shapes(), a in 0u64..4000, b in 0u64..4000) {
            let total: u64 = shape.iter().product();
            let (a, b) = (a % (total + 1), b % (total + 1));
            let range = a.min(b)..a.max(b);
            let parts = boxes(&shape, range.clone());
            prop_assert!(parts.len() < 2 * shape.len().max(1));
            let found: Vec<_> = parts.iter().flat_map(elements).collect();
            let all = elements(&Region::whole(&shape));
            prop_assert_eq!(&found[..], &all[range.start as usize..range.end as usize]);
        }

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
