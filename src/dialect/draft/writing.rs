//! New nodes as the drafts write them.
//!
//! The caller reads the documents again and compares the outcome with what was wanted, as in `v2/writing.rs`.

use serde_json::{Map, Value, json};

use crate::dialect::typestr;
use crate::dialect::v2::writing::{V2Codecs, numcodec};
use crate::error::{Error, Result};
use crate::model::{Array, CodecSpec, DataType};

/// The URI of the core specification in documents of 2019.
const CORE_2019: &str = "http://purl.org/zarr/spec/protocol/core/3.0";

/// Returns the members of a group, but for its attributes.
pub(super) fn group() -> Value {
    json!({ "extensions": [] })
}

/// Returns the members of a group in the draft of 2019, where each document has `zarr_format`.
pub(super) fn group2019() -> Value {
    json!({ "zarr_format": CORE_2019, "extensions": [] })
}

/// Returns an array's members but for its attributes (draft of 2019, "Array metadata").
pub(super) fn array2019(array: &Array) -> Result<Map<String, Value>> {
    let wanted = DraftArray::of(array)?;
    let codec = |codec: &CodecSpec| {
        let (name, configuration) = named(codec)?;
        let mut members = configuration;
        members.insert(
            "codec".to_string(),
            json!(format!("http://purl.org/zarr/spec/codec/{name}")),
        );
        Ok(Value::Object(members))
    };
    let codecs = wanted
        .chain
        .filters
        .iter()
        .copied()
        .chain(wanted.chain.compressor);
    let codecs: Vec<Value> = codecs.map(codec).collect::<Result<_>>()?;
    let mut members = Map::new();
    members.insert("zarr_format".to_string(), json!(CORE_2019));
    members.extend(wanted.members(array, numpy_type(array, wanted.chain.is_big)?));
    members.insert("chunk_codecs".to_string(), json!(codecs));
    Ok(members)
}

/// Returns an array's members but for its attributes (draft of 2020, "Array metadata").
pub(super) fn array2020(array: &Array) -> Result<Map<String, Value>> {
    let wanted = DraftArray::of(array)?;
    if let Some(filter) = wanted.chain.filters.first() {
        let what = format!("codec {} beside a compressor", filter.name);
        return Err(lacks("codecs", &what));
    }
    let mut members = wanted.members(array, numpy_type(array, wanted.chain.is_big)?);
    if let Some(codec) = wanted.chain.compressor {
        let (name, configuration) = named(codec)?;
        let uri = format!("https://purl.org/zarr/spec/codec/{name}/1.0");
        let compressor = json!({ "codec": uri, "configuration": configuration });
        members.insert("compressor".to_string(), compressor);
    }
    Ok(members)
}

/// Returns an array's members but for its attributes (draft of 2022, "Array metadata").
pub(super) fn array2022(array: &Array) -> Result<Map<String, Value>> {
    let wanted = DraftArray::of(array)?;
    let name = match &array.data_type {
        DataType::Bool
        | DataType::Int(_)
        | DataType::UInt(_)
        | DataType::Float(_)
        | DataType::Complex(_)
        | DataType::Raw(_) => json!(array.data_type.to_string()),
        other => return Err(lacks("data_type", &format!("type {other}"))),
    };
    let uri = |name: &str| format!("https://purl.org/zarr/spec/codecs/{name}/1.0");
    let mut codecs = Vec::new();
    if wanted.chain.is_big {
        codecs.push(json!({ "type": uri("endian"), "configuration": { "endian": "big" } }));
    }
    let others = wanted
        .chain
        .filters
        .iter()
        .copied()
        .chain(wanted.chain.compressor);
    for codec in others {
        let (name, configuration) = named(codec)?;
        codecs.push(json!({ "type": uri(&name), "configuration": configuration }));
    }
    let mut members = wanted.members(array, name);
    members.insert("codecs".to_string(), json!(codecs));
    Ok(members)
}

/// An array that the drafts can express, as far as their forms agree.
struct DraftArray<'a> {
    chain: V2Codecs<'a>,
}

impl<'a> DraftArray<'a> {
    fn of(array: &'a Array) -> Result<DraftArray<'a>> {
        if !array.chunk_edges.is_empty() {
            return Err(lacks("chunk_grid", "chunks of different lengths"));
        }
        if !array.dimension_names.is_empty() {
            return Err(lacks("dimension_names", "names of dimensions"));
        }
        if array
            .codecs
            .iter()
            .any(|codec| codec.name == "sharding_indexed")
        {
            return Err(lacks("codecs", "codec sharding_indexed"));
        }
        Ok(DraftArray {
            chain: V2Codecs::of(&array.codecs)?,
        })
    }

    fn members(&self, array: &Array, data_type: Value) -> Map<String, Value> {
        let members = json!({
            "shape": array.shape,
            "data_type": data_type,
            "chunk_grid": { "type": "regular", "chunk_shape": array.chunk_shape, "separator": "/" },
            "chunk_memory_layout": if self.chain.is_reversed { "F" } else { "C" },
            "fill_value": array.fill_value.json,
            "extensions": [],
        });
        match members {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }
}

/// Returns numpy's type string, without the bar that stands for no byte order.
fn numpy_type(array: &Array, is_big: bool) -> Result<Value> {
    let name = match &array.data_type {
        DataType::Bool => Some(json!("bool")),
        DataType::Raw(width) => Some(json!(format!("r{}", width * 8))),
        DataType::Int(_) | DataType::UInt(_) | DataType::Float(_) => {
            typestr::render(&array.data_type, is_big)
        }
        _ => None,
    };
    let name = name.ok_or_else(|| lacks("data_type", &format!("type {}", array.data_type)))?;
    let plain = name.as_str().map(|name| name.trim_start_matches('|'));
    Ok(json!(plain))
}

/// Returns the name of a codec in a URI, and its configuration.
fn named(codec: &CodecSpec) -> Result<(String, Map<String, Value>)> {
    let Value::Object(mut configuration) = numcodec(codec)? else {
        return Err(lacks("codecs", &codec.name));
    };
    let id = configuration.shift_remove("id");
    let id = id.as_ref().and_then(Value::as_str).unwrap_or_default();
    Ok((id.to_string(), configuration))
}

fn lacks(member: &str, what: &str) -> Error {
    Error::unsupported(member, format!("this draft of v3 has no {what}"))
}
