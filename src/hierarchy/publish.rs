//! Documents put into the store, and their copies in consolidated metadata.
//!
//! Each is put on the condition that its key still holds what was read of it. A copy is made of the document as it is
//! stored then, since some programs read nothing but the copies; so copies of several documents that are edited at once
//! all get in. Consolidated metadata that do not read are left alone.

use serde_json::{Map, Value};

use crate::dialect::{Document, consolidated, json};
use crate::error::{Kind, Result};
use crate::hierarchy::{Hierarchy, MAX_DOCUMENT};
use crate::model::document::{CONSOLIDATED_2020, ZARR_JSON, ZMETADATA};
use crate::store::{Condition, ETag, Key, PutBody, Version};

/// How often a change of a document is made anew because another one was put in between.
pub(super) const MAX_ATTEMPTS: usize = 16;

/// Documents and their versions.
pub type DocumentVersions = Vec<(Key, Version)>;

/// A change of a document.
pub(super) struct DocumentChange {
    pub(super) key: Key,
    /// The new bytes; nothing to erase it.
    pub(super) bytes: Option<Vec<u8>>,
    /// What the key must hold.
    pub(super) condition: Condition,
}

/// How a document holds copies of others.
#[derive(Clone, Copy)]
enum Consolidation {
    /// By their keys, counted from a folder.
    ByKey,
    /// By the paths of the nodes below a group, whose own document it is.
    ByNode,
}

impl Hierarchy {
    /// Puts and erases documents, in the given order; returns the versions of those that were put. `Changed` if a key
    /// holds something else than what its change was made from.
    pub(super) fn publish(&self, changes: &[DocumentChange]) -> Result<DocumentVersions> {
        let mut versions = DocumentVersions::new();
        for change in changes {
            let (key, condition) = (&change.key, &change.condition);
            match &change.bytes {
                Some(bytes) => {
                    let etag = self.put(key, bytes, condition)?;
                    versions.push((key.clone(), etag.version));
                }
                None => self.store.erase(key, condition)?,
            }
        }
        Ok(versions)
    }

    /// Puts a document. What is remembered of one that was changed meanwhile does not count any more.
    fn put(&self, key: &Key, bytes: &[u8], condition: &Condition) -> Result<ETag> {
        let put = self.store.put(key, PutBody::Bytes(bytes), condition);
        if matches!(&put, Err(error) if error.kind() == Kind::Changed) {
            self.store.info().changes.note(key);
        }
        put
    }

    /// Updates the consolidated metadata of all folders above documents that were changed.
    pub(super) fn update_consolidated(&self, changed: &[Key]) -> Result<()> {
        let mut folders: Vec<Key> = Vec::new();
        for key in changed {
            let mut folder = key.parent();
            while let Some(at) = folder {
                folder = at.parent();
                if !folders.contains(&at) {
                    folders.push(at);
                }
            }
        }
        for folder in &folders {
            let drafted = CONSOLIDATED_2020
                .split('/')
                .try_fold(folder.clone(), |key, name| key.child(name.as_bytes()))?;
            for (key, form) in [
                (folder.child(ZMETADATA.as_bytes())?, Consolidation::ByKey),
                (folder.child(ZARR_JSON.as_bytes())?, Consolidation::ByNode),
                (drafted, Consolidation::ByKey),
            ] {
                self.update_document(&key, folder, form, changed)?;
            }
        }
        Ok(())
    }

    /// Brings the copies in a document up to date, if it is there and holds copies.
    fn update_document(
        &self,
        key: &Key,
        folder: &Key,
        form: Consolidation,
        changed: &[Key],
    ) -> Result<()> {
        let own_folder = key.parent().unwrap_or_default();
        self.editing.with(&own_folder, || {
            let mut refused = None;
            for _ in 0..MAX_ATTEMPTS {
                match self.try_update(key, folder, form, changed) {
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
    fn try_update(
        &self,
        key: &Key,
        folder: &Key,
        form: Consolidation,
        changed: &[Key],
    ) -> Result<bool> {
        let Some((mut members, version)) = self.members_of(key)? else {
            return Ok(false);
        };
        let Some(copies) = form.copies(&mut members) else {
            return Ok(false);
        };
        let mut is_changed = false;
        for document in changed {
            if let Some(name) = form.name_of(document, folder) {
                let object = self.store.get(document, MAX_DOCUMENT)?;
                let bytes = object.map(|object| object.bytes);
                is_changed |= replace_copy(copies, &name, bytes.as_deref());
            }
        }
        if is_changed {
            let bytes = json::render(&Value::Object(members));
            let condition = Condition::Version(version);
            self.put(key, &bytes, &condition)?;
        }
        Ok(is_changed)
    }

    /// Returns the members of a document and its version; nothing if it is missing or does not read.
    fn members_of(&self, key: &Key) -> Result<Option<(Map<String, Value>, Version)>> {
        let object = match self.store.get(key, MAX_DOCUMENT) {
            Err(error) if matches!(error.kind(), Kind::TooLarge | Kind::NameTooLong) => None,
            answer => answer?,
        };
        let Some(object) = object else {
            return Ok(None);
        };
        let document = Document {
            key: key.clone(),
            bytes: Some(object.bytes),
        };
        let members = document.object().unwrap_or_default();
        Ok(members.map(|members| (members, object.version)))
    }
}

impl Consolidation {
    /// Returns the copies in a document.
    fn copies(self, members: &mut Map<String, Value>) -> Option<&mut Map<String, Value>> {
        let holder = match self {
            Consolidation::ByKey => members.get_mut("metadata")?,
            Consolidation::ByNode => members.get_mut(consolidated::MEMBER)?.get_mut("metadata")?,
        };
        holder.as_object_mut()
    }

    /// Returns the name of a document's copy; nothing if it has none here.
    fn name_of(self, document: &Key, folder: &Key) -> Option<String> {
        let copied = match self {
            Consolidation::ByKey => document.below(folder)?,
            Consolidation::ByNode if document.name() == ZARR_JSON.as_bytes() => {
                let node = document.parent()?.below(folder)?;
                (!node.is_root()).then_some(node)?
            }
            Consolidation::ByNode => return None,
        };
        String::from_utf8(copied.as_bytes().to_vec()).ok()
    }
}

/// Replaces or removes the copy of a document; returns whether that changed something.
fn replace_copy(copies: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) -> bool {
    match bytes.and_then(|bytes| json::parse(bytes).ok()) {
        Some(document) if copies.get(name) == Some(&document) => false,
        Some(document) => {
            copies.insert(name.to_string(), document);
            true
        }
        None => copies.shift_remove(name).is_some(),
    }
}
