//! Parses numpy's names of data types: `<f4`, `|S5`, `>M8[ns]`, lists of fields.
//!
//! The names are defined in the v2 specification, "Data type encoding"; the drafts of v3 use them too. A numpy type
//! that is not supported is `Unknown`; only text that numpy cannot have written is an error. A `DataType` has no byte
//! order: `StoredType` has it, and it becomes codec `bytes`.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType, Field, MAX_ELEMENT, NumberType, TimeUnit};

/// A data type and the byte order of its stored elements.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredType {
    /// Data type of the elements.
    pub data_type: DataType,
    /// Whether each word (number) of an element is big-endian, in the order of `DataType::words`.
    big: Vec<bool>,
}

/// Maximum nesting of structured types.
pub(super) const MAX_DEPTH: usize = 16;

/// Maximum number of fields in a structured type, including the fields of nested types and subarrays.
const MAX_WORDS: usize = 1 << 16;

/// Reads numpy's name of a data type, a string or a list of fields; fails with `Corrupt` if numpy could not have
/// written it.
pub fn parse(dtype: &Value) -> Result<StoredType> {
    let typed = nested(dtype, 0)?;
    let known = typed
        .data_type
        .size()
        .is_some_and(|size| size <= MAX_ELEMENT);
    Ok(match typed.data_type {
        DataType::Struct(_) if !known => unknown(dtype),
        _ => typed,
    })
}

fn nested(dtype: &Value, depth: usize) -> Result<StoredType> {
    match dtype {
        Value::String(text) => Ok(simple(text).unwrap_or_else(|| unknown(dtype))),
        Value::Array(fields) if depth < MAX_DEPTH => structured(fields, depth),
        _ => Err(Error::corrupt(
            "dtype",
            format!("expected a type string or a list of fields, found {dtype}"),
        )),
    }
}

fn unknown(dtype: &Value) -> StoredType {
    let name = dtype.as_str().map_or(dtype.to_string(), str::to_string);
    StoredType {
        data_type: DataType::Unknown(name),
        big: Vec::new(),
    }
}

/// Reads a data type of one field from its byte order, kind, length and unit. A number type that numpy lacks has its v3
/// name, as tensorstore writes it.
fn simple(text: &str) -> Option<StoredType> {
    if let Some(number) = NumberType::named(text) {
        return Some(StoredType::little(DataType::Small(number)));
    }
    let kind = text.trim_start_matches(['<', '>', '|', '=']);
    let kind = &*other_name(kind, kind.len() == text.len());
    let letter = kind.get(..1)?;
    let (width, unit) = match kind.get(1..)?.split_once('[') {
        Some((width, rest)) => (width, Some(rest.strip_suffix(']')?)),
        None => (kind.get(1..)?, None),
    };
    let width: usize = width.parse().ok()?;
    let data_type = match (letter, width, unit) {
        ("b", 1, None) => DataType::Bool,
        ("i", 1 | 2 | 4 | 8, None) => DataType::Int(width),
        ("u", 1 | 2 | 4 | 8, None) => DataType::UInt(width),
        ("f", 2 | 4 | 8, None) => DataType::Float(width),
        ("c", 8 | 16, None) => DataType::Complex(width),
        // numpy has no complex float16; GDAL 3.12 writes it.
        ("c", 4, None) => DataType::from_v3("complex_float16"),
        ("V", 1..=MAX_ELEMENT, None) => DataType::Raw(width),
        ("S" | "a", 1..=MAX_ELEMENT, None) => DataType::FixedBytes(width),
        ("U", 1..=MAX_ELEMENT, None) => DataType::FixedText(width),
        ("M", 8, unit) => DataType::DateTime(time_unit(unit)?),
        ("m", 8, unit) => DataType::TimeDelta(time_unit(unit)?),
        _ => return None,
    };
    Some(StoredType::new(data_type, text.starts_with('>')))
}

/// Converts a numpy name such as `int32` or `?` to kind and length (`i4`, `b1`), since libraries that pass types to
/// numpy accept it. `kind` is the name without byte order; `is_whole` says that no byte order preceded it, which
/// `int32` does not allow.
fn other_name(kind: &str, is_whole: bool) -> Cow<'_, str> {
    let end = kind.find('[').unwrap_or(kind.len());
    let (name, unit) = kind.split_at(end);
    let plain = match name {
        // numpy's one-letter names of types on 64-bit Linux.
        "?" => "b1",
        "b" => "i1",
        "B" => "u1",
        "h" => "i2",
        "H" => "u2",
        "i" => "i4",
        "I" => "u4",
        "l" | "q" | "p" => "i8",
        "L" | "Q" | "P" => "u8",
        "e" => "f2",
        "f" => "f4",
        "d" => "f8",
        "F" => "c8",
        "D" => "c16",
        "c" => "S1",
        _ if !is_whole => return Cow::Borrowed(kind),
        "bool" | "bool_" => "b1",
        "int8" | "byte" => "i1",
        "int16" | "short" => "i2",
        "int32" | "intc" => "i4",
        "int64" | "int" | "int_" | "intp" | "long" | "longlong" => "i8",
        "uint8" | "ubyte" => "u1",
        "uint16" | "ushort" => "u2",
        "uint32" | "uintc" => "u4",
        "uint64" | "uint" | "uintp" | "ulong" | "ulonglong" => "u8",
        "float16" | "half" => "f2",
        "float32" | "single" => "f4",
        "float64" | "double" | "float" | "float_" => "f8",
        "complex64" | "csingle" | "singlecomplex" => "c8",
        "complex128" | "cdouble" | "complex" | "complex_" | "cfloat" => "c16",
        "datetime64" => "M8",
        "timedelta64" => "m8",
        _ => return Cow::Borrowed(kind),
    };
    Cow::Owned(format!("{plain}{unit}"))
}

/// Reads a numpy time unit such as `ns` or `10us`; a missing unit is `generic`.
fn time_unit(text: Option<&str>) -> Option<TimeUnit> {
    let text = text.unwrap_or("generic");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (scale, name) = text.split_at(digits);
    let scale = if scale.is_empty() {
        1
    } else {
        scale.parse().ok()?
    };
    unit(name, scale)
}

/// Returns a time unit by numpy's name, or `None` if numpy has no such unit.
pub(super) fn unit(name: &str, scale: u32) -> Option<TimeUnit> {
    // For microseconds, numpy also accepts the Greek letter mu.
    let name = if name == "\u{3bc}s" { "us" } else { name };
    let units = [
        "Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic",
    ];
    units.contains(&name).then(|| TimeUnit {
        name: name.to_string(),
        scale: scale.max(1),
    })
}

/// Reads the fields of a structured type: each has a name, a data type, and the shape if it is a subarray.
fn structured(list: &[Value], depth: usize) -> Result<StoredType> {
    let mut fields = Vec::with_capacity(list.len());
    let mut big = Vec::new();
    for (place, entry) in list.iter().enumerate() {
        let wrong = || {
            let expected = "expected fields of name, type and shape";
            Error::corrupt("dtype", format!("{expected}, found {entry}"))
        };
        let parts = entry.as_array().ok_or_else(wrong)?;
        let (name, dtype, shape) = match parts.as_slice() {
            [name, dtype] => (name, dtype, Vec::new()),
            [name, dtype, shape] => (name, dtype, subarray(shape).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        };
        let typed = nested(dtype, depth + 1)?;
        if matches!(typed.data_type, DataType::Unknown(_)) {
            return Ok(unknown(&Value::Array(list.to_vec())));
        }
        let field = Field {
            name: field_name(name, place).ok_or_else(wrong)?,
            data_type: typed.data_type,
            shape,
        };
        let count = field.count().ok_or_else(wrong)?;
        if count.saturating_mul(typed.big.len().max(1)) + big.len() > MAX_WORDS {
            return Ok(unknown(&Value::Array(list.to_vec())));
        }
        big.extend(std::iter::repeat_n(typed.big, count).flatten());
        fields.push(field);
    }
    if fields.is_empty() {
        return Err(Error::corrupt(
            "dtype",
            "a structured type needs at least one field",
        ));
    }
    Ok(StoredType {
        data_type: DataType::Struct(fields),
        big,
    })
}

/// Reads the name of a field, which may follow a title. A field without a name is numbered, as in numpy.
fn field_name(value: &Value, place: usize) -> Option<String> {
    let name = match value {
        Value::Array(pair) => pair.get(1)?.as_str()?,
        other => other.as_str()?,
    };
    Some(match name {
        "" => format!("f{place}"),
        name => name.to_string(),
    })
}

fn subarray(shape: &Value) -> Option<Vec<u64>> {
    match shape {
        Value::Array(lengths) => lengths.iter().map(Value::as_u64).collect(),
        length => Some(vec![length.as_u64()?]),
    }
}

impl StoredType {
    /// Returns a type that is stored little-endian.
    pub fn little(data_type: DataType) -> StoredType {
        StoredType::new(data_type, false)
    }

    /// Returns a data type whose words all have the same byte order.
    pub fn new(data_type: DataType, is_big: bool) -> StoredType {
        let big = vec![is_big; data_type.words().len()];
        StoredType { data_type, big }
    }

    /// Whether any word of an element is big-endian.
    pub(crate) fn is_big(&self) -> bool {
        self.big.contains(&true)
    }

    /// Returns codec `bytes` for the byte order. If words have different byte orders, `endian` is `mixed`, and `big`
    /// has a boolean for each of `DataType::words`.
    pub(crate) fn bytes_codec(&self) -> CodecSpec {
        let configuration = if self.big.is_empty() {
            Value::Null
        } else if !self.is_big() {
            json!({ "endian": "little" })
        } else if self.big.iter().all(|&big| big) {
            json!({ "endian": "big" })
        } else {
            json!({ "endian": "mixed", "big": self.big })
        };
        CodecSpec::new("bytes", configuration)
    }

    /// Converts an element from the stored byte order to little-endian.
    pub(super) fn to_little(&self, element: &mut [u8]) {
        for (words, &big) in self.data_type.words().iter().zip(&self.big) {
            let end = words.offset + words.width * words.count;
            if let (true, Some(part)) = (big, element.get_mut(words.offset..end)) {
                part.chunks_exact_mut(words.width).for_each(<[u8]>::reverse);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: Value) -> (String, Value) {
        let typed = parse(&dtype).unwrap();
        let endian = typed.bytes_codec().configuration;
        (typed.data_type.to_string(), Value::Object(endian))
    }

    #[test]
    fn every_kind_of_typestr_is_read() {
        assert_eq!(read(json!("|b1")), ("bool".into(), json!({})));
        assert_eq!(
            read(json!(">f8")),
            ("float64".into(), json!({"endian": "big"}))
        );
        assert_eq!(read(json!("<c8")).0, "complex64");
        assert_eq!(read(json!("|S5")), ("S5".into(), json!({})));
        assert_eq!(
            read(json!(">U13")),
            ("U13".into(), json!({"endian": "big"}))
        );
        assert_eq!(read(json!("<M8[10us]")).0, "datetime64[10us]");
        assert_eq!(read(json!("<m8")).0, "timedelta64[generic]");
        assert_eq!(read(json!("|V3")), ("r24".into(), json!({})));
        assert_eq!(
            read(json!("bfloat16")),
            ("bfloat16".into(), json!({"endian": "little"}))
        );
        assert_eq!(read(json!("int4")), ("int4".into(), json!({})));
        for odd in ["<f16", "<bfloat16", "|O", "<M8[x]", "|S0", "", "g"] {
            assert_eq!(read(json!(odd)).0, odd);
        }
    }

    #[test]
    fn other_numpy_type_names_are_read() {
        let little = || json!({"endian": "little"});
        for (name, data_type, endian) in [
            ("int16", "int16", little()),
            ("float", "float64", little()),
            ("bool", "bool", json!({})),
            ("?", "bool", json!({})),
            ("d", "float64", little()),
            (">h", "int16", json!({"endian": "big"})),
            ("=i4", "int32", little()),
            ("i2", "int16", little()),
            ("<l", "int64", little()),
            ("datetime64[s]", "datetime64[s]", little()),
            ("timedelta64[10us]", "timedelta64[10us]", little()),
        ] {
            assert_eq!(read(json!(name)), (data_type.into(), endian), "{name}");
        }
        for odd in ["<int16", ">float", "Int16", "float128", "str", "int16[s]"] {
            assert_eq!(read(json!(odd)).0, odd);
        }
    }

    #[test]
    fn gdal_complex_float16_is_read() {
        for (dtype, endian) in [("<c4", "little"), (">c4", "big")] {
            let expected = ("complex_float16".into(), json!({"endian": endian}));
            assert_eq!(read(json!(dtype)), expected);
        }
        assert_eq!(
            DataType::from_v3("complex32").to_string(),
            "complex_float16"
        );
    }

    #[test]
    fn nested_fields_keep_their_byte_order() {
        let dtype = json!([
            ["a", "<i2"],
            ["b", [["x", ">f4", [2]], ["", "|S3"]]],
            ["c", "|u1"]
        ]);
        let typed = parse(&dtype).unwrap();
        assert_eq!(typed.data_type.size(), Some(2 + 11 + 1));
        assert_eq!(typed.bytes_codec().configuration["endian"], "mixed");
        assert_eq!(
            typed.bytes_codec().configuration["big"],
            json!([false, true, true])
        );
        let mut element: Vec<u8> = (0..14).collect();
        typed.to_little(&mut element);
        assert_eq!(element, [0, 1, 5, 4, 3, 2, 9, 8, 7, 6, 10, 11, 12, 13]);
    }

    #[test]
    fn invalid_structures_are_refused_and_large_ones_are_unknown() {
        let mut deep = json!("<i4");
        for _ in 0..100 {
            deep = json!([["a", deep]]);
        }
        assert!(parse(&deep).is_err());
        let huge = json!([["a", "<i4", [u64::MAX, 3]]]);
        assert!(parse(&huge).is_err());
        let long = json!([["a", "<i4", [1_000_000_000]]]);
        assert!(matches!(
            parse(&long).unwrap().data_type,
            DataType::Unknown(_)
        ));
        assert!(parse(&json!([])).is_err());
        assert!(parse(&json!({ "a": 1 })).is_err());
        assert!(parse(&json!([["a"]])).is_err());
    }
}
