//! Defines the data types of elements, for all dialects.
//!
//! Decoded elements are little-endian and packed. Types that differ only in a dialect's spelling are the same here. An
//! element without a fixed length is stored as its length in bytes (u32, little-endian) and its bytes. Dialects read
//! and write the names of data types.

use std::fmt;

use crate::model::MAX_ELEMENT;
use crate::model::number_type::NumberType;

/// Data type of an element. Widths are in bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum DataType {
    /// Boolean: one byte, 0 or 1.
    Bool,
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Int(usize),
    /// Unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(usize),
    /// IEEE 754 number of 2, 4 or 8 bytes.
    Float(usize),
    /// Complex number: two floats, real and imaginary, together 8 or 16 bytes.
    Complex(usize),
    /// A number type that numpy lacks, such as bfloat16.
    Small(&'static NumberType),
    /// Raw type `r*`: N bytes without a meaning.
    Raw(usize),
    /// A point in time, counted from 1970, as a signed 8-byte integer; the smallest integer is NaT (not a time).
    DateTime(TimeUnit),
    /// A duration, as a signed 8-byte integer; the smallest integer is NaT (not a time).
    TimeDelta(TimeUnit),
    /// Fixed-length bytes: N bytes, padded with zeros.
    FixedBytes(usize),
    /// Fixed-length text: N code points of UTF-32, padded with zeros.
    FixedText(usize),
    /// A structure: consecutive fields without padding.
    Struct(Vec<Field>),
    /// UTF-8 text of any length.
    Text,
    /// Bytes of any length.
    Bytes,
    /// A list of any length, whose elements have the same type.
    List(Box<DataType>),
    /// Python objects: strings as their text, all other objects as JSON.
    Object,
    /// An unsupported data type, as the metadata spell it.
    Unknown(String),
}

/// A field of a structured type.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name of the field, unique in the structure.
    pub name: String,
    /// Data type of the field; for a subarray, of its elements.
    pub data_type: DataType,
    /// Shape of a subarray in C order; empty if the field is a single element.
    pub shape: Vec<u64>,
}

/// Unit of a date or a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeUnit {
    /// numpy's name of the unit: `Y M W D h m s ms us ns ps fs as`, or `generic`.
    pub name: String,
    /// Number of units that the integer 1 stands for, at least 1, as 10 in `10us`.
    pub scale: u32,
}

/// Consecutive words (numbers or code points) of an element, whose byte order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Offset of the first word in the element, in bytes.
    pub offset: usize,
    /// Width of each word in bytes.
    pub width: usize,
    /// Number of consecutive words.
    pub count: usize,
}

impl Field {
    /// Returns the number of elements of the field (1, or those of its subarray), or `None` if the product overflows.
    pub fn count(&self) -> Option<usize> {
        let lengths = self.shape.iter();
        lengths.into_iter().try_fold(1_usize, |count, &length| {
            count.checked_mul(usize::try_from(length).ok()?)
        })
    }

    fn size(&self) -> Option<usize> {
        self.data_type.size()?.checked_mul(self.count()?)
    }
}

impl DataType {
    /// Reads the name of a core data type of final v3 (core specification, "Core data types"), or of a number type of
    /// its extensions; an unknown name gives `Unknown`. GDAL 3.12 writes `complex32` for `complex_float16`.
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
            "complex64" | "complex_float32" => DataType::Complex(8),
            "complex128" | "complex_float64" => DataType::Complex(16),
            "string" => DataType::Text,
            "bytes" | "variable_length_bytes" => DataType::Bytes,
            "complex32" => DataType::from_v3("complex_float16"),
            other => match (NumberType::named(other), raw_bits(other)) {
                (Some(number), _) => DataType::Small(number),
                (None, Some(width)) => DataType::Raw(width),
                (None, None) => DataType::Unknown(other.to_string()),
            },
        }
    }

    /// Returns the length of an element in bytes, or `None` if it is not fixed.
    pub fn size(&self) -> Option<usize> {
        match self {
            DataType::Bool => Some(1),
            DataType::Int(width)
            | DataType::UInt(width)
            | DataType::Float(width)
            | DataType::Complex(width)
            | DataType::FixedBytes(width)
            | DataType::Raw(width) => Some(*width),
            DataType::Small(number) => Some(number.size),
            DataType::DateTime(_) | DataType::TimeDelta(_) => Some(8),
            DataType::FixedText(length) => length.checked_mul(4),
            DataType::Struct(fields) => fields
                .iter()
                .try_fold(0_usize, |size, field| size.checked_add(field.size()?)),
            DataType::Text
            | DataType::Bytes
            | DataType::List(_)
            | DataType::Object
            | DataType::Unknown(_) => None,
        }
    }

    /// Whether elements have no fixed length, so that each element states its own.
    pub fn is_variable(&self) -> bool {
        matches!(
            self,
            DataType::Text | DataType::Bytes | DataType::List(_) | DataType::Object
        )
    }

    /// Returns the width in bytes of a word, the unit of byte order: half an element for complex numbers; 1 if byte
    /// order has no meaning or the words of an element differ.
    pub fn word(&self) -> usize {
        match self {
            DataType::Int(width) | DataType::UInt(width) | DataType::Float(width) => *width,
            DataType::Complex(width) => width / 2,
            DataType::Small(number) => number.word,
            DataType::DateTime(_) | DataType::TimeDelta(_) => 8,
            DataType::FixedText(_) => 4,
            DataType::Bool
            | DataType::Raw(_)
            | DataType::FixedBytes(_)
            | DataType::Struct(_)
            | DataType::Text
            | DataType::Bytes
            | DataType::List(_)
            | DataType::Object
            | DataType::Unknown(_) => 1,
        }
    }

    /// Returns the words of an element whose byte order matters, by ascending offset.
    pub fn words(&self) -> Vec<Words> {
        let mut words = Vec::new();
        self.add_words(0, &mut words);
        words
    }

    fn add_words(&self, mut offset: usize, words: &mut Vec<Words>) {
        let DataType::Struct(fields) = self else {
            let width = self.word();
            let count = self.size().unwrap_or(0) / width.max(1);
            if width > 1 && count > 0 {
                words.push(Words {
                    offset,
                    width,
                    count,
                });
            }
            return;
        };
        for field in fields {
            let size = field.data_type.size().unwrap_or(0);
            for _ in 0..field.count().unwrap_or(0) {
                field.data_type.add_words(offset, words);
                offset += size;
            }
        }
    }
}

/// Reads a raw type `r*` and returns its length in bytes: the number of bits must be a positive multiple of 8, and the
/// length at most `MAX_ELEMENT`.
fn raw_bits(name: &str) -> Option<usize> {
    let bits: usize = name.strip_prefix('r')?.parse().ok()?;
    (bits > 0 && bits.is_multiple_of(8) && bits / 8 <= MAX_ELEMENT).then_some(bits / 8)
}

/// Converts text to UTF-32, little-endian.
pub fn utf32_bytes(text: &str) -> Vec<u8> {
    text.chars()
        .flat_map(|letter| u32::from(letter).to_le_bytes())
        .collect()
}

/// Converts UTF-32, little-endian, to text without trailing zeros.
pub fn utf32_text(bytes: &[u8]) -> String {
    let points = bytes.as_chunks::<4>().0.iter();
    let letters = points.map(|point| char::from_u32(u32::from_le_bytes(*point)));
    let mut text: String = letters.map(|letter| letter.unwrap_or('\u{fffd}')).collect();
    text.truncate(text.trim_end_matches('\0').len());
    text
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Bool => f.write_str("bool"),
            DataType::Int(width) => write!(f, "int{}", width * 8),
            DataType::UInt(width) => write!(f, "uint{}", width * 8),
            DataType::Float(width) => write!(f, "float{}", width * 8),
            DataType::Complex(width) => write!(f, "complex{}", width * 8),
            DataType::Small(number) => f.write_str(number.name),
            DataType::Raw(width) => write!(f, "r{}", width * 8),
            DataType::DateTime(unit) => write!(f, "datetime64[{unit}]"),
            DataType::TimeDelta(unit) => write!(f, "timedelta64[{unit}]"),
            DataType::FixedBytes(width) => write!(f, "S{width}"),
            DataType::FixedText(length) => write!(f, "U{length}"),
            DataType::Struct(fields) => {
                let names: Vec<String> = fields
                    .iter()
                    .map(|field| format!("{} {}", field.data_type, field.name))
                    .collect();
                write!(f, "struct {{{}}}", names.join(", "))
            }
            DataType::Text => f.write_str("string"),
            DataType::Bytes => f.write_str("bytes"),
            DataType::List(element) => write!(f, "list of {element}"),
            DataType::Object => f.write_str("object"),
            DataType::Unknown(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.scale != 1 {
            write!(f, "{}", self.scale)?;
        }
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, data_type: DataType, shape: &[u64]) -> Field {
        Field {
            name: name.to_string(),
            data_type,
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn core_types_keep_their_names() {
        for name in [
            "bool",
            "int8",
            "uint64",
            "float16",
            "complex64",
            "complex128",
            "bfloat16",
            "r24",
        ] {
            assert_eq!(DataType::from_v3(name).to_string(), name);
        }
        assert_eq!(
            DataType::from_v3("r12"),
            DataType::Unknown("r12".to_string())
        );
        assert_eq!(DataType::from_v3("complex64").word(), 4);
    }

    #[test]
    fn structures_are_packed_without_padding() {
        let inner = DataType::Struct(vec![
            field("flag", DataType::Bool, &[]),
            field("x", DataType::Complex(8), &[]),
        ]);
        let outer = DataType::Struct(vec![
            field("id", DataType::Int(4), &[]),
            field("p", inner, &[2]),
        ]);
        assert_eq!(outer.size(), Some(4 + 2 * 9));
        let places: Vec<_> = outer
            .words()
            .iter()
            .map(|words| (words.offset, words.width, words.count))
            .collect();
        assert_eq!(places, [(0, 4, 1), (5, 4, 2), (14, 4, 2)]);
    }

    #[test]
    fn sizes_that_overflow_are_none() {
        let huge = field("x", DataType::Int(8), &[1 << 62, 1 << 62]);
        assert_eq!(DataType::Struct(vec![huge]).size(), None);
        assert_eq!(DataType::FixedText(usize::MAX).size(), None);
    }
}
