//! List of objects in a chunk: nested elements, then data type and shape.
//!
//! Every dimension is a nested list; the name of numpy's type and the shape follow the elements. A decoded chunk never
//! exceeds its maximum length, and no value nests deeper than `MAX_DEPTH`. JSON and MessagePack implement the syntax.

use std::borrow::Cow;

use jiter::{Jiter, Peek};
use serde_json::Value;

use crate::codec::records::{self, LENGTH_PREFIX};
use crate::codec::traits::ArrayRepr;
use crate::dialect::{fill, typestr};
use crate::error::{Error, Result};
use crate::model::{DataType, MAX_RANK};

/// Maximum nesting of lists and maps in an element of a chunk of objects.
pub(super) const MAX_DEPTH: usize = 100;

/// Returns the shape in which the elements of a chunk of objects are nested, from the data type and the shape that
/// follow them; older writers omitted the shape. The result may differ from the chunk's shape if the number of elements
/// is the same.
///
/// Fails with `Corrupt` if the data type or the number of elements is not that of the chunk.
pub(super) fn stored_shape(
    repr: &ArrayRepr,
    dtype: &str,
    shape: Option<Vec<u64>>,
) -> Result<Vec<u64>> {
    let stored = typestr::parse(&Value::from(dtype))?.data_type;
    if repr.data_type.size().is_some()
        && stored != repr.data_type
        && !matches!(stored, DataType::Unknown(_))
    {
        let found = format!("expected elements of {}, found {stored}", repr.data_type);
        return Err(Error::corrupt("chunk", found));
    }
    let Some(shape) = shape else {
        return Ok(repr.shape.clone());
    };
    let product = |shape: &[u64]| shape.iter().try_fold(1_u64, |all, &n| all.checked_mul(n));
    if shape.len() > MAX_RANK || product(&shape) != product(&repr.shape) {
        let found = format!(
            "expected the elements of shape {:?}, found {shape:?}",
            repr.shape
        );
        return Err(Error::corrupt("chunk", found));
    }
    Ok(shape)
}

/// Returns the length of the first dimension and the other dimensions. An array without dimensions is stored as a list
/// of one element.
pub(super) fn rows(shape: &[u64]) -> (u64, &[u64]) {
    shape
        .split_first()
        .map_or((1, shape), |(&rows, row)| (rows, row))
}

/// Returns the length of the first dimension and the other dimensions. Fails with `Corrupt` if that length is not
/// `found`, the number of elements in the list.
pub(super) fn checked_rows(shape: &[u64], found: u64) -> Result<(u64, &[u64])> {
    let (rows, row) = rows(shape);
    if rows == found {
        return Ok((rows, row));
    }
    let what = format!("expected {rows} elements or rows, found {found}");
    Err(Error::corrupt("chunk", what))
}

/// Writes a list of objects in JSON or MessagePack.
pub(super) trait ListWriter {
    /// Begins a list of `count` values.
    fn begin(&mut self, count: u64) -> Result<()>;

    /// Writes the separator between two values of a list.
    fn separate(&mut self);

    fn end(&mut self);

    fn element(&mut self, element: &ObjectElement<'_>) -> Result<()>;

    fn text(&mut self, text: &str) -> Result<()>;

    /// Writes a number, the length of a dimension.
    fn length(&mut self, length: u64) -> Result<()>;
}

/// Encodes a chunk of objects. The number of `elements` must be the product of `shape`.
pub(super) fn write(
    writer: &mut dyn ListWriter,
    elements: &[ObjectElement<'_>],
    dtype: &str,
    shape: &[u64],
) -> Result<()> {
    let (rows, row) = rows(shape);
    let mut rest = elements.iter();
    writer.begin(rows.saturating_add(2))?;
    for _ in 0..rows {
        write_nested(writer, &mut rest, row)?;
        writer.separate();
    }
    writer.text(dtype)?;
    writer.separate();
    writer.begin(shape.len() as u64)?;
    for (n, &length) in shape.iter().enumerate() {
        if n > 0 {
            writer.separate();
        }
        writer.length(length)?;
    }
    writer.end();
    writer.end();
    Ok(())
}

fn write_nested(
    writer: &mut dyn ListWriter,
    rest: &mut std::slice::Iter<'_, ObjectElement<'_>>,
    shape: &[u64],
) -> Result<()> {
    let Some((&rows, row)) = shape.split_first() else {
        let too_few = || Error::invalid("chunk", "too few elements");
        return writer.element(rest.next().ok_or_else(too_few)?);
    };
    writer.begin(rows)?;
    for n in 0..rows {
        if n > 0 {
            writer.separate();
        }
        write_nested(writer, rest, row)?;
    }
    writer.end();
    Ok(())
}

/// A decoded chunk of objects, to which elements are appended as they are read.
pub(super) struct ChunkBuilder<'a> {
    repr: &'a ArrayRepr,
    out: Vec<u8>,
    max_bytes: usize,
}

impl<'a> ChunkBuilder<'a> {
    /// Begins an empty decoded chunk, which may grow to `max_bytes` bytes.
    pub(super) fn new(repr: &'a ArrayRepr, max_bytes: usize) -> ChunkBuilder<'a> {
        ChunkBuilder {
            repr,
            out: Vec::new(),
            max_bytes,
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }

    /// Returns the shape and data type of the chunk that is being read.
    pub(super) fn repr(&self) -> &ArrayRepr {
        self.repr
    }

    /// Fails with `TooLarge` if `bytes` more bytes would exceed the maximum length of the decoded chunk.
    fn check_room(&self, bytes: usize) -> Result<()> {
        if self.out.len().saturating_add(bytes) <= self.max_bytes {
            return Ok(());
        }
        let found = format!("the elements exceed the limit of {} bytes", self.max_bytes);
        Err(Error::too_large("chunk", found))
    }

    /// Checks a value that is nested `depth` levels deep in an element; `bytes` bytes of the element were already read.
    /// Fails with `TooLarge` if these bytes exceed the chunk, `Corrupt` if the value is nested too deep.
    pub(super) fn check_value(&self, bytes: usize, depth: usize) -> Result<()> {
        self.check_room(bytes)?;
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let found = format!("a value nests deeper than {MAX_DEPTH} levels");
        Err(Error::corrupt("chunk", found))
    }

    /// Appends an element to the decoded chunk. Fails with `TooLarge` if it exceeds the chunk, with `Corrupt` if it is
    /// not a value of the array's type.
    pub(super) fn add(&mut self, element: &ObjectElement<'_>) -> Result<()> {
        if self.repr.data_type.size().is_some() {
            let fixed = element.fixed_bytes(&self.repr.data_type);
            self.out.extend(fixed.ok_or_else(|| self.misfit(element))?);
            return self.check_room(0);
        }
        let bytes = element.bytes();
        self.check_room(bytes.len().saturating_add(LENGTH_PREFIX))?;
        records::append(&mut self.out, bytes)
    }

    fn misfit(&self, element: &ObjectElement<'_>) -> Error {
        let text: String = String::from_utf8_lossy(element.bytes())
            .chars()
            .take(40)
            .collect();
        Error::corrupt(
            "chunk",
            format!("{text:?} is not a valid {}", self.repr.data_type),
        )
    }
}

/// The date or duration "not a time" (NaT), which is `null` in a list of objects.
const NOT_A_TIME: [u8; 8] = i64::MIN.to_le_bytes();

/// An element of a chunk of Python objects.
///
/// A decoded chunk holds strings and bytes unchanged, other objects as compact JSON, and elements of a fixed length as
/// their bytes.
pub(super) enum ObjectElement<'a> {
    Text(Cow<'a, str>),
    /// Bytes that may not be UTF-8.
    Bytes(&'a [u8]),
    /// Any other Python object, as JSON. Numbers may be `NaN`, `Infinity` and `-Infinity`, as Python writes them.
    Json(Cow<'a, str>),
}

/// Returns numpy's name of a data type, little-endian; fails with `Unsupported` if a list of objects cannot hold its
/// elements.
pub(super) fn dtype_of(data_type: &DataType) -> Result<String> {
    Ok(match data_type {
        DataType::Object | DataType::Text | DataType::Bytes => "|O".to_string(),
        DataType::Bool => "|b1".to_string(),
        DataType::Int(width) => format!("<i{width}"),
        DataType::UInt(width) => format!("<u{width}"),
        DataType::Float(width) => format!("<f{width}"),
        DataType::DateTime(unit) => format!("<M8[{unit}]"),
        DataType::TimeDelta(unit) => format!("<m8[{unit}]"),
        DataType::FixedText(length) => format!("<U{length}"),
        DataType::FixedBytes(length) => format!("|S{length}"),
        DataType::Raw(length) => format!("|V{length}"),
        other => {
            let why = format!("a list of objects cannot hold {other}");
            return Err(Error::unsupported("codecs", why));
        }
    })
}

impl<'a> ObjectElement<'a> {
    /// Returns the bytes of the element as a decoded chunk holds them.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            ObjectElement::Text(text) | ObjectElement::Json(text) => text.as_bytes(),
            ObjectElement::Bytes(bytes) => bytes,
        }
    }

    /// Converts an element of a decoded chunk. If its data type is `Object`, text that is valid JSON becomes that JSON
    /// value, so text that looks like a number becomes a number.
    pub(super) fn of(data_type: &DataType, bytes: &'a [u8]) -> ObjectElement<'a> {
        match (data_type, std::str::from_utf8(bytes)) {
            (DataType::FixedBytes(_), _) => ObjectElement::Bytes(without_zeros(bytes)),
            (DataType::Raw(_), _) => ObjectElement::Bytes(bytes),
            (DataType::DateTime(_) | DataType::TimeDelta(_), _) if bytes == NOT_A_TIME => {
                ObjectElement::Json("null".into())
            }
            (_, Err(_)) | (DataType::Bytes, _) if data_type.is_variable() => {
                ObjectElement::Bytes(bytes)
            }
            (DataType::Object, Ok(text)) if is_json(text) => ObjectElement::Json(text.into()),
            (DataType::Object | DataType::Text, Ok(text)) => ObjectElement::Text(text.into()),
            _ => match fill::render(data_type, bytes) {
                Value::String(word) if matches!(data_type, DataType::Float(_)) => {
                    let is_bits = word.starts_with("0x");
                    ObjectElement::Json(if is_bits { "NaN".into() } else { word.into() })
                }
                Value::String(text) => ObjectElement::Text(text.into()),
                other => ObjectElement::Json(other.to_string().into()),
            },
        }
    }

    /// Returns the bytes of an element of fixed length, or `None` if it is not a value of the data type.
    pub(super) fn fixed_bytes(&self, data_type: &DataType) -> Option<Vec<u8>> {
        if let DataType::FixedBytes(length) | DataType::Raw(length) = data_type {
            let mut bytes = self.bytes().to_vec();
            let fits = !matches!(self, ObjectElement::Json(_)) && bytes.len() <= *length;
            bytes.resize(*length, 0);
            return fits.then_some(bytes);
        }
        let value = match self {
            ObjectElement::Text(text) if matches!(data_type, DataType::FixedText(_)) => {
                Value::from(&**text)
            }
            ObjectElement::Json(word) if matches!(&**word, "NaN" | "Infinity" | "-Infinity") => {
                Value::from(&**word)
            }
            ObjectElement::Json(text) => serde_json::from_str(text).ok()?,
            ObjectElement::Text(_) | ObjectElement::Bytes(_) => return None,
        };
        if value.is_null() {
            let is_time = matches!(data_type, DataType::DateTime(_) | DataType::TimeDelta(_));
            return is_time.then(|| NOT_A_TIME.to_vec());
        }
        fill::parse(data_type, &value).ok().map(|fill| fill.bytes)
    }
}

/// Whether text is valid JSON of a value that is not a string.
fn is_json(text: &str) -> bool {
    let mut json = Jiter::new(text.as_bytes()).with_allow_inf_nan();
    let is_text = matches!(json.peek(), Ok(Peek::String) | Err(_));
    !is_text && json.next_skip().is_ok() && json.finish().is_ok()
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let last = bytes.iter().rposition(|&byte| byte != 0);
    bytes
        .get(..last.map_or(0, |last| last + 1))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::object::tests::{NOTATIONS, codec, json2, msgpack2, records};
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use crate::model::{DataType, TimeUnit};

    #[test]
    fn chunks_of_older_writers_without_a_shape_are_decoded() {
        let decoded = records(&["a", "2"]);
        assert_eq!(
            json2(&[2]).decode(br#"["a",2,"|O"]"#.to_vec()).unwrap(),
            decoded
        );
        assert_eq!(
            msgpack2(&[2])
                .decode(b"\x93\xa1a\x02\xa2|O".to_vec())
                .unwrap(),
            decoded
        );
    }

    #[test]
    fn lists_are_read_by_the_shape_stored_in_the_chunk() {
        let stored = br#"[["a","b"],["c","d"],["e","f"],"|O",[3,2]]"#;
        let decoded = records(&["a", "b", "c", "d", "e", "f"]);
        assert_eq!(json2(&[2, 3]).decode(stored.to_vec()).unwrap(), decoded);
    }

    #[test]
    fn deeply_nested_values_are_refused() {
        let deep =
            |depth: usize| format!("[{}{},\"|O\",[1]]", "[".repeat(depth), "]".repeat(depth));
        assert!(json2(&[1]).decode(deep(100).into_bytes()).is_ok());
        for depth in [102, 10_000, 1 << 20] {
            assert!(json2(&[1]).decode(deep(depth).into_bytes()).is_err());
            let lists = [&b"\x93"[..], &vec![0x91; depth], b"\xc0\xa2|O\x91\x01"].concat();
            assert!(msgpack2(&[1]).decode(lists).is_err());
        }
    }

    #[test]
    fn elements_beyond_the_chunk_limit_are_too_large() {
        let long = format!("[\"{}\",\"|O\",[1]]", "x".repeat(1 << 17));
        let error = json2(&[1]).decode(long.into_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
        // Each MessagePack nil, one byte, decodes to the five bytes `null,`.
        let nulls = [
            &b"\x93\xdc\xff\xff"[..],
            &vec![0xc0; 0xffff],
            b"\xa2|O\x91\x01",
        ]
        .concat();
        assert_eq!(
            msgpack2(&[1]).decode(nulls).unwrap_err().kind(),
            Kind::TooLarge
        );
    }

    #[test]
    fn elements_of_fixed_length_round_trip() {
        for (data_type, elements) in [
            (
                DataType::Float(4),
                [f32::NAN, -0.0, 1.5e-40, f32::INFINITY]
                    .map(f32::to_le_bytes)
                    .concat(),
            ),
            (
                DataType::Int(8),
                [i64::MIN, i64::MAX, -1, 0].map(i64::to_le_bytes).concat(),
            ),
            (
                DataType::UInt(2),
                [0, 1, 256, u16::MAX].map(u16::to_le_bytes).concat(),
            ),
            (DataType::Bool, vec![0, 1, 1, 0]),
            (
                DataType::FixedText(1),
                ["a", "\u{e9}", "\0", "0"]
                    .map(|text| (text.chars().next().unwrap() as u32).to_le_bytes())
                    .concat(),
            ),
        ] {
            for name in NOTATIONS {
                let pipeline = codec(name, data_type.clone(), &[2, 2]).unwrap();
                let encoded = pipeline.encode(&elements).unwrap();
                assert_eq!(
                    pipeline.decode(encoded).unwrap(),
                    elements,
                    "{name} {data_type}"
                );
            }
        }
        for (data_type, stored) in [
            (
                DataType::FixedBytes(2),
                &b"\x94\xc4\x01a\xc4\x02\xff\xfe\xa3|S2\x91\x02"[..],
            ),
            (
                DataType::Raw(2),
                b"\x94\xc4\x02a\0\xc4\x02\xff\xfe\xa3|V2\x91\x02",
            ),
        ] {
            let bytes = codec(NOTATIONS[1], data_type, &[2]).unwrap();
            let encoded = bytes.encode(b"a\0\xff\xfe").unwrap();
            assert_eq!(encoded, stored);
            assert_eq!(bytes.decode(encoded).unwrap(), b"a\0\xff\xfe");
        }
    }

    #[test]
    fn not_a_time_is_stored_as_null() {
        let unit = TimeUnit {
            name: "ns".to_string(),
            scale: 1,
        };
        let times = codec(NOTATIONS[0], DataType::DateTime(unit), &[2]).unwrap();
        let decoded = [i64::MIN, 7].map(i64::to_le_bytes).concat();
        let stored = br#"[null,7,"<M8[ns]",[2]]"#;
        assert_eq!(times.encode(&decoded).unwrap(), stored);
        assert_eq!(times.decode(stored.to_vec()).unwrap(), decoded);
    }

    #[test]
    fn the_stored_type_has_the_configured_byte_order() {
        let big = json!({ "name": NOTATIONS[0], "configuration": { "endian": "big" } });
        let pipeline = pipeline("int16", &[2], json!([big])).unwrap();
        let encoded = pipeline.encode(&[1, 0, 0, 1]).unwrap();
        assert_eq!(encoded, br#"[1,256,">i2",[2]]"#);
        assert_eq!(pipeline.decode(encoded).unwrap(), [1, 0, 0, 1]);
    }
}
