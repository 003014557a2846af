//! Converts an element between a list of objects and a decoded chunk.
//!
//! A chunk holds strings and bytes unchanged, other objects as compact JSON, and elements of a fixed length as their
//! bytes. `list.rs` reports an element that is not a value of its type.

use std::borrow::Cow;

use jiter::{Jiter, Peek};
use serde_json::Value;

use crate::dialect::fill;
use crate::error::{Error, Result};
use crate::model::DataType;

/// The date or duration "not a time" (NaT), which is `null` in a list of objects.
const NOT_A_TIME: [u8; 8] = i64::MIN.to_le_bytes();

/// One element of a list.
pub(super) enum ObjectElement<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// Bytes that may not be UTF-8.
    Bytes(&'a [u8]),
    /// Any other object, as JSON. Numbers may be `NaN`, `Infinity` and `-Infinity`, as Python writes them.
    Json(Cow<'a, str>),
}

/// Returns numpy's name of the type, little-endian; `Unsupported` if a list of objects cannot hold its elements.
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
    /// Returns the bytes of a string, of bytes, or of the JSON.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            ObjectElement::Text(text) | ObjectElement::Json(text) => text.as_bytes(),
            ObjectElement::Bytes(bytes) => bytes,
        }
    }

    /// Reads an element of a decoded chunk. Of type `Object`, text that is valid JSON becomes that JSON value, so text
    /// that looks like a number becomes a number.
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

    /// Returns the bytes of an element of fixed length, or `None` if it is not a value of the type.
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

/// Whether text is a JSON value other than a string.
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

    use crate::codec::object::tests::{NOTATIONS, codec};
    use crate::codec::tests::pipeline;
    use crate::model::{DataType, TimeUnit};

    #[test]
    fn elements_of_fixed_length_are_packed() {
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
    fn no_time_is_null() {
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
    fn the_type_is_written_in_the_byte_order_of_the_array() {
        let big = json!({ "name": NOTATIONS[0], "configuration": { "endian": "big" } });
        let pipeline = pipeline("int16", &[2], json!([big])).unwrap();
        let encoded = pipeline.encode(&[1, 0, 0, 1]).unwrap();
        assert_eq!(encoded, br#"[1,256,">i2",[2]]"#);
        assert_eq!(pipeline.decode(encoded).unwrap(), [1, 0, 0, 1]);
    }
}
