//! The directory of a node that does not read: its documents as they are stored, and a file that says what is wrong.
//!
//! The documents have other names than in the store: a Zarr library that reads what zarrfs does not would find the node by
//! them, and no chunks. `zarr.json` is `stored.zarr.json`, `.zarray` is `stored.zarray`.
//!
//! Nothing of it can be changed here, since what a change would mean is not known; the store view shows and takes
//! everything.

use std::sync::Arc;

use crate::view::OpenedFile;
use crate::view::files::FilesView;
use crate::view::text_file::TextFile;
use zarr_format::error::{Error, Result};
use zarrfs_array::hierarchy::{BrokenDocument, NodeEntry};
use zarrfs_store::request_context::RequestContext;

/// The name of the file that says what is wrong.
pub(super) const ERROR_TEXT: &[u8] = b"ERROR.txt";

/// Returns the names of a broken node's own files, each once.
pub(super) fn names_of(found: &NodeEntry) -> Vec<Vec<u8>> {
    let documents = found.broken.iter().flat_map(|broken| &broken.documents);
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in documents.map(name_of).chain([ERROR_TEXT.to_vec()]) {
        // A name that is too long could not be looked up.
        if !names.contains(&name) && found.path.child(&name).is_ok() {
            names.push(name);
        }
    }
    names
}

/// Returns the name of a document of a broken node in the node's directory.
pub(super) fn name_of(document: &BrokenDocument) -> Vec<u8> {
    let name = document.key.name();
    let prefix: &[u8] = match name.first() {
        Some(b'.') => b"stored",
        _ => b"stored.",
    };
    [prefix, name].concat()
}

/// Returns what is wrong with a node, in a sentence.
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

/// Returns the error of a file that a node would have if it could be read.
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

/// Returns a file of a node that has these bytes, open.
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
