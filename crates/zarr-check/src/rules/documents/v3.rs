//! Rules of the Zarr v3 specification for `zarr.json`.

use serde_json::{Map, Value};

use super::rules::{DocumentRules, Members, Verdict, left_out_by, optional, rule};
use super::values;
use super::values::{ElementKind, FLOAT_WORDS, JSON_OF_R, demand, element_kind, lengths};

use crate::spec::Spec;

pub(crate) static ARRAY: DocumentRules = DocumentRules {
    section: Spec::V3.section("Array metadata"),
    members: &[
        rule("zarr_format", format),
        rule("node_type", values::anything),
        rule("shape", values::shape),
        rule("data_type", data_type).in_section(Spec::V3.section("Data types")),
        rule("chunk_grid", chunk_grid).in_section(Spec::V3.section("Chunk grids")),
        rule("chunk_key_encoding", chunk_key_encoding),
        rule("fill_value", fill_value),
        left_out_by("GDAL", "codecs", codecs).in_section(Spec::V3.section("Codecs")),
        optional("attributes", values::object),
        optional("dimension_names", dimension_names),
        optional("storage_transformers", storage_transformers)
            .in_section(Spec::V3.section("Storage transformers")),
    ],
    others: unknown,
    others_section: Some(Spec::V3.section("must_understand")),
};

pub(crate) static GROUP: DocumentRules = DocumentRules {
    section: Spec::V3.section("Group metadata"),
    members: &[
        rule("zarr_format", format),
        rule("node_type", values::anything),
        optional("attributes", values::object),
        optional("consolidated_metadata", consolidated)
            .in_section(Spec::V3.section("Additional fields")),
    ],
    others: unknown,
    others_section: Some(Spec::V3.section("must_understand")),
};

/// The rules for a `zarr.json` whose `node_type` is neither array nor group.
pub(crate) static OTHER: DocumentRules = DocumentRules {
    section: Spec::V3.section("Array metadata"),
    members: &[rule("zarr_format", format), rule("node_type", node_type)],
    others: |_, _| Verdict::Holds,
    others_section: Some(Spec::V3.section("must_understand")),
};

fn format(value: &Value, _: &Members) -> Verdict {
    values::format(value, 3)
}

fn node_type(value: &Value, _: &Members) -> Verdict {
    let is_known = matches!(value.as_str(), Some("array" | "group"));
    demand(is_known, "\"array\" or \"group\"")
}

fn unknown(name: &str, value: &Value) -> Verdict {
    let expected = "without \"must_understand\": false, readers must reject it";
    if name == "extensions" && is_empty(value) {
        return Verdict::Habit(expected.to_string(), "a writer of the drafts");
    }
    let is_optional = value.get("must_understand") == Some(&Value::Bool(false));
    demand(is_optional, expected)
}

/// Whether a JSON value is an empty list, or an empty object, which R writes for an empty list.
fn is_empty(value: &Value) -> bool {
    let is_list = value.as_array().is_some_and(Vec::is_empty);
    is_list || value.as_object().is_some_and(Map::is_empty)
}

/// Accepts an extension definition of Zarr v3: a name, or an object with a name and an optional configuration.
fn extension(value: &Value) -> Verdict {
    let has_name = value.is_string() || value.get("name").is_some_and(Value::is_string);
    let configuration = value.get("configuration");
    let is_object = configuration.is_none_or(Value::is_object);
    demand(
        has_name && is_object,
        "a name, or an object with \"name\" and optionally the object \"configuration\"",
    )
}

fn name_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("name")?.as_str())
}

fn data_type(value: &Value, _: &Members) -> Verdict {
    if value.as_str() == Some("complex32") {
        return Verdict::Habit("complex_float16".to_string(), "GDAL");
    }
    let bits = value.as_str().and_then(|name| name.strip_prefix('r'));
    match bits.and_then(|bits| bits.parse::<u64>().ok()) {
        Some(bits) => demand(
            bits > 0 && bits.is_multiple_of(8),
            "r and a multiple of 8 bits, such as r16",
        ),
        None => extension(value),
    }
}

fn chunk_grid(value: &Value, members: &Members) -> Verdict {
    match name_of(value) {
        Some("regular") => {
            let chunk = value
                .get("configuration")
                .and_then(|members| members.get("chunk_shape"));
            match values::chunk_lengths(chunk, members.get("shape")) {
                Verdict::Fails(expected) => {
                    Verdict::Fails(format!("a grid whose chunk_shape is {expected}"))
                }
                verdict => verdict,
            }
        }
        _ => extension(value),
    }
}

fn chunk_key_encoding(value: &Value, _: &Members) -> Verdict {
    let separator = value
        .get("configuration")
        .and_then(|members| members.get("separator"));
    match (name_of(value), separator) {
        (Some("default" | "v2"), Some(separator)) => {
            let is_known = matches!(separator.as_str(), Some("." | "/"));
            demand(is_known, "an encoding with the separator \".\" or \"/\"")
        }
        _ => extension(value),
    }
}

fn codecs(value: &Value, members: &Members) -> Verdict {
    let Some(list) = value.as_array() else {
        return Verdict::Fails("a list of codecs".to_string());
    };
    if list.is_empty() {
        return Verdict::Habit(
            "a list with an array-to-bytes codec".to_string(),
            "zarrita.js",
        );
    }
    if let Some(codec) = list
        .iter()
        .find(|codec| !matches!(extension(codec), Verdict::Holds))
    {
        return Verdict::Fails(format!(
            "a list of codecs, each with a name, which {codec} does not have"
        ));
    }
    let rank = members
        .get("shape")
        .and_then(lengths)
        .map(|shape| shape.len());
    let other_codecs = [
        "transpose",
        "bitround",
        "cast_value",
        "scale_offset",
        "reshape",
        "blosc",
        "crc32c",
        "gzip",
        "zstd",
    ];
    let is_serializer = |codec| !name_of(codec).is_some_and(|name| other_codecs.contains(&name));
    let mut verdicts = list.iter().map(|codec| codec_verdict(codec, rank));
    let odd = verdicts.find(|verdict| !matches!(verdict, Verdict::Holds));
    if !list.iter().any(is_serializer) && !matches!(odd, Some(Verdict::Fails(_))) {
        let expected = "a list with an array-to-bytes codec, such as \"bytes\"";
        return Verdict::Habit(expected.to_string(), "GDAL before 3.12");
    }
    let data_type = members.get("data_type").and_then(Value::as_str);
    let needs_order = needs_byte_order(list, has_byte_order(data_type.unwrap_or_default()));
    odd.unwrap_or(if needs_order {
        let expected =
            "a list in which \"bytes\" has the endian \"little\" or \"big\"; readers assume little";
        Verdict::Tolerated(expected.to_string())
    } else {
        Verdict::Holds
    })
}

/// Whether elements of a data type have a byte order, which is false for unknown types.
fn has_byte_order(data_type: &str) -> bool {
    match element_kind(data_type) {
        Some(ElementKind::Int(bits) | ElementKind::UInt(bits) | ElementKind::Float(bits)) => {
            bits > 8
        }
        Some(ElementKind::Complex(_)) => true,
        Some(ElementKind::Bool) | None => false,
    }
}

/// Whether a codec `bytes`, also one inside a shard, lacks the byte order that its elements need.
fn needs_byte_order(codecs: &[Value], of_elements: bool) -> bool {
    codecs.iter().any(|codec| {
        let configuration = codec.get("configuration");
        let member = |name: &str| configuration.and_then(|members| members.get(name));
        let inner = |name: &str| member(name).and_then(Value::as_array);
        match name_of(codec) {
            Some("bytes") => of_elements && member("endian").is_none_or(Value::is_null),
            Some("sharding_indexed") => {
                inner("codecs").is_some_and(|codecs| needs_byte_order(codecs, of_elements))
                    || inner("index_codecs").is_some_and(|codecs| needs_byte_order(codecs, true))
            }
            _ => false,
        }
    })
}

/// Checks the configuration of a codec.
fn codec_verdict(codec: &Value, rank: Option<usize>) -> Verdict {
    let permutation = "a list in which the order of transpose is a permutation of the dimensions";
    let configuration = codec.get("configuration");
    let member = |name: &str| configuration.and_then(|members| members.get(name));
    match name_of(codec) {
        Some("endian") => {
            let expected = "a list with the codec \"bytes\" in place of \"endian\"".to_string();
            Verdict::Habit(expected, "zarrita of 2023")
        }
        Some("transpose") => match member("order") {
            Some(Value::String(_)) => {
                let writers = "zarrita of 2023 or GDAL before 3.12";
                Verdict::Habit(permutation.to_string(), writers)
            }
            order => demand(is_permutation(order, rank), permutation),
        },
        Some("bytes") => match member("endian") {
            None | Some(Value::Null) => Verdict::Holds,
            Some(endian) => demand(
                matches!(endian.as_str(), Some("little" | "big")),
                "a list in which \"bytes\" has the endian \"little\" or \"big\"",
            ),
        },
        Some("zstd") => match member("level") {
            None => Verdict::Holds,
            stated => level(stated, -131_072..=22, "zstd"),
        },
        Some("gzip") => level(member("level"), 0..=9, "gzip"),
        Some("blosc") => blosc(&member),
        _ => Verdict::Holds,
    }
}

fn blosc<'a>(member: &dyn Fn(&str) -> Option<&'a Value>) -> Verdict {
    let shuffle = member("shuffle");
    let is_mode =
        |mode: &Value| matches!(mode.as_str(), Some("noshuffle" | "shuffle" | "bitshuffle"));
    if shuffle.is_some_and(|mode| !is_mode(mode)) {
        return Verdict::Fails(
            "a list in which blosc has the shuffle \"noshuffle\", \"shuffle\" or \"bitshuffle\""
                .to_string(),
        );
    }
    let size = member("typesize");
    if size.is_some_and(|size| size.as_u64().is_none_or(|size| size == 0)) {
        return Verdict::Fails("a list in which blosc has a typesize above 0".to_string());
    }
    level(member("clevel"), 0..=9, "blosc")
}

fn level(stated: Option<&Value>, range: std::ops::RangeInclusive<i64>, codec: &str) -> Verdict {
    let expected = format!(
        "a list in which {codec} has a level from {} to {}",
        range.start(),
        range.end()
    );
    match stated {
        None => Verdict::Habit(expected, "tensorstore"),
        Some(level) => demand(
            level.as_i64().is_some_and(|level| range.contains(&level)),
            &expected,
        ),
    }
}

/// Whether a JSON list is a permutation of the numbers 0..rank.
fn is_permutation(order: Option<&Value>, rank: Option<usize>) -> bool {
    let Some(order) = order.and_then(lengths) else {
        return false;
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let is_whole = sorted.iter().copied().eq(0..sorted.len() as u64);
    is_whole && rank.is_none_or(|rank| rank == order.len())
}

fn fill_value(value: &Value, members: &Members) -> Verdict {
    if value.is_null() {
        return Verdict::Habit("a value of the data type".to_string(), "zarrita.js or GDAL");
    }
    let name = members
        .get("data_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match (element_kind(name), name) {
        // A name in numpy's spelling, such as `<f4`, is no type of Zarr v3. It must belong to an extension, whose fill
        // values are unknown.
        (Some(kind), _) if name.starts_with(|c: char| c.is_ascii_lowercase()) => {
            values::fill_value(kind, value, &FLOAT_WORDS)
        }
        (_, "string") if value.is_number() => Verdict::Habit("a string".to_string(), "GDAL 3.13"),
        (_, "string") => demand(value.is_string(), "a string"),
        _ => Verdict::Holds,
    }
}

fn dimension_names(value: &Value, members: &Members) -> Verdict {
    let Some(names) = value.as_array() else {
        let expected = "a list of names and nulls".to_string();
        return match value {
            Value::Null => Verdict::Habit(expected, "zarrita"),
            Value::String(_) => Verdict::Habit(expected, JSON_OF_R),
            _ => Verdict::Fails(expected),
        };
    };
    if !names.iter().all(|name| name.is_string() || name.is_null()) {
        return Verdict::Fails("a list of names and nulls".to_string());
    }
    let rank = members
        .get("shape")
        .and_then(lengths)
        .map(|shape| shape.len());
    if rank.is_some_and(|rank| rank != names.len()) {
        return Verdict::Fails("a list of one name per dimension".to_string());
    }
    let mut stated: Vec<&str> = names
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !name.is_empty())
        .collect();
    let count = stated.len();
    stated.sort_unstable();
    stated.dedup();
    if stated.len() < count {
        return Verdict::Discouraged("a list of different names".to_string());
    }
    Verdict::Holds
}

fn storage_transformers(value: &Value, _: &Members) -> Verdict {
    match value.as_array() {
        Some(list) => list
            .iter()
            .map(extension)
            .find(|verdict| !matches!(verdict, Verdict::Holds))
            .unwrap_or(Verdict::Holds),
        None if value.is_null() => Verdict::Habit("a list".to_string(), "an early writer"),
        None if is_empty(value) => Verdict::Habit("a list".to_string(), JSON_OF_R),
        None => Verdict::Fails("a list".to_string()),
    }
}

/// Accepts consolidated metadata with `must_understand: false`. The copies of documents in them are checked elsewhere.
fn consolidated(value: &Value, _: &Members) -> Verdict {
    let expected = "an object with \"must_understand\": false".to_string();
    match value.get("must_understand") {
        Some(Value::Bool(false)) => Verdict::Holds,
        _ if value.is_null() => Verdict::Habit(expected, "zarr-python"),
        _ => Verdict::Fails(expected),
    }
}
