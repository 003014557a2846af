//! Copies a C-order array into another order of its dimensions, fast.
//!
//! Dimensions that remain neighbours are merged first, and bytes that are contiguous on both sides become one long
//! element. The result is a stack of planes. Each is transposed in tiles of a cache line, since a read or write of one
//! element with a large stride takes a whole cache line. Nothing is allocated: the caller passes buffers of exactly
//! `length()` bytes. `transpose.rs` interprets the configuration.

/// One dimension of the target, with its strides in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StridedDimension {
    length: usize,
    source_stride: usize,
    target_stride: usize,
}

/// A prepared permutation of dimensions.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    /// Length in bytes of a block that remains contiguous.
    element: usize,
    length: usize,
    /// All dimensions except the two of the plane, the slowest first.
    outer: Vec<StridedDimension>,
    plane: Option<Plane>,
}

/// Two dimensions: `column` is contiguous in the target, `row` in the source.
#[derive(Clone, Copy, Debug)]
struct Plane {
    column: StridedDimension,
    row: StridedDimension,
}

impl Permutation {
    /// Prepares the permutation of an array of shape `source` to one whose dimension `d` is dimension `axes[d]` of the
    /// source. Returns `None` if `axes` is not a permutation or the length in bytes does not fit `usize`.
    pub(super) fn new(source: &[u64], axes: &[usize], element: usize) -> Option<Permutation> {
        let from = strides(source.iter().copied(), element)?;
        let target: Option<Vec<u64>> = axes.iter().map(|&axis| source.get(axis).copied()).collect();
        let to = strides(target?.into_iter(), element)?;
        let mut used = vec![false; source.len()];
        axes.iter().for_each(|&axis| used[axis] = true);
        if axes.len() != source.len() || used.contains(&false) {
            return None;
        }
        let length = from
            .first()
            .map_or(Some(element), |first| first.0.checked_mul(first.1))?;
        let dimensions = axes.iter().zip(&to);
        let dimensions = dimensions.map(|(&axis, &(length, to))| StridedDimension {
            length,
            source_stride: from[axis].1,
            target_stride: to,
        });
        Some(Permutation::simplify(dimensions.collect(), element, length))
    }

    /// Merges dimensions that remain neighbours, and dimensions that remain contiguous with the element.
    fn simplify(
        dimensions: Vec<StridedDimension>,
        mut element: usize,
        length: usize,
    ) -> Permutation {
        let mut merged: Vec<StridedDimension> = Vec::new();
        for next in dimensions
            .into_iter()
            .filter(|dimension| dimension.length != 1)
        {
            match merged.last_mut() {
                Some(last) if last.source_stride == next.source_stride * next.length => {
                    *last = StridedDimension {
                        length: last.length * next.length,
                        ..next
                    };
                }
                _ => merged.push(next),
            }
        }
        if let Some(last) = merged.pop_if(|last| last.source_stride == element) {
            element *= last.length;
        }
        let row = merged
            .iter()
            .position(|dimension| dimension.source_stride == element);
        let plane = match (row, merged.pop()) {
            (Some(row), Some(column)) if length > 0 => Some(Plane {
                column,
                row: merged.remove(row),
            }),
            _ => None,
        };
        Permutation {
            element,
            length,
            outer: merged,
            plane,
        }
    }

    /// Returns the length of the source in bytes; the target has the same length.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether the order of bytes does not change.
    pub(super) fn is_identity(&self) -> bool {
        self.plane.is_none()
    }

    /// Copies `source` into `target`; both are `length()` bytes long.
    pub(super) fn apply(&self, source: &[u8], target: &mut [u8]) {
        debug_assert!(source.len() == self.length && target.len() == self.length);
        match self.plane {
            None => target.copy_from_slice(source),
            Some(plane) => self.for_each_plane(0, 0, 0, &mut |from, to| {
                self.transpose(plane, &source[from..], &mut target[to..]);
            }),
        }
    }

    /// Calls `visit` with the offsets of each plane in source and target.
    fn for_each_plane(
        &self,
        depth: usize,
        from: usize,
        to: usize,
        visit: &mut impl FnMut(usize, usize),
    ) {
        let Some(dimension) = self.outer.get(depth) else {
            return visit(from, to);
        };
        for index in 0..dimension.length {
            let from = from + index * dimension.source_stride;
            self.for_each_plane(depth + 1, from, to + index * dimension.target_stride, visit);
        }
    }

    /// Transposes one plane. The second constant is the side of a tile: the number of elements in a cache line.
    fn transpose(&self, plane: Plane, source: &[u8], target: &mut [u8]) {
        match self.element {
            1 => plane.transpose::<1, 32>(source, target),
            2 => plane.transpose::<2, 32>(source, target),
            4 => plane.transpose::<4, 16>(source, target),
            8 => plane.transpose::<8, 8>(source, target),
            16 => plane.transpose::<16, 4>(source, target),
            element => plane.transpose_long(element, source, target),
        }
    }
}

impl Plane {
    fn transpose<const W: usize, const T: usize>(&self, source: &[u8], target: &mut [u8]) {
        for row in (0..self.row.length).step_by(T) {
            for column in (0..self.column.length).step_by(T) {
                let from = column * self.column.source_stride + row * W;
                let to = row * self.row.target_stride + column * W;
                let rows = T.min(self.row.length - row);
                let columns = T.min(self.column.length - column);
                let source = &source[from..];
                let target = &mut target[to..];
                if rows == T && columns == T {
                    self.transpose_tile::<W, T>(source, target);
                } else {
                    self.transpose_edge::<W>(rows, columns, source, target);
                }
            }
        }
    }

    /// Transposes a whole tile via a copy on the stack, so that only whole cache lines are read and written.
    fn transpose_tile<const W: usize, const T: usize>(&self, source: &[u8], target: &mut [u8]) {
        let mut tile = [[[0; W]; T]; T];
        for (column, line) in tile.iter_mut().enumerate() {
            let from = column * self.column.source_stride;
            line.copy_from_slice(source[from..from + T * W].as_chunks::<W>().0);
        }
        for row in 0..T {
            let to = row * self.row.target_stride;
            let line = target[to..to + T * W].as_chunks_mut::<W>().0;
            for (element, column) in line.iter_mut().zip(&tile) {
                *element = column[row];
            }
        }
    }

    /// Transposes a partial tile at the edge of the plane.
    fn transpose_edge<const W: usize>(
        &self,
        rows: usize,
        columns: usize,
        source: &[u8],
        target: &mut [u8],
    ) {
        for row in 0..rows {
            let to = row * self.row.target_stride;
            let line = target[to..to + columns * W].as_chunks_mut::<W>().0;
            let mut from = row * W;
            for element in line {
                element.copy_from_slice(&source[from..from + W]);
                from += self.column.source_stride;
            }
        }
    }

    /// Transposes long elements one by one: each fills whole cache lines.
    fn transpose_long(&self, element: usize, source: &[u8], target: &mut [u8]) {
        for row in 0..self.row.length {
            for column in 0..self.column.length {
                let from = column * self.column.source_stride + row * element;
                let to = row * self.row.target_stride + column * element;
                target[to..to + element].copy_from_slice(&source[from..from + element]);
            }
        }
    }
}

/// Returns the length and the stride in bytes of each dimension, in C order.
fn strides(
    shape: impl DoubleEndedIterator<Item = u64>,
    element: usize,
) -> Option<Vec<(usize, usize)>> {
    let mut distance = element;
    let mut strides = Vec::new();
    for length in shape.rev() {
        let length = usize::try_from(length).ok()?;
        strides.push((length, distance));
        distance = distance.checked_mul(length)?;
    }
    strides.reverse();
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::tests::sample;
    use proptest::prelude::*;

    /// Permutes one element after the other, by the definition.
    fn slowly(source: &[u8], shape: &[u64], axes: &[usize], element: usize) -> Vec<u8> {
        let from = strides(shape.iter().copied(), element).unwrap();
        let target: Vec<u64> = axes.iter().map(|&axis| shape[axis]).collect();
        let mut out = Vec::new();
        for n in 0..target.iter().product() {
            let mut rest = n;
            let mut place = 0;
            for (&axis, &length) in axes.iter().zip(&target).rev() {
                place += (rest % length) as usize * from[axis].1;
                rest /= length;
            }
            out.extend_from_slice(&source[place..place + element]);
        }
        out
    }

    fn quickly(source: &[u8], shape: &[u64], axes: &[usize], element: usize) -> Vec<u8> {
        let permutation = Permutation::new(shape, axes, element).unwrap();
        let mut out = vec![0; permutation.length()];
        permutation.apply(source, &mut out);
        out
    }

    proptest! {
        #[test]
        fn as_the_definition_says(
            (shape, axes) in prop::collection::vec(1..7_u64, 0..6).prop_flat_map(|shape| {
                let axes: Vec<usize> = (0..shape.len()).collect();
                (Just(shape), Just(axes).prop_shuffle())
            }),
            element in prop::sample::select(vec![1_usize, 2, 3, 4, 8, 12, 16, 20]),
        ) {
            let source = sample(shape.iter().product::<u64>() as usize * element);
            prop_assert_eq!(quickly(&source, &shape, &axes, element), slowly(&source, &shape, &axes, element));
        }

        #[test]
        fn planes_larger_than_a_tile(
            shape in prop::array::uniform3(1..80_u64),
            axes in Just(vec![0_usize, 1, 2]).prop_shuffle(),
            element in prop::sample::select(vec![1_usize, 2, 4, 8, 16]),
        ) {
            let source = sample(shape.iter().product::<u64>() as usize * element);
            prop_assert_eq!(quickly(&source, &shape, &axes, element), slowly(&source, &shape, &axes, element));
        }
    }

    #[test]
    fn neighbours_that_stay_together_are_merged() {
        let permutation = Permutation::new(&[10, 20, 3, 4], &[1, 0, 2, 3], 2).unwrap();
        assert_eq!(permutation.element, 24);
        assert!(permutation.outer.is_empty());
        assert!(
            Permutation::new(&[5, 1, 7, 1], &[3, 0, 1, 2], 4)
                .unwrap()
                .is_identity()
        );
        assert!(Permutation::new(&[], &[], 4).unwrap().is_identity());
    }

    #[test]
    fn what_is_no_permutation_is_refused() {
        assert!(Permutation::new(&[2, 3], &[0, 0], 1).is_none());
        assert!(Permutation::new(&[2, 3], &[0, 2], 1).is_none());
        assert!(Permutation::new(&[2, 3], &[0], 1).is_none());
        assert!(Permutation::new(&[1 << 40, 1 << 40], &[1, 0], 1).is_none());
    }
}
