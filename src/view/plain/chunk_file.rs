//! Opens a chunk of an uncompressed store: the decoded elements, padded to a whole chunk.
//!
//! Elements of a fixed length are decoded on demand. Elements of variable length are encoded when the chunk is opened,
//! as the codecs `vlen-utf8`, `vlen-bytes` and `vlen-array` do: the number of elements, then each element after its
//! length.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use twox_hash::XxHash64;

use crate::view::plain::layout::PlainLayout;
use crate::view::plain::target::Target;
use crate::view::{Attr, File, OpenedFile, ReadAt, ReadBytes};
use zarr_format::error::{Error, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Region};
use zarrfs_array::array::vlen_elements::{ReservedBytes, VlenElements};
use zarrfs_array::array::{ArrayState, OpenArray};
use zarrfs_export::formats::{Export, FileParts};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::read_bytes::part;

/// A chunk of an array that is shown uncompressed.
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

    /// Returns the number that identifies the chunk's file in the store format `target`.
    pub(super) fn content(&self, target: &Target) -> u64 {
        let mut parts = target.name.as_bytes().to_vec();
        parts.extend(self.array().id().to_le_bytes());
        for index in &self.indices {
            parts.extend(index.to_le_bytes());
        }
        XxHash64::oneshot(0, &parts)
    }

    /// Returns the length of the chunk's file in bytes. A chunk of variable-length elements is decoded for that, once
    /// for each version of the array.
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

    pub(super) fn open(&self, context: &RequestContext, target: &Target) -> Result<OpenedFile> {
        let array = self.array();
        // An array that cannot be decoded is reported by the open, not by each read.
        array.check_decodable()?;
        // The version is read before the elements. If they change during the read, the version is already stale.
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

/// Returns the number of elements or the length of an element as the variable-length codecs write it: 4 bytes,
/// little-endian.
fn length_prefix(array: &OpenArray, length: u64) -> Result<[u8; 4]> {
    let length = u32::try_from(length).map_err(|error| Error::too_large(array.path(), error))?;
    Ok(length.to_le_bytes())
}

/// The open file of a chunk of fixed-length elements.
struct DecodedChunk {
    /// The elements of the chunk that are inside the array.
    elements: Export,
    /// The length of the file in bytes, with its padding.
    length: u64,
    size: u64,
    padding: Option<Padding>,
    /// The stored chunk of the array that contains the elements.
    chunk: ChunkIndex,
    /// Whether a program has read the file.
    is_read: AtomicBool,
}

impl ReadAt for DecodedChunk {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<ReadBytes> {
        // A call that may not wait fails if the bytes are not in memory, so it counts as a read only if it succeeds.
        if context.may_wait() {
            self.record_read();
        }
        let bytes = self.padded(context, offset, len)?;
        self.record_read();
        Ok(bytes)
    }
}

impl DecodedChunk {
    /// Counts the first read of the file as a read of the stored chunk.
    fn record_read(&self) {
        if !self.is_read.swap(true, Ordering::Relaxed) {
            self.elements.array().record_chunk_read(self.chunk);
        }
    }

    /// Returns bytes of the file, with padding for elements outside the array.
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

/// The open file of a chunk of variable-length elements, which were encoded at the open.
struct EncodedChunk {
    array: Arc<OpenArray>,
    bytes: ReservedBytes,
    /// The state of the array's content at the last call of `may_have_changed`.
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

/// Pads the elements of a chunk at the edge of the array to a whole chunk.
///
/// In C order, the elements inside the array are a subsequence of the elements of the whole chunk. So in any range of
/// the whole chunk, the elements inside the array are contiguous in the sequence of elements inside.
struct Padding {
    /// Number of the chunk's elements inside the array, along each dimension.
    inside: Coordinates,
    /// Number of elements of the whole chunk, along each dimension.
    whole: Box<[u64]>,
    /// The element that fills the chunk beyond the edge of the array, without a length prefix if elements have variable
    /// length.
    fill: Vec<u8>,
}

impl Padding {
    /// Creates the padding of a chunk of shape `whole`, of which `region` is inside the array. Returns `None` if no
    /// element is outside.
    fn new(region: &Region, whole: &[u64], fill: &[u8]) -> Option<Padding> {
        (*region.shape != *whole).then(|| Padding {
            inside: region.shape.clone(),
            whole: whole.into(),
            fill: fill.to_vec(),
        })
    }

    /// Returns how many of the first `count` elements of the whole chunk are inside the array.
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

    /// Returns which of the chunk's elements inside the array are in a range of the whole chunk.
    fn inside_of(&self, range: &Range<u64>) -> Range<u64> {
        self.inside_before(range.start)..self.inside_before(range.end)
    }

    /// Divides a range of the whole chunk into runs of elements inside and outside the array. Calls `put` for each run,
    /// in order, with whether it is inside and its number of elements.
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

    /// Returns the elements of a range of the whole chunk. `inside` has the elements of the range that are inside the
    /// array.
    fn padded(&self, range: &Range<u64>, inside: &[u8]) -> Result<Vec<u8>> {
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

    /// Calls `put` with each variable-length element of the whole chunk: the next element of `inside`, or the fill
    /// value outside the array.
    fn each<'a>(
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
        fn any_range_is_the_slice_of_the_padded_chunk(axes in boxes(), part in (0_u64..300, 0_u64..300)) {
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
