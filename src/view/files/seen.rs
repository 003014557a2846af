//! The version of a document that a program has read: the precondition of its save.
//!
//! A program that reads a document, changes it and writes it back opens it twice, or writes another file and renames
//! it. So the version of the last read is the precondition of truncating or replacing the document later; a document
//! that was not read is saved unconditionally. For `attributes.json` only the attributes are compared.

use std::sync::Arc;

use twox_hash::XxHash64;

use zarrfs_array::hierarchy::{EditedNode, NodeEntry};
use zarrfs_store::{Key, Version};

/// A version of a document that a program has read.
#[derive(Clone)]
pub(super) struct SeenDocument {
    /// Hash of the text.
    text: Version,
    /// The stored documents it was made from and their versions; `None` if they are unknown.
    pub(super) documents: Option<Arc<[(Key, Version)]>>,
}

impl SeenDocument {
    /// Returns the current version of a node's document.
    pub(super) fn shown(found: &NodeEntry, text: &[u8]) -> SeenDocument {
        SeenDocument {
            text: version_of(text),
            documents: found.documents.clone(),
        }
    }

    /// Returns the version of a document after an edit.
    pub(super) fn saved(edited: EditedNode, text: &[u8]) -> SeenDocument {
        SeenDocument {
            text: version_of(text),
            documents: Some(edited.documents.into()),
        }
    }

    /// Whether the text is this version.
    pub(super) fn is(&self, text: &[u8]) -> bool {
        self.text == version_of(text)
    }
}

fn version_of(text: &[u8]) -> Version {
    Version::numbered(XxHash64::oneshot(0, text))
}
