//! Puts documents on the condition that their keys are unchanged.
//!
//! Their copies in consolidated metadata are not put: the overlay derives them from the documents
//! (`overlay/derived.rs`).

use crate::hierarchy::Hierarchy;
use zarr_format::error::{Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Condition, ETag, Key, PutBody, Version};

/// The maximum number of attempts of an edit that conflicts with other changes.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// Documents and their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

/// A change of a document.
pub(super) struct DocumentChange {
    pub(super) key: Key,
    pub(super) bytes: Vec<u8>,
    /// The condition of the put.
    pub(super) condition: Condition,
}

impl Hierarchy {
    /// Puts documents in the given order, and returns their versions. `Changed` if a key does not have the content that
    /// its change was made from.
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

    /// Puts a document. On a conflict, invalidates cached answers about its key.
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
            self.store.info().changes.record(key);
        }
        put
    }
}
