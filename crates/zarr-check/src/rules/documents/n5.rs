//! Rules of the N5 specification for `attributes.json`.

use serde_json::Value;

use super::rules::{DocumentRules, Members, Verdict, one_of, optional, rule};
use super::values;
use super::values::demand;

use crate::spec::Spec;
use zarr_format::model::parse_index;

/// The rules for the `attributes.json` of an N5 dataset. Members without a rule are attributes of the user.
pub(crate) static DATASET: DocumentRules = DocumentRules {
    section: Spec::N5.section("Datasets"),
    members: &[
        rule("dimensions", values::shape),
        rule("blockSize", block_size),
        rule("dataType", data_type),
        one_of("compression", "compressionType", compression),
        optional("compressionType", compression),
    ],
    others: |_, _| Verdict::Holds,
    others_section: None,
};

/// The rules for the `attributes.json` of an N5 group. The root of a container also has a version.
pub(crate) static GROUP: DocumentRules = DocumentRules {
    section: Spec::N5.section("Containers"),
    members: &[optional("n5", version)],
    others: |_, _| Verdict::Holds,
    others_section: None,
};

fn block_size(value: &Value, members: &Members) -> Verdict {
    values::chunk_lengths(Some(value), members.get("dimensions"))
}

fn data_type(value: &Value, _: &Members) -> Verdict {
    let known = [
        "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32",
        "float64",
    ];
    match value.as_str() {
        Some(name) if known.contains(&name) => Verdict::Holds,
        Some("object" | "string") => Verdict::Habit("a number type".to_string(), "n5 for Java"),
        _ => Verdict::Fails("a number type, such as uint16".to_string()),
    }
}

fn compression(value: &Value, _: &Members) -> Verdict {
    let has_type = value.get("type").is_some_and(Value::is_string);
    if value.is_string() {
        return Verdict::Habit("an object with a type".to_string(), "n5 before version 2");
    }
    demand(has_type, "an object with a type")
}

/// Accepts an N5 version with a major number from 1 to 4. Readers refuse a version above their own.
fn version(value: &Value, _: &Members) -> Verdict {
    let major = value.as_str().and_then(|text| text.split('.').next());
    let major = major.and_then(parse_index);
    demand(
        major.is_some_and(|major| (1..=4).contains(&major)),
        "a version from 1 to 4, such as \"2.0.0\"",
    )
}
