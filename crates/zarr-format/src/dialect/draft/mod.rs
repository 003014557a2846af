//! The drafts of version 3, from 2019 to 2022: one file a draft, and what several of them share.
//!
//! Their documents lie apart from the chunks, where the entry point of the hierarchy states. Final v3 is in `dialect/v3`.

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

/// A dialect that governs all that lies below its entry point.
pub struct Draft {
    /// The name, as `--dialect` and `info` have it.
    pub name: &'static str,
    /// Returns where documents and chunks lie, by the members of the entry point if there is one.
    layout: fn(Option<&Map<String, Value>>) -> Result<DraftLayout>,
    /// Reads the document of an array, but for the attributes.
    array: fn(&ChunkLocation, &Map<String, Value>) -> Result<Parsed>,
    /// Checks the document of a group, which has nothing but attributes.
    group: fn(&Map<String, Value>) -> Result<()>,
}

/// Where a draft's documents and chunks lie, counted from the entry point's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DraftLayout {
    /// The folder whose names are the children of the root node.
    meta: &'static str,
    /// What the keys of the root node's documents begin with, before `array` or `group` and the suffix.
    root: &'static [&'static str],
    /// What may follow `.array` and `.group`; the first one takes precedence.
    suffixes: Vec<String>,
    /// The folder of the root node's chunks; those of others are in folders below it.
    data: &'static str,
    /// What stands before the first index of a chunk.
    index_prefix: &'static str,
    /// The document with copies of all others.
    consolidated: Option<&'static str>,
}

/// Where the chunks of an array lie.
struct ChunkLocation {
    /// What every key begins with, the last slash included.
    base: Vec<u8>,
    /// What stands before the first index.
    index_prefix: &'static str,
}
