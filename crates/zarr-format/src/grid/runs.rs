//! Copies boxes of elements between two C-order buffers.
//!
//! A box is copied in runs of bytes that are contiguous in both buffers, and as long as possible. The caller guarantees
//! that the box is inside both buffers.

#![expect(
    clippy::cast_possible_truncation,
    reason = "offsets and counts are those of buffers in memory"
)]

use std::ops::Range;

use smallvec::SmallVec;

use super::region::{Coordinates, Region, step};

/// Position of a C-order buffer in an array: the box of elements that it holds.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    /// First element of the box.
    pub start: &'a [u64],
    /// Lengths of the box along each dimension, in elements.
    pub shape: &'a [u64],
    /// Number of elements of the box, in C order, that are missing at the start of the buffer.
    pub skipped: u64,
}

impl Layout<'_> {
    #[inline]
    fn offset(&self, element: &[u64], size: usize) -> usize {
        let mut place = 0;
        for (axis, at) in element.iter().enumerate() {
            place = place * self.shape[axis] + (at - self.start[axis]);
        }
        (place - self.skipped) as usize * size
    }
}

/// Runs of bytes (contiguous in two buffers) that make up a box of elements. All runs have the same length.
pub struct Runs {
    from: usize,
    to: usize,
    /// Length of each run in bytes.
    length: usize,
    /// Dimensions along which a run of bytes repeats, the outermost first.
    axes: SmallVec<[RunAxis; 6]>,
}

/// A dimension along which runs of bytes repeat: their number, and their stride in bytes in each buffer.
struct RunAxis {
    count: u64,
    from_step: usize,
    to_step: usize,
}

impl Runs {
    /// Finds the runs of bytes of box `part` in the buffers `from` and `to`, whose elements have `size` bytes each.
    // Inlined, since each read of a file computes the runs of several chunks.
    #[inline]
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
                axes.push(RunAxis {
                    count,
                    from_step,
                    to_step,
                });
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

    /// Finds the runs of bytes of box `part` if the second buffer has another order of dimensions: dimension `i` of
    /// `to` is dimension `order[i]` of the array, outermost first. `from` and `part` have the order of the array.
    pub fn permuted(part: &Region, from: Layout, to: Layout, order: &[usize], size: usize) -> Runs {
        let from_steps = steps(from.shape, size);
        let to_steps = steps(to.shape, size);
        let start: Coordinates = order.iter().map(|&axis| part.start[axis]).collect();
        let (mut length, mut axes) = (size, SmallVec::<[RunAxis; 6]>::new());
        for (place, &axis) in order.iter().enumerate().rev() {
            let count = part.shape[axis];
            let (from_step, to_step) = (from_steps[axis], to_steps[place]);
            if axes.is_empty() && from_step == length && to_step == length {
                length *= count as usize;
            } else if count > 1 {
                axes.push(RunAxis {
                    count,
                    from_step,
                    to_step,
                });
            }
        }
        // The second-innermost loop has the smallest stride in the first buffer, so that runs close to each other are
        // copied soon after each other.
        if let Some(nearest) = (1..axes.len()).min_by_key(|&place| axes[place].from_step) {
            axes.swap(1, nearest);
        }
        axes.reverse();
        Runs {
            from: from.offset(&part.start, size),
            to: to.offset(&start, size),
            length,
            axes,
        }
    }

    /// Returns the byte range in the first buffer if there is only one run of bytes, else `None`.
    pub fn single(&self) -> Option<Range<usize>> {
        self.axes
            .is_empty()
            .then(|| self.from..self.from + self.length)
    }

    /// Returns the smallest byte range in the first buffer that contains all runs of bytes.
    pub fn span(&self) -> Range<usize> {
        let axes = self.axes.iter();
        let steps = axes.map(|axis| (axis.count as usize - 1) * axis.from_step);
        self.from..self.from + steps.sum::<usize>() + self.length
    }

    /// Returns the total length of all runs of bytes.
    pub fn bytes(&self) -> usize {
        self.axes
            .iter()
            .map(|axis| axis.count as usize)
            .product::<usize>()
            * self.length
    }

    /// Returns the length of each run of bytes.
    pub fn run_length(&self) -> usize {
        self.length
    }

    /// Returns the offsets of each run of bytes in both buffers. The offsets ascend if both buffers have the same order
    /// of dimensions.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        self.for_each(|from, to| places.push((from, to)));
        places
    }

    /// Copies every run of bytes from the first to the second buffer.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        match self.length {
            1 => self.for_each(|a, b| copy_fixed::<1>(from, a, to, b)),
            2 => self.for_each(|a, b| copy_fixed::<2>(from, a, to, b)),
            4 => self.for_each(|a, b| copy_fixed::<4>(from, a, to, b)),
            8 => self.for_each(|a, b| copy_fixed::<8>(from, a, to, b)),
            16 => self.for_each(|a, b| copy_fixed::<16>(from, a, to, b)),
            32 => self.for_each(|a, b| copy_fixed::<32>(from, a, to, b)),
            64 => self.for_each(|a, b| copy_fixed::<64>(from, a, to, b)),
            128 => self.for_each(|a, b| copy_fixed::<128>(from, a, to, b)),
            n => self.for_each(|a, b| to[b..b + n].copy_from_slice(&from[a..a + n])),
        }
    }

    /// Copies those bytes of the runs that are in `from`, a slice of the first buffer that begins at offset `skipped`.
    pub fn copy_part(&self, from: &[u8], skipped: usize, to: &mut [u8]) {
        let available = skipped..skipped + from.len();
        self.for_each(|a, b| {
            let start = a.max(available.start);
            let end = (a + self.length).min(available.end);
            if start < end {
                to[b + start - a..b + end - a]
                    .copy_from_slice(&from[start - skipped..end - skipped]);
            }
        });
    }

    /// Fills every run of bytes in the second buffer with copies of an element.
    pub fn fill(&self, element: &[u8], to: &mut [u8]) {
        if element.iter().all(|&byte| byte == 0) {
            return self.for_each(|_, b| to[b..b + self.length].fill(0));
        }
        self.for_each(|_, b| {
            for place in to[b..b + self.length].chunks_exact_mut(element.len()) {
                place.copy_from_slice(element);
            }
        });
    }

    fn for_each(&self, mut visit: impl FnMut(usize, usize)) {
        let Some((inner, outer)) = self.axes.split_last() else {
            return visit(self.from, self.to);
        };
        let &RunAxis {
            count,
            from_step,
            to_step,
        } = inner;
        let last: Coordinates = outer.iter().map(|axis| axis.count - 1).collect();
        let first = Coordinates::from_elem(0, outer.len());
        let mut at = first.clone();
        loop {
            let (mut from, mut to) = (self.from, self.to);
            for (&place, axis) in at.iter().zip(outer) {
                from += place as usize * axis.from_step;
                to += place as usize * axis.to_step;
            }
            for _ in 0..count {
                visit(from, to);
                from += from_step;
                to += to_step;
            }
            if step(&mut at, &first, &last).is_none() {
                return;
            }
        }
    }
}

fn steps(shape: &[u64], size: usize) -> SmallVec<[usize; 6]> {
    let mut steps: SmallVec<[usize; 6]> = SmallVec::from_elem(size, shape.len());
    for axis in (1..shape.len()).rev() {
        steps[axis - 1] = steps[axis].saturating_mul(shape[axis] as usize);
    }
    steps
}

/// Copies a run of constant length, so that short runs need no call of `memcpy`.
fn copy_fixed<const N: usize>(from: &[u8], a: usize, to: &mut [u8], b: usize) {
    to[b..b + N].copy_from_slice(&from[a..a + N]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shapes() -> impl Strategy<Value = (Vec<u64>, Vec<usize>)> {
        (1usize..5).prop_flat_map(|rank| {
            let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
            (prop::collection::vec(1u64..5, rank), order)
        })
    }

    /// Returns the elements of a permuted array in order, each by its number in the original array.
    fn transposed(shape: &[u64], order: &[usize]) -> Vec<u64> {
        let permuted: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
        let (whole, mut at) = (Region::whole(&permuted), vec![0; order.len()]);
        let mut numbers = Vec::new();
        loop {
            let mut place = vec![0; order.len()];
            order
                .iter()
                .zip(&at)
                .for_each(|(&axis, &index)| place[axis] = index);
            let number = place
                .iter()
                .zip(shape)
                .fold(0, |number, (&index, &length)| number * length + index);
            numbers.push(number);
            if !whole.step(&mut at) {
                return numbers;
            }
        }
    }

    #[test]
    fn the_span_reaches_from_the_first_to_the_last_run() {
        let part = Region {
            start: [1, 1].as_slice().into(),
            shape: [2, 3].as_slice().into(),
        };
        let layout = |shape| Layout {
            start: &[0, 0],
            shape,
            skipped: 0,
        };
        let runs = Runs::new(&part, layout(&[4, 5]), layout(&[3, 4]), 2);
        assert_eq!((runs.span(), runs.bytes()), (12..28, 12));
        let whole = Runs::new(&Region::whole(&[4, 5]), layout(&[4, 5]), layout(&[4, 5]), 2);
        assert_eq!((whole.span(), whole.bytes()), (0..40, 40));
    }

    proptest! {
        #[test]
        fn permuted_runs_transpose_an_array((shape, order) in shapes(), size in 1usize..5, cut in 0u64..3) {
            let whole = Region::whole(&shape);
            let permuted: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
            let count = shape.iter().product::<u64>() as usize;
            let bytes: Vec<u8> = (0..count * size).map(|place| (place % 251) as u8).collect();
            let numbers = transposed(&shape, &order);
            let from = Layout { start: &whole.start, shape: &shape, skipped: 0 };
            let to = Layout { start: &whole.start, shape: &permuted, skipped: 0 };
            let mut out = vec![0xff; count * size];
            // Copy two boxes that make up the whole array.
            let cut = cut.min(shape[0]);
            for rows in [0..cut, cut..shape[0]] {
                let mut part = whole.clone();
                (part.start[0], part.shape[0]) = (rows.start, rows.end - rows.start);
                if part.shape[0] > 0 {
                    Runs::permuted(&part, from, to, &order, size).copy(&bytes, &mut out);
                }
            }
            let expected: Vec<u8> = numbers
                .iter()
                .flat_map(|&number| bytes[number as usize * size..][..size].to_vec())
                .collect();
            prop_assert_eq!(out, expected);
        }
    }
}
