//! New datasets of N5: one block codec, big-endian, the first dimension fastest.
//!
//! N5 fixes the order of bytes and dimensions within a block, so only the compression is taken from the codecs of the
//! array.

use serde_json::{Map, Value, json};

use crate::dialect::DocumentMap;
use crate::dialect::n5::attributes::check_own;
use crate::dialect::v2::writing::{V2Codecs, unname_shuffle};
use crate::error::{Error, Result};
use crate::json_text::{self, MemberChange, ObjectText};
use crate::model::document::ATTRIBUTES_JSON;
use crate::model::{Array, CodecSpec, DataType};
use crate::store::Key;

/// Returns the document of a new dataset (N5, "File-system specification").
pub(super) fn array(path: &Key, array: &Array) -> Result<DocumentMap> {
    if !array.chunk_edges.is_empty() {
        return Err(lacks("chunk_grid", "chunks of different lengths"));
    }
    if !array.dimension_names.is_empty() {
        return Err(lacks("dimension_names", "names of dimensions"));
    }
    if array.fill_value.bytes.iter().any(|&byte| byte != 0) {
        return Err(lacks("fill_value", "fill value but zero"));
    }
    let name = match &array.data_type {
        DataType::Int(_) | DataType::UInt(_) => array.data_type.to_string(),
        DataType::Float(4 | 8) => array.data_type.to_string(),
        other => return Err(lacks("data_type", &format!("type {other}"))),
    };
    check_own(&array.attributes)?;
    let document = json!({
        "dimensions": array.shape,
        "blockSize": array.chunk_shape,
        "dataType": name,
        "compression": compression(&array.codecs)?,
    });
    let attributes = array.attributes.members().into_iter();
    let attributes = attributes.map(|(name, value)| (name, Some(value.to_string())));
    let attributes: Vec<MemberChange> = attributes.collect();
    let text = ObjectText::parse(&document.to_string())?.edited(&attributes, 1);
    Ok(vec![(
        path.child(ATTRIBUTES_JSON.as_bytes())?,
        json_text::document(&text),
    )])
}

/// Returns the compression of a chain, which may stand within codec `n5_default`.
fn compression(codecs: &[CodecSpec]) -> Result<Value> {
    let inner = match codecs {
        [codec] if codec.name == "n5_default" => inner(codec),
        other => other.to_vec(),
    };
    let chain = V2Codecs::of(&inner)?;
    if let Some(filter) = chain.filters.first() {
        return Err(lacks(
            "codecs",
            &format!("codec {} before another", filter.name),
        ));
    }
    let Some(codec) = chain.compressor else {
        return Ok(json!({ "type": "raw" }));
    };
    let level = |usual: i64| {
        codec
            .configuration
            .get("level")
            .cloned()
            .unwrap_or(json!(usual))
    };
    Ok(match codec.name.as_str() {
        "gzip" => json!({ "type": "gzip", "level": level(6), "useZlib": false }),
        "numcodecs.zlib" => json!({ "type": "gzip", "level": level(6), "useZlib": true }),
        "zstd" => json!({ "type": "zstd", "level": level(3) }),
        "numcodecs.bz2" => json!({ "type": "bzip2", "blockSize": level(9) }),
        "n5.lz4" => with_type("lz4", &codec.configuration),
        "blosc" => blosc(&codec.configuration),
        other => return Err(lacks("codecs", &format!("codec {other}"))),
    })
}

fn inner(codec: &CodecSpec) -> Vec<CodecSpec> {
    let list = codec.configuration.get("codecs").and_then(Value::as_array);
    let list = list.map(Vec::as_slice).unwrap_or_default().iter();
    list.map(|codec| {
        let name = codec.get("name").and_then(Value::as_str);
        let configuration = codec.get("configuration").cloned();
        CodecSpec::new(name.unwrap_or_default(), configuration.unwrap_or_default())
    })
    .collect()
}

fn blosc(configuration: &Map<String, Value>) -> Value {
    let mut configuration = configuration.clone();
    unname_shuffle(&mut configuration);
    with_type("blosc", &configuration)
}

fn with_type(name: &str, configuration: &Map<String, Value>) -> Value {
    let mut members = Map::new();
    members.insert("type".to_string(), json!(name));
    members.extend(configuration.clone());
    Value::Object(members)
}

fn lacks(member: &str, what: &str) -> Error {
    Error::unsupported(member, format!("N5 has no {what}"))
}
