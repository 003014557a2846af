//! Documents put into the store, and their copies in consolidated metadata.
//!
//! Each is put on the condition that its key still holds what was read of it. A copy is made of the document as it is
//! stored then, since some programs read nothing but the copies; so copies of several documents that are edited at once
//! all get in, and every other copy keeps its text. Consolidated metadata that do not read are left alone.

use crate::dialect::text_of;
use crate::error::{Kind, Result};
use crate::hierarchy::copies::CopyHolder;
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use crate::json_text::ObjectText;
use crate::store::{Condition, ETag, Key, Object, PutBody, Version};

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
    pub(super) fn publish(&self, changes: &[DocumentChange]) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for change in changes {
            let etag = self.put(&change.key, &change.bytes, &change.condition)?;
            versions.push((change.key.clone(), etag.version));
        }
        Ok(versions)
    }

    /// Puts a document. What is remembered of one that was changed meanwhile does not count any more.
    pub(super) fn put(&self, key: &Key, bytes: &[u8], condition: &Condition) -> Result<ETag> {
        let put = self.store.put(key, PutBody::Bytes(bytes), condition);
        if matches!(&put, Err(error) if error.kind() == Kind::Changed) {
            self.store.info().changes.note(key);
        }
        put
    }

    /// Updates the consolidated metadata of all folders above documents that were changed.
    pub(super) fn update_consolidated(&self, changed: &[Key]) -> Result<()> {
        for holder in CopyHolder::above(changed)? {
            self.update_document(&holder, changed)?;
        }
        Ok(())
    }

    /// Fails with `Invalid` if consolidated metadata above documents that are going to change have a name twice, so that
    /// they cannot be updated.
    pub(super) fn check_consolidated(&self, changed: &[Key]) -> Result<()> {
        for holder in CopyHolder::above(changed)? {
            if let Some(object) = self.holder(holder.key())? {
                holder.copies(&object.bytes).map(drop)?;
            }
        }
        Ok(())
    }

    /// Brings the copies in a document up to date, if it is there and holds copies.
    fn update_document(&self, holder: &CopyHolder, changed: &[Key]) -> Result<()> {
        let own_folder = holder.key().parent().unwrap_or_default();
        self.editing.with(&own_folder, || {
            let mut refused = None;
            for _ in 0..MAX_ATTEMPTS {
                match self.try_update(holder, changed) {
                    Err(error) if error.kind() == Kind::Changed => refused = Some(error),
                    // What was refused lies there, but not in the store.
                    Ok(false) => break,
                    done => return done.map(drop),
                }
            }
            refused.map_or(Ok(()), Err)
        })
    }

    /// Makes the copies in a document those of the documents as they are stored now; returns whether it was changed.
    fn try_update(&self, holder: &CopyHolder, changed: &[Key]) -> Result<bool> {
        let Some(object) = self.holder(holder.key())? else {
            return Ok(false);
        };
        let Some(copies) = holder.copies(&object.bytes)? else {
            return Ok(false);
        };
        let mut changes = Vec::new();
        for document in changed {
            if let Some(name) = holder.name_of(document) {
                changes.push((name, self.copy_of(holder, document)?));
            }
        }
        let bytes = copies.edited(&changes);
        let is_changed = bytes != object.bytes;
        if is_changed {
            let condition = Condition::Version(object.version);
            self.put(holder.key(), &bytes, &condition)?;
        }
        Ok(is_changed)
    }

    /// Returns the copy of a document as it is stored now; nothing if it is missing or no JSON object.
    pub(super) fn copy_of(&self, holder: &CopyHolder, document: &Key) -> Result<Option<String>> {
        let object = self.store.get(document, MAX_DOCUMENT)?;
        let Some(object) = object else {
            return Ok(None);
        };
        let text = text_of(&object.bytes).ok();
        let text = text.and_then(|text| ObjectText::parse(text).ok());
        Ok(text.map(|text| holder.copied(&text).trim().to_string()))
    }

    /// Returns a document that may hold copies; nothing if it is missing or cannot be read.
    fn holder(&self, key: &Key) -> Result<Option<Object>> {
        match self.store.get(key, MAX_DOCUMENT) {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::NameTooLong) => Ok(None),
            answer => answer,
        }
    }
}
