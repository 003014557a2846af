//! The directory of an unreadable node: its stored documents, and a file with the error.
//!
//! The documents have other names than in the store: a Zarr library that reads a format that zarrfs does not read would
//! find the node by them, but no chunks. `zarr.json` is `stored.zarr.json`, `.zarray` is `stored.zarray`.
//!
//! The directory is read-only, since the effect of a change is unknown; the store view shows and accepts everything.

use std::sync::Arc;

use crate::view::OpenedFile;
use crate::view::files::FilesView;
use crate::view::text_file::TextFile;
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::{BrokenDocument, NodeEntry};
use zarrfs_store::request_context::RequestContext;

/// The name of the file with the error.
pub(super) const ERROR_TEXT: &[u8] = b"ERROR.txt";

/// Returns the names of a broken node's own files, each once.
pub(super) fn names_of(found: &NodeEntry) -> Vec<Vec<u8>> {
    let documents = found.broken.iter().flat_map(|broken| &broken.documents);
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in documents.map(name_of).chain([ERROR_TEXT.to_vec()]) {
        // A name that is too long cannot be looked up.
        if !names.contains(&name) && found.path.child(&name).is_ok() {
            names.push(name);
        }
    }
    names
}

/// Returns the name that a document of a broken node has in the node's directory.
pub(super) fn name_of(document: &BrokenDocument) -> Vec<u8> {
    let name = document.key.name();
    let prefix: &[u8] = match name.first() {
        Some(b'.') => b"stored",
        _ => b"stored.",
    };
    [prefix, name].concat()
}

/// Returns the error of a node as a sentence.
pub(super) fn error_text(found: &NodeEntry) -> Vec<u8> {
    let node = if found.path.is_root() {
        "The root".to_string()
    } else {
        format!("The node {}", found.path)
    };
    let why = found.node.as_ref().err().map(Error::to_string);
    let why = why.unwrap_or_default();
    format!("{node} cannot be read: {why}\n").into_bytes()
}

/// Returns the error of opening a file that a readable node would have.
pub(super) fn not_readable(found: &NodeEntry) -> Error {
    let why = found.node.as_ref().err().map(Error::to_string);
    let why = why.unwrap_or_default();
    Error::unsupported(&found.path, format!("cannot be read: {why}"))
}

impl FilesView {
    /// Opens a document of a broken node.
    pub(super) fn open_as_found(
        &self,
        context: &RequestContext,
        found: &NodeEntry,
        document: &BrokenDocument,
    ) -> Result<OpenedFile> {
        let object = self.hierarchy.document_as_found(context, found, document)?;
        Ok(text_file(found, object.bytes))
    }
}

/// Returns an open file of a node with these bytes.
pub(super) fn text_file(found: &NodeEntry, bytes: Vec<u8>) -> OpenedFile {
    OpenedFile {
        file: Arc::new(TextFile {
            bytes: bytes.into(),
            version: found.version,
            modified: found.modified,
        }),
        content: Some(found.version),
        version: Some(found.version),
        direct: false,
        tree_file: None,
    }
}
