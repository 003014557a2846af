//! Decodes the chunks of an array, by a pipeline for each shape that chunks have.
//!
//! A regular grid has one pipeline. In a rectilinear grid chunks differ, and so do the indexes of shards: a pipeline
//! is built for each shape when a chunk of it is decoded, and the ones used last are kept. What all shapes have in
//! common (levels of sharding, the shape of inner chunks, whether anything is encoded) is read off the largest.

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use smallvec::SmallVec;

use crate::array::chunk::{CHUNK_OVERHEAD, ChunkLocation, DecodedChunk, Load};
use crate::array::decoded_chunks::DecodedChunks;
use crate::array::size_estimate::{EstimatedSizes, SizeEstimate};
use crate::array::stored_array::StoredArray;
use zarr_format::buffer::{self, Buffer};
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid};
use zarr_format::model::{Array, Attributes};
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, Version};

/// Number of pipelines of a rectilinear grid that are kept.
const MAX_PIPELINES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Bytes by which an encoded chunk may exceed nine eighths of the decoded one without being looked up first.
const ENCODED_OVERHEAD: u64 = 64 << 10;

/// How many bytes are held before memory is used again, so that other files of a short array find its chunks.
const FREELY_HELD: u64 = 16 << 20;

/// Returns the most bytes that a chunk of `decoded` bytes may have encoded.
fn max_encoded(decoded: u64) -> u64 {
    decoded.saturating_mul(8).saturating_add(1 << 20)
}

/// Returns the most bytes that a chunk of `decoded` bytes is taken to have encoded without a look.
pub(super) fn usual_length(decoded: u64) -> u64 {
    let more = (decoded / 8).saturating_add(ENCODED_OVERHEAD);
    decoded.saturating_add(more)
}

/// How the chunks of an array decode.
pub(super) struct Decoder {
    array: Arc<StoredArray>,
    /// Decodes the largest chunk; in a regular grid, every one.
    pub(super) pipeline: Arc<Pipeline>,
    /// The smallest chunks that decode alone: chunks, or inner chunks of shards.
    pub(super) grid: Grid,
    /// The chunks as they are stored.
    pub(super) stored: Grid,
    shapes: Option<Shapes>,
    sizes: SizeEstimate,
    decoded: DecodedChunks,
}

/// The pipelines of a rectilinear grid.
struct Shapes {
    /// The array without what no codec reads.
    array: Array,
    most: u64,
    kept: Mutex<LruCache<Vec<u64>, Arc<Pipeline>>>,
}

impl Decoder {
    /// Whether chunks are stored in another form than decoded.
    pub(super) fn is_encoded(&self) -> bool {
        !self.pipeline.is_identity() || !self.pipeline.shards().is_empty()
    }

    /// Builds the pipeline of the largest chunk.
    ///
    /// Fails as `Pipeline::new` does, and with `Unsupported` for a rectilinear grid with shards that inner
    /// chunks do not divide.
    pub(super) fn new(array: Arc<StoredArray>) -> Result<Decoder> {
        let stored = array.grid()?.clone();
        Decoder::of_grid(array.clone(), stored).map_err(|error| {
            let is_of_room = error.kind() == Kind::TooLarge && error.subject() == "chunk_shape";
            let error = if is_of_room {
                let is_variable = array.metadata.data_type.is_variable();
                array.engine.with_option(error, is_variable)
            } else {
                error
            };
            error.about(&array.path)
        })
    }

    fn of_grid(array: Arc<StoredArray>, stored: Grid) -> Result<Decoder> {
        let (metadata, limits) = (&*array.metadata, &array.engine.limits);
        // The decoded length of elements without a fixed length is known only after decoding. `ragged` may hold half
        // of the memory while such a chunk is loaded and decoded, so one chunk may take a fifth.
        let most = limits.of_chunk(metadata.data_type.is_variable());
        let shapes = Shapes::new(metadata, &stored, most);
        let pipeline = match &shapes {
            None => Arc::new(Pipeline::new(metadata, most)?),
            Some(shapes) => shapes.pipeline(Cow::Borrowed(stored.chunk_shape()))?,
        };
        let grid = match pipeline.shards() {
            [] => stored.clone(),
            [level, ..] if !stored.divides_into(level.inner_shape()) => {
                let inner = level.inner_shape();
                let found = format!("inner chunks of {inner:?} do not divide each shard");
                return Err(Error::unsupported("chunk_shapes", found));
            }
            // Each shard begins at a multiple of its inner chunks, so all of these together are a regular grid.
            _ => Grid::new(&metadata.shape, pipeline.chunk_shape())?,
        };
        Ok(Decoder {
            pipeline,
            grid,
            stored,
            shapes,
            sizes: SizeEstimate::default(),
            decoded: DecodedChunks::default(),
            array,
        })
    }

    /// Returns the pipeline of a stored chunk; `Unsupported` if the codecs cannot have its shape.
    pub(super) fn pipeline_of(&self, stored: ChunkIndex) -> Result<Arc<Pipeline>> {
        match &self.shapes {
            None => Ok(self.pipeline.clone()),
            Some(shapes) => shapes.pipeline(self.stored.shape_of(stored)),
        }
    }

    /// Finds where a chunk is stored.
    pub(super) fn locate(&self, chunk: ChunkIndex) -> ChunkLocation {
        let mut indices = self.grid.indices(chunk);
        let mut inner = SmallVec::new();
        if let Some((outermost, within)) = self.pipeline.shards().split_first() {
            for level in within.iter().rev() {
                inner.push(leave_level(&mut indices, level.chunks_per_shard()));
            }
            inner.push(self.leave_shard(&mut indices, outermost));
        }
        inner.reverse();
        let stored = self.stored.index(&indices);
        ChunkLocation {
            stored: stored.map_or(u64::MAX, |index| index.0),
            indices,
            inner,
        }
    }

    /// Returns the number of the stored chunk that a chunk is in.
    pub(super) fn stored_number(&self, chunk: ChunkIndex) -> u64 {
        match self.pipeline.shards() {
            [] => chunk.0,
            _ => self.locate(chunk).stored,
        }
    }

    /// Returns the number of the stored chunk that a chunk is in whose first element is `start`.
    pub(super) fn stored_number_at(&self, chunk: ChunkIndex, start: &[u64]) -> u64 {
        match self.pipeline.shards() {
            [] => chunk.0,
            _ => self.stored.locate(start).0.0,
        }
    }

    /// Whether inner chunks are read in groups.
    pub(super) fn reads_groups(&self) -> bool {
        // The indexes of shards in shards would have to be read before it is known what lies where.
        self.pipeline.shards().len() == 1
    }

    /// Returns the sizes that a chunk is taken to have; `None` if the metadata tell them, or no chunk was decoded.
    pub(super) fn estimated_sizes(&self) -> Option<EstimatedSizes> {
        if self.pipeline.has_fixed_length() {
            return None;
        }
        self.sizes.guess()
    }

    /// Returns the bytes that a decoded chunk usually has.
    pub(super) fn usual_bytes(&self) -> usize {
        let most = self.pipeline.chunk_bytes();
        let estimated = self.estimated_sizes();
        let estimated = estimated.and_then(|sizes| usize::try_from(sizes.decoded).ok());
        estimated.unwrap_or(most).min(most)
    }

    /// Returns how many bytes of chunks a sequential reader can keep in memory: all but what chunks take that are being
    /// loaded, and those that cross the end of a read.
    pub(super) fn room_for_row(&self) -> u64 {
        let memory = self.array.engine.limits.memory;
        // Each as it is stored and decoded, beside one that was decoded and not used yet; and as much again, so that those
        // which are being loaded meet others that may be evicted.
        let decoded = self.pipeline.chunk_bytes() as u64;
        let load = decoded
            .saturating_mul(2)
            .saturating_add(usual_length(decoded));
        let loading = load.saturating_mul(self.array.engine.loads * 2);
        memory
            .saturating_sub(memory / 32)
            .saturating_sub(loading)
            .max(memory / 2)
    }

    /// Fails with `Corrupt` for a chunk of `size` bytes as it is stored if no codec makes one so long, with `TooLarge` if it
    /// has more elements than fit.
    pub(super) fn check_length(&self, load: &Load, key: &Key, size: u64) -> Result<()> {
        let (pipeline, decoded) = (&load.pipeline, load.pipeline.chunk_bytes() as u64);
        if pipeline.has_fixed_length() {
            if size <= max_encoded(decoded) {
                return Ok(());
            }
            let found = format!("{size} bytes for a chunk of {decoded}");
            return Err(Error::corrupt(key, found));
        }
        if size <= pipeline.stored_bound() {
            return Ok(());
        }
        let found = format!("{size} bytes are stored where {decoded} fit decoded");
        let error = self.array.with_option(Error::too_large("", found));
        Err(error.about(key))
    }

    /// Takes room in the budget for a decoded chunk and its `encoded` bytes.
    pub(super) fn reserve(&self, load: &Load, encoded: u64) -> Result<Reservation> {
        let bytes = match load.guessed {
            Some(guessed) => EstimatedSizes { encoded, ..guessed }.while_decoded(&load.pipeline),
            // An uncompressed chunk is decoded where it was fetched to.
            None if load.pipeline.is_identity() => encoded,
            None => encoded.saturating_add(load.pipeline.chunk_bytes() as u64),
        };
        let bytes = bytes.saturating_add(CHUNK_OVERHEAD);
        let room = self.array.engine.cache.reserve(bytes, load.deadline);
        room.map_err(|error| error.about(&self.array.path))
    }

    /// Decodes a chunk; the room that it does not need is given back.
    pub(super) fn decode(
        &self,
        load: &Load,
        key: &Key,
        version: Version,
        encoded: Cow<'_, [u8]>,
        mut room: Reservation,
    ) -> Result<DecodedChunk> {
        let pipeline = &load.pipeline;
        if !pipeline.is_identity() {
            self.reclaim(pipeline.chunk_bytes());
        }
        let length = encoded.len() as u64;
        let decoded = load.decode(encoded);
        let bytes = decoded.map_err(|error| self.array.with_option(error).about(key))?;
        self.sizes.note(length, bytes.len() as u64);
        let stats = &self.array.engine.stats;
        stats.decoded_chunks.add(1);
        if self.decoded.note(self.grid.len(), load.chunk) {
            stats.decoded_again_chunks.add(1);
        }
        stats.decoded_bytes.add(bytes.len() as u64);
        room.shrink(bytes.capacity() as u64 + CHUNK_OVERHEAD);
        Ok(DecodedChunk {
            bytes,
            version,
            is_on_disk: false,
            _room: room,
        })
    }

    /// Has the memory of a chunk that a reader has consumed serve for the next `length` bytes: memory fresh from the kernel
    /// costs as much as decoding into it.
    pub(super) fn reclaim(&self, length: usize) {
        let cache = &self.array.engine.cache;
        if cache.budget().held() > FREELY_HELD && !buffer::is_pooled(length) {
            cache.reclaim();
        }
    }

    /// Returns a buffer of `length` bytes of any content for an answer that is put together.
    pub(super) fn answer_buffer(&self, length: usize) -> Buffer {
        // A short one is not worth a chunk that a reader might come back to.
        if length >= buffer::MIN_POOLED_BYTES {
            self.reclaim(length);
        }
        Buffer::of_length(length)
    }

    /// Turns the indices of an inner chunk of an outermost shard into those of the shard; returns the number of the
    /// inner chunk in it.
    fn leave_shard(&self, indices: &mut [u64], level: &ShardLevel) -> usize {
        if self.stored.is_regular() {
            return leave_level(indices, level.chunks_per_shard());
        }
        let mut number = 0;
        let inner = indices.iter_mut().zip(level.inner_shape());
        for (axis, (index, &length)) in inner.enumerate() {
            let element = *index * length;
            let shard = self.stored.chunk_at(axis, element);
            let (start, shard_length) = self.stored.span(axis, shard);
            number = number * (shard_length / length) + (element - start) / length;
            *index = shard;
        }
        inner_number(number)
    }
}

/// Turns the indices of an inner chunk into those of its shard; returns the number of the inner chunk in it.
fn leave_level(indices: &mut [u64], chunks_per_shard: &[u64]) -> usize {
    let mut number = 0;
    for (index, &count) in indices.iter_mut().zip(chunks_per_shard) {
        number = number * count + *index % count;
        *index /= count;
    }
    inner_number(number)
}

/// Returns the number of an inner chunk as an index; one that no index can have is in no shard.
fn inner_number(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Shapes {
    /// Prepares the pipelines of a rectilinear grid; nothing for a regular one.
    fn new(array: &Array, stored: &Grid, most: u64) -> Option<Shapes> {
        if array.chunk_edges.is_empty() {
            return None;
        }
        let array = Array {
            chunk_shape: stored.chunk_shape().to_vec(),
            chunk_edges: Vec::new(),
            attributes: Attributes::default(),
            ..array.clone()
        };
        Some(Shapes {
            array,
            most,
            kept: Mutex::new(LruCache::new(MAX_PIPELINES)),
        })
    }

    fn kept(&self) -> MutexGuard<'_, LruCache<Vec<u64>, Arc<Pipeline>>> {
        self.kept.lock()
    }

    fn pipeline(&self, shape: Cow<'_, [u64]>) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.kept().get(shape.as_ref()) {
            return Ok(pipeline.clone());
        }
        let array = Array {
            chunk_shape: shape.to_vec(),
            ..self.array.clone()
        };
        let pipeline =
            Pipeline::new(&array, self.most).map_err(|error| shape_error(&shape, error))?;
        let pipeline = Arc::new(pipeline);
        let replaced = self.kept().push(shape.into_owned(), pipeline.clone());
        drop(replaced);
        Ok(pipeline)
    }
}

/// Returns the error of a shape of chunks: a configuration that is wrong for one shape may be right for another.
fn shape_error(shape: &[u64], error: Error) -> Error {
    match error.kind() {
        Kind::Corrupt => Error::unsupported("codecs", format!("chunks of {shape:?}: {error}")),
        _ => error,
    }
}
