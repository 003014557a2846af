//! Reads an Icechunk manifest, which has the references to the chunks of arrays.

use std::cmp::Ordering;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use zstd::dict::DecoderDictionary;

use crate::Key;
use crate::backend::reference::{Location, Part, PartIdentity, Reference};
use crate::sync::budget::Reservation;
use zarr_format::error::{Error, Result};

use super::file::Id;
use super::flatbuffer::{Numbers, Table, Vector, damaged};

/// The identifier of an array or group in an Icechunk repository.
pub(super) type NodeId = [u8; 8];

/// The buffer of an Icechunk manifest, checked.
pub(super) struct Manifest {
    buffer: Bytes,
    /// The zstd dictionary of compressed URLs of virtual chunks, if the manifest has one.
    dictionary: Option<DecoderDictionary<'static>>,
    _memory: Reservation,
}

impl Manifest {
    /// Checks a manifest's buffer: the chunk references of each array must be sorted by their coordinates.
    pub(super) fn new(buffer: Vec<u8>, memory: Reservation) -> Result<Manifest> {
        let dictionary = Table::root(&buffer)?.bytes(2)?.map(DecoderDictionary::copy);
        let manifest = Manifest {
            buffer: buffer.into(),
            dictionary,
            _memory: memory,
        };
        let mut count = 0;
        for array in Table::root(&manifest.buffer)?.tables(1)?.iter_tables() {
            let references = ArrayReferences::new(array?)?;
            // A hostile manifest may let many arrays share references, so that the check of a small file would never
            // end. So the number of references is limited; a valid manifest contains each reference once.
            count += references.chunks.len();
            if count > manifest.buffer.len() {
                return Err(damaged());
            }
            references.check_order()?;
        }
        Ok(manifest)
    }

    /// Returns the chunk references of an array, or `None` if the manifest has none for the array.
    pub(super) fn of_array(&self, node: &NodeId) -> Result<Option<ArrayReferences<'_>>> {
        for array in Table::root(&self.buffer)?.tables(1)?.iter_tables() {
            let array = array?;
            if array.fixed(0)?.as_ref() == Some(node) {
                return ArrayReferences::new(array).map(Some);
            }
        }
        Ok(None)
    }

    /// Returns where the bytes of a chunk are. `container` returns the URL prefix of a named container of virtual
    /// chunks.
    pub(super) fn reference(
        &self,
        chunk: Table<'_>,
        container: impl Fn(&str) -> Result<Option<String>>,
    ) -> Result<Reference> {
        let (location, identity) = if let Some(id) = chunk.fixed(4)? {
            let key = Key::new(format!("chunks/{}", Id(id)))?;
            (Location::Repository(key), PartIdentity::Immutable)
        } else if let Some(url) = self.location(chunk)? {
            let url = absolute(&url, &container)?;
            (Location::Url(url.into()), checksum(chunk)?)
        } else {
            let bytes = chunk.bytes(1)?.ok_or_else(damaged)?;
            // A chunk inside the manifest is copied, because a slice would keep the manifest's whole buffer in memory.
            return Ok(Reference::Inline(Bytes::copy_from_slice(bytes)));
        };
        Ok(Reference::Part(Part {
            location,
            identity,
            offset: chunk.u64(2)?,
            length: Some(chunk.u64(3)?),
        }))
    }

    /// Returns the URL of a virtual chunk (a chunk outside the repository), or `None` if the chunk is inside.
    fn location(&self, chunk: Table<'_>) -> Result<Option<String>> {
        let Some(compressed) = chunk.bytes(8)? else {
            return Ok(chunk.text(5)?.map(str::to_string));
        };
        let dictionary = self.dictionary.as_ref().ok_or_else(damaged)?;
        let wrong = |error| Error::corrupt("", format!("cannot decompress a location: {error}"));
        let mut decoder =
            zstd::bulk::Decompressor::with_prepared_dictionary(dictionary).map_err(wrong)?;
        // A decompressed URL may have at most 4096 bytes, since a hostile manifest may contain any length.
        let location = decoder.decompress(compressed, 4096).map_err(wrong)?;
        let location = String::from_utf8(location);
        location
            .map(Some)
            .map_err(|error| Error::corrupt("", error))
    }
}

/// Returns how a virtual chunk's object is recognized as unchanged: by an ETag, by a time, or not at all.
fn checksum(chunk: Table<'_>) -> Result<PartIdentity> {
    if let Some(etag) = chunk.text(6)? {
        return Ok(PartIdentity::ETag(etag.into()));
    }
    Ok(match chunk.u32(7)? {
        0 => PartIdentity::Unknown,
        seconds => PartIdentity::NotModifiedAfter(seconds),
    })
}

/// Returns the absolute URL of a virtual chunk. `vcc://NAME` at its start is replaced by the URL prefix of the
/// container NAME. Percent escapes in bucket URLs are decoded, since bucket keys have no escapes.
fn absolute(url: &str, container: &dyn Fn(&str) -> Result<Option<String>>) -> Result<String> {
    if let Some((name, path)) = url
        .strip_prefix("vcc://")
        .and_then(|rest| rest.split_once('/'))
    {
        let prefix = container(name)?.ok_or_else(|| {
            let why = format!("the repository does not define the container '{name}' of a chunk");
            Error::corrupt("", why)
        })?;
        let url = format!("{}/{path}", prefix.trim_end_matches('/'));
        return absolute(&url, &|_| Ok(None));
    }
    let has_escapes = !url.starts_with("http") && !url.starts_with("file:") && url.contains('%');
    if has_escapes {
        return Ok(percent_decode_str(url).decode_utf8_lossy().into_owned());
    }
    Ok(url.to_string())
}

/// The chunk references of one array in an Icechunk manifest, sorted by the chunks' coordinates.
#[derive(Clone, Copy)]
pub(super) struct ArrayReferences<'a> {
    chunks: Vector<'a>,
}

impl<'a> ArrayReferences<'a> {
    fn new(array: Table<'a>) -> Result<ArrayReferences<'a>> {
        Ok(ArrayReferences {
            chunks: array.tables(1)?,
        })
    }

    /// Fails with `Corrupt` if chunk references are not sorted by coordinates, since a binary search would miss some.
    fn check_order(&self) -> Result<()> {
        let mut before: Option<Numbers<'_>> = None;
        for index in 0..self.chunks.len() {
            let found = self.coordinates(index)?;
            // More than 256 coordinates mean a hostile manifest, since no array has so many dimensions.
            if found.len() > 256 {
                return Err(damaged());
            }
            if before.is_some_and(|before| before.iter().cmp(found.iter()) != Ordering::Less) {
                let why = "the references of a manifest are not in order";
                return Err(Error::corrupt("", why));
            }
            before = Some(found);
        }
        Ok(())
    }

    /// Returns the reference of the chunk at the coordinates `wanted`, or `None` if the chunk is missing.
    pub(super) fn find(&self, wanted: &[u32]) -> Result<Option<Table<'a>>> {
        let index = self.first_from(wanted)?;
        if index == self.chunks.len() || self.compare(index, wanted)? != Ordering::Equal {
            return Ok(None);
        }
        self.chunks.table(index).map(Some)
    }

    /// Whether a chunk's coordinates begin with `prefix` and continue with a coordinate below `end`.
    pub(super) fn has_child(&self, prefix: &[u32], end: u32) -> Result<bool> {
        let first = [prefix, &[0]].concat();
        Ok(self
            .child_from(prefix, &first)?
            .is_some_and(|child| child < end))
    }

    /// Returns the coordinates below `end` that follow `prefix` in the coordinates of any chunk, sorted without
    /// repetitions.
    pub(super) fn children(&self, prefix: &[u32], end: u32) -> Result<Vec<u32>> {
        let mut children = Vec::new();
        let mut wanted = [prefix, &[0]].concat();
        let mut index = self.first_from(&wanted)?;
        while index < self.chunks.len()
            && let Some(child) = child_of(&self.coordinates(index)?, prefix)
            && child < end
        {
            children.push(child);
            index += 1;
            let is_same = index < self.chunks.len()
                && child_of(&self.coordinates(index)?, prefix) == Some(child);
            // A binary search skips the other chunks with the same coordinate. It costs as much as looking at some
            // twenty chunks.
            if is_same {
                let Some(next) = child.checked_add(1) else {
                    break;
                };
                if let Some(last) = wanted.last_mut() {
                    *last = next;
                }
                index = self.first_from(&wanted)?;
            }
        }
        Ok(children)
    }

    /// Returns the coordinate that follows `prefix` in the first chunk at or after the coordinates `wanted`, or `None`
    /// if that chunk's coordinates do not begin with `prefix`.
    fn child_from(&self, prefix: &[u32], wanted: &[u32]) -> Result<Option<u32>> {
        let index = self.first_from(wanted)?;
        if index == self.chunks.len() {
            return Ok(None);
        }
        Ok(child_of(&self.coordinates(index)?, prefix))
    }

    /// Returns the index of the first reference whose chunk coordinates are not before `wanted`.
    fn first_from(&self, wanted: &[u32]) -> Result<usize> {
        let (mut low, mut high) = (0, self.chunks.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare(middle, wanted)? == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn compare(&self, index: usize, wanted: &[u32]) -> Result<Ordering> {
        let found = self.coordinates(index)?;
        Ok(found.iter().cmp(wanted.iter().copied()))
    }

    fn coordinates(&self, index: usize) -> Result<Numbers<'a>> {
        self.chunks.table(index)?.u32s(0)?.ok_or_else(damaged)
    }
}

/// Returns the chunk coordinate that follows `prefix`, or `None` if the coordinates do not begin with `prefix`.
fn child_of(coordinates: &Numbers<'_>, prefix: &[u32]) -> Option<u32> {
    let begins = coordinates
        .iter()
        .take(prefix.len())
        .eq(prefix.iter().copied());
    coordinates.get(prefix.len()).filter(|_| begins)
}
