//! The documents in a node's directory: generated ones, or those of an unreadable node as stored.
//!
//! `metadata.json` and `attributes.json` are generated when they are opened. Their lengths are computed once for each
//! node.
//!
//! The directory of an unreadable node has its stored documents, and a file with the error. The documents do not have
//! their names of the store: under those, a Zarr library that understands the node would open it here, but would find
//! no chunks. `zarr.json` is `stored.zarr.json`, `.zarray` is `stored.zarray`. The directory is read-only, since the
//! effect of a change is unknown; the store view shows and accepts everything.

use std::sync::Arc;

use bytes::Bytes;
use twox_hash::XxHash64;

use crate::view::files::METADATA;
use crate::view::{ERROR_TEXT, GeneratedFile, MAX_IMMEDIATE_TEXT, OpenedFile};
use zarr_format::dialect::v3;
use zarr_format::error::{Error, Result};
use zarr_format::json_text;
use zarr_format::model::Node;
use zarrfs_array::hierarchy::{BrokenDocument, EditedNode, NodeEntry};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Version};

/// A version of a document that a program has read.
#[derive(Clone)]
pub(super) struct DocumentVersion {
    /// Hash of the text.
    text: Version,
    /// The keys and versions of the stored documents from which the text was generated; `None` if they are unknown.
    pub(super) documents: Option<Arc<[(Key, Version)]>>,
}

impl DocumentVersion {
    /// Returns the current version of a node's document.
    pub(super) fn of_node(entry: &NodeEntry, text: &[u8]) -> DocumentVersion {
        DocumentVersion {
            text: version_of(text),
            documents: entry.documents.clone(),
        }
    }

    /// Returns the version of a document after an edit.
    pub(super) fn of_edit(edited: EditedNode, text: &[u8]) -> DocumentVersion {
        DocumentVersion {
            text: version_of(text),
            documents: Some(edited.documents.into()),
        }
    }

    /// Whether the text is this version.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.text == version_of(text)
    }
}

fn version_of(text: &[u8]) -> Version {
    Version::numbered(XxHash64::oneshot(0, text))
}

/// Returns a document of a node. Long attributes are returned as the stored text, without a copy.
pub(super) fn document(node: &Node, name: &[u8]) -> Bytes {
    let attributes = node.attributes();
    match name {
        METADATA => v3::document(node).into(),
        _ if is_short(node) => json_text::document(attributes.text()).into(),
        _ => attributes.shared_text().clone(),
    }
}

fn is_short(node: &Node) -> bool {
    node.attributes().shared_text().len() <= MAX_IMMEDIATE_TEXT
}

/// Returns the length of a node's document; fails with the node's error if the node cannot be read.
pub(super) fn length_of(context: &RequestContext, entry: &NodeEntry, name: &[u8]) -> Result<u64> {
    let node = entry.node()?;
    let [metadata, attributes] = &entry.lengths;
    let length = match name {
        METADATA => metadata,
        _ => attributes,
    };
    if length.get().is_none() && !is_short(node) {
        context.check_may_wait()?;
    }
    Ok(*length.get_or_init(|| document(node, name).len() as u64))
}

/// Opens a document of a node with this text.
pub(super) fn open(entry: &NodeEntry, text: impl Into<Bytes>) -> OpenedFile {
    GeneratedFile::open(text.into(), entry.version, entry.modified)
}

/// Returns the names of a broken node's own files, each once.
pub(super) fn unreadable_names(entry: &NodeEntry) -> Vec<Vec<u8>> {
    let documents = entry.broken.iter().flat_map(|broken| &broken.documents);
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in documents.map(raw_name).chain([ERROR_TEXT.into()]) {
        // A name that is too long cannot be looked up.
        if !names.contains(&name) && entry.path.child(&name).is_ok() {
            names.push(name);
        }
    }
    names
}

/// Returns the name that a document of a broken node has in the node's directory.
pub(super) fn raw_name(document: &BrokenDocument) -> Vec<u8> {
    let name = document.key.name();
    let prefix: &[u8] = match name.first() {
        Some(b'.') => b"stored",
        _ => b"stored.",
    };
    [prefix, name].concat()
}

/// Returns the error of a node as a sentence.
pub(super) fn error_text(entry: &NodeEntry) -> Vec<u8> {
    let node = if entry.path.is_root() {
        "The root".to_string()
    } else {
        format!("The node {}", entry.path)
    };
    let why = entry.node.as_ref().err().map(Error::to_string);
    let why = why.unwrap_or_default();
    format!("{node} cannot be read: {why}\n").into_bytes()
}

/// Returns the error of opening a file that a readable node would have.
pub(super) fn unreadable_error(entry: &NodeEntry) -> Error {
    let why = entry.node.as_ref().err().map(Error::to_string);
    let why = why.unwrap_or_default();
    Error::unsupported(&entry.path, format!("cannot be read: {why}"))
}
