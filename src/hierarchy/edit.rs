//! Changes of nodes: new attributes and shapes, new groups and arrays, each in the dialect of its place.
//!
//! What is to be written is read before it is written: documents that do not read, or that would make something
//! else of the chunks that are stored, are refused and the old ones stay.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::dialect::draft::{DocumentRole, EntryPoint};
use crate::dialect::typestr::Typed;
use crate::dialect::{Choice, Dialect, Document, DocumentMap, Edit, n5, v2, v3};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::ground::Rule;
use crate::hierarchy::publish::Changed;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use crate::model::{Array, Group, Node};
use crate::store::{EntryKind, Key};

/// How many nodes in a group are looked at to learn in what form a new one is to be.
const MOST_CHILDREN: usize = 16;

/// In what form the documents of a node are.
#[derive(Clone)]
pub(super) enum DocumentFormat {
    Plain(&'static Dialect),
    Draft(Arc<EntryPoint>),
}

impl DocumentFormat {
    fn name(&self) -> &'static str {
        match self {
            DocumentFormat::Plain(dialect) => dialect.name,
            DocumentFormat::Draft(entry) => entry.name(),
        }
    }

    /// Returns the documents of a new node.
    fn documents(&self, path: &Key, node: &Node) -> Result<DocumentMap> {
        match (self, node) {
            (DocumentFormat::Plain(dialect), Node::Group(group)) => {
                (dialect.group)(path, &group.attributes)
            }
            (DocumentFormat::Plain(dialect), Node::Array(array)) => (dialect.array)(path, array),
            (DocumentFormat::Draft(entry), node) => Ok(vec![entry.new_document(path, node)?]),
        }
    }
}

/// The documents that describe a node.
pub(super) struct Described {
    way: DocumentFormat,
    pub(super) documents: Vec<Document>,
}

impl Hierarchy {
    /// Changes attributes, shape or names of dimensions of a node. A group that no document describes gets one.
    ///
    /// Fails with `Invalid` if the dialect could not read that as it is meant, or the chunks that are stored
    /// would mean something else; `Unsupported` for what the dialect has no place for.
    pub fn edit(self: &Arc<Self>, found: &NodeEntry, edit: &Edit) -> Result<()> {
        let Some(described) = self.described(found)? else {
            let attributes = edit.attributes.clone().unwrap_or_default();
            return self.write_group(&found.path, attributes, Vec::new());
        };
        let edited = match &described.way {
            DocumentFormat::Plain(dialect) => (dialect.edit)(&described.documents, edit)?,
            DocumentFormat::Draft(entry) => match described.documents.first() {
                Some(document) => entry.edit(document, edit)?,
                None => Vec::new(),
            },
        };
        self.check_edit(found, &described, &edited, edit)?;
        self.publish(&puts(edited))
    }

    /// Makes a group, and documents of the groups above it that none describes, if any above has one.
    ///
    /// Fails with `Exists` if there is a node, `NotFound` or `NotADirectory` if nothing can be below its parent.
    pub fn make_group(self: &Arc<Self>, path: &Key) -> Result<()> {
        let parent = self.parent_of(path)?;
        if self.child(&parent, path.name())?.is_some() {
            return Err(Error::new(Kind::Exists, path, "is there already"));
        }
        let stored = match &parent.ground.rule {
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

    /// Makes an array out of a group that holds nothing, in the dialect of its place.
    ///
    /// Fails with `Unsupported` if that dialect cannot express it, and says what.
    pub fn make_array(self: &Arc<Self>, group: &Arc<NodeEntry>, array: &Array) -> Result<()> {
        let path = &group.path;
        let way = self.way_of(group)?;
        let wanted = wanted(array, &way);
        let documents = way
            .documents(path, &Node::Array(Box::new(wanted.clone())))
            .map_err(|error| Error::unsupported(path, error))?;
        let read = self.read_back(&way, path, &documents);
        let read = read.map_err(|error| Error::unsupported(path, error))?;
        if let Some(other) = difference(&way, &wanted, &read) {
            let found = format!("{} cannot express its {other}", way.name());
            return Err(Error::unsupported(path, found));
        }
        let old = self.described(group)?.map(|described| described.documents);
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

    /// Returns the groups from a path upwards that no document describes, if there is one above that has.
    fn implied_above(&self, from: &Arc<NodeEntry>) -> Result<Vec<Key>> {
        if !matches!(from.ground.rule, Rule::Plain(_)) {
            return Ok(Vec::new());
        }
        let mut implied = Vec::new();
        let mut at = Some(from.path.clone());
        while let Some(path) = at {
            let Some(found) = self.node(&path)? else {
                break;
            };
            if self.described(&found)?.is_some() {
                implied.reverse();
                return Ok(implied);
            }
            at = path.parent();
            implied.push(path);
        }
        Ok(Vec::new())
    }

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
        let way = self.way_of(&nearest)?;
        let mut documents = DocumentMap::new();
        for path in above {
            documents.extend(way.documents(&path, &Node::Group(Group::default()))?);
        }
        let group = Node::Group(Group { attributes });
        let own = way.documents(path, &group)?;
        match self.read_back(&way, path, &own) {
            Ok(read) if read == group => {}
            Ok(_) => return Err(Error::invalid(path, unlike(&way))),
            Err(error) => return Err(Error::invalid(path, error)),
        }
        documents.extend(own);
        self.publish(&puts(documents))
    }

    /// Returns the documents of a node as the store has them; nothing for a group that none describes.
    pub(super) fn described(&self, found: &NodeEntry) -> Result<Option<Described>> {
        let path = &found.path;
        match &found.ground.rule {
            Rule::Plain(dialects) => {
                for dialect in *dialects {
                    let keys = (dialect.documents)(path)?.into_iter();
                    let documents = keys
                        .map(|key| self.stored(key))
                        .collect::<Result<Vec<_>>>()?;
                    if matches!((dialect.parse)(path, &documents), Ok(Some(_))) {
                        let way = DocumentFormat::Plain(dialect);
                        return Ok(Some(Described { way, documents }));
                    }
                }
            }
            Rule::Draft(entry) => {
                for (_, key) in entry.documents(path)? {
                    let document = self.stored(key)?;
                    if document.bytes.is_some() {
                        let way = DocumentFormat::Draft(entry.clone());
                        let documents = vec![document];
                        return Ok(Some(Described { way, documents }));
                    }
                }
            }
            Rule::Closed => {
                let why = "the entry point of the hierarchy does not read";
                return Err(Error::invalid(path, why));
            }
        }
        Ok(None)
    }

    fn stored(&self, key: Key) -> Result<Document> {
        let object = match self.store.get(&key, MAX_DOCUMENT) {
            Err(error) if error.kind() == Kind::NameTooLong => None,
            answer => answer?,
        };
        Ok(Document {
            key,
            bytes: object.map(|object| object.bytes),
        })
    }

    /// Returns the form of a node's documents; where it has none, of those of a node in it, or of the next one above.
    fn way_of(self: &Arc<Self>, found: &Arc<NodeEntry>) -> Result<DocumentFormat> {
        if let Rule::Draft(entry) = &found.ground.rule {
            return Ok(DocumentFormat::Draft(entry.clone()));
        }
        if let Some(described) = self.described(found)? {
            return Ok(described.way);
        }
        if let Some(way) = self.way_within(found)? {
            return Ok(way);
        }
        match found.path.parent() {
            Some(path) => match self.node(&path)? {
                Some(above) => self.way_of(&above),
                None => Err(Error::not_found(&path)),
            },
            None => Ok(match self.config.dialect {
                Some(Choice::Plain([first, ..])) => DocumentFormat::Plain(first),
                _ => DocumentFormat::Plain(&v3::DIALECT),
            }),
        }
    }

    /// Returns the form of the documents of the first nodes in a group, if they have some.
    fn way_within(self: &Arc<Self>, group: &Arc<NodeEntry>) -> Result<Option<DocumentFormat>> {
        let Ok(mut children) = self.children(group) else {
            return Ok(None);
        };
        for _ in 0..MOST_CHILDREN {
            let Some(name) = children.next()? else { break };
            if let Some(child) = self.child(group, &name.name)?
                && matches!(child.ground.rule, Rule::Plain(_))
                && let Some(described) = self.described(&child)?
            {
                return Ok(Some(described.way));
            }
        }
        Ok(None)
    }

    /// Reads new documents as if they were stored; `Corrupt` if they describe no node.
    fn read_back(&self, way: &DocumentFormat, path: &Key, new: &DocumentMap) -> Result<Node> {
        let bytes_of = |key: &Key| {
            let found = new.iter().find(|(new, _)| new == key);
            found.map(|(_, bytes)| bytes.clone())
        };
        let document = |key: Key| Document {
            bytes: bytes_of(&key),
            key,
        };
        match way {
            DocumentFormat::Plain(dialect) => {
                let keys = (dialect.documents)(path)?.into_iter();
                self.parsed(way, path, &keys.map(document).collect::<Vec<_>>())
            }
            DocumentFormat::Draft(_) => {
                let documents = new.iter().map(|(key, _)| document(key.clone()));
                self.parsed(way, path, &documents.collect::<Vec<_>>())
            }
        }
    }

    fn parsed(&self, way: &DocumentFormat, path: &Key, documents: &[Document]) -> Result<Node> {
        let none = || Error::corrupt(path, "the documents describe no node");
        match way {
            DocumentFormat::Plain(dialect) => {
                // Within an N5 container every document of that name is a node's.
                let is_n5 = dialect.name == n5::DIALECT.name;
                let parse = if is_n5 {
                    n5::WITHIN.parse
                } else {
                    dialect.parse
                };
                parse(path, documents)?.ok_or_else(none)
            }
            DocumentFormat::Draft(entry) => {
                let document = documents.first().ok_or_else(none)?;
                let members = document.object()?.ok_or_else(none)?;
                let mut shapes = entry.documents(path)?.into_iter();
                let shape = shapes.find(|(_, key)| *key == document.key);
                let shape = shape.map_or(DocumentRole::Group, |(shape, _)| shape);
                Ok(entry
                    .parse(path, shape, &members, self.config.settings)?
                    .node)
            }
        }
    }

    /// Reads what a change would make of a node, and refuses what is not the node with this change.
    fn check_edit(
        &self,
        found: &NodeEntry,
        described: &Described,
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
        let documents: Vec<Document> = described.documents.iter().map(changed).collect();
        let read = self
            .parsed(&described.way, path, &documents)
            .map_err(|error| Error::invalid(path, error))?;
        let is_meant = match (found.node()?, &read) {
            (Node::Group(old), Node::Group(new)) => {
                new.attributes == *edit.attributes.as_ref().unwrap_or(&old.attributes)
            }
            (Node::Array(old), Node::Array(new)) => {
                if !new.is_stored_like(old) {
                    let why = "the chunks that are stored would mean something else";
                    return Err(Error::invalid(path, why));
                }
                new.attributes == *edit.attributes.as_ref().unwrap_or(&old.attributes)
                    && new.shape == *edit.shape.as_ref().unwrap_or(&old.shape)
            }
            _ => false,
        };
        match is_meant {
            true => Ok(()),
            false => Err(Error::invalid(path, unlike(&described.way))),
        }
    }
}

fn unlike(way: &DocumentFormat) -> String {
    format!("{} would read something else than was written", way.name())
}

fn puts(documents: DocumentMap) -> Vec<Changed> {
    let documents = documents.into_iter();
    documents.map(|(key, bytes)| (key, Some(bytes))).collect()
}

/// Returns an array as its dialect spells what final v3 leaves open.
fn wanted(array: &Array, way: &DocumentFormat) -> Array {
    let mut wanted = array.clone();
    for codec in &mut wanted.codecs {
        if codec.name == "bytes" {
            let endian = codec.configuration.get("endian").and_then(Value::as_str);
            let is_big = endian == Some("big");
            *codec = Typed::new(array.data_type.clone(), is_big).bytes_codec();
        }
    }
    let is_default = wanted.keys.v3.get("name").and_then(Value::as_str) == Some("default");
    if is_default && way.name() == v2::DIALECT.name {
        wanted.keys.separator = '.';
    }
    wanted
}

/// Returns the first member of an array that was read other than it is wanted.
fn difference(way: &DocumentFormat, wanted: &Array, read: &Node) -> Option<String> {
    let Node::Array(read) = read else {
        return Some("kind of node".to_string());
    };
    // N5 has an order of bytes and dimensions of its own; its writer minds the compression.
    let has_codecs = way.name() == n5::DIALECT.name || read.codecs == wanted.codecs;
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
        "codecs" => {
            let names = |codecs: &[crate::model::CodecSpec]| {
                let names: Vec<String> = codecs
                    .iter()
                    .map(|codec| codec.to_json().to_string())
                    .collect();
                names.join(", ")
            };
            format!(
                "codecs {}; it would read {}",
                names(&wanted.codecs),
                names(&read.codecs)
            )
        }
        name => name.to_string(),
    })
}
