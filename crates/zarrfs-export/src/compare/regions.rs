//! Finds differing regions of an array, as one box per changed chunk.
//!
//! If the shapes differ, only elements inside both arrays are compared; the shapes themselves are compared with the
//! metadata. A chunk that neither state stores has the fill value in both states. If the fill values are equal, such a
//! chunk is skipped.
//!
//! Elements of data types of the same kind are compared by value: 5 equals 5 in an `int16` and a `uint64`, in any byte
//! order; a NaN equals any NaN, and 0 equals -0; text equals text with the same characters. An integer never equals a
//! float, since programs see two data types.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::formats;
use crate::formats::group::read_all;
use crate::formats::{Export, elements};
use zarr_format::dialect::v3;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Grid, Region};
use zarr_format::model::{Array, DataType, Node};
use zarrfs_array::array::OpenArray;
use zarrfs_array::array::vlen_elements::VlenElements;
use zarrfs_store::Key;
use zarrfs_store::request_context::UNLIMITED;

/// The smallest index range (box) that contains all differing elements of a chunk, and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) start: Vec<u64>,
    pub(super) stop: Vec<u64>,
    pub(super) count: u64,
}

/// Maximum number of chunks of an array that are compared one by one, or whose keys are held in memory to find the
/// stored or changed chunks.
const MAX_CHUNKS: u64 = 1 << 22;

/// Compares the chunks of an array whose keys have changed, and adds a difference for each chunk whose elements differ.
pub(super) fn changed_regions(
    old: &Arc<OpenArray>,
    new: &Arc<OpenArray>,
    keys: &HashSet<Key>,
    list: &mut Vec<Difference>,
) -> Result<()> {
    let grid = new.stored_grid()?;
    let by_key = chunk_numbers(new.array(), grid);
    let changed = keys.iter().filter_map(|key| by_key.get(key));
    let changed: BTreeSet<u64> = changed.copied().collect();
    let pair = ArrayPair {
        old,
        new,
        by_value: false,
    };
    for number in changed {
        let region = grid.region(&grid.indices(ChunkIndex(number)));
        list.extend(pair.difference_within(&region)?);
    }
    Ok(())
}

/// Adds a difference for each chunk of the new array whose elements differ from the old array's elements at the same
/// indices. The arrays must have the same data type, or the same kind of values if `by_value`. Fails with `TooLarge` if
/// there are too many chunks to compare one by one.
pub(super) fn differing_regions(
    old: &Arc<OpenArray>,
    new: &Arc<OpenArray>,
    by_value: bool,
    list: &mut Vec<Difference>,
) -> Result<()> {
    let grid = new.stored_grid()?;
    let pair = ArrayPair { old, new, by_value };
    let compare = |number: u64| -> Result<()> {
        let region = grid.region(&grid.indices(ChunkIndex(number)));
        list.extend(pair.difference_within(&region)?);
        Ok(())
    };
    if let Some(stored) = pair.stored_in_either()? {
        return stored.into_iter().try_for_each(compare);
    }
    if grid.len() > MAX_CHUNKS {
        let text = format!("{} chunks are too many to compare", grid.len());
        return Err(Error::too_large(new.path(), text));
    }
    (0..grid.len()).try_for_each(compare)
}

struct ArrayPair<'a> {
    old: &'a Arc<OpenArray>,
    new: &'a Arc<OpenArray>,
    /// Whether elements are compared by their numeric or text value instead of byte by byte.
    by_value: bool,
}

impl ArrayPair<'_> {
    fn are_same(&self, old: &[u8], new: &[u8]) -> bool {
        if !self.by_value {
            return old == new;
        }
        let elements = [(self.old, old), (self.new, new)];
        let [old, new] = elements.map(|(array, bytes)| TypedElement {
            bytes,
            data_type: &array.array().data_type,
        });
        are_equal(old, new)
    }

    /// Returns the numbers of the new array's chunks that are stored, or that overlap a stored chunk of the old array.
    /// Returns `None` if other chunks may differ too: the fill values differ, or a store cannot list its chunks.
    fn stored_in_either(&self) -> Result<Option<BTreeSet<u64>>> {
        let (old, new) = (self.old, self.new);
        let [old_fill, new_fill] =
            [old, new].map(|array| array.array().fill_value.bytes.as_slice());
        let has_same_fill = self.are_same(old_fill, new_fill);
        if !has_same_fill || !old.can_list_chunks() || !new.can_list_chunks() {
            return Ok(None);
        }
        let (grid, old_grid) = (new.stored_grid()?, old.stored_grid()?);
        let whole = Region::whole(&new.array().shape);
        let mut numbers = BTreeSet::new();
        let mut add = |region: &Region| -> Result<()> {
            let region = region.overlap(&whole);
            grid.visit(&region, |chunk, _, _| {
                numbers.insert(chunk.0);
                (numbers.len() as u64) <= MAX_CHUNKS
            });
            if numbers.len() as u64 > MAX_CHUNKS {
                let text = format!("more than {MAX_CHUNKS} stored chunks are too many to compare");
                return Err(Error::too_large(new.path(), text));
            }
            Ok(())
        };
        for (array, grid) in [(new, &grid), (old, &old_grid)] {
            let mut stored = array.stored_chunks()?;
            while let Some(chunk) = stored.next_chunk(&UNLIMITED)? {
                add(&grid.region(&chunk.indices))?;
            }
        }
        Ok(Some(numbers))
    }

    /// Returns the difference of two arrays within a range of indices, or `None` if they are equal there. A large range
    /// is compared in parts, to limit the memory.
    fn difference_within(&self, region: &Region) -> Result<Option<Difference>> {
        let region = region.overlap(&Region::whole(&self.old.array().shape));
        if region.shape.contains(&0) {
            return Ok(None);
        }
        let arrays = [self.old, self.new].map(|array| array.array());
        let element = arrays.map(|array| array.element_size().unwrap_or(1) as u64);
        let element = element.into_iter().max().unwrap_or(1);
        let is_variable = arrays.iter().all(|array| array.data_type.is_variable());
        let mut found: Option<Difference> = None;
        let mut parts = vec![region];
        while let Some(part) = parts.pop() {
            let elements = part
                .shape
                .iter()
                .try_fold(1_u64, |all, &length| all.checked_mul(length));
            // At most 32 MiB of each state are compared at a time, to limit the memory. Variable-length elements are
            // not split, because their size is not known.
            let is_small =
                elements.is_some_and(|elements| elements.saturating_mul(element) <= 32 << 20);
            match halves(&part).filter(|_| !is_small && !is_variable) {
                Some(halves) => parts.extend(halves),
                None => found = joined(found, self.difference_of_part(&part)?),
            }
        }
        Ok(found)
    }

    /// Returns the difference of two arrays within a range of indices that fits in memory, or `None` if they are equal
    /// there.
    fn difference_of_part(&self, region: &Region) -> Result<Option<Difference>> {
        let [before, after] = [self.old, self.new].map(|array| BoxElements::read(array, region));
        let (before, after) = (before?, after?);
        let are_same = |old: &[u8], new: &[u8]| self.are_same(old, new);
        Ok(difference(
            region,
            before.iter().zip(after.iter()),
            &are_same,
        ))
    }
}

/// The elements of a range of indices, read from an array.
enum BoxElements {
    /// The bytes of fixed-length elements in C order, and the size of an element in bytes.
    Fixed(Vec<u8>, usize),
    Variable(VlenElements),
}

impl BoxElements {
    fn read(array: &Arc<OpenArray>, region: &Region) -> Result<BoxElements> {
        if array.array().data_type.is_variable() {
            return Ok(BoxElements::Variable(array.records(&UNLIMITED, region)?));
        }
        let bytes = raw(array, region)?;
        let count: u64 = region.shape.iter().product();
        let size = usize::try_from(bytes.len() as u64 / count.max(1)).unwrap_or(usize::MAX);
        Ok(BoxElements::Fixed(bytes, size.max(1)))
    }

    fn iter(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            BoxElements::Fixed(bytes, size) => Box::new(bytes.chunks(*size)),
            BoxElements::Variable(records) => Box::new(records.iter()),
        }
    }
}

/// Returns the two halves of an index range along its longest dimension, or `None` if it has one element.
fn halves(region: &Region) -> Option<[Region; 2]> {
    let (axis, &length) = region
        .shape
        .iter()
        .enumerate()
        .max_by_key(|(_, length)| **length)?;
    if length < 2 {
        return None;
    }
    let (mut one, mut other) = (region.clone(), region.clone());
    let half = length / 2;
    one.shape[axis] = half;
    other.start[axis] += half;
    other.shape[axis] = length - half;
    Some([one, other])
}

/// Joins the differences of two parts of a chunk: the result is the smallest box around both, with the sum of their
/// counts.
fn joined(one: Option<Difference>, other: Option<Difference>) -> Option<Difference> {
    let (Some(mut one), Some(other)) = (one.clone(), other.clone()) else {
        return one.or(other);
    };
    one.count += other.count;
    for (start, from) in one.start.iter_mut().zip(&other.start) {
        *start = (*start).min(*from);
    }
    for (stop, to) in one.stop.iter_mut().zip(&other.stop) {
        *stop = (*stop).max(*to);
    }
    Some(one)
}

/// Reads the fixed-length elements of a range of indices as bytes, in C order.
fn raw(array: &Arc<OpenArray>, region: &Region) -> Result<Vec<u8>> {
    let export = Export::open(&UNLIMITED, array, formats::format("raw")?, region.clone())?;
    Ok(read_all(&UNLIMITED, &export)?.to_vec())
}

/// Maps each key that a chunk of the array may have to the number of the chunk.
fn chunk_numbers(array: &Array, grid: &Grid) -> BTreeMap<Key, u64> {
    let mut numbers = BTreeMap::new();
    for number in 0..grid.len().min(MAX_CHUNKS) {
        for key in array.keys.candidates(&grid.indices(ChunkIndex(number))) {
            numbers.extend(Key::new(key).ok().map(|key| (key, number)));
        }
    }
    numbers
}

/// Returns the difference between the old and the new elements of a range of indices, both in C order; `None` if they
/// are equal.
fn difference<'a>(
    region: &Region,
    elements: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    are_same: &dyn Fn(&[u8], &[u8]) -> bool,
) -> Option<Difference> {
    let mut found: Option<Difference> = None;
    let mut at: Vec<u64> = region.start.to_vec();
    for (old, new) in elements {
        if !are_same(old, new) {
            let all = found.get_or_insert_with(|| Difference {
                start: at.clone(),
                stop: at.clone(),
                count: 0,
            });
            all.count += 1;
            for (axis, &index) in at.iter().enumerate() {
                all.start[axis] = all.start[axis].min(index);
                all.stop[axis] = all.stop[axis].max(index + 1);
            }
        }
        region.step(&mut at);
    }
    found
}

/// The value of an element, in a form in which elements of different data types can be compared.
#[derive(PartialEq)]
enum ElementValue<'a> {
    Whole(i128),
    /// The bits of a float after conversion to a double. All NaN have the same bits, and 0 and -0 have the same bits.
    Float(u64),
    Complex(u64, u64),
    /// Text or bytes without their padding, or the unchanged bytes of an element of any other data type.
    Bytes(Cow<'a, [u8]>),
}

/// Returns the kind of an array's data type, such as `integer` or `float`. Elements of different kinds are never equal.
pub(super) fn kind_of(array: &Array) -> String {
    let kind = match &array.data_type {
        DataType::Bool => "boolean",
        DataType::Int(_) | DataType::UInt(_) => "integer",
        DataType::Float(_) => "float",
        DataType::Complex(_) => "complex",
        DataType::FixedText(_) | DataType::Text | DataType::Object => "text",
        DataType::FixedBytes(_) | DataType::Bytes => "bytes",
        _ => {
            let rendered = v3::render(&Node::Array(Box::new(array.clone())));
            return rendered["data_type"].to_string();
        }
    };
    kind.to_string()
}

/// Whether two elements have equal values. Their data types must be of the same kind, such as two integers.
fn are_equal(one: TypedElement<'_>, other: TypedElement<'_>) -> bool {
    (one.data_type == other.data_type && one.bytes == other.bytes) || one.value() == other.value()
}

#[derive(Clone, Copy)]
struct TypedElement<'a> {
    bytes: &'a [u8],
    data_type: &'a DataType,
}

impl<'a> TypedElement<'a> {
    fn value(self) -> ElementValue<'a> {
        let element = self.bytes;
        match self.data_type {
            DataType::Int(_) => ElementValue::Whole(elements::integer(element, true)),
            DataType::UInt(_) => ElementValue::Whole(elements::integer(element, false)),
            DataType::Float(_) => ElementValue::Float(float(element)),
            DataType::Complex(_) => {
                let (real, imaginary) = element.split_at(element.len() / 2);
                ElementValue::Complex(float(real), float(imaginary))
            }
            DataType::FixedText(_) => {
                ElementValue::Bytes(elements::text(element).into_bytes().into())
            }
            DataType::FixedBytes(_) => ElementValue::Bytes(elements::unpadded(element).into()),
            _ => ElementValue::Bytes(element.into()),
        }
    }
}

/// Converts a float to a double and returns its bits. All NaN give the same bits, and so do 0 and -0.
fn float(element: &[u8]) -> u64 {
    match elements::float(element).unwrap_or(f64::NAN) {
        number if number.is_nan() => f64::NAN.to_bits(),
        0.0 => 0,
        number => number.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_give_the_smallest_box_around_them() {
        let region = Region {
            start: [10, 20].as_slice().into(),
            shape: [2, 3].as_slice().into(),
        };
        let before = [0u8; 12];
        let found = |after: &[u8; 12]| {
            let elements = before.chunks(2).zip(after.chunks(2));
            difference(&region, elements, &|old, new| old == new)
        };
        assert_eq!(found(&before), None);
        let mut after = before;
        (after[2], after[11]) = (1, 1);
        let found = found(&after).unwrap();
        assert_eq!(
            (found.start, found.stop, found.count),
            (vec![10, 21], vec![12, 23], 2)
        );
    }

    #[test]
    fn elements_of_one_kind_are_compared_by_value() {
        use DataType::{Bytes, Complex, FixedBytes, FixedText, Float, Int, Text, UInt};
        let text = |text: &str| -> Vec<u8> {
            text.chars()
                .flat_map(|letter| u32::from(letter).to_le_bytes())
                .collect()
        };
        let single = |number: f32| number.to_le_bytes().to_vec();
        let double = |number: f64| number.to_le_bytes().to_vec();
        let green = "gr\u{fc}n";
        for (is_equal, (bytes, one), (other_bytes, other)) in [
            (true, (vec![5], UInt(1)), (vec![5, 0, 0, 0], Int(4))),
            (true, (vec![0xfe], Int(1)), (vec![0xfe, 0xff], Int(2))),
            (true, (vec![0xff; 8], UInt(8)), (vec![0xff; 8], UInt(8))),
            (true, (single(1.5), Float(4)), (double(1.5), Float(8))),
            (
                true,
                (vec![1, 0x7c], Float(2)),
                (single(f32::NAN), Float(4)),
            ),
            (true, (double(-0.0), Float(8)), (vec![0; 4], Float(4))),
            (true, (vec![0; 8], Complex(8)), (vec![0; 16], Complex(16))),
            (
                true,
                (text("gr\u{fc}n\0\0"), FixedText(6)),
                (green.into(), Text),
            ),
            (true, (b"ab\0".into(), FixedBytes(3)), (b"ab".into(), Bytes)),
            (false, (vec![0xff], UInt(1)), (vec![0xff], Int(1))),
            (false, (vec![0xff; 8], UInt(8)), (vec![0xff; 8], Int(8))),
            (false, (single(1.1), Float(4)), (double(1.1), Float(8))),
            (
                false,
                (b"\0ab".into(), FixedBytes(3)),
                (b"ab".into(), Bytes),
            ),
        ] {
            let [first, second] = [(&bytes, &one), (&other_bytes, &other)]
                .map(|(bytes, data_type)| TypedElement { bytes, data_type });
            assert_eq!(are_equal(first, second), is_equal, "{one:?} {other:?}");
        }
    }
}
