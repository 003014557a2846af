//! Data types of the drafts: numpy's type strings, final-v3 names, and extensions with their fallbacks.
//!
//! An extension is known by its URI and its type together: real writers have placeholders for URIs, and a
//! type that a stranger's URI explains is not ours to read. Fill values in hexadecimal and binary are turned
//! into the forms that final v3 has.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::dialect::Settings;
use crate::error::Error;
use crate::error::Result;
use crate::model::DataType;
use crate::model::MAX_ELEMENT;

/// A data type, its byte order, and what is to be said about it.
#[derive(Debug)]
pub(super) struct Typed {
    pub(super) data_type: DataType,
    /// `little` or `big`.
    pub(super) endian: &'static str,
    /// That a fallback is used.
    pub(super) warning: Option<String>,
    /// Why elements cannot be read.
    pub(super) undecodable: Option<String>,
}

impl Typed {
    fn known((data_type, endian): (DataType, &'static str)) -> Typed {
        Typed {
            data_type,
            endian,
            warning: None,
            undecodable: None,
        }
    }

    fn unknown(value: &Value, why: String) -> Typed {
        let spelled = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_string);
        Typed {
            undecodable: Some(format!("data_type: {why}")),
            ..Typed::known((DataType::Unknown(spelled), "little"))
        }
    }
}

/// Reads `data_type` (drafts, "data_type").
pub(super) fn read(members: &Map<String, Value>, settings: Settings) -> Result<Typed> {
    let value = members
        .get("data_type")
        .ok_or_else(|| Error::corrupt("data_type", "is missing"))?;
    match value {
        Value::String(name) => Ok(identified(value)
            .map(Typed::known)
            .unwrap_or_else(|| Typed::unknown(value, format!("{name} is not known")))),
        Value::Object(extension) => extended(value, extension, settings),
        other => Err(Error::corrupt(
            "data_type",
            format!("expected a name or an object, found {other}"),
        )),
    }
}

/// Reads a type of an extension, or its fallback.
fn extended(value: &Value, extension: &Map<String, Value>, settings: Settings) -> Result<Typed> {
    let missing = |name: &str| Error::corrupt("data_type", format!("{name} is missing in {value}"));
    let uri = extension
        .get("extension")
        .and_then(Value::as_str)
        .ok_or_else(|| missing("extension"))?;
    let of = extension.get("type").ok_or_else(|| missing("type"))?;
    if is_ours(uri)
        && let Some(known) = identified(of)
    {
        return Ok(Typed::known(known));
    }
    let why = format!("{of} of {uri} is not known");
    let fallbacks = match extension.get("fallback") {
        Some(Value::Array(list)) => list.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let first = fallbacks
        .iter()
        .find_map(|fallback| Some((fallback, identified(fallback)?)));
    match first {
        Some((name, known)) if settings.fallback => Ok(Typed {
            warning: Some(format!("data_type: {why}; its fallback {name} is read")),
            ..Typed::known(known)
        }),
        Some((name, _)) => Ok(Typed::unknown(
            value,
            format!("{why}, and its fallback {name} is not wanted (--no-fallback)"),
        )),
        None => Ok(Typed::unknown(value, format!("{why} and has no fallback"))),
    }
}

/// Whether an extension is one whose types are numpy's: those of the Zarr developers, and the placeholders
/// that zarr-python writes (`TODO: unicode array protocol URL`).
fn is_ours(uri: &str) -> bool {
    let uri = uri
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    uri.starts_with("purl.org/zarr/spec/")
        || uri.starts_with("zarr-specs.readthedocs.io/")
        || (uri.starts_with("TODO: ") && uri.ends_with(" array protocol URL"))
}

/// Reads an identifier of a type: final-v3 name, `r*`, or numpy's.
fn identified(value: &Value) -> Option<(DataType, &'static str)> {
    if let Some(name) = value.as_str() {
        match DataType::from_v3(name) {
            DataType::Unknown(_) => {}
            known => return Some((known, "little")),
        }
    }
    numpy(value)
}

/// Reads a numpy type string and its byte order; the bar of types without one may be missing.
fn numpy(value: &Value) -> Option<(DataType, &'static str)> {
    let text = value.as_str()?;
    let endian = if text.starts_with('>') {
        "big"
    } else {
        "little"
    };
    let kind = text.trim_start_matches(['<', '>', '|', '=']);
    let width: usize = kind.get(1..)?.parse().ok()?;
    let data_type = match (kind.get(..1)?, width) {
        ("b", 1) => DataType::Bool,
        ("i", 1 | 2 | 4 | 8) => DataType::Int(width),
        ("u", 1 | 2 | 4 | 8) => DataType::UInt(width),
        ("f", 2 | 4 | 8) => DataType::Float(width),
        ("c", 8 | 16) => DataType::Complex(width),
        ("V", 1..=MAX_ELEMENT) => DataType::Raw(width),
        _ => return None,
    };
    Some((data_type, endian))
}

/// Turns a fill value in binary (`0b...`) or hexadecimal (`0x...`) into the form that final v3 has for the
/// type; other values stay as they are. `Corrupt` unless there are as many digits as the type has bits.
pub(super) fn fill_value(data_type: &DataType, value: &Value) -> Result<Value> {
    let Some((text, radix_bits)) = digits(value) else {
        return Ok(value.clone());
    };
    let width = match data_type {
        DataType::Bool => 1,
        DataType::Int(width)
        | DataType::UInt(width)
        | DataType::Float(width)
        | DataType::Raw(width) => *width,
        _ => return Ok(value.clone()),
    };
    let wrong = || {
        let name = data_type.v3_name();
        Error::corrupt(
            "fill_value",
            format!("{value} has not the {} bits of {name}", width * 8),
        )
    };
    let bytes = bytes_of(text, radix_bits)
        .filter(|bytes| bytes.len() == width)
        .ok_or_else(wrong)?;
    let number = bytes
        .iter()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * width.min(8) as u32;
    Ok(match data_type {
        DataType::Int(_) => json!((number << unused) as i64 >> unused),
        DataType::Float(_) => json!(format!("0x{number:0digits$x}", digits = width * 2)),
        DataType::Raw(_) => json!(bytes),
        _ => json!(number),
    })
}

/// Returns the digits after `0x` or `0b` and how many bits each has.
fn digits(value: &Value) -> Option<(&str, usize)> {
    let text = value.as_str()?;
    let hexadecimal = text.strip_prefix("0x").map(|digits| (digits, 4));
    hexadecimal.or_else(|| text.strip_prefix("0b").map(|digits| (digits, 1)))
}

/// Reads digits of 1 or 4 bits, the most significant first, into bytes.
fn bytes_of(digits: &str, bits: usize) -> Option<Vec<u8>> {
    let whole = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !whole || digits.len() * bits % 8 != 0 {
        return None;
    }
    let texts = digits.as_bytes().chunks(8 / bits);
    texts
        .map(|text| u8::from_str_radix(std::str::from_utf8(text).ok()?, 1 << bits).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(value: Value, fallback: bool) -> Typed {
        let members = json!({ "data_type": value });
        read(members.as_object().unwrap(), Settings { fallback }).unwrap()
    }

    #[test]
    fn every_spelling_of_a_type_is_read() {
        for (value, data_type, endian) in [
            ("bool", DataType::Bool, "little"),
            ("u1", DataType::UInt(1), "little"),
            ("|u1", DataType::UInt(1), "little"),
            (">f8", DataType::Float(8), "big"),
            ("uint16", DataType::UInt(2), "little"),
            ("r24", DataType::Raw(3), "little"),
            ("<c8", DataType::Complex(8), "little"),
        ] {
            let found = typed(json!(value), false);
            assert_eq!(
                (found.data_type, found.endian),
                (data_type, endian),
                "{value}"
            );
        }
        assert!(typed(json!("i3"), true).undecodable.is_some());
    }

    #[test]
    fn the_first_fallback_that_is_known_is_read() {
        let value =
            json!({"extension": "http://x.org/t", "type": "ipv4", "fallback": ["ip", "r32"]});
        let found = typed(value.clone(), true);
        assert_eq!(found.data_type, DataType::Raw(4));
        let warning = found.warning.unwrap();
        assert!(
            warning.contains("http://x.org/t") && warning.contains("r32"),
            "{warning}"
        );
        let refused = typed(value, false).undecodable.unwrap();
        assert!(refused.contains("--no-fallback"), "{refused}");
    }

    #[test]
    fn types_of_strangers_are_not_guessed() {
        let value = json!({"extension": "http://x.org/t", "type": "<c8", "fallback": null});
        assert!(typed(value, true).undecodable.is_some());
        let uri = "https://zarr-specs.readthedocs.io/en/core-protocol-v3.0-dev/protocol/extensions/complex-dtypes/v1.0.html";
        let value = json!({"extension": uri, "type": "<c8", "fallback": null});
        assert_eq!(typed(value, true).data_type, DataType::Complex(8));
    }

    #[test]
    fn digits_of_fill_values_are_bits() {
        for (data_type, digits, value) in [
            (DataType::Int(4), "0x0000002a", json!(42)),
            (DataType::Int(2), "0xffff", json!(-1)),
            (DataType::UInt(1), "0b00000101", json!(5)),
            (
                DataType::Float(8),
                "0x3ff8000000000000",
                json!("0x3ff8000000000000"),
            ),
            (DataType::Float(2), "0b0011110000000000", json!("0x3c00")),
            (DataType::Raw(3), "0x010203", json!([1, 2, 3])),
            (DataType::Float(4), "NaN", json!("NaN")),
        ] {
            assert_eq!(
                fill_value(&data_type, &json!(digits)).unwrap(),
                value,
                "{digits}"
            );
        }
        for wrong in ["0x2a", "0xzzzzzzzz", "0x+0000001", "0b1", "0x"] {
            assert!(
                fill_value(&DataType::Int(4), &json!(wrong)).is_err(),
                "{wrong}"
            );
        }
    }
}
