//! Reads N5: nodes with an `attributes.json`, and blocks with a header.
//!
//! The order of axes is N5's, in which the first axis varies fastest: codec `n5_default` transposes each block, as the
//! registry of extensions defines it. A folder whose `attributes.json` does not describe a dataset is a group only
//! inside a container, whose root has a member `n5`; elsewhere the file may belong to another program.

use serde_json::{Map, Value, json};

use crate::dialect::attributes::from_other_members;
use crate::dialect::document::{check_shapes, lengths};
use crate::dialect::typestr::StoredType;
use crate::dialect::{Dialect, Document, DocumentMap, Parsed, attributes, fill, v2};
use crate::error::{Error, Result};
use crate::json_text::{MemberChange, ObjectText};
use crate::key::Key;
use crate::model::document::ATTRIBUTES_JSON;
use crate::model::{Array, Attributes, CodecSpec, DataType, Group, Node};

/// N5 outside a known container: only datasets, and root groups with a member `n5`, are nodes.
pub const DIALECT: Dialect = Dialect {
    name: "n5",
    documents,
    parse,
    edit,
};

/// N5 inside a container: every folder with an `attributes.json` is a node.
pub const WITHIN: Dialect = Dialect {
    parse: parse_within,
    ..DIALECT
};

fn documents(path: &Key) -> Result<Vec<Key>> {
    Ok(vec![path.child(ATTRIBUTES_JSON.as_bytes())?])
}

fn parse(path: &Key, documents: &[Document]) -> Result<Option<Parsed>> {
    let Some(document) = documents.first() else {
        return Ok(None);
    };
    // An `attributes.json` that is not a JSON object may belong to another program.
    let Ok(Some(members)) = document.object_of(is_own) else {
        return Ok(None);
    };
    if is_dataset(&members) {
        return dataset(path, document, &members).map(Some);
    }
    match members.get("n5") {
        Some(Value::String(_)) => group(document).map(Some),
        _ => Ok(None),
    }
}

fn parse_within(path: &Key, documents: &[Document]) -> Result<Option<Parsed>> {
    let Some(document) = documents.first() else {
        return Ok(None);
    };
    match document.object_of(is_own)? {
        None => Ok(None),
        Some(members) if members.contains_key("dimensions") => {
            dataset(path, document, &members).map(Some)
        }
        Some(_) => group(document).map(Some),
    }
}

/// Edits the `attributes.json` of a node, which has user attributes among the members that N5 defines.
fn edit(documents: &[Document], new: &Attributes) -> Result<DocumentMap> {
    check_own(new)?;
    attributes::edit_members(attributes::first_stored(documents)?, |old| {
        Ok(attribute_changes(old, new))
    })
}

/// Whether `attributes.json` describes a dataset and does not belong to another program. The compression may be
/// missing: the node is then a dataset whose blocks cannot be read, not a group with these members as attributes.
fn is_dataset(members: &Map<String, Value>) -> bool {
    let has = |name: &str| members.contains_key(name);
    has("dimensions") && has("blockSize") && has("dataType")
}

fn group(document: &Document) -> Result<Parsed> {
    let attributes = from_other_members(document, |name| name == "n5")?;
    Ok(Node::Group(Group { attributes }).into())
}

fn dataset(path: &Key, document: &Document, members: &Map<String, Value>) -> Result<Parsed> {
    let array = array(path, members).map_err(|error| error.about(&document.key))?;
    let attributes = from_other_members(document, is_own)?;
    Ok(Node::Array(Box::new(array))
        .with_attributes(attributes)
        .into())
}

/// Reads an N5 dataset, except its attributes. N5 has no fill value: blocks that are not stored are zeros.
fn array(path: &Key, members: &Map<String, Value>) -> Result<Array> {
    let shape = lengths(members, "dimensions")?;
    let chunk_shape = lengths(members, "blockSize")?;
    check_shapes(&shape, &chunk_shape)?;
    let data_type = match members.get("dataType").and_then(Value::as_str) {
        Some(name) => DataType::from_v3(name),
        None => return Err(Error::corrupt("dataType", "expected a string")),
    };
    Ok(Array {
        dialect: DIALECT.name,
        fill_value: fill::parse(&data_type, &Value::Null)?,
        codecs: vec![block(members, &data_type, shape.len())?],
        // N5 stores blocks in folders by their indices: `path/3/0/1`.
        keys: v2::key_scheme(path, '/', None),
        dimension_names: Vec::new(),
        undecodable: None,
        attributes: Attributes::default(),
        shape,
        chunk_shape,
        chunk_edges: Vec::new(),
        data_type,
    })
}

/// Builds codec `n5_default` for a dataset: blocks with a header, first axis fastest, big-endian, with one compression.
fn block(members: &Map<String, Value>, data_type: &DataType, rank: usize) -> Result<CodecSpec> {
    let order: Vec<usize> = (0..rank).rev().collect();
    let mut chain = vec![
        CodecSpec::new("transpose", json!({ "order": order })),
        StoredType::new(data_type.clone(), true).bytes_codec(),
    ];
    chain.extend(compression(members, data_type)?);
    let codecs: Vec<Value> = chain.iter().map(CodecSpec::to_json).collect();
    Ok(CodecSpec::new("n5_default", json!({ "codecs": codecs })))
}

/// Reads the compression of a dataset: `compression`, or `compressionType` in old containers.
fn compression(members: &Map<String, Value>, data_type: &DataType) -> Result<Option<CodecSpec>> {
    let (kind, settings) = match (members.get("compression"), members.get("compressionType")) {
        (Some(Value::Object(settings)), _) => (settings.get("type"), settings.clone()),
        (Some(kind @ Value::String(_)), _) | (None, Some(kind)) => (Some(kind), Map::new()),
        _ => (None, Map::new()),
    };
    let kind = kind
        .and_then(Value::as_str)
        .ok_or_else(|| Error::corrupt("compression", "expected an object with a type"))?;
    Ok(match kind {
        "raw" => None,
        "blosc" => Some(blosc(&settings, data_type)),
        kind => Some(general_codec(kind, settings)),
    })
}

/// Returns the codec of a compression that does not depend on the data type.
fn general_codec(kind: &str, settings: Map<String, Value>) -> CodecSpec {
    let level = |name: &str, range: std::ops::RangeInclusive<i64>, usual: i64| {
        let stated = settings.get(name).and_then(Value::as_i64);
        stated
            .filter(|level| range.contains(level))
            .unwrap_or(usual)
    };
    let is_zlib = settings.get("useZlib") == Some(&Value::Bool(true));
    let (name, configuration) = match kind {
        "gzip" if is_zlib => (
            "numcodecs.zlib",
            json!({ "level": level("level", 0..=9, 6) }),
        ),
        "gzip" => ("gzip", json!({ "level": level("level", 0..=9, 6) })),
        "bzip2" => (
            "numcodecs.bz2",
            json!({ "level": level("blockSize", 1..=9, 9) }),
        ),
        "xz" => (
            "numcodecs.lzma",
            json!({ "format": 1, "check": -1, "preset": level("preset", 0..=9, 6), "filters": null }),
        ),
        "zstd" => (
            "zstd",
            json!({ "level": level("level", -131_072..=22, 3), "checksum": false }),
        ),
        // Only `n5.lz4` reads the framing of lz4-java.
        "lz4" => (
            "n5.lz4",
            json!({ "blockSize": level("blockSize", 64..=1 << 25, 1 << 16) }),
        ),
        other => {
            return CodecSpec {
                name: format!("n5.{other}"),
                configuration: settings,
            };
        }
    };
    CodecSpec::new(name, configuration)
}

fn blosc(settings: &Map<String, Value>, data_type: &DataType) -> CodecSpec {
    let shuffle = match settings.get("shuffle").and_then(Value::as_i64) {
        Some(0) => "noshuffle",
        Some(2) => "bitshuffle",
        _ => "shuffle",
    };
    let stated = |name: &str, usual: Value| settings.get(name).cloned().unwrap_or(usual);
    CodecSpec::new(
        "blosc",
        json!({
            "cname": stated("cname", json!("blosclz")),
            "clevel": stated("clevel", json!(6)),
            "shuffle": shuffle,
            "typesize": data_type.size().unwrap_or(1),
            "blocksize": stated("blocksize", json!(0)),
        }),
    )
}

/// Whether N5 defines a member of `attributes.json`, so that it is no user attribute.
fn is_own(name: &str) -> bool {
    matches!(
        name,
        "dimensions" | "blockSize" | "dataType" | "compression" | "compressionType" | "n5"
    )
}

/// Returns the changes to `attributes.json` that make `new` its user attributes. The order of existing attributes does
/// not change.
fn attribute_changes(old: &ObjectText<'_>, new: &Attributes) -> Vec<MemberChange> {
    let new = new.members();
    let is_gone = |name: &str| !is_own(name) && new.iter().all(|(other, _)| other != name);
    let gone = old.members().filter(|(name, _)| is_gone(name));
    let mut changes: Vec<MemberChange> = gone.map(|(name, _)| (name.to_string(), None)).collect();
    let values = new.iter();
    changes.extend(values.map(|(name, value)| (name.clone(), Some(value.to_string()))));
    changes
}

/// Fails with `Invalid` if a user attribute has the name of a member that N5 defines.
fn check_own(attributes: &Attributes) -> Result<()> {
    match attributes.members().iter().find(|(name, _)| is_own(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(
            name,
            "N5 reserves this name; choose another name for the attribute",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: &Dialect, text: &str) -> Result<Option<Node>> {
        let document = Document {
            key: Key::new("a/attributes.json").unwrap(),
            bytes: Some(text.as_bytes().to_vec().into()),
            ..Document::default()
        };
        let parsed = (dialect.parse)(&Key::new("a").unwrap(), &[document])?;
        Ok(parsed.map(|parsed| parsed.node))
    }

    const DATASET: &str = r#"{"dimensions": [10, 20], "blockSize": [4, 5], "dataType": "uint16",
        "compression": {"type": "gzip", "level": -1, "useZlib": false}, "resolution": [1, 2]}"#;

    #[test]
    fn a_dataset_keeps_its_axes_and_transposes_its_blocks() {
        let Ok(Some(Node::Array(array))) = read(&DIALECT, DATASET) else {
            panic!("no array")
        };
        assert_eq!((array.shape, array.chunk_shape), (vec![10, 20], vec![4, 5]));
        assert_eq!(array.keys.candidates(&[2, 3]), [b"a/2/3"]);
        assert_eq!(array.attributes.text(), r#"{"resolution":[1,2]}"#);
        let codecs = &array.codecs[0].configuration["codecs"];
        assert_eq!(codecs[0]["configuration"]["order"], json!([1, 0]));
        assert_eq!(codecs[1]["configuration"]["endian"], "big");
        assert_eq!(
            codecs[2],
            json!({"name": "gzip", "configuration": {"level": 6}})
        );
    }

    #[test]
    fn every_n5_compression_maps_to_a_codec() {
        for (compression, name) in [
            (r#"{"type": "lz4", "blockSize": 65536}"#, "n5.lz4"),
            (r#"{"type": "lz4", "blockSize": 7}"#, "n5.lz4"),
            (r#"{"type": "bzip2", "blockSize": 8}"#, "numcodecs.bz2"),
            (r#"{"type": "xz", "preset": 6}"#, "numcodecs.lzma"),
            (
                r#"{"type": "gzip", "level": 1, "useZlib": true}"#,
                "numcodecs.zlib",
            ),
            (r#"{"type": "zstd"}"#, "zstd"),
            (r#"{"type": "jpeg"}"#, "n5.jpeg"),
        ] {
            let stated = r#"{"type": "gzip", "level": -1, "useZlib": false}"#;
            let text = DATASET.replace(stated, compression);
            let Ok(Some(Node::Array(array))) = read(&DIALECT, &text) else {
                panic!("no array")
            };
            let codecs = &array.codecs[0].configuration["codecs"];
            assert_eq!(codecs[2]["name"], name);
        }
    }

    #[test]
    fn other_attributes_make_a_group_only_within_a_container() {
        for text in [r#"{"colour": 1}"#, "[]", "{", r#"{"n5": 3}"#] {
            assert_eq!(read(&DIALECT, text).unwrap(), None, "{text}");
        }
        let root = read(&DIALECT, r#"{"n5": "2.5.1", "by": "me"}"#).unwrap();
        assert!(
            matches!(root, Some(Node::Group(group)) if group.attributes.text() == r#"{"by":"me"}"#)
        );
        assert!(matches!(
            read(&WITHIN, r#"{"colour": 1}"#),
            Ok(Some(Node::Group(_)))
        ));
        assert!(read(&WITHIN, "{").is_err());
    }

    #[test]
    fn a_dataset_without_compression_is_an_error() {
        let stated = r#""compression": {"type": "gzip", "level": -1, "useZlib": false}"#;
        let text = DATASET.replace(stated, r#""by": "me""#);
        assert!(!text.contains("compression"));
        for dialect in [&DIALECT, &WITHIN] {
            let error = read(dialect, &text).unwrap_err().to_string();
            assert!(error.contains("compression"), "{error}");
        }
    }

    #[test]
    fn errors_name_the_faulty_member() {
        for (from, to, member) in [
            ("[4, 5]", "[4, 0]", "chunk shape"),
            ("[10, 20]", "[10]", "shape"),
            ("\"uint16\"", "7", "dataType"),
            ("\"gzip\"", "7", "compression"),
        ] {
            let error = read(&DIALECT, &DATASET.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(member), "{error}");
        }
    }
}
