//! The drafts of version 3, from 2019 to 2022, one file for each.
//!
//! Their documents and chunks are in separate folders, as the entry point of the hierarchy states. Final v3 is in
//! `dialect/v3`.

use serde_json::{Map, Value};

use crate::dialect::Parsed;
use crate::error::Result;

mod array;
mod codec_uris;
mod data_type;
pub(super) mod draft2019;
pub(super) mod draft2020;
pub(super) mod draft2022;
mod entry_point;
mod members;
mod registry;

pub use entry_point::{DocumentRole, EntryPoint};
pub use registry::{draft_of, entry_2019, is_2019};

/// A dialect that applies to all nodes below its entry point.
pub struct Draft {
    /// The name, as in `--dialect` and `info`.
    pub name: &'static str,
    /// Returns the layout of documents and chunks, from the members of the entry point, if it exists.
    layout: fn(Option<&Map<String, Value>>) -> Result<DraftLayout>,
    /// Reads the document of an array, except its attributes.
    array: fn(&ChunkLocation, &Map<String, Value>) -> Result<Parsed>,
    /// Checks the document of a group, which has only attributes.
    group: fn(&Map<String, Value>) -> Result<()>,
}

/// The locations of a draft's documents and chunks, relative to the entry point's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DraftLayout {
    /// The folder that holds the documents of the root node's children.
    meta: &'static str,
    /// The prefixes of the keys of the root node's documents, before `array` or `group` and the suffix.
    root: &'static [&'static str],
    /// Possible suffixes after `.array` and `.group`, in order of precedence.
    suffixes: Vec<String>,
    /// The folder of the root node's chunks. Chunks of other nodes are in folders below it.
    data: &'static str,
    /// The text before the first index of a chunk.
    index_prefix: &'static str,
    /// The key of consolidated metadata, if the draft has them.
    consolidated: Option<&'static str>,
}

/// The location of an array's chunks.
struct ChunkLocation {
    /// The prefix of every key, its last slash included.
    base: Vec<u8>,
    /// The text before the first index.
    index_prefix: &'static str,
}
