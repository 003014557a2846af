//! Reads and writes data types of v3: names, and extensions with a configuration.
//!
//! Registered extensions and those of zarr-python are read. Data types are written so that zarr-python can read them:
//! it has no `r*`, and reads structures only by their older name.

use serde_json::{Map, Value, json};

use crate::dialect::typestr;
use crate::error::{Error, Result};
use crate::model::{DataType, Field, MAX_ELEMENT, TimeUnit};

/// Reads `data_type` (core specification, "data_type", and the specifications of the extensions). An unknown type is
/// kept verbatim.
pub(crate) fn parse(value: &Value) -> Result<DataType> {
    nested(value, 0)
}

fn nested(value: &Value, depth: usize) -> Result<DataType> {
    let wrong = || Error::corrupt("data_type", format!("expected a name, found {value}"));
    let name = value.as_str().or_else(|| value.get("name")?.as_str());
    let name = name.ok_or_else(wrong)?;
    let none = Map::new();
    let members = match value.get("configuration") {
        None | Some(Value::Null) => &none,
        Some(configuration) => configuration.as_object().ok_or_else(wrong)?,
    };
    let found = match name {
        "numpy.datetime64" => time_unit(members).map(DataType::DateTime),
        "numpy.timedelta64" => time_unit(members).map(DataType::TimeDelta),
        "null_terminated_bytes" => length(members).map(DataType::FixedBytes),
        "raw_bytes" => length(members).map(DataType::Raw),
        "fixed_length_utf32" => length(members)
            .filter(|bytes| bytes.is_multiple_of(4))
            .map(|bytes| DataType::FixedText(bytes / 4)),
        "struct" | "structured" => return structured(members, depth),
        name if members.is_empty() => Some(DataType::from_v3(name)),
        _ => Some(DataType::Unknown(value.to_string())),
    };
    found.ok_or_else(|| {
        Error::corrupt(
            "data_type",
            format!("invalid configuration of {name}: {value}"),
        )
    })
}

fn length(members: &Map<String, Value>) -> Option<usize> {
    let bytes = usize::try_from(members.get("length_bytes")?.as_u64()?).ok()?;
    (1..=MAX_ELEMENT).contains(&bytes).then_some(bytes)
}

fn time_unit(members: &Map<String, Value>) -> Option<TimeUnit> {
    let scale = match members.get("scale_factor") {
        None => 1,
        Some(scale) => u32::try_from(scale.as_u64()?)
            .ok()
            .filter(|&scale| scale < 1 << 31)?,
    };
    typestr::unit(members.get("unit")?.as_str()?, scale)
}

/// Reads the fields of a structure, which are objects or, in an older form, pairs.
fn structured(members: &Map<String, Value>, depth: usize) -> Result<DataType> {
    let wrong = || {
        Error::corrupt(
            "data_type",
            "struct: expected fields with a name and a data type",
        )
    };
    let list = members
        .get("fields")
        .and_then(Value::as_array)
        .ok_or_else(wrong)?;
    if list.is_empty() || depth >= typestr::MAX_DEPTH {
        return Err(wrong());
    }
    let field = |entry: &Value| {
        let (name, data_type) = match entry {
            Value::Array(pair) => (pair.first(), pair.get(1)),
            entry => (entry.get("name"), entry.get("data_type")),
        };
        Ok(Field {
            name: name.and_then(Value::as_str).ok_or_else(wrong)?.to_string(),
            data_type: nested(data_type.ok_or_else(wrong)?, depth + 1)?,
            shape: Vec::new(),
        })
    };
    let fields = list.iter().map(field).collect::<Result<Vec<Field>>>()?;
    let data_type = DataType::Struct(fields);
    match data_type.size() {
        Some(size) if size <= MAX_ELEMENT => Ok(data_type),
        _ => Ok(DataType::Unknown(
            json!({ "name": "struct", "configuration": members }).to_string(),
        )),
    }
}

pub(crate) fn render(data_type: &DataType) -> Value {
    let sized = |name: &str, bytes: usize| json!({ "name": name, "configuration": { "length_bytes": bytes } });
    let timed = |name: &str, unit: &TimeUnit| {
        let configuration = json!({ "unit": unit.name, "scale_factor": unit.scale });
        json!({ "name": name, "configuration": configuration })
    };
    match data_type {
        DataType::Raw(width) => sized("raw_bytes", *width),
        DataType::FixedBytes(width) => sized("null_terminated_bytes", *width),
        DataType::FixedText(length) => sized("fixed_length_utf32", length.saturating_mul(4)),
        DataType::DateTime(unit) => timed("numpy.datetime64", unit),
        DataType::TimeDelta(unit) => timed("numpy.timedelta64", unit),
        DataType::Struct(fields) => {
            let fields: Vec<Value> = fields.iter().map(rendered_field).collect();
            json!({ "name": "structured", "configuration": { "fields": fields } })
        }
        DataType::Object => json!("string"),
        DataType::List(_) => json!("bytes"),
        DataType::Unknown(name) => match serde_json::from_str(name) {
            Ok(value @ Value::Object(_)) => value,
            _ => json!(name),
        },
        known => json!(known.to_string()),
    }
}

/// Formats a field of a structure. v3 has no type for a subarray, so it is written as raw bytes.
fn rendered_field(field: &Field) -> Value {
    if field.shape.is_empty() {
        return json!([field.name, render(&field.data_type)]);
    }
    let element = field.data_type.size().unwrap_or(0);
    let bytes = element.saturating_mul(field.count().unwrap_or(0));
    json!([field.name, render(&DataType::Raw(bytes))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_types_are_rendered_as_they_were_read() {
        for data_type in [
            json!("float32"),
            json!("string"),
            json!("bfloat16"),
            json!({ "name": "numpy.datetime64", "configuration": { "unit": "us", "scale_factor": 10 } }),
            json!({ "name": "numpy.timedelta64", "configuration": { "unit": "generic", "scale_factor": 1 } }),
            json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": 48 } }),
            json!({ "name": "raw_bytes", "configuration": { "length_bytes": 3 } }),
            json!({ "name": "structured", "configuration": { "fields": [["x", "float32"]] } }),
            json!({ "name": "optional", "configuration": { "name": "uint8" } }),
        ] {
            assert_eq!(render(&parse(&data_type).unwrap()), data_type);
        }
    }

    #[test]
    fn both_forms_of_a_structure_are_read_alike() {
        let new = json!({ "name": "struct", "configuration": { "fields": [
            { "name": "p", "data_type": { "name": "struct", "configuration": { "fields": [
                { "name": "x", "data_type": "float32" }] } } },
            { "name": "v", "data_type": "int8" }] } });
        let old = json!({ "name": "structured", "configuration": { "fields": [
            ["p", { "name": "structured", "configuration": { "fields": [["x", "float32"]] } }],
            ["v", "int8"]] } });
        let parsed = parse(&new).unwrap();
        assert_eq!(parsed, parse(&old).unwrap());
        assert_eq!(parsed.size(), Some(5));
    }

    #[test]
    fn invalid_data_types_are_refused() {
        for configuration in [
            json!({ "length_bytes": 5 }),
            json!({ "length_bytes": 0 }),
            json!({ "length_bytes": u64::MAX }),
            json!({}),
        ] {
            let value = json!({ "name": "fixed_length_utf32", "configuration": configuration });
            assert!(parse(&value).is_err(), "{value}");
        }
        for value in [
            json!(3),
            json!({ "name": "struct" }),
            json!({ "configuration": {} }),
        ] {
            assert!(parse(&value).is_err(), "{value}");
        }
    }
}
