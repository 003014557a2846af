//! Documents put into the store, each on the condition that its key still holds what was read of it.
//!
//! Their copies in consolidated metadata are not put: the overlay derives them of the documents (`overlay/derived.rs`).

use crate::hierarchy::Hierarchy;
use zarr_format::error::{Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, ETag, Key, PutBody, Version};

/// How often a change of a document is made anew because another one was put in between.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// Documents and their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

/// A change of a document.
pub(super) struct DocumentChange {
    pub(super) key: Key,
    pub(super) bytes: Vec<u8>,
    /// What the key must hold.
    pub(super) condition: Condition,
}

impl Hierarchy {
    /// Puts documents, in the given order, and returns their versions. `Changed` if a key holds something else than what its
    /// change was made from.
    pub(super) fn publish(
        &self,
        context: &RequestContext,
        changes: &[DocumentChange],
    ) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for change in changes {
            let etag = self.put(context, &change.key, &change.bytes, &change.condition)?;
            versions.push((change.key.clone(), etag.version));
        }
        Ok(versions)
    }

    /// Puts a document. What is remembered of one that was changed meanwhile does not count any more.
    pub(super) fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        bytes: &[u8],
        condition: &Condition,
    ) -> Result<ETag> {
        let put = self
            .store
            .put(context, key, PutBody::Bytes(bytes), condition);
        if matches!(&put, Err(error) if error.kind() == Kind::Changed) {
            self.store.info().changes.note(key);
        }
        put
    }
}
