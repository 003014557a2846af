//! Describes a node as last read, and the state that its children depend on.
//!
//! An entry is immutable and shared by its users. The bytes of documents that cannot be parsed are not in the entry,
//! since they may be arbitrary and long; they are read on request.

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

/// The keys of metadata documents, with their versions; `None` for missing documents.
pub(super) type Validators = Arc<[(Key, Option<Version>)]>;

/// A node (group or array) of a hierarchy, as last read from its metadata documents.
pub struct NodeEntry {
    /// The path of the node.
    pub path: Key,
    /// The group or array, or the error why its documents cannot be read.
    pub node: Result<Node>,
    /// A number that changes when the node's documents change; 0 for a folder without documents.
    pub version: u64,
    /// How many times the whole store (a ZIP archive, for example) had been replaced when the node was read.
    pub replacements: u64,
    /// The latest modification time of the node's metadata documents.
    pub modified: SystemTime,
    /// What is known of a node whose documents cannot be read; `None` for other nodes.
    pub broken: Option<BrokenNode>,
    /// The metadata documents that the node was read from, with their versions; `None` if it was read from consolidated
    /// metadata.
    pub documents: Option<Arc<[(Key, Version)]>>,
    /// The lengths of the metadata and attributes documents that views generate from the node; set by the views.
    pub lengths: [OnceLock<u64>; 2],
    /// The documents of the node and their versions when it was read. Before the node is read again, the store is asked
    /// for the present versions; `None` if asking costs as much as reading the documents again.
    pub(super) validators: Option<Validators>,
    pub(super) parent_context: (u64, Option<Version>),
    pub(super) child_context: ChildContext,
    /// The memory that is reserved for the node until its last user drops it; `None` if the budget had no room.
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
    /// Returns the array, or `None` if the node is a group or its documents cannot be read.
    pub fn array(&self) -> Option<&Array> {
        match &self.node {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Returns the name of the dialect of the node's documents, or `None` if no document describes the node.
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

    /// Whether two entries of a node were read from the same documents, and the whole store was not replaced in
    /// between.
    pub(super) fn is_same_as(&self, other: &NodeEntry) -> bool {
        self.version == other.version && self.replacements == other.replacements
    }

    /// Whether the node's children are read from consolidated metadata, and are therefore known without requests.
    pub fn is_consolidated(&self) -> bool {
        self.child_context.consolidated.is_some()
    }

    /// Whether the node is an array, even one whose documents cannot be read; arrays have no children.
    pub fn is_array(&self) -> bool {
        let is_broken_array = self.broken.as_ref().is_some_and(|broken| broken.is_array);
        is_broken_array || self.array().is_some()
    }

    /// Whether a document describes the node; false for a folder that is a group only because it contains nodes.
    pub fn is_described(&self) -> bool {
        let documents = self.documents.as_deref();
        documents.is_none_or(|documents| !documents.is_empty())
    }

    /// Returns the keys of the documents that the node was read from: its own documents, or the consolidated metadata.
    pub fn described_by(&self) -> Vec<&Key> {
        let consolidated = self.child_context.consolidated.as_ref();
        match &self.documents {
            Some(documents) => documents.iter().map(|(key, _)| key).collect(),
            None => consolidated.map(|used| used.key()).into_iter().collect(),
        }
    }

    /// Returns the entry point of the draft of Zarr v3 that the node is in, or `None` if its documents are in its own
    /// folder.
    pub fn entry_point(&self) -> Option<&Arc<EntryPoint>> {
        match &self.child_context.rule {
            Rule::Draft(entry) => Some(entry),
            Rule::Plain(_) | Rule::Closed => None,
        }
    }

    /// Returns what consolidated metadata have under a key below the node; `Unknown` if nodes below this node are not
    /// read from consolidated metadata, or if these do not tell whether the key exists.
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

    /// Returns the keys of the documents that the node was read from and that are in its own folder, including the
    /// document of its consolidated metadata.
    pub fn documents_in_folder(&self) -> Vec<Key> {
        let names = IN_NODE_FOLDER.iter();
        let keys = names.filter_map(|name| self.path.child(name.as_bytes()).ok());
        keys.filter(|key| self.has_read(key)).collect()
    }

    /// Whether the node was read from the document with this key, or its consolidated metadata are in this document.
    fn has_read(&self, key: &Key) -> bool {
        let read = self.documents.as_deref().unwrap_or_default();
        let broken = self.broken.iter().flat_map(|broken| &broken.documents);
        let used = self.child_context.consolidated.as_ref();
        read.iter().any(|(read, _)| read == key)
            || broken.into_iter().any(|broken| broken.key == *key)
            || used.is_some_and(|used| used.is_source(key) || used.document(key).is_some())
    }

    /// Returns the group or array, or the error why its documents cannot be read.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().map_err(Error::clone)
    }
}

/// A stored metadata document of a node whose documents cannot be read.
#[derive(Clone, Debug)]
pub struct BrokenDocument {
    /// The store key of the metadata document.
    pub key: Key,
    /// The length of the document in bytes, and its version; `None` if the store cannot return the document.
    pub stored: Option<(u64, Version)>,
}

/// What is known of a node whose documents cannot be read.
#[derive(Clone, Debug)]
pub struct BrokenNode {
    /// The documents of the node that are stored.
    pub documents: Vec<BrokenDocument>,
    /// Whether the documents are those of an array, so that its folders contain chunks and not nodes.
    pub is_array: bool,
    /// Whether the node is the unreadable entry point of a hierarchy, so that the nodes below it cannot be located.
    pub is_entry_point: bool,
}

/// Whether a document seems to describe an array: by its members or, if it is not JSON, by words in its text.
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
        // A group's document may contain copies of the documents of arrays, so the words alone prove nothing there.
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

/// What consolidated metadata have under a key.
pub enum ConsolidatedEntry {
    /// The key is a folder with documents below it.
    Folder,
    /// The key is a metadata document.
    Document(ConsolidatedCopy),
}

/// A document in consolidated metadata, which shares their text.
pub struct ConsolidatedCopy {
    /// The text of the document.
    pub text: Bytes,
    /// The modification time of the consolidated metadata.
    pub modified: SystemTime,
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

/// Where the metadata documents of nodes are.
#[derive(Clone)]
pub(super) enum Rule {
    /// The documents are in the folder of each node, in the first of these dialects that has documents there.
    Plain(&'static [&'static Dialect]),
    /// The documents are at the keys that the entry point of the hierarchy defines, in a draft of Zarr v3.
    Draft(Arc<EntryPoint>),
    /// The documents cannot be found, because the entry point of the hierarchy cannot be read.
    Closed,
}

/// The state that a node passes on to its children: how their documents are found, and in which store.
#[derive(Clone)]
pub(super) struct ChildContext {
    pub(super) rule: Rule,
    /// The store that the children's documents are read from: the plain store, or a layer of consolidated metadata over
    /// it.
    pub(super) store: Arc<dyn Store>,
    /// The receiver of hints about the next reads of `store`.
    pub(super) hints: Arc<dyn Hints>,
    /// The keys of the documents that the other fields were read from.
    pub(super) depends: Dependencies,
    pub(super) consolidated: Option<Arc<Consolidated>>,
    /// The error of consolidated metadata that exist but cannot be read.
    pub(super) consolidated_error: Option<Arc<str>>,
    /// A number that differs between rules; 0 for the rule of the root.
    pub(super) version: u64,
}

impl ChildContext {
    /// Returns a value that identifies the child context (what a node passes on to its children) of a path.
    pub(super) fn identity(&self) -> (u64, Option<Version>) {
        (self.version, self.consolidated_version())
    }

    /// Returns the version of a group that no document describes.
    pub(super) fn implied_version(&self) -> u64 {
        match self.consolidated_version() {
            None => self.version,
            Some(consolidated) => hash_of((self.version, consolidated)),
        }
    }

    pub(super) fn consolidated_version(&self) -> Option<Version> {
        self.consolidated.as_ref().map(|used| used.version())
    }
}

pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
