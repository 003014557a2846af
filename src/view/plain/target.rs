//! Defines the formats in which a hierarchy is shown as an uncompressed store.
//!
//! Zarr v2 and v3 have a table each, with the names of documents and chunks and the functions that generate documents.

use std::borrow::Cow;
use std::fmt;

use zarr_format::grid::join_indices;
use zarr_format::json_text;
use zarr_format::model::{Array, Attributes, DataType, parse_index};

/// A format of uncompressed stores: Zarr v2 or v3.
pub struct Target {
    /// The name of the format in options and paths.
    pub name: &'static str,
    /// The names of an array's metadata documents.
    pub(super) array_documents: &'static [&'static str],
    /// The names of a group's metadata documents, of which the last may contain consolidated metadata.
    pub(super) group_documents: &'static [&'static str],
    /// The name of the group's metadata document that contains consolidated metadata.
    pub(super) consolidated: &'static str,
    /// Returns the text of an array's metadata document with the given name.
    pub(super) array_document: fn(&PlainArray<'_>, document: &str) -> String,
    /// Returns the text of a group's metadata document. It contains consolidated metadata if `below`, the documents of
    /// all nodes below the group, is given.
    pub(super) group_document:
        fn(&Attributes, document: &str, below: Option<&[NodeDocument]>) -> String,
    /// Whether the format can express a data type.
    pub(super) has_name: fn(&DataType) -> bool,
    /// Returns a sentence that says how the format changes elements of a data type, or `None` if it does not.
    pub(super) change: fn(&DataType) -> Option<&'static str>,
    /// Whether a metadata document can state the fill value of an array. If it cannot, missing chunks get files too,
    /// unless the array has too many chunks.
    pub(super) states_fill: fn(&Array) -> bool,
    /// The folder of an array's chunks, in which the indices of chunk keys are separated by slashes. `None` if chunk
    /// keys are directly in the array's folder, with indices separated by dots.
    pub(super) chunk_folder: Option<&'static str>,
    /// The name of the chunk of an array without dimensions.
    pub(super) scalar_chunk: &'static str,
}

/// The description of an array from which its metadata document is generated.
pub(super) struct PlainArray<'a> {
    /// The metadata of the array in the original store.
    pub(super) array: &'a Array,
    /// The chunk shape of the regular grid in which the array is shown.
    pub(super) chunk_shape: &'a [u64],
    /// Whether the metadata document must state the fill value, because missing chunks have no file.
    pub(super) states_fill: bool,
}

/// A metadata document that is included in consolidated metadata.
pub(super) struct NodeDocument {
    /// The path of the node, relative to the group with the consolidated metadata.
    pub(super) node: String,
    pub(super) name: &'static str,
    pub(super) text: String,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Target {
    /// Whether a name is reserved for a metadata document, so that no node can have it.
    pub(super) fn is_document(&self, name: &[u8]) -> bool {
        let mut documents = self.group_documents.iter().chain(self.array_documents);
        documents.any(|document| document.as_bytes() == name)
    }

    /// Returns the path of a chunk's file in the folder of the array.
    pub(super) fn chunk_name(&self, indices: &[u64]) -> Cow<'static, str> {
        match self.chunk_folder {
            _ if indices.is_empty() => self.scalar_chunk.into(),
            Some(folder) => format!("{folder}/{}", join_indices(indices).replace('.', "/")).into(),
            None => join_indices(indices).into(),
        }
    }

    /// Parses the path of a chunk or a folder of chunks, relative to the folder of an array with `rank` dimensions.
    /// Returns `rank` indices for a chunk and fewer for a folder, or `None` if the path names neither.
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

/// Returns a JSON text without line breaks, so that it can be the value of a member of another text.
pub(super) fn member_text(text: &str) -> String {
    json_text::compact(text)
}
