//! The one model of a hierarchy: what a group or an array is once its dialect no longer matters.
//!
//! Plain data in the words of final v3, filled in by a dialect. No module further down depends on the dialect itself.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};

mod attributes;
mod bytes_held;
mod data_type;
pub mod document;
mod numbers;

pub use attributes::{Attributes, FAULT, LEFT_OUT, MAX_IN_FILES};
pub use data_type::{DataType, Field, TimeUnit, Words};
pub use numbers::{Coding, NumberType};

/// A group or an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A group, with a document or implied by what lies below it.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

impl Node {
    /// Returns the user's attributes.
    pub fn attributes(&self) -> &Attributes {
        match self {
            Node::Group(group) => &group.attributes,
            Node::Array(array) => &array.attributes,
        }
    }

    /// Returns about how many bytes the node takes beside its attributes.
    pub fn metadata_bytes(&self) -> u64 {
        match self {
            Node::Group(_) => 0,
            Node::Array(array) => array.metadata_bytes(),
        }
    }

    /// Returns the node with other attributes.
    pub fn with_attributes(mut self, attributes: Attributes) -> Node {
        match &mut self {
            Node::Group(group) => group.attributes = attributes,
            Node::Array(array) => array.attributes = attributes,
        }
        self
    }
}

/// A group: its attributes; its children are found by listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The user's attributes.
    pub attributes: Attributes,
}

/// An array as its metadata describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The dialect's name, for messages.
    pub dialect: &'static str,
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// Elements along each dimension of one stored chunk (with sharding: of one shard); where chunks differ, of the
    /// longest that begins in the array. Same rank as `shape`, never zero.
    pub chunk_shape: Vec<u64>,
    /// How long the chunks are along each dimension, where they differ; empty for a regular grid.
    pub chunk_edges: Vec<Edges>,
    /// The type of an element.
    pub data_type: DataType,
    /// What elements of chunks that are not stored read as.
    pub fill_value: FillValue,
    /// The codecs of a chunk in the order of encoding, by their final-v3 names (`numcodecs.*` for those
    /// that v3 lacks).
    pub codecs: Vec<CodecSpec>,
    /// Where chunks are stored.
    pub keys: KeyScheme,
    /// Names of dimensions; empty if there are none.
    pub dimension_names: Vec<Option<String>>,
    /// The user's attributes.
    pub attributes: Attributes,
    /// The reason why no chunk can be decoded, if the metadata show it.
    pub undecodable: Option<String>,
}

/// How long the chunks are along one dimension (chunk grid "rectilinear", "Chunk edge lengths").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edges {
    /// All alike, as many as the array needs.
    Every(u64),
    /// Runs of chunks of one length, in order; they reach the end of the array or beyond it.
    Runs(Vec<EdgeRun>),
}

/// Chunks of one length, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeRun {
    /// Elements of each, never zero.
    pub length: u64,
    /// How many there are, never zero.
    pub count: u64,
}

/// A codec's name and its configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecSpec {
    /// Final-v3 name.
    pub name: String,
    /// Members as final v3 has them.
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

    /// Returns the codec as final v3 writes it.
    pub fn to_json(&self) -> Value {
        if self.configuration.is_empty() {
            return json!({ "name": self.name });
        }
        json!({ "name": self.name, "configuration": self.configuration })
    }
}

/// The value of every element that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct FillValue {
    /// The element, little-endian, as long as the data type says; without a length if the type has none of
    /// its own.
    pub bytes: Vec<u8>,
    /// The value as final v3 writes it.
    pub json: Value,
    /// Whether the metadata have none: it reads as zeros then.
    pub is_none: bool,
}

/// Where the chunks of an array are stored: `prefix`, then the indices of the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScheme {
    /// Everything before the first index, its own separator included (`a/b/`, `a/b/c/`, `data/root/a/c`).
    pub prefix: Vec<u8>,
    /// What stands between two indices.
    pub separator: char,
    /// A second separator that some writers use without stating it; tried when no chunk has the first.
    pub other_separator: Option<char>,
    /// The whole keys of the only chunk of a 0-dimensional array, in the order they are tried; none if the encoding of
    /// keys is not known.
    pub scalar_keys: Vec<Vec<u8>>,
    /// The encoding as final v3 names it.
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

    /// Whether the encoding of keys is one that is read; with any other, chunks cannot be distinguished from other
    /// keys.
    pub fn is_known(&self) -> bool {
        !self.scalar_keys.is_empty()
    }

    /// Returns the first indices of the chunks whose keys begin with a path, if `separator` stands between them: all
    /// indices of a chunk if the path is its whole key. Nothing for a path that no key begins with.
    pub fn indices_of(&self, path: &[u8], separator: char) -> Option<Vec<u64>> {
        let indices = str::from_utf8(path.strip_prefix(self.prefix.as_slice())?).ok()?;
        indices.split(separator).map(parse_index).collect()
    }

    /// Returns the indices of the chunk that a key may hold, in an array of `rank` dimensions; `None` if it is no such key.
    pub fn chunk_of(&self, key: &[u8], rank: usize) -> Option<Vec<u64>> {
        if rank == 0 {
            let mut scalar = self.scalar_keys.iter();
            return scalar.any(|scalar| scalar == key).then(Vec::new);
        }
        let separators = [Some(self.separator), self.other_separator];
        let indices = |separator| self.indices_of(key, separator);
        let mut found = separators.into_iter().flatten().filter_map(indices);
        found.find(|indices| indices.len() == rank)
    }

    /// Returns the folder in which the keys of all chunks of an array with dimensions lie.
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

/// Reads an index in its shortest spelling.
pub fn parse_index(digits: &str) -> Option<u64> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_padded = digits.len() > 1 && digits.starts_with('0');
    if is_number && !is_padded {
        digits.parse().ok()
    } else {
        None
    }
}

/// Whether a name may be that of a chunk, or of a folder of chunks, in some dialect: `0.1`, `c`, `c.0.1`, `c0`, `7`.
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

/// The longest element that is read, in bytes; metadata that state a longer one are taken to be wrong.
pub const MAX_ELEMENT: usize = 1 << 20;

/// The most dimensions that are read; numpy has the same limit.
pub const MAX_RANK: usize = 64;

impl Array {
    /// Returns the product of `shape` times the element size, if the array can be shown as a flat file.
    ///
    /// Fails with `Unsupported` for elements without a fixed size, `TooLarge` if the product does not fit
    /// a file offset.
    pub fn byte_length(&self) -> Result<u64> {
        bytes_of(&self.shape, self.element_size()?)
    }

    /// Returns the array with the attributes that a file has.
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

    /// Returns a copy of the array that has no attributes.
    pub fn without_attributes(&self) -> Array {
        Array {
            attributes: Attributes::default(),
            ..self.clone()
        }
    }

    /// Whether stored chunks of both arrays mean the same, whatever shapes and attributes these have.
    pub fn is_stored_like(&self, other: &Array) -> bool {
        self.data_type == other.data_type
            // Where chunks differ, the longest one depends on the shape.
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
    /// Fails with `Unsupported` for elements without a fixed length, `TooLarge` above `MAX_ELEMENT`.
    pub fn element_size(&self) -> Result<usize> {
        let name = &self.data_type;
        match self.data_type.size() {
            Some(size) if size <= MAX_ELEMENT => Ok(size),
            Some(size) => Err(Error::too_large(
                "data_type",
                format!("an element of {size} bytes"),
            )),
            None if self.data_type.is_variable() => Err(Error::unsupported(
                "data_type",
                format!("elements of {name} have no fixed length"),
            )),
            None => Err(Error::unsupported(
                "data_type",
                format!("{name} is not known"),
            )),
        }
    }
}

/// Returns the bytes of a box of elements; `TooLarge` beyond 2^63 - 1, which no file can hold.
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
                    format!("{shape:?} elements of {element} {unit} come to more than 2^63 bytes"),
                )
            })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chunks_are_told_from_those_of_nodes() {
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
}
