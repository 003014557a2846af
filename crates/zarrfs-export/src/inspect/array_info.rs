//! Describes an array from its metadata, without requests to the store.

use std::sync::Arc;

use serde_json::Value;

use crate::formats::subject::Surroundings;
use crate::formats::{FORMATS, Subject};
use zarr_format::dialect::v3;
use zarr_format::error::{Error, Result};
use zarr_format::model::{Array, CodecSpec, Node, bytes_of};
use zarrfs_array::array::OpenArray;

/// The description of an array.
#[derive(Clone, Debug)]
pub struct ArrayInfo {
    /// Number of elements along each dimension.
    pub shape: Vec<u64>,
    /// Names of the dimensions; empty if they have no names.
    pub dimension_names: Vec<Option<String>>,
    /// The data type, for display.
    pub data_type: String,
    /// Chunk grid, data type, codecs and fill value, in the form of Zarr v3.
    pub members: Value,
    /// Number of elements along each dimension of a stored chunk; of the longest if chunks differ.
    pub chunk_shape: Vec<u64>,
    /// Shapes of inner chunks, from the outermost shard to the innermost chunk; empty without sharding.
    pub inner_chunk_shapes: Vec<Vec<u64>>,
    /// Number of chunks along each dimension, or the reason why it is unknown.
    pub grid: Result<Vec<u64>>,
    /// The codecs in the order of encoding.
    pub codecs: Vec<CodecSpec>,
    /// Decoded bytes of all elements, or `None` if elements have variable length.
    pub bytes: Option<u64>,
    /// Bytes of an element, or `None` if elements have variable length.
    pub element: Option<usize>,
    /// The reason why the array cannot be decoded, if it cannot.
    pub undecodable: Option<Error>,
    /// The costs of reading the array, if it can be decoded.
    pub costs: Option<ReadCosts>,
    /// File names in the files view.
    pub files: Vec<String>,
}

/// The costs of reading an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCosts {
    /// Reading one element.
    pub point: ReadCost,
    /// Reading all elements in C order, if each chunk is decoded once and all chunks are stored.
    pub sequential: ReadCost,
}

/// The memory for decoded chunks, and the requests to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadCost {
    /// Bytes, or `None` if elements have variable length.
    pub memory: Option<u64>,
    /// Number of requests. With shards this is an upper bound, as adjacent inner chunks are read together.
    pub requests: u64,
}

impl ArrayInfo {
    /// Describes an array that is called `name` in the files view.
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
            files: match undecodable {
                None => files(array, name, around),
                Some(_) => Vec::new(),
            },
            undecodable,
        }
    }
}

impl ArrayInfo {
    /// Inserts file names before the directory of chunks, which is last.
    pub(crate) fn add_files(&mut self, names: Vec<String>) {
        let end = self.files.len().saturating_sub(1);
        self.files.splice(end..end, names);
    }
}

/// Returns the shapes of inner chunks in a codec chain, the outermost first.
pub fn inner_shapes(codecs: &[CodecSpec]) -> Vec<Vec<u64>> {
    let sharding = "sharding_indexed";
    let mut shapes = Vec::new();
    let mut next = codecs
        .iter()
        .find(|codec| codec.name == sharding)
        .map(CodecSpec::to_json);
    while let Some(shard) = next {
        let configuration = &shard["configuration"];
        let lengths = configuration["chunk_shape"].as_array();
        let lengths = lengths.into_iter().flatten();
        shapes.push(lengths.filter_map(Value::as_u64).collect());
        let inner = configuration["codecs"].as_array().into_iter().flatten();
        next = inner
            .into_iter()
            .find(|codec| codec["name"] == sharding)
            .cloned();
    }
    shapes
}

/// Returns the files of a decodable array in the files view.
fn files(array: &Array, name: &str, around: Surroundings<'_>) -> Vec<String> {
    let subject = Subject {
        name: name.as_bytes(),
        around,
        ..Subject::alone(array, &array.shape)
    };
    let formats = FORMATS.iter().filter(|format| format.holds(&subject));
    let names = formats.map(|format| format!("{name}.{}", format.extension));
    names.chain(["chunks/".to_string()]).collect()
}

/// Computes the costs of reading an array. Fails if it cannot be decoded.
fn costs(open: &OpenArray) -> Result<ReadCosts> {
    let array = open.array();
    let (pieces, levels) = (open.decoded_grid()?, open.shard_levels()? as u64);
    let element = array.element_size().ok();
    let piece = element.and_then(|element| bytes_of(pieces.chunk_shape(), element).ok());
    // The chunks that a sequential read needs at the same time: all along the dimensions after the first one in which
    // a chunk has several elements.
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
