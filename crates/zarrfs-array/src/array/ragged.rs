//! Elements without a fixed length, one after the other in memory that is reserved first.

use std::ops::{Deref, Range};

use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarr_format::grid::Region;
use zarr_format::model::{DataType, bytes_of};
use zarrfs_store::sync::budget::Reservation;

/// Bytes of the length before an element.
const PREFIX: usize = 4;

/// Elements in C order, each its length in bytes (u32, little-endian) and its bytes.
pub struct RaggedElements {
    data_type: DataType,
    bytes: ReservedBytes,
    len: usize,
}

impl RaggedElements {
    /// Takes `len` elements with their lengths.
    pub(super) fn new(data_type: DataType, bytes: ReservedBytes, len: usize) -> RaggedElements {
        RaggedElements {
            data_type,
            bytes,
            len,
        }
    }

    /// Returns the type of the elements.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Returns the elements with their lengths.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns how many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the elements with their lengths, without a copy.
    pub fn into_bytes(self) -> ReservedBytes {
        self.bytes
    }

    /// Returns where the element lies that begins at byte `start`, without its length; an empty range at the end.
    pub fn after(&self, start: usize) -> Range<usize> {
        let rest = self.bytes().get(start..).and_then(split);
        rest.map_or(start..start, |(element, after)| {
            let end = self.bytes().len() - after.len();
            end - element.len()..end
        })
    }

    /// Returns the elements one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes();
        std::iter::from_fn(move || {
            let (element, after) = split(rest)?;
            rest = after;
            Some(element)
        })
    }
}

impl RaggedElements {
    /// Puts elements together by their numbers, in any order.
    pub fn picked(&self, numbers: &[usize], mut out: Growing<'_>) -> Result<RaggedElements> {
        let all: Vec<&[u8]> = self.iter().collect();
        for &number in numbers {
            let element = all.get(number).copied().unwrap_or_default();
            let length = u32::try_from(element.len());
            let length = length.map_err(|error| Error::too_large(&out.array.path, error))?;
            out.push(&length.to_le_bytes())?;
            out.push(element)?;
        }
        Ok(RaggedElements {
            data_type: self.data_type.clone(),
            bytes: out.finish(),
            len: numbers.len(),
        })
    }
}

/// Splits the first element off; returns it without its length, and the rest.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<PREFIX>()?;
    rest.split_at_checked(u32::from_le_bytes(*count) as usize)
}

/// Bytes and the room that they take in the budget.
#[derive(Default)]
pub struct ReservedBytes {
    bytes: Vec<u8>,
    room: Vec<Reservation>,
}

impl ReservedBytes {
    /// Whether the bytes take room in the budget.
    pub fn is_counted(&self) -> bool {
        !self.room.is_empty()
    }
}

impl From<Vec<u8>> for ReservedBytes {
    /// Holds bytes that take no room in the budget.
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

/// Bytes being put together; their room in the budget is taken before they are there.
pub struct Growing<'a> {
    array: &'a StoredArray,
    bytes: Vec<u8>,
    room: Vec<Reservation>,
    /// Bytes of the chunks that are held meanwhile.
    pub(super) held: u64,
    limit: u64,
}

/// The least room that is taken at a time, in bytes.
const MIN_GROWTH: usize = 1 << 16;

impl Growing<'_> {
    /// Begins to put bytes together, of at most half of the budget.
    pub(super) fn new(array: &StoredArray) -> Growing<'_> {
        Growing {
            array,
            bytes: Vec::new(),
            room: Vec::new(),
            held: 0,
            limit: array.engine.limits.memory / 2,
        }
    }

    /// Returns the number of elements of a box; `TooLarge` if even empty ones need more than there may be.
    pub(super) fn count(&self, region: &Region) -> Result<usize> {
        let count = usize::try_from(bytes_of(&region.shape, 1)?).ok();
        let most = self.limit / PREFIX as u64;
        let count = count.filter(|&count| count as u64 <= most);
        count.ok_or_else(|| self.too_large())
    }

    fn too_large(&self) -> Error {
        // A file of a group has no part of this kind, and one of its arrays has.
        let name = String::from_utf8_lossy(self.array.path.name());
        let (limit, memory) = (self.limit, self.array.engine.cache.budget().option());
        let found = format!(
            "its elements need more than {limit} bytes, half of --memory, which is {memory}: give more --memory, or take a \
             part, as {name}@0:1000 does"
        );
        Error::too_large(&self.array.path, found)
    }

    /// Returns the most bytes that there may be.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// `TooLarge` if so many more bytes are too many.
    pub fn check_room(&self, more: u64) -> Result<()> {
        let length = (self.bytes.len() as u64).saturating_add(more);
        if length.saturating_add(self.held) > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Counts a chunk that is held.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<()> {
        self.held += bytes;
        if self.held + self.bytes.len() as u64 > self.limit {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Appends bytes; `TooLarge` if they and the chunks that are held need more than half of the budget.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let (length, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if length as u64 + self.held > self.limit {
            return Err(self.too_large());
        }
        if length > capacity {
            let grown = length.max(capacity + (capacity / 2).max(MIN_GROWTH));
            let grown = grown.min(usize::try_from(self.limit).unwrap_or(usize::MAX));
            self.room
                .push(self.array.reserve((grown - capacity) as u64)?);
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns what was put together.
    pub fn finish(self) -> ReservedBytes {
        ReservedBytes {
            bytes: self.bytes,
            room: self.room,
        }
    }
}
