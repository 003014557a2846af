//! Reads selected elements of an array, as bytes in C order or as a file.
//!
//! The same code makes the files of a mount, so the bytes are the same.

use std::sync::Arc;

use crate::formats::group::{GroupMember, MemberSource};
use crate::formats::subject::Surroundings;
use crate::formats::{Export, FileParts, Format, SourceElements, Subject, TakenDimension, cf};
use crate::inspect::file_ending::FileContent;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Selection;
use zarr_format::model::{Array, bytes_of};
use zarrfs_array::array::OpenArray;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::ReadAt;

/// Approximate size of a read in bytes.
const READ_SIZE: usize = 4 << 20;

/// A function that receives the bytes of a file in order. It returns `false` to stop the reading.
pub type TakeBytes<'a> = dyn FnMut(&[u8]) -> Result<bool> + 'a;

/// Selected fixed-length elements of an array, as a sequence of bytes.
pub struct SelectedElements {
    array: Arc<OpenArray>,
    selection: Selection,
    element: usize,
    length: u64,
}

impl SelectedElements {
    /// Selects elements of an array. Fails if they have variable length, or with the decoding error if the array cannot
    /// be decoded.
    pub fn new(array: Arc<OpenArray>, selection: Selection) -> Result<SelectedElements> {
        array.check_decodable()?;
        let about = |error: Error| error.about(array.path());
        let element = array.array().element_size().map_err(about)?;
        let length = bytes_of(&selection.shape(), element).map_err(about)?;
        Ok(SelectedElements {
            array,
            selection,
            element,
            length,
        })
    }

    /// Returns the array that the elements are read from.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the shape of the selected elements, without the dropped dimensions.
    pub fn shape(&self) -> Vec<u64> {
        self.selection.shape()
    }

    /// Returns the size of all selected elements in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether no element is selected.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the size of an element in bytes.
    pub fn element_size(&self) -> usize {
        self.element
    }

    /// Passes all elements to `take` in blocks of whole elements, until `take` returns `false`.
    pub fn read(&self, context: &RequestContext, take: &mut TakeBytes<'_>) -> Result<()> {
        let elements = SourceElements::open(&self.array, &self.selection, None)?;
        let element = self.element.max(1) as u64;
        let step = (READ_SIZE as u64 / element).max(1).saturating_mul(element);
        let mut at = 0;
        while at < self.length {
            let next = self.length.min(at.saturating_add(step));
            if !take(&elements.read(context, at..next)?)? {
                return Ok(());
            }
            at = next;
        }
        Ok(())
    }
}

/// An opened array, with metadata of other nodes that a file format needs.
pub struct DescribedArray<'a> {
    /// The opened array.
    pub open: &'a Arc<OpenArray>,
    /// The metadata of the array, with attributes.
    pub metadata: &'a Array,
    /// The name with which the names of the array's files begin.
    pub name: &'a [u8],
    /// Metadata of the nodes around the array.
    pub around: Surroundings<'a>,
}

impl<'a> DescribedArray<'a> {
    /// Describes an array by its own metadata alone.
    pub fn alone(open: &'a Arc<OpenArray>) -> DescribedArray<'a> {
        DescribedArray {
            open,
            metadata: open.array(),
            name: b"",
            around: Surroundings::default(),
        }
    }
}

/// Passes the bytes of a file with the selected elements to `take`. Fails as `open_file` does.
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

/// Opens a file with the selected elements. If the format needs all elements to make the file, reads them now, so that
/// the length of the file is known.
///
/// Fails with `Unsupported` if the format cannot hold the elements, and with the decoding error if the array cannot be
/// decoded.
pub fn open_file(
    context: &RequestContext,
    described: &DescribedArray<'_>,
    selection: &Selection,
    content: FileContent,
) -> Result<Export> {
    let array = described.open;
    let FileContent {
        format,
        is_cf_decoded,
    } = content;
    array.check_decodable()?;
    let (shape, taken) = (selection.shape(), TakenDimension::of_selection(selection));
    let decoded = is_cf_decoded
        .then(|| cf::decoded(described.metadata))
        .transpose();
    let decoded = decoded.map_err(|why| Error::unsupported(array.path(), why))?;
    let metadata = decoded.as_ref().map(|decoded| &decoded.array);
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
                    conversion: decoded
                        .as_ref()
                        .and_then(|decoded| decoded.conversion.clone()),
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
    if let Some(conversion) = decoded
        .as_ref()
        .and_then(|decoded| decoded.conversion.as_ref())
    {
        parts = parts.after(conversion, array.array().element_size()?);
    }
    if parts.elements.is_none() {
        let why = format!(
            "a .{} file is only the header of another file: write a .tif, .nrrd or .npy file instead",
            format.extension
        );
        return Err(Error::unsupported(array.path(), why));
    }
    Export::of_selection(array, parts, selection, array.id())
}

/// Returns the header, element form and trailer of an array's file. Fails with `Unsupported` if the format cannot hold
/// the array.
fn parts_of(format: &Format, array: &OpenArray, subject: &Subject) -> Result<FileParts> {
    match format.unmet_needs(subject) {
        Some(why) => {
            let why = format!("{}: {why}", format.extension);
            Err(Error::unsupported(array.path(), why))
        }
        None => format.parts_of(array, subject),
    }
}

/// Reads a file of `length` bytes, and passes its bytes to `take` block by block.
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
