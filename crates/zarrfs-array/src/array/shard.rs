//! Reads bytes of a shard, which is a stored object or a range of one.

use std::ops::Range;

use crate::array::open_chunk::OpenChunk;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;

/// A range of a stored object that is a shard.
pub(super) struct Shard<'a> {
    pub(super) stored: &'a OpenChunk,
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Shard<'_> {
    /// Creates a shard that is a whole stored object.
    pub(super) fn whole(stored: &OpenChunk) -> Shard<'_> {
        Shard {
            stored,
            start: 0,
            length: stored.meta.size,
        }
    }

    /// Creates a shard that is a range of a stored object.
    pub(super) fn part(stored: &OpenChunk, place: Range<u64>) -> Shard<'_> {
        Shard {
            stored,
            start: place.start,
            length: place.end.saturating_sub(place.start),
        }
    }

    /// Reads `length` bytes; `Corrupt` if there are fewer, `Changed` if the object may have changed.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>> {
        let key = &self.stored.key;
        let wanted = usize::try_from(length).map_err(|error| Error::too_large(key, error))?;
        let bytes = self
            .stored
            .reader
            .read_at(context, self.start + offset, wanted)?;
        self.stored.check_unchanged(context)?;
        if bytes.len() == wanted {
            return Ok(bytes);
        }
        let found = format!("expected {wanted} bytes, found {}", bytes.len());
        Err(Error::corrupt(key, found))
    }
}
