//! A node as its documents were read last: never changed, and shared by all that hold it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::hierarchy::asked_documents::AskedVersions;
use crate::hierarchy::broken::BrokenNode;
use crate::hierarchy::scope::{ChildScope, Rule};
use zarr_format::dialect::{DIALECTS, Dialect};
use zarr_format::error::{Error, Result};
use zarr_format::model::{Array, Node};
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, Version};

/// A node of a hierarchy, as its documents were read last.
pub struct NodeEntry {
    /// Its path.
    pub path: Key,
    /// The node, or the error about its documents.
    pub node: Result<Node>,
    /// Differs between states of the documents; 0 where there is nothing but a folder.
    pub version: u64,
    /// How often all of the store had been replaced when it was read.
    pub replacements: u64,
    /// When the documents were last changed.
    pub modified: SystemTime,
    /// What is known beside the error of a node whose documents do not read.
    pub broken: Option<BrokenNode>,
    /// The documents that it was read from and their versions; nothing if it was read from consolidated metadata.
    pub documents: Option<Arc<[(Key, Version)]>>,
    /// How long the documents are that views make of it, by their place in there; views note it.
    pub lengths: [OnceLock<u64>; 2],
    /// What the store was asked for, if that is worth asking about before the node is read again.
    pub(super) asked: Option<AskedVersions>,
    /// The scope that it was found in.
    pub(super) found_in: (u64, Option<Version>),
    pub(super) scope: ChildScope,
    /// The room of the node in the memory budget, until its last holder drops it; nothing if there was none left.
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
    /// Returns the array that this is; nothing if it is a group.
    pub fn array(&self) -> Option<&Array> {
        match &self.node {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Returns the name of the dialect whose documents describe it; nothing if none does.
    pub fn dialect(&self) -> Option<&'static str> {
        if let Some(array) = self.array() {
            return Some(array.dialect);
        }
        if let Rule::Draft(entry) = &self.scope.rule {
            return Some(entry.name());
        }
        let read = self.documents_in_folder();
        let is_of = |dialect: &&&Dialect| {
            let keys = (dialect.documents)(&self.path).unwrap_or_default();
            read.iter().any(|key| keys.contains(key))
        };
        DIALECTS.iter().find(is_of).map(|dialect| dialect.name)
    }

    /// Whether another reading has found the same documents, in the same content of a store that is replaced as a whole.
    pub(super) fn is_same_as(&self, other: &NodeEntry) -> bool {
        self.version == other.version && self.replacements == other.replacements
    }

    /// Whether its children are read from consolidated metadata, and so known without requests.
    pub fn is_consolidated(&self) -> bool {
        self.scope.consolidated.is_some()
    }

    /// Whether this is an array, whether it reads or not: it has no children.
    pub fn is_array(&self) -> bool {
        let is_broken_array = self.broken.as_ref().is_some_and(|broken| broken.is_array);
        is_broken_array || self.array().is_some()
    }

    /// Whether a document describes it; not so a folder that is a group only because nodes lie in it.
    pub fn is_described(&self) -> bool {
        let documents = self.documents.as_deref();
        documents.is_none_or(|documents| !documents.is_empty())
    }

    /// Returns the keys of the documents that it was read from: its own, or that of the consolidated metadata.
    pub fn described_by(&self) -> Vec<&Key> {
        let consolidated = self.scope.consolidated.as_ref();
        match &self.documents {
            Some(documents) => documents.iter().map(|(key, _)| key).collect(),
            None => consolidated.map(|used| used.key()).into_iter().collect(),
        }
    }

    /// Returns the node, or the error about its documents.
    pub fn node(&self) -> Result<&Node> {
        self.node.as_ref().map_err(Error::clone)
    }
}
