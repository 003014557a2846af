//! Loading of a piece that is not in memory: from disk, or fetched and decoded.
//!
//! Memory is reserved before anything is fetched, and given back as far as it was not needed. Concurrent loads of one
//! piece are one. Inner chunks of shards are fetched by `shard`; which content is the current one is left to `chunk`.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::array::OpenArray;
use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::piece::{Cached, Decoded, Load, PIECE_OVERHEAD, Piece};
use crate::array::seen_lengths::GuessedLengths;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::request_context::RequestContext;
use crate::store::{Key, Object, Store, Version};
use crate::sync::budget::Reservation;
use crate::sync::buffer::{self, Buffer};

/// Bytes by which an encoded chunk may exceed nine eighths of the decoded one without being looked up first.
const ENCODED_OVERHEAD: u64 = 64 << 10;

/// How many bytes are held before memory is used again, so that other files of a short array find its pieces.
const FREELY_HELD: u64 = 16 << 20;

/// Returns the most bytes that a piece of `decoded` bytes may have encoded; a longer one is corrupt.
pub(super) fn max_encoded(decoded: u64) -> u64 {
    decoded.saturating_mul(8).saturating_add(1 << 20)
}

/// Returns the most bytes that a piece of `decoded` bytes is taken to have encoded without a look.
fn usual_length(decoded: u64) -> u64 {
    let more = (decoded / 8).saturating_add(ENCODED_OVERHEAD);
    decoded.saturating_add(more)
}

impl OpenArray {
    /// Returns a piece of the present content: one that is in memory or on disk, else fetched and decoded. `known` is the
    /// version that the stored chunk has.
    pub(super) fn load(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        location: &PieceLocation,
        known: Option<Version>,
    ) -> Result<Piece> {
        self.engine.stats.cache_miss_chunks.add(1);
        let deadline = self.engine.deadline();
        let loaded = self
            .engine
            .cache
            .load(context, &(self.id, 0, piece.0), deadline, || {
                let load = Load {
                    decoder,
                    piece,
                    pipeline: decoder.pipeline_of(ChunkIndex(location.stored))?,
                    location,
                    known,
                    guessed: self.guessed_lengths(decoder),
                    deadline,
                };
                let decoded = self.load_decoded(context, &load)?.ok_or_else(missing)?;
                Ok(Cached::Chunk(Arc::new(decoded)))
            });
        match loaded {
            Ok(Cached::Chunk(decoded)) => Ok(Piece::Data(decoded)),
            Err(error) if is_missing(&error) => {
                self.engine.stats.missing_chunks.add(1);
                Ok(Piece::Fill)
            }
            Err(error) => Err(error),
            Ok(Cached::Index(_)) => {
                Err(Error::corrupt(&self.path, "an index where a chunk is due"))
            }
        }
    }

    /// Returns a piece from disk, else fetched and decoded; nothing if it is not stored.
    fn load_decoded(&self, context: &RequestContext, load: &Load) -> Result<Option<Decoded>> {
        if let Some(decoded) = self.load_spilled(load)? {
            return Ok(Some(decoded));
        }
        match self.load_stored(context, load) {
            // It may only be longer than was guessed.
            Err(error) if load.guessed.is_some() && is_of_bytes(&error) => {
                let pipeline = load.pipeline.clone();
                self.load_stored(
                    context,
                    &Load {
                        guessed: None,
                        pipeline,
                        ..*load
                    },
                )
            }
            answer => answer,
        }
    }

    /// Returns a piece fetched and decoded; nothing if it is not stored.
    fn load_stored(&self, context: &RequestContext, load: &Load) -> Result<Option<Decoded>> {
        match load.pipeline.shards() {
            [] => self.load_whole(context, load),
            _ => self.load_inner(context, load),
        }
    }

    /// Returns a piece of the current content that was decoded before and is on disk.
    fn load_spilled(&self, load: &Load) -> Result<Option<Decoded>> {
        let (Some(spill), Some(version)) = (&self.engine.spill, load.known) else {
            return Ok(None);
        };
        let (length, piece) = (load.pipeline.chunk_bytes(), (self.id, load.piece.0));
        if !spill.has(&piece) {
            return Ok(None);
        }
        self.reclaim(length);
        let needed = length as u64 + PIECE_OVERHEAD;
        let room = self.engine.cache.reserve(needed, load.deadline);
        let mut room = room.map_err(|error| error.about(&self.path))?;
        let Some(bytes) = spill.find(&piece, (version, length)) else {
            return Ok(None);
        };
        room.shrink(bytes.capacity() as u64 + PIECE_OVERHEAD);
        Ok(Some(Decoded {
            bytes,
            version,
            is_on_disk: true,
            _room: room,
        }))
    }

    /// Fetches and decodes a stored chunk as a whole.
    fn load_whole(&self, context: &RequestContext, load: &Load) -> Result<Option<Decoded>> {
        let (found, stamp) = self.ask(context, |context, store| {
            self.fetch_whole(context, store, load)
        });
        let found = found?;
        let version = found.as_ref().map(|(_, object, _)| object.version);
        self.versions.note(load.location.stored, version, stamp);
        let decode = |(key, object, room): (Key, Object, Reservation)| {
            let decoded = self.decode(load, (&key, object.version), object.bytes.into(), room);
            // With a length that was guessed it is decoded again.
            decoded.inspect_err(|error| match error.kind() {
                Kind::Corrupt if load.guessed.is_none() => {
                    self.hierarchy.store().doubt(&key, None);
                }
                _ => {}
            })
        };
        found.map(decode).transpose()
    }

    /// Fetches a stored chunk, once there is room for its bytes and the decoded piece.
    fn fetch_whole(
        &self,
        context: &RequestContext,
        store: &dyn Store,
        load: &Load,
    ) -> Result<Option<(Key, Object, Reservation)>> {
        let decoded = load.pipeline.chunk_bytes() as u64;
        let guessed = load.guessed.map(|guessed| guessed.encoded);
        let usual = guessed.unwrap_or_else(|| usual_length(decoded));
        let mut room = self.reserve_load(load, usual)?;
        for key in self.keys(&load.location.indices)? {
            let object = match store.get(context, &key, usual) {
                Err(error) if error.kind() == Kind::TooLarge && guessed.is_none() => {
                    drop(room);
                    let longest = check_length(context, store, &key, decoded)?;
                    room = self.reserve_load(load, longest)?;
                    store.get(context, &key, longest)?
                }
                answer => answer?,
            };
            if let Some(object) = object {
                return Ok(Some((key, object, room)));
            }
        }
        Ok(None)
    }

    /// Takes room in the budget for a decoded piece and its `encoded` bytes.
    pub(super) fn reserve_load(&self, load: &Load, encoded: u64) -> Result<Reservation> {
        let bytes = match load.guessed {
            Some(guessed) => GuessedLengths { encoded, ..guessed }.while_decoded(&load.pipeline),
            // An uncompressed chunk is decoded where it was fetched to.
            None if load.pipeline.is_identity() => encoded,
            None => encoded.saturating_add(load.pipeline.chunk_bytes() as u64),
        };
        let bytes = bytes.saturating_add(PIECE_OVERHEAD);
        let room = self.engine.cache.reserve(bytes, load.deadline);
        room.map_err(|error| error.about(&self.path))
    }

    /// Decodes a piece; the room that it does not need is given back.
    pub(super) fn decode(
        &self,
        load: &Load,
        (key, version): (&Key, Version),
        encoded: Cow<'_, [u8]>,
        mut room: Reservation,
    ) -> Result<Decoded> {
        let pipeline = &load.pipeline;
        if !pipeline.is_identity() {
            self.reclaim(pipeline.chunk_bytes());
        }
        let length = encoded.len() as u64;
        let bytes = load.decode(encoded).map_err(|error| error.about(key))?;
        self.seen_lengths.note(length, bytes.len() as u64);
        let stats = &self.engine.stats;
        stats.decoded_chunks.add(1);
        if self.decoded.note(load.decoder.pieces.len(), load.piece) {
            stats.decoded_again_chunks.add(1);
        }
        stats.decoded_bytes.add(bytes.len() as u64);
        room.shrink(bytes.capacity() as u64 + PIECE_OVERHEAD);
        Ok(Decoded {
            bytes,
            version,
            is_on_disk: false,
            _room: room,
        })
    }

    /// Has the memory of a piece that a reader has consumed serve for the next `length` bytes: memory fresh from the kernel
    /// costs as much as decoding into it.
    fn reclaim(&self, length: usize) {
        let cache = &self.engine.cache;
        if cache.budget().held() > FREELY_HELD && !buffer::is_pooled(length) {
            cache.reclaim();
        }
    }

    /// Returns a buffer of `length` bytes of any content for an answer that is put together.
    pub(super) fn answer_buffer(&self, length: usize) -> Buffer {
        // A short one is not worth a piece that a reader might come back to.
        if length >= buffer::MIN_POOLED_BYTES {
            self.reclaim(length);
        }
        Buffer::of_length(length)
    }
}

/// Returns the length of a chunk that is longer than usual; `Corrupt` if no codec makes one so long.
fn check_length(
    context: &RequestContext,
    store: &dyn Store,
    key: &Key,
    decoded: u64,
) -> Result<u64> {
    let longest = max_encoded(decoded);
    match store.head(context, key)? {
        Some(meta) if meta.size <= longest => Ok(meta.size),
        Some(meta) => Err(Error::corrupt(
            key,
            format!("{} bytes for a chunk of {decoded}", meta.size),
        )),
        None => Ok(0),
    }
}

/// Returns the error by which a loader says that a piece is not stored, so that the cache keeps nothing.
fn missing() -> Error {
    Error::new(Kind::NotFound, "", "not stored")
}

/// Whether an error is about the bytes of a chunk.
fn is_of_bytes(error: &Error) -> bool {
    matches!(error.kind(), Kind::TooLarge | Kind::Corrupt)
}

fn is_missing(error: &Error) -> bool {
    error.kind() == Kind::NotFound
}

impl OpenArray {
    /// Returns how many bytes of pieces a sequential reader can keep in memory: all but what pieces take that are being
    /// loaded, and those that cross the end of a read.
    pub(super) fn room_for_row(&self, decoder: &Decoder) -> u64 {
        let memory = self.engine.limits.memory;
        // Each as it is stored and decoded, beside one that was decoded and not used yet; and as much again, so that those
        // which are being loaded meet others that may be evicted.
        let decoded = decoder.pipeline.chunk_bytes() as u64;
        let load = decoded
            .saturating_mul(2)
            .saturating_add(usual_length(decoded));
        let loading = load.saturating_mul(self.engine.loads * 2);
        memory
            .saturating_sub(memory / 32)
            .saturating_sub(loading)
            .max(memory / 2)
    }
}

/// The most pieces of an array of which it is known whether they were decoded before.
const MAX_KNOWN: u64 = 1 << 20;

/// Which pieces of an array were decoded before: a bit for each, none of an array of too many.
#[derive(Default)]
pub(super) struct DecodedPieces(OnceLock<Box<[AtomicU64]>>);

impl DecodedPieces {
    /// Notes that one of `count` pieces is decoded; returns whether it is known to have been decoded before.
    fn note(&self, count: u64, piece: ChunkIndex) -> bool {
        if count > MAX_KNOWN {
            return false;
        }
        let empty = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words = self.0.get_or_init(empty);
        let place = usize::try_from(piece.0 / 64).ok();
        let Some(word) = place.and_then(|place| words.get(place)) else {
            return false;
        };
        let bit = 1 << (piece.0 % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_known_to_have_been_decoded() {
        let decoded = DecodedPieces::default();
        for piece in [0, 63, 64, 399] {
            assert!(!decoded.note(400, ChunkIndex(piece)), "{piece}");
            assert!(decoded.note(400, ChunkIndex(piece)), "{piece}");
        }
        assert!(!decoded.note(400, ChunkIndex(1)));
        assert!(!decoded.note(400, ChunkIndex(u64::MAX)));
    }
}
