//! Looks up keys below a node in consolidated metadata, without requests.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use crate::hierarchy::NodeEntry;
use crate::hierarchy::consolidated::Consolidated;
use zarr_format::model::document::IN_NODE_FOLDER;
use zarrfs_store::Presence;
use zarrfs_store::{EntryKind, Key};

/// The kind of a key in consolidated metadata.
pub enum Copied {
    /// A folder with documents below it.
    Folder,
    /// A document.
    Document(DocumentCopy),
}

/// A document in consolidated metadata, whose text it shares.
pub struct DocumentCopy {
    /// Its text.
    pub text: Bytes,
    /// The time of the last change of the consolidated metadata.
    pub modified: SystemTime,
    /// Counts the text in the memory budget.
    _held: Arc<Consolidated>,
}

impl NodeEntry {
    /// Returns the entry of a key below the node in the consolidated metadata that its children, or an array's keys,
    /// are read from.
    pub fn copied(&self, key: &Key) -> Presence<Copied> {
        let Some(used) = &self.scope.consolidated else {
            return Presence::Unknown;
        };
        used.kind_of(key).map(|kind| match used.document(key) {
            Some(text) if kind == EntryKind::File => Copied::Document(DocumentCopy {
                text,
                modified: used.modified(),
                _held: used.clone(),
            }),
            _ => Copied::Folder,
        })
    }

    /// Returns the keys of the documents in its folder that it was read from, including its consolidated metadata.
    pub fn documents_in_folder(&self) -> Vec<Key> {
        let names = IN_NODE_FOLDER.iter();
        let keys = names.filter_map(|name| self.path.child(name.as_bytes()).ok());
        keys.filter(|key| self.has_read(key)).collect()
    }

    /// Whether the node was read from a document, or has its consolidated metadata in it.
    fn has_read(&self, key: &Key) -> bool {
        let read = self.documents.as_deref().unwrap_or_default();
        let broken = self.broken.iter().flat_map(|broken| &broken.documents);
        let used = self.scope.consolidated.as_ref();
        read.iter().any(|(read, _)| read == key)
            || broken.into_iter().any(|broken| broken.key == *key)
            || used.is_some_and(|used| used.is_source(key) || used.document(key).is_some())
    }
}
