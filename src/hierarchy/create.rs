//! New groups and arrays, in the format of their surroundings.
//!
//! New documents are read back before they are stored: those that do not read are refused. They are put where none was
//! found.

use std::sync::Arc;

use serde_json::Value;

use crate::dialect::typestr::Typed;
use crate::dialect::{DocumentMap, n5, v2};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::format::DocumentFormat;
use crate::hierarchy::plan::{EditPlan, EditedNode, SeenNode};
use crate::hierarchy::publish::DocumentVersions;
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, NodeEntry};
use crate::model::{Array, Attributes, CodecSpec, Group, Node};
use crate::store::{EntryKind, Key};

impl Hierarchy {
    /// Makes a group. Implied groups above it get documents too, if a group above them has one.
    ///
    /// Fails with `Exists` if there is a node, `NotFound` or `NotADirectory` if nothing can be below its parent.
    pub fn make_group(self: &Arc<Self>, path: &Key) -> Result<()> {
        let made = self.make_edit(path, None, || {
            let parent = self.parent_of(path)?;
            self.check_free(&parent, path)?;
            let above = self.implied_above(&parent)?;
            self.plan_group(path, &Attributes::default(), above)
        });
        match made {
            Err(error) if error.kind() == Kind::Changed => {
                let why = format!("was made meanwhile: {error}");
                Err(Error::new(Kind::Exists, path, why))
            }
            made => made.map(drop),
        }
    }

    /// Fails with `Exists` if there is something at a path.
    fn check_free(&self, parent: &NodeEntry, path: &Key) -> Result<()> {
        if self.child(parent, path.name())?.is_some() {
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
        Ok(())
    }

    /// Makes an array out of a group that holds nothing, in the format of its surroundings.
    ///
    /// Fails with `Unsupported` if the format cannot express it; the error names the member. `Changed` if the group is
    /// not the one any more that the author of the array has `seen`.
    pub fn make_array(
        self: &Arc<Self>,
        group: &Arc<NodeEntry>,
        array: &Array,
        seen: Option<SeenNode<'_>>,
    ) -> Result<EditedNode> {
        self.make_edit(&group.path, seen, || self.plan_array(group, array))
    }

    /// Plans an array in the place of a group.
    fn plan_array(self: &Arc<Self>, group: &Arc<NodeEntry>, array: &Array) -> Result<EditPlan> {
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
        let mut plan = EditPlan {
            old: Node::Group(Group::default()),
            new: read,
            read: self.versions_of(&documents)?,
            changes: puts(documents),
        };
        if let Some(old) = self.documents_of(group)? {
            plan.old = self.parsed(&old.format, path, &old.documents)?;
            for (key, version) in old.versions {
                if plan.changes.iter().all(|(new, _)| *new != key) {
                    plan.changes.push((key.clone(), None));
                    plan.read.push((key, version));
                }
            }
        }
        Ok(plan)
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

    /// Plans the document of a group, and empty ones for the groups `above`.
    pub(super) fn plan_group(
        self: &Arc<Self>,
        path: &Key,
        attributes: &Attributes,
        above: Vec<Key>,
    ) -> Result<EditPlan> {
        let nearest = match self.node(path)? {
            Some(found) => found,
            None => self.parent_of(path)?,
        };
        let format = self.format_of(&nearest)?;
        let mut documents = DocumentMap::new();
        for path in above {
            documents.extend(format.documents(&path, &Node::Group(Group::default()))?);
        }
        let group = Node::Group(Group {
            attributes: attributes.clone(),
        });
        let own = format.documents(path, &group)?;
        match self.read_back(&format, path, &own) {
            Ok(read) if read == group => {}
            Ok(_) => return Err(Error::invalid(path, format.reads_otherwise())),
            Err(error) => return Err(Error::invalid(path, error)),
        }
        documents.extend(own);
        Ok(EditPlan {
            old: Node::Group(Group::default()),
            new: group,
            read: self.versions_of(&documents)?,
            changes: puts(documents),
        })
    }

    /// Returns the versions of those documents that are stored already.
    fn versions_of(&self, documents: &DocumentMap) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for (key, _) in documents {
            let version = self.store.version(key)?;
            versions.extend(version.map(|version| (key.clone(), version)));
        }
        Ok(versions)
    }
}

fn puts(documents: DocumentMap) -> Vec<(Key, Option<Vec<u8>>)> {
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
