//! Rules for values that several specifications share: shapes, chunk shapes and fill values.

use serde_json::Value;

use super::rules::{Members, Verdict};
use zarr_format::dialect::fill::is_python_number;

/// Strings that are valid fill values of floats in Zarr v2 and v3.
pub(crate) const FLOAT_WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

pub(crate) fn demand(holds: bool, expected: &str) -> Verdict {
    if holds {
        Verdict::Holds
    } else {
        Verdict::Fails(expected.to_string())
    }
}

pub(crate) fn anything(_: &Value, _: &Members) -> Verdict {
    Verdict::Holds
}

pub(crate) fn object(value: &Value, _: &Members) -> Verdict {
    demand(value.is_object(), "an object")
}

pub(crate) fn list(value: &Value, _: &Members) -> Verdict {
    demand(value.is_array(), "a list")
}

/// Accepts an array shape: a list of integers from 0.
pub(crate) fn shape(value: &Value, _: &Members) -> Verdict {
    let expected = "a list of integers from 0 to 2^64 - 1";
    match lengths(value) {
        Some(_) if value.is_number() => Verdict::Habit(expected.to_string(), JSON_OF_R),
        numbers => demand(numbers.is_some(), expected),
    }
}

/// The writer that stores a list with one value as the bare value.
pub(crate) const JSON_OF_R: &str = "R's jsonlite with auto_unbox";

/// Returns the integers of a JSON list. Accepts a single integer as a list of one, and returns `None` for other values.
pub(crate) fn lengths(value: &Value) -> Option<Vec<u64>> {
    match value {
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        length => Some(vec![length.as_u64()?]),
    }
}

/// Accepts the version in `zarr_format`. A float is a warning, since some writers store one.
pub(crate) fn format(value: &Value, number: u32) -> Verdict {
    let expected = number.to_string();
    if value.as_u64() == Some(u64::from(number)) {
        Verdict::Holds
    } else if value.as_f64() == Some(f64::from(number)) {
        Verdict::Tolerated(expected)
    } else {
        Verdict::Fails(expected)
    }
}

/// Accepts a chunk shape: one length for each dimension of the array, none of them 0.
pub(crate) fn chunk_lengths(value: Option<&Value>, shape: Option<&Value>) -> Verdict {
    let Some(chunk) = value.and_then(lengths) else {
        return Verdict::Fails("a list of integers above 0".to_string());
    };
    let Some(shape) = shape.and_then(lengths) else {
        return demand(!chunk.contains(&0), "a list of integers above 0");
    };
    if chunk.len() != shape.len() {
        let expected = format!("{} lengths, one per dimension of the array", shape.len());
        return Verdict::Fails(expected);
    }
    let mut sides = chunk.iter().zip(&shape);
    if sides.any(|(&chunk, &length)| chunk == 0 && length > 0) {
        return Verdict::Fails("lengths above 0".to_string());
    }
    if chunk.contains(&0) {
        let expected = "lengths above 0".to_string();
        return Verdict::Habit(expected, "a writer of empty arrays such as zarr-python");
    }
    if value.is_some_and(Value::is_number) {
        return Verdict::Habit("a list of lengths".to_string(), JSON_OF_R);
    }
    Verdict::Holds
}

/// Accepts `.` or `/` as the separator in chunk keys.
pub(crate) fn separator(value: &Value, _: &Members) -> Verdict {
    demand(matches!(value.as_str(), Some("." | "/")), "\".\" or \"/\"")
}

/// The kinds of elements for which different fill values are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ElementKind {
    Bool,
    Int(u32),
    UInt(u32),
    Float(u32),
    /// A complex number, whose real and imaginary part have this number of bits each.
    Complex(u32),
}

/// Returns the kind of a data type's elements from the type's name in Zarr v3 or numpy, or `None` for other types.
pub(crate) fn element_kind(name: &str) -> Option<ElementKind> {
    let plain = name.trim_start_matches(['<', '>', '|', '=']);
    let bits = |digits: &str, unit: u32| digits.parse::<u32>().ok()?.checked_mul(unit);
    let number = |word: &str, letter: &str, kind: fn(u32) -> ElementKind| {
        let width = plain.strip_prefix(word).and_then(|digits| bits(digits, 1));
        let width = width.or_else(|| {
            plain
                .strip_prefix(letter)
                .and_then(|digits| bits(digits, 8))
        });
        width
            .filter(|width| [8, 16, 32, 64].contains(width))
            .map(kind)
    };
    match plain {
        "bool" | "b1" => return Some(ElementKind::Bool),
        "complex64" | "c8" => return Some(ElementKind::Complex(32)),
        "complex128" | "c16" => return Some(ElementKind::Complex(64)),
        _ => {}
    }
    number("uint", "u", ElementKind::UInt)
        .or_else(|| number("int", "i", ElementKind::Int))
        .or_else(|| number("float", "f", ElementKind::Float))
}

/// Accepts a fill value for elements of the given kind. `words` are the strings for special floats, such as NaN.
pub(crate) fn fill_value(kind: ElementKind, value: &Value, words: &[&str]) -> Verdict {
    if !matches!(kind, ElementKind::Complex(_))
        && let Some([one]) = value.as_array().map(Vec::as_slice)
    {
        return match fill_value(kind, one, words) {
            Verdict::Fails(expected) => Verdict::Fails(expected),
            _ => Verdict::Habit("a value, not a list".to_string(), "netcdf-c 4.8.0"),
        };
    }
    match kind {
        ElementKind::Bool => match value.as_u64() {
            Some(0 | 1) => Verdict::Habit(
                "true or false".to_string(),
                "numpy's scalars in zarr.js and Java",
            ),
            _ if value.is_number() || value.is_string() => Verdict::Tolerated(
                "true or false; readers take 0 and \"\" as false and others as true".to_string(),
            ),
            _ => demand(value.is_boolean(), "true or false"),
        },
        ElementKind::Int(bits) => {
            whole_number(value, -(1_i128 << (bits - 1)), 1_i128 << (bits - 1))
        }
        ElementKind::UInt(bits) => whole_number(value, 0, 1_i128 << bits),
        ElementKind::Float(bits) => float(value, bits, words),
        ElementKind::Complex(bits) => complex(value, bits, words),
    }
}

/// Accepts a complex number as a list of two floats. The real part alone is a warning, since GDAL writes it.
fn complex(value: &Value, bits: u32, words: &[&str]) -> Verdict {
    let expected = "a list of two numbers";
    let holds = |part: &Value| matches!(float(part, bits, words), Verdict::Holds);
    match value.as_array().map(Vec::as_slice) {
        Some([real, imaginary]) => demand(holds(real) && holds(imaginary), expected),
        None if holds(value) => Verdict::Habit(expected.to_string(), "GDAL"),
        _ => Verdict::Fails(expected.to_string()),
    }
}

/// Accepts an integer in the range `least..end`.
fn whole_number(value: &Value, least: i128, end: i128) -> Verdict {
    let expected = || format!("an integer from {least} to {}", end - 1);
    let number = value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from));
    match number {
        Some(number) if (least..end).contains(&number) => Verdict::Holds,
        None if value.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            Verdict::Habit(expected(), "z5py")
        }
        None if value.as_str().is_some_and(is_python_number::<i128>) => {
            Verdict::Habit(expected(), "n5-zarr")
        }
        None if value.is_boolean() => Verdict::Tolerated(expected()),
        _ => Verdict::Fails(expected()),
    }
}

/// Accepts a float: a number, one of the strings `words`, or the bits of the float in hexadecimal.
fn float(value: &Value, bits: u32, words: &[&str]) -> Verdict {
    let digits = usize::try_from(bits / 4).unwrap_or_default();
    let is_hex = |text: &str| {
        let rest = text.strip_prefix("0x");
        rest.is_some_and(|rest| {
            rest.len() == digits && rest.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    let expected = format!("a number or one of {}", words.join(", "));
    match value {
        Value::Number(_) => Verdict::Holds,
        Value::String(text) if words.contains(&text.as_str()) || is_hex(text) => Verdict::Holds,
        Value::String(text) if is_python_number::<f64>(text) => Verdict::Habit(expected, "n5-zarr"),
        Value::Bool(_) => Verdict::Tolerated(expected),
        _ => Verdict::Fails(expected),
    }
}

/// Accepts a list of codecs, which are objects with a string in `member`.
pub(crate) fn named_objects(value: &Value, member: &str) -> Verdict {
    let is_named = |codec: &Value| codec.get(member).is_some_and(Value::is_string);
    let holds = value
        .as_array()
        .is_some_and(|codecs| codecs.iter().all(is_named));
    demand(
        holds,
        &format!("a list of objects, each with the member \"{member}\""),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn element_kinds_are_read_from_v2_and_v3_type_names() {
        for (name, kind) in [
            ("bool", Some(ElementKind::Bool)),
            ("|b1", Some(ElementKind::Bool)),
            ("<i4", Some(ElementKind::Int(32))),
            ("uint8", Some(ElementKind::UInt(8))),
            (">f8", Some(ElementKind::Float(64))),
            ("complex64", Some(ElementKind::Complex(32))),
            (">c16", Some(ElementKind::Complex(64))),
            ("<M8[ns]", None),
            ("int2", None),
            ("i99999999999", None),
            ("string", None),
        ] {
            assert!(element_kind(name) == kind, "{name}");
        }
    }

    #[test]
    fn fill_values_must_fit_their_data_type() {
        let words = &["NaN", "Infinity"];
        let holds = |kind, value: Value| matches!(fill_value(kind, &value, words), Verdict::Holds);
        assert!(holds(ElementKind::UInt(64), json!(u64::MAX)));
        assert!(holds(ElementKind::Int(8), json!(-128)) && !holds(ElementKind::Int(8), json!(128)));
        assert!(holds(ElementKind::Float(32), json!("0x7fc00000")));
        assert!(!holds(ElementKind::Float(64), json!("0x7fc00000")));
        assert!(!holds(ElementKind::Int(32), json!(1.0)) && !holds(ElementKind::Bool, json!("x")));
        let is_read = |kind, text: &str| {
            let verdict = fill_value(kind, &json!(text), words);
            matches!(verdict, Verdict::Habit(..) | Verdict::Tolerated(_))
        };
        assert!(is_read(ElementKind::Int(8), "0") && is_read(ElementKind::Float(32), "1.5"));
        assert!(is_read(ElementKind::Bool, "false") && !is_read(ElementKind::Int(8), "1.5"));
    }

    #[test]
    fn parts_of_complex_fill_values_are_written_like_floats() {
        let verdict = |bits, value: Value| fill_value(ElementKind::Complex(bits), &value, &["NaN"]);
        for (bits, value) in [
            (32, json!([1, "NaN"])),
            (32, json!(["0x7fc00001", 0])),
            (64, json!([0, "0x7ff8000000000001"])),
        ] {
            assert!(matches!(verdict(bits, value), Verdict::Holds));
        }
        for value in [json!(5.0), json!("NaN")] {
            let found = verdict(32, value);
            assert!(matches!(found, Verdict::Habit(_, writer) if writer == "GDAL"));
        }
        for (bits, value) in [
            (32, json!([0, "0x7ff8000000000001"])),
            (64, json!([1])),
            (64, json!([1, 2, 3])),
            (64, json!(true)),
        ] {
            assert!(matches!(verdict(bits, value), Verdict::Fails(_)));
        }
    }
}
