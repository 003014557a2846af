//! Opens a chunk of a plain store: its elements as decoded, padded to a whole chunk.
//!
//! Elements of a fixed length are read on demand. Elements of no fixed length are encoded when the file is opened, each
//! after its length, as `vlen-utf8`, `vlen-bytes` and `vlen-array` do: a count, then the elements.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use twox_hash::XxHash64;

use crate::view::plain::layout::PlainLayout;
use crate::view::plain::padding::Padding;
use crate::view::plain::target::Target;
use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Region};
use zarrfs_array::array::vlen_elements::{ReservedBytes, VlenElements};
use zarrfs_array::array::{ArrayState, OpenArray};
use zarrfs_export::formats::{Export, FileParts};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::part;

/// A chunk of a plain store.
pub(crate) struct PlainChunk {
    pub(super) layout: PlainLayout,
    pub(super) indices: Coordinates,
}

impl PlainChunk {
    fn array(&self) -> &Arc<OpenArray> {
        &self.layout.array
    }

    fn region(&self) -> Result<Region> {
        self.layout.region(&self.indices)
    }

    /// Returns the number that identifies the chunk in the target.
    pub(super) fn content(&self, target: &Target) -> u64 {
        let mut parts = target.name.as_bytes().to_vec();
        parts.extend(self.array().id().to_le_bytes());
        for index in &self.indices {
            parts.extend(index.to_le_bytes());
        }
        XxHash64::oneshot(0, &parts)
    }

    /// Returns the length in bytes. A chunk of elements of no fixed length is read once for each content.
    pub(super) fn length(&self, context: &RequestContext, target: &Target) -> Result<u64> {
        let array = self.array();
        if !array.array().data_type.is_variable() {
            return self.layout.chunk_bytes();
        }
        let region = self.region()?;
        let name = target.chunk_name(&self.indices);
        let version_of = |context: &RequestContext| array.region_version(context, &region);
        let measure = |context: &RequestContext| Ok(self.encoded(context)?.len() as u64);
        array.length_of(context, &name, &version_of, measure)
    }

    /// Opens the file.
    pub(super) fn open(&self, context: &RequestContext, target: &Target) -> Result<OpenedFile> {
        let array = self.array();
        // Report an array that does not decode at open, not at each read.
        array.check_decodable()?;
        // Taken before elements are read: if they change during the read, the version is already stale.
        let version = array.content(context)?;
        let state = Mutex::new(array.state());
        let file: Arc<dyn File> = if array.array().data_type.is_variable() {
            array.record_chunk_read(self.layout.own_chunk(&self.indices)?);
            let bytes = self.encoded(context)?;
            Arc::new(EncodedChunk {
                array: array.clone(),
                bytes,
                state,
            })
        } else {
            let (region, content) = (self.region()?, self.content(target));
            let padding = self.padding(&region)?;
            let parts = FileParts::plain(Vec::new());
            Arc::new(DecodedChunk {
                chunk: self.layout.own_chunk(&self.indices)?,
                is_read: AtomicBool::new(false),
                elements: Export::of_parts(array, parts, region, content)?,
                length: self.layout.chunk_bytes()?,
                size: array.array().element_size()? as u64,
                padding,
            })
        };
        Ok(OpenedFile {
            file,
            content: Some(self.content(target)),
            version,
            direct: false,
            tree_file: None,
        })
    }

    fn padding(&self, region: &Region) -> Result<Option<Padding>> {
        let fill = &self.array().array().fill_value.bytes;
        let whole = self.layout.grid()?.chunk_shape();
        Ok(Padding::new(region, whole, fill))
    }

    /// Encodes a chunk of elements of no fixed length.
    fn encoded(&self, context: &RequestContext) -> Result<ReservedBytes> {
        let array = self.array();
        let region = self.region()?;
        let elements = array.records(context, &region)?;
        let whole: u64 = self.layout.grid()?.chunk_shape().iter().product();
        let length_of = |length: usize| length_prefix(array, length as u64);
        let mut encoded = array.growing();
        encoded.push(&length_prefix(array, whole)?)?;
        match self.padding(&region)? {
            None => encoded.push(elements.bytes())?,
            Some(padding) => padding.each(VlenElements::iter(&elements), |element| {
                encoded.push(&length_of(element.len())?)?;
                encoded.push(element)
            })?,
        }
        Ok(encoded.finish())
    }
}

/// Returns a count or a length as the codecs of elements of no fixed length write it.
fn length_prefix(array: &OpenArray, length: u64) -> Result<[u8; 4]> {
    let length = u32::try_from(length).map_err(|error| Error::too_large(array.path(), error))?;
    Ok(length.to_le_bytes())
}

/// A chunk of elements of a fixed length.
struct DecodedChunk {
    /// The elements inside the array.
    elements: Export,
    /// The length of the file and of an element, in bytes.
    length: u64,
    size: u64,
    padding: Option<Padding>,
    /// The array's own chunk with the elements.
    chunk: ChunkIndex,
    /// Whether the file was read: if not, the kernel may have all of its pages.
    is_read: AtomicBool,
}

impl ReadAt for DecodedChunk {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        // Bytes that are not in memory are not read by an open, which does not wait, but by the read that follows.
        if context.may_wait() {
            self.record_read();
        }
        let bytes = self.padded(context, offset, len)?;
        self.record_read();
        Ok(bytes)
    }
}

impl DecodedChunk {
    /// Records the first read.
    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            self.elements.array().record_chunk_read(self.chunk);
        }
    }

    /// Returns a range of the file.
    fn padded(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let Some(padding) = &self.padding else {
            return self.elements.read_at(context, offset, len);
        };
        let end = offset.saturating_add(len as u64).min(self.length);
        if offset >= end {
            return Ok(ReadBytes::default());
        }
        let range = offset / self.size..end.div_ceil(self.size);
        let inside = padding.inside_of(&range);
        let inside = self.bytes_of(&inside);
        let length = in_memory(inside.end - inside.start);
        let elements = self.elements.read_at(context, inside.start, length)?;
        let padded = padding.padded(&range, &elements)?;
        let first = range.start * self.size;
        Ok(part(&padded, offset - first..end - first).into())
    }

    fn bytes_of(&self, elements: &Range<u64>) -> Range<u64> {
        elements.start * self.size..elements.end * self.size
    }
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl File for DecodedChunk {
    fn version(&self) -> Option<u64> {
        Some(self.elements.array().page_version())
    }

    fn may_have_changed(&self) -> bool {
        Export::may_have_changed(&self.elements)
    }

    fn expects_sequential(&self) -> bool {
        true
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let modified = self.elements.array().modified();
        Some(Attr::of_file(self.length, modified, Duration::ZERO))
    }
}

/// A chunk of elements of no fixed length, as of its open.
struct EncodedChunk {
    array: Arc<OpenArray>,
    bytes: ReservedBytes,
    /// The array's state at the last call of `may_have_changed`.
    state: Mutex<ArrayState>,
}

impl ReadAt for EncodedChunk {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        let end = offset.saturating_add(len as u64);
        Ok(part(&self.bytes, offset..end).into())
    }
}

impl File for EncodedChunk {
    fn version(&self) -> Option<u64> {
        Some(self.array.page_version())
    }

    fn is_snapshot(&self) -> bool {
        true
    }

    fn may_have_changed(&self) -> bool {
        let now = self.array.state();
        let before = std::mem::replace(&mut *self.state.lock(), now);
        self.array.may_have_changed(&before)
    }

    fn attr(&self, _context: &RequestContext) -> Option<Attr> {
        let length = self.bytes.len() as u64;
        Some(Attr::of_file(length, self.array.modified(), Duration::ZERO))
    }
}
