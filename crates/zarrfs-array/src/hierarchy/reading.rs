//! The state of one reading of a node: which documents were read, and what the answer depends on.

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
use zarrfs_store::known::Known;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Dependencies, EntryKind, Key, Object, Version};

/// One reading of a node.
pub(super) struct NodeReading<'a> {
    pub(super) path: &'a Key,
    /// The scope that the node was found in, and step by step that of its children.
    pub(super) scope: ChildScope,
    /// What tells the scope that the node was found in from others.
    found_in: (u64, Option<Version>),
    /// How often all of the store had been replaced before.
    replacements: u64,
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
    pub(super) looked_up: Known<Arc<Consolidated>>,
    /// The entry of an earlier reading.
    pub(super) old: Option<&'a NodeEntry>,
    /// The documents that are stored.
    stored: Vec<BrokenDocument>,
    /// What the store was asked for, by which a later reading finds out whether it has to be read again.
    asked: AskedDocuments,
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
            found_in: scope.identity(),
            replacements: scope.store.info().replacements.count(),
            scope,
            documents: (!is_copied).then(Vec::new),
            depends: Dependencies::default(),
            modified: None,
            is_implied: false,
            is_array: false,
            kept: None,
            looked_up: Known::Unknown,
            old,
            stored: Vec::new(),
            asked: AskedDocuments::default(),
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

    /// Reads a document. One whose name is too long is missing. One that is too long is refused in its own text alone:
    /// attributes of any length stop no data.
    pub(super) fn document(&mut self, context: &RequestContext, key: &Key) -> Result<Document> {
        if let Some(kept) = self.kept.take_if(|kept| kept.key == *key) {
            return Ok(kept);
        }
        self.scope.depends.add_key(key);
        match self.copy_of(key) {
            Known::Unknown => {}
            known => {
                return Ok(Document {
                    key: key.clone(),
                    bytes: known.found(),
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

    /// Reads a document from the store, or why its text is refused.
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

    /// Has the node depend on a document as it was read.
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

    /// Notes what the store has given for a key.
    pub(super) fn note_asked(&mut self, key: &Key, object: Option<&Object>) {
        self.asked.note(key, object);
    }

    /// Returns a document that consolidated metadata have, which is not copied.
    fn copy_of(&mut self, key: &Key) -> Known<Bytes> {
        let Some(copies) = self.scope.consolidated.clone() else {
            return Known::Unknown;
        };
        let bytes = match copies.kind_of(key) {
            Known::Is(EntryKind::File) => copies.document(key).unwrap_or_default(),
            Known::Missing => return Known::Missing,
            Known::Is(_) | Known::Unknown => return Known::Unknown,
        };
        if bytes.len() as u64 > MAX_DOCUMENT {
            return Known::Unknown;
        }
        let version = version_of(&bytes);
        (key, version).hash(&mut self.versions);
        self.modified = self.modified.max(Some(copies.modified()));
        self.stored.push(BrokenDocument {
            key: key.clone(),
            stored: Some((bytes.len() as u64, version)),
        });
        Known::Is(bytes)
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
                self.scope.unread_copies.hash(&mut versions);
            }
            versions.finish()
        };
        if let Err(error) = &node
            && error.kind() == Kind::Corrupt
        {
            let stored = self.stored.iter();
            stored.for_each(|document| self.scope.store.doubt(&document.key, None));
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
