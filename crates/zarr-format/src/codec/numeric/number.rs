//! Number types, and element types as numpy names them.
//!
//! `element.rs` has the arithmetic of these types; each codec decides which types it accepts.

use crate::codec::config::Configuration;
use crate::error::{Error, Result};
use crate::model::DataType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

impl Number {
    pub(super) fn width(self) -> usize {
        match self {
            Number::Bool | Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
        }
    }

    pub(super) fn bits(self) -> u32 {
        match self.width() {
            1 => 8,
            2 => 16,
            4 => 32,
            _ => 64,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Number::F16 | Number::F32 | Number::F64)
    }

    /// Whether `other` can represent every value of `self` exactly.
    pub(super) fn fits(self, other: Number) -> bool {
        let (signed, digits) = self.range();
        let (other_signed, other_digits) = other.range();
        let range = digits <= other_digits && (other_signed || !signed);
        self == other || range && (other.is_float() || !self.is_float())
    }

    /// Returns whether the number type is signed, and how many binary digits it represents exactly.
    fn range(self) -> (bool, u32) {
        match self {
            Number::Bool => (false, 1),
            Number::I8 => (true, 7),
            Number::I16 => (true, 15),
            Number::I32 => (true, 31),
            Number::I64 => (true, 63),
            Number::U8 => (false, 8),
            Number::U16 => (false, 16),
            Number::U32 => (false, 32),
            Number::U64 => (false, 64),
            Number::F16 => (true, 11),
            Number::F32 => (true, 24),
            Number::F64 => (true, 53),
        }
    }

    /// Returns the smallest and the largest number of an integer type.
    pub(super) fn bounds(self) -> (i128, i128) {
        let bits = 8 * self.width();
        match self {
            Number::I8 | Number::I16 | Number::I32 | Number::I64 => {
                (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
            }
            _ => (0, (1 << bits) - 1),
        }
    }

    fn new(kind: char, width: usize) -> Option<Number> {
        match (kind, width) {
            ('b', 1) => Some(Number::Bool),
            ('i', 1) => Some(Number::I8),
            ('i', 2) => Some(Number::I16),
            ('i', 4) => Some(Number::I32),
            ('i', 8) => Some(Number::I64),
            ('u', 1) => Some(Number::U8),
            ('u', 2) => Some(Number::U16),
            ('u', 4) => Some(Number::U32),
            ('u', 8) => Some(Number::U64),
            ('f', 2) => Some(Number::F16),
            ('f', 4) => Some(Number::F32),
            ('f', 8) => Some(Number::F64),
            _ => None,
        }
    }
}

/// Element type as numpy names it: a number type, whether it is complex, and its byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dtype {
    pub(super) number: Number,
    /// Numbers in an element: 2 for complex numbers, else 1.
    pub(super) parts: usize,
    /// Whether the numbers of an element are big-endian.
    pub(super) big: bool,
}

impl Dtype {
    /// Returns the element type of a data type, or `None` if its elements are not numbers.
    pub(super) fn of(data_type: &DataType) -> Option<Dtype> {
        let (kind, width, parts) = match data_type {
            DataType::Bool => ('b', 1, 1),
            DataType::Int(width) => ('i', *width, 1),
            DataType::UInt(width) => ('u', *width, 1),
            DataType::Float(width) => ('f', *width, 1),
            DataType::Complex(width) => ('f', width / 2, 2),
            DataType::DateTime(_) | DataType::TimeDelta(_) => ('i', 8, 1),
            DataType::Small(number) => match number.narrow()? {
                (_, true) => ('i', 1, 1),
                (_, false) => ('u', 1, 1),
            },
            _ => return None,
        };
        let number = Number::new(kind, width)?;
        Some(Dtype {
            number,
            parts,
            big: false,
        })
    }

    /// Returns the element type of a data type of whole-byte integers or floats; fails with `Unsupported` for all other
    /// types.
    pub(super) fn of_real(data_type: &DataType, codec: &str) -> Result<Dtype> {
        let dtype = match data_type {
            DataType::Int(_) | DataType::UInt(_) | DataType::Float(_) => Dtype::of(data_type),
            _ => None,
        };
        dtype.ok_or_else(|| {
            let what = format!("{codec} does not support data type {data_type}");
            Error::unsupported("codecs", what)
        })
    }

    /// Reads a parameter that names a type as numpy does (`<i4`, `int32`, `|b1`).
    ///
    /// Fails with `Corrupt` if the value is not a string, `Unsupported` if it does not name a number type.
    pub(super) fn member(config: Configuration<'_>, name: &str) -> Result<Option<Dtype>> {
        let Some(value) = config.get(name) else {
            return Ok(None);
        };
        let wrong = || config.unexpected(name, "a type string of numpy, such as <f4");
        let text = value.as_str().ok_or_else(wrong)?;
        let unknown = || {
            Error::unsupported(
                "codecs",
                format!("unsupported {name} {text} (supported: types of numbers)"),
            )
        };
        Dtype::parse(text).map(Some).ok_or_else(unknown)
    }

    fn parse(text: &str) -> Option<Dtype> {
        let plain = text.trim_start_matches(['<', '>', '|', '=']);
        // Dates and durations of any unit are stored as 64-bit integers.
        let plain = if plain.starts_with("M8") || plain.starts_with("m8") {
            "i8"
        } else {
            plain
        };
        let digits = plain.find(|c: char| c.is_ascii_digit());
        let (word, size) = match digits {
            Some(start) => (plain.get(..start)?, plain.get(start..)?.parse().ok()?),
            None => (plain, 0),
        };
        let (kind, width, parts) = match (word, size) {
            ("bool" | "?", 0) => ('b', 1, 1),
            ("int", bits) => ('i', bits / 8, 1),
            ("uint", bits) => ('u', bits / 8, 1),
            ("float", bits) => ('f', bits / 8, 1),
            ("complex", bits) => ('f', bits / 16, 2),
            ("c", bytes) => ('f', bytes / 2, 2),
            ("b" | "i" | "u" | "f", bytes) if bytes > 0 => (word.chars().next()?, bytes, 1),
            _ => return None,
        };
        Some(Dtype {
            number: Number::new(kind, width)?,
            parts,
            big: text.starts_with('>'),
        })
    }

    pub(super) fn size(self) -> usize {
        self.number.width() * self.parts
    }

    /// Returns the data type of an array with these elements.
    pub(super) fn data_type(self) -> DataType {
        let width = self.number.width();
        match self.number {
            _ if self.parts == 2 => DataType::Complex(width * 2),
            Number::Bool => DataType::Bool,
            Number::F16 | Number::F32 | Number::F64 => DataType::Float(width),
            Number::I8 | Number::I16 | Number::I32 | Number::I64 => DataType::Int(width),
            Number::U8 | Number::U16 | Number::U32 | Number::U64 => DataType::UInt(width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numpy_type_names_are_parsed() {
        let dtype = |number, parts, big| Some(Dtype { number, parts, big });
        for (text, expected) in [
            ("<i4", dtype(Number::I32, 1, false)),
            (">f8", dtype(Number::F64, 1, true)),
            ("|b1", dtype(Number::Bool, 1, false)),
            ("bool", dtype(Number::Bool, 1, false)),
            ("uint16", dtype(Number::U16, 1, false)),
            ("complex64", dtype(Number::F32, 2, false)),
            (">c16", dtype(Number::F64, 2, true)),
            ("f2", dtype(Number::F16, 1, false)),
            ("<U4", None),
            ("|O", None),
            ("<M8[ns]", dtype(Number::I64, 1, false)),
            (">m8[s]", dtype(Number::I64, 1, true)),
            ("i3", None),
            ("", None),
        ] {
            assert_eq!(Dtype::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn a_type_fits_into_one_that_has_all_its_values() {
        assert!(Number::U8.fits(Number::I16) && Number::I16.fits(Number::F32));
        assert!(Number::F16.fits(Number::F64) && Number::Bool.fits(Number::I8));
        assert!(!Number::I8.fits(Number::U64) && !Number::I32.fits(Number::F32));
        assert!(!Number::F16.fits(Number::I64) && !Number::U8.fits(Number::I8));
    }
}
