//! An edit of a node: planned from the documents as they are stored, then made on the condition that they still are.
//!
//! If a document was changed in between, the edit is planned anew, unless the change is one that the author of the edit
//! has not seen: then its documents are put on the condition of what was seen, and the store says that it changed.

use crate::error::{Error, Kind, Result};
use crate::hierarchy::Hierarchy;
use crate::hierarchy::publish::{DocumentChange, DocumentVersions, MAX_ATTEMPTS};
use crate::model::Node;
use crate::store::{Condition, Key, Version};

/// What the author of an edit had seen of a node.
#[derive(Clone, Copy)]
pub struct SeenNode<'a> {
    /// Whether what a node shows is what was seen.
    pub is_shown_by: &'a dyn Fn(&Node) -> bool,
    /// The documents that it was read from and their versions; nothing if these are not known.
    pub documents: Option<&'a [(Key, Version)]>,
}

/// A node as an edit leaves it.
pub struct EditedNode {
    /// The node.
    pub node: Node,
    /// The documents that describe it and their versions.
    pub documents: DocumentVersions,
}

/// What an edit is going to do.
pub(super) struct EditPlan {
    /// The node as it is stored.
    pub(super) old: Node,
    /// The node as it will be.
    pub(super) new: Node,
    /// The documents that were read, with their versions.
    pub(super) read: DocumentVersions,
    /// The documents that change, and their new bytes; nothing to erase one.
    pub(super) changes: Vec<(Key, Option<Vec<u8>>)>,
}

impl EditPlan {
    /// Returns the plan of an edit after which a node is as it was.
    pub(super) fn nothing(node: Node, read: DocumentVersions) -> EditPlan {
        EditPlan {
            new: node.clone(),
            old: node,
            read,
            changes: Vec::new(),
        }
    }

    /// Returns the changes, on the condition that documents are as they were `read`; those that are not in there were
    /// missing.
    fn conditional(&self, read: &[(Key, Version)]) -> Vec<DocumentChange> {
        let change = |(key, bytes): &(Key, Option<Vec<u8>>)| {
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
    /// Makes the edit of the node at a path that `plan` returns, and updates consolidated metadata.
    pub(super) fn make_edit(
        &self,
        path: &Key,
        seen: Option<SeenNode<'_>>,
        plan: impl Fn() -> Result<EditPlan>,
    ) -> Result<EditedNode> {
        let made = self.editing.with(path, || self.try_edits(path, seen, plan));
        let (edited, changed) = made?;
        self.update_consolidated(&changed)?;
        Ok(edited)
    }

    /// Plans an edit and puts its documents, again if they changed meanwhile; returns the keys of those that changed.
    fn try_edits(
        &self,
        path: &Key,
        seen: Option<SeenNode<'_>>,
        plan: impl Fn() -> Result<EditPlan>,
    ) -> Result<(EditedNode, Vec<Key>)> {
        let mut refused = None;
        for _ in 0..MAX_ATTEMPTS {
            let plan = plan()?;
            if plan.changes.is_empty() {
                // What was refused before may lie there, but not in the store.
                return match refused {
                    None => Ok((plan.edited(Vec::new()), Vec::new())),
                    Some(error) => Err(error),
                };
            }
            let keys: Vec<Key> = plan.changes.iter().map(|(key, _)| key.clone()).collect();
            self.check_consolidated(&keys)?;
            let unseen = seen.filter(|seen| !(seen.is_shown_by)(&plan.old));
            let read = match unseen {
                None => Some(plan.read.as_slice()),
                Some(seen) => seen.documents,
            };
            let published = read
                .ok_or_else(|| changed(path))
                .and_then(|read| self.publish(&plan.conditional(read)));
            match published {
                Err(error) if error.kind() == Kind::Changed && unseen.is_none() => {
                    refused = Some(error);
                }
                published => return Ok((plan.edited(published?), keys)),
            }
        }
        Err(refused.unwrap_or_else(|| changed(path)))
    }
}

/// Returns the error of an edit that was made from something else than what is stored.
fn changed(path: &Key) -> Error {
    Error::new(Kind::Changed, path, "was changed since it was read")
}
