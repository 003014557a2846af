//! Holds variable-length elements one after the other, in reserved memory.

use std::ops::{Deref, Range};

use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Region;
use zarr_format::model::{DataType, bytes_of};
use zarrfs_store::sync::budget::Reservation;

const PREFIX: usize = 4;

/// Variable-length elements in C order, each with its length in bytes (u32, little-endian) before its bytes.
pub struct VlenElements {
    data_type: DataType,
    bytes: ReservedBytes,
    len: usize,
}

impl VlenElements {
    /// Creates `len` elements from bytes that already have the length prefixes.
    pub(super) fn new(data_type: DataType, bytes: ReservedBytes, len: usize) -> VlenElements {
        VlenElements {
            data_type,
            bytes,
            len,
        }
    }

    /// Returns the data type of the variable-length elements.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the bytes of all elements with their length prefixes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of all elements with their length prefixes, without a copy.
    pub fn into_bytes(self) -> ReservedBytes {
        self.bytes
    }

    /// Returns the byte range of the element whose length prefix begins at `start`, without the prefix; an empty range
    /// if `start` is the end of the bytes.
    pub fn after(&self, start: usize) -> Range<usize> {
        let rest = self.bytes().get(start..).and_then(split);
        rest.map_or(start..start, |(element, after)| {
            let end = self.bytes().len() - after.len();
            end - element.len()..end
        })
    }

    /// Iterates over the elements, each without its length prefix.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (element, after) = split(rest)?;
            rest = after;
            Some(element)
        })
    }
}

impl VlenElements {
    /// Copies the elements with the given numbers, in the given order.
    pub fn picked(&self, numbers: &[usize], mut out: ReservedBuffer<'_>) -> Result<VlenElements> {
        let all: Vec<&[u8]> = self.iter().collect();
        for &number in numbers {
            let element = all.get(number).copied().unwrap_or_default();
            let length = u32::try_from(element.len());
            let length = length.map_err(|error| Error::too_large(&out.array.path, error))?;
            out.push(&length.to_le_bytes())?;
            out.push(element)?;
        }
        Ok(VlenElements {
            data_type: self.data_type.clone(),
            bytes: out.finish(),
            len: numbers.len(),
        })
    }
}

/// Splits off the first element; returns it without its length prefix, and the bytes after it.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<PREFIX>()?;
    rest.split_at_checked(u32::from_le_bytes(*count) as usize)
}

/// Bytes, and the reservation of their memory.
#[derive(Default)]
pub struct ReservedBytes {
    bytes: Vec<u8>,
    room: Vec<Reservation>,
}

impl ReservedBytes {
    /// Whether the memory of the bytes is charged to the budget.
    pub fn is_counted(&self) -> bool {
        !self.room.is_empty()
    }
}

impl From<Vec<u8>> for ReservedBytes {
    /// Wraps bytes whose memory is not charged to the budget.
    fn from(bytes: Vec<u8>) -> ReservedBytes {
        ReservedBytes {
            bytes,
            room: Vec::new(),
        }
    }
}

impl Deref for ReservedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A growing buffer of variable-length elements, whose memory is reserved before it is filled.
pub struct ReservedBuffer<'a> {
    array: &'a StoredArray,
    bytes: Vec<u8>,
    room: Vec<Reservation>,
    /// Bytes of the chunks that are in memory while their elements are copied into the buffer.
    pub(super) held: u64,
    limit: u64,
}

impl ReservedBuffer<'_> {
    /// Creates a buffer that may grow to 1/2 of the memory budget.
    pub(super) fn new(array: &StoredArray) -> ReservedBuffer<'_> {
        ReservedBuffer {
            array,
            bytes: Vec::new(),
            room: Vec::new(),
            held: 0,
            limit: array.engine.limits.memory / 2,
        }
    }

    /// Returns the number of elements of a box; `TooLarge` if not even empty elements would fit into the buffer.
    pub(super) fn count(&self, region: &Region) -> Result<usize> {
        let count = usize::try_from(bytes_of(&region.shape, 1)?).ok();
        let most = self.limit / PREFIX as u64;
        let count = count.filter(|&count| count as u64 <= most);
        count.ok_or_else(|| self.too_large())
    }

    fn too_large(&self) -> Error {
        // The hint names a slice of this array, because a file of a group cannot be sliced, but a file of its array
        // can.
        let name = String::from_utf8_lossy(self.array.path.name());
        let (limit, memory) = (self.limit, self.array.engine.cache.budget().option());
        let found = format!(
            "the elements need more than {limit} bytes, half of --memory {memory}: give more --memory, or select a part, \
             such as {name}@0:1000"
        );
        Error::too_large(&self.array.path, found)
    }

    /// Returns the maximum length of the buffer in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Fails with `TooLarge` if `more` further bytes do not fit into the buffer.
    pub fn check_room(&self, more: u64) -> Result<()> {
        let length = (self.bytes.len() as u64).saturating_add(more);
        if length.saturating_add(self.held) > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Counts the bytes of a chunk that stays in memory while its elements are copied.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        self.held += bytes;
        if self.held + self.bytes.len() as u64 > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Appends bytes to the buffer; `TooLarge` if the buffer needs more than 1/2 of the memory budget, together with
    /// the chunks that are in memory during the copy.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let (length, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if length as u64 + self.held > self.limit {
            return Err(self.too_large());
        }
        if length > capacity {
            let grown = length.max(capacity + (capacity / 2).max(1 << 16));
            let grown = grown.min(usize::try_from(self.limit).unwrap_or(usize::MAX));
            self.room
                .push(self.array.reserve((grown - capacity) as u64)?);
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the filled buffer.
    pub fn finish(self) -> ReservedBytes {
        ReservedBytes {
            bytes: self.bytes,
            room: self.room,
        }
    }
}
