//! Edits the attributes of a node in its documents.
//!
//! An edit is planned from the stored documents, and put on the condition that they are unchanged. If a document was
//! changed in between, the edit is planned again. But if the stored node differs from the node that the author saw, the
//! put is conditional on the versions that the author saw, and so fails with `Changed`. The edited documents are parsed
//! before they are stored: if they would read as another node, the edit is refused and the old documents stay. Their
//! copies in consolidated metadata are not put: the overlay derives them from the documents (`overlay/derived.rs`).

use crate::hierarchy::node_documents::{DocumentVersions, NodeDocuments};
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::dialect::{Document, DocumentMap};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Group, Node};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, Key, Version};

/// A change of a document.
struct DocumentChange {
    key: Key,
    bytes: Vec<u8>,
    /// The condition of the put.
    condition: Condition,
}

/// The state of a node that the author of an edit saw.
#[derive(Clone, Copy)]
pub struct ExpectedNode<'a> {
    /// Whether a node has the state that was seen.
    pub matches: &'a dyn Fn(&Node) -> bool,
    /// The documents that it was read from, with their versions; `None` if these are not known.
    pub documents: Option<&'a [(Key, Version)]>,
}

/// A node after an edit.
pub struct EditedNode {
    /// The node.
    pub node: Node,
    /// The documents that describe it, with their versions.
    pub documents: DocumentVersions,
}

/// The changes of an edit.
struct EditPlan {
    /// The stored node.
    old: Node,
    /// The node with its new attributes.
    new: Node,
    /// The documents that were read, with their versions.
    read: DocumentVersions,
    /// The changed documents, with their new bytes.
    changes: DocumentMap,
}

impl EditPlan {
    /// Returns the changes with the condition that documents still have the versions in `read`, or are missing if they
    /// are not in there.
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

    /// Returns the node after its changed documents were put with these versions.
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

/// An edit of the attributes of a node.
pub(super) struct AttributesEdit<'a> {
    pub(super) hierarchy: &'a Hierarchy,
    pub(super) context: &'a RequestContext,
    pub(super) node: &'a NodeEntry,
    pub(super) attributes: &'a Attributes,
    /// The state that its author saw.
    pub(super) seen: Option<ExpectedNode<'a>>,
}

impl AttributesEdit<'_> {
    /// Plans an edit and puts its documents; retries if they change concurrently.
    pub(super) fn run(&self) -> Result<EditedNode> {
        let path = &self.node.path;
        let mut refused = None;
        // Programs that change the documents all the time end it.
        for _ in 0..16 {
            let plan = self.plan()?;
            if plan.changes.is_empty() {
                // A put that was refused may be visible here, but is not in the store.
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

    /// Plans an edit from the stored documents of a node.
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

    /// Returns the node that the edited documents describe; fails unless it is the old one with these attributes.
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

    /// Puts documents in the given order, and returns their versions. `Changed` if a key does not have the content that
    /// its change was made from.
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

/// Returns the error for a node without documents: a folder, or a node whose documents were removed.
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

/// Returns the error of an edit that was made from a stale state.
fn changed(path: &Key) -> Error {
    Error::new(
        Kind::Changed,
        path,
        "was changed by another program since it was read",
    )
}
