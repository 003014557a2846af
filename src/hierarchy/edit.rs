//! Changes of nodes: new attributes and shapes, each in the format of its surroundings.
//!
//! New documents are read back before they are stored: those that do not read, or that would change the meaning of the
//! stored chunks, are refused, and the old ones stay.

use std::sync::Arc;

use crate::dialect::{Document, DocumentMap, Edit};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::format::NodeDocuments;
use crate::hierarchy::plan::{EditPlan, EditedNode, SeenNode};
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::{Group, Node};
use crate::store::Key;

impl Hierarchy {
    /// Changes attributes, shape or names of dimensions of a node. A group that no document describes gets one.
    ///
    /// Fails with `Invalid` if the changed documents would read as another node, or would change the meaning of the
    /// stored chunks; `Unsupported` for what the dialect has no place for; `Changed` if the documents are not those
    /// any more that the author of the edit has `seen`.
    pub fn edit(
        self: &Arc<Self>,
        found: &NodeEntry,
        edit: &Edit,
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        self.make_edit(&found.path, seen, || self.plan_edit(found, edit))
    }

    /// Plans an edit of a node by its documents as they are stored now.
    fn plan_edit(self: &Arc<Self>, found: &NodeEntry, edit: &Edit) -> Result<EditPlan> {
        let path = &found.path;
        let Some(documents) = self.documents_of(found)? else {
            if *found.node()? != Node::Group(Group::default()) {
                let why = "its documents were removed or do not read any more";
                return Err(Error::new(Kind::Changed, path, why));
            }
            let attributes = edit.attributes.clone().unwrap_or_default();
            if attributes.is_empty() {
                return Ok(EditPlan::nothing(Node::Group(Group::default()), Vec::new()));
            }
            return self.plan_group(path, &attributes, Vec::new());
        };
        let invalid = |error: Error| Error::invalid(path, error);
        let old = self.parsed(&documents.format, path, &documents.documents);
        let old = old.map_err(invalid)?;
        if changes_nothing(&old, edit) {
            return Ok(EditPlan::nothing(old, documents.versions));
        }
        if let Some(attributes) = &edit.attributes {
            attributes
                .check_replaces(old.attributes())
                .map_err(invalid)?;
        }
        let edited = documents.edited(edit)?;
        let new = self.check_edit((path, &old), &documents, &edited, edit)?;
        let changes = edited.into_iter();
        Ok(EditPlan {
            old,
            new,
            read: documents.versions,
            changes: changes.map(|(key, bytes)| (key, Some(bytes))).collect(),
        })
    }

    /// Returns the node that the edited documents describe; fails with `Invalid` unless it is the old one with this
    /// change.
    fn check_edit(
        &self,
        (path, node): (&Key, &Node),
        old: &NodeDocuments,
        edited: &DocumentMap,
        edit: &Edit,
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
        let documents: Vec<Document> = old.documents.iter().map(changed).collect();
        let read = self
            .parsed(&old.format, path, &documents)
            .map_err(|error| Error::invalid(path, error))?;
        if let (Node::Array(old), Node::Array(new)) = (node, &read)
            && !new.is_stored_like(old)
        {
            let why = "the chunks that are stored would mean something else";
            return Err(Error::invalid(path, why));
        }
        if is_edited(node, &read, edit) {
            Ok(read)
        } else {
            Err(Error::invalid(path, old.format.reads_otherwise()))
        }
    }
}

/// Whether attributes and shape of a node are the old ones with a change.
fn is_edited(old: &Node, new: &Node, edit: &Edit) -> bool {
    let has_shape = match (old, new) {
        (Node::Group(_), Node::Group(_)) => true,
        (Node::Array(old), Node::Array(new)) => {
            new.shape == *edit.shape.as_ref().unwrap_or(&old.shape)
        }
        _ => return false,
    };
    let attributes = edit.attributes.as_ref().unwrap_or(old.attributes());
    has_shape && new.attributes() == attributes
}

/// Whether a node is as an edit would make it.
fn changes_nothing(node: &Node, edit: &Edit) -> bool {
    *edit == Edit::of_attributes(node.attributes().clone())
}
