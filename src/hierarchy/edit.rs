//! Changes of nodes: new attributes and shapes, new groups and arrays, each in the format of its surroundings.
//!
//! New documents are read back before they are stored: those that do not read, or that would change the meaning of the
//! stored chunks, are refused, and the old ones stay.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::dialect::typestr::Typed;
use crate::dialect::{Document, DocumentMap, Edit, n5, v2};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::format::{DocumentFormat, NodeDocuments};
use crate::hierarchy::publish::DocumentChange;
use crate::hierarchy::{Hierarchy, NodeEntry, Rule};
use crate::model::{Array, CodecSpec, Group, Node};
use crate::store::{EntryKind, Key};

impl Hierarchy {
    /// Changes attributes, shape or names of dimensions of a node. A group that no document describes gets one.
    ///
    /// Fails with `Invalid` if the changed documents would read as another node, or would change the meaning of the
    /// stored chunks; `Unsupported` for what the dialect has no place for.
    pub fn edit(self: &Arc<Self>, found: &NodeEntry, edit: &Edit) -> Result<()> {
        let Some(documents) = self.documents_of(found)? else {
            let attributes = edit.attributes.clone().unwrap_or_default();
            return self.write_group(&found.path, attributes, Vec::new());
        };
        let edited = documents.edited(edit)?;
        self.check_edit(found, &documents, &edited, edit)?;
        self.publish(&puts(edited))
    }

    /// Makes a group. Implied groups above it get documents too, if a group above them has one.
    ///
    /// Fails with `Exists` if there is a node, `NotFound` or `NotADirectory` if nothing can be below its parent.
    pub fn make_group(self: &Arc<Self>, path: &Key) -> Result<()> {
        let parent = self.parent_of(path)?;
        if self.child(&parent, path.name())?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        let stored = match &parent.scope.rule {
            Rule::Plain(_) => self.store.head(path)?,
            Rule::Draft(_) | Rule::Closed => None,
        };
        if stored.is_some_and(|meta| meta.kind != EntryKind::Directory) {
            let why = "is there already, and no node: the store view shows it";
            return Err(Error::new(Kind::Exists, path, why));
        }
        let above = self.implied_above(&parent)?;
        self.write_group(path, Map::new(), above)
    }

    /// Makes an array out of a group that holds nothing, in the format of its surroundings.
    ///
    /// Fails with `Unsupported` if the format cannot express it; the error names the member.
    pub fn make_array(self: &Arc<Self>, group: &Arc<NodeEntry>, array: &Array) -> Result<()> {
        let path = &group.path;
        let format = self.format_of(group)?;
        let wanted = as_spelled(array, &format);
        let documents = format
            .documents(path, &Node::Array(Box::new(wanted.clone())))
            .map_err(|error| Error::unsupported(path, error))?;
        let read = self.read_back(&format, path, &documents);
        let read = read.map_err(|error| Error::unsupported(path, error))?;
        if let Some(other) = difference(&format, &wanted, &read) {
            let found = format!("{} cannot express its {other}", format.name());
            return Err(Error::unsupported(path, found));
        }
        let old = self.documents_of(group)?.map(|old| old.documents);
        let mut changes = puts(documents);
        for document in old.unwrap_or_default() {
            let is_new = changes.iter().any(|(key, _)| *key == document.key);
            if document.bytes.is_some() && !is_new {
                changes.push((document.key, None));
            }
        }
        self.publish(&changes)
    }

    /// Returns the node that a path would be a child of.
    fn parent_of(&self, path: &Key) -> Result<Arc<NodeEntry>> {
        let above = path.parent();
        let above = above.ok_or_else(|| Error::new(Kind::Exists, path, "is the root"))?;
        let parent = self.node(&above)?.ok_or_else(|| Error::not_found(&above))?;
        match parent.node()? {
            Node::Group(_) => Ok(parent),
            Node::Array(_) => Err(Error::new(Kind::NotADirectory, &above, "is an array")),
        }
    }

    /// Returns the implied groups from a node upwards, itself included, the topmost first; none unless a group above
    /// them has a document.
    fn implied_above(&self, from: &Arc<NodeEntry>) -> Result<Vec<Key>> {
        if !matches!(from.scope.rule, Rule::Plain(_)) {
            return Ok(Vec::new());
        }
        let mut implied = Vec::new();
        let mut at = Some(from.path.clone());
        while let Some(path) = at {
            let Some(found) = self.node(&path)? else {
                break;
            };
            if self.documents_of(&found)?.is_some() {
                implied.reverse();
                return Ok(implied);
            }
            at = path.parent();
            implied.push(path);
        }
        Ok(Vec::new())
    }

    /// Writes the document of a group, and empty ones for the groups `above`.
    fn write_group(
        self: &Arc<Self>,
        path: &Key,
        attributes: Map<String, Value>,
        above: Vec<Key>,
    ) -> Result<()> {
        let nearest = match self.node(path)? {
            Some(found) => found,
            None => self.parent_of(path)?,
        };
        let format = self.format_of(&nearest)?;
        let mut documents = DocumentMap::new();
        for path in above {
            documents.extend(format.documents(&path, &Node::Group(Group::default()))?);
        }
        let group = Node::Group(Group { attributes });
        let own = format.documents(path, &group)?;
        match self.read_back(&format, path, &own) {
            Ok(read) if read == group => {}
            Ok(_) => return Err(Error::invalid(path, reads_otherwise(&format))),
            Err(error) => return Err(Error::invalid(path, error)),
        }
        documents.extend(own);
        self.publish(&puts(documents))
    }

    /// Fails with `Invalid` unless the edited documents read as the node with this change.
    fn check_edit(
        &self,
        found: &NodeEntry,
        old: &NodeDocuments,
        edited: &DocumentMap,
        edit: &Edit,
    ) -> Result<()> {
        let path = &found.path;
        let changed = |document: &Document| {
            let new = edited.iter().find(|(key, _)| *key == document.key);
            Document {
                key: document.key.clone(),
                bytes: match new {
                    Some((_, bytes)) => Some(bytes.clone()),
                    None => document.bytes.clone(),
                },
            }
        };
        let documents: Vec<Document> = old.documents.iter().map(changed).collect();
        let read = self
            .parsed(&old.format, path, &documents)
            .map_err(|error| Error::invalid(path, error))?;
        let node = found.node()?;
        if let (Node::Array(old), Node::Array(new)) = (node, &read)
            && !new.is_stored_like(old)
        {
            let why = "the chunks that are stored would mean something else";
            return Err(Error::invalid(path, why));
        }
        if is_edited(node, &read, edit) {
            Ok(())
        } else {
            Err(Error::invalid(path, reads_otherwise(&old.format)))
        }
    }
}

/// Whether attributes and shape of a node are the old ones with a change.
fn is_edited(old: &Node, new: &Node, edit: &Edit) -> bool {
    let (old_attributes, new_attributes, has_shape) = match (old, new) {
        (Node::Group(old), Node::Group(new)) => (&old.attributes, &new.attributes, true),
        (Node::Array(old), Node::Array(new)) => {
            let has_shape = new.shape == *edit.shape.as_ref().unwrap_or(&old.shape);
            (&old.attributes, &new.attributes, has_shape)
        }
        _ => return false,
    };
    has_shape && new_attributes == edit.attributes.as_ref().unwrap_or(old_attributes)
}

fn reads_otherwise(format: &DocumentFormat) -> String {
    format!(
        "{} would read something else than was written",
        format.name()
    )
}

fn puts(documents: DocumentMap) -> Vec<DocumentChange> {
    let documents = documents.into_iter();
    documents.map(|(key, bytes)| (key, Some(bytes))).collect()
}

/// Returns an array with those members as its format spells them that final v3 leaves open.
fn as_spelled(array: &Array, format: &DocumentFormat) -> Array {
    let mut wanted = array.clone();
    for codec in &mut wanted.codecs {
        if codec.name == "bytes" {
            let endian = codec.configuration.get("endian").and_then(Value::as_str);
            let is_big = endian == Some("big");
            *codec = Typed::new(array.data_type.clone(), is_big).bytes_codec();
        }
    }
    let is_default = wanted.keys.v3.get("name").and_then(Value::as_str) == Some("default");
    if is_default && format.name() == v2::DIALECT.name {
        wanted.keys.separator = '.';
    }
    wanted
}

/// Returns the first member in which an array that was read back differs from the one that is wanted.
fn difference(format: &DocumentFormat, wanted: &Array, read: &Node) -> Option<String> {
    let Node::Array(read) = read else {
        return Some("kind of node".to_string());
    };
    // N5 fixes the order of bytes and dimensions; its writer has checked the compression.
    let has_codecs = format.name() == n5::DIALECT.name || read.codecs == wanted.codecs;
    let members = [
        ("shape", read.shape == wanted.shape),
        ("chunk_grid", read.chunk_shape == wanted.chunk_shape),
        ("data_type", read.data_type == wanted.data_type),
        (
            "fill_value",
            read.fill_value.bytes == wanted.fill_value.bytes,
        ),
        (
            "dimension_names",
            read.dimension_names == wanted.dimension_names,
        ),
        ("codecs", has_codecs),
        (
            "storage_transformers",
            read.undecodable == wanted.undecodable,
        ),
    ];
    let other = members.iter().find(|(_, is_same)| !is_same);
    other.map(|(name, _)| match *name {
        "codecs" => format!(
            "codecs {}; it would read {}",
            listed(&wanted.codecs),
            listed(&read.codecs)
        ),
        name => name.to_string(),
    })
}

fn listed(codecs: &[CodecSpec]) -> String {
    let codecs = codecs.iter().map(|codec| codec.to_json().to_string());
    codecs.collect::<Vec<_>>().join(", ")
}
