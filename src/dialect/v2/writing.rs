//! New arrays as v2 writes them: final v3's codecs become memory order, byte order, filters and compressor.
//!
//! The caller reads the documents again and compares the outcome with what was wanted, which finds a codec that v2
//! understands otherwise. Here only what v2 has no place for is refused.

use serde_json::{Map, Value, json};

use crate::dialect::{DocumentMap, typestr};
use crate::error::{Error, Result};
use crate::json_text::{self, render};
use crate::model::document::{ZARRAY, ZATTRS};
use crate::model::{Array, Attributes, CodecSpec, DataType};
use crate::store::Key;

/// Returns a document in a folder, and the user's attributes beside it if there are some.
pub(super) fn documents(
    path: &Key,
    name: &str,
    document: &Value,
    attributes: &Attributes,
) -> Result<DocumentMap> {
    let mut documents = vec![(path.child(name.as_bytes())?, render(document))];
    if !attributes.is_empty() {
        let text = json_text::document(attributes.text());
        // First, so that an array never is there without its attributes.
        documents.insert(0, (path.child(ZATTRS.as_bytes())?, text));
    }
    Ok(documents)
}

/// Returns the documents of a new array (v2 specification, "Metadata").
pub(super) fn array(path: &Key, array: &Array) -> Result<DocumentMap> {
    if !array.chunk_edges.is_empty() {
        return Err(lacks("chunk_grid", "chunks of different lengths"));
    }
    let chain = V2Codecs::of(&array.codecs)?;
    let filters: Vec<Value> = chain
        .filters
        .iter()
        .map(|codec| numcodec(codec))
        .collect::<Result<_>>()?;
    let mut document = json!({
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": array.chunk_shape,
        "dtype": dtype(&array.data_type, chain.is_big)?,
        "compressor": chain.compressor.map(numcodec).transpose()?,
        "fill_value": array.fill_value.json,
        "order": if chain.is_reversed { "F" } else { "C" },
        "filters": if filters.is_empty() { Value::Null } else { json!(filters) },
    });
    if array.keys.separator == '/' {
        document["dimension_separator"] = json!("/");
    }
    documents(path, ZARRAY, &document, &attributes(array)?)
}

/// Returns the attributes; names of dimensions are one of them, as xarray has it.
fn attributes(array: &Array) -> Result<Attributes> {
    const XARRAY_NAMES: &str = "_ARRAY_DIMENSIONS";
    let attributes = array.attributes.clone();
    if array.dimension_names.is_empty() || attributes.get(XARRAY_NAMES).is_some() {
        return Ok(attributes);
    }
    if array.dimension_names.contains(&None) {
        return Err(lacks(
            "dimension_names",
            "dimensions of which only some have names",
        ));
    }
    Ok(attributes.with(XARRAY_NAMES, &json!(array.dimension_names)))
}

/// Returns numpy's type string; elements without a fixed length are objects.
fn dtype(data_type: &DataType, is_big: bool) -> Result<Value> {
    match data_type {
        DataType::Text | DataType::Bytes => Ok(json!("|O")),
        other => typestr::render(other, is_big)
            .ok_or_else(|| lacks("data_type", &format!("type {other}"))),
    }
}

/// A chain of codecs in the parts that v2 has.
pub(crate) struct V2Codecs<'a> {
    /// Whether the memory order is F.
    pub(crate) is_reversed: bool,
    /// Whether elements are big-endian.
    pub(crate) is_big: bool,
    /// All codecs but the transposition, `bytes` and the compressor, in the order of encoding.
    pub(crate) filters: Vec<&'a CodecSpec>,
    /// The last codec, unless v2 knows it as a filter.
    pub(crate) compressor: Option<&'a CodecSpec>,
}

impl<'a> V2Codecs<'a> {
    /// Splits a chain: the transposition, filters of elements, byte order, filters of bytes, a compressor.
    pub(crate) fn of(codecs: &'a [CodecSpec]) -> Result<V2Codecs<'a>> {
        let mut chain = V2Codecs {
            is_reversed: false,
            is_big: false,
            filters: Vec::new(),
            compressor: None,
        };
        for (position, codec) in codecs.iter().enumerate() {
            match codec.name.as_str() {
                "transpose" if position == 0 && is_reversal(codec) => chain.is_reversed = true,
                "bytes" => {
                    let endian = codec.configuration.get("endian");
                    chain.is_big = endian.and_then(Value::as_str) == Some("big");
                }
                _ => chain.filters.push(codec),
            }
        }
        let is_last = |last: &&CodecSpec| !is_filter(&last.name);
        if chain.filters.last().is_some_and(is_last) {
            chain.compressor = chain.filters.pop();
        }
        Ok(chain)
    }
}

/// Whether a codec is a filter though it stands last.
fn is_filter(name: &str) -> bool {
    const FILTERS: [&str; 10] = [
        "numcodecs.astype",
        "numcodecs.bitround",
        "numcodecs.delta",
        "numcodecs.fixedscaleoffset",
        "numcodecs.packbits",
        "numcodecs.quantize",
        "numcodecs.shuffle",
        "numcodecs.fletcher32",
        "vlen-bytes",
        "vlen-utf8",
    ];
    FILTERS.contains(&name)
}

/// Whether a transposition reverses the order of all dimensions.
fn is_reversal(codec: &CodecSpec) -> bool {
    let order = codec.configuration.get("order").and_then(Value::as_array);
    order.is_some_and(|order| {
        let turned = (0..order.len() as u64).rev();
        order.iter().map(Value::as_u64).eq(turned.map(Some))
    })
}

/// Returns numcodecs' configuration of a codec.
pub(crate) fn numcodec(codec: &CodecSpec) -> Result<Value> {
    let id = match codec.name.as_str() {
        "blosc" | "gzip" | "zstd" | "vlen-bytes" | "vlen-utf8" => codec.name.as_str(),
        name => name
            .strip_prefix("numcodecs.")
            .ok_or_else(|| lacks("codecs", &format!("codec {name} at this place")))?,
    };
    let mut configuration = Map::new();
    configuration.insert("id".to_string(), json!(id));
    configuration.extend(codec.configuration.clone());
    if id == "blosc" {
        unname_shuffle(&mut configuration);
    }
    Ok(Value::Object(configuration))
}

/// Replaces the name of blosc's shuffle by its number, and drops the element size, which v2 takes from the type.
pub(crate) fn unname_shuffle(configuration: &mut Map<String, Value>) {
    let shuffle = match configuration.get("shuffle").and_then(Value::as_str) {
        Some("noshuffle") => 0,
        Some("bitshuffle") => 2,
        _ => 1,
    };
    configuration.insert("shuffle".to_string(), json!(shuffle));
    configuration.shift_remove("typesize");
}

fn lacks(member: &str, what: &str) -> Error {
    Error::unsupported(member, format!("v2 has no {what}"))
}
