//! Writes files of selected elements outside a mount, byte for byte like a mount.

use std::sync::Arc;

use crate::formats::group::{GroupMember, MemberSource};
use crate::formats::surroundings::Surroundings;
use crate::formats::{Export, FileParts, Format, Subject, TakenDimension, cf};
use crate::inspect::file_ending::FileContent;
use crate::inspect::selected::TakeBytes;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::Array;
use zarrfs_array::array::OpenArray;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadAt;

/// Approximate number of bytes per read.
const READ_SIZE: usize = 4 << 20;

/// An array for a file, with information that an open array lacks.
pub struct DescribedArray<'a> {
    /// The open array.
    pub open: &'a Arc<OpenArray>,
    /// Its metadata, with attributes.
    pub metadata: &'a Array,
    /// The name of its files in the files view, without an ending.
    pub name: &'a [u8],
    /// Metadata of other nodes about the array.
    pub around: Surroundings<'a>,
}

impl<'a> DescribedArray<'a> {
    /// Describes an array by only its own metadata.
    pub fn alone(open: &'a Arc<OpenArray>) -> DescribedArray<'a> {
        DescribedArray {
            open,
            metadata: open.array(),
            name: b"",
            around: Surroundings::default(),
        }
    }
}

/// Writes selected elements as a file; fails as `open_file` does.
pub fn write_file(
    context: &RequestContext,
    described: &DescribedArray<'_>,
    selection: &Selection,
    content: FileContent,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    let file = open_file(context, described, selection, content)?;
    write_whole(context, &file, file.len(), take)
}

/// Opens the file of selected elements, which has a known length.
///
/// Fails with `Unsupported` if the format cannot hold the elements, or with the error that makes the array
/// undecodable.
pub fn open_file(
    context: &RequestContext,
    described: &DescribedArray<'_>,
    selection: &Selection,
    content: FileContent,
) -> Result<Export> {
    let array = described.open;
    let FileContent { format, is_meant } = content;
    array.check_decodable()?;
    let (shape, taken) = (selection.shape(), TakenDimension::of_selection(selection));
    let meant = is_meant
        .then(|| cf::decoded(described.metadata))
        .transpose();
    let meant = meant.map_err(|why| Error::unsupported(array.path(), why))?;
    let metadata = meant.as_ref().map(|meant| &meant.array);
    let metadata = metadata.unwrap_or(described.metadata);
    if format.is_made(metadata) {
        return Export::open_made(
            context,
            format,
            &GroupMember {
                path: String::from_utf8_lossy(described.name).into_owned(),
                array: Arc::new(metadata.clone()),
                source: Some(MemberSource {
                    array: array.clone(),
                    selection: selection.clone(),
                    conversion: meant.as_ref().and_then(|meant| meant.conversion.clone()),
                }),
            },
        );
    }
    let subject = Subject {
        name: described.name,
        around: described.around,
        taken: Some(&taken),
        ..Subject::alone(metadata, &shape)
    };
    let mut parts = parts_of(format, array, &subject)?;
    if let Some(conversion) = meant.as_ref().and_then(|meant| meant.conversion.as_ref()) {
        parts = parts.after(conversion, array.array().element_size()?);
    }
    if parts.elements.is_none() {
        let why = format!("{} is the header of another file", format.extension);
        return Err(Error::unsupported(array.path(), why));
    }
    Export::of_selection(array, parts, selection, array.id())
}

/// Returns the parts of a file. Fails with `Unsupported` and the reason if there is no such file.
fn parts_of(format: &Format, array: &OpenArray, subject: &Subject) -> Result<FileParts> {
    match format.why_not(subject) {
        Some(why) => {
            let why = format!("{}: {why}", format.extension);
            Err(Error::unsupported(array.path(), why))
        }
        None => format.parts_of(array, subject),
    }
}

/// Passes on a file of `length` bytes in blocks.
pub fn write_whole(
    context: &RequestContext,
    file: &dyn ReadAt,
    length: u64,
    take: &mut TakeBytes<'_>,
) -> Result<()> {
    let mut at = 0;
    while at < length {
        let bytes = file.read_at(context, at, READ_SIZE)?;
        if bytes.is_empty() || !take(&bytes)? {
            return Ok(());
        }
        at += bytes.len() as u64;
    }
    Ok(())
}
