//! Computes with boxes of elements: intersects them, steps through them, splits ranges into boxes.

use std::ops::Range;

use smallvec::SmallVec;

/// Indices or lengths, one for each dimension. Up to six dimensions need no allocation, since every read of a file
/// computes several `Coordinates`.
pub type Coordinates = SmallVec<[u64; 6]>;

/// A box of elements: `start[i] .. start[i] + shape[i]` along each dimension.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    /// First element of the box.
    pub start: Coordinates,
    /// Lengths of the box along each dimension, in elements.
    pub shape: Coordinates,
}

// A derived `Clone` would copy the numbers one by one; reads of small chunks clone thousands of boxes.
impl Clone for Region {
    fn clone(&self) -> Region {
        Region {
            start: SmallVec::from_slice(&self.start),
            shape: SmallVec::from_slice(&self.shape),
        }
    }
}

impl Region {
    /// Returns the box of a whole array.
    pub fn whole(shape: &[u64]) -> Region {
        Region {
            start: SmallVec::from_elem(0, shape.len()),
            shape: shape.into(),
        }
    }

    /// Moves `at` to the next element of the box in C order. Returns false after the last element.
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

    /// Returns the intersection of two boxes.
    pub fn overlap(&self, other: &Region) -> Region {
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

/// Splits a range of elements, numbered in C order of `shape`, into at most 2 * rank - 1 boxes. The boxes are in order,
/// do not overlap and cover the range exactly. The range must be inside the shape.
pub fn boxes(shape: &[u64], range: Range<u64>) -> Vec<Region> {
    let mut splitter = BoxSplitter::default();
    if range.start < range.end {
        splitter.split(shape, range);
    }
    splitter.boxes
}

#[derive(Default)]
struct BoxSplitter {
    outer: Coordinates,
    boxes: Vec<Region>,
}

impl BoxSplitter {
    /// Splits a range of elements, numbered in C order of `shape`, along the first dimension of `shape`.
    fn split(&mut self, shape: &[u64], range: Range<u64>) {
        let Some((_, inner)) = shape.split_first() else {
            self.boxes.push(Region {
                start: self.outer.clone(),
                shape: SmallVec::from_elem(1, self.outer.len()),
            });
            return;
        };
        let row: u64 = inner.iter().product();
        let (first, last) = (range.start / row, (range.end - 1) / row);
        let (head, tail) = (range.start % row, (range.end - 1) % row + 1);
        if first == last && (head > 0 || tail < row) {
            return self.split_row(inner, first, head..tail);
        }
        if head > 0 {
            self.split_row(inner, first, head..row);
        }
        let whole = first + u64::from(head > 0)..last + u64::from(tail == row);
        if whole.start < whole.end {
            self.add_rows(inner, whole);
        }
        if tail < row {
            self.split_row(inner, last, 0..tail);
        }
    }

    fn split_row(&mut self, inner: &[u64], row: u64, range: Range<u64>) {
        self.outer.push(row);
        self.split(inner, range);
        self.outer.pop();
    }

    /// Adds a box for a range of indices along the first dimension and all elements of the `inner` dimensions.
    fn add_rows(&mut self, inner: &[u64], rows: Range<u64>) {
        let mut start = self.outer.clone();
        let mut shape = Coordinates::from_elem(1, self.outer.len());
        start.push(rows.start);
        shape.push(rows.end - rows.start);
        start.extend(inner.iter().map(|_| 0));
        shape.extend_from_slice(inner);
        self.boxes.push(Region { start, shape });
    }
}

/// Permutes coordinates: item `i` of the result is the coordinate of dimension `order[i]`.
pub fn permuted(coordinates: &[u64], order: &[usize]) -> Coordinates {
    let at = |&axis: &usize| coordinates.get(axis).copied().unwrap_or(0);
    order.iter().map(at).collect()
}

/// Moves `at` to the next indices in C order between `first` and `last`. Returns the outermost dimension whose index
/// changed, or `None` after the last indices.
pub(super) fn step(at: &mut [u64], first: &[u64], last: &[u64]) -> Option<usize> {
    for axis in (0..at.len()).rev() {
        if at[axis] < last[axis] {
            at[axis] += 1;
            return Some(axis);
        }
        at[axis] = first[axis];
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn boxes_cover_exactly_the_range_of_elements(shape in prop::collection::vec(1u64..6, 0..5), a in 0u64..4000, b in 0u64..4000) {
            let total: u64 = shape.iter().product();
            let (a, b) = (a % (total + 1), b % (total + 1));
            let range = a.min(b)..a.max(b);
            let parts = boxes(&shape, range.clone());
            prop_assert!(parts.len() < 2 * shape.len().max(1));
            let found: Vec<_> = parts.iter().flat_map(elements).collect();
            let all = elements(&Region::whole(&shape));
            prop_assert_eq!(&found[..], &all[range.start as usize..range.end as usize]);
        }
    }
}
