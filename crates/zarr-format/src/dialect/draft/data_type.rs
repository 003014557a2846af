//! Reads data types of the v3 drafts: numpy's type strings, v3 names, extensions.
//!
//! An extension is recognized by its URI and its type together: some writers have placeholders for URIs, and with an
//! unknown URI a type may mean anything. An unknown extension is replaced by its fallback. Fill values in hexadecimal
//! and binary are converted to the forms of final v3.

use serde_json::{Map, Value, json};

use crate::dialect::document::required;
use crate::dialect::draft::codecs::attribute_filters;
use crate::dialect::typestr::{self, StoredType};
use crate::dialect::v2;
use crate::error::{Error, Result};
use crate::model::DataType;

/// A data type of a v3 draft, and how it was resolved.
#[derive(Debug)]
pub(super) struct ResolvedType {
    pub(super) typed: StoredType,
    /// Warning for the user, if an unknown extension type was replaced by its fallback.
    pub(super) warning: Option<String>,
    /// Why the elements cannot be read, if the data type is unknown.
    pub(super) undecodable: Option<String>,
}

impl ResolvedType {
    fn known(typed: StoredType) -> ResolvedType {
        ResolvedType {
            typed,
            warning: None,
            undecodable: None,
        }
    }

    fn unknown(value: &Value, why: String) -> ResolvedType {
        let spelled = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_string);
        ResolvedType {
            undecodable: Some(format!("data_type: {why}")),
            ..ResolvedType::known(StoredType::little(DataType::Unknown(spelled)))
        }
    }
}

/// Reads `data_type` (drafts, "data_type").
pub(super) fn read(members: &Map<String, Value>) -> Result<ResolvedType> {
    let value = required(members, "data_type")?;
    match value {
        Value::String(name) => Ok(identified(value).map_or_else(
            || ResolvedType::unknown(value, format!("unsupported data type {name}")),
            ResolvedType::known,
        )),
        Value::Object(extension) => extended(value, extension, members),
        other => Err(Error::corrupt(
            "data_type",
            format!("expected a name or an object, found {other}"),
        )),
    }
}

/// Reads an extension type, or its fallback if the extension is unknown.
fn extended(
    value: &Value,
    extension: &Map<String, Value>,
    members: &Map<String, Value>,
) -> Result<ResolvedType> {
    let missing = |name: &str| Error::corrupt("data_type", format!("{name} is missing in {value}"));
    let uri = extension
        .get("extension")
        .and_then(Value::as_str)
        .ok_or_else(|| missing("extension"))?;
    let of = extension.get("type").ok_or_else(|| missing("type"))?;
    if has_numpy_types(uri) {
        let filters = attribute_filters(members);
        if let Some(typed) = of_objects(of, filters)?.or_else(|| identified(of)) {
            return Ok(ResolvedType {
                undecodable: v2::codecs::undecodable(filters, &typed.data_type),
                ..ResolvedType::known(typed)
            });
        }
    }
    let why = format!("unsupported data type {of} of {uri}");
    Ok(match fallback(extension) {
        Some((name, typed)) => ResolvedType {
            warning: Some(format!(
                "data_type: {why}; reading the fallback {name} instead"
            )),
            ..ResolvedType::known(typed)
        },
        None => ResolvedType::unknown(value, format!("{why}, which has no fallback")),
    })
}

/// Returns the first known fallback of an extension type, as written and as a data type.
fn fallback(extension: &Map<String, Value>) -> Option<(&Value, StoredType)> {
    let fallbacks = match extension.get("fallback")? {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut known = fallbacks
        .iter()
        .filter_map(|fallback| Some((fallback, identified(fallback)?)));
    known.next()
}

/// Reads the data type of object arrays, which depends on the filter that encodes the objects.
fn of_objects(of: &Value, filters: &[Value]) -> Result<Option<StoredType>> {
    if !matches!(of.as_str(), Some("|O" | "O")) {
        return Ok(None);
    }
    Ok(match v2::codecs::object_type(filters)? {
        DataType::Unknown(_) => None,
        known => Some(StoredType::little(known)),
    })
}

/// Whether an extension names its types as numpy does: for URIs of the Zarr developers, and for the placeholders that
/// zarr-python writes (`TODO: unicode array protocol URL`).
fn has_numpy_types(uri: &str) -> bool {
    let uri = uri
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    uri.starts_with("purl.org/zarr/spec/")
        || uri.starts_with("zarr-specs.readthedocs.io/")
        || (uri.starts_with("TODO: ") && uri.ends_with(" array protocol URL"))
}

/// Reads a data type from a v3 name, `r*`, or numpy's name, whose leading bar (`|`) may be missing.
fn identified(value: &Value) -> Option<StoredType> {
    if let Some(name) = value.as_str() {
        match DataType::from_v3(name) {
            DataType::Unknown(_) => {}
            known => return Some(StoredType::little(known)),
        }
    }
    let typed = typestr::parse(value).ok()?;
    (!matches!(typed.data_type, DataType::Unknown(_))).then_some(typed)
}

/// Converts a fill value in binary (`0b...`) or hexadecimal (`0x...`) to the form of final v3; other values do not
/// change. Fails with `Corrupt` if the number of digits does not match the data type.
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
        Error::corrupt(
            "fill_value",
            format!(
                "{value} does not have the {} bits of {data_type}",
                width * 8
            ),
        )
    };
    let bytes = bytes_of(text, radix_bits)
        .filter(|bytes| bytes.len() == width)
        .ok_or_else(wrong)?;
    let number = bytes
        .iter()
        .fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * width.min(8);
    Ok(match data_type {
        DataType::Int(_) => json!((number << unused).cast_signed() >> unused),
        DataType::Float(_) => json!(format!("0x{number:0digits$x}", digits = width * 2)),
        DataType::Raw(_) => json!(bytes),
        _ => json!(number),
    })
}

/// Returns the digits after `0x` or `0b`, and the number of bits per digit.
fn digits(value: &Value) -> Option<(&str, usize)> {
    let text = value.as_str()?;
    let hexadecimal = text.strip_prefix("0x").map(|digits| (digits, 4));
    hexadecimal.or_else(|| text.strip_prefix("0b").map(|digits| (digits, 1)))
}

/// Converts digits of 1 or 4 bits, the most significant first, to bytes.
fn bytes_of(digits: &str, bits: usize) -> Option<Vec<u8>> {
    let whole = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !whole || !(digits.len() * bits).is_multiple_of(8) {
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

    fn typed(value: Value) -> ResolvedType {
        let members = json!({ "data_type": value });
        read(members.as_object().unwrap()).unwrap()
    }

    #[test]
    fn every_spelling_of_a_data_type_is_read() {
        for (value, data_type, is_big) in [
            ("bool", DataType::Bool, false),
            ("u1", DataType::UInt(1), false),
            ("|u1", DataType::UInt(1), false),
            (">f8", DataType::Float(8), true),
            ("uint16", DataType::UInt(2), false),
            ("r24", DataType::Raw(3), false),
            ("<c8", DataType::Complex(8), false),
        ] {
            let found = typed(json!(value)).typed;
            assert_eq!(found, StoredType::new(data_type, is_big), "{value}");
        }
        assert!(typed(json!("i3")).undecodable.is_some());
    }

    #[test]
    fn the_first_known_fallback_type_is_used() {
        let value =
            json!({"extension": "http://x.org/t", "type": "ipv4", "fallback": ["ip", "r32"]});
        let found = typed(value);
        assert_eq!(found.typed.data_type, DataType::Raw(4));
        let warning = found.warning.unwrap();
        assert!(
            warning.contains("http://x.org/t") && warning.contains("r32"),
            "{warning}"
        );
    }

    #[test]
    fn types_of_unknown_extensions_are_not_decoded() {
        let value = json!({"extension": "http://x.org/t", "type": "<c8", "fallback": null});
        assert!(typed(value).undecodable.is_some());
        let uri = "https://zarr-specs.readthedocs.io/en/core-protocol-v3.0-dev/protocol/extensions/complex-dtypes/v1.0.html";
        let value = json!({"extension": uri, "type": "<c8", "fallback": null});
        assert_eq!(typed(value).typed.data_type, DataType::Complex(8));
    }

    #[test]
    fn fill_values_in_hex_or_binary_are_bit_patterns() {
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
