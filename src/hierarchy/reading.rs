//! The state of one reading of a node: which documents were read, and what the answer depends on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use crate::dialect::Document;
use crate::error::{Error, Kind, Result};
use crate::hierarchy::broken::{BrokenDocument, BrokenNode};
use crate::hierarchy::consolidated::Consolidated;
use crate::hierarchy::publish::DocumentVersions;
use crate::hierarchy::{ChildScope, MAX_DOCUMENT, NodeEntry, Rule};
use crate::model::Node;
use crate::model::document::ZARRAY;
use crate::store::{Dependencies, Key, Object};

/// One reading of a node.
pub(super) struct NodeReading<'a> {
    pub(super) path: &'a Key,
    /// The scope that the node was found in, and step by step that of its children.
    pub(super) scope: ChildScope,
    /// What the answer depends on beside what the scope does.
    pub(super) depends: Dependencies,
    /// When the newest of its documents was changed.
    pub(super) modified: Option<SystemTime>,
    /// Whether no document describes the node.
    pub(super) is_implied: bool,
    /// Whether a document that does not read is that of an array.
    pub(super) is_array: bool,
    /// A document that was read already and is needed once more.
    pub(super) kept: Option<Document>,
    /// The consolidated metadata that were looked for before the node's own documents, if there are some.
    pub(super) looked_up: Option<Option<Arc<Consolidated>>>,
    /// The entry of an earlier reading.
    pub(super) old: Option<&'a NodeEntry>,
    /// The documents that are stored.
    stored: Vec<BrokenDocument>,
    /// The documents that were read, with their versions; nothing if they are copies.
    documents: Option<DocumentVersions>,
    versions: DefaultHasher,
}

impl<'a> NodeReading<'a> {
    /// Begins to read the node at a path, of which an earlier reading has found `old`.
    pub(super) fn new(
        path: &'a Key,
        scope: ChildScope,
        old: Option<&'a NodeEntry>,
    ) -> NodeReading<'a> {
        let is_copied = scope.consolidated.is_some();
        NodeReading {
            path,
            scope,
            documents: (!is_copied).then(Vec::new),
            depends: Dependencies::default(),
            modified: None,
            is_implied: false,
            is_array: false,
            kept: None,
            looked_up: None,
            old,
            stored: Vec::new(),
            versions: DefaultHasher::new(),
        }
    }

    /// Puts consolidated metadata under the node's children.
    pub(super) fn use_consolidated(&mut self, used: Arc<Consolidated>) {
        self.scope.store = used.clone();
        self.scope.hints = used.clone();
        self.scope.consolidated = Some(used);
    }

    /// Has the node's own documents read from consolidated metadata, too.
    pub(super) fn read_copies(&mut self, used: Arc<Consolidated>) {
        self.documents = None;
        self.use_consolidated(used);
    }

    /// Reads a document. One whose name is too long is missing.
    pub(super) fn document(&mut self, key: &Key) -> Result<Document> {
        if let Some(kept) = self.kept.take_if(|kept| kept.key == *key) {
            return Ok(kept);
        }
        self.scope.depends.add_key(key);
        let object = match self.scope.store.get(key, MAX_DOCUMENT) {
            Err(error) if error.kind() == Kind::NameTooLong => None,
            answer => {
                self.note_stored(key, &answer);
                answer?
            }
        };
        if let Some(object) = &object {
            (key, object.version).hash(&mut self.versions);
            if let Some(documents) = &mut self.documents {
                documents.push((key.clone(), object.version));
            }
            let modified = match object.modified {
                None => self.scope.store.head(key)?.map(|meta| meta.modified),
                known => known,
            };
            self.modified = self.modified.max(modified);
        }
        Ok(Document {
            key: key.clone(),
            bytes: object.map(|object| object.bytes),
        })
    }

    /// Notes a document that the store has, though it may not give it.
    fn note_stored(&mut self, key: &Key, answer: &Result<Option<Object>>) {
        let stored = match answer {
            Ok(Some(object)) => Some((object.size, object.version)),
            Err(error) if is_lasting(error.kind()) => None,
            Ok(None) | Err(_) => return,
        };
        let key = key.clone();
        self.stored.push(BrokenDocument { key, stored });
    }

    /// Returns all that the answer depends on.
    pub(super) fn dependencies(&self) -> Dependencies {
        self.scope.depends.with(&self.depends)
    }

    /// Returns the entry of the node that was read.
    pub(super) fn entry(self, node: Result<Node>) -> NodeEntry {
        let version = if self.is_implied {
            self.scope.implied_version()
        } else {
            let mut versions = self.versions;
            self.scope.version.hash(&mut versions);
            if !matches!(node, Ok(Node::Array(_))) {
                self.scope.consolidated_version().hash(&mut versions);
            }
            versions.finish()
        };
        let broken = |_: &Error| BrokenNode {
            is_array: self.is_array || self.stored.iter().any(is_of_v2_array),
            is_entry_point: matches!(self.scope.rule, Rule::Closed),
            documents: self.stored,
        };
        NodeEntry {
            path: self.path.clone(),
            broken: node.as_ref().err().map(broken),
            node,
            version,
            modified: self.modified.unwrap_or(SystemTime::UNIX_EPOCH),
            documents: self.documents.map(Arc::from),
            scope: self.scope,
        }
    }
}

/// Whether a document is that of an array by its name.
fn is_of_v2_array(document: &BrokenDocument) -> bool {
    document.key.name() == ZARRAY.as_bytes()
}

/// Whether an error is about the documents themselves and not about the store: asking again would not help.
pub(super) fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported
    )
}
