//! An exported array: its path and metadata, and the selection of its elements.

use std::ops::Range;
use std::sync::Arc;

use crate::formats::Export;
use crate::formats::conversion::Conversion;
use crate::formats::elements;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{Region, Selection};
use zarr_format::model::{Array, DataType};
use zarrfs_array::array::OpenArray;
use zarrfs_array::array::vlen_elements::VlenElements;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes};

/// An array of a group, or of a group below it.
#[derive(Clone)]
pub struct GroupMember {
    /// The path from the group; the name if the array is in the group itself.
    pub path: String,
    /// The metadata of the exported array: its attributes, and the shape and data type of its selected elements.
    pub array: Arc<Array>,
    /// The source of its elements; `None` for a file of metadata alone.
    pub source: Option<MemberSource>,
}

/// The elements of a member of a group.
#[derive(Clone)]
pub struct MemberSource {
    /// The stored array.
    pub array: Arc<OpenArray>,
    /// The selection of elements that the file has.
    pub selection: Selection,
    /// The conversion of each decoded element before a format writes it; `None` if there is no conversion.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl MemberSource {
    /// Returns all elements of an array, as they are decoded.
    pub fn whole(array: Arc<OpenArray>) -> MemberSource {
        MemberSource {
            selection: Selection::whole(&array.array().shape),
            array,
            conversion: None,
        }
    }

    /// Reads elements without a fixed length, of all rows or of some rows.
    fn records(&self, context: &RequestContext, rows: Option<&Range<u64>>) -> Result<VlenElements> {
        let array = &self.array;
        array.check_decodable()?;
        let mut selection = self.selection.clone();
        let first = selection.axes.iter_mut().find(|axis| !axis.is_index);
        if let (Some(rows), Some(axis)) = (rows, first) {
            axis.start = axis.at(rows.start);
            axis.count = rows.end - rows.start;
        }
        let around = selection.bounds();
        let records = array.records(context, &around)?;
        if selection.region().is_some() {
            return Ok(records);
        }
        // The offset of an element is known only once all elements before it were read.
        let numbers = numbers_within(&selection, &around);
        let length = records.len() as u64 * size_of::<&[u8]>() as u64;
        let _room = array.room(length)?;
        records.picked(&numbers, array.growing())
    }
}

/// Returns the numbers of selected elements within their bounding box.
fn numbers_within(selection: &Selection, around: &Region) -> Vec<usize> {
    let mut numbers = vec![0];
    let axes = selection.axes.iter().zip(&around.start).zip(&around.shape);
    for ((axis, &start), &length) in axes {
        let row = numbers.iter().flat_map(|&before: &u64| {
            (0..axis.count).map(move |number| before * length + axis.at(number) - start)
        });
        numbers = row.collect();
    }
    let numbers = numbers.into_iter();
    numbers
        .map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        .collect()
}

impl GroupMember {
    /// Returns the selected elements of a single array, as they are decoded.
    pub fn alone(array: &Arc<OpenArray>, selection: &Selection) -> GroupMember {
        GroupMember {
            path: array.path().to_string(),
            array: Arc::new(array.array().clone()),
            source: Some(MemberSource {
                array: array.clone(),
                selection: selection.clone(),
                conversion: None,
            }),
        }
    }

    /// Returns the source of the elements; `Invalid` for a member of metadata alone.
    pub fn source(&self) -> Result<&MemberSource> {
        let source = self.source.as_ref();
        source.ok_or_else(|| Error::invalid(&self.path, "the array has no elements"))
    }

    /// Reads all elements, which have no fixed length; fails as `OpenArray::records` does.
    pub fn records(&self, context: &RequestContext) -> Result<VlenElements> {
        self.source()?.records(context, None)
    }

    /// Like `records`, for some rows along the first dimension that the selection keeps.
    pub fn records_of(&self, context: &RequestContext, rows: &Range<u64>) -> Result<VlenElements> {
        self.source()?.records(context, Some(rows))
    }
}

/// Receives a text.
pub(super) type TakeText<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The selected texts of an array, in memory.
pub(super) enum MemberTexts {
    /// Variable length.
    Ragged(VlenElements),
    /// Fixed length in bytes, in UTF-32.
    Fixed(ReadBytes, usize),
}

impl MemberTexts {
    /// Reads the texts of a member; fails as `GroupMember::records` does.
    pub(super) fn read(context: &RequestContext, member: &GroupMember) -> Result<MemberTexts> {
        let source = member.source()?;
        if let DataType::FixedText(length) = source.array.array().data_type {
            let texts = read_all(context, &member.elements()?)?;
            return Ok(MemberTexts::Fixed(texts, 4 * length));
        }
        Ok(MemberTexts::Ragged(member.records(context)?))
    }

    /// Passes on each text; UTF-32 is converted to UTF-8.
    pub(super) fn each(&self, take: &mut TakeText<'_>) -> Result<()> {
        match self {
            MemberTexts::Ragged(texts) => texts.iter().try_for_each(take),
            MemberTexts::Fixed(texts, size) => {
                let mut elements = texts.chunks_exact((*size).max(1));
                elements.try_for_each(|element| take(elements::text(element).as_bytes()))
            }
        }
    }
}

/// Reads all bytes of a file; `TooLarge` if memory cannot hold them.
pub(crate) fn read_all(context: &RequestContext, file: &Export) -> Result<ReadBytes> {
    let length = usize::try_from(file.len());
    let length = length.map_err(|error| Error::too_large(file.array().path(), error))?;
    file.read_at(context, 0, length)
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_with_steps_are_found_in_the_box_around_them() {
        let selection = crate::inspect::selection::parse("::-2,1:6:3", &[5, 7]).unwrap();
        let around = selection.bounds();
        assert_eq!(
            (&around.start[..], &around.shape[..]),
            (&[0, 1][..], &[5, 4][..])
        );
        let numbers = numbers_within(&selection, &around);
        assert_eq!(numbers, [16, 19, 8, 11, 0, 3]);
    }
}
