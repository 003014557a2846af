//! Rules of the Zarr v3 drafts for entry points, arrays and groups.

use serde_json::Value;

use super::rules::{DocumentRules, Members, Verdict, left_out_by, optional, rule};
use super::values;
use super::values::{demand, element_kind, list, object, separator};

use crate::spec::Spec;
use zarr_format::dialect::draft::DocumentRole;

/// The reason in findings about JSON members that a Zarr v3 draft does not define.
const UNDEFINED: &str = "the draft does not define it";
const RESERVED: &str = "the draft reserves all names that it does not define";

/// Returns the rules for an array or group document of a Zarr v3 draft, or `None` for other dialects.
pub(crate) fn rules_of(dialect: &str, role: DocumentRole) -> Option<&'static DocumentRules> {
    Some(match (dialect, role) {
        ("draft2019", DocumentRole::Array) => &OF_2019,
        ("draft2019", DocumentRole::Group) => &GROUPS_2019,
        ("draft2020", DocumentRole::Array) => &OF_2020,
        ("draft2020", DocumentRole::Group) => &GROUPS_2020,
        ("draft2022", DocumentRole::Array) => &OF_2022,
        ("draft2022", DocumentRole::Group) => &GROUPS_2022,
        _ => return None,
    })
}

/// Returns the rules for the entry point document of a Zarr v3 draft, or `None` if the dialect has none.
pub(crate) fn entry_rules_of(dialect: &str) -> Option<&'static DocumentRules> {
    match dialect {
        "draft2020" => Some(&ENTRIES_2020),
        "draft2022" => Some(&ENTRIES_2022),
        _ => None,
    }
}

static OF_2019: DocumentRules = DocumentRules {
    section: Spec::Draft2019.section("Array metadata"),
    members: &[
        rule("zarr_format", uri),
        rule("shape", values::shape),
        rule("data_type", data_type),
        rule("chunk_grid", chunk_grid),
        rule("chunk_memory_layout", layout),
        rule("chunk_codecs", codecs_2019),
        rule("fill_value", fill_value),
        rule("extensions", extensions),
        rule("attributes", object),
    ],
    others: reserved,
    others_section: None,
};

static GROUPS_2019: DocumentRules = DocumentRules {
    section: Spec::Draft2019.section("Group metadata"),
    members: &[
        rule("zarr_format", uri),
        rule("extensions", extensions),
        rule("attributes", object),
    ],
    others: reserved,
    others_section: None,
};

static ENTRIES_2020: DocumentRules = DocumentRules {
    section: Spec::Draft2020.section("Entry point metadata"),
    members: &[
        rule("zarr_format", uri),
        rule("metadata_encoding", encoding_2020),
        left_out_by("zarrita of 2020", "metadata_key_suffix", suffix),
        rule("extensions", extensions),
    ],
    others: |_, _| Verdict::Discouraged(UNDEFINED.to_string()),
    others_section: None,
};

static OF_2020: DocumentRules = DocumentRules {
    section: Spec::Draft2020.section("Array metadata"),
    members: &[
        rule("shape", values::shape),
        rule("data_type", data_type),
        rule("chunk_grid", chunk_grid),
        left_out_by("xtensor-zarr", "chunk_memory_layout", layout),
        rule("fill_value", fill_value),
        left_out_by("acquire-zarr", "extensions", extensions),
        rule("attributes", object),
        optional("compressor", compressor),
    ],
    others: |name, _| match name {
        "dimension_separator" | "storage_transformers" => Verdict::Habit(
            UNDEFINED.to_string(),
            "zarr-python 2 with its experimental v3",
        ),
        _ => Verdict::Discouraged(RESERVED.to_string()),
    },
    others_section: None,
};

static GROUPS_2020: DocumentRules = DocumentRules {
    section: Spec::Draft2020.section("Group metadata"),
    members: &[rule("attributes", object)],
    others: |name, _| match name {
        "extensions" => Verdict::Habit(
            "a group has only attributes".to_string(),
            "zarrita or GDAL before 3.8",
        ),
        _ => Verdict::Discouraged("the draft reserves all names but attributes".to_string()),
    },
    others_section: None,
};

static ENTRIES_2022: DocumentRules = DocumentRules {
    section: Spec::Draft2022.section("Entry point metadata"),
    members: &[
        rule("zarr_format", uri),
        rule("metadata_encoding", encoding_2022),
        rule("extensions", extensions),
    ],
    others: reserved,
    others_section: None,
};

static OF_2022: DocumentRules = DocumentRules {
    section: Spec::Draft2022.section("Array metadata"),
    members: &[
        rule("shape", values::shape),
        rule("data_type", data_type),
        rule("chunk_grid", chunk_grid),
        rule("chunk_memory_layout", layout),
        rule("fill_value", fill_value_2022),
        rule("extensions", extensions),
        rule("attributes", object),
        optional("codecs", codecs_2022),
        optional("storage_transformers", list),
    ],
    others: reserved,
    others_section: None,
};

static GROUPS_2022: DocumentRules = DocumentRules {
    section: Spec::Draft2022.section("Group metadata"),
    members: &[
        rule("attributes", object),
        optional("extensions", extensions),
    ],
    others: reserved,
    others_section: None,
};

fn reserved(_: &str, _: &Value) -> Verdict {
    Verdict::Fails(RESERVED.to_string())
}

fn is_uri(value: Option<&Value>) -> bool {
    value
        .and_then(Value::as_str)
        .is_some_and(|text| text.contains("://"))
}

/// Accepts the URI of the core specification, version 3 or 3.x, as `zarr_format`.
fn uri(value: &Value, _: &Members) -> Verdict {
    let version = value.as_str().unwrap_or_default().trim_end_matches('/');
    let version = version.rsplit('/').next().unwrap_or_default();
    let is_three = version == "3" || version.starts_with("3.");
    demand(
        is_uri(Some(value)) && is_three,
        "the URI of the core specification, version 3",
    )
}

fn encoding_2020(value: &Value, members: &Members) -> Verdict {
    let expected = "the URI of the core specification".to_string();
    match value.as_str() {
        Some("application/json") => Verdict::Habit(expected, "zarrita of July 2020"),
        _ => uri(value, members),
    }
}

fn encoding_2022(value: &Value, _: &Members) -> Verdict {
    let is_json = value.get("type").and_then(Value::as_str) == Some("json");
    let suffix = value.get("metadata_key_suffix");
    let has_suffix = suffix.is_some_and(Value::is_string);
    demand(
        is_json && has_suffix,
        "an object of type json with \"metadata_key_suffix\"",
    )
}

fn suffix(value: &Value, _: &Members) -> Verdict {
    let is_name = |text: &str| !text.contains('/');
    demand(
        value.as_str().is_some_and(is_name),
        "a string without a slash",
    )
}

fn extensions(value: &Value, _: &Members) -> Verdict {
    let is_extension = |item: &Value| {
        is_uri(item.get("extension")) && item.get("must_understand").is_some_and(Value::is_boolean)
    };
    let holds = value
        .as_array()
        .is_some_and(|items| items.iter().all(is_extension));
    demand(
        holds,
        "a list of objects with a URI \"extension\" and \"must_understand\"",
    )
}

/// Accepts a data type: a name, or an object that describes a type of an extension.
fn data_type(value: &Value, _: &Members) -> Verdict {
    let expected = "a name, or an object with \"extension\" and \"type\"";
    match value {
        Value::String(_) => Verdict::Holds,
        Value::Object(members)
            if members.contains_key("extension") && members.contains_key("type") =>
        {
            if is_uri(members.get("extension")) {
                Verdict::Holds
            } else {
                Verdict::Habit(
                    "a URI of the extension".to_string(),
                    "zarr-python 2 with its experimental v3",
                )
            }
        }
        _ => Verdict::Fails(expected.to_string()),
    }
}

fn chunk_grid(value: &Value, members: &Members) -> Verdict {
    if is_uri(value.get("extension")) && value.get("type").is_some() {
        return Verdict::Holds;
    }
    if value.get("type").and_then(Value::as_str) != Some("regular") {
        return Verdict::Fails(
            "an object of type regular, or of an extension with its URI".to_string(),
        );
    }
    if let Some(stated) = value.get("separator")
        && let Verdict::Fails(expected) = separator(stated, members)
    {
        return Verdict::Fails(format!("a grid with the separator {expected}"));
    }
    match values::chunk_lengths(value.get("chunk_shape"), members.get("shape")) {
        Verdict::Fails(expected) => {
            Verdict::Fails(format!("a grid whose chunk_shape is {expected}"))
        }
        verdict => verdict,
    }
}

fn layout(value: &Value, _: &Members) -> Verdict {
    let is_extension = is_uri(value.get("extension")) && value.get("type").is_some();
    let is_known = matches!(value.as_str(), Some("C" | "F"));
    demand(
        is_known || is_extension,
        "\"C\" or \"F\", or an extension with its URI",
    )
}

fn codecs_2019(value: &Value, _: &Members) -> Verdict {
    codec_uris(value, "codec")
}

fn codecs_2022(value: &Value, _: &Members) -> Verdict {
    codec_uris(value, "type")
}

/// Accepts a list of codecs, which are objects with a URI in `member`.
fn codec_uris(value: &Value, member: &str) -> Verdict {
    let has_uri = |codec: &Value| is_uri(codec.get(member));
    let holds = value
        .as_array()
        .is_some_and(|codecs| codecs.iter().all(has_uri));
    demand(
        holds,
        &format!("a list of objects, each with a URI \"{member}\""),
    )
}

fn compressor(value: &Value, _: &Members) -> Verdict {
    let expected = || "an object with a URI \"codec\"".to_string();
    let configuration = value.get("configuration");
    let shuffle = configuration.and_then(|members| members.get("shuffle"));
    let is_of_gdal = matches!(
        shuffle.and_then(Value::as_str),
        Some("NONE" | "BYTE" | "BIT")
    );
    match value.get("codec") {
        Some(codec) if is_uri(Some(codec)) && is_of_gdal => Verdict::Habit(
            "an object with a number as the shuffle of blosc".to_string(),
            "GDAL",
        ),
        None if value.is_null() => Verdict::Habit(expected(), "zarrita, acquire-zarr and others"),
        Some(codec) if is_uri(Some(codec)) => Verdict::Holds,
        Some(Value::String(_)) => Verdict::Habit(expected(), "sci-rs"),
        _ => Verdict::Fails(expected()),
    }
}

/// Accepts a fill value: a value of the array's data type, or null.
fn fill_value(value: &Value, members: &Members) -> Verdict {
    let name = members
        .get("data_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_bits = value
        .as_str()
        .is_some_and(|text| text.starts_with("0x") || text.starts_with("0b"));
    let float_words = ["NaN", "+Infinity", "-Infinity", "Infinity", "NaT"];
    match element_kind(name) {
        Some(kind) if !value.is_null() && !is_bits => values::fill_value(kind, value, &float_words),
        _ => Verdict::Holds,
    }
}

/// Accepts a fill value of the array's data type. The draft does not permit null, but one of its examples uses it.
fn fill_value_2022(value: &Value, members: &Members) -> Verdict {
    if value.is_null() {
        return Verdict::Habit(
            "a value of the data type".to_string(),
            "an example in the draft",
        );
    }
    fill_value(value, members)
}
