//! Models groups and arrays, independent of the dialect.
//!
//! The fields have the terms of final v3; a dialect fills them in.

use std::borrow::Cow;

pub use attributes::{Attributes, FAULT, LEFT_OUT, MAX_IN_FILES};
pub use data_type::{DataType, Field, TimeUnit, Words, utf32_bytes, utf32_text};
pub use number_type::{Coding, NumberType};
use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

mod attributes;
mod data_type;
pub mod document;
mod number_type;

/// Maximum length of an element in bytes; metadata that state a longer element are considered wrong.
pub const MAX_ELEMENT: usize = 1 << 20;

/// Maximum number of dimensions, the same as in numpy.
pub const MAX_RANK: usize = 64;

/// A group or an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A group, described by a metadata document or implied by its children.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

impl Node {
    /// Returns the user attributes of the node.
    pub fn attributes(&self) -> &Attributes {
        match self {
            Node::Group(group) => &group.attributes,
            Node::Array(array) => &array.attributes,
        }
    }

    /// Returns about how many bytes of memory the node takes, without its attributes.
    pub fn metadata_bytes(&self) -> u64 {
        match self {
            Node::Group(_) => 0,
            Node::Array(array) => array.metadata_bytes(),
        }
    }

    /// Replaces the user attributes of the node.
    pub fn with_attributes(mut self, attributes: Attributes) -> Node {
        match &mut self {
            Node::Group(group) => group.attributes = attributes,
            Node::Array(array) => array.attributes = attributes,
        }
        self
    }
}

/// A group. Its children are found by listing the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// User attributes of the group.
    pub attributes: Attributes,
}

/// An array as its metadata describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Name of the dialect, for messages.
    pub dialect: &'static str,
    /// Length of the array along each dimension, in elements.
    pub shape: Vec<u64>,
    /// Length of a stored chunk (with sharding, of a shard) along each dimension, in elements, never zero. In a
    /// rectilinear grid, it is the longest length of the chunks that begin inside the array.
    pub chunk_shape: Vec<u64>,
    /// Chunk lengths along each dimension of a rectilinear grid; empty for a regular grid.
    pub chunk_edges: Vec<Edges>,
    /// Data type of the elements.
    pub data_type: DataType,
    /// Fill value: the value of elements whose chunk is not stored.
    pub fill_value: FillValue,
    /// Codecs of a chunk in the order of encoding, by their v3 names (`numcodecs.*` for codecs that v3 lacks).
    pub codecs: Vec<CodecSpec>,
    /// Scheme by which the keys of chunks are built.
    pub keys: KeyScheme,
    /// Names of dimensions; empty if the metadata have none.
    pub dimension_names: Vec<Option<String>>,
    /// User attributes of the array.
    pub attributes: Attributes,
    /// Why no chunk can be decoded, if the metadata show a reason.
    pub undecodable: Option<String>,
}

impl Array {
    /// Returns the length of the decoded array in bytes: the product of `shape` and the element size.
    ///
    /// Fails with `Unsupported` for elements without a fixed size, `TooLarge` if the product does not fit
    /// a file offset.
    pub fn byte_length(&self) -> Result<u64> {
        bytes_of(&self.shape, self.element_size()?)
    }

    /// Returns the array with only those attributes that fit in the header of a decoded file.
    pub fn in_files(&self) -> Cow<'_, Array> {
        let attributes = self.attributes.in_files();
        if self.attributes.is_in_files() {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Array {
            attributes: attributes.clone(),
            ..self.clone()
        })
    }

    /// Returns a copy of the array without attributes.
    pub fn without_attributes(&self) -> Array {
        Array {
            attributes: Attributes::default(),
            ..self.clone()
        }
    }

    /// Whether the stored chunks of two arrays decode alike. Shapes and attributes may differ.
    pub fn is_stored_like(&self, other: &Array) -> bool {
        self.data_type == other.data_type
            // In a rectilinear grid, `chunk_shape` depends on the shape of the array, so only `chunk_edges` must be
            // equal.
            && (self.chunk_shape == other.chunk_shape || !self.chunk_edges.is_empty())
            && self.chunk_edges == other.chunk_edges
            && self.codecs == other.codecs
            && self.keys == other.keys
            && self.fill_value.bytes == other.fill_value.bytes
            && self.undecodable == other.undecodable
            && self.shape.len() == other.shape.len()
    }

    /// Returns the length of an element in bytes.
    ///
    /// Fails with `Unsupported` for elements without a fixed length, `TooLarge` for elements of more than `MAX_ELEMENT`
    /// bytes.
    pub fn element_size(&self) -> Result<usize> {
        let name = &self.data_type;
        match self.data_type.size() {
            Some(size) if size <= MAX_ELEMENT => Ok(size),
            Some(size) => Err(Error::too_large(
                "data_type",
                format!("an element of {size} bytes exceeds the limit of {MAX_ELEMENT}"),
            )),
            None if self.data_type.is_variable() => Err(Error::unsupported(
                "data_type",
                format!("elements of {name} have no fixed length"),
            )),
            None => Err(Error::unsupported(
                "data_type",
                format!("unsupported data type {name}"),
            )),
        }
    }

    /// Returns about how many bytes of memory the array takes, without its attributes, whose text may be shared.
    pub fn metadata_bytes(&self) -> u64 {
        let lengths = 8 * (self.shape.capacity() + self.chunk_shape.capacity());
        let names = self.dimension_names.iter().flatten();
        let parts = [
            size_of::<Array>() + lengths + 4 * BLOCK,
            self.chunk_edges.iter().map(edges_bytes).sum(),
            self.codecs.iter().map(codec_bytes).sum(),
            names.map(|name| 2 * BLOCK + name.len()).sum(),
            self.fill_value.bytes.capacity() + value_bytes(&self.fill_value.json),
            value_bytes(&self.keys.v3) + 2 * BLOCK + 3 * self.keys.prefix.len(),
            // The data type may hold text, since an unsupported type is the text in the metadata.
            BLOCK + format!("{:?}", self.data_type).len(),
        ];
        parts.iter().sum::<usize>() as u64
    }
}

/// Chunk lengths along a dimension of a rectilinear grid (chunk grid "rectilinear", "Chunk edge lengths").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edges {
    /// All chunks have the same length.
    Every(u64),
    /// Runs of chunks of equal length, in order; they reach the end of the array or beyond it.
    Runs(Vec<EdgeRun>),
}

/// Consecutive chunks of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeRun {
    /// Length of each chunk in elements, never zero.
    pub length: u64,
    /// Number of consecutive chunks of this length, never zero.
    pub count: u64,
}

/// Name and configuration of a codec.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecSpec {
    /// Name of the codec in Zarr v3.
    pub name: String,
    /// Configuration as in Zarr v3.
    pub configuration: Map<String, Value>,
}

impl CodecSpec {
    /// Builds a codec from its name and a JSON object.
    pub fn new(name: &str, configuration: Value) -> CodecSpec {
        let configuration = match configuration {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        CodecSpec {
            name: name.to_string(),
            configuration,
        }
    }

    /// Returns the JSON of the codec as final v3 writes it.
    pub fn to_json(&self) -> Value {
        if self.configuration.is_empty() {
            return json!({ "name": self.name });
        }
        json!({ "name": self.name, "configuration": self.configuration })
    }
}

/// Fill value: the value of every element that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct FillValue {
    /// Little-endian bytes of the fill value; without the length prefix if the data type has no fixed length.
    pub bytes: Vec<u8>,
    /// JSON of the fill value as final v3 writes it.
    pub json: Value,
    /// Whether the metadata have no fill value, so that missing chunks are read as zeros.
    pub is_none: bool,
}

/// How the chunk keys of an array are built: `prefix`, then the indices of the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScheme {
    /// Part of a chunk key before the first index, with its last separator (`a/b/`, `a/b/c/`, `data/root/a/c`).
    pub prefix: Vec<u8>,
    /// Character between two indices in a chunk key.
    pub separator: char,
    /// A separator that some writers use without stating it; tried if no chunk has `separator`.
    pub other_separator: Option<char>,
    /// Whole chunk keys of a 0-dimensional array, which has one chunk, in order of precedence; empty if the key
    /// encoding is unknown.
    pub scalar_keys: Vec<Vec<u8>>,
    /// Chunk key encoding as final v3 writes it.
    pub v3: Value,
}

impl KeyScheme {
    /// Returns the keys under which the chunk at `indices` may be stored, the likeliest first.
    pub fn candidates(&self, indices: &[u64]) -> Vec<Vec<u8>> {
        if indices.is_empty() {
            return self.scalar_keys.clone();
        }
        let mut keys = vec![self.join(indices, self.separator)];
        if let Some(other) = self.other_separator
            && indices.len() > 1
        {
            keys.push(self.join(indices, other));
        }
        keys
    }

    /// Whether the chunk key encoding is known. If not, chunk keys cannot be distinguished from other keys.
    pub fn is_known(&self) -> bool {
        !self.scalar_keys.is_empty()
    }

    /// Parses a path as the beginning of a chunk key with `separator` between indices. Returns the indices in the path,
    /// which are all indices of the chunk if the path is a whole key. Returns `None` if no chunk key begins with the
    /// path.
    pub fn indices_of(&self, path: &[u8], separator: char) -> Option<Vec<u64>> {
        let indices = str::from_utf8(path.strip_prefix(self.prefix.as_slice())?).ok()?;
        indices.split(separator).map(parse_index).collect()
    }

    /// Returns the indices of the chunk with this key in an array of `rank` dimensions, or `None` if the key is not a
    /// chunk key.
    pub fn chunk_of(&self, key: &[u8], rank: usize) -> Option<Vec<u64>> {
        if rank == 0 {
            let mut scalar = self.scalar_keys.iter();
            return scalar.any(|scalar| scalar == key).then(Vec::new);
        }
        let separators = [Some(self.separator), self.other_separator];
        let indices = |separator| self.indices_of(key, separator);
        let mut candidates = separators.into_iter().flatten().filter_map(indices);
        candidates.find(|indices| indices.len() == rank)
    }

    /// Returns the folder that contains all chunk keys of an array with dimensions.
    pub fn folder(&self) -> &[u8] {
        let length = self.prefix.iter().rposition(|&byte| byte == b'/');
        self.prefix.get(..length.unwrap_or(0)).unwrap_or_default()
    }

    fn join(&self, indices: &[u64], separator: char) -> Vec<u8> {
        let names: Vec<String> = indices.iter().map(u64::to_string).collect();
        [
            self.prefix.as_slice(),
            names.join(&separator.to_string()).as_bytes(),
        ]
        .concat()
    }
}

/// Parses a chunk index, which must not have leading zeros.
pub fn parse_index(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    if is_number && !is_padded {
        digits.parse().ok()
    } else {
        None
    }
}

/// Whether a chunk, or a folder of chunks, may have this name in some dialect: `0.1`, `c`, `c.0.1`, `c0`, `7`.
pub fn is_like_chunk(name: &[u8]) -> bool {
    let Ok(name) = str::from_utf8(name) else {
        return false;
    };
    let indices = name.strip_prefix('c').unwrap_or(name);
    let indices = if indices == name {
        name
    } else {
        indices.strip_prefix('.').unwrap_or(indices)
    };
    name == "c" || indices.split('.').all(|index| parse_index(index).is_some())
}

/// Returns the length in bytes of a box of elements; fails with `TooLarge` above 2^63 - 1, the maximum file size.
pub fn bytes_of(shape: &[u64], element: usize) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let unit = if element == 1 { "byte" } else { "bytes" };
    let mut bytes = element as u64;
    for &length in shape {
        bytes = bytes
            .checked_mul(length)
            .filter(|&b| i64::try_from(b).is_ok())
            .ok_or_else(|| {
                Error::too_large(
                    "shape",
                    format!("an array of shape {shape:?} with elements of {element} {unit} exceeds 2^63 bytes"),
                )
            })?;
    }
    Ok(bytes)
}

/// Estimated memory of a small allocation, in bytes.
const BLOCK: usize = 32;

/// Estimated memory of a member of a JSON object in bytes, without its name and the heap memory of its value.
const MEMBER: usize = size_of::<Value>() + size_of::<String>() + 3 * size_of::<usize>();

fn edges_bytes(edges: &Edges) -> usize {
    match edges {
        Edges::Every(_) => size_of::<Edges>(),
        Edges::Runs(runs) => size_of::<Edges>() + 16 * runs.capacity(),
    }
}

fn codec_bytes(codec: &CodecSpec) -> usize {
    let members = codec.configuration.iter();
    let members = members.map(|(name, value)| MEMBER + BLOCK + name.len() + value_bytes(value));
    size_of::<CodecSpec>() + 3 * BLOCK + codec.name.len() + members.sum::<usize>()
}

/// Returns about how many bytes a JSON value takes on the heap.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => BLOCK + text.capacity(),
        Value::Array(values) => {
            let own = BLOCK + size_of::<Value>() * values.capacity();
            own + values.iter().map(value_bytes).sum::<usize>()
        }
        Value::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(name, value)| MEMBER + BLOCK + name.len() + value_bytes(value));
            2 * BLOCK + members.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_chunks_are_distinguished_from_names_of_nodes() {
        for name in ["0", "0.1", "c", "c.0.1", "c0", "c12.3"] {
            assert!(is_like_chunk(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "a",
            "c.",
            "cc",
            "0.",
            "01",
            "1.0a",
            "zarr.json",
            ".zarray",
        ] {
            assert!(!is_like_chunk(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn products_that_overflow_are_refused() {
        assert_eq!(
            bytes_of(&[1 << 62, 4], 1).unwrap_err().kind(),
            crate::error::Kind::TooLarge
        );
        assert_eq!(bytes_of(&[1 << 62, 4, 0], 8).unwrap(), 0);
    }

    #[test]
    fn value_bytes_counts_nested_values_too() {
        let list = json!((0..1000).collect::<Vec<_>>());
        let bytes = value_bytes(&list);
        assert!(bytes >= 1000 * size_of::<Value>() && bytes < 3000 * size_of::<Value>());
        let nested = json!({"a": {"b": "x".repeat(500)}});
        assert!(value_bytes(&nested) > 2 * MEMBER + 500);
        assert_eq!(value_bytes(&json!(1.5)), 0);
    }
}
