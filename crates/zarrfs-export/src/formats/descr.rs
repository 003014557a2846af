//! Formats numpy's name of a data type for a `.npy` header.
//!
//! Always little-endian, since decoded elements are. Numbers that numpy lacks get a type of the same size that can
//! show their bytes; elements without a fixed length have no name.

use zarr_format::model::{DataType, Field};

/// Returns the value of `descr` as a Python literal, with quotes; `None` if numpy has no such type.
pub fn of(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Struct(fields) => {
            let fields: Option<Vec<String>> = fields.iter().map(field).collect();
            Some(format!("[{}]", fields?.join(", ")))
        }
        simple => Some(format!("'{}'", typestr(simple)?)),
    }
}

fn typestr(data_type: &DataType) -> Option<String> {
    let order = if data_type.word() == 1 { '|' } else { '<' };
    Some(match data_type {
        DataType::Bool => "|b1".to_string(),
        DataType::Int(width) => format!("{order}i{width}"),
        DataType::UInt(width) => format!("{order}u{width}"),
        DataType::Float(width) => format!("{order}f{width}"),
        DataType::Complex(width) => format!("{order}c{width}"),
        DataType::Small(number) => number.npy.to_string(),
        DataType::Raw(width) => format!("|V{width}"),
        DataType::DateTime(unit) if unit.name == "generic" => "<M8".to_string(),
        DataType::TimeDelta(unit) if unit.name == "generic" => "<m8".to_string(),
        DataType::DateTime(unit) => format!("<M8[{unit}]"),
        DataType::TimeDelta(unit) => format!("<m8[{unit}]"),
        DataType::FixedBytes(width) => format!("|S{width}"),
        DataType::FixedText(length) => format!("<U{length}"),
        DataType::Struct(_)
        | DataType::Text
        | DataType::Bytes
        | DataType::List(_)
        | DataType::Object
        | DataType::Unknown(_) => return None,
    })
}

fn field(field: &Field) -> Option<String> {
    let name = quoted(&field.name);
    let descr = of(&field.data_type)?;
    if field.shape.is_empty() {
        return Some(format!("({name}, {descr})"));
    }
    Some(format!("({name}, {descr}, {})", tuple(&field.shape)))
}

/// Formats lengths as a Python tuple.
pub fn tuple(lengths: &[u64]) -> String {
    let names: Vec<String> = lengths.iter().map(u64::to_string).collect();
    let comma = if lengths.len() == 1 { "," } else { "" };
    format!("({}{comma})", names.join(", "))
}

/// Formats text as a Python string literal.
fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for letter in text.chars() {
        match letter {
            '\\' | '\'' => literal.extend(['\\', letter]),
            control if control.is_control() => {
                literal.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use zarr_format::dialect::typestr;

    #[test]
    fn types_are_spelt_as_numpy_spells_them() {
        for (dtype, descr) in [
            (json!(">f8"), "'<f8'"),
            (json!("|V3"), "'|V3'"),
            (json!(">U2"), "'<U2'"),
            (json!("<M8[10us]"), "'<M8[10us]'"),
            (json!("<m8"), "'<m8'"),
            (
                json!([
                    ["a'b", ">i2"],
                    ["z", "<f4", [2, 2]],
                    ["n", [["x", "|u1"]], [3]]
                ]),
                "[('a\\'b', '<i2'), ('z', '<f4', (2, 2)), ('n', [('x', '|u1')], (3,))]",
            ),
        ] {
            let typed = typestr::parse(&dtype).unwrap();
            assert_eq!(of(&typed.data_type).as_deref(), Some(descr));
        }
        assert_eq!(of(&DataType::Text), None);
    }
}
