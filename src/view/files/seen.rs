//! What programs have seen of a document: it is the condition of what they save.
//!
//! A program that reads a document, changes it and writes it back opens it twice, or writes another file and renames
//! it. So the content that a document was last opened with is the condition of emptying or replacing it afterwards; a
//! document that was not read has none. Only the attributes count for `attributes.json`.

use std::sync::Arc;

use twox_hash::XxHash64;

use zarrfs_array::hierarchy::{EditedNode, NodeEntry};
use zarrfs_store::{Key, Version};

/// A content of a document that a program has seen.
#[derive(Clone)]
pub(super) struct SeenDocument {
    /// Names the text.
    text: Version,
    /// The stored documents that it was made from and their versions; nothing if these are not known.
    pub(super) documents: Option<Arc<[(Key, Version)]>>,
}

impl SeenDocument {
    /// Returns the text of a node's document as it is shown now.
    pub(super) fn shown(found: &NodeEntry, text: &[u8]) -> SeenDocument {
        SeenDocument {
            text: version_of(text),
            documents: found.documents.clone(),
        }
    }

    /// Returns the text of a document as an edit has left it.
    pub(super) fn saved(edited: EditedNode, text: &[u8]) -> SeenDocument {
        SeenDocument {
            text: version_of(text),
            documents: Some(edited.documents.into()),
        }
    }

    /// Whether this is the text that was seen.
    pub(super) fn is(&self, text: &[u8]) -> bool {
        self.text == version_of(text)
    }
}

fn version_of(text: &[u8]) -> Version {
    Version::numbered(XxHash64::oneshot(0, text))
}
