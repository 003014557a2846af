//! The one model of a hierarchy: what a group or an array is once its dialect no longer matters.
//!
//! Plain data in the words of final v3. A dialect fills it in; everything further down differs only by
//! what stands here, never by asking which dialect it was.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::error::Error;
use crate::error::Result;

/// A group or an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A group, with a document or implied by what lies below it.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

/// A group: its attributes; its children are found by listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// The user's attributes.
    pub attributes: Map<String, Value>,
}

/// An array as its metadata describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The dialect's name, to be shown to a person.
    pub dialect: &'static str,
    /// Elements along each dimension.
    pub shape: Vec<u64>,
    /// Elements along each dimension of one stored chunk (with sharding: of one shard); same rank as
    /// `shape`, never zero.
    pub chunk_shape: Vec<u64>,
    /// The type of an element.
    pub data_type: DataType,
    /// What elements of chunks that are not stored read as.
    pub fill_value: FillValue,
    /// The codecs of a chunk in the order of encoding, by their final-v3 names (`numcodecs.*` for those
    /// that v3 does not know).
    pub codecs: Vec<CodecSpec>,
    /// Where chunks are stored.
    pub keys: KeyScheme,
    /// Names of dimensions; empty if there are none.
    pub dimension_names: Vec<Option<String>>,
    /// The user's attributes.
    pub attributes: Map<String, Value>,
    /// Why no chunk can be decoded, if the metadata already say so.
    pub undecodable: Option<String>,
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

/// One element that stands for all that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct FillValue {
    /// The element, little-endian, as long as the data type says; empty if the type has no fixed size.
    pub bytes: Vec<u8>,
    /// The value as final v3 writes it.
    pub json: Value,
}

/// Where the chunks of an array are stored: `prefix`, then the indices of the chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScheme {
    /// Everything before the first index, its own separator included (`a/b/`, `a/b/c/`, `data/root/a/c`).
    pub prefix: Vec<u8>,
    /// What stands between two indices.
    pub separator: char,
    /// A second separator that some writers use without saying so; tried when the first finds nothing.
    pub other_separator: Option<char>,
    /// The whole keys of the only chunk of a 0-dimensional array, in the order they are tried.
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

    fn join(&self, indices: &[u64], separator: char) -> Vec<u8> {
        let names: Vec<String> = indices.iter().map(u64::to_string).collect();
        [
            self.prefix.as_slice(),
            names.join(&separator.to_string()).as_bytes(),
        ]
        .concat()
    }
}

/// The type of an element. Widths are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum DataType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Int(usize),
    /// Unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(usize),
    /// IEEE 754 number of 2, 4 or 8 bytes.
    Float(usize),
    /// Two floats, real and imaginary, 8 or 16 bytes together.
    Complex(usize),
    /// `r*`: that many bytes without a meaning.
    Raw(usize),
    /// A type this program does not know, as the metadata spell it.
    Unknown(String),
}

impl DataType {
    /// Reads a core data type of final v3 (core specification, "Core data types").
    pub fn from_v3(name: &str) -> DataType {
        match name {
            "bool" => DataType::Bool,
            "int8" => DataType::Int(1),
            "int16" => DataType::Int(2),
            "int32" => DataType::Int(4),
            "int64" => DataType::Int(8),
            "uint8" => DataType::UInt(1),
            "uint16" => DataType::UInt(2),
            "uint32" => DataType::UInt(4),
            "uint64" => DataType::UInt(8),
            "float16" => DataType::Float(2),
            "float32" => DataType::Float(4),
            "float64" => DataType::Float(8),
            "complex64" => DataType::Complex(8),
            "complex128" => DataType::Complex(16),
            other => raw_bits(other).map_or(DataType::Unknown(other.to_string()), DataType::Raw),
        }
    }

    /// Returns the name in final v3.
    pub fn v3_name(&self) -> String {
        match self {
            DataType::Bool => "bool".to_string(),
            DataType::Int(width) => format!("int{}", width * 8),
            DataType::UInt(width) => format!("uint{}", width * 8),
            DataType::Float(width) => format!("float{}", width * 8),
            DataType::Complex(width) => format!("complex{}", width * 8),
            DataType::Raw(width) => format!("r{}", width * 8),
            DataType::Unknown(name) => name.clone(),
        }
    }

    /// Returns the length of an element in bytes, or nothing if it is not known.
    pub fn size(&self) -> Option<usize> {
        match self {
            DataType::Bool => Some(1),
            DataType::Int(width)
            | DataType::UInt(width)
            | DataType::Float(width)
            | DataType::Complex(width)
            | DataType::Raw(width) => Some(*width),
            DataType::Unknown(_) => None,
        }
    }

    /// Returns the length of what a change of byte order turns round: half an element for complex
    /// numbers, one byte where order has no meaning.
    pub fn word(&self) -> usize {
        match self {
            DataType::Int(width) | DataType::UInt(width) | DataType::Float(width) => *width,
            DataType::Complex(width) => width / 2,
            DataType::Bool | DataType::Raw(_) | DataType::Unknown(_) => 1,
        }
    }

    /// Returns the type as numpy's `.npy` header names it, little-endian.
    pub fn npy_descr(&self) -> Option<String> {
        let order = if self.word() == 1 { '|' } else { '<' };
        match self {
            DataType::Bool => Some("|b1".to_string()),
            DataType::Int(width) => Some(format!("{order}i{width}")),
            DataType::UInt(width) => Some(format!("{order}u{width}")),
            DataType::Float(width) => Some(format!("{order}f{width}")),
            DataType::Complex(width) => Some(format!("{order}c{width}")),
            DataType::Raw(width) => Some(format!("|V{width}")),
            DataType::Unknown(_) => None,
        }
    }
}

/// Reads `r*`: the number of bits is a positive multiple of 8, no more than can be meant.
fn raw_bits(name: &str) -> Option<usize> {
    let bits: usize = name.strip_prefix('r')?.parse().ok()?;
    (bits > 0 && bits.is_multiple_of(8) && bits / 8 <= MAX_ELEMENT).then_some(bits / 8)
}

/// The longest element that is taken to be meant, 1 MiB.
pub const MAX_ELEMENT: usize = 1 << 20;

/// The most dimensions that are taken to be meant; numpy stops at 64.
pub const MAX_RANK: usize = 64;

impl Array {
    /// Returns the product of `shape` times the element size, if the array can be shown as a flat file.
    ///
    /// Fails with `Unsupported` for elements without a fixed size, `TooLarge` if the product does not fit
    /// a file offset.
    pub fn byte_length(&self) -> Result<u64> {
        bytes_of(&self.shape, self.element_size()?)
    }

    /// Returns the length of an element in bytes.
    pub fn element_size(&self) -> Result<usize> {
        match self.data_type.size() {
            Some(size) if size <= MAX_ELEMENT => Ok(size),
            Some(size) => Err(Error::too_large(
                "data_type",
                format!("an element of {size} bytes"),
            )),
            None => {
                let name = self.data_type.v3_name();
                Err(Error::unsupported(
                    "data_type",
                    format!("{name} is not known"),
                ))
            }
        }
    }
}

/// Returns the bytes of a box of elements; `TooLarge` beyond 2^63 - 1, which no file can hold.
pub fn bytes_of(shape: &[u64], element: usize) -> Result<u64> {
    if shape.contains(&0) {
        return Ok(0);
    }
    let mut bytes = element as u64;
    for &length in shape {
        bytes = bytes
            .checked_mul(length)
            .filter(|&b| i64::try_from(b).is_ok())
            .ok_or_else(|| {
                Error::too_large(
                    "shape",
                    format!("{shape:?} elements of {element} bytes exceed 2^63 bytes"),
                )
            })?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_types_keep_their_names() {
        for name in [
            "bool",
            "int8",
            "uint64",
            "float16",
            "complex64",
            "complex128",
            "r24",
        ] {
            assert_eq!(DataType::from_v3(name).v3_name(), name);
        }
        assert_eq!(
            DataType::from_v3("r12"),
            DataType::Unknown("r12".to_string())
        );
        assert_eq!(DataType::from_v3("complex64").word(), 4);
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
