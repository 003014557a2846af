//! Defines uncompressed Zarr v3 (3.1): one document for each node, and chunks in `c/`.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::view::plain::mask;
use crate::view::plain::target::{NodeDocument, PlainArray, Target, member_text};
use zarr_format::dialect::v3;
use zarr_format::model::document::ZARR_JSON;
use zarr_format::model::{Array, Attributes, CodecSpec, DataType, Group, KeyScheme, Node};

/// Zarr v3 as a format of uncompressed stores.
pub const TARGET: Target = Target {
    name: "v3",
    array_documents: &[ZARR_JSON],
    group_documents: &[ZARR_JSON],
    consolidated: ZARR_JSON,
    array_document,
    group_document,
    has_name: |data_type| !matches!(data_type, DataType::Unknown(_)),
    change: |data_type| match data_type {
        DataType::Object => Some("JSON values become strings"),
        DataType::List(_) => Some("lists become bytes"),
        _ => None,
    },
    states_fill: |_| true,
    chunk_folder: Some("c"),
    scalar_chunk: "c",
};

fn array_document(plain: &PlainArray<'_>, _document: &str) -> String {
    let array = plain.array;
    let described = Array {
        chunk_shape: plain.chunk_shape.to_vec(),
        chunk_edges: Vec::new(),
        codecs: vec![codec(&array.data_type)],
        keys: KeyScheme {
            v3: json!({ "name": "default", "configuration": { "separator": "/" } }),
            ..array.keys.clone()
        },
        attributes: mask::attributes_for_v3(array),
        ..array.clone()
    };
    String::from_utf8(v3::document(&Node::Array(Box::new(described)))).unwrap_or_default()
}

/// Returns the codec of an array's uncompressed chunks in Zarr v3.
fn codec(data_type: &DataType) -> CodecSpec {
    match data_type {
        DataType::Text | DataType::Object => CodecSpec::new("vlen-utf8", json!({})),
        DataType::Bytes | DataType::List(_) => CodecSpec::new("vlen-bytes", json!({})),
        fixed if fixed.words().is_empty() => CodecSpec::new("bytes", json!({})),
        _ => CodecSpec::new("bytes", json!({ "endian": "little" })),
    }
}

/// Returns the `zarr.json` of a group, with consolidated metadata as zarr-python writes them: groups in them have no
/// consolidated metadata of their own.
fn group_document(
    attributes: &Attributes,
    _document: &str,
    below: Option<&[NodeDocument]>,
) -> String {
    let group = Group {
        attributes: attributes.clone(),
    };
    let text = v3::document(&Node::Group(group));
    let text = String::from_utf8(text).unwrap_or_default();
    let Some(below) = below else {
        return text;
    };
    let mut members = String::new();
    for copy in below {
        let separator = if members.is_empty() { "" } else { ",\n" };
        let name = Value::from(copy.node.as_str());
        let _ = write!(
            members,
            "{separator}      {name}: {}",
            member_text(&copy.text)
        );
    }
    let end = text.trim_end().trim_end_matches('}').trim_end();
    format!(
        "{end},\n  \"consolidated_metadata\": {{\n    \"kind\": \"inline\",\n    \"must_understand\": false,\n    \
         \"metadata\": {{\n{members}\n    }}\n  }}\n}}\n"
    )
}
