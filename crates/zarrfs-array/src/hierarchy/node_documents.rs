//! Reads and parses the documents of a node in their format: a plain dialect, or a draft.

use std::sync::Arc;

use crate::hierarchy::child_context::Rule;
use crate::hierarchy::{MAX_DOCUMENT, NodeEntry};
use zarr_format::dialect::draft::{DocumentRole, EntryPoint};
use zarr_format::dialect::{Dialect, Document, DocumentMap, n5};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::{Attributes, Node};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Store, Version};

/// Documents and their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

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

    /// Parses the documents of a node; `Corrupt` if they do not describe one.
    pub(super) fn parse(&self, path: &Key, documents: &[Document]) -> Result<Node> {
        let none = || {
            Error::corrupt(
                path,
                "the metadata files describe neither a group nor an array",
            )
        };
        match self {
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

/// The documents that may describe a node in its format; at least one is stored.
pub(super) struct NodeDocuments {
    pub(super) format: DocumentFormat,
    pub(super) documents: Vec<Document>,
    /// The versions of the stored documents.
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

/// Returns a stored document, and adds its version. A document whose name is too long is missing.
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
