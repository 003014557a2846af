//! Reads the documents of a node in their format: a plain dialect, or a draft.

use std::sync::Arc;

use crate::hierarchy::publish::DocumentVersions;
use crate::hierarchy::scope::Rule;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::draft::{DocumentRole, EntryPoint};
use zarr_format::dialect::{Dialect, Document, DocumentMap, n5};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// The format of a node's documents.
pub(super) enum DocumentFormat {
    /// Documents of a plain dialect, in the folder of the node.
    Plain(&'static Dialect),
    /// A document of a draft, at the key that the entry point defines.
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
}

/// The documents that may describe a node in its format; at least one is stored.
pub(super) struct NodeDocuments {
    pub(super) format: DocumentFormat,
    pub(super) documents: Vec<Document>,
    /// The versions of the stored documents.
    pub(super) versions: DocumentVersions,
}

impl NodeDocuments {
    /// Returns the documents that change if the node gets these attributes.
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

impl Hierarchy {
    /// Returns the stored documents of a node, or `None` if no document describes it.
    pub(super) fn documents_of(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
    ) -> Result<Option<NodeDocuments>> {
        let path = &found.path;
        match &found.scope.rule {
            Rule::Plain(dialects) => {
                for dialect in *dialects {
                    let mut versions = DocumentVersions::new();
                    let keys = (dialect.documents)(path)?.into_iter();
                    let documents = keys
                        .map(|key| self.stored(context, key, &mut versions))
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
                    let document = self.stored(context, key, &mut versions)?;
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

    /// Returns the document of a draft's array and the folder of its chunks; `None` for other dialects, and if the user
    /// has chosen the draft, since the meaning of the document then does not follow from the entry point.
    pub fn draft_keys(&self, found: &NodeEntry) -> Option<(Key, Key)> {
        let Rule::Draft(entry) = &found.scope.rule else {
            return None;
        };
        if self.config.dialect.is_some() {
            return None;
        }
        let read = found.described_by();
        let keys = entry.documents(&found.path).ok()?.into_iter();
        let of_arrays = keys.filter(|(role, _)| *role == DocumentRole::Array);
        // A node from consolidated metadata does not have the key of its document.
        let mut documents: Vec<Key> = of_arrays.map(|(_, key)| key).collect();
        documents.sort_by_key(|key| !read.contains(&key));
        let document = documents.into_iter().next()?;
        Some((document, entry.data(&found.path).ok()?))
    }

    /// Returns a stored document, and adds its version. A document whose name is too long is missing.
    fn stored(
        &self,
        context: &RequestContext,
        key: Key,
        versions: &mut DocumentVersions,
    ) -> Result<Document> {
        let object = match self.store.get(context, &key, MAX_DOCUMENT) {
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

    /// Parses the documents of a node; `Corrupt` if they do not describe one.
    pub(super) fn parsed(
        &self,
        format: &DocumentFormat,
        path: &Key,
        documents: &[Document],
    ) -> Result<Node> {
        let none = || Error::corrupt(path, "the documents describe no node");
        match format {
            DocumentFormat::Plain(dialect) => {
                // The node is known, so its documents are a node's whatever they contain.
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
