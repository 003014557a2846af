//! Returns single facts about a node or chunk, for extended attributes.
//!
//! Only the requested fact is computed. Most facts come from metadata in memory. The length of a chunk needs a request
//! to the store, and only the status of a chunk requires decoding the chunk.

use std::sync::Arc;

use crate::inspect::opened_store::find_chunk;
use crate::inspect::stored_chunks::decode;
use zarr_format::error::{Kind, Result};
use zarr_format::grid::Coordinates;
use zarr_format::model::{Array, CodecSpec, Node, document};
use zarrfs_array::array::{Arrays, ListedChunk, OpenArray};
use zarrfs_array::hierarchy::{Hierarchy, NodeEntry};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, Meta, Store};

/// Returns a fact about a node by its name: `kind`, `dialect`, and for an array `dtype`, `shape`, `chunk` and `codec`.
/// Returns `None` if the node has no such fact.
pub fn of_node(entry: &NodeEntry, name: &str) -> Option<String> {
    match (name, &entry.node) {
        ("kind", Ok(Node::Group(_))) => Some("group".to_string()),
        ("kind", Ok(Node::Array(_))) => Some("array".to_string()),
        ("kind", Err(_)) => Some("broken".to_string()),
        ("dialect", _) => entry.dialect().map(str::to_string),
        (name, Ok(Node::Array(array))) => of_array(array, name),
        _ => None,
    }
}

/// Returns a fact about a store key by the fact's name. The key of a node's folder has the facts of the node, and the
/// key of a chunk those of the chunk. Other keys have `kind` (`document`, `key` or `folder`), `stored_bytes` and
/// `etag`.
pub fn of_key(
    context: &RequestContext,
    hierarchy: &Hierarchy,
    arrays: &Arrays,
    key: &Key,
    name: &str,
) -> Result<Option<String>> {
    let store = &**hierarchy.store();
    let Some(meta) = store.head(context, key)? else {
        return Ok(None);
    };
    if meta.kind == EntryKind::Directory {
        let is_folder = name == "kind";
        return Ok(match hierarchy.node(context, key)? {
            Some(entry) => of_node(&entry, name),
            None => is_folder.then(|| "folder".to_string()),
        });
    }
    if let Some((array, indices)) = find_chunk(context, hierarchy, arrays, key)? {
        return of_chunk(context, &array, store, &indices, name);
    }
    Ok(match name {
        "kind" if document::is_document(key.name()) => Some("document".to_string()),
        "kind" => Some("key".to_string()),
        "stored_bytes" => Some(meta.size.to_string()),
        "etag" => store.etag(context, key)?.map(|etag| etag.text),
        _ => None,
    })
}

fn joined(lengths: &[u64]) -> String {
    let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
    lengths.join(",")
}

fn of_array(array: &Array, name: &str) -> Option<String> {
    match name {
        "dtype" => Some(array.data_type.to_string()),
        "shape" => Some(joined(&array.shape)),
        "chunk" => Some(joined(&array.chunk_shape)),
        "codec" => {
            let codecs = array.codecs.iter().map(CodecSpec::to_json);
            Some(serde_json::Value::Array(codecs.collect()).to_string())
        }
        _ => None,
    }
}

/// Returns a fact about a chunk by its name: `kind`, `shape` (only elements inside the array), `stored_bytes`, `etag`,
/// or `status` (`stored`, `missing` or `corrupt`). Any other name stands for a fact about the array.
pub fn of_chunk(
    context: &RequestContext,
    array: &Arc<OpenArray>,
    store: &dyn Store,
    indices: &Coordinates,
    name: &str,
) -> Result<Option<String>> {
    Ok(match name {
        "kind" => Some("chunk".to_string()),
        "dialect" => Some(array.array().dialect.to_string()),
        "shape" => {
            let region = array.stored_grid()?.region(indices);
            Some(joined(&region.shape))
        }
        "stored_bytes" => {
            stored(context, array, store, indices)?.map(|(_, meta)| meta.size.to_string())
        }
        "etag" => match stored(context, array, store, indices)? {
            Some((key, _)) => store.etag(context, &key)?.map(|etag| etag.text),
            None => None,
        },
        "status" => Some(status(context, array, store, indices)?.to_string()),
        name => of_array(array.array(), name),
    })
}

/// Returns the key and the object metadata of a chunk, or `None` if the chunk is not stored.
fn stored(
    context: &RequestContext,
    array: &OpenArray,
    store: &dyn Store,
    indices: &Coordinates,
) -> Result<Option<(Key, Meta)>> {
    for key in array.array().keys.candidates(indices) {
        let key = Key::new(key)?;
        if let Some(meta) = store.head(context, &key)? {
            return Ok(Some((key, meta)));
        }
    }
    Ok(None)
}

fn status(
    context: &RequestContext,
    array: &Arc<OpenArray>,
    store: &dyn Store,
    indices: &Coordinates,
) -> Result<&'static str> {
    let Some((key, meta)) = stored(context, array, store, indices)? else {
        return Ok("missing");
    };
    let chunk = ListedChunk {
        indices: indices.clone(),
        key,
        size: Some(meta.size),
    };
    match decode(context, array, &chunk) {
        Ok(()) => Ok("stored"),
        Err(error) if error.kind() == Kind::Corrupt => Ok("corrupt"),
        Err(error) => Err(error),
    }
}
