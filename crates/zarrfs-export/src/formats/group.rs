//! Virtual files of a group: a header, followed by the arrays of the group.
//!
//! A format of groups does no I/O: from names, metadata and attributes it makes the header and the offset of each
//! array. `GroupFile` is an open file of this kind; `GroupMember` is one of its arrays.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::formats::cf::{DecodedArray, NoValues};
use crate::formats::conversion::Conversion;
use crate::formats::opened::room_of;
use crate::formats::{Export, FileParts, elements};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{Region, Selection};
use zarr_format::model::{Array, Attributes, DataType};
use zarrfs_array::array::vlen_elements::{ReservedBuffer, ReservedBytes, VlenElements};
use zarrfs_array::array::{ArrayState, OpenArray};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::read_bytes::{ReadAt, ReadBytes, part};

/// A group below the exported group, with its attributes in the file.
#[derive(Clone, Debug)]
pub struct Subgroup {
    /// The path of the subgroup, relative to the exported group.
    pub path: String,
    /// The attributes of the subgroup that the file has.
    pub attributes: Attributes,
}

/// The attributes, subgroups and arrays of which the file of a group is made.
#[derive(Clone)]
pub struct GroupContents {
    /// The attributes of the exported group that the file has.
    pub attributes: Attributes,
    /// The groups below the exported group, parents first; empty for formats without groups.
    pub subgroups: Vec<Subgroup>,
    /// The arrays in the file, at least one.
    pub members: Vec<GroupMember>,
    /// A message about each array or group that the file leaves out.
    pub left_out: Vec<String>,
}

impl GroupContents {
    /// Returns the stored arrays of which the file is made.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<OpenArray>> {
        let sources = self
            .members
            .iter()
            .filter_map(|member| member.source.as_ref());
        sources.map(|source| &source.array)
    }

    /// Returns the stored arrays of which the file is made, without those that cannot be decoded.
    pub fn decodable(&self) -> impl Iterator<Item = &Arc<OpenArray>> {
        self.arrays()
            .filter(|array| array.check_decodable().is_ok())
    }

    /// Returns the array with this number in the file; `Invalid` if there is no such array.
    pub fn member(&self, number: usize) -> Result<&GroupMember> {
        let member = self.members.get(number);
        member.ok_or_else(|| Error::invalid("group", "the file has no such array"))
    }

    /// Starts a buffer for bytes of the file, which reserves memory in the memory budget as it grows.
    pub fn growing(&self) -> Result<ReservedBuffer<'_>> {
        let first = self.arrays().next();
        let first = first.ok_or_else(|| Error::invalid("group", "the group has no elements"))?;
        Ok(first.growing())
    }
}

/// A result, or the reason why a group has no file of a format: a phrase that follows the format's name and a colon.
pub type OrReason<T> = std::result::Result<T, String>;

/// Says which arrays of a group belong to a file of the group.
#[derive(Clone, Copy)]
pub enum GroupScope {
    /// Only the arrays directly in the group.
    Own,
    /// The arrays of the group and of all groups below it, except for nodes that cannot be read.
    Below,
    /// The arrays of the group, and those of its subgroups that are columns of a table. The function decides by the
    /// name and the attributes of a subgroup whether it is a column.
    Columns(fn(&str, &Attributes) -> bool),
    /// The arrays at the paths that the function finds in the group's attributes, such as the levels of an image.
    Named(fn(&Attributes) -> Vec<String>),
}

/// Maximum size in bytes of a fixed-length array that is read when a file is opened. A format reads such an array if
/// the header or the length of the file depends on its elements.
pub(super) const MAX_READ_AT_OPEN: u64 = 16 << 20;

/// A file format as which a group, with its arrays, can be exported.
pub struct GroupFormat {
    /// The extension of the format's file names, without the dot.
    pub extension: &'static str,
    /// Which arrays of the group belong to a file.
    pub scope: GroupScope,
    /// Decodes an array by the CF conventions, for a file of decoded values.
    pub decode: fn(&Array) -> std::result::Result<DecodedArray, NoValues>,
    /// Plans the file of a group; fails with the reason if the format cannot hold the group.
    pub plan: fn(&GroupContents) -> OrReason<GroupPlan>,
}

impl GroupFormat {
    /// Whether the format also has files of a selection or of decoded values. A file of an image always has all
    /// resolution levels as they are stored.
    pub fn has_parts(&self) -> bool {
        !matches!(self.scope, GroupScope::Named(_))
    }
}

impl fmt::Debug for GroupFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension)
    }
}

/// What is known of a group's file from metadata alone, without reading elements.
pub struct GroupPlan {
    /// The layout of the file, or the function that computes it.
    pub body: GroupBody,
    /// The metadata and arrays that the file omits; each text is a name, a colon and the reason.
    pub left_out: Vec<String>,
}

/// The layout of a group's file, or the function that computes it.
pub enum GroupBody {
    /// The layout is known from the metadata.
    Laid(GroupLayout),
    /// The layout depends on elements, which are read when the file is opened.
    Made(MadeLayout),
    /// The layout depends on elements, and so does whether the group has a file: `make` fails with `Unsupported` if it
    /// has none.
    Checked(MadeLayout),
}

impl GroupBody {
    /// Returns the function that computes the layout from elements, or `None` if the metadata determine the layout.
    pub fn made(&self) -> Option<&MadeLayout> {
        match self {
            GroupBody::Laid(_) => None,
            GroupBody::Made(made) | GroupBody::Checked(made) => Some(made),
        }
    }
}

/// A layout that is computed from elements when the file is opened.
pub struct MadeLayout {
    /// The numbers of the arrays whose elements are read for the layout.
    pub read: Vec<usize>,
    /// Reads the elements that the layout depends on, and returns the layout.
    pub make: fn(&RequestContext, &GroupContents) -> Result<GroupLayout>,
}

impl GroupPlan {
    /// Returns a plan for a file with a known layout that omits nothing.
    pub fn laid(layout: GroupLayout) -> GroupPlan {
        GroupPlan {
            body: GroupBody::Laid(layout),
            left_out: Vec::new(),
        }
    }
}

/// The header of a group's file, and the offset of each array in it.
#[derive(Clone)]
pub struct GroupLayout {
    /// The bytes of the file before the first array.
    pub header: Arc<ReservedBytes>,
    /// The arrays in order of their offsets, without gaps between them.
    pub variables: Vec<PlacedVariable>,
}

/// An array at an offset in the file of its group.
#[derive(Clone)]
pub struct PlacedVariable {
    /// The index of the array in `GroupContents::members`.
    pub member: usize,
    /// The offset in the file of the array's first byte.
    pub offset: u64,
    /// The header, elements and trailer of the array, which stand at the offset in the group's file.
    pub parts: FileParts,
}

impl GroupLayout {
    /// Returns the length of the file in bytes; `TooLarge` if it exceeds the maximum length of a file.
    pub fn len(&self, contents: &GroupContents) -> Result<u64> {
        let Some(last) = self.variables.last() else {
            return Ok(self.header.len() as u64);
        };
        let array = &contents.member(last.member)?.array;
        let length = last.parts.len(&array.shape, array.element_size()?)?;
        let end = last.offset.checked_add(length);
        end.filter(|&end| i64::try_from(end).is_ok())
            .ok_or_else(|| Error::too_large("group", "the file of all arrays is too large"))
    }
}

impl GroupPlan {
    /// Returns a number that identifies the content of the file. It depends on the metadata and not on the chunks.
    pub fn content(&self, contents: &GroupContents) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.body {
            GroupBody::Laid(layout) => {
                layout.header[..].hash(&mut hasher);
                let order = layout.variables.iter();
                order.for_each(|variable| variable.member.hash(&mut hasher));
            }
            // The header is not made yet and may contain any metadata of the group, so all of them are hashed.
            GroupBody::Made(_) | GroupBody::Checked(_) => {
                contents.attributes.text().hash(&mut hasher);
                for member in &contents.members {
                    let array = &member.array;
                    (array.attributes.text(), &array.dimension_names).hash(&mut hasher);
                }
                for group in &contents.subgroups {
                    (&group.path, group.attributes.text()).hash(&mut hasher);
                }
                contents.left_out.hash(&mut hasher);
            }
        }
        for member in &contents.members {
            let source = member.source.as_ref();
            let elements = source.map(|source| {
                let conversion = source.conversion.as_ref();
                let digest = conversion.map(|conversion| conversion.digest());
                (source.array.id(), &source.selection.axes, digest)
            });
            (&member.path, format!("{elements:?}")).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// An array, with its state when the file was last checked for changes.
struct TrackedArray {
    array: Arc<OpenArray>,
    state: Mutex<ArrayState>,
}

/// An open file that contains the arrays of a group.
pub struct GroupFile {
    header: Arc<ReservedBytes>,
    /// Reserves memory for a long header as long as the file is open.
    _room: Option<Reservation>,
    /// The offset and the elements of each array, in order of the offsets.
    variables: Vec<(u64, Export)>,
    length: u64,
    /// Whether the header was made from elements, which then stay as they were when the file was opened.
    is_made: bool,
    /// The arrays whose changes may change the bytes of the file.
    arrays: Vec<TrackedArray>,
}

impl GroupFile {
    /// Opens the file of a group. Fails with the error of an array that cannot be decoded or read.
    pub fn open(
        context: &RequestContext,
        body: &GroupBody,
        contents: &GroupContents,
    ) -> Result<GroupFile> {
        // The states are taken before the arrays are read, so that a change during the reads is noticed later as a
        // change of the open file.
        let arrays = contents.decodable().map(|array| TrackedArray {
            array: array.clone(),
            state: Mutex::new(array.state()),
        });
        let arrays: Vec<TrackedArray> = arrays.collect();
        let layout = match body {
            GroupBody::Laid(layout) => Cow::Borrowed(layout),
            GroupBody::Made(made) | GroupBody::Checked(made) => {
                Cow::Owned((made.make)(context, contents)?)
            }
        };
        let variables = layout.variables.iter().map(|variable| {
            let source = contents.member(variable.member)?.source()?;
            Ok((variable.offset, source.open(variable.parts.clone())?))
        });
        let first = arrays.first().filter(|_| !layout.header.is_counted());
        let room = first.map(|first| room_of(&first.array, layout.header.len()));
        Ok(GroupFile {
            _room: room.transpose()?.flatten(),
            variables: variables.collect::<Result<_>>()?,
            length: layout.len(contents)?,
            is_made: body.made().is_some(),
            header: layout.header.clone(),
            arrays,
        })
    }

    /// Returns the length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the header was computed from elements when the file was opened.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// Returns the arrays whose changes may change the bytes of the file, in the order of `GroupContents::decodable`.
    pub fn arrays(&self) -> impl Iterator<Item = &Arc<OpenArray>> {
        self.arrays.iter().map(|tracked| &tracked.array)
    }

    /// Whether the file's content may have changed since the last call. Makes no request to the store.
    pub fn may_have_changed(&self) -> bool {
        let has_changed = |tracked: &&TrackedArray| {
            let now = tracked.array.state();
            let before = std::mem::replace(&mut *tracked.state.lock(), now);
            tracked.array.may_have_changed(&before)
        };
        // `any` would stop at the first changed array, but the check must update the state of every array.
        self.arrays.iter().filter(has_changed).count() > 0
    }

    /// Reads a range of the file: bytes of the header come from memory, elements of the arrays from `read`.
    fn gather(
        &self,
        offset: u64,
        len: usize,
        read: impl Fn(&Export, u64, usize) -> Result<ReadBytes>,
    ) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64).min(self.length);
        if offset >= end {
            return Ok(ReadBytes::default());
        }
        let mut bytes = part(&self.header, offset..end).to_vec();
        // The first array to read is the one that contains the first byte.
        let after = self
            .variables
            .partition_point(|&(begin, _)| begin <= offset);
        for (begin, export) in self.variables.iter().skip(after.saturating_sub(1)) {
            if *begin >= end {
                break;
            }
            let start = offset.max(*begin) - begin;
            let wanted = (end - begin).min(export.len()).saturating_sub(start);
            let found = read(export, start, usize::try_from(wanted).unwrap_or(usize::MAX))?;
            if bytes.is_empty() && wanted == end - offset {
                return Ok(found);
            }
            bytes.extend_from_slice(&found);
        }
        Ok(bytes.into())
    }
}

impl ReadAt for GroupFile {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        self.gather(offset, len, |export, at, len| {
            export.read_at(context, at, len)
        })
    }
}

/// An array in the file of a group. The array is in the group, or in a group below it.
#[derive(Clone)]
pub struct GroupMember {
    /// The path of the array relative to the exported group; its name if the array is directly in the group.
    pub path: String,
    /// The metadata of the array as the file has them, with the shape and data type of the selected elements.
    pub array: Arc<Array>,
    /// Where the array's elements come from; `None` if only the metadata are needed.
    pub source: Option<MemberSource>,
}

/// Where the elements of an array in a group's file come from.
#[derive(Clone)]
pub struct MemberSource {
    /// The stored array that is read.
    pub array: Arc<OpenArray>,
    /// The elements of the stored array that the file has.
    pub selection: Selection,
    /// The conversion of each decoded element before the format's own conversion; `None` if there is none.
    pub conversion: Option<Arc<dyn Conversion>>,
}

impl MemberSource {
    /// Describes all elements of an array, without a conversion.
    pub fn whole(array: Arc<OpenArray>) -> MemberSource {
        MemberSource {
            selection: Selection::whole(&array.array().shape),
            array,
            conversion: None,
        }
    }

    /// Reads the selected variable-length elements of an array, optionally only a range of its rows.
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
        // Only a whole index range of variable-length elements can be read; the selected elements are picked from it.
        let numbers = numbers_within(&selection, &around);
        let length = records.len() as u64 * size_of::<&[u8]>() as u64;
        let _room = array.room(length)?;
        records.picked(&numbers, array.growing())
    }
}

/// Returns the positions of the selected elements in their bounding box, in C order.
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
    /// Makes a group member of the selected elements of a single array, without a conversion.
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

    /// Returns where the elements come from. Fails with `Invalid` if only the metadata are known.
    pub fn source(&self) -> Result<&MemberSource> {
        let source = self.source.as_ref();
        source.ok_or_else(|| Error::invalid(&self.path, "the array has no elements"))
    }

    /// Reads all elements of a variable-length array. Fails as `OpenArray::records` does.
    pub fn records(&self, context: &RequestContext) -> Result<VlenElements> {
        self.source()?.records(context, None)
    }

    /// Reads some rows of a variable-length array; `rows` counts along the first dimension that the selection keeps.
    pub fn records_of(&self, context: &RequestContext, rows: &Range<u64>) -> Result<VlenElements> {
        self.source()?.records(context, Some(rows))
    }
}

/// A function that receives one text; its error stops the reading.
pub(super) type TakeText<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// The selected texts of an array, in memory.
pub(super) enum MemberTexts {
    /// Texts of variable length in UTF-8.
    Ragged(VlenElements),
    /// Texts of a fixed length in UTF-32, and the length of each in bytes.
    Fixed(ReadBytes, usize),
}

impl MemberTexts {
    /// Reads all selected texts of an array into memory.
    pub(super) fn read(context: &RequestContext, member: &GroupMember) -> Result<MemberTexts> {
        let source = member.source()?;
        if let DataType::FixedText(length) = source.array.array().data_type {
            let texts = read_all(context, &member.elements()?)?;
            return Ok(MemberTexts::Fixed(texts, 4 * length));
        }
        Ok(MemberTexts::Ragged(member.records(context)?))
    }

    /// Passes each text to `take` in UTF-8, in order of the elements.
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

/// Reads a whole exported file; `TooLarge` if memory cannot hold it.
pub(crate) fn read_all(context: &RequestContext, file: &Export) -> Result<ReadBytes> {
    let length = usize::try_from(file.len());
    let length = length.map_err(|error| Error::too_large(file.array().path(), error))?;
    file.read_at(context, 0, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgroups_change_the_content_number_of_a_made_file() {
        let plan = GroupPlan {
            body: GroupBody::Made(MadeLayout {
                read: Vec::new(),
                make: |_, _| Err(Error::invalid("group", "is not made here")),
            }),
            left_out: Vec::new(),
        };
        let content = |path: &str, title: &str, left_out: &[String]| {
            plan.content(&GroupContents {
                attributes: Attributes::default(),
                subgroups: vec![Subgroup {
                    path: path.to_string(),
                    attributes: Attributes::default().with("title", &title.into()),
                }],
                members: Vec::new(),
                left_out: left_out.to_vec(),
            })
        };
        let first = content("sub", "a", &[]);
        assert_eq!(first, content("sub", "a", &[]));
        assert_ne!(first, content("sub", "b", &[]));
        assert_ne!(first, content("other", "a", &[]));
        assert_ne!(
            first,
            content("sub", "a", &["x: does not read".to_string()])
        );
    }

    #[test]
    fn elements_with_steps_are_found_in_the_bounding_box() {
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
