//! Splits a range of a C-order sequence into boxes of elements.
//!
//! The boxes are in order, do not overlap and cover the range exactly.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Coordinates, Region};

/// Splits a range of elements of a C-order sequence of the given shape into at most 2 * rank - 1 boxes, in order. The
/// range must be inside the shape.
pub fn boxes(shape: &[u64], range: Range<u64>) -> Vec<Region> {
    let mut found = Vec::new();
    if range.start < range.end {
        cut(shape, range, &mut Coordinates::new(), &mut found);
    }
    found
}

/// Splits along the first axis of `shape`; `outer` holds the coordinates of the dimensions before it.
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

/// Returns the box of a range of whole rows.
fn rows(inner: &[u64], rows: Range<u64>, outer: &[u64]) -> Region {
    let mut start = Coordinates::from_slice(outer);
    let mut shape = Coordinates::from_elem(1, outer.len());
    start.push(rows.start);
    shape.push(rows.end - rows.start);
    start.extend(inner.iter().map(|_| 0));
    shape.extend_from_slice(inner);
    Region { start, shape }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns every element of a box in C order.
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
        fn boxes_are_the_range(shape in prop::collection::vec(1u64..6, 0..5), a in 0u64..4000, b in 0u64..4000) {
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
