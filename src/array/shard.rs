//! Loading of one inner chunk of a shard: only the indexes on the way to it and its own bytes are fetched.
//!
//! Indexes and bytes are of one content of the stored key: after each read the object is checked to be the one that
//! was opened, and if it is not, everything is read again.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::OpenArray;
use crate::array::decoder::max_encoded;
use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::piece::{Cached, CachedShardIndex, Decoded, Lacking, Load, PIECE_OVERHEAD};
use crate::array::readers::StoredChunk;
use crate::codec::ShardLevel;
use crate::error::{Error, Result};
use crate::grid::ChunkIndex;
use crate::request_context::{RequestContext, UNLIMITED};
use crate::store::Version;
use crate::sync::budget::Reservation;

/// A range of a stored object that is a shard.
pub(super) struct Shard<'a> {
    stored: &'a StoredChunk,
    start: u64,
    length: u64,
}

impl Shard<'_> {
    /// Takes a whole stored object for a shard.
    pub(super) fn whole(stored: &StoredChunk) -> Shard<'_> {
        Shard {
            stored,
            start: 0,
            length: stored.meta.size,
        }
    }

    /// Takes a part of a stored object for a shard.
    pub(super) fn part(stored: &StoredChunk, place: Range<u64>) -> Shard<'_> {
        Shard {
            stored,
            start: place.start,
            length: place.end.saturating_sub(place.start),
        }
    }

    /// Reads `length` bytes; `Corrupt` if there are fewer, `Changed` if they may be of another content.
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

impl OpenArray {
    /// Fetches and decodes an inner chunk; nothing if it is not stored.
    pub(super) fn load_inner(
        &self,
        context: &RequestContext,
        load: &Load,
    ) -> Result<Option<Decoded>> {
        let number = load.location.stored;
        let read = self.read_stored(context, load.decoder, number, |stored| {
            self.inner_of(context, load, stored)
        });
        Ok(read?.flatten())
    }

    /// Returns what lacks an inner chunk; nothing if it is stored.
    pub(super) fn shard_without(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        (piece, location): (ChunkIndex, &PieceLocation),
    ) -> Result<Option<Lacking>> {
        let load = Load {
            decoder,
            piece,
            pipeline: decoder.pipeline_of(ChunkIndex(location.stored))?,
            location,
            known: None,
            guessed: None,
            deadline: self.engine.deadline(),
        };
        let read = self.read_stored(context, decoder, location.stored, |stored| {
            let is_stored = self.find_inner(context, &load, stored)?.is_some();
            Ok((!is_stored).then_some(stored.meta.version))
        });
        Ok(match read? {
            None => Some(Lacking::Shard),
            Some(version) => version.map(Lacking::InnerChunk),
        })
    }

    /// Whether the content of a stored chunk that has a version, or the current one, has none of some inner chunks.
    pub(super) fn lacks(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: u64,
        (version, pieces): (Option<Version>, &[ChunkIndex]),
    ) -> Result<bool> {
        let pipeline = decoder.pipeline_of(ChunkIndex(number))?;
        let lacks = self.read_stored(context, decoder, number, |stored| {
            if version.is_some_and(|version| !version.may_be(stored.meta.version)) {
                return Ok(false);
            }
            for &piece in pieces {
                let load = Load {
                    decoder,
                    piece,
                    pipeline: pipeline.clone(),
                    location: &decoder.locate(piece),
                    known: None,
                    guessed: None,
                    deadline: self.engine.deadline(),
                };
                if self.find_inner(context, &load, stored)?.is_some() {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        Ok(lacks?.unwrap_or(version.is_none()))
    }

    /// Finds where an inner chunk lies in its shard; nothing if it is not stored.
    fn find_inner<'a>(
        &self,
        context: &RequestContext,
        load: &Load,
        stored: &'a StoredChunk,
    ) -> Result<Option<Shard<'a>>> {
        let mut shard = Shard::whole(stored);
        for (depth, level) in load.pipeline.shards().iter().enumerate() {
            let number = index_number(load, depth);
            let depth_key =
                u8::try_from(depth + 1).map_err(|error| Error::too_large(&stored.key, error))?;
            let index = self.index(context, level, (depth_key, number), &shard, load.deadline)?;
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
        stored: &StoredChunk,
    ) -> Result<Option<Decoded>> {
        let Some(shard) = self.find_inner(context, load, stored)? else {
            return Ok(None);
        };
        let decoded = load.pipeline.chunk_bytes() as u64;
        if shard.length > max_encoded(decoded) {
            let found = format!("an inner chunk of {} bytes for {decoded}", shard.length);
            return Err(Error::corrupt(&stored.key, found));
        }
        let room = load.decoder.reserve(load, shard.length)?;
        let range = shard.start..shard.start + shard.length;
        let part = self.grouped(context, load, stored, &range)?;
        let encoded = match &part {
            Some(part) => Cow::Borrowed(&part[..]),
            None => Cow::Owned(shard.read(context, 0, shard.length)?),
        };
        load.decoder
            .decode(load, &stored.key, stored.meta.version, encoded, room)
            .map(Some)
    }

    /// Returns the index of a shard by its depth and its number there, from the cache or fetched.
    pub(super) fn index(
        &self,
        context: &RequestContext,
        level: &ShardLevel,
        (depth, number): (u8, u64),
        shard: &Shard,
        deadline: Instant,
    ) -> Result<Arc<CachedShardIndex>> {
        let key = (self.id, depth, number);
        if let Some(Cached::Index(index)) = self.engine.cache.get(&key) {
            if index.version == shard.stored.meta.version {
                return Ok(index);
            }
            self.engine.cache.forget(&key);
        }
        let loaded = self.engine.cache.load(context, &key, deadline, || {
            self.load_index(context, level, shard, deadline)
                .map(|index| Cached::Index(Arc::new(index)))
        });
        match loaded? {
            Cached::Index(index) if index.version.may_be(shard.stored.meta.version) => Ok(index),
            // Another reader loaded it, of a content before or after this one.
            Cached::Index(_) => Err(shard.stored.changed()),
            Cached::Chunk(_) => Err(Error::corrupt(
                &shard.stored.key,
                "a chunk where an index is due",
            )),
        }
    }

    fn load_index(
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
                "a shard of {} bytes has no room for an index of {length}",
                shard.length
            );
            return Err(Error::corrupt(&shard.stored.key, found));
        }
        let room = self.engine.cache.reserve(room_of_index(length), deadline)?;
        let start = if level.index_at_end() {
            shard.length - length
        } else {
            0
        };
        let bytes = shard.read(context, start, length)?;
        let index = decoded_index(level, shard, &bytes, room);
        index.map_err(|error| error.about(&shard.stored.key))
    }

    /// Keeps the index that a shard was opened by. One that does not decode is read again, and reported, where it is
    /// wanted.
    pub(super) fn keep_index(
        &self,
        level: &ShardLevel,
        number: u64,
        stored: &StoredChunk,
        bytes: &[u8],
    ) {
        let length = bytes.len() as u64;
        let Some(room) = self
            .engine
            .cache
            .budget()
            .try_reserve(room_of_index(length))
        else {
            return;
        };
        if let Ok(index) = decoded_index(level, &Shard::whole(stored), bytes, room) {
            let (key, index) = ((self.id, 1, number), Cached::Index(Arc::new(index)));
            self.engine.cache.forget(&key);
            // One that another thread puts there meanwhile does as well.
            let _ =
                (self.engine.cache).load(&UNLIMITED, &key, self.engine.deadline(), || Ok(index));
        }
    }
}

/// Returns the room for an index of so many bytes, as it is stored and decoded.
fn room_of_index(length: u64) -> u64 {
    length.saturating_mul(2).saturating_add(PIECE_OVERHEAD)
}

/// Decodes the index of a shard; `room` is what is taken for its bytes and the decoded index.
fn decoded_index(
    level: &ShardLevel,
    shard: &Shard,
    bytes: &[u8],
    mut room: Reservation,
) -> Result<CachedShardIndex> {
    let entries = level.decode_index(bytes, shard.length)?;
    room.shrink(entries.memory() as u64 + PIECE_OVERHEAD);
    Ok(CachedShardIndex {
        entries,
        version: shard.stored.meta.version,
        _room: room,
    })
}

/// Returns the number of a shard among all of its depth, counted by the inner chunks of the largest shard.
fn index_number(load: &Load, depth: usize) -> u64 {
    let levels = load.decoder.pipeline.shards();
    let outer = levels.iter().zip(&load.location.inner).take(depth);
    outer.fold(load.location.stored, |number, (level, &inner)| {
        let count: u64 = level.chunks_per_shard().iter().product();
        number.wrapping_mul(count).wrapping_add(inner as u64)
    })
}
