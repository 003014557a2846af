//! What an array is and what it takes to read it, from its metadata alone: nothing is asked of the store.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::surroundings::Surroundings;
use crate::formats::{FORMATS, Subject};
use zarr_format::dialect::v3;
use zarr_format::error::{Error, Result};
use zarr_format::model::{Array, CodecSpec, Node, bytes_of};
use zarrfs_array::array::OpenArray;

/// What an array is.
#[derive(Clone, Debug)]
pub struct ArrayInfo {
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// Names of dimensions; empty if there are none.
    pub dimension_names: Vec<Option<String>>,
    /// The type of an element, for people.
    pub data_type: String,
    /// Chunk grid, data type, codecs and fill value as final v3 writes them.
    pub members: Value,
    /// Elements along each dimension of a stored chunk; where chunks differ, of the longest.
    pub chunk_shape: Vec<u64>,
    /// The same of inner chunks, from the outermost shard to the innermost chunk; empty without sharding.
    pub inner_chunk_shapes: Vec<Vec<u64>>,
    /// Chunks along each dimension, or why that is not known.
    pub grid: Result<Vec<u64>>,
    /// The codecs in the order of encoding.
    pub codecs: Vec<CodecSpec>,
    /// Bytes of all elements decoded; nothing if elements have no fixed length.
    pub bytes: Option<u64>,
    /// Bytes of an element; nothing if it has no fixed length.
    pub element: Option<usize>,
    /// Why it does not decode, if it does not.
    pub undecodable: Option<Error>,
    /// What it takes to read it, if it decodes.
    pub costs: Option<ReadCosts>,
    /// Names of decoded files in the files view, for an array of this name.
    pub files: Vec<String>,
}

/// What it takes to read an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCosts {
    /// One element.
    pub point: ReadCost,
    /// All of it in C order, with each chunk decoded once and all chunks stored.
    pub sequential: ReadCost,
}

/// The memory for decoded chunks, and the requests to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCost {
    /// Bytes; nothing if elements have no fixed length.
    pub memory: Option<u64>,
    /// How many; of inner chunks at most, since those that lie beside each other are read together.
    pub requests: u64,
}

impl ArrayInfo {
    /// Describes an array, which is called `name` in the files view and has these surroundings.
    pub fn of(open: &Arc<OpenArray>, name: &str, around: Surroundings<'_>) -> ArrayInfo {
        let array = open.array();
        let undecodable = open.check_decodable().err();
        ArrayInfo {
            shape: array.shape.clone(),
            dimension_names: array.dimension_names.clone(),
            data_type: array.data_type.to_string(),
            members: v3::render(&Node::Array(Box::new(array.clone()))),
            chunk_shape: array.chunk_shape.clone(),
            inner_chunk_shapes: inner_shapes(&array.codecs),
            grid: open.stored_grid().map(|grid| grid.counts().to_vec()),
            codecs: array.codecs.clone(),
            bytes: array.byte_length().ok(),
            element: array.element_size().ok(),
            costs: costs(open).ok(),
            files: files(array, (name, around), undecodable.is_none()),
            undecodable,
        }
    }
}

impl ArrayInfo {
    /// Adds the names of files that open, before the directory of chunks.
    pub fn add_files(&mut self, names: Vec<String>) {
        let end = self.files.len().saturating_sub(1);
        self.files.splice(end..end, names);
    }
}

/// Returns the shapes of inner chunks that shards in a chain of codecs have, the outermost first.
pub fn inner_shapes(codecs: &[CodecSpec]) -> Vec<Vec<u64>> {
    let mut shapes = Vec::new();
    let mut next = codecs
        .iter()
        .find(|codec| codec.name == SHARDING)
        .map(CodecSpec::to_json);
    while let Some(shard) = next {
        let configuration = &shard["configuration"];
        let lengths = configuration["chunk_shape"].as_array();
        let lengths = lengths.into_iter().flatten();
        shapes.push(lengths.filter_map(Value::as_u64).collect());
        let inner = configuration["codecs"].as_array().into_iter().flatten();
        next = inner
            .into_iter()
            .find(|codec| codec["name"] == SHARDING)
            .cloned();
    }
    shapes
}

/// The codec of shards.
const SHARDING: &str = "sharding_indexed";

/// Returns the decoded files that open of an array.
fn files(array: &Array, (name, around): (&str, Surroundings<'_>), decodes: bool) -> Vec<String> {
    if !decodes {
        return Vec::new();
    }
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter().filter(|format| format.holds(&subject));
    let names = formats.map(|format| format!("{name}.{}", format.extension));
    names.chain(["chunks/".to_string()]).collect()
}

/// Computes what it takes to read an array. Fails if it does not decode.
fn costs(open: &OpenArray) -> Result<ReadCosts> {
    let array = open.array();
    let (pieces, levels) = (open.decoded_grid()?, open.shard_levels()? as u64);
    let element = array.element_size().ok();
    let piece = element.and_then(|element| bytes_of(pieces.chunk_shape(), element).ok());
    // Pieces under one run of pieces along the first dimension in which a piece has several elements.
    let lengths = pieces.chunk_shape().iter();
    let first = lengths.clone().position(|&length| length > 1);
    let beside = pieces
        .counts()
        .iter()
        .skip(first.map_or(usize::MAX, |axis| axis + 1));
    let row = beside.fold(1_u64, |all, &count| all.saturating_mul(count));
    let shards = open.stored_grid()?.len();
    let indexes = shards.saturating_mul(levels.min(1));
    Ok(ReadCosts {
        point: ReadCost {
            memory: piece,
            requests: 1 + levels,
        },
        sequential: ReadCost {
            memory: piece.map(|piece| piece.saturating_mul(row)),
            requests: pieces.len().saturating_add(indexes),
        },
    })
}
