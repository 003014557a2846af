//! One decoded piece of an array: from memory, or fetched and decoded.
//!
//! A piece is a chunk, or with sharding an inner chunk (`shard`). What is not stored is the fill value, said
//! here and nowhere else; what cannot be fetched or decoded is an error. Memory is reserved before anything is
//! fetched.

use std::sync::Arc;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::array::OpenArray;
use crate::array::decoder::{Decoder, leave};
use crate::array::shard::CachedShardIndex;
use crate::array::spill::SpillKey;
use crate::array::versions::Generation;
use crate::codec::Pipeline;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::store::{Key, Version};
use crate::sync::budget::Reservation;
use crate::sync::buffer;

/// A decoded piece.
#[derive(Clone)]
pub enum Piece {
    /// Its elements, C order, little-endian.
    Data(Arc<Decoded>),
    /// Not stored: every element is the fill value.
    Fill,
}

/// Decoded bytes and the memory they are counted in.
pub struct Decoded {
    bytes: Vec<u8>,
    version: Version,
    /// Of what array it is, if it may go to disk.
    pub(super) origin: Option<Arc<SpillKey>>,
    /// Whether it came from there.
    pub(super) is_on_disk: bool,
    _room: Reservation,
}

/// The version of what is not stored yet: no store is asked for it.
const PENDING: Version = Version(0);

impl Drop for Decoded {
    fn drop(&mut self) {
        buffer::recycle(std::mem::take(&mut self.bytes));
    }
}

impl Decoded {
    /// Returns the elements.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Builds a piece that was written and is not stored yet.
    pub(super) fn pending(bytes: Vec<u8>, room: Reservation) -> Decoded {
        Decoded {
            bytes,
            version: PENDING,
            origin: None,
            is_on_disk: false,
            _room: room,
        }
    }

    /// Returns the same piece, to be written and not stored yet.
    pub(super) fn into_pending(mut self) -> Decoded {
        self.version = PENDING;
        self.origin = None;
        self.is_on_disk = false;
        self
    }

    /// Returns the elements, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Returns of which content it is.
    pub(super) fn version(&self) -> Version {
        self.version
    }
}

/// What the cache holds.
#[derive(Clone)]
pub(crate) enum Cached {
    Chunk(Arc<Decoded>),
    Index(Arc<CachedShardIndex>),
}

/// An array, a depth (0: pieces; n: indexes of the n-th level of shards), a number in that grid.
pub(crate) type CacheKey = (u64, u8, u64);

/// Where a piece is stored.
pub(super) struct PieceLocation {
    /// Number of the stored chunk.
    pub(super) stored: u64,
    /// Its indices.
    pub(super) indices: Coordinates,
    /// With sharding: for each level, the number of the inner chunk in its shard.
    pub(super) inner: Vec<usize>,
}

/// A piece being loaded.
pub(super) struct Load<'a> {
    pub(super) decoder: &'a Decoder,
    /// Decodes the stored chunk.
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) place: &'a PieceLocation,
    /// The version that the stored chunk has, if that is known.
    known: Option<Version>,
    pub(super) deadline: Instant,
}

impl OpenArray {
    /// Returns a piece if memory has it and it is current.
    pub(super) fn piece_now(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        now: Instant,
    ) -> Option<Piece> {
        if let Some(written) = self.written(decoder, piece) {
            return Some(Piece::Data(written));
        }
        let stored = self.stored_number(decoder, piece);
        match self.generation(decoder, stored, now) {
            Generation::Known(None) => Some(Piece::Fill),
            Generation::Known(Some(version)) => self.cached(piece, version).map(Piece::Data),
            _ => None,
        }
    }

    /// Returns a piece that was written and is not stored yet.
    pub(super) fn written(&self, decoder: &Decoder, piece: ChunkIndex) -> Option<Arc<Decoded>> {
        if self.pending.is_empty() {
            return None;
        }
        let place = self.place(decoder, piece);
        self.pending.find(&place.indices, &place.inner)
    }

    /// Forgets a piece that is in memory.
    pub(super) fn forget(&self, piece: ChunkIndex) {
        self.engine.cache.forget(&(self.id, 0, piece.0));
    }

    /// Whether a piece is in memory or on its way.
    pub(super) fn has_piece(&self, piece: ChunkIndex) -> bool {
        self.engine.cache.has(&(self.id, 0, piece.0))
    }

    /// Returns a piece, fetched and decoded if need be.
    pub(super) fn piece(&self, decoder: &Decoder, piece: ChunkIndex) -> Result<Piece> {
        if let Some(written) = self.written(decoder, piece) {
            return Ok(Piece::Data(written));
        }
        let place = self.place(decoder, piece);
        let mut generation = self.generation(decoder, place.stored, Instant::now());
        if generation == Generation::Stale {
            generation = Generation::Known(self.ask_generation(decoder, place.stored)?);
        }
        match generation {
            Generation::Known(None) => {
                self.engine.stats.missing_chunks.add(1);
                Ok(Piece::Fill)
            }
            Generation::Known(Some(version)) => {
                if let Some(decoded) = self.cached(piece, version) {
                    self.engine.stats.cache_hit_chunks.add(1);
                    return Ok(Piece::Data(decoded));
                }
                self.forget_other(piece, version);
                let chunk = self.load(decoder, piece, &place, Some(version))?;
                self.settle(decoder, piece, &place, chunk)
            }
            Generation::Unknown | Generation::Stale => self.load(decoder, piece, &place, None),
        }
    }

    /// Returns what was loaded, or loads it again: a flight that was joined may have begun before the last change.
    fn settle(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        place: &PieceLocation,
        chunk: Piece,
    ) -> Result<Piece> {
        let loaded = match &chunk {
            Piece::Data(decoded) => Some(decoded.version),
            Piece::Fill => None,
        };
        match self.generation(decoder, place.stored, Instant::now()) {
            Generation::Known(known) if known == loaded => return Ok(chunk),
            _ => {}
        }
        match self.ask_generation(decoder, place.stored)? {
            known if known == loaded => Ok(chunk),
            None => Ok(Piece::Fill),
            Some(version) => {
                self.forget_other(piece, version);
                self.load(decoder, piece, place, Some(version))
            }
        }
    }

    fn cached(&self, piece: ChunkIndex, version: Version) -> Option<Arc<Decoded>> {
        match self.engine.cache.get(&(self.id, 0, piece.0)) {
            Some(Cached::Chunk(decoded)) if decoded.version == version => Some(decoded),
            _ => None,
        }
    }

    /// Drops a piece of another generation, so that loading does not find it.
    fn forget_other(&self, piece: ChunkIndex, version: Version) {
        let key = (self.id, 0, piece.0);
        if let Some(Cached::Chunk(decoded)) = self.engine.cache.get(&key)
            && decoded.version != version
        {
            self.engine.cache.forget(&key);
        }
    }

    /// Asks the store which version a stored chunk has; nothing if it is missing.
    pub(super) fn ask_generation(&self, decoder: &Decoder, stored: u64) -> Result<Option<Version>> {
        let indices = decoder.stored.indices(ChunkIndex(stored));
        let position = self.generations.position();
        let mut version = None;
        for key in self.keys(&indices)? {
            version = self.hierarchy.store().version(&key)?;
            if version.is_some() {
                break;
            }
        }
        self.generations.note(stored, version, position);
        Ok(version)
    }

    pub(super) fn keys(&self, indices: &[u64]) -> Result<Vec<Key>> {
        self.array
            .keys
            .candidates(indices)
            .into_iter()
            .map(Key::new)
            .collect()
    }

    fn stored_number(&self, decoder: &Decoder, piece: ChunkIndex) -> u64 {
        match decoder.pipeline.shards() {
            [] => piece.0,
            _ => self.place(decoder, piece).stored,
        }
    }

    pub(super) fn place(&self, decoder: &Decoder, piece: ChunkIndex) -> PieceLocation {
        let mut indices = decoder.pieces.indices(piece);
        let levels = decoder.pipeline.shards();
        let mut inner = Vec::with_capacity(levels.len());
        if let Some((outermost, within)) = levels.split_first() {
            for level in within.iter().rev() {
                inner.push(leave(&mut indices, level.chunks_per_shard()));
            }
            inner.push(decoder.leave_shard(&mut indices, outermost));
        }
        inner.reverse();
        let stored = decoder
            .stored
            .index(&indices)
            .map_or(u64::MAX, |index| index.0);
        PieceLocation {
            stored,
            indices,
            inner,
        }
    }

    fn load(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        place: &PieceLocation,
        known: Option<Version>,
    ) -> Result<Piece> {
        self.engine.stats.cache_miss_chunks.add(1);
        let deadline = self.engine.deadline();
        let loaded = self
            .engine
            .cache
            .load(&(self.id, 0, piece.0), deadline, || {
                let load = Load {
                    decoder,
                    pipeline: decoder.pipeline_of(ChunkIndex(place.stored))?,
                    place,
                    known,
                    deadline,
                };
                let decoded = match (self.load_spilled(piece, &load)?, load.pipeline.shards()) {
                    (Some(decoded), _) => Some(decoded),
                    (None, []) => self.load_whole(&load)?,
                    (None, _) => self.load_inner(&load)?,
                };
                decoded
                    .map(|decoded| Cached::Chunk(Arc::new(decoded)))
                    .ok_or_else(missing)
            });
        match loaded {
            Ok(Cached::Chunk(decoded)) => Ok(Piece::Data(decoded)),
            Err(error) if is_missing(&error) => {
                self.engine.stats.missing_chunks.add(1);
                Ok(Piece::Fill)
            }
            Err(error) => Err(error),
            Ok(Cached::Index(_)) => Err(Error::corrupt(
                &self.found.path,
                "an index where a chunk is due",
            )),
        }
    }

    /// Returns a piece that was decoded before and is of the current content, from disk.
    fn load_spilled(&self, piece: ChunkIndex, load: &Load) -> Result<Option<Decoded>> {
        let (Some(spill), Some(origin), Some(version)) =
            (&self.engine.spill, &self.origin, load.known)
        else {
            return Ok(None);
        };
        let length = load.pipeline.chunk_bytes();
        if !spill.has(origin, piece.0) {
            return Ok(None);
        }
        let room = self.engine.cache.reserve(length as u64, load.deadline);
        let mut room = room.map_err(|error| error.about(&self.found.path))?;
        let Some(bytes) = spill.find(origin, piece.0, (version, length)) else {
            return Ok(None);
        };
        room.shrink(bytes.capacity() as u64);
        Ok(Some(Decoded {
            bytes,
            version,
            origin: Some(origin.clone()),
            is_on_disk: true,
            _room: room,
        }))
    }

    /// Fetches and decodes a stored chunk as a whole.
    fn load_whole(&self, load: &Load) -> Result<Option<Decoded>> {
        let (pipeline, place, deadline) = (&*load.pipeline, load.place, load.deadline);
        let decoded = pipeline.chunk_bytes() as u64;
        let usual = decoded + decoded / 8 + (64 << 10);
        let mut room = self.reserve(pipeline, usual, deadline)?;
        let position = self.generations.position();
        for key in self.keys(&place.indices)? {
            let object = match self.hierarchy.store().get(&key, usual) {
                Err(error) if error.kind() == Kind::TooLarge => {
                    drop(room);
                    let longest = self.check_length(&key, decoded)?;
                    room = self.reserve(pipeline, longest, deadline)?;
                    self.hierarchy.store().get(&key, longest)?
                }
                answer => answer?,
            };
            if let Some(object) = object {
                self.generations
                    .note(place.stored, Some(object.version), position);
                let decoded = self.decode(pipeline, (&key, object.version), object.bytes, room);
                return decoded.map(Some);
            }
        }
        self.generations.note(place.stored, None, position);
        Ok(None)
    }

    /// Takes room for a decoded piece and its encoded bytes.
    pub(super) fn reserve(
        &self,
        pipeline: &Pipeline,
        encoded: u64,
        deadline: Instant,
    ) -> Result<Reservation> {
        // The bytes of an uncompressed chunk are the chunk.
        let decoded = if pipeline.is_identity() {
            0
        } else {
            pipeline.chunk_bytes() as u64
        };
        let room = self
            .engine
            .cache
            .reserve(encoded.saturating_add(decoded), deadline);
        room.map_err(|error| error.about(&self.found.path))
    }

    /// Returns the length of a chunk that is longer than usual; `Corrupt` if it is longer than any codec
    /// would make it.
    fn check_length(&self, key: &Key, decoded: u64) -> Result<u64> {
        let longest = decoded.saturating_mul(8).saturating_add(1 << 20);
        match self.hierarchy.store().head(key)? {
            Some(meta) if meta.size <= longest => Ok(meta.size),
            Some(meta) => Err(Error::corrupt(
                key,
                format!("{} bytes for a chunk of {decoded}", meta.size),
            )),
            None => Ok(0),
        }
    }

    /// Decodes a piece, which keeps what room it needs.
    pub(super) fn decode(
        &self,
        pipeline: &Pipeline,
        (key, version): (&Key, Version),
        encoded: Vec<u8>,
        mut room: Reservation,
    ) -> Result<Decoded> {
        let start = cpu_nanoseconds();
        let bytes = pipeline.decode(encoded).map_err(|error| error.about(key))?;
        let stats = &self.engine.stats;
        stats
            .decode_nanoseconds
            .add(cpu_nanoseconds().saturating_sub(start));
        stats.decoded_chunks.add(1);
        stats.decoded_bytes.add(bytes.len() as u64);
        room.shrink(bytes.capacity() as u64);
        Ok(Decoded {
            bytes,
            version,
            origin: self.origin.clone(),
            is_on_disk: false,
            _room: room,
        })
    }
}

/// Returns the CPU time of this thread: with more threads than cores, waiting for one is no decoding.
fn cpu_nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The loader's way to say that a piece is not stored: nothing of it stays in the cache.
fn missing() -> Error {
    Error::new(Kind::NotFound, "", "not stored")
}

fn is_missing(error: &Error) -> bool {
    error.kind() == Kind::NotFound
}
