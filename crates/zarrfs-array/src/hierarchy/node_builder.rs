//! Collects the documents of a node while it is read, and builds its entry.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::hierarchy::consolidated::{Consolidated, version_of};
use crate::hierarchy::edit::DocumentVersions;
use crate::hierarchy::node_entry::{BrokenDocument, BrokenNode};
use crate::hierarchy::node_entry::{ChildContext, Rule};
use crate::hierarchy::{MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::Document;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::Node;
use zarr_format::model::document::ZARRAY;
use zarrfs_store::Presence;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Dependencies, EntryKind, Key, Object, Version};

/// If the documents of a node have at least this many bytes together, the store is asked for their versions before the
/// node is read again. Reading shorter documents costs as much as a request for their versions.
const MIN_VALIDATED: usize = 64 << 10;

/// A node that is being read, with the findings of the documents that were read so far.
pub(super) struct NodeBuilder<'a> {
    pub(super) path: &'a Key,
    /// At first the child context that the parent passes on; reading the node turns it into the node's own child
    /// context.
    pub(super) child_context: ChildContext,
    /// The identity of the child context that the parent passes on.
    parent_context: (u64, Option<Version>),
    /// How many times the whole store (a ZIP archive, for example) had been replaced before the node was read.
    replacements: u64,
    /// The keys that the result depends on, besides those of `child_context`.
    pub(super) depends: Dependencies,
    /// The latest modification time of the documents that were read.
    pub(super) modified: Option<SystemTime>,
    /// Whether no document describes the node, so that it is a group only as a directory.
    pub(super) is_implied: bool,
    /// Whether a document that cannot be read is that of an array.
    pub(super) is_array: bool,
    /// A document that was already read and does not need to be read again.
    pub(super) reusable: Option<Document>,
    /// The consolidated metadata that were looked up before the node's own documents.
    pub(super) looked_up: Presence<Arc<Consolidated>>,
    /// The entry of the node from an earlier time, whose parts are used again if they are unchanged.
    pub(super) old: Option<&'a NodeEntry>,
    stored: Vec<BrokenDocument>,
    /// The documents that were requested, with their versions, by which it is found out later whether the node is
    /// unchanged. `validated_bytes` is the total length of these documents in bytes.
    validators: Vec<(Key, Option<Version>)>,
    validated_bytes: usize,
    /// The documents that were read, with their versions; `None` if they are copies from consolidated metadata.
    documents: Option<DocumentVersions>,
    versions: DefaultHasher,
}

impl<'a> NodeBuilder<'a> {
    /// Begins to read the node at a path; `old` is its entry from an earlier time.
    pub(super) fn new(
        path: &'a Key,
        child_context: ChildContext,
        old: Option<&'a NodeEntry>,
    ) -> NodeBuilder<'a> {
        let is_copied = child_context.consolidated.is_some();
        NodeBuilder {
            path,
            parent_context: child_context.identity(),
            replacements: child_context.store.info().archive_generation.number(),
            child_context,
            documents: (!is_copied).then(Vec::new),
            depends: Dependencies::default(),
            modified: None,
            is_implied: false,
            is_array: false,
            reusable: None,
            looked_up: Presence::Unknown,
            old,
            stored: Vec::new(),
            validators: Vec::new(),
            validated_bytes: 0,
            versions: DefaultHasher::new(),
        }
    }

    /// Serves the documents of the node's children from consolidated metadata.
    pub(super) fn use_consolidated(&mut self, used: Arc<Consolidated>) {
        self.child_context.store = used.clone();
        self.child_context.hints = used.clone();
        self.child_context.consolidated = Some(used);
    }

    /// Serves the node's own documents, too, from consolidated metadata.
    pub(super) fn read_copies(&mut self, used: Arc<Consolidated>) {
        self.documents = None;
        self.use_consolidated(used);
    }

    /// Reads a metadata document. A document whose name is too long counts as missing. A document that is too long is
    /// returned with an error in place of its text, so that very long attributes do not block access to the data.
    pub(super) fn document(&mut self, context: &RequestContext, key: &Key) -> Result<Document> {
        if let Some(document) = self.reusable.take_if(|document| document.key == *key) {
            return Ok(document);
        }
        self.child_context.depends.add_key(key);
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
        self.record_validator(key, object.as_ref());
        if let Some(object) = &object {
            self.record_version(context, key, object)?;
        }
        Ok(Document {
            key: key.clone(),
            bytes: object.map(|object| object.bytes.into()),
            refusal,
        })
    }

    /// Reads a document from the store; returns the reason in place of the document if the document is too long.
    fn stored(
        &mut self,
        context: &RequestContext,
        key: &Key,
    ) -> Result<(Option<Object>, Option<String>)> {
        let answer = match self.child_context.store.get(context, key, MAX_DOCUMENT) {
            Err(error) if error.kind() == Kind::NameTooLong => return Ok((None, None)),
            answer => answer,
        };
        self.record_stored(key, &answer);
        match answer {
            Err(error) if error.kind() == Kind::TooLarge => {
                Ok((None, Some(error.detail().to_string())))
            }
            answer => Ok((answer?, None)),
        }
    }

    /// Adds a document's version and modification time to those of the node.
    fn record_version(
        &mut self,
        context: &RequestContext,
        key: &Key,
        object: &Object,
    ) -> Result<()> {
        (key, object.version).hash(&mut self.versions);
        if let Some(documents) = &mut self.documents {
            documents.push((key.clone(), object.version));
        }
        let modified = match object.modified {
            None => self
                .child_context
                .store
                .head(context, key)?
                .map(|meta| meta.modified),
            known => known,
        };
        self.modified = self.modified.max(modified);
        Ok(())
    }

    /// Records which version of a document the store returned, or that the document is missing.
    pub(super) fn record_validator(&mut self, key: &Key, object: Option<&Object>) {
        self.validated_bytes += object.map_or(0, |object| object.bytes.len());
        let version = object.map(|object| object.version);
        self.validators.push((key.clone(), version));
    }

    /// Returns the copy of a document in consolidated metadata, as a slice of their text.
    fn copy_of(&mut self, key: &Key) -> Presence<Bytes> {
        let Some(copies) = self.child_context.consolidated.clone() else {
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

    /// Records that a document exists in the store, even if it cannot be read.
    fn record_stored(&mut self, key: &Key, answer: &Result<Option<Object>>) {
        let stored = match answer {
            Ok(Some(object)) => Some((object.size, object.version)),
            Err(error) if is_lasting(error.kind()) => None,
            Ok(None) | Err(_) => return,
        };
        let key = key.clone();
        self.stored.push(BrokenDocument { key, stored });
    }

    pub(super) fn dependencies(&self) -> Dependencies {
        self.child_context.depends.with(&self.depends)
    }

    /// Builds the entry of the node from its parsed documents.
    pub(super) fn entry(self, node: Result<Node>) -> NodeEntry {
        let version = if self.is_implied {
            self.child_context.implied_version()
        } else {
            let mut versions = self.versions;
            self.child_context.version.hash(&mut versions);
            if !matches!(node, Ok(Node::Array(_))) {
                self.child_context
                    .consolidated_version()
                    .hash(&mut versions);
                self.child_context.consolidated_error.hash(&mut versions);
            }
            versions.finish()
        };
        if let Err(error) = &node
            && error.kind() == Kind::Corrupt
        {
            let stored = self.stored.iter();
            stored.for_each(|document| self.child_context.store.drop_cached(&document.key, None));
        }
        let mut known = self.validators.iter().filter_map(|(_, version)| *version);
        let is_worth_asking =
            self.validated_bytes >= MIN_VALIDATED && known.all(Version::is_lasting);
        let broken = |_: &Error| BrokenNode {
            is_array: self.is_array || self.stored.iter().any(is_of_v2_array),
            is_entry_point: matches!(self.child_context.rule, Rule::Closed),
            documents: self.stored,
        };
        NodeEntry {
            validators: (is_worth_asking && node.is_ok()).then(|| self.validators.into()),
            parent_context: self.parent_context,
            replacements: self.replacements,
            path: self.path.clone(),
            broken: node.as_ref().err().map(broken),
            node,
            version,
            modified: self.modified.unwrap_or(SystemTime::UNIX_EPOCH),
            documents: self.documents.map(Arc::from),
            child_context: self.child_context,
            lengths: Default::default(),
            room: None,
        }
    }
}

/// Whether a document's name shows that it is an array's.
fn is_of_v2_array(document: &BrokenDocument) -> bool {
    document.key.name() == ZARRAY.as_bytes()
}

/// Whether an error is caused by the document and not by the store, so that a retry would not help.
pub(super) fn is_lasting(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::TooLarge | Kind::Corrupt | Kind::Denied | Kind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Hierarchy;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::layer::counting::CountingStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::stats::Stats;

    fn group(words: &str) -> Vec<u8> {
        let words = words.repeat(MIN_VALIDATED);
        format!(r#"{{"zarr_format": 3, "node_type": "group", "attributes": {{"a": "{words}"}}}}"#)
            .into_bytes()
    }

    #[test]
    fn unchanged_long_documents_are_read_once() {
        let (memory, stats) = (Arc::new(MemoryStore::default()), Arc::new(Stats::default()));
        let key = Key::new("zarr.json").unwrap();
        memory.set(key.clone(), group("x"));
        let store = CountingStore::new(memory.clone(), stats.clone());
        let hierarchy = Hierarchy::new(Arc::new(store));
        let read = || {
            let root = hierarchy.node(&UNLIMITED, &Key::root()).unwrap().unwrap();
            let attributes = root.node().unwrap().attributes().text().len();
            (stats.store_get_requests.get(), attributes)
        };
        let (first, length) = read();
        assert_eq!(read(), (first, length));
        memory.set(key, group("yy"));
        assert_eq!(read(), (2 * first, length + MIN_VALIDATED));
    }
}
