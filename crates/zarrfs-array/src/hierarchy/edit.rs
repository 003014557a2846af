//! Edits the attributes of a node in its metadata documents.
//!
//! An edit is planned from the stored documents, and put on the condition that they are unchanged. If a document was
//! changed in between, the edit is planned again. The author of an edit may have seen another state of the node than
//! the stored one. Then the put has the versions that the author saw as its condition, and so fails with `Changed`. The
//! edited documents are parsed before they are stored: if they would read as another node, the edit is refused and the
//! old documents stay. The copies of the documents in consolidated metadata are not put: the overlay derives these
//! copies from the documents (`derived.rs` of `zarrfs-overlay`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::hierarchy::node_entry::Rule;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::draft::{DocumentRole, EntryPoint};
use zarr_format::dialect::{Dialect, Document, DocumentMap, n5};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Group, Node};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, Key, Store, Version};

/// A metadata document with its new bytes, to be put.
struct DocumentChange {
    key: Key,
    bytes: Vec<u8>,
    /// The condition of the put: the document is unchanged since it was read.
    condition: Condition,
}

/// The state in which the author of an edit saw the node.
#[derive(Clone, Copy)]
pub struct ExpectedNode<'a> {
    /// Returns whether a node is in the state that the author saw.
    pub matches: &'a dyn Fn(&Node) -> bool,
    /// The metadata documents of the state that the author saw, with their versions; `None` if these are not known.
    pub documents: Option<&'a [(Key, Version)]>,
}

/// A node after an edit, with the documents that describe it.
pub struct EditedNode {
    /// The node with its new attributes.
    pub node: Node,
    /// The metadata documents that describe the node, with their versions after the edit.
    pub documents: DocumentVersions,
}

/// A planned edit of a node's attributes: the node before and after, and the documents to change.
struct EditPlan {
    old: Node,
    new: Node,
    read: DocumentVersions,
    changes: DocumentMap,
}

impl EditPlan {
    /// Returns the documents to put, each on the condition that it still has its version in `read`, or is missing if
    /// `read` lacks it.
    fn conditional(&self, read: &[(Key, Version)]) -> Vec<DocumentChange> {
        let change = |change: &(Key, Vec<u8>)| {
            let (key, bytes) = change;
            let version = read.iter().find(|(read, _)| read == key);
            DocumentChange {
                key: key.clone(),
                bytes: bytes.clone(),
                condition: Condition::unchanged(version.map(|(_, version)| *version)),
            }
        };
        self.changes.iter().map(change).collect()
    }

    /// Returns the node after the edit; `published` has the new versions of the documents that were put.
    fn edited(self, published: DocumentVersions) -> EditedNode {
        let mut documents = self.read;
        documents.retain(|(key, _)| self.changes.iter().all(|(changed, _)| changed != key));
        documents.extend(published);
        EditedNode {
            node: self.new,
            documents,
        }
    }
}

pub(super) struct AttributesEdit<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) context: &'a RequestContext,
    pub(super) node: &'a NodeEntry,
    pub(super) attributes: &'a Attributes,
    pub(super) seen: Option<ExpectedNode<'a>>,
}

impl AttributesEdit<'_> {
    /// Plans an edit and puts the changed documents; retries if another program changes the documents in between.
    pub(super) fn run(&self) -> Result<EditedNode> {
        let path = &self.node.path;
        let mut refused = None;
        // The edit fails if other programs change the documents during each attempt.
        for _ in 0..16 {
            let plan = self.plan()?;
            if plan.changes.is_empty() {
                // If the store below an overlay has refused a put, the overlay still shows the new bytes. So if nothing
                // is left to change after a refused put, the edit was not stored, and the error of that put is
                // returned.
                return match refused {
                    None => Ok(plan.edited(Vec::new())),
                    Some(error) => Err(error),
                };
            }
            let unseen = self.seen.filter(|seen| !(seen.matches)(&plan.old));
            let read = match unseen {
                None => Some(plan.read.as_slice()),
                Some(seen) => seen.documents,
            };
            let published = read
                .ok_or_else(|| changed(path))
                .and_then(|read| self.put_all(&plan.conditional(read)));
            match published {
                Err(error) if error.kind() == Kind::Changed && unseen.is_none() => {
                    refused = Some(error);
                }
                published => return Ok(plan.edited(published?)),
            }
        }
        Err(refused.unwrap_or_else(|| changed(path)))
    }

    fn plan(&self) -> Result<EditPlan> {
        let (path, attributes) = (&self.node.path, self.attributes);
        let store = &**self.hierarchy.store();
        let Some(documents) = NodeDocuments::read(store, self.context, self.node)? else {
            return Err(undescribed(self.node));
        };
        let invalid = |error: Error| Error::invalid(path, error);
        let old = documents.format.parse(path, &documents.documents);
        let old = old.map_err(invalid)?;
        let (new, changes) = if old.attributes() == attributes {
            (old.clone(), DocumentMap::new())
        } else {
            attributes
                .check_replaces(old.attributes())
                .map_err(invalid)?;
            let changes = documents.edited(attributes)?;
            let new = self.parse_edited(&documents, &changes, &old);
            (new.map_err(invalid)?, changes)
        };
        Ok(EditPlan {
            old,
            new,
            read: documents.versions,
            changes,
        })
    }

    /// Parses the edited documents of a node; fails unless they describe the old node with the new attributes.
    fn parse_edited(
        &self,
        stored: &NodeDocuments,
        edited: &DocumentMap,
        old: &Node,
    ) -> Result<Node> {
        let changed = |document: &Document| {
            let new = edited.iter().find(|(key, _)| *key == document.key);
            Document {
                key: document.key.clone(),
                bytes: match new {
                    Some((_, bytes)) => Some(bytes.clone().into()),
                    None => document.bytes.clone(),
                },
                ..Document::default()
            }
        };
        let documents: Vec<Document> = stored.documents.iter().map(changed).collect();
        let read = stored.format.parse(&self.node.path, &documents)?;
        if !is_same_data(old, &read) {
            let why = "the change would alter the meaning of the stored chunks";
            return Err(Error::invalid("attributes", why));
        }
        if read.attributes() != self.attributes {
            let dialect = stored.format.name();
            let why = format!("{dialect} cannot store these attributes unchanged");
            return Err(Error::invalid("attributes", why));
        }
        Ok(read)
    }

    /// Puts documents in the given order, and returns their new versions. `Changed` if the stored version of a document
    /// is not the one that the edit was planned from.
    fn put_all(&self, changes: &[DocumentChange]) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for change in changes {
            let etag =
                self.hierarchy
                    .put(self.context, &change.key, &change.bytes, &change.condition)?;
            versions.push((change.key.clone(), etag.version));
        }
        Ok(versions)
    }
}

/// Whether two nodes are groups, or arrays whose stored chunks hold the same elements.
fn is_same_data(old: &Node, new: &Node) -> bool {
    match (old, new) {
        (Node::Group(_), Node::Group(_)) => true,
        (Node::Array(old), Node::Array(new)) => new.is_stored_like(old) && new.shape == old.shape,
        _ => false,
    }
}

/// Returns the error that a node has no documents to edit: it is a bare folder, or its documents were removed.
fn undescribed(found: &NodeEntry) -> Error {
    if found
        .node
        .as_ref()
        .is_ok_and(|node| *node == Node::Group(Group::default()))
    {
        let why =
            "this group has no metadata file; create one in the store view, DIR/.zarrfs/store";
        return Error::invalid(&found.path, why);
    }
    let why = "the metadata files were removed or can no longer be read";
    Error::new(Kind::Changed, &found.path, why)
}

/// Returns the error that the node was changed after the author of the edit had read it.
fn changed(path: &Key) -> Error {
    Error::new(
        Kind::Changed,
        path,
        "was changed by another program since it was read",
    )
}

/// The keys of metadata documents, with their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

pub(super) enum DocumentFormat {
    /// The documents are those of a released dialect, in the folder of the node.
    Plain(&'static Dialect),
    /// The document is that of a draft of Zarr v3, at the key that the hierarchy's entry point defines.
    Draft(Arc<EntryPoint>),
}

impl DocumentFormat {
    pub(super) fn name(&self) -> &'static str {
        match self {
            DocumentFormat::Plain(dialect) => dialect.name,
            DocumentFormat::Draft(entry) => entry.name(),
        }
    }

    /// Parses the documents of a node; `Corrupt` if they describe neither a group nor an array.
    pub(super) fn parse(&self, path: &Key, documents: &[Document]) -> Result<Node> {
        let none = || {
            Error::corrupt(
                path,
                "the metadata files describe neither a group nor an array",
            )
        };
        match self {
            DocumentFormat::Plain(dialect) => {
                // `n5::DIALECT` accepts only documents whose members prove that they are of N5. The node is known to be
                // of N5 here, so `n5::WITHIN` is used, which accepts any members.
                let is_n5 = dialect.name == n5::DIALECT.name;
                let parse = if is_n5 {
                    n5::WITHIN.parse
                } else {
                    dialect.parse
                };
                Ok(parse(path, documents)?.ok_or_else(none)?.node)
            }
            DocumentFormat::Draft(entry) => {
                let document = documents.first().ok_or_else(none)?;
                let members = document.object()?.ok_or_else(none)?;
                let mut keys = entry.documents(path)?.into_iter();
                let role = keys.find(|(_, key)| *key == document.key);
                let role = role.map_or(DocumentRole::Group, |(role, _)| role);
                Ok(entry.parse(path, role, document, &members)?.node)
            }
        }
    }
}

/// The metadata documents that may describe a node in its format; at least one is stored.
pub(super) struct NodeDocuments {
    pub(super) format: DocumentFormat,
    pub(super) documents: Vec<Document>,
    pub(super) versions: DocumentVersions,
}

impl NodeDocuments {
    /// Returns the stored documents of a node, or `None` if no document describes it.
    pub(super) fn read(
        store: &dyn Store,
        context: &RequestContext,
        node: &NodeEntry,
    ) -> Result<Option<NodeDocuments>> {
        let path = &node.path;
        match &node.child_context.rule {
            Rule::Plain(dialects) => {
                for dialect in *dialects {
                    let mut versions = DocumentVersions::new();
                    let keys = (dialect.documents)(path)?.into_iter();
                    let documents = keys
                        .map(|key| stored_document(store, context, key, &mut versions))
                        .collect::<Result<Vec<_>>>()?;
                    if matches!((dialect.parse)(path, &documents), Ok(Some(_))) {
                        return Ok(Some(NodeDocuments {
                            format: DocumentFormat::Plain(dialect),
                            documents,
                            versions,
                        }));
                    }
                }
            }
            Rule::Draft(entry) => {
                for (_, key) in entry.documents(path)? {
                    let mut versions = DocumentVersions::new();
                    let document = stored_document(store, context, key, &mut versions)?;
                    if document.bytes.is_some() {
                        return Ok(Some(NodeDocuments {
                            format: DocumentFormat::Draft(entry.clone()),
                            documents: vec![document],
                            versions,
                        }));
                    }
                }
            }
            Rule::Closed => {
                let why = "the entry point of the hierarchy cannot be read";
                return Err(Error::invalid(path, why));
            }
        }
        Ok(None)
    }

    /// Returns the documents that have to change for the node to get these attributes, with their new bytes.
    pub(super) fn edited(&self, attributes: &Attributes) -> Result<DocumentMap> {
        match &self.format {
            DocumentFormat::Plain(dialect) => (dialect.edit)(&self.documents, attributes),
            DocumentFormat::Draft(entry) => match self.documents.first() {
                Some(document) => entry.edit(document, attributes),
                None => Ok(Vec::new()),
            },
        }
    }
}

/// Reads a document and adds its version to `versions`. A document whose name is too long counts as missing.
fn stored_document(
    store: &dyn Store,
    context: &RequestContext,
    key: Key,
    versions: &mut DocumentVersions,
) -> Result<Document> {
    let object = match store.get(context, &key, MAX_DOCUMENT) {
        Err(error) if error.kind() == Kind::NameTooLong => None,
        answer => answer?,
    };
    versions.extend(object.as_ref().map(|object| (key.clone(), object.version)));
    Ok(Document {
        key,
        bytes: object.map(|object| object.bytes.into()),
        ..Document::default()
    })
}

/// Locks the folders whose metadata documents are being edited.
///
/// An edit holds one lock at a time. Only edits of documents in the same folder block each other, however long the
/// store takes.
#[derive(Default)]
pub(super) struct DocumentLocks(Mutex<HashMap<Key, Arc<Mutex<()>>>>);

impl DocumentLocks {
    /// Calls `edit` while no other edit of documents in the given folder runs.
    pub(super) fn with<T>(&self, folder: &Key, edit: impl FnOnce() -> T) -> T {
        let lock = self.0.lock().entry(folder.clone()).or_default().clone();
        let locked = lock.lock();
        let done = edit();
        drop(locked);
        drop(lock);
        let mut locks = self.0.lock();
        if locks
            .get(folder)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(folder);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn edits_of_one_folder_are_serialized_and_leave_no_locks() {
        let (locks, key) = (DocumentLocks::default(), Key::new("a").unwrap());
        let count = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        locks.with(&key, || {
                            let mut count = count.try_lock().expect("two edits at once");
                            thread::yield_now();
                            *count += 1;
                        });
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 800);
        assert!(locks.0.lock().is_empty());
    }

    #[test]
    fn an_edit_of_another_folder_does_not_wait() {
        let locks = DocumentLocks::default();
        let [a, b] = ["a", "b"].map(|key| Key::new(key).unwrap());
        let done = locks.with(&a, || locks.with(&b, || 7));
        assert_eq!(done, 7);
    }
}
