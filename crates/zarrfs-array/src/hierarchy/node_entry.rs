//! Holds a node as last read from its documents; immutable and shared by its users.

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
    /// The versions to ask before the node is read again, if that is worth a request.
    pub(super) asked: Option<AskedVersions>,
    /// The identity of the scope that it was found in.
    pub(super) found_in: (u64, Option<Version>),
    pub(super) scope: ChildScope,
    /// The memory that the node counts in, until its last holder drops it; `None` if the budget had no room.
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

    /// Whether another reading has found the same documents, without a replacement of the whole store in between.
    pub(super) fn is_same_as(&self, other: &NodeEntry) -> bool {
        self.version == other.version && self.replacements == other.replacements
    }

    /// Whether its children are read from consolidated metadata, and so known without requests.
    pub fn is_consolidated(&self) -> bool {
        self.scope.consolidated.is_some()
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
