//! Defines uncompressed Zarr v2: `.zgroup` or `.zarray`, `.zattrs`, `.zmetadata`, and chunks in the array's folder.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::view::plain::mask::{self, DIMENSIONS};
use crate::view::plain::target::{NodeDocument, PlainArray, Target, member_text};
use zarr_format::dialect::fill;
use zarr_format::json_text;
use zarr_format::model::document::{ZARRAY, ZATTRS, ZGROUP, ZMETADATA};
use zarr_format::model::{Array, Attributes, Coding, DataType, Field, FillValue};

/// Zarr v2 as a format of uncompressed stores.
pub const TARGET: Target = Target {
    name: "v2",
    array_documents: &[ZARRAY, ZATTRS],
    group_documents: &[ZGROUP, ZATTRS, ZMETADATA],
    consolidated: ZMETADATA,
    array_document,
    group_document,
    has_name: |data_type| type_name(data_type).is_some(),
    change: |data_type| match data_type {
        DataType::Object => Some("JSON values become strings"),
        _ => None,
    },
    states_fill: mask::is_fill_for_v2,
    chunk_folder: None,
    scalar_chunk: "0",
};

/// Returns the name of a data type in Zarr v2: that of numpy (v2 specification, "Data type encoding"), or `|O` for
/// variable-length elements.
fn type_name(data_type: &DataType) -> Option<Value> {
    let order = if data_type.word() == 1 { '|' } else { '<' };
    Some(match data_type {
        DataType::Bool => json!("|b1"),
        DataType::Int(width) => json!(format!("{order}i{width}")),
        DataType::UInt(width) => json!(format!("{order}u{width}")),
        DataType::Float(width) => json!(format!("{order}f{width}")),
        DataType::Complex(width) => json!(format!("{order}c{width}")),
        // Integers of fewer than 8 bits are decoded to one byte each.
        DataType::Small(number) => match number.coding {
            Coding::Signed(_) => json!("|i1"),
            Coding::Unsigned(_) => json!("|u1"),
            Coding::Brain | Coding::Half | Coding::Float(_) => return None,
        },
        DataType::Raw(width) => json!(format!("|V{width}")),
        DataType::DateTime(unit) if unit.name == "generic" => json!("<M8"),
        DataType::TimeDelta(unit) if unit.name == "generic" => json!("<m8"),
        DataType::DateTime(unit) => json!(format!("<M8[{unit}]")),
        DataType::TimeDelta(unit) => json!(format!("<m8[{unit}]")),
        DataType::FixedBytes(width) => json!(format!("|S{width}")),
        DataType::FixedText(length) => json!(format!("<U{length}")),
        DataType::Struct(fields) => {
            let fields: Option<Vec<Value>> = fields.iter().map(field_type).collect();
            json!(fields?)
        }
        DataType::Text | DataType::Bytes | DataType::Object => json!("|O"),
        DataType::List(element) if element.size().is_some() => {
            type_name(element)?;
            json!("|O")
        }
        DataType::List(_) | DataType::Unknown(_) => return None,
    })
}

fn field_type(field: &Field) -> Option<Value> {
    let name = type_name(&field.data_type)?;
    Some(if field.shape.is_empty() {
        json!([field.name, name])
    } else {
        json!([field.name, name, field.shape])
    })
}

/// Returns the filters of an array in Zarr v2. Only variable-length elements need a filter.
fn filters(data_type: &DataType) -> Value {
    match data_type {
        DataType::Text | DataType::Object => json!([{ "id": "vlen-utf8" }]),
        DataType::Bytes => json!([{ "id": "vlen-bytes" }]),
        DataType::List(element) => json!([{ "id": "vlen-array", "dtype": type_name(element) }]),
        _ => Value::Null,
    }
}

/// Returns a fill value as Zarr v2 writes it (v2 specification, "Fill value encoding").
fn fill_value(data_type: &DataType, fill: &FillValue) -> Value {
    let bytes = &fill.bytes;
    match data_type {
        _ if fill.is_none => Value::Null,
        DataType::Float(_) => without_bits(fill::render(data_type, bytes)),
        DataType::Complex(_) => match fill::render(data_type, bytes) {
            Value::Array(parts) => parts.into_iter().map(without_bits).collect(),
            other => other,
        },
        DataType::Bytes if bytes.is_empty() => json!(""),
        DataType::Bytes | DataType::List(_) => Value::Null,
        _ => fill::render(data_type, bytes),
    }
}

/// Replaces a NaN that is written as its bits by "NaN", since Zarr v2 cannot express other NaNs.
fn without_bits(value: Value) -> Value {
    match &value {
        Value::String(text) if text.starts_with("0x") => json!("NaN"),
        _ => value,
    }
}

fn array_document(plain: &PlainArray<'_>, document: &str) -> String {
    let array = plain.array;
    if document == ZATTRS {
        return attributes_text(&array_attributes(array));
    }
    let fill = if plain.states_fill {
        fill_value(&array.data_type, &array.fill_value)
    } else {
        without_bits(mask::value_for_v2(array))
    };
    let members = json!({
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": plain.chunk_shape,
        "dtype": type_name(&array.data_type),
        "compressor": null,
        "fill_value": fill,
        "filters": filters(&array.data_type),
        "order": "C",
        "dimension_separator": ".",
    });
    text_of(&members)
}

fn text_of(members: &Value) -> String {
    String::from_utf8(json_text::render(members)).unwrap_or_default()
}

fn attributes_text(attributes: &Attributes) -> String {
    String::from_utf8(json_text::document(attributes.text())).unwrap_or_default()
}

/// Returns the attributes of an array for Zarr v2, with the names of dimensions.
fn array_attributes(array: &Array) -> Attributes {
    let attributes = ome_4(&mask::attributes_for_v2(array));
    let is_named = array.dimension_names.iter().any(Option::is_some);
    // xarray needs `_ARRAY_DIMENSIONS` even for an array without dimensions, as an empty list.
    if !(is_named || array.shape.is_empty()) || attributes.get(DIMENSIONS).is_some() {
        return attributes;
    }
    attributes.with(DIMENSIONS, &json!(names_of_all(&array.dimension_names)))
}

/// Returns the names of all dimensions, as Zarr v2 needs them. A dimension without a name gets xarray's default name,
/// or a longer name if that is taken.
fn names_of_all(dimensions: &[Option<String>]) -> Vec<String> {
    let is_taken = |name: &String| dimensions.iter().flatten().any(|taken| taken == name);
    let free = |axis: usize| {
        let mut name = format!("dim_{axis}");
        while is_taken(&name) {
            name.push('_');
        }
        name
    };
    let named = |(axis, name): (usize, &Option<String>)| name.clone().unwrap_or_else(|| free(axis));
    dimensions.iter().enumerate().map(named).collect()
}

/// Converts attributes of OME-Zarr 0.5 to those of 0.4, since 0.5 is for Zarr v3 only. Other attributes are unchanged.
fn ome_4(attributes: &Attributes) -> Attributes {
    // The members of the attribute `ome` of OME-Zarr 0.5 are separate attributes in 0.4.
    let Some(Value::Object(members)) = attributes.get("ome") else {
        return attributes.clone();
    };
    if members.get("version").and_then(Value::as_str) != Some("0.5") {
        return attributes.clone();
    }
    let mut changes = vec![("ome".to_string(), None)];
    for (name, mut value) in members {
        if name == "version" || attributes.get(&name).is_some() {
            continue;
        }
        state_version(&name, &mut value);
        changes.push((name, Some(value.to_string())));
    }
    attributes.edited(&changes)
}

/// Adds the version to an attribute of OME-Zarr 0.4 that must state it.
fn state_version(name: &str, value: &mut Value) {
    let stated = match (name, value) {
        ("multiscales", Value::Array(images)) => images.iter_mut().collect(),
        ("plate" | "well" | "image-label" | "omero", value) => vec![value],
        _ => Vec::new(),
    };
    for member in stated {
        if let Value::Object(members) = member {
            members.entry("version").or_insert_with(|| json!("0.4"));
        }
    }
}

fn group_document(
    attributes: &Attributes,
    document: &str,
    below: Option<&[NodeDocument]>,
) -> String {
    let described = json!({ "zarr_format": 2 });
    match document {
        ZATTRS => attributes_text(&ome_4(attributes)),
        ZMETADATA => {
            let mut members = format!("    \"{ZGROUP}\": {described}");
            let own = member_text(&attributes_text(&ome_4(attributes)));
            let _ = write!(members, ",\n    \"{ZATTRS}\": {own}");
            for copy in below.unwrap_or_default() {
                let key = Value::from(format!("{}/{}", copy.node, copy.name));
                let _ = write!(members, ",\n    {key}: {}", member_text(&copy.text));
            }
            format!(
                "{{\n  \"zarr_consolidated_format\": 1,\n  \"metadata\": {{\n{members}\n  }}\n}}\n"
            )
        }
        _ => text_of(&described),
    }
}
