//! Reads a stored shard: its index, and the bytes of its inner chunks.
//!
//! A shard with an unreadable index can be opened, and its inner chunks return the error of the index. With nested
//! shards, an inner chunk is itself a shard, whose bytes are a range of the stored object.

use std::ops::Range;
use std::sync::Arc;

use crate::array::chunk::CachedShardIndex;
use crate::array::chunk_reader::ChunkReader;
use crate::array::open_chunk::OpenChunk;
use crate::array::shard::Shard;
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Grid};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Meta};

/// A shard that is stored under its own key or nested in another shard, with its index.
pub struct ShardFile {
    /// The key of the stored object that contains the shard.
    pub key: Key,
    meta: Meta,
    reader: Arc<ChunkReader>,
    number: u64,
    pipeline: Arc<Pipeline>,
    place: ShardPlace,
    inner: Grid,
    index: Result<Arc<CachedShardIndex>>,
}

#[derive(Clone)]
struct ShardPlace {
    /// The number of shards that the shard is nested in.
    depth: usize,
    bytes: Range<u64>,
    number: u64,
}

struct OpenedShard {
    key: Key,
    meta: Meta,
    place: ShardPlace,
    index: Result<Arc<CachedShardIndex>>,
}

/// Reads the index of a shard; the error of an unreadable index is part of the result.
fn read_index(
    reader: &ChunkReader,
    context: &RequestContext,
    level: &ShardLevel,
    place: ShardPlace,
    stored: &OpenChunk,
) -> Result<OpenedShard> {
    let shard = Shard::part(stored, place.bytes.clone());
    let depth = u8::try_from(place.depth + 1);
    let depth = depth.map_err(|error| Error::too_large(&stored.key, error))?;
    let deadline = reader.array.engine.deadline();
    let index = match reader
        .indexes
        .get(context, level, depth, place.number, &shard, deadline)
    {
        Err(error) if error.kind() != Kind::Corrupt => return Err(error),
        index => index,
    };
    Ok(OpenedShard {
        key: stored.key.clone(),
        meta: stored.meta,
        place,
        index,
    })
}

fn inner_grid(level: &ShardLevel) -> Result<Grid> {
    let counts = level.chunks_per_shard();
    Grid::new(counts, &vec![1; counts.len()])
}

impl ShardFile {
    /// Returns the shard with these indices, or `None` if it is not stored or outside the grid.
    ///
    /// Fails if a request fails or the array cannot be decoded; an unreadable shard index is no error here.
    pub(super) fn find(
        reader: &Arc<ChunkReader>,
        context: &RequestContext,
        indices: &[u64],
    ) -> Result<Option<ShardFile>> {
        let Some(ChunkIndex(number)) = reader.decoder.stored.index(indices) else {
            return Ok(None);
        };
        let pipeline = reader.decoder.pipeline_of(ChunkIndex(number))?;
        let Some(level) = pipeline.shards().first() else {
            return Ok(None);
        };
        let inner = inner_grid(level)?;
        let found = reader.open.read(context, number, |stored| {
            let place = ShardPlace {
                depth: 0,
                bytes: 0..stored.meta.size,
                number,
            };
            read_index(reader, context, level, place, stored)
        });
        Ok(found?.map(|shard| ShardFile {
            key: shard.key,
            meta: shard.meta,
            reader: reader.clone(),
            number,
            pipeline: pipeline.clone(),
            place: shard.place,
            inner,
            index: shard.index,
        }))
    }

    /// Returns the grid of the shard's inner chunks, in which each inner chunk has one index.
    pub fn inner(&self) -> &Grid {
        &self.inner
    }

    /// Returns the decoded size of an inner chunk in bytes; 0 for elements without a fixed length.
    pub fn inner_bytes(&self) -> u64 {
        let element = self.reader.array.metadata.element_size().unwrap_or(0) as u64;
        let lengths = self.level().map_or(&[][..], ShardLevel::inner_shape).iter();
        lengths.fold(element, |all, &length| all.saturating_mul(length))
    }

    /// Returns the byte range of the shard in the stored object.
    pub fn bytes(&self) -> &Range<u64> {
        &self.place.bytes
    }

    /// Returns the length of the shard in bytes.
    pub fn byte_length(&self) -> u64 {
        self.place.bytes.end.saturating_sub(self.place.bytes.start)
    }

    /// Whether the shard's inner chunks are shards themselves.
    pub fn holds_shards(&self) -> bool {
        self.pipeline.shards().len() > self.place.depth + 1
    }

    /// Returns the nested shard that is inner chunk `number` in C order, or `None` if that inner chunk is not stored or
    /// is not a shard.
    ///
    /// Fails as `range` does, and with `Changed` if the stored object has changed.
    pub fn shard_within(&self, context: &RequestContext, number: u64) -> Result<Option<ShardFile>> {
        let levels = self.pipeline.shards();
        let Some(level) = levels.get(self.place.depth + 1) else {
            return Ok(None);
        };
        let Some(range) = self.range(number)? else {
            return Ok(None);
        };
        let start = self.place.bytes.start;
        let place = ShardPlace {
            depth: self.place.depth + 1,
            bytes: start.saturating_add(range.start)..start.saturating_add(range.end),
            number: self.number_within(number)?,
        };
        let shard = self.read_unchanged(context, |stored| {
            read_index(&self.reader, context, level, place.clone(), stored)
        })?;
        Ok(Some(ShardFile {
            key: shard.key,
            meta: shard.meta,
            reader: self.reader.clone(),
            number: self.number,
            pipeline: self.pipeline.clone(),
            place: shard.place,
            inner: inner_grid(level)?,
            index: shard.index,
        }))
    }

    /// Returns the number of a nested shard, which is inner chunk `number`, among all shards of its depth.
    fn number_within(&self, number: u64) -> Result<u64> {
        // Shards may differ in size. Numbers are computed as if each shard had as many inner chunks as the largest
        // shard, as in `ShardReader`, so that both compute the same cache key.
        let largest = self.reader.decoder.pipeline.shards();
        let level = largest.get(self.place.depth);
        let count = level.map_or(1, |level| level.chunks_per_shard().iter().product());
        Ok(self.place.number.wrapping_mul(count).wrapping_add(number))
    }

    fn level(&self) -> Option<&ShardLevel> {
        self.pipeline.shards().get(self.place.depth)
    }

    /// Returns the byte range of the shard's index in the shard, or `None` if the shard is too short for an index.
    pub fn index_range(&self) -> Option<Range<u64>> {
        let level = self.level()?;
        let (size, length) = (self.byte_length(), level.index_bytes() as u64);
        let spare = size.checked_sub(length)?;
        let start = if level.index_at_end() { spare } else { 0 };
        Some(start..start + length)
    }

    /// Whether the shard's index has a checksum.
    pub fn has_checksum(&self) -> bool {
        // Of the codecs with a fixed length, only checksums make the encoded index longer than its entries.
        self.level()
            .is_some_and(|level| level.index_bytes() > level.entries_bytes())
    }

    /// Returns the error of the shard's index, if it cannot be read.
    pub fn fault(&self) -> Option<&Error> {
        self.index.as_ref().err()
    }

    /// Returns the byte range of an inner chunk in the shard, by its number in C order, or `None` if the inner chunk is
    /// not stored.
    ///
    /// Fails with `Corrupt` if the index cannot be read or has a range outside of the shard.
    pub fn range(&self, number: u64) -> Result<Option<Range<u64>>> {
        let index = self.index.as_ref().map_err(Error::clone)?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let range = index.entries.range(number);
        range.map_err(|error| error.about(&self.key))
    }

    /// Returns the indices of an inner chunk within the shard.
    pub fn indices(&self, number: u64) -> Coordinates {
        self.inner.indices(ChunkIndex(number))
    }

    /// Reads a byte range of the shard; `Changed` if the stored object has changed, `Corrupt` if the shard is shorter.
    pub fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<Vec<u8>> {
        let length = range.end - range.start;
        self.read_unchanged(context, |stored| {
            Shard::part(stored, self.place.bytes.clone()).read(context, range.start, length)
        })
    }

    /// Reads from the stored object; `Changed` if the object is no longer the one in which the shard was found.
    fn read_unchanged<T>(
        &self,
        context: &RequestContext,
        mut read: impl FnMut(&OpenChunk) -> Result<T>,
    ) -> Result<T> {
        let read = self.reader.open.read(context, self.number, |stored| {
            if !stored.meta.version.may_be(self.meta.version) {
                // The error must not be `Changed` here, because then `OpenChunks` would open the chunk again and retry.
                return Ok(None);
            }
            read(stored).map(Some)
        });
        let changed = || Error::new(Kind::Changed, &self.key, "was changed while it was open");
        read?.flatten().ok_or_else(changed)
    }
}
