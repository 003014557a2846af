//! Rules of the Zarr v2 specification for `.zarray` and `.zgroup`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::rules::{DocumentRules, Members, Verdict, optional, rule};
use super::values;
use super::values::{FLOAT_WORDS, demand, element_kind, separator};

use crate::spec::Spec;
use zarr_format::dialect::typestr;
use zarr_format::model::{DataType, NumberType};

pub(crate) static ARRAY: DocumentRules = DocumentRules {
    section: Spec::V2.section("Metadata"),
    members: &[
        rule("zarr_format", format),
        rule("shape", values::shape),
        rule("chunks", chunks),
        rule("dtype", dtype).in_section(Spec::V2.section("Data type encoding")),
        rule("compressor", compressor),
        rule("fill_value", fill_value).in_section(Spec::V2.section("Fill value encoding")),
        rule("order", order),
        rule("filters", filters),
        optional("dimension_separator", separator_or_null),
    ],
    others: |name, _| {
        let why = "the specification does not define it".to_string();
        match name {
            "_NCZARR_ARRAY"
            | "_nczarr_array"
            | "_NCZARR_DEFAULT_MAXSTRLEN"
            | "_nczarr_default_maxstrlen" => Verdict::Habit(why, "netcdf-c"),
            "node_type" => Verdict::Habit(why, "zarrs"),
            _ => Verdict::Discouraged(why),
        }
    },
    others_section: None,
};

pub(crate) static GROUP: DocumentRules = DocumentRules {
    section: Spec::V2.section("Groups"),
    members: &[rule("zarr_format", format)],
    others: |name, _| {
        let expected = "a group has only zarr_format".to_string();
        if name.to_ascii_lowercase().starts_with("_nczarr") {
            Verdict::Habit(expected, "netcdf-c")
        } else {
            Verdict::Fails(expected)
        }
    },
    others_section: None,
};

fn format(value: &Value, _: &Members) -> Verdict {
    values::format(value, 2)
}

fn chunks(value: &Value, members: &Members) -> Verdict {
    values::chunk_lengths(Some(value), members.get("shape"))
}

/// Accepts a numpy type string with a byte order, or a list of fields.
fn dtype(value: &Value, _: &Members) -> Verdict {
    match value {
        Value::String(text) => simple_type(text),
        Value::Array(fields) => {
            let is_field = |field: &Value| {
                let parts = field.as_array().map_or(0, Vec::len);
                (2..=3).contains(&parts) && field.get(0).is_some_and(Value::is_string)
            };
            if fields.is_empty() || !fields.iter().all(is_field) {
                let expected = "a list of fields, each a list of name, type and optionally shape";
                return Verdict::Fails(expected.to_string());
            }
            let names: HashSet<&str> = fields
                .iter()
                .filter_map(|field| field[0].as_str())
                .collect();
            demand(
                names.len() == fields.len(),
                "a list of fields with different names",
            )
        }
        _ => Verdict::Fails("a string or a list of fields".to_string()),
    }
}

fn simple_type(text: &str) -> Verdict {
    let has_order = text.starts_with(['<', '>', '|']);
    let plain = text.trim_start_matches(['<', '>', '|']);
    if !has_order && NumberType::named(text).is_some() {
        return Verdict::Habit("a numpy type".to_string(), "tensorstore");
    }
    let expected = "a byte order (<, > or |), a kind and a length".to_string();
    let known = typestr::parse(&json!(text)).map(|typed| typed.data_type);
    let is_known = known.is_ok_and(|known| !matches!(known, DataType::Unknown(_)));
    let is_plain = plain
        .chars()
        .nth(1)
        .is_some_and(|digit| digit.is_ascii_digit());
    if is_known && !(has_order && is_plain && !plain.starts_with('a')) {
        return Verdict::Tolerated(expected);
    }
    if !has_order {
        return Verdict::Fails(expected);
    }
    if plain == "c4" {
        return Verdict::Habit("a numpy type".to_string(), "GDAL");
    }
    let kind = plain.chars().next().unwrap_or_default();
    if !"biufcmMSUVO".contains(kind) {
        return Verdict::Fails("of kind b, i, u, f, c, m, M, S, U, V or O".to_string());
    }
    if "mM".contains(kind) && !plain.contains('[') {
        return Verdict::Fails("a type with a time unit in brackets, such as <M8[ns]".to_string());
    }
    Verdict::Holds
}

fn compressor(value: &Value, _: &Members) -> Verdict {
    let id = value.get("id").and_then(Value::as_str);
    if id.is_none() && !value.is_null() {
        let expected = "null or an object with the member \"id\"";
        return Verdict::Fails(expected.to_string());
    }
    let is_text = |name: &str| value.get(name).is_some_and(Value::is_string);
    let expected = match id {
        Some("blosc") if is_text("shuffle") => "an object with a number as the shuffle of blosc",
        Some("zstd") if is_text("checksum") => {
            "an object with true or false as the checksum of zstd"
        }
        _ => return Verdict::Holds,
    };
    Verdict::Habit(expected.to_string(), "GDAL")
}

fn filters(value: &Value, _: &Members) -> Verdict {
    if value.is_null() {
        return Verdict::Holds;
    }
    values::named_objects(value, "id")
}

fn order(value: &Value, _: &Members) -> Verdict {
    demand(matches!(value.as_str(), Some("C" | "F")), "\"C\" or \"F\"")
}

fn separator_or_null(value: &Value, members: &Members) -> Verdict {
    if value.is_null() {
        return Verdict::Habit("\".\" or \"/\"".to_string(), "kerchunk");
    }
    separator(value, members)
}

/// Accepts a fill value: a value of the array's data type, or null.
fn fill_value(value: &Value, members: &Members) -> Verdict {
    let dtype = members
        .get("dtype")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_extended = members
        .get("filters")
        .is_some_and(|filters| !filters.is_null());
    match element_kind(dtype) {
        _ if value.is_null() => Verdict::Holds,
        Some(kind) => values::fill_value(kind, value, &FLOAT_WORDS),
        None if dtype.contains('V') || members.get("dtype").is_some_and(Value::is_array) => {
            bytes(value)
        }
        None if dtype.contains('S') && !is_extended => bytes(value),
        None => Verdict::Holds,
    }
}

/// Accepts a fill value of bytes in base64. An empty string or, as zarr-python writes it, the number 0 stands for
/// zeros.
fn bytes(value: &Value) -> Verdict {
    let expected = "bytes in base64";
    let is_base64 = |text: &str| {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        text.len().is_multiple_of(4) && text.bytes().all(is_digit)
    };
    match value {
        Value::String(text) if text.is_empty() || is_base64(text) => Verdict::Holds,
        Value::Number(number) if number.as_f64() == Some(0.0) => {
            Verdict::Habit(expected.to_string(), "zarr-python")
        }
        Value::Array(_) => Verdict::Habit(expected.to_string(), "zarrs and GDAL"),
        _ => Verdict::Fails(expected.to_string()),
    }
}
