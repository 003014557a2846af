//! Decodes the chunks of an array, with one codec pipeline per chunk shape.
//!
//! A regular grid has one pipeline. In a rectilinear grid the chunk shapes differ, and so do the shard indexes: a
//! pipeline is built when a chunk of a new shape is decoded, and the last pipelines are cached. Properties that are the
//! same for all shapes (nesting of shards, the inner chunk shape, whether anything is encoded) are read from the
//! pipeline of the largest shape.
//!
//! For elements without a fixed length the metadata give only an upper bound of a chunk's size, and memory has room for
//! at most two chunks of that size. So a chunk is expected to be at most 1.5 times as long as the longest chunk of its
//! array so far, encoded and decoded. A chunk that is longer is loaded again, with room for any length; a wrong
//! estimate costs only time.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use lru::LruCache;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::array::chunk::{CHUNK_OVERHEAD, ChunkLocation, DecodedChunk};
use crate::array::stored_array::StoredArray;
use zarr_format::buffer;
use zarr_format::buffer::Buffer;
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid};
use zarr_format::model::{Array, Attributes};
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, Version};

/// The number of codec pipelines of a rectilinear grid that are cached.
const MAX_PIPELINES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Returns the maximum encoded length of a valid chunk of `decoded` bytes.
fn max_encoded(decoded: u64) -> u64 {
    decoded.saturating_mul(8).saturating_add(1 << 20)
}

/// Returns the expected encoded length of a chunk of `decoded` bytes. A longer chunk costs an additional HEAD request.
pub(super) fn usual_length(decoded: u64) -> u64 {
    let more = (decoded / 8).saturating_add(64 << 10);
    decoded.saturating_add(more)
}

pub(super) struct Load<'a> {
    pub(super) chunk: ChunkIndex,
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) location: &'a ChunkLocation,
    pub(super) known: Option<Version>,
    /// The estimated sizes of the chunk; `None` to allow any size that the pipeline allows.
    pub(super) estimated: Option<EstimatedSizes>,
    pub(super) deadline: Instant,
}

impl Load<'_> {
    /// Decodes the bytes of a chunk; fails with `Corrupt` if they are corrupt or exceed the estimated size.
    pub(super) fn decode(&self, encoded: Cow<'_, [u8]>) -> Result<Vec<u8>> {
        let Some(estimated) = self.estimated else {
            return self.pipeline.decode(encoded);
        };
        let most = usize::try_from(estimated.decoded).unwrap_or(usize::MAX);
        let decoded = self.pipeline.decode_within(&encoded, most);
        if let Cow::Owned(encoded) = encoded {
            buffer::recycle(encoded);
        }
        decoded
    }
}

pub(super) struct Decoder {
    array: Arc<StoredArray>,
    /// The codec pipeline of the largest chunk; in a regular grid, of every chunk.
    pub(super) pipeline: Arc<Pipeline>,
    /// The grid of the smallest chunks that can be decoded alone: chunks, or inner chunks of shards.
    pub(super) grid: Grid,
    /// The grid of stored chunks (shards, if the array has them).
    pub(super) stored: Grid,
    shapes: Option<Shapes>,
    sizes: SizeEstimate,
    decoded: DecodedChunks,
}

/// The codec pipelines of a rectilinear grid, by chunk shape.
struct Shapes {
    /// The array without its attributes and without the edges of its chunks, because no codec reads them.
    array: Array,
    most: u64,
    pipelines: Mutex<LruCache<Vec<u64>, Arc<Pipeline>>>,
}

impl Decoder {
    /// Whether the stored bytes of a chunk differ from the decoded ones.
    pub(super) fn is_encoded(&self) -> bool {
        !self.pipeline.is_identity() || !self.pipeline.shards().is_empty()
    }

    /// Creates the decoder of an array, with the codec pipeline of the largest chunk.
    ///
    /// Fails as `Pipeline::new` does, and with `Unsupported` for a rectilinear grid with shards that inner chunks do
    /// not divide.
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
        // The decoded length of variable-length elements is known only after decoding. `VlenReader` may fill 1/2 of the
        // memory with elements while a chunk of these elements is decoded, so one chunk may take at most 1/5.
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
                let found = format!("inner chunks of shape {inner:?} do not divide all shards");
                return Err(Error::unsupported("chunk_shapes", found));
            }
            // Each shard begins at a multiple of the inner chunk shape, so all inner chunks together form a regular
            // grid.
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

    /// Returns the codec pipeline of a stored chunk; `Unsupported` if the codecs do not allow the chunk's shape.
    pub(super) fn pipeline_of(&self, stored: ChunkIndex) -> Result<Arc<Pipeline>> {
        match &self.shapes {
            None => Ok(self.pipeline.clone()),
            Some(shapes) => shapes.pipeline(self.stored.shape_of(stored)),
        }
    }

    /// Returns the stored chunk that contains a chunk, and with sharding the position in the shard.
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

    /// Returns the number of the stored chunk (with sharding, the shard) that contains a chunk.
    pub(super) fn stored_number(&self, chunk: ChunkIndex) -> u64 {
        match self.pipeline.shards() {
            [] => chunk.0,
            _ => self.locate(chunk).stored,
        }
    }

    /// Returns the number of the stored chunk that contains a chunk, given the chunk's first element `start`.
    pub(super) fn stored_number_at(&self, chunk: ChunkIndex, start: &[u64]) -> u64 {
        match self.pipeline.shards() {
            [] => chunk.0,
            _ => self.stored.locate(start).0.0,
        }
    }

    /// Whether neighboring inner chunks of a shard are fetched with one request.
    pub(super) fn reads_groups(&self) -> bool {
        // With nested shards, an inner index would have to be read before the byte ranges of the inner chunks are
        // known.
        self.pipeline.shards().len() == 1
    }

    /// Returns the estimated sizes of a chunk; `None` if its elements have a fixed length, or no chunk was decoded yet.
    pub(super) fn estimated_sizes(&self) -> Option<EstimatedSizes> {
        if self.pipeline.has_fixed_length() {
            return None;
        }
        self.sizes.estimate()
    }

    /// Returns the decoded size of a chunk in bytes, which is estimated if the elements have no fixed length.
    pub(super) fn usual_bytes(&self) -> usize {
        let most = self.pipeline.chunk_bytes();
        let estimated = self.estimated_sizes();
        let estimated = estimated.and_then(|sizes| usize::try_from(sizes.decoded).ok());
        estimated.unwrap_or(most).min(most)
    }

    /// Returns the bytes of chunks that a sequential reader can have in memory: the memory limit minus the memory for
    /// chunks that are being loaded, and for chunks that cross the end of a read.
    pub(super) fn room_for_row(&self) -> u64 {
        let memory = self.array.engine.limits.memory;
        // Each load needs memory for the encoded chunk, the decoded chunk, and a chunk that is decoded but not used
        // yet. Twice that memory is left free, so that a load finds chunks that may be evicted.
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

    /// Checks the stored length of a chunk: fails with `Corrupt` if no codec makes a chunk that long, and with
    /// `TooLarge` if its variable-length elements do not fit into memory.
    pub(super) fn check_length(&self, load: &Load, key: &Key, size: u64) -> Result<()> {
        let (pipeline, decoded) = (&load.pipeline, load.pipeline.chunk_bytes() as u64);
        if pipeline.has_fixed_length() {
            if size <= max_encoded(decoded) {
                return Ok(());
            }
            let found = format!("{size} stored bytes are too many for a chunk of {decoded} bytes");
            return Err(Error::corrupt(key, found));
        }
        if size <= pipeline.stored_bound() {
            return Ok(());
        }
        let found =
            format!("{size} stored bytes are too many for a limit of {decoded} decoded bytes");
        let error = self.array.with_option(Error::too_large("", found));
        Err(error.about(key))
    }

    /// Reserves memory for a chunk while it is loaded: for its decoded and its `encoded` bytes.
    pub(super) fn reserve(&self, load: &Load, encoded: u64) -> Result<Reservation> {
        let bytes = match load.estimated {
            Some(estimated) => EstimatedSizes {
                encoded,
                ..estimated
            }
            .while_decoded(&load.pipeline),
            // An uncompressed chunk is decoded in place and needs no second buffer.
            None if load.pipeline.is_identity() => encoded,
            None => encoded.saturating_add(load.pipeline.chunk_bytes() as u64),
        };
        let bytes = bytes.saturating_add(CHUNK_OVERHEAD);
        let room = self.array.engine.cache.reserve(bytes, load.deadline);
        room.map_err(|error| error.about(&self.array.path))
    }

    /// Decodes a fetched chunk; returns the reserved memory that it does not need to the budget.
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
        self.sizes.record(length, bytes.len() as u64);
        let stats = &self.array.engine.stats;
        stats.decoded_chunks.add(1);
        if self.decoded.mark(self.grid.len(), load.chunk) {
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

    /// Reuses the memory of a chunk that its reader has consumed for the next `length` bytes: getting fresh memory from
    /// the kernel takes as long as decoding a chunk into it.
    pub(super) fn reclaim(&self, length: usize) {
        let cache = &self.array.engine.cache;
        // While less memory is in use, no chunk is evicted, so that the chunks of a short array stay in memory for the
        // other files of the array.
        if cache.budget().held() > 16 << 20 && !buffer::is_pooled(length) {
            cache.reclaim();
        }
    }

    /// Returns a buffer of `length` bytes with arbitrary content, which is filled with the answer to a read.
    pub(super) fn answer_buffer(&self, length: usize) -> Buffer {
        // A short buffer is not worth evicting a chunk that a reader might read again.
        if length >= buffer::MIN_POOLED_BYTES {
            self.reclaim(length);
        }
        Buffer::of_length(length)
    }

    /// Replaces the indices of an inner chunk by the indices of its outermost shard, which may be rectilinear; returns
    /// the number of the inner chunk in the shard.
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

/// Replaces the indices of an inner chunk by the indices of its shard; returns the number of the inner chunk in the
/// shard.
fn leave_level(indices: &mut [u64], chunks_per_shard: &[u64]) -> usize {
    let mut number = 0;
    for (index, &count) in indices.iter_mut().zip(chunks_per_shard) {
        number = number * count + *index % count;
        *index /= count;
    }
    inner_number(number)
}

/// Returns the number of an inner chunk as a `usize`; `usize::MAX`, which no shard has, if the number does not fit.
fn inner_number(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Shapes {
    /// Creates an empty cache of codec pipelines for a rectilinear grid; `None` for a regular grid.
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
            pipelines: Mutex::new(LruCache::new(MAX_PIPELINES)),
        })
    }

    fn pipeline(&self, shape: Cow<'_, [u64]>) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = self.pipelines.lock().get(shape.as_ref()) {
            return Ok(pipeline.clone());
        }
        let array = Array {
            chunk_shape: shape.to_vec(),
            ..self.array.clone()
        };
        let pipeline =
            Pipeline::new(&array, self.most).map_err(|error| shape_error(&shape, error))?;
        let pipeline = Arc::new(pipeline);
        let replaced = self
            .pipelines
            .lock()
            .push(shape.into_owned(), pipeline.clone());
        drop(replaced);
        Ok(pipeline)
    }
}

/// Returns the error for chunks of one shape. It is `Unsupported`, not `Corrupt`, because the codecs may be valid for
/// another shape.
fn shape_error(shape: &[u64], error: Error) -> Error {
    match error.kind() {
        Kind::Corrupt => {
            Error::unsupported("codecs", format!("chunks of shape {shape:?}: {error}"))
        }
        _ => error,
    }
}

/// Bytes that are added to the estimated length of a chunk, because the lengths of short chunks vary more.
const SLACK: u64 = 4 << 10;

/// The estimated maximum lengths of a chunk of variable-length elements, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedSizes {
    pub(super) encoded: u64,
    pub(super) decoded: u64,
}

/// The lengths of the longest chunk that was decoded so far, in bytes; 0 if there was none.
#[derive(Default)]
pub(super) struct SizeEstimate {
    encoded: AtomicU64,
    decoded: AtomicU64,
}

impl SizeEstimate {
    /// Records the encoded and decoded length of a chunk, for later estimates.
    pub(super) fn record(&self, encoded: u64, decoded: u64) {
        self.encoded.fetch_max(encoded, Ordering::Relaxed);
        self.decoded.fetch_max(decoded, Ordering::Relaxed);
    }

    /// Returns the encoded and decoded size that the next chunk probably has, or `None` if no chunk was decoded yet.
    fn estimate(&self) -> Option<EstimatedSizes> {
        let decoded = self.decoded.load(Ordering::Relaxed);
        let encoded = self.encoded.load(Ordering::Relaxed);
        (decoded > 0).then(|| EstimatedSizes {
            encoded: with_half(encoded),
            decoded: with_half(decoded),
        })
    }
}

fn with_half(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 2).saturating_add(SLACK)
}

impl EstimatedSizes {
    /// Returns the memory in bytes that a chunk of the estimated sizes needs while it is decoded.
    pub(super) fn while_decoded(self, pipeline: &Pipeline) -> u64 {
        let copies = pipeline.decoded_copies().max(1);
        let decoded = self.decoded.saturating_mul(copies);
        self.encoded.saturating_add(decoded)
    }
}

/// Which chunks of an array were decoded, one bit per chunk; empty if the array has too many chunks.
#[derive(Default)]
pub(super) struct DecodedChunks(OnceLock<Box<[AtomicU64]>>);

impl DecodedChunks {
    /// Records that one chunk of `count` was decoded; returns whether it is known to have been decoded before.
    pub(super) fn mark(&self, count: u64, chunk: ChunkIndex) -> bool {
        // The bits of 2^20 chunks take 128 KiB.
        if count > 1 << 20 {
            return false;
        }
        let empty = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words = self.0.get_or_init(empty);
        let place = usize::try_from(chunk.0 / 64).ok();
        let Some(word) = place.and_then(|place| words.get(place)) else {
            return false;
        };
        let bit = 1 << (chunk.0 % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_estimate_is_one_and_a_half_times_the_largest_chunk() {
        let estimate = SizeEstimate::default();
        assert_eq!(estimate.estimate(), None);
        for (encoded, decoded) in [(10, 300), (40, 200), (5, 5)] {
            estimate.record(encoded, decoded);
        }
        let estimated = EstimatedSizes {
            encoded: 60 + SLACK,
            decoded: 450 + SLACK,
        };
        assert_eq!(estimate.estimate(), Some(estimated));
    }

    #[test]
    fn a_second_decode_of_a_chunk_is_recognized() {
        let decoded = DecodedChunks::default();
        for chunk in [0, 63, 64, 399] {
            assert!(!decoded.mark(400, ChunkIndex(chunk)), "{chunk}");
            assert!(decoded.mark(400, ChunkIndex(chunk)), "{chunk}");
        }
        assert!(!decoded.mark(400, ChunkIndex(1)));
        assert!(!decoded.mark(400, ChunkIndex(u64::MAX)));
    }
}
