//! Describes nodes whose documents cannot be read.
//!
//! The bytes of such documents are not held, since they may be arbitrary and long; they are read on request.

use serde_json::Value;

use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::{Document, consolidated};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Object, Version};

/// A document of a broken node.
#[derive(Clone, Debug)]
pub struct BrokenDocument {
    /// The key of the document.
    pub key: Key,
    /// Its length in bytes, and its version; `None` if the store cannot return it.
    pub stored: Option<(u64, Version)>,
}

/// The properties of a node whose documents cannot be read.
#[derive(Clone, Debug)]
pub struct BrokenNode {
    /// The documents that are stored.
    pub documents: Vec<BrokenDocument>,
    /// Whether they are an array's, so that its folders hold chunks and not nodes.
    pub is_array: bool,
    /// Whether it is the entry point of a hierarchy, so that the nodes below it cannot be located.
    pub is_entry_point: bool,
}

impl Hierarchy {
    /// Reads a document of a broken node from the store.
    ///
    /// Fails with `Changed` if its version is not the one that the node was read from, which is then read again; with
    /// the error of the store if that cannot return the document.
    pub fn document_as_found(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
        document: &BrokenDocument,
    ) -> Result<Object> {
        context.check_may_wait()?;
        let object = found
            .scope
            .store
            .get(context, &document.key, MAX_DOCUMENT)?;
        let version = document.stored.map(|(_, version)| version);
        match object {
            Some(object) if version.is_none_or(|version| version.may_be(object.version)) => {
                Ok(object)
            }
            _ => {
                self.nodes.forget(&found.path);
                let why = "was changed since it was found";
                Err(Error::new(Kind::Changed, &document.key, why))
            }
        }
    }
}

/// Whether a document appears to be an array's: by its members or, if it is not JSON, by words in it.
pub(super) fn is_of_array(document: &Document) -> bool {
    let Some(bytes) = &document.bytes else {
        return false;
    };
    let members = document.object().ok().flatten();
    let has = |name: &str| match &members {
        Some(members) => members.contains_key(name),
        None => has_word(bytes, name),
    };
    let is_array = match &members {
        Some(members) => members.get("node_type").and_then(Value::as_str) == Some("array"),
        // A group may hold copies of the documents of arrays.
        None => has("node_type") && has("array") && !has(consolidated::MEMBER),
    };
    is_array || (has("dimensions") && has("blockSize"))
}

/// Whether a text contains a word in quotes.
fn has_word(text: &[u8], word: &str) -> bool {
    let quoted = format!("\"{word}\"");
    let mut places = text.windows(quoted.len());
    places.any(|part| part == quoted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_arrays_are_told_from_those_of_groups() {
        let is_of_array = |text: &str| {
            let key = Key::new("a/zarr.json").unwrap();
            let bytes = Some(text.as_bytes().to_vec().into());
            is_of_array(&Document {
                key,
                bytes,
                ..Document::default()
            })
        };
        for text in [
            r#"{"node_type": "array", "shape": 3}"#,
            r#"{"zarr_format": 3, "node_type": "array", "sha"#,
            r#"{"dimensions": [1], "blockSize": "#,
        ] {
            assert!(is_of_array(text), "{text}");
        }
        for text in [
            r#"{"node_type": "group", "zarr_format": 4}"#,
            r#"{"consolidated_metadata": {"metadata": {"a": {"node_type": "array"}}}, "node_type": 3}"#,
            r#"{"consolidated_metadata": {"metadata": {"a": {"node_type": "array"}}"#,
            "[]",
            "",
        ] {
            assert!(!is_of_array(text), "{text}");
        }
    }
}
