//! Pads the elements of a chunk at the edge of an array to a whole chunk.
//!
//! In C order the elements inside the array are a subsequence of those of the whole chunk, so a range of the whole
//! chunk has one range of the elements inside.

use std::ops::Range;

use zarr_format::error::{Error, Result};
use zarr_format::grid::{Coordinates, Region};

/// The elements of a chunk inside the array, and those beyond its edge.
pub(super) struct Padding {
    /// Elements inside along each dimension.
    inside: Coordinates,
    /// Elements of the whole chunk along each dimension.
    whole: Box<[u64]>,
    /// The element beyond the edge, without the length prefix if elements have no fixed length.
    fill: Vec<u8>,
}

impl Padding {
    /// Pads the elements of `region` to a chunk of shape `whole`; returns `None` if they are a whole chunk.
    pub(super) fn new(region: &Region, whole: &[u64], fill: &[u8]) -> Option<Padding> {
        (*region.shape != *whole).then(|| Padding {
            inside: region.shape.clone(),
            whole: whole.into(),
            fill: fill.to_vec(),
        })
    }

    /// Returns how many of the first `count` elements of the whole chunk are inside.
    fn inside_before(&self, count: u64) -> u64 {
        let mut rest = count;
        let mut inside = 0;
        for axis in 0..self.whole.len() {
            let (whole_row, inside_row) = (
                self.whole[axis + 1..].iter().product::<u64>(),
                self.inside[axis + 1..].iter().product::<u64>(),
            );
            let index = rest / whole_row.max(1);
            rest %= whole_row.max(1);
            inside += index.min(self.inside[axis]) * inside_row;
            if index >= self.inside[axis] {
                return inside;
            }
        }
        inside
    }

    /// Returns the range of the elements inside that are in a range of the whole chunk.
    pub(super) fn inside_of(&self, range: &Range<u64>) -> Range<u64> {
        self.inside_before(range.start)..self.inside_before(range.end)
    }

    /// Calls `put` with each run of elements of a range of the whole chunk, in order: with `Some(count)` for elements
    /// inside, in their order, and with `None` and a count for elements beyond the edge.
    fn runs(&self, range: &Range<u64>, mut put: impl FnMut(bool, u64) -> Result<()>) -> Result<()> {
        let row = self.whole.last().copied().unwrap_or(1).max(1);
        let columns = self.inside.last().copied().unwrap_or(1);
        let mut at = range.start;
        while at < range.end {
            let (first, column) = (at - at % row, at % row);
            let end = (first + row).min(range.end);
            let has_row = self.inside_before(first + row) > self.inside_before(first);
            let edge = if has_row { first + columns } else { first };
            if column < columns && has_row {
                put(true, edge.min(end) - at)?;
            }
            let beyond = at.max(edge);
            if beyond < end {
                put(false, end - beyond)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Returns the elements of a range of the whole chunk, from the elements inside that are in it.
    pub(super) fn padded(&self, range: &Range<u64>, inside: &[u8]) -> Result<Vec<u8>> {
        let size = self.fill.len();
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(length.saturating_mul(size));
        let mut rest = inside;
        self.runs(range, |is_inside, count| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if is_inside {
                let (run, after) = rest
                    .split_at_checked(count.saturating_mul(size))
                    .ok_or_else(|| {
                        Error::invalid(
                            "chunk",
                            "the chunk has fewer elements than the shape requires",
                        )
                    })?;
                bytes.extend_from_slice(run);
                rest = after;
            } else if self.fill.iter().all(|&byte| byte == 0) {
                bytes.resize(bytes.len() + count * size, 0);
            } else {
                (0..count).for_each(|_| bytes.extend_from_slice(&self.fill));
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `put` with each element of the whole chunk, from those inside; elements have no fixed length.
    pub(super) fn each<'a>(
        &'a self,
        mut inside: impl Iterator<Item = &'a [u8]>,
        mut put: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let all = 0..self.whole.iter().product();
        self.runs(&all, |is_inside, count| {
            for _ in 0..count {
                let element = if is_inside { inside.next() } else { None };
                put(element.unwrap_or(&self.fill))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn boxes() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0_u64..4, 1_u64..5), 0..4).prop_map(|axes| {
            axes.into_iter()
                .map(|(inside, more)| (inside, inside + more - 1))
                .map(|(inside, whole)| (inside, whole.max(1)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn each_range_is_that_of_the_whole_padded_chunk(axes in boxes(), part in (0_u64..300, 0_u64..300)) {
            let inside: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            let whole: Vec<u64> = axes.iter().map(|axis| axis.1).collect();
            let region = Region { start: Coordinates::from_elem(0, axes.len()), shape: inside.as_slice().into() };
            let Some(padding) = Padding::new(&region, &whole, &[7, 8]) else { return Ok(()) };
            let (mut all, mut elements, mut number) = (Vec::new(), Vec::new(), 0_u16);
            let count: u64 = whole.iter().product();
            for place in 0..count {
                let mut rest = place;
                let mut is_inside = true;
                for axis in (0..whole.len()).rev() {
                    is_inside &= rest % whole[axis] < inside[axis];
                    rest /= whole[axis];
                }
                if is_inside {
                    number += 1000;
                    elements.extend(number.to_le_bytes());
                }
                all.extend(if is_inside { number.to_le_bytes() } else { [7, 8] });
            }
            let (start, end) = (part.0.min(part.1).min(count), part.0.max(part.1).min(count));
            let within = padding.inside_of(&(start..end));
            let bytes = |range: Range<u64>| range.start as usize * 2..range.end as usize * 2;
            let padded = padding.padded(&(start..end), &elements[bytes(within)]).unwrap();
            prop_assert_eq!(&padded, &all[bytes(start..end)]);
        }
    }
}
