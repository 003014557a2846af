//! The documents of a node and their format: the dialect of a plain node, or the draft of its hierarchy.
//!
//! Finds the format in which a new node is to be written, and reads documents that are not stored yet as if they were.

use std::sync::Arc;

use crate::dialect::draft::{DocumentRole, EntryPoint};
use crate::dialect::{Choice, Dialect, Document, DocumentMap, Edit, n5, v3};
use crate::error::{Error, Kind, Result};
use crate::hierarchy::publish::DocumentVersions;
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use crate::model::Node;
use crate::store::Key;

/// How many children of a group are tried to find the format of a new one.
const MAX_SAMPLED_CHILDREN: usize = 16;

/// The format of a node's documents.
#[derive(Clone)]
pub(super) enum DocumentFormat {
    /// Documents of a plain dialect, in the folder of the node.
    Plain(&'static Dialect),
    /// A document of a draft, where the entry point has it.
    Draft(Arc<EntryPoint>),
}

impl DocumentFormat {
    /// Returns the name of the dialect or draft.
    pub(super) fn name(&self) -> &'static str {
        match self {
            DocumentFormat::Plain(dialect) => dialect.name,
            DocumentFormat::Draft(entry) => entry.name(),
        }
    }

    /// Returns what is wrong with documents that describe another node than they were made for.
    pub(super) fn reads_otherwise(&self) -> String {
        format!("{} would read something else than was written", self.name())
    }

    /// Returns the documents of a new node; `Unsupported` if the format cannot express it.
    pub(super) fn documents(&self, path: &Key, node: &Node) -> Result<DocumentMap> {
        match (self, node) {
            (DocumentFormat::Plain(dialect), Node::Group(group)) => {
                (dialect.group)(path, &group.attributes)
            }
            (DocumentFormat::Plain(dialect), Node::Array(array)) => (dialect.array)(path, array),
            (DocumentFormat::Draft(entry), node) => Ok(vec![entry.new_document(path, node)?]),
        }
    }
}

/// The documents that describe a node, all that its format may have; at least one is stored.
pub(super) struct NodeDocuments {
    pub(super) format: DocumentFormat,
    pub(super) documents: Vec<Document>,
    /// The versions of those that are stored.
    pub(super) versions: DocumentVersions,
}

impl NodeDocuments {
    /// Returns the documents that change with the node.
    pub(super) fn edited(&self, edit: &Edit) -> Result<DocumentMap> {
        match &self.format {
            DocumentFormat::Plain(dialect) => (dialect.edit)(&self.documents, edit),
            DocumentFormat::Draft(entry) => match self.documents.first() {
                Some(document) => entry.edit(document, edit),
                None => Ok(Vec::new()),
            },
        }
    }
}

impl Hierarchy {
    /// Returns the documents of a node as the store has them; nothing for a group that none describes.
    pub(super) fn documents_of(&self, found: &NodeEntry) -> Result<Option<NodeDocuments>> {
        let path = &found.path;
        match &found.scope.rule {
            Rule::Plain(dialects) => {
                for dialect in *dialects {
                    let mut versions = DocumentVersions::new();
                    let keys = (dialect.documents)(path)?.into_iter();
                    let documents = keys
                        .map(|key| self.stored(key, &mut versions))
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
                    let document = self.stored(key, &mut versions)?;
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
                let why = "the entry point of the hierarchy does not read";
                return Err(Error::invalid(path, why));
            }
        }
        Ok(None)
    }

    /// Returns a document as it is stored, and adds its version. One whose name is too long is missing.
    fn stored(&self, key: Key, versions: &mut DocumentVersions) -> Result<Document> {
        let object = match self.store.get(&key, MAX_DOCUMENT) {
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

    /// Returns the format of a node's documents. An implied group has that of a child, or else of the group above.
    pub(super) fn format_of(self: &Arc<Self>, found: &Arc<NodeEntry>) -> Result<DocumentFormat> {
        if let Rule::Draft(entry) = &found.scope.rule {
            return Ok(DocumentFormat::Draft(entry.clone()));
        }
        if let Some(documents) = self.documents_of(found)? {
            return Ok(documents.format);
        }
        if let Some(format) = self.format_within(found)? {
            return Ok(format);
        }
        match found.path.parent() {
            Some(path) => match self.node(&path)? {
                Some(above) => self.format_of(&above),
                None => Err(Error::not_found(&path)),
            },
            None => Ok(match self.config.dialect {
                Some(Choice::Plain([first, ..])) => DocumentFormat::Plain(first),
                _ => DocumentFormat::Plain(&v3::DIALECT),
            }),
        }
    }

    /// Returns the format of the first child of a group that has documents, if one of the first children has some.
    fn format_within(self: &Arc<Self>, group: &Arc<NodeEntry>) -> Result<Option<DocumentFormat>> {
        let Ok(mut children) = self.children(group) else {
            return Ok(None);
        };
        for _ in 0..MAX_SAMPLED_CHILDREN {
            let Some(name) = children.next()? else { break };
            if let Some(child) = self.child(group, &name.name)?
                && matches!(child.scope.rule, Rule::Plain(_))
                && let Some(documents) = self.documents_of(&child)?
            {
                return Ok(Some(documents.format));
            }
        }
        Ok(None)
    }

    /// Reads new documents as if they were stored; `Corrupt` if they describe no node.
    pub(super) fn read_back(
        &self,
        format: &DocumentFormat,
        path: &Key,
        new: &DocumentMap,
    ) -> Result<Node> {
        let bytes_of = |key: &Key| {
            let found = new.iter().find(|(new, _)| new == key);
            found.map(|(_, bytes)| bytes.clone().into())
        };
        let document = |key: Key| Document {
            bytes: bytes_of(&key),
            key,
            ..Document::default()
        };
        match format {
            DocumentFormat::Plain(dialect) => {
                let keys = (dialect.documents)(path)?.into_iter();
                self.parsed(format, path, &keys.map(document).collect::<Vec<_>>())
            }
            DocumentFormat::Draft(_) => {
                let documents = new.iter().map(|(key, _)| document(key.clone()));
                self.parsed(format, path, &documents.collect::<Vec<_>>())
            }
        }
    }

    /// Reads the documents of a node; `Corrupt` if they describe none.
    pub(super) fn parsed(
        &self,
        format: &DocumentFormat,
        path: &Key,
        documents: &[Document],
    ) -> Result<Node> {
        let none = || Error::corrupt(path, "the documents describe no node");
        match format {
            DocumentFormat::Plain(dialect) => {
                // The documents of a node that is known are a node's, whatever is in them.
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
                Ok(entry
                    .parse(path, role, (document, &members), self.config.settings)?
                    .node)
            }
        }
    }
}
