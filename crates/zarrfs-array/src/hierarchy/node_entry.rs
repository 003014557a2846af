//! Describes a node as last read, and what it passes on to its children.
//!
//! An entry is immutable and shared by its users. The bytes of documents that cannot be parsed are not held, since they
//! may be arbitrary and long; they are read on request.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use crate::hierarchy::consolidated::Consolidated;
use zarr_format::dialect::draft::EntryPoint;
use zarr_format::dialect::{DIALECTS, Dialect, Document, consolidated};
use zarr_format::error::{Error, Result};
use zarr_format::model::document::IN_NODE_FOLDER;
use zarr_format::model::{Array, Node};
use zarrfs_store::Presence;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Dependencies, EntryKind, Hints, Key, Store, Version};

/// Documents and their versions; `None` for missing documents.
pub(super) type Validators = Arc<[(Key, Option<Version>)]>;

/// A node of a hierarchy, as last read from its documents.
pub struct NodeEntry {
    /// Its path.
    pub path: Key,
    /// The node, or the error about its documents.
    pub node: Result<Node>,
    /// Differs between states of the documents; 0 for a folder without documents.
    pub version: u64,
    /// How many times the whole store had been replaced when it was read.
    pub replacements: u64,
    /// The time of the last change of any of its documents.
    pub modified: SystemTime,
    /// The properties of a node whose documents cannot be read.
    pub broken: Option<BrokenNode>,
    /// The documents that it was read from, with their versions; `None` if it was read from consolidated metadata.
    pub documents: Option<Arc<[(Key, Version)]>>,
    /// The lengths of the metadata and attributes documents that views generate from the node; set by the views.
    pub lengths: [OnceLock<u64>; 2],
    /// The documents and their versions when the node was read. Before the node is read again, the store is asked for
    /// the present versions; `None` if that is not worth the requests.
    pub(super) validators: Option<Validators>,
    /// The identity of the child context of its parent.
    pub(super) parent_context: (u64, Option<Version>),
    pub(super) child_context: ChildContext,
    /// The memory that is reserved for the node until its last holder drops it; `None` if the budget had no room.
    pub(super) room: Option<Reservation>,
}

impl fmt::Debug for NodeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEntry")
            .field("path", &self.path)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

impl NodeEntry {
    /// Returns the array, or `None` if the node is a group or broken.
    pub fn array(&self) -> Option<&Array> {
        match &self.node {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Returns the name of the dialect of its documents, or `None` if no document describes it.
    pub fn dialect(&self) -> Option<&'static str> {
        if let Some(array) = self.array() {
            return Some(array.dialect);
        }
        if let Rule::Draft(entry) = &self.child_context.rule {
            return Some(entry.name());
        }
        let read = self.documents_in_folder();
        let is_of = |dialect: &&&Dialect| {
            let keys = (dialect.documents)(&self.path).unwrap_or_default();
            read.iter().any(|key| keys.contains(key))
        };
        DIALECTS.iter().find(is_of).map(|dialect| dialect.name)
    }

    /// Whether two readings of a node found the same documents, and the whole store was not replaced between the two.
    pub(super) fn is_same_as(&self, other: &NodeEntry) -> bool {
        self.version == other.version && self.replacements == other.replacements
    }

    /// Whether its children are read from consolidated metadata, and are therefore known without requests.
    pub fn is_consolidated(&self) -> bool {
        self.child_context.consolidated.is_some()
    }

    /// Whether this is an array, broken or not: it has no children.
    pub fn is_array(&self) -> bool {
        let is_broken_array = self.broken.as_ref().is_some_and(|broken| broken.is_array);
        is_broken_array || self.array().is_some()
    }

    /// Whether a document describes it; false for a folder that is a group only because it contains nodes.
    pub fn is_described(&self) -> bool {
        let documents = self.documents.as_deref();
        documents.is_none_or(|documents| !documents.is_empty())
    }

    /// Returns the keys of the documents that it was read from: its own, or the consolidated metadata.
    pub fn described_by(&self) -> Vec<&Key> {
        let consolidated = self.child_context.consolidated.as_ref();
        match &self.documents {
            Some(documents) => documents.iter().map(|(key, _)| key).collect(),
            None => consolidated.map(|used| used.key()).into_iter().collect(),
        }
    }

    /// Returns the entry point of the draft that the node is in, or `None` if its documents are in its own folder.
    pub fn entry_point(&self) -> Option<&Arc<EntryPoint>> {
        match &self.child_context.rule {
            Rule::Draft(entry) => Some(entry),
            Rule::Plain(_) | Rule::Closed => None,
        }
    }

    /// Returns the entry of a key below the node in consolidated metadata; `Unknown` if nothing below the node is read
    /// from consolidated metadata, or if they do not decide about the key.
    pub fn consolidated_entry(&self, key: &Key) -> Presence<ConsolidatedEntry> {
        let Some(used) = &self.child_context.consolidated else {
            return Presence::Unknown;
        };
        used.kind_of(key).map(|kind| match used.document(key) {
            Some(text) if kind == EntryKind::File => {
                ConsolidatedEntry::Document(ConsolidatedCopy {
                    text,
                    modified: used.modified(),
                    _counted: used.clone(),
                })
            }
            _ => ConsolidatedEntry::Folder,
        })
    }

    /// Returns the keys of the documents that the node was read from and that are in its own folder. Consolidated
    /// metadata in the folder are included.
    pub fn documents_in_folder(&self) -> Vec<Key> {
        let names = IN_NODE_FOLDER.iter();
        let keys = names.filter_map(|name| self.path.child(name.as_bytes()).ok());
        keys.filter(|key| self.has_read(key)).collect()
    }

    /// Whether the node was read from a document, or has its consolidated metadata in it.
    fn has_read(&self, key: &Key) -> bool {
        let read = self.documents.as_deref().unwrap_or_default();
        let broken = self.broken.iter().flat_map(|broken| &broken.documents);
        let used = self.child_context.consolidated.as_ref();
        read.iter().any(|(read, _)| read == key)
            || broken.into_iter().any(|broken| broken.key == *key)
            || used.is_some_and(|used| used.is_source(key) || used.document(key).is_some())
    }

    /// Returns the node, or the error about its documents.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().map_err(Error::clone)
    }
}

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
pub(super) fn has_word(text: &[u8], word: &str) -> bool {
    let quoted = format!("\"{word}\"");
    let mut places = text.windows(quoted.len());
    places.any(|part| part == quoted.as_bytes())
}

/// The kind of a key in consolidated metadata.
pub enum ConsolidatedEntry {
    /// A folder with documents below it.
    Folder,
    /// A document.
    Document(ConsolidatedCopy),
}

/// A document in consolidated metadata, whose text it shares.
pub struct ConsolidatedCopy {
    /// Its text.
    pub text: Bytes,
    /// The time of the last change of the consolidated metadata.
    pub modified: SystemTime,
    /// Keeps the memory of the text reserved in the budget.
    _counted: Arc<Consolidated>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_documents_are_distinguished_from_group_documents() {
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

/// The rule that locates the documents of nodes.
#[derive(Clone)]
pub(super) enum Rule {
    /// In the folder of each node, in the first of these dialects that has documents there.
    Plain(&'static [&'static Dialect]),
    /// At the keys that the entry point of the hierarchy defines.
    Draft(Arc<EntryPoint>),
    /// Nowhere, since the entry point above cannot be read.
    Closed,
}

/// The state that a node passes on to its children: how their documents are found, and in which store.
#[derive(Clone)]
pub(super) struct ChildContext {
    pub(super) rule: Rule,
    /// The store that documents are read from: the plain store, or consolidated metadata over it.
    pub(super) store: Arc<dyn Store>,
    /// The hints of that store.
    pub(super) hints: Arc<dyn Hints>,
    /// The keys that the rule and the consolidated metadata were read from.
    pub(super) depends: Dependencies,
    /// The consolidated metadata layer of `store`, if there is one.
    pub(super) consolidated: Option<Arc<Consolidated>>,
    /// The error of consolidated metadata that could not be read.
    pub(super) consolidated_error: Option<Arc<str>>,
    /// Differs between rules; 0 for the rule of the root.
    pub(super) version: u64,
}

impl ChildContext {
    /// Returns a value that differs between child contexts of one path.
    pub(super) fn identity(&self) -> (u64, Option<Version>) {
        (self.version, self.consolidated_version())
    }

    /// Returns the version of a group without documents.
    pub(super) fn implied_version(&self) -> u64 {
        match self.consolidated_version() {
            None => self.version,
            Some(consolidated) => hash_of((self.version, consolidated)),
        }
    }

    /// Returns the version of the consolidated metadata, if they are used.
    pub(super) fn consolidated_version(&self) -> Option<Version> {
        self.consolidated.as_ref().map(|used| used.version())
    }
}

/// Returns a number that differs between values.
pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
