//! Reads fill values from all their JSON forms, and writes the form of final v3.
//!
//! The forms are in final v3, "Fill value", and in the specifications of the data types. v2 has the same forms, and in
//! addition base64 for bytes and structures. `null` stands for all zero bytes, or empty if elements have no fixed
//! length, as in the reference implementations. Numbers as text, as n5-zarr writes them, are read as Python reads them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use half::f16;
use serde_json::{Number, Value, json};

use crate::dialect::typestr::StoredType;
use crate::error::{Error, Result};
use crate::model::{Coding, DataType, Field, FillValue, NumberType, utf32_bytes, utf32_text};

/// Reads a fill value; fails with `Corrupt` if it does not fit the data type.
pub fn parse(data_type: &DataType, value: &Value) -> Result<FillValue> {
    let fits = match (data_type.size(), value) {
        _ if data_type.is_variable() => Some(variable(data_type, value)),
        (None, _) => Some(Vec::new()),
        (Some(size), Value::Null) => Some(vec![0; size]),
        _ => element(data_type, value),
    };
    let bytes = fits.ok_or_else(|| {
        Error::corrupt("fill_value", format!("{value} is not a valid {data_type}"))
    })?;
    let json = match data_type {
        DataType::Unknown(_) => value.clone(),
        known => render(known, &bytes),
    };
    Ok(FillValue {
        bytes,
        json,
        is_none: value.is_null(),
    })
}

/// Reads a fill value whose base64 form, for structures, has the byte order of the stored elements.
pub(super) fn parse_stored(typed: &StoredType, value: &Value) -> Result<FillValue> {
    let mut fill = parse(&typed.data_type, value)?;
    if matches!(typed.data_type, DataType::Struct(_)) && value.is_string() {
        typed.to_little(&mut fill.bytes);
        fill.json = render(&typed.data_type, &fill.bytes);
    }
    Ok(fill)
}

/// Returns the bytes of a fill value without a fixed length. A number, which some writers use for a missing value,
/// becomes an empty element.
fn variable(data_type: &DataType, value: &Value) -> Vec<u8> {
    match (data_type, value) {
        (DataType::Text, Value::String(text)) => text.clone().into_bytes(),
        (DataType::Bytes, Value::String(text)) => {
            STANDARD.decode(text).unwrap_or(text.clone().into_bytes())
        }
        (DataType::Bytes, Value::Array(list)) => byte_list(list).unwrap_or_default(),
        (DataType::Object, Value::String(text)) => text.clone().into_bytes(),
        (DataType::Object, Value::Array(_) | Value::Object(_)) => value.to_string().into_bytes(),
        _ => Vec::new(),
    }
}

/// Returns the little-endian bytes of a fill value of fixed length, or `None` if it does not fit the data type.
fn element(data_type: &DataType, value: &Value) -> Option<Vec<u8>> {
    let value = match (data_type, value) {
        // netcdf-c 4.8.0 writes a number as a list of one number.
        (
            DataType::Bool | DataType::Int(_) | DataType::UInt(_) | DataType::Float(_),
            Value::Array(list),
        ) if list.len() == 1 => &list[0],
        _ => value,
    };
    match data_type {
        DataType::Bool => boolean(value).map(|truth| vec![u8::from(truth)]),
        DataType::Int(width) => {
            let number = i64::try_from(whole(value)?).ok()?;
            let bits = *width * 8;
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
        DataType::Small(number) => small(number, value),
        DataType::Raw(width) => raw(*width, value),
        DataType::DateTime(_) | DataType::TimeDelta(_) => match value.as_str() {
            Some("NaT") => Some(i64::MIN.to_le_bytes().to_vec()),
            // zarr-python 2 parses any text as a date; here only "NaT" is supported.
            Some(_) => None,
            None => element(&DataType::Int(8), value),
        },
        DataType::FixedBytes(width) => padded(*width, value),
        DataType::FixedText(length) => utf32(*length, value),
        DataType::Struct(fields) => structure(fields, data_type.size()?, value),
        DataType::Text
        | DataType::Bytes
        | DataType::List(_)
        | DataType::Object
        | DataType::Unknown(_) => None,
    }
}

/// Reads a fill value of a number type that numpy lacks: a number, a word, the bits in hexadecimal, or the two parts of
/// a complex number.
fn small(number: &NumberType, value: &Value) -> Option<Vec<u8>> {
    if number.size > number.word && number.word > 1 {
        let parts = value.as_array().filter(|parts| parts.len() == 2);
        let zero = json!(0);
        let (real, imaginary) = parts.map_or((value, &zero), |parts| (&parts[0], &parts[1]));
        return Some([small_part(number, real)?, small_part(number, imaginary)?].concat());
    }
    small_part(number, value)
}

fn small_part(number: &NumberType, value: &Value) -> Option<Vec<u8>> {
    if let Some(hex) = value.as_str().filter(|text| text.starts_with("0x")) {
        return bits(number.word, hex);
    }
    number.code(f64::from_le_bytes(float(8, value)?.try_into().ok()?))
}

/// Reads a fill value of fixed-length bytes: base64, or plain text if it is not base64. Missing bytes are zeros.
fn padded(width: usize, value: &Value) -> Option<Vec<u8>> {
    let mut bytes = match value {
        Value::String(text) => STANDARD.decode(text).unwrap_or(text.clone().into_bytes()),
        Value::Array(list) => byte_list(list)?,
        Value::Number(number) if number.as_f64() == Some(0.0) => Vec::new(),
        _ => return None,
    };
    let zeros = bytes.iter().skip(width).all(|&byte| byte == 0);
    bytes.resize(width, 0);
    zeros.then_some(bytes)
}

/// Reads a fill value of fixed-length text as UTF-32, padded with zeros. Text that is too long is truncated, as in
/// zarr-python, which writes such values.
fn utf32(length: usize, value: &Value) -> Option<Vec<u8>> {
    let text = match value {
        Value::String(text) => text.as_str(),
        Value::Number(number) if number.as_f64() == Some(0.0) => "",
        _ => return None,
    };
    let mut bytes = utf32_bytes(text);
    bytes.resize(length.checked_mul(4)?, 0);
    Some(bytes)
}

/// Reads a fill value of a structure: an object by field name, a list in the order of fields, base64 of the whole
/// element, or 0 for all zeros.
fn structure(fields: &[Field], size: usize, value: &Value) -> Option<Vec<u8>> {
    if !matches!(value, Value::Object(_) | Value::Array(_)) {
        return raw(size, value);
    }
    let mut bytes = Vec::with_capacity(size);
    for (place, field) in fields.iter().enumerate() {
        let part = match value {
            Value::Array(parts) => parts.get(place)?,
            parts => parts.get(&field.name)?,
        };
        let whole = field.data_type.size()?.checked_mul(field.count()?)?;
        if field.shape.is_empty() {
            bytes.extend(element(&field.data_type, part)?);
        } else {
            bytes.extend(raw(whole, part)?);
        }
    }
    (bytes.len() == size).then_some(bytes)
}

fn byte_list(list: &[Value]) -> Option<Vec<u8>> {
    list.iter()
        .map(|number| u8::try_from(number.as_u64()?).ok())
        .collect()
}

/// Reads a boolean fill value as numpy does: any number except 0 and any text except the empty one is true.
fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => Some(number.as_f64() != Some(0.0)),
        Value::String(text) => Some(!text.is_empty()),
        _ => None,
    }
}

/// Reads an integer fill value. Some writers store an integer as `0.0` or as text.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Bool(truth) => Some(i128::from(*truth)),
        Value::Number(number) => number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
            .or_else(|| number.as_f64().and_then(whole_float)),
        Value::String(text) => python_digits(text)?.parse().ok(),
        _ => None,
    }
}

/// Whether Python would parse text as a number of type `T`.
pub fn is_python_number<T: std::str::FromStr>(text: &str) -> bool {
    python_digits(text).is_some_and(|digits| digits.parse::<T>().is_ok())
}

/// Converts the text of a number from Python's spelling to Rust's: Python allows surrounding whitespace, and single
/// underscores between digits.
fn python_digits(text: &str) -> Option<String> {
    let text = text.trim();
    let is_digit = |at: Option<char>| at.is_some_and(|letter| letter.is_ascii_digit());
    let mut before = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '_' && !(is_digit(before) && is_digit(letters.peek().copied())) {
            return None;
        }
        before = Some(letter);
    }
    Some(text.replace('_', ""))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the number is whole and at most 2e19"
)]
fn whole_float(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() <= 2e19).then_some(number as i128)
}

/// Reads a float fill value of 2, 4 or 8 bytes: a number, a word such as "NaN", or its bits in hexadecimal.
fn float(width: usize, value: &Value) -> Option<Vec<u8>> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            hex if hex.starts_with("0x") => return bits(width, hex),
            number => python_digits(number)?.parse().ok()?,
        },
        _ => return None,
    };
    Some(match width {
        2 => f16::from_f64(number).to_le_bytes().to_vec(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest float32 is meant"
        )]
        4 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    })
}

/// Reads the bits of a float in hexadecimal, most significant first, such as `0x7fc00000`.
fn bits(width: usize, hex: &str) -> Option<Vec<u8>> {
    let digits = hex
        .strip_prefix("0x")
        .filter(|digits| digits.len() == width * 2)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    Some(number.to_le_bytes()[..width].to_vec())
}

/// Reads a fill value of raw bytes: a list of numbers, or base64. A single 0 is all zeros.
fn raw(width: usize, value: &Value) -> Option<Vec<u8>> {
    let bytes = match value {
        Value::Array(list) => byte_list(list)?,
        Value::String(text) if text.is_empty() => vec![0; width],
        Value::String(text) => STANDARD.decode(text).ok()?,
        Value::Number(number) if number.as_f64() == Some(0.0) => vec![0; width],
        _ => return None,
    };
    (bytes.len() == width).then_some(bytes)
}

/// Returns the JSON of a fill value as final v3 writes it; `parse` reads it into the same bytes.
pub fn render(data_type: &DataType, bytes: &[u8]) -> Value {
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
        DataType::Float(_) => render_float(bytes),
        DataType::Complex(width) => {
            let (real, imaginary) = bytes.split_at(width / 2);
            json!([render_float(real), render_float(imaginary)])
        }
        DataType::Small(number) => render_small(number, bytes),
        DataType::DateTime(_) | DataType::TimeDelta(_) => json!(number(bytes).cast_signed()),
        DataType::FixedText(_) => json!(utf32_text(bytes)),
        DataType::Text | DataType::Object => json!(String::from_utf8_lossy(bytes)),
        DataType::Raw(_)
        | DataType::FixedBytes(_)
        | DataType::Struct(_)
        | DataType::Bytes
        | DataType::List(_)
        | DataType::Unknown(_) => json!(STANDARD.encode(bytes)),
    }
}

fn render_small(number: &NumberType, bytes: &[u8]) -> Value {
    let parts: Vec<Value> = bytes
        .chunks(number.word)
        .map(|part| render_small_part(number, part))
        .collect();
    match parts.as_slice() {
        [part] => part.clone(),
        _ => json!(parts),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "small integers are whole")]
fn render_small_part(number: &NumberType, part: &[u8]) -> Value {
    let Some(value) = number.value(part) else {
        return Value::Null;
    };
    match number.coding {
        Coding::Signed(_) | Coding::Unsigned(_) => json!(value as i64),
        // A NaN other than the default NaN is written as its bits, in the width of its own type.
        _ if value.is_nan() && number.code(f64::NAN).as_deref() != Some(part) => render_bits(part),
        _ if value.is_nan() => json!("NaN"),
        _ => render_float(&value.to_le_bytes()),
    }
}

/// Whether the bytes are the default NaN of a float type.
fn is_usual_nan(bytes: &[u8]) -> bool {
    *bytes == f16::NAN.to_le_bytes()
        || *bytes == f32::NAN.to_le_bytes()
        || *bytes == f64::NAN.to_le_bytes()
}

/// Returns a little-endian number in hexadecimal, the most significant byte first.
fn render_bits(bytes: &[u8]) -> Value {
    let digits = bytes.iter().rev().map(|byte| format!("{byte:02x}"));
    json!(format!("0x{}", digits.collect::<String>()))
}

/// Returns the JSON of a float: a number, a word such as "NaN", or the bits of a NaN other than the default NaN.
fn render_float(bytes: &[u8]) -> Value {
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
            render_bits(bytes)
        };
    }
    // Write the shortest text that parses to the same float: a float32 converted to float64 would have needless digits.
    match text.parse().ok().and_then(Number::from_f64) {
        Some(number) => Value::Number(number),
        None if number > 0.0 => json!("Infinity"),
        None => json!("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::typestr;

    fn read(name: &str, value: Value) -> Option<(Vec<u8>, Value)> {
        parse(&DataType::from_v3(name), &value)
            .ok()
            .map(|fill| (fill.bytes, fill.json))
    }

    #[test]
    fn every_form_of_a_float_fill_value_is_read() {
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
    fn integer_fill_values_must_fit_their_type() {
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
    fn numbers_in_text_are_read_like_in_python() {
        for (name, text, value) in [
            ("int16", "0", json!(0)),
            ("int16", " -3 ", json!(-3)),
            ("uint16", "+5", json!(5)),
            ("int16", "1_000", json!(1000)),
            ("uint64", "18446744073709551615", json!(u64::MAX)),
            ("float32", "0", json!(0.0)),
            ("float32", " 7.5", json!(7.5)),
            ("float64", "1_000.5", json!(1000.5)),
            ("float64", "-inf", json!("-Infinity")),
            ("complex64", "1", json!([1.0, 0.0])),
            ("bool", "0", json!(true)),
            ("bool", "false", json!(true)),
            ("bool", "", json!(false)),
        ] {
            assert_eq!(read(name, json!(text)).unwrap().1, value, "{name} {text}");
        }
        for (name, text) in [
            ("int16", ""),
            ("int16", "7.0"),
            ("int16", "_7"),
            ("int16", "7_"),
            ("int16", "1__0"),
            ("int16", "0x10"),
            ("int16", "NaN"),
            ("int8", "128"),
            ("uint8", "-1"),
            ("float32", ""),
            ("float32", "1_.5"),
            ("float32", "true"),
        ] {
            assert_eq!(read(name, json!(text)), None, "{name} {text:?}");
        }
        assert_eq!(read("bool", json!(2)).unwrap().1, json!(true));
        assert_eq!(read("int16", json!([7])).unwrap().1, json!(7));
        assert_eq!(read("float32", json!([1.5])).unwrap().1, json!(1.5));
        assert_eq!(read("int16", json!([7, 8])), None);
        assert_eq!(
            read("uint64", json!(1e19)).unwrap().1,
            json!(10_000_000_000_000_000_000_u64)
        );
        assert_eq!(read("uint64", json!(18_446_744_073_709_551_616.0)), None);
    }

    #[test]
    fn complex_and_raw_fill_values_are_read() {
        let (bytes, json) = read("complex64", json!([1.0, "NaN"])).unwrap();
        assert_eq!((bytes.len(), json), (8, json!([1.0, "NaN"])));
        // GDAL writes only the real part of a complex fill value.
        let real = read("complex64", json!(5.0)).unwrap();
        assert_eq!(real.1, json!([5.0, 0.0]));
        assert_eq!(read("r16", json!([1, 2])).unwrap().0, [1, 2]);
        assert_eq!(read("r16", json!("AQI=")).unwrap().0, [1, 2]);
        assert_eq!(read("r16", json!([1])), None);
        assert_eq!(
            read("bfloat16", json!(1.5)).unwrap(),
            (vec![0xc0, 0x3f], json!(1.5))
        );
        assert_eq!(
            read("complex_bfloat16", json!([0, "NaN"])).unwrap().1,
            json!([0.0, "NaN"])
        );
        assert_eq!(read("float8_e5m2", json!("0x7f")).unwrap().0, [0x7f]);
        assert_eq!(read("bool", json!(1)).unwrap(), (vec![1], json!(true)));
    }

    #[test]
    fn fill_values_of_small_types_are_written_as_read() {
        for (name, value) in [
            ("bfloat16", json!("0x7fc1")),
            ("bfloat16", json!("0xffc0")),
            ("bfloat16", json!("NaN")),
            ("bfloat16", json!("-Infinity")),
            ("float8_e4m3fn", json!("0xff")),
            ("float8_e5m2", json!("0xfe")),
            ("float8_e5m2", json!("NaN")),
            ("complex_bfloat16", json!(["0x7fc1", 1.5])),
            ("complex_float16", json!(["0x7e01", "NaN"])),
            ("int4", json!(-8)),
            ("uint4", json!(3)),
            ("int2", json!(-1)),
        ] {
            assert_eq!(read(name, value.clone()).unwrap().1, value, "{name}");
        }
        assert_eq!(read("bfloat16", json!("0x7fc0")).unwrap().1, json!("NaN"));
    }

    fn stored(dtype: Value, value: Value) -> Option<(Vec<u8>, Value)> {
        let typed = typestr::parse(&dtype).unwrap();
        let fill = parse_stored(&typed, &value).ok()?;
        Some((fill.bytes, fill.json))
    }

    #[test]
    fn text_and_time_fill_values_are_read() {
        assert_eq!(
            stored(json!("|S3"), json!("YWI=")).unwrap(),
            (b"ab\0".to_vec(), json!("YWIA"))
        );
        assert_eq!(stored(json!("|S2"), json!("YWJj")), None);
        assert_eq!(
            stored(json!(">U2"), json!("\u{e9}")).unwrap().1,
            json!("\u{e9}")
        );
        assert_eq!(stored(json!("<U1"), json!("ab")).unwrap().1, json!("a"));
        assert_eq!(
            stored(json!("<M8[s]"), json!("NaT")).unwrap().1,
            json!(i64::MIN)
        );
        assert_eq!(stored(json!("<m8[s]"), json!(-5)).unwrap().1, json!(-5));
        assert_eq!(stored(json!("<M8[s]"), json!("5")), None);
    }

    #[test]
    fn fill_values_of_structures_are_read_in_every_form() {
        let dtype = json!([["a", ">i2"], ["b", "|S2"]]);
        let little = (vec![2, 1, b'x', 0], json!(STANDARD.encode([2, 1, b'x', 0])));
        let packed = json!(STANDARD.encode([1, 2, b'x', 0]));
        assert_eq!(stored(dtype.clone(), packed).unwrap(), little);
        assert_eq!(
            stored(dtype.clone(), json!({ "a": 258, "b": "eA==" })).unwrap(),
            little
        );
        assert_eq!(stored(dtype.clone(), json!([258, "eA=="])).unwrap(), little);
        assert_eq!(stored(dtype.clone(), json!(0)).unwrap().0, [0; 4]);
        assert_eq!(stored(dtype, json!({ "a": 1 })), None);
    }

    #[test]
    fn fill_values_of_variable_length_are_read() {
        assert_eq!(
            read("string", json!("NA")).unwrap(),
            (b"NA".to_vec(), json!("NA"))
        );
        assert_eq!(read("string", json!(0)).unwrap(), (vec![], json!("")));
        assert_eq!(
            read("bytes", json!([1, 2])).unwrap(),
            (vec![1, 2], json!("AQI="))
        );
    }
}
