//! Defines a target: a format in which any hierarchy is shown as a plain store.
//!
//! `v2` and `v3` have a table each. A target names documents and chunks, and makes documents from the model.

use std::borrow::Cow;
use std::fmt;

use zarr_format::grid::join_indices;
use zarr_format::json_text;
use zarr_format::model::{Array, Attributes, DataType, parse_index};

/// A format of plain stores.
pub struct Target {
    /// The name of the format in options and paths.
    pub name: &'static str,
    /// The names of the documents of an array.
    pub(super) array_documents: &'static [&'static str],
    /// The names of the documents of a group; the last document has the consolidated metadata, if any.
    pub(super) group_documents: &'static [&'static str],
    /// The name of the group's document that has the consolidated metadata.
    pub(super) consolidated: &'static str,
    /// Returns a document of an array.
    pub(super) array_document: fn(&PlainArray<'_>, document: &str) -> String,
    /// Returns a document of a group; with consolidated metadata if the documents of all nodes below (`below`) are
    /// given.
    pub(super) group_document:
        fn(&Attributes, document: &str, below: Option<&[NodeDocument]>) -> String,
    /// Whether the format has a name for a data type.
    pub(super) has_name: fn(&DataType) -> bool,
    /// Returns a sentence about how elements of a data type are changed, or `None` if they are not changed.
    pub(super) change: fn(&DataType) -> Option<&'static str>,
    /// Whether documents can state the fill value of an array. If they cannot, missing chunks get files too, unless the
    /// array has too many chunks.
    pub(super) states_fill: fn(&Array) -> bool,
    /// The folder of an array's chunks, whose indices are separated by slashes; `None` if chunks are in the folder of
    /// the array, and their indices are separated by dots.
    pub(super) chunk_folder: Option<&'static str>,
    /// The name of the chunk of an array without dimensions.
    pub(super) scalar_chunk: &'static str,
}

/// An array as the documents describe it.
pub(super) struct PlainArray<'a> {
    /// The metadata of the array in the original store.
    pub(super) array: &'a Array,
    /// The shape of the chunks, which have a regular grid.
    pub(super) chunk_shape: &'a [u64],
    /// Whether missing chunks have no file, so that documents must state the fill value.
    pub(super) states_fill: bool,
}

/// A document of a node in consolidated metadata.
pub(super) struct NodeDocument {
    /// The path of the node, relative to the group with the consolidated metadata.
    pub(super) node: String,
    /// The name of the document.
    pub(super) name: &'static str,
    /// The text of the document.
    pub(super) text: String,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Whether a document has this name, so that no node can have it.
    pub(super) fn is_document(&self, name: &[u8]) -> bool {
        let mut documents = self.group_documents.iter().chain(self.array_documents);
        documents.any(|document| document.as_bytes() == name)
    }

    /// Returns the name of a chunk's file in the folder of the array, for messages.
    pub(super) fn chunk_name(&self, indices: &[u64]) -> Cow<'static, str> {
        match self.chunk_folder {
            _ if indices.is_empty() => self.scalar_chunk.into(),
            Some(folder) => format!("{folder}/{}", join_indices(indices).replace('.', "/")).into(),
            None => join_indices(indices).into(),
        }
    }

    /// Parses names in the folder of an array as leading indices of a chunk, in an array of `rank` dimensions. `rank`
    /// indices are a chunk, fewer indices are a folder. Returns `None` if the names are something else.
    pub(super) fn indices(&self, names: &[&[u8]], rank: usize) -> Option<Vec<u64>> {
        let (first, rest) = names.split_first()?;
        if rank == 0 {
            let is_chunk = rest.is_empty() && *first == self.scalar_chunk.as_bytes();
            return is_chunk.then(Vec::new);
        }
        let text = |name: &[u8]| str::from_utf8(name).ok().map(str::to_string);
        let indices: Vec<String> = match self.chunk_folder {
            Some(folder) if *first == folder.as_bytes() => {
                rest.iter().map(|name| text(name)).collect::<Option<_>>()?
            }
            None if rest.is_empty() => text(first)?.split('.').map(str::to_string).collect(),
            _ => return None,
        };
        let is_folder = self.chunk_folder.is_some() && indices.len() < rank;
        if !is_folder && indices.len() != rank {
            return None;
        }
        indices.iter().map(|index| parse_index(index)).collect()
    }
}

/// Returns a JSON text without line breaks, as the value of a JSON member.
pub(super) fn member_text(text: &str) -> String {
    json_text::compact(text)
}
