//! How the chunks of an array decode: their grids, and a pipeline for each shape that chunks have.
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

use crate::array::{Limits, OpenArray};
use crate::codec::{Pipeline, ShardLevel};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates, Grid};
use crate::model::{Array, Attributes};

/// Number of pipelines of a rectilinear grid that are kept.
const MAX_PIPELINES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// How the chunks of an array decode.
pub(super) struct Decoder {
    /// Decodes the largest chunk; in a regular grid, every one.
    pub(super) pipeline: Arc<Pipeline>,
    /// The smallest pieces that decode alone: chunks, or inner chunks of shards.
    pub(super) pieces: Grid,
    /// The chunks as they are stored.
    pub(super) stored: Grid,
    shapes: Option<Shapes>,
}

/// Where a piece is stored.
pub(super) struct PieceLocation {
    /// Number of the stored chunk.
    pub(super) stored: u64,
    /// Its indices.
    pub(super) indices: Coordinates,
    /// With sharding: for each level, the number of the inner chunk in its shard.
    pub(super) inner: SmallVec<[usize; 2]>,
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
    pub(super) fn new(array: &Array, stored: &Grid, limits: &Limits) -> Result<Decoder> {
        // The decoded length of elements without a fixed length is known only after decoding. `ragged` may hold half
        // of the memory while such a chunk is loaded and decoded, so one chunk may take a fifth.
        let most = if array.data_type.is_variable() {
            limits.max_chunk.min(limits.memory / 5)
        } else {
            limits.max_chunk
        };
        let shapes = Shapes::new(array, stored, most);
        let pipeline = match &shapes {
            None => Arc::new(Pipeline::new(array, most)?),
            Some(shapes) => shapes.pipeline(Cow::Borrowed(stored.chunk_shape()))?,
        };
        let pieces = match pipeline.shards() {
            [] => stored.clone(),
            [level, ..] if !stored.divides_into(level.inner_shape()) => {
                let inner = level.inner_shape();
                let found = format!("inner chunks of {inner:?} do not divide each shard");
                return Err(Error::unsupported("chunk_shapes", found));
            }
            // Each shard begins at a multiple of its inner chunks, so all of these together are a regular grid.
            _ => Grid::new(&array.shape, pipeline.chunk_shape())?,
        };
        Ok(Decoder {
            pipeline,
            pieces,
            stored: stored.clone(),
            shapes,
        })
    }

    /// Returns the pipeline of a stored chunk; `Unsupported` if the codecs cannot have its shape.
    pub(super) fn pipeline_of(&self, stored: ChunkIndex) -> Result<Arc<Pipeline>> {
        match &self.shapes {
            None => Ok(self.pipeline.clone()),
            Some(shapes) => shapes.pipeline(self.stored.shape_of(stored)),
        }
    }

    /// Finds where a piece is stored.
    pub(super) fn locate(&self, piece: ChunkIndex) -> PieceLocation {
        let mut indices = self.pieces.indices(piece);
        let mut inner = SmallVec::new();
        if let Some((outermost, within)) = self.pipeline.shards().split_first() {
            for level in within.iter().rev() {
                inner.push(leave_level(&mut indices, level.chunks_per_shard()));
            }
            inner.push(self.leave_shard(&mut indices, outermost));
        }
        inner.reverse();
        let stored = self.stored.index(&indices);
        PieceLocation {
            stored: stored.map_or(u64::MAX, |index| index.0),
            indices,
            inner,
        }
    }

    /// Returns the number of the stored chunk that a piece is in.
    pub(super) fn stored_number(&self, piece: ChunkIndex) -> u64 {
        match self.pipeline.shards() {
            [] => piece.0,
            _ => self.locate(piece).stored,
        }
    }

    /// Returns the number of the stored chunk that a piece is in whose first element is `start`.
    pub(super) fn stored_number_at(&self, piece: ChunkIndex, start: &[u64]) -> u64 {
        match self.pipeline.shards() {
            [] => piece.0,
            _ => self.stored.locate(start).0.0,
        }
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

impl OpenArray {
    /// Returns how a stored chunk decodes; fails if the array cannot be decoded.
    pub fn pipeline_of(&self, chunk: ChunkIndex) -> Result<Arc<Pipeline>> {
        self.decoder()?.pipeline_of(chunk)
    }

    /// Returns the grid of the smallest pieces that decode alone: chunks, or inner chunks of shards. Fails if the array
    /// cannot be decoded.
    pub fn decoded_grid(&self) -> Result<&Grid> {
        self.decoder().map(|decoder| &decoder.pieces)
    }

    /// Returns how many levels of shards lie around such a piece. Fails if the array cannot be decoded.
    pub fn shard_levels(&self) -> Result<usize> {
        self.decoder()
            .map(|decoder| decoder.pipeline.shards().len())
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
