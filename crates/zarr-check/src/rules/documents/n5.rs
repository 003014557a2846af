//! Rules of the N5 specification for `attributes.json`.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::rules::{DocumentRules, Members, Verdict, one_of, optional, rule};
use super::values;
use super::values::demand;
use crate::finding::{N5, SpecSection, section};
use zarr_format::model::parse_index;

const DATASETS: SpecSection = section(N5, "Datasets");
const CONTAINER: SpecSection = section(N5, "Containers");

/// Major versions that writers use; readers refuse versions above their own.
const KNOWN_VERSIONS: RangeInclusive<u64> = 1..=4;

/// A dataset; all other members are user attributes.
pub(crate) static DATASET: DocumentRules = DocumentRules {
    members: &[
        rule("dimensions", DATASETS, values::shape),
        rule("blockSize", DATASETS, block_size),
        rule("dataType", DATASETS, data_type),
        one_of("compression", "compressionType", DATASETS, compression),
        optional("compressionType", DATASETS, compression),
    ],
    others: |_, _| Verdict::Holds,
    others_section: DATASETS,
};

/// A group; the root of a container has a version.
pub(crate) static GROUP: DocumentRules = DocumentRules {
    members: &[optional("n5", CONTAINER, version)],
    others: |_, _| Verdict::Holds,
    others_section: CONTAINER,
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
        Some("object" | "string") => {
            Verdict::Habit("the name of a number type".to_string(), "n5 for Java")
        }
        _ => Verdict::Fails("the name of a number type, such as uint16".to_string()),
    }
}

fn compression(value: &Value, _: &Members) -> Verdict {
    let has_type = value.get("type").is_some_and(Value::is_string);
    if value.is_string() {
        return Verdict::Habit("an object with a type".to_string(), "n5 before version 2");
    }
    demand(has_type, "an object with a type")
}

fn version(value: &Value, _: &Members) -> Verdict {
    let major = value.as_str().and_then(|text| text.split('.').next());
    let major = major.and_then(parse_index);
    demand(
        major.is_some_and(|major| KNOWN_VERSIONS.contains(&major)),
        "a version from 1 to 4, which are known, such as \"2.0.0\"",
    )
}
