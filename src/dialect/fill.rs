//! Fill values: the JSON forms in which they occur, and the bytes of the element they mean.
//!
//! Final v3, "Fill value" and the data types' own texts; v2 spells the same values in the same ways, and
//! raw types in base64. A null is all zero bytes: that is what the reference implementations read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde_json::Number;
use serde_json::Value;
use serde_json::json;

use crate::error::Error;
use crate::error::Result;
use crate::model::DataType;
use crate::model::FillValue;

/// Reads a fill value; `Corrupt` if it does not fit the data type.
pub fn parse(data_type: &DataType, value: &Value) -> Result<FillValue> {
    let bytes = match (data_type.size(), value) {
        (None, _) => {
            return Ok(FillValue {
                bytes: Vec::new(),
                json: value.clone(),
            });
        }
        (Some(size), Value::Null) => vec![0; size],
        _ => element(data_type, value).ok_or_else(|| {
            let name = data_type.v3_name();
            Error::corrupt("fill_value", format!("{value} is no value of {name}"))
        })?,
    };
    let json = to_json(data_type, &bytes);
    Ok(FillValue { bytes, json })
}

/// Returns the little-endian bytes of a value.
fn element(data_type: &DataType, value: &Value) -> Option<Vec<u8>> {
    match data_type {
        DataType::Bool => boolean(value).map(|truth| vec![u8::from(truth)]),
        DataType::Int(width) => {
            let number = i64::try_from(whole(value)?).ok()?;
            let bits = *width as u32 * 8;
            let fits = bits == 64 || (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&number);
            fits.then(|| number.to_le_bytes()[..*width].to_vec())
        }
        DataType::UInt(width) => {
            let number = u64::try_from(whole(value)?).ok()?;
            let fits = *width == 8 || number < 1u64 << (*width * 8);
            fits.then(|| number.to_le_bytes()[..*width].to_vec())
        }
        DataType::Float(width) => float(*width, value),
        DataType::Complex(width) => match value {
            Value::Array(parts) if parts.len() == 2 => {
                Some([float(width / 2, &parts[0])?, float(width / 2, &parts[1])?].concat())
            }
            real => Some([float(width / 2, real)?, vec![0; width / 2]].concat()),
        },
        DataType::Raw(width) => raw(*width, value),
        DataType::Unknown(_) => None,
    }
}

fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        other => match whole(other)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

/// Reads a whole number; some writers put `0.0` where an integer is due.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .or_else(|| {
                number
                    .as_f64()
                    .filter(|f| f.fract() == 0.0 && f.abs() < 1e19)
                    .map(|f| f as i128)
            }),
        _ => None,
    }
}

/// Reads a float of 2, 4 or 8 bytes: a number, a word, or its bits in hexadecimal.
fn float(width: usize, value: &Value) -> Option<Vec<u8>> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            hex if hex.starts_with("0x") => return bits(width, hex),
            number => number.parse().ok()?,
        },
        _ => return None,
    };
    Some(match width {
        2 => f16::from_f64(number).to_le_bytes().to_vec(),
        4 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    })
}

/// Reads `0x7fc00000`: the bits of a float, most significant first.
fn bits(width: usize, hex: &str) -> Option<Vec<u8>> {
    let digits = hex
        .strip_prefix("0x")
        .filter(|digits| digits.len() == width * 2)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    Some(number.to_le_bytes()[..width].to_vec())
}

/// Reads the bytes of a raw element: a list of numbers, or base64. A single 0 is all zeros.
fn raw(width: usize, value: &Value) -> Option<Vec<u8>> {
    let bytes = match value {
        Value::Array(list) => list
            .iter()
            .map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok()))
            .collect::<Option<Vec<u8>>>()?,
        Value::String(text) if text.is_empty() => vec![0; width],
        Value::String(text) => STANDARD.decode(text).ok()?,
        Value::Number(number) if number.as_u64() == Some(0) => vec![0; width],
        _ => return None,
    };
    (bytes.len() == width).then_some(bytes)
}

/// Returns the value as final v3 writes it.
fn to_json(data_type: &DataType, bytes: &[u8]) -> Value {
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    match data_type {
        DataType::Bool => json!(bytes != [0]),
        DataType::Int(width) => {
            let unused = 64 - *width as u32 * 8;
            json!((number(bytes) << unused) as i64 >> unused)
        }
        DataType::UInt(_) => json!(number(bytes)),
        DataType::Float(_) => float_json(bytes),
        DataType::Complex(width) => {
            let (real, imaginary) = bytes.split_at(width / 2);
            json!([float_json(real), float_json(imaginary)])
        }
        DataType::Raw(_) | DataType::Unknown(_) => json!(bytes),
    }
}

/// Returns a float as a number, a word, or (a NaN that is not the usual one) its bits.
fn float_json(bytes: &[u8]) -> Value {
    let (number, text) = match *bytes {
        [a, b] => {
            let number = f16::from_le_bytes([a, b]).to_f64();
            (number, number.to_string())
        }
        [a, b, c, d] => {
            let number = f32::from_le_bytes([a, b, c, d]);
            (f64::from(number), number.to_string())
        }
        [a, b, c, d, e, f, g, h] => {
            let number = f64::from_le_bytes([a, b, c, d, e, f, g, h]);
            (number, number.to_string())
        }
        _ => return Value::Null,
    };
    if number.is_nan() {
        let usual = float(bytes.len(), &json!("NaN")).is_some_and(|usual| usual == bytes);
        let digits: String = bytes
            .iter()
            .rev()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        return if usual {
            json!("NaN")
        } else {
            json!(format!("0x{digits}"))
        };
    }
    // The shortest text that reads back as the same float; a double of a float32 has needless digits.
    match text.parse().ok().and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None if number > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: Value) -> Option<(Vec<u8>, Value)> {
        parse(&DataType::from_v3(name), &value)
            .ok()
            .map(|fill| (fill.bytes, fill.json))
    }

    #[test]
    fn every_form_of_a_float_is_read() {
        assert_eq!(read("float32", json!("NaN")).unwrap().0, [0, 0, 0xc0, 0x7f]);
        assert_eq!(
            read("float32", json!("0x7fc00001")).unwrap(),
            (vec![1, 0, 0xc0, 0x7f], json!("0x7fc00001"))
        );
        assert_eq!(
            read("float16", json!("-Infinity")).unwrap(),
            (vec![0, 0xfc], json!("-Infinity"))
        );
        assert_eq!(read("float32", json!(0.1)).unwrap().1, json!(0.1));
        assert_eq!(read("float64", Value::Null).unwrap().1, json!(0.0));
        assert_eq!(read("float32", json!("0x7fc0")), None);
    }

    #[test]
    fn whole_numbers_must_fit() {
        assert_eq!(
            read("int8", json!(-128)).unwrap(),
            (vec![0x80], json!(-128))
        );
        assert_eq!(read("uint64", json!(u64::MAX)).unwrap().1, json!(u64::MAX));
        assert_eq!(read("int64", json!(0.0)).unwrap().1, json!(0));
        assert_eq!(read("int8", json!(128)), None);
        assert_eq!(read("uint8", json!(-1)), None);
    }

    #[test]
    fn complex_and_raw_values_are_read() {
        let (bytes, json) = read("complex64", json!([1.0, "NaN"])).unwrap();
        assert_eq!((bytes.len(), json), (8, json!([1.0, "NaN"])));
        assert_eq!(read("r16", json!([1, 2])).unwrap().0, [1, 2]);
        assert_eq!(read("r16", json!("AQI=")).unwrap().0, [1, 2]);
        assert_eq!(read("r16", json!([1])), None);
        assert_eq!(read("bool", json!(1)).unwrap(), (vec![1], json!(true)));
    }
}
