//! Reads bytes of a shard, and caches the indexes of an array's shards.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::chunk::{CHUNK_OVERHEAD, CacheKey, Cached, CachedShardIndex};
use crate::array::open_chunk::OpenChunk;
use crate::array::stored_array::StoredArray;
use zarr_format::codec::ShardLevel;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::sync::budget::Reservation;

/// A shard: a whole stored object, or with nested shards a byte range of it.
pub(super) struct Shard<'a> {
    pub(super) stored: &'a OpenChunk,
    pub(super) start: u64,
    pub(super) length: u64,
}

impl Shard<'_> {
    pub(super) fn whole(stored: &OpenChunk) -> Shard<'_> {
        Shard {
            stored,
            start: 0,
            length: stored.meta.size,
        }
    }

    /// Creates a nested shard, which is a byte range of a stored object.
    pub(super) fn part(stored: &OpenChunk, place: Range<u64>) -> Shard<'_> {
        Shard {
            stored,
            start: place.start,
            length: place.end.saturating_sub(place.start),
        }
    }

    /// Reads `length` bytes of the shard; `Corrupt` if the object is too short, `Changed` if the object may have
    /// changed.
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

/// Reads and caches the indexes of the shards of an array.
pub(super) struct ShardIndexes {
    array: Arc<StoredArray>,
}

impl ShardIndexes {
    /// Creates the reader of shard indexes. They are cached with the decoded chunks of all arrays of the mount.
    pub(super) fn new(array: Arc<StoredArray>) -> Arc<ShardIndexes> {
        Arc::new(ShardIndexes { array })
    }

    /// Returns the index of a shard, from the cache or fetched. The shard is given by its nesting depth and its number
    /// among all shards of that depth.
    pub(super) fn get(
        &self,
        context: &RequestContext,
        level: &ShardLevel,
        depth: u8,
        number: u64,
        shard: &Shard,
        deadline: Instant,
    ) -> Result<Arc<CachedShardIndex>> {
        let key = self.key(depth, number);
        if let Some(Cached::Index(index)) = self.array.engine.cache.get(&key) {
            if index.version == shard.stored.meta.version {
                return Ok(index);
            }
            self.array.engine.cache.forget(&key);
        }
        let loaded = self.array.engine.cache.load(context, &key, deadline, || {
            self.load(context, level, shard, deadline)
                .map(|index| Cached::Index(Arc::new(index)))
        });
        match loaded? {
            Cached::Index(index) if index.version.may_be(shard.stored.meta.version) => Ok(index),
            // The index was loaded by another reader, which had opened another version of the shard.
            Cached::Index(_) => Err(shard.stored.changed()),
            Cached::Chunk(_) => Err(Error::corrupt(
                &shard.stored.key,
                "a fault in zarrfs: found a chunk instead of an index",
            )),
        }
    }

    fn key(&self, depth: u8, number: u64) -> CacheKey {
        CacheKey {
            array: self.array.id,
            depth,
            number,
        }
    }

    fn load(
        &self,
        context: &RequestContext,
        level: &ShardLevel,
        shard: &Shard,
        deadline: Instant,
    ) -> Result<CachedShardIndex> {
        let length = level.index_bytes() as u64;
        if length > shard.length {
            shard.stored.check_unchanged(context)?;
            let found = format!(
                "a shard of {} bytes is too short for an index of {length} bytes",
                shard.length
            );
            return Err(Error::corrupt(&shard.stored.key, found));
        }
        let room = self
            .array
            .engine
            .cache
            .reserve(room_of_index(length), deadline)?;
        let start = if level.index_at_end() {
            shard.length - length
        } else {
            0
        };
        let bytes = shard.read(context, start, length)?;
        let index = decoded_index(level, shard, &bytes, room);
        index.map_err(|error| error.about(&shard.stored.key))
    }

    /// Caches the index bytes that were fetched when a shard was opened. An index that cannot be decoded is not cached:
    /// it is fetched again when a read needs it, and that read returns the error.
    pub(super) fn keep(&self, level: &ShardLevel, number: u64, stored: &OpenChunk, bytes: &[u8]) {
        let length = bytes.len() as u64;
        let Some(room) = self
            .array
            .engine
            .cache
            .budget()
            .try_reserve(room_of_index(length))
        else {
            return;
        };
        if let Ok(index) = decoded_index(level, &Shard::whole(stored), bytes, room) {
            let (key, index) = (self.key(1, number), Cached::Index(Arc::new(index)));
            self.array.engine.cache.forget(&key);
            // If another load has cached the index first, the cached index stays.
            let _ = (self.array.engine.cache).load(
                &UNLIMITED,
                &key,
                self.array.engine.deadline(),
                || Ok(index),
            );
        }
    }

    /// Drops the index of a stored shard from the cache; with `holds_shards`, also the indexes of all nested shards.
    pub(super) fn forget(&self, number: u64, holds_shards: bool) {
        let cache = &self.array.engine.cache;
        cache.forget(&self.key(1, number));
        if holds_shards {
            cache.forget_all(|key| key.array == self.array.id && key.depth > 1);
        }
    }
}

/// Returns the memory that an index of `length` bytes needs, encoded and decoded.
fn room_of_index(length: u64) -> u64 {
    length.saturating_mul(2).saturating_add(CHUNK_OVERHEAD)
}

/// Decodes the index of a shard; `room` is the memory that is reserved for the encoded and decoded index.
fn decoded_index(
    level: &ShardLevel,
    shard: &Shard,
    bytes: &[u8],
    mut room: Reservation,
) -> Result<CachedShardIndex> {
    let entries = level.decode_index(bytes, shard.length)?;
    room.shrink(entries.memory() as u64 + CHUNK_OVERHEAD);
    Ok(CachedShardIndex {
        entries,
        version: shard.stored.meta.version,
        _room: room,
    })
}
