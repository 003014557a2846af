//! Provides the documents in a node's directory: generated, or as stored if unreadable.
//!
//! `metadata.json` and `attributes.json` are generated when they are opened, and their lengths are computed once per
//! node.
//!
//! The directory of an unreadable node has the stored metadata documents under other names (`zarr.json` as
//! `stored.zarr.json`, `.zarray` as `stored.zarray`), and a file with the error. Under the original names, a Zarr
//! library that understands the node would open it here, but find no chunks. The directory is read-only, since the
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

/// The version of an `attributes.json` or `metadata.json` that a program has read.
#[derive(Clone)]
pub(super) struct DocumentVersion {
    /// Hash of the generated document's text.
    text: Version,
    /// The keys and versions of the stored documents from which the text was generated, or `None` if they are unknown.
    pub(super) documents: Option<Arc<[(Key, Version)]>>,
}

impl DocumentVersion {
    /// Returns the version of a generated document whose text is `text`.
    pub(super) fn of_node(entry: &NodeEntry, text: &[u8]) -> DocumentVersion {
        DocumentVersion {
            text: version_of(text),
            documents: entry.documents.clone(),
        }
    }

    /// Returns the version that a generated document has after an edit of the node.
    pub(super) fn of_edit(edited: EditedNode, text: &[u8]) -> DocumentVersion {
        DocumentVersion {
            text: version_of(text),
            documents: Some(edited.documents.into()),
        }
    }

    /// Whether the version is that of the given text.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        self.text == version_of(text)
    }
}

fn version_of(text: &[u8]) -> Version {
    Version::numbered(XxHash64::oneshot(0, text))
}

/// Returns the text of a node's `metadata.json` or `attributes.json`. Long attributes are the stored text, without a
/// copy.
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

/// Returns the length in bytes of a node's `metadata.json` or `attributes.json`. Fails with the node's error if the
/// node cannot be read.
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

pub(super) fn open(entry: &NodeEntry, text: impl Into<Bytes>) -> OpenedFile {
    GeneratedFile::open(text.into(), entry.version, entry.modified)
}

/// Returns, each once, the names of the files in the directory of a node that cannot be read.
pub(super) fn unreadable_names(entry: &NodeEntry) -> Vec<Vec<u8>> {
    let documents = entry.broken.iter().flat_map(|broken| &broken.documents);
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in documents.map(raw_name).chain([ERROR_TEXT.into()]) {
        // A name that is too long for a key cannot be looked up.
        if !names.contains(&name) && entry.path.child(&name).is_ok() {
            names.push(name);
        }
    }
    names
}

/// Returns the name of a stored metadata document in the directory of a node that cannot be read.
pub(super) fn raw_name(document: &BrokenDocument) -> Vec<u8> {
    let name = document.key.name();
    let prefix: &[u8] = match name.first() {
        Some(b'.') => b"stored",
        _ => b"stored.",
    };
    [prefix, name].concat()
}

/// Returns the sentence that says why a node cannot be read.
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

/// Returns the error for opening a file that the node would have if it could be read.
pub(super) fn unreadable_error(entry: &NodeEntry) -> Error {
    let why = entry.node.as_ref().err().map(Error::to_string);
    let why = why.unwrap_or_default();
    Error::unsupported(&entry.path, format!("cannot be read: {why}"))
}
