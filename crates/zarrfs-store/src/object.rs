//! Objects of a store: bytes, metadata, and readers.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::request_context::RequestContext;
use crate::{Key, Version};
use zarr_format::buffer::Buffer;
use zarr_format::error::{Error, Result};

/// The metadata of an object: everything but its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Whether the entry is a file, a directory or a link.
    pub kind: EntryKind,
    /// Length of the object in bytes, or 0 for a directory that is not an object as well.
    pub size: u64,
    /// Bytes that the object takes on the disk or in the archive.
    pub stored: u64,
    /// Time of the last change, or `UNIX_EPOCH` if the store does not say.
    pub modified: SystemTime,
    /// Version of the object's content.
    pub version: Version,
}

impl Meta {
    pub(crate) fn content(&self) -> Content {
        let (version, size) = (self.version, self.size);
        Content { version, size }
    }

    /// Whether two metadata may describe the same content. If only one of them has an ETag, sizes and times are
    /// compared, since some listings have no ETags.
    pub(crate) fn may_be_of(&self, other: &Meta) -> bool {
        let is_same_time = || {
            let is_one_lasting = self.version.is_lasting() != other.version.is_lasting();
            is_one_lasting && self.seconds() != 0 && self.seconds() == other.seconds()
        };
        self.size == other.size && (self.version.may_be(other.version) || is_same_time())
    }

    /// Returns the time of the last change in seconds since 1970; 0 if the store does not say.
    fn seconds(&self) -> u64 {
        let since = self.modified.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// Returns the metadata of a prefix that is not an object.
    pub fn prefix() -> Meta {
        Meta {
            kind: EntryKind::Directory,
            size: 0,
            stored: 0,
            modified: UNIX_EPOCH,
            version: Version::NONE,
        }
    }
}

/// The type of an entry in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An object of the store.
    File,
    /// A prefix of the keys of other objects.
    Directory,
    /// A symbolic link in a local store that leads to a path in the store.
    Link,
}

/// The bytes of an object, with its version.
#[derive(Clone, Debug)]
pub struct Object {
    /// The bytes of the whole object or of the requested range.
    pub bytes: Vec<u8>,
    /// Length of the whole object, in bytes.
    pub size: u64,
    /// Version of the object's content.
    pub version: Version,
    /// Time of the last change, or `None` if the store does not say.
    pub modified: Option<SystemTime>,
}

impl Object {
    pub(crate) fn content(&self) -> Content {
        let (version, size) = (self.version, self.size);
        Content { version, size }
    }

    /// Returns the metadata of the object, as far as they came with its bytes.
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            kind: EntryKind::File,
            size: self.size,
            stored: self.size,
            modified: self.modified.unwrap_or(UNIX_EPOCH),
            version: self.version,
        }
    }

    pub(crate) fn without_bytes(meta: &Meta) -> Object {
        Object {
            bytes: Vec::new(),
            size: meta.size,
            version: meta.version,
            modified: Some(meta.modified),
        }
    }
}

/// The range of an object that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// The bytes from start to end, as far as the object has them.
    Span(Range<u64>),
    /// The last N bytes of the object.
    Suffix(u64),
}

impl ByteRange {
    /// Returns the start and end of the range in an object of `size` bytes.
    pub fn within(&self, size: u64) -> Range<u64> {
        match self {
            ByteRange::Span(span) => {
                span.start.min(size)..span.end.min(size).max(span.start.min(size))
            }
            ByteRange::Suffix(length) => size.saturating_sub(*length)..size,
        }
    }
}

/// The version and length of an object, which identify its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) version: Version,
    pub(crate) size: u64,
}

/// Returns `Unavailable` if the length differs from the known length of the same version: a caching proxy may serve
/// half of a response as if it were complete.
pub(crate) fn check_length(key: &Key, received: Content, known: Content) -> Result<()> {
    if received.version != known.version || received.size == known.size {
        return Ok(());
    }
    let (received, known) = (received.size, known.size);
    let text =
        format!("the response has {received} bytes, but this version of the object has {known}");
    Err(Error::unavailable(key, text))
}

/// An open object. Its content at the time of opening stays readable when the key is replaced or erased, or reads fail
/// with `Changed`. A local file that is overwritten in place shows its new bytes: a caller that needs all reads to be
/// of one content compares `meta` after the last read.
pub trait Reader: Send + Sync {
    /// Returns up to `len` bytes at `offset`; fewer only at the end of the object.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Fills several buffers with the object's bytes from `offset` on. Returns the number of bytes, which is fewer than
    /// requested only at the end of the object.
    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(context, offset, wanted)?;
        scatter(&bytes, parts);
        Ok(bytes.len())
    }
    /// Returns the bytes of several ranges, which must ascend and not overlap. One read may fetch all ranges and the
    /// gaps between them; its memory is freed when the last range is dropped. A range is shorter than requested only at
    /// the end of the object.
    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        read_together(ranges, |offset, length| {
            self.read_at(context, offset, length)
        })
    }
    /// Returns the present metadata of the object.
    fn meta(&self, context: &RequestContext) -> Result<Meta>;
    /// Returns a local file that contains exactly the object's bytes, or `None` if there is no such file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Copies bytes into the buffers, one after the other, until the bytes or the buffers end.
pub fn scatter(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len().min(rest.len()));
        part[..now.len()].copy_from_slice(now);
        rest = later;
    }
}

/// Reads several ascending ranges by one call of `read`, which takes an offset and a length. The results share the
/// memory of the buffer that `read` returns. The error is `Invalid` if the ranges overlap or descend.
pub(crate) fn read_together(
    ranges: &[Range<u64>],
    read: impl FnOnce(u64, usize) -> Result<Vec<u8>>,
) -> Result<Vec<Bytes>> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return Ok(Vec::new());
    };
    let ascend = |pair: &[Range<u64>]| matches!(pair, [a, b] if a.end <= b.start);
    let is_ordered = ranges.iter().all(|range| range.start <= range.end);
    if !is_ordered || !ranges.windows(2).all(ascend) {
        return Err(Error::invalid("", "the ranges are not in ascending order"));
    }
    let length = usize::try_from(last.end - first.start);
    let length = length.map_err(|error| Error::too_large("", error))?;
    let bytes = Bytes::from_owner(Buffer::from(read(first.start, length)?));
    let place =
        |at: u64| usize::try_from(at - first.start).map_or(bytes.len(), |at| at.min(bytes.len()));
    let part = |range: &Range<u64>| bytes.slice(place(range.start)..place(range.end));
    Ok(ranges.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ranges: &[Range<u64>], object: &[u8]) -> Result<Vec<Bytes>> {
        read_together(ranges, |offset, length| {
            let from = object.get(offset as usize..).unwrap_or_default();
            Ok(from[..length.min(from.len())].to_vec())
        })
    }

    #[test]
    fn each_range_has_its_own_bytes() {
        let object: Vec<u8> = (0..20).collect();
        let found = read(&[2..4, 4..5, 9..9, 10..13], &object).unwrap();
        assert_eq!(found, [vec![2, 3], vec![4], vec![], vec![10, 11, 12]]);
        assert!(read(&[], &object).unwrap().is_empty());
    }

    #[test]
    fn ranges_are_cut_at_the_end_of_the_object() {
        let object: Vec<u8> = (0..6).collect();
        let found = read(&[1..3, 4..8, 9..12], &object).unwrap();
        assert_eq!(found, [vec![1, 2], vec![4, 5], vec![]]);
    }

    #[test]
    fn overlapping_or_unsorted_ranges_are_refused() {
        assert!(read(&[0..3, 2..4], &[0; 8]).is_err());
        assert!(read(&[4..6, 0..3], &[0; 8]).is_err());
        let backward = Range { start: 6, end: 5 };
        assert!(read(&[0..3, backward, 7..8], &[0; 8]).is_err());
    }
}
