//! Edits of a node's attributes, in the documents where its dialect has them.
//!
//! An edit is planned from the documents as they are stored, and made on the condition that they still are. If a document
//! was changed in between, the edit is planned anew, unless the author of the edit has not seen that change: then its
//! documents are put on the condition of what was seen, and the store answers that they changed. Changed documents are
//! read back before they are stored: if they would read as another node, they are refused and the old ones stay.

use crate::hierarchy::format::NodeDocuments;
use crate::hierarchy::publish::{DocumentChange, DocumentVersions, MAX_ATTEMPTS};
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::dialect::{Document, DocumentMap};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Group, Node};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, Key, Version};

/// What the author of an edit had seen of a node.
#[derive(Clone, Copy)]
pub struct SeenNode<'a> {
    /// Whether a node shows what was seen.
    pub is_shown_by: &'a dyn Fn(&Node) -> bool,
    /// The documents that it was read from and their versions; `None` if these are not known.
    pub documents: Option<&'a [(Key, Version)]>,
}

/// A node after an edit.
pub struct EditedNode {
    /// The node.
    pub node: Node,
    /// The documents that describe it and their versions.
    pub documents: DocumentVersions,
}

/// The changes that an edit makes.
struct EditPlan {
    /// The node as it is stored.
    old: Node,
    /// The node with its new attributes.
    new: Node,
    /// The documents that were read, with their versions.
    read: DocumentVersions,
    /// The documents that change, with their new bytes.
    changes: DocumentMap,
}

impl EditPlan {
    /// Returns the changes, on the condition that documents are as they were `read`; those that are not in there were
    /// missing.
    fn conditional(&self, read: &[(Key, Version)]) -> Vec<DocumentChange> {
        let change = |(key, bytes): &(Key, Vec<u8>)| {
            let version = read.iter().find(|(read, _)| read == key);
            DocumentChange {
                key: key.clone(),
                bytes: bytes.clone(),
                condition: Condition::unchanged(version.map(|(_, version)| *version)),
            }
        };
        self.changes.iter().map(change).collect()
    }

    /// Returns the node after its changed documents got these versions.
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

impl Hierarchy {
    /// Replaces the attributes of a node.
    ///
    /// Fails with `Invalid` if the changed documents would read as another node, or if no document describes the node;
    /// `Changed` if the documents are not those any more that the author of the edit has `seen`.
    pub fn edit(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
        attributes: &Attributes,
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        let edit = || self.try_edits(context, found, attributes, seen);
        self.editing.with(&found.path, edit)
    }

    /// Plans an edit and puts its documents, again if they changed meanwhile.
    fn try_edits(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
        attributes: &Attributes,
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        let path = &found.path;
        let mut refused = None;
        for _ in 0..MAX_ATTEMPTS {
            let plan = self.plan_edit(context, found, attributes)?;
            if plan.changes.is_empty() {
                // A put that was refused may show here all the same, but is not in the store.
                return match refused {
                    None => Ok(plan.edited(Vec::new())),
                    Some(error) => Err(error),
                };
            }
            let unseen = seen.filter(|seen| !(seen.is_shown_by)(&plan.old));
            let read = match unseen {
                None => Some(plan.read.as_slice()),
                Some(seen) => seen.documents,
            };
            let published = read
                .ok_or_else(|| changed(path))
                .and_then(|read| self.publish(context, &plan.conditional(read)));
            match published {
                Err(error) if error.kind() == Kind::Changed && unseen.is_none() => {
                    refused = Some(error);
                }
                published => return Ok(plan.edited(published?)),
            }
        }
        Err(refused.unwrap_or_else(|| changed(path)))
    }

    /// Plans an edit of a node by its documents as they are stored now.
    fn plan_edit(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
        attributes: &Attributes,
    ) -> Result<EditPlan> {
        let path = &found.path;
        let Some(documents) = self.documents_of(context, found)? else {
            return Err(undescribed(found));
        };
        let invalid = |error: Error| Error::invalid(path, error);
        let old = self.parsed(&documents.format, path, &documents.documents);
        let old = old.map_err(invalid)?;
        let (new, changes) = if old.attributes() == attributes {
            (old.clone(), DocumentMap::new())
        } else {
            attributes
                .check_replaces(old.attributes())
                .map_err(invalid)?;
            let changes = documents.edited(attributes)?;
            let new = self.read_edited(path, &documents, &changes, &old, attributes);
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
    fn read_edited(
        &self,
        path: &Key,
        stored: &NodeDocuments,
        edited: &DocumentMap,
        old: &Node,
        attributes: &Attributes,
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
        let read = self.parsed(&stored.format, path, &documents)?;
        if !is_same_data(old, &read) {
            let why = "the chunks that are stored would mean something else";
            return Err(Error::invalid("attributes", why));
        }
        if read.attributes() != attributes {
            let dialect = stored.format.name();
            let why = format!("{dialect} would read something else than was written");
            return Err(Error::invalid("attributes", why));
        }
        Ok(read)
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

/// Returns the error of a node that no document describes: a folder, or a node whose documents were removed.
fn undescribed(found: &NodeEntry) -> Error {
    if found
        .node
        .as_ref()
        .is_ok_and(|node| *node == Node::Group(Group::default()))
    {
        let why = "no document describes this group; make one in the store view: DIR/.zarrfs/store";
        return Error::invalid(&found.path, why);
    }
    let why = "its documents were removed or do not read any more";
    Error::new(Kind::Changed, &found.path, why)
}

/// Returns the error of an edit that was made from something else than the stored documents.
fn changed(path: &Key) -> Error {
    Error::new(Kind::Changed, path, "was changed since it was read")
}
