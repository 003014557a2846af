//! A stored shard as it lies in the store: where its index says that inner chunks are, and their bytes, not decoded.
//!
//! A shard whose index does not read is found all the same, with what is wrong; its inner chunks are that error. Of
//! shards in shards only the outermost ones count.

use std::ops::Range;
use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::piece::CachedShardIndex;
use crate::array::shard::Shard;
use crate::codec::{Pipeline, ShardLevel};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates, Grid};
use crate::store::{Key, Meta};

/// A stored shard, and its index as it is now.
pub struct ShardFile {
    /// Its key.
    pub key: Key,
    /// Its attributes.
    pub meta: Meta,
    array: Arc<OpenArray>,
    /// Its number in the grid of stored chunks.
    number: u64,
    pipeline: Arc<Pipeline>,
    /// Its inner chunks.
    inner: Grid,
    index: Result<Arc<CachedShardIndex>>,
}

/// The key of a shard, its attributes, and its index or what is wrong with that.
type FoundShard = (Key, Meta, Result<Arc<CachedShardIndex>>);

impl OpenArray {
    /// Whether its stored chunks are shards. Fails if the array cannot be decoded.
    pub fn has_shards(&self) -> Result<bool> {
        Ok(!self.decoder()?.pipeline.shards().is_empty())
    }

    /// Returns the shard with these indices; nothing if it is not stored or there is no such one.
    ///
    /// Fails if the store does, or the array cannot be decoded; not for an index that does not read.
    pub fn shard_file(self: &Arc<OpenArray>, indices: &[u64]) -> Result<Option<ShardFile>> {
        let decoder = self.decoder()?;
        let Some(ChunkIndex(number)) = self.stored_grid()?.index(indices) else {
            return Ok(None);
        };
        let pipeline = decoder.pipeline_of(ChunkIndex(number))?;
        let Some(level) = pipeline.shards().first() else {
            return Ok(None);
        };
        let inner = inner_grid(level)?;
        let found = self.read_index(decoder, (number, level))?;
        Ok(found.map(|(key, meta, index)| ShardFile {
            key,
            meta,
            array: self.clone(),
            number,
            pipeline: pipeline.clone(),
            inner,
            index,
        }))
    }

    /// Reads the index of a shard; what is wrong with it is part of the answer.
    fn read_index(
        &self,
        decoder: &Decoder,
        (number, level): (u64, &ShardLevel),
    ) -> Result<Option<FoundShard>> {
        let deadline = self.engine.deadline();
        self.read_stored(decoder, number, |stored| {
            let shard = Shard::whole(stored);
            let index = match self.index(level, (1, number), &shard, deadline) {
                Err(error) if error.kind() != Kind::Corrupt => return Err(error),
                index => index,
            };
            Ok((stored.key.clone(), stored.meta, index))
        })
    }
}

fn inner_grid(level: &ShardLevel) -> Result<Grid> {
    let counts = level.chunks_per_shard();
    Grid::new(counts, &vec![1; counts.len()])
}

impl ShardFile {
    /// Returns how its inner chunks are counted along each dimension.
    pub fn inner(&self) -> &Grid {
        &self.inner
    }

    /// Returns where the index lies in the shard; nothing if the shard is too short for one.
    pub fn index_range(&self) -> Option<Range<u64>> {
        let level = self.pipeline.shards().first()?;
        let (size, length) = (self.meta.size, level.index_bytes() as u64);
        let spare = size.checked_sub(length)?;
        let start = if level.index_at_end() { spare } else { 0 };
        Some(start..start + length)
    }

    /// Whether the index has a checksum.
    pub fn has_checksum(&self) -> bool {
        let levels = self.pipeline.shards().first();
        // Nothing else that codecs of a fixed length do makes an index longer than its entries.
        levels.is_some_and(|level| level.index_bytes() > level.entries_bytes())
    }

    /// Returns what is wrong with the index, if it does not read.
    pub fn fault(&self) -> Option<&Error> {
        self.index.as_ref().err()
    }

    /// Returns where an inner chunk lies in the shard, by its number in C order; nothing if it is not stored.
    ///
    /// Fails with `Corrupt` if the index does not read or names bytes outside of the shard.
    pub fn range(&self, number: u64) -> Result<Option<Range<u64>>> {
        let index = self.index.as_ref().map_err(Error::clone)?;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let range = index.entries.range(number);
        range.map_err(|error| error.about(&self.key))
    }

    /// Returns the indices of an inner chunk, counted in the shard.
    pub fn indices(&self, number: u64) -> Coordinates {
        self.inner.indices(ChunkIndex(number))
    }

    /// Reads a part of the shard; `Changed` if the shard is another one now, `Corrupt` if it is shorter.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let decoder = self.array.decoder()?;
        let read = self.array.read_stored(decoder, self.number, |stored| {
            if stored.meta.version != self.meta.version {
                // Not `Changed`, by which it would be opened anew.
                return Ok(None);
            }
            let bytes = Shard::whole(stored).read(range.start, range.end - range.start)?;
            Ok(Some(bytes))
        });
        let changed = || Error::new(Kind::Changed, &self.key, "was written since it was opened");
        read?.flatten().ok_or_else(changed)
    }
}
