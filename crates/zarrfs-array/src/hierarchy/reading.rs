//! Holds the state of one reading of a node: its documents and its dependencies.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::hierarchy::asked_documents::AskedDocuments;
use crate::hierarchy::broken::{BrokenDocument, BrokenNode};
use crate::hierarchy::consolidated::{Consolidated, version_of};
use crate::hierarchy::publish::DocumentVersions;
use crate::hierarchy::scope::{ChildScope, Rule};
use crate::hierarchy::{MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::Document;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarr_format::model::document::ZARRAY;
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Dependencies, EntryKind, Key, Object, Version};

/// One reading of a node.
pub(super) struct NodeReading<'a> {
    pub(super) path: &'a Key,
    /// The scope that the node was found in; becomes the scope of its children step by step.
    pub(super) scope: ChildScope,
    /// The identity of the scope that the node was found in.
    found_in: (u64, Option<Version>),
    /// How many times the whole store had been replaced before the reading.
    replacements: u64,
    /// The dependencies of the answer besides those of the scope.
    pub(super) depends: Dependencies,
    /// The time of the last change of any of its documents.
    pub(super) modified: Option<SystemTime>,
    /// Whether no document describes the node.
    pub(super) is_implied: bool,
    /// Whether an unreadable document is an array's.
    pub(super) is_array: bool,
    /// A document that was read and is needed once more.
    pub(super) kept: Option<Document>,
    /// The consolidated metadata that were looked up before the node's own documents.
    pub(super) looked_up: Presence<Arc<Consolidated>>,
    /// The entry of an earlier reading.
    pub(super) old: Option<&'a NodeEntry>,
    /// The documents that exist in the store.
    stored: Vec<BrokenDocument>,
    /// The keys and versions that show a later reading whether the node is unchanged.
    asked: AskedDocuments,
    /// The documents that were read, with their versions; `None` if they are copies.
    documents: Option<DocumentVersions>,
    versions: DefaultHasher,
}

impl<'a> NodeReading<'a> {
    /// Begins a reading of the node at a path; `old` is the entry of an earlier reading.
    pub(super) fn new(
        path: &'a Key,
        scope: ChildScope,
        old: Option<&'a NodeEntry>,
    ) -> NodeReading<'a> {
        let is_copied = scope.consolidated.is_some();
        NodeReading {
            path,
            found_in: scope.identity(),
            replacements: scope.store.info().archive_generation.number(),
            scope,
            documents: (!is_copied).then(Vec::new),
            depends: Dependencies::default(),
            modified: None,
            is_implied: false,
            is_array: false,
            kept: None,
            looked_up: Presence::Unknown,
            old,
            stored: Vec::new(),
            asked: AskedDocuments::default(),
            versions: DefaultHasher::new(),
        }
    }

    /// Layers consolidated metadata below the node's children.
    pub(super) fn use_consolidated(&mut self, used: Arc<Consolidated>) {
        self.scope.store = used.clone();
        self.scope.hints = used.clone();
        self.scope.consolidated = Some(used);
    }

    /// Reads the node's own documents from consolidated metadata too.
    pub(super) fn read_copies(&mut self, used: Arc<Consolidated>) {
        self.documents = None;
        self.use_consolidated(used);
    }

    /// Reads a document. A document whose name is too long is missing. A document that is too long gets a refusal in
    /// place of its text, so that attributes of any length do not block access to the data.
    pub(super) fn document(&mut self, context: &RequestContext, key: &Key) -> Result<Document> {
        if let Some(kept) = self.kept.take_if(|kept| kept.key == *key) {
            return Ok(kept);
        }
        self.scope.depends.add_key(key);
        match self.copy_of(key) {
            Presence::Unknown => {}
            known => {
                return Ok(Document {
                    key: key.clone(),
                    bytes: known.value(),
                    ..Document::default()
                });
            }
        }
        let (object, refusal) = self.stored(context, key)?;
        self.note_asked(key, object.as_ref());
        if let Some(object) = &object {
            self.note_version(context, key, object)?;
        }
        Ok(Document {
            key: key.clone(),
            bytes: object.map(|object| object.bytes.into()),
            refusal,
        })
    }

    /// Reads a document from the store; returns the reason in place of the text if it is too long.
    fn stored(
        &mut self,
        context: &RequestContext,
        key: &Key,
    ) -> Result<(Option<Object>, Option<String>)> {
        let answer = match self.scope.store.get(context, key, MAX_DOCUMENT) {
            Err(error) if error.kind() == Kind::NameTooLong => return Ok((None, None)),
            answer => answer,
        };
        self.note_stored(key, &answer);
        match answer {
            Err(error) if error.kind() == Kind::TooLarge => {
                Ok((None, Some(error.detail().to_string())))
            }
            answer => Ok((answer?, None)),
        }
    }

    /// Records the version and time of a document in the node's version.
    fn note_version(&mut self, context: &RequestContext, key: &Key, object: &Object) -> Result<()> {
        (key, object.version).hash(&mut self.versions);
        if let Some(documents) = &mut self.documents {
            documents.push((key.clone(), object.version));
        }
        let modified = match object.modified {
            None => self
                .scope
                .store
                .head(context, key)?
                .map(|meta| meta.modified),
            known => known,
        };
        self.modified = self.modified.max(modified);
        Ok(())
    }

    /// Records an answer of the store.
    pub(super) fn note_asked(&mut self, key: &Key, object: Option<&Object>) {
        self.asked.note(key, object);
    }

    /// Returns a document from consolidated metadata, as a slice of their text.
    fn copy_of(&mut self, key: &Key) -> Presence<Bytes> {
        let Some(copies) = self.scope.consolidated.clone() else {
            return Presence::Unknown;
        };
        let bytes = match copies.kind_of(key) {
            Presence::Is(EntryKind::File) => copies.document(key).unwrap_or_default(),
            Presence::Missing => return Presence::Missing,
            Presence::Is(_) | Presence::Unknown => return Presence::Unknown,
        };
        if bytes.len() as u64 > MAX_DOCUMENT {
            return Presence::Unknown;
        }
        let version = version_of(&bytes);
        (key, version).hash(&mut self.versions);
        self.modified = self.modified.max(Some(copies.modified()));
        self.stored.push(BrokenDocument {
            key: key.clone(),
            stored: Some((bytes.len() as u64, version)),
        });
        Presence::Is(bytes)
    }

    /// Records a document that exists in the store, even if it cannot be read.
    fn note_stored(&mut self, key: &Key, answer: &Result<Option<Object>>) {
        let stored = match answer {
            Ok(Some(object)) => Some((object.size, object.version)),
            Err(error) if is_lasting(error.kind()) => None,
            Ok(None) | Err(_) => return,
        };
        let key = key.clone();
        self.stored.push(BrokenDocument { key, stored });
    }

    /// Returns all dependencies of the answer.
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
                self.scope.unread_copies.hash(&mut versions);
            }
            versions.finish()
        };
        if let Err(error) = &node
            && error.kind() == Kind::Corrupt
        {
            let stored = self.stored.iter();
            stored.for_each(|document| self.scope.store.drop_cached(&document.key, None));
        }
        let broken = |_: &Error| BrokenNode {
            is_array: self.is_array || self.stored.iter().any(is_of_v2_array),
            is_entry_point: matches!(self.scope.rule, Rule::Closed),
            documents: self.stored,
        };
        NodeEntry {
            asked: self.asked.worth_asking(node.is_ok()),
            found_in: self.found_in,
            replacements: self.replacements,
            path: self.path.clone(),
            broken: node.as_ref().err().map(broken),
            node,
            version,
            modified: self.modified.unwrap_or(SystemTime::UNIX_EPOCH),
            documents: self.documents.map(Arc::from),
            scope: self.scope,
            lengths: Default::default(),
            room: None,
        }
    }
}

/// Whether a document is an array's by its name.
fn is_of_v2_array(document: &BrokenDocument) -> bool {
    document.key.name() == ZARRAY.as_bytes()
}

/// Whether an error is about the documents and not about the store, so that a retry would not help.
pub(super) fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported
    )
}
