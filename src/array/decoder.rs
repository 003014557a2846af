//! How the chunks of an array decode: their grids, and a pipeline for each shape that chunks have.
//!
//! A regular grid has one pipeline. In a rectilinear one chunks differ, and so do the indexes of shards; their
//! pipelines are built when a chunk is decoded, and the ones used last are kept. What all have in common
//! (levels of sharding, the shape of inner chunks, whether anything is encoded) is asked of the largest.

use parking_lot::{Mutex, MutexGuard};
use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use serde_json::Map;

use crate::array::Limits;
use crate::codec::{Pipeline, ShardLevel};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Grid};
use crate::model::Array;

/// How many pipelines of a rectilinear grid are kept.
const KEPT: NonZeroUsize = NonZeroUsize::new(64).unwrap();

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

/// The pipelines of a rectilinear grid.
struct Shapes {
    /// The array without what no codec asks for.
    array: Array,
    most: u64,
    kept: Mutex<LruCache<Vec<u64>, Arc<Pipeline>>>,
}

impl Decoder {
    /// Builds the pipeline of the largest chunk.
    ///
    /// Fails as `Pipeline::new` does, and with `Unsupported` for a rectilinear grid with shards that inner
    /// chunks do not divide.
    pub(super) fn new(array: &Array, stored: &Grid, limits: &Limits) -> Result<Decoder> {
        // How long a chunk of elements without a fixed length becomes is known only afterwards. Half of the
        // memory may be held while it is loaded, encoded and decoded (`ragged`), so it may take a fifth.
        let most = match array.data_type.is_variable() {
            true => limits.max_chunk.min(limits.memory / 5),
            false => limits.max_chunk,
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

    /// Takes the indices of an inner chunk of a shard of the outermost level to those of the shard; returns
    /// its number there.
    pub(super) fn leave_shard(&self, indices: &mut [u64], level: &ShardLevel) -> usize {
        if self.stored.is_regular() {
            return leave(indices, level.chunks_per_shard());
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
        number as usize
    }
}

/// Takes the indices of an inner chunk to those of its shard; returns its number there.
pub(super) fn leave(indices: &mut [u64], chunks_per_shard: &[u64]) -> usize {
    let mut number = 0;
    for (index, &count) in indices.iter_mut().zip(chunks_per_shard) {
        number = number * count + *index % count;
        *index /= count;
    }
    number as usize
}

impl Shapes {
    /// Prepares to build the pipelines of a rectilinear grid; nothing for a regular one.
    fn new(array: &Array, stored: &Grid, most: u64) -> Option<Shapes> {
        if array.chunk_edges.is_empty() {
            return None;
        }
        let array = Array {
            chunk_shape: stored.chunk_shape().to_vec(),
            chunk_edges: Vec::new(),
            attributes: Map::new(),
            ..array.clone()
        };
        Some(Shapes {
            array,
            most,
            kept: Mutex::new(LruCache::new(KEPT)),
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
        let pipeline = Pipeline::new(&array, self.most).map_err(|error| misfit(&shape, error))?;
        let pipeline = Arc::new(pipeline);
        let replaced = self.kept().push(shape.into_owned(), pipeline.clone());
        drop(replaced);
        Ok(pipeline)
    }
}

/// A configuration that makes no sense for one shape of chunks may do so for another.
fn misfit(shape: &[u64], error: Error) -> Error {
    match error.kind() {
        Kind::Corrupt => Error::unsupported("codecs", format!("chunks of {shape:?}: {error}")),
        _ => error,
    }
}
