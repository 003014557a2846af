//! Formats elements as JSON, in the one form that final v3 writes.
//!
//! `fill.rs` parses these values into the same bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde_json::{Number, Value, json};

use crate::model::{Coding, DataType, NumberType};

/// Returns the value in the form of final v3.
pub fn value(data_type: &DataType, bytes: &[u8]) -> Value {
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    match data_type {
        DataType::Bool => json!(bytes != [0]),
        DataType::Int(width) => {
            let unused = 64 - *width * 8;
            json!((number(bytes) << unused).cast_signed() >> unused)
        }
        DataType::UInt(_) => json!(number(bytes)),
        DataType::Float(_) => float_json(bytes),
        DataType::Complex(width) => {
            let (real, imaginary) = bytes.split_at(width / 2);
            json!([float_json(real), float_json(imaginary)])
        }
        DataType::Small(number) => small_json(number, bytes),
        DataType::DateTime(_) | DataType::TimeDelta(_) => json!(number(bytes).cast_signed()),
        DataType::FixedText(_) => json!(text_of(bytes)),
        DataType::Text | DataType::Object => json!(String::from_utf8_lossy(bytes)),
        DataType::Raw(_)
        | DataType::FixedBytes(_)
        | DataType::Struct(_)
        | DataType::Bytes
        | DataType::List(_)
        | DataType::Unknown(_) => json!(STANDARD.encode(bytes)),
    }
}

fn small_json(number: &NumberType, bytes: &[u8]) -> Value {
    let parts: Vec<Value> = bytes
        .chunks(number.word)
        .map(|part| small_part(number, part))
        .collect();
    match parts.as_slice() {
        [part] => part.clone(),
        _ => json!(parts),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "small integers are whole")]
fn small_part(number: &NumberType, part: &[u8]) -> Value {
    let Some(value) = number.value(part) else {
        return Value::Null;
    };
    match number.coding {
        Coding::Signed(_) | Coding::Unsigned(_) => json!(value as i64),
        // Other NaNs are written as the bits of this type, not of a wider float.
        _ if value.is_nan() && number.code(f64::NAN).as_deref() != Some(part) => bits(part),
        _ if value.is_nan() => json!("NaN"),
        _ => float_json(&value.to_le_bytes()),
    }
}

/// Returns the text of UTF-32 code points without trailing zeros.
fn text_of(bytes: &[u8]) -> String {
    let (points, _) = bytes.as_chunks::<4>();
    let letters: String = points
        .iter()
        .map(|point| char::from_u32(u32::from_le_bytes(*point)).unwrap_or('\u{fffd}'))
        .collect();
    letters.trim_end_matches('\0').to_string()
}

/// Whether these are the bits of the default NaN.
fn is_usual_nan(bytes: &[u8]) -> bool {
    *bytes == f16::NAN.to_le_bytes()
        || *bytes == f32::NAN.to_le_bytes()
        || *bytes == f64::NAN.to_le_bytes()
}

/// Returns little-endian bytes in hexadecimal, the most significant first.
fn bits(bytes: &[u8]) -> Value {
    let digits = bytes.iter().rev().map(|byte| format!("{byte:02x}"));
    json!(format!("0x{}", digits.collect::<String>()))
}

/// Returns a float as a number, as a word, or as its bits if it is another NaN than the default.
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
        return if is_usual_nan(bytes) {
            json!("NaN")
        } else {
            bits(bytes)
        };
    }
    // The shortest text that parses to the same float. A float32 converted to a double would show needless digits.
    match text.parse().ok().and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None if number > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}
