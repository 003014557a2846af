//! Loads single inner chunks of shards.
//!
//! Only the indexes on the path to an inner chunk and its own bytes are fetched. All of them must be from one content
//! of the stored key: the object's version is checked after each read, and if it has changed, everything is read again.

use std::borrow::Cow;
use std::sync::Arc;

use crate::array::chunk::{ChunkLocation, DecodedChunk, MissingChunk};
use crate::array::decoder::{Decoder, Load};
use crate::array::open_chunk::OpenChunk;
use crate::array::open_chunks::OpenChunks;
use crate::array::shard::{Shard, ShardIndexes};
use crate::array::shard_groups::ShardGroups;
use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;

pub(super) struct ShardReader {
    array: Arc<StoredArray>,
    decoder: Arc<Decoder>,
    open: Arc<OpenChunks>,
    indexes: Arc<ShardIndexes>,
    groups: Arc<ShardGroups>,
}

impl ShardReader {
    pub(super) fn new(
        array: Arc<StoredArray>,
        decoder: Arc<Decoder>,
        open: Arc<OpenChunks>,
        indexes: Arc<ShardIndexes>,
        groups: Arc<ShardGroups>,
    ) -> Arc<ShardReader> {
        Arc::new(ShardReader {
            array,
            decoder,
            open,
            indexes,
            groups,
        })
    }

    pub(super) fn load(
        &self,
        context: &RequestContext,
        load: &Load,
    ) -> Result<Option<DecodedChunk>> {
        let number = load.location.stored;
        let read = self.open.read(context, number, |stored| {
            self.inner_of(context, load, stored)
        });
        Ok(read?.flatten())
    }

    /// Returns the reason why an inner chunk is missing, or `None` if the inner chunk is stored.
    pub(super) fn find_missing(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
    ) -> Result<Option<MissingChunk>> {
        let load = Load {
            chunk,
            pipeline: self.decoder.pipeline_of(ChunkIndex(location.stored))?,
            location,
            known: None,
            estimated: None,
            deadline: self.array.engine.deadline(),
        };
        let read = self.open.read(context, location.stored, |stored| {
            let is_stored = self.find_inner(context, &load, stored)?.is_some();
            Ok((!is_stored).then_some(stored.meta.version))
        });
        Ok(match read? {
            None => Some(MissingChunk::Shard),
            Some(version) => version.map(MissingChunk::InnerChunk),
        })
    }

    /// Whether a stored chunk, in `version` or by default in its current version, lacks all inner chunks in `chunks`.
    pub(super) fn are_missing(
        &self,
        context: &RequestContext,
        number: u64,
        version: Option<Version>,
        chunks: &[ChunkIndex],
    ) -> Result<bool> {
        let pipeline = self.decoder.pipeline_of(ChunkIndex(number))?;
        let are_missing = self.open.read(context, number, |stored| {
            if version.is_some_and(|version| !version.may_be(stored.meta.version)) {
                return Ok(false);
            }
            for &chunk in chunks {
                let load = Load {
                    chunk,
                    pipeline: pipeline.clone(),
                    location: &self.decoder.locate(chunk),
                    known: None,
                    estimated: None,
                    deadline: self.array.engine.deadline(),
                };
                if self.find_inner(context, &load, stored)?.is_some() {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        Ok(are_missing?.unwrap_or(version.is_none()))
    }

    /// Returns the byte range of an inner chunk in its stored object, or `None` if the inner chunk is not stored.
    fn find_inner<'a>(
        &self,
        context: &RequestContext,
        load: &Load,
        stored: &'a OpenChunk,
    ) -> Result<Option<Shard<'a>>> {
        let mut shard = Shard::whole(stored);
        for (depth, level) in load.pipeline.shards().iter().enumerate() {
            let number = self.index_number(load, depth);
            let depth_key =
                u8::try_from(depth + 1).map_err(|error| Error::too_large(&stored.key, error))?;
            let index =
                self.indexes
                    .get(context, level, depth_key, number, &shard, load.deadline)?;
            let entry = load
                .location
                .inner
                .get(depth)
                .copied()
                .unwrap_or(usize::MAX);
            let range = index.entries.range(entry);
            let Some(range) = range.map_err(|error| error.about(&stored.key))? else {
                return Ok(None);
            };
            shard.start += range.start;
            shard.length = range.end - range.start;
        }
        Ok(Some(shard))
    }

    fn inner_of(
        &self,
        context: &RequestContext,
        load: &Load,
        stored: &OpenChunk,
    ) -> Result<Option<DecodedChunk>> {
        let Some(shard) = self.find_inner(context, load, stored)? else {
            return Ok(None);
        };
        self.decoder.check_length(load, &stored.key, shard.length)?;
        let room = self.decoder.reserve(load, shard.length)?;
        let range = shard.start..shard.start + shard.length;
        let part = self.groups.bytes_of(context, load, stored, &range)?;
        let encoded = match &part {
            Some(part) => Cow::Borrowed(&part[..]),
            None => Cow::Owned(shard.read(context, 0, shard.length)?),
        };
        self.decoder
            .decode(load, &stored.key, stored.meta.version, encoded, room)
            .map(Some)
    }

    /// Returns the number of a shard among all shards of its depth. For the numbers, each outer shard counts as having
    /// as many inner chunks as the largest shard.
    fn index_number(&self, load: &Load, depth: usize) -> u64 {
        let levels = self.decoder.pipeline.shards();
        let outer = levels.iter().zip(&load.location.inner).take(depth);
        outer.fold(load.location.stored, |number, (level, &inner)| {
            let count: u64 = level.chunks_per_shard().iter().product();
            number.wrapping_mul(count).wrapping_add(inner as u64)
        })
    }
}
