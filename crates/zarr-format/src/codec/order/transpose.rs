//! Codec `transpose`: permutes the dimensions of a chunk (including `F` of v2).
//!
//! Dimension `i` of the encoded array is dimension `order[i]` of the decoded one. An order that moves no byte copies
//! nothing. For elements without a fixed length, their offsets are permuted, and the elements are then copied by
//! offset.

use std::borrow::Cow;

use serde_json::Value;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::records;
use crate::codec::traits::{ArrayRepr, ArrayToArray, ChainPosition, Codec, Data, Length};
use crate::error::Result;

/// Codec `transpose`: the permutations of dimensions for encoding and for decoding.
#[derive(Debug)]
struct Transpose {
    repr: ArrayRepr,
    encode: Permutation,
    decode: Permutation,
}

/// Builds codec `transpose` (specification, "Configuration parameters"; before ZEP 1 also `C` and `F`).
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let rank = position.repr.shape.len();
    let order = order(config, rank)?;
    let wrong = || config.unexpected("order", format!("a permutation of the {rank} dimensions"));
    let mut inverse = vec![0; rank];
    for (n, &axis) in order.iter().enumerate() {
        *inverse.get_mut(axis).ok_or_else(wrong)? = n;
    }
    let element = if position.repr.data_type.is_variable() {
        OFFSET_BYTES
    } else {
        position.repr.element_size()?
    };
    let encode = Permutation::new(&position.repr.shape, &order, element).ok_or_else(wrong)?;
    let shape: Vec<u64> = order
        .iter()
        .map(|&axis| position.repr.shape[axis])
        .collect();
    let decode = Permutation::new(&shape, &inverse, element).ok_or_else(wrong)?;
    let repr = ArrayRepr {
        shape,
        ..position.repr.clone()
    };
    Ok(Codec::ArrayToArray(Box::new(Transpose {
        repr,
        encode,
        decode,
    })))
}

/// Returns the configured order of dimensions as a list, which may not be a permutation.
fn order(config: Configuration<'_>, rank: usize) -> Result<Vec<usize>> {
    match config.get("order").and_then(Value::as_str) {
        Some("C") => Ok((0..rank).collect()),
        Some("F") => Ok((0..rank).rev().collect()),
        _ => {
            let order = config.integers("order")?;
            Ok(order
                .into_iter()
                .map(|axis| usize::try_from(axis).unwrap_or(usize::MAX))
                .collect())
        }
    }
}

/// Size in bytes of an offset, which stands for an element without a fixed length.
const OFFSET_BYTES: usize = size_of::<usize>();

/// Permutes elements without a fixed length: permutes their offsets, then copies the elements.
fn apply_variable<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    if permutation.is_identity() {
        return Ok(data);
    }
    let mut offsets = Vec::with_capacity(permutation.length());
    let mut offset = 0_usize;
    for record in records::split(&data, (permutation.length() / OFFSET_BYTES) as u64)? {
        offsets.extend(offset.to_ne_bytes());
        offset += record.len();
    }
    let mut moved = vec![0; offsets.len()];
    permutation.apply(&offsets, &mut moved);
    let mut out = Vec::with_capacity(data.len());
    for offset in moved.as_chunks::<OFFSET_BYTES>().0 {
        let rest = data.get(usize::from_ne_bytes(*offset)..);
        let record = rest.and_then(records::split_first);
        out.extend_from_slice(record.map_or(&[], |(record, _)| record));
    }
    Ok(Cow::Owned(out))
}

fn apply<'a>(permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
    Length::Exact(permutation.length()).check("transpose", data.len())?;
    if permutation.is_identity() {
        return Ok(data);
    }
    let mut out = buffer::of_length(data.len());
    permutation.apply(&data, &mut out);
    if let Cow::Owned(data) = data {
        buffer::recycle(data);
    }
    Ok(Cow::Owned(out))
}

impl Transpose {
    fn permute<'a>(&self, permutation: &Permutation, data: Data<'a>) -> Result<Data<'a>> {
        if self.repr.data_type.is_variable() {
            apply_variable(permutation, data)
        } else {
            apply(permutation, data)
        }
    }
}

impl ArrayToArray for Transpose {
    fn encoded_repr(&self) -> &ArrayRepr {
        &self.repr
    }

    fn is_identity(&self) -> bool {
        self.encode.is_identity()
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.permute(&self.decode, encoded)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        self.permute(&self.encode, decoded)
    }
}

/// A dimension with its strides in bytes, in the source and the target of a permutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StridedDimension {
    length: usize,
    source_stride: usize,
    target_stride: usize,
}

/// A permutation of dimensions, prepared so that it copies a C-order array fast.
///
/// Dimensions that remain neighbours are merged first, and bytes that are contiguous on both sides become one long
/// element. What remains is a set of planes (two dimensions each). A plane is transposed in square tiles, one cache
/// line wide, since a read or write of one element with a large stride takes a whole cache line. Nothing is allocated:
/// the caller passes buffers of exactly `length()` bytes.
#[derive(Clone, Debug)]
struct Permutation {
    /// Length in bytes of a block that is contiguous in source and target.
    element: usize,
    length: usize,
    /// All dimensions except the two that are transposed, the slowest first.
    outer: Vec<StridedDimension>,
    plane: Option<Plane>,
}

/// The two dimensions that are transposed: `column` is contiguous in the target, `row` in the source.
#[derive(Clone, Copy, Debug)]
struct Plane {
    column: StridedDimension,
    row: StridedDimension,
}

impl Permutation {
    /// Prepares a permutation of an array of shape `source`. Dimension `d` of the target is dimension `axes[d]` of the
    /// source. Returns `None` if `axes` is not a permutation or the length in bytes does not fit `usize`.
    fn new(source: &[u64], axes: &[usize], element: usize) -> Option<Permutation> {
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

    /// Merges neighbouring dimensions that the permutation does not separate. Dimensions contiguous in source and
    /// target become part of the element.
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

    /// Returns the length in bytes of the array that is permuted.
    fn length(&self) -> usize {
        self.length
    }

    fn is_identity(&self) -> bool {
        self.plane.is_none()
    }

    fn apply(&self, source: &[u8], target: &mut [u8]) {
        debug_assert!(source.len() == self.length && target.len() == self.length);
        match self.plane {
            None => target.copy_from_slice(source),
            Some(plane) => self.for_each_plane(0, 0, 0, &mut |from, to| {
                self.transpose(plane, &source[from..], &mut target[to..]);
            }),
        }
    }

    /// Calls `visit` with the offset of each plane (two dimensions) in the source and in the target.
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

    /// Transposes a two-dimensional plane. The second constant is the side of a tile: as many elements as fit a cache
    /// line, at most 32.
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

    /// Transposes a whole tile via a copy on the stack, so that memory is read and written by whole cache lines.
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

    /// Transposes a partial tile at the edge of a two-dimensional plane.
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

    /// Transposes a two-dimensional plane of long elements one by one: each element fills whole cache lines.
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
    use crate::codec::Pipeline;
    use crate::codec::tests::{pipeline, sample};
    use crate::error::Kind;
    use proptest::prelude::*;
    use serde_json::json;

    fn transpose(shape: &[u64], order: Value) -> Result<Pipeline> {
        let transpose = json!({ "name": "transpose", "configuration": { "order": order } });
        pipeline("uint8", shape, json!([transpose, "bytes"]))
    }

    #[test]
    fn f_order_transposes_a_matrix() {
        for order in [json!("F"), json!([1, 0])] {
            let pipeline = transpose(&[2, 3], order).unwrap();
            assert!(!pipeline.is_identity());
            assert_eq!(
                pipeline.decode(vec![1, 4, 2, 5, 3, 6]).unwrap(),
                [1, 2, 3, 4, 5, 6]
            );
            assert_eq!(
                pipeline.encode(&[1, 2, 3, 4, 5, 6]).unwrap(),
                [1, 4, 2, 5, 3, 6]
            );
        }
    }

    #[test]
    fn elements_of_variable_length_are_transposed_whole() {
        let transpose = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
        let pipeline = pipeline("string", &[2, 2], json!([transpose, "vlen-utf8"])).unwrap();
        let stored = b"\x04\0\0\0\x01\0\0\0a\x02\0\0\0bc\0\0\0\0\x01\0\0\0d";
        let decoded = b"\x01\0\0\0a\0\0\0\0\x02\0\0\0bc\x01\0\0\0d";
        assert_eq!(pipeline.decode(stored.to_vec()).unwrap(), decoded);
        assert_eq!(pipeline.encode(decoded).unwrap(), stored);
        for wrong in [&decoded[..5], &[decoded.as_slice(), &[0; 4]].concat()] {
            assert!(pipeline.encode(wrong).is_err());
        }
    }

    #[test]
    fn decode_applies_the_inverse_of_the_order() {
        // `B[k, i, j] = A[i, j, k]`: the shape [1, 2, 3] is encoded as [3, 1, 2].
        let pipeline = transpose(&[1, 2, 3], json!([2, 0, 1])).unwrap();
        assert_eq!(
            pipeline.encode(&[1, 2, 3, 4, 5, 6]).unwrap(),
            [1, 4, 2, 5, 3, 6]
        );
        assert_eq!(
            pipeline.decode(vec![1, 4, 2, 5, 3, 6]).unwrap(),
            [1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn orders_that_move_nothing_are_identity() {
        assert!(transpose(&[2, 3], json!("C")).unwrap().is_identity());
        assert!(transpose(&[1, 3], json!("F")).unwrap().is_identity());
        assert!(transpose(&[], json!([])).unwrap().is_identity());
        assert!(transpose(&[], json!("F")).unwrap().is_identity());
    }

    #[test]
    fn an_invalid_order_is_corrupt() {
        for order in [
            json!([0, 0]),
            json!([0]),
            json!([0, 2]),
            json!([0, 1, 2]),
            json!("G"),
            json!([-1, 0]),
            json!(null),
        ] {
            let error = transpose(&[2, 3], order).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().contains("order"), "{error}");
        }
    }

    /// Permutes the elements one by one, as `transpose` is defined, to check the fast permutation.
    fn directly(source: &[u8], shape: &[u64], axes: &[usize], element: usize) -> Vec<u8> {
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

    fn permuted(source: &[u8], shape: &[u64], axes: &[usize], element: usize) -> Vec<u8> {
        let permutation = Permutation::new(shape, axes, element).unwrap();
        let mut out = vec![0; permutation.length()];
        permutation.apply(source, &mut out);
        out
    }

    proptest! {
        #[test]
        fn permutations_follow_the_definition(
            (shape, axes) in prop::collection::vec(1..7_u64, 0..6).prop_flat_map(|shape| {
                let axes: Vec<usize> = (0..shape.len()).collect();
                (Just(shape), Just(axes).prop_shuffle())
            }),
            element in prop::sample::select(vec![1_usize, 2, 3, 4, 8, 12, 16, 20]),
        ) {
            let source = sample(shape.iter().product::<u64>() as usize * element);
            prop_assert_eq!(permuted(&source, &shape, &axes, element), directly(&source, &shape, &axes, element));
        }

        #[test]
        fn permutations_of_large_planes_follow_the_definition(
            shape in prop::array::uniform3(1..80_u64),
            axes in Just(vec![0_usize, 1, 2]).prop_shuffle(),
            element in prop::sample::select(vec![1_usize, 2, 4, 8, 16]),
        ) {
            let source = sample(shape.iter().product::<u64>() as usize * element);
            prop_assert_eq!(permuted(&source, &shape, &axes, element), directly(&source, &shape, &axes, element));
        }
    }

    #[test]
    fn adjacent_axes_that_stay_together_are_merged() {
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
    fn an_invalid_permutation_is_refused() {
        assert!(Permutation::new(&[2, 3], &[0, 0], 1).is_none());
        assert!(Permutation::new(&[2, 3], &[0, 2], 1).is_none());
        assert!(Permutation::new(&[2, 3], &[0], 1).is_none());
        assert!(Permutation::new(&[1 << 40, 1 << 40], &[1, 0], 1).is_none());
    }
}
