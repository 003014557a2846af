//! Combines the cached answers about keys and about directories.
//!
//! The newer of two answers about a key wins, whether it comes from the key itself or from the listing of its
//! directory. The age of an answer counts from its request.

use std::sync::Arc;

use super::dated::{Dated, newer};
use super::dirs::DirCache;
use super::keys::{CachedObject, KeyTable};
use crate::{EntryKind, Key, Meta, Object, Version};

/// The answers in memory.
pub(super) struct KnownAnswers<'a> {
    pub(super) keys: &'a KeyTable,
    pub(super) dirs: &'a DirCache,
    /// Whether the store lists names, and so finds prefixes.
    pub(super) lists: bool,
}

impl KnownAnswers<'_> {
    /// Returns the answer to `head`, if known.
    pub(super) fn head(&self, key: &Key) -> Option<Dated<Option<Meta>>> {
        let of_dir = self.dirs.look(key).and_then(|found| {
            let head = match found.value {
                None => None,
                Some(entry) => Some(entry.meta?),
            };
            Some(found.with(head))
        });
        newer(newer(self.keys.head(key), of_dir), self.head_of_object(key))
    }

    /// Returns the answer to `head` from a known object, in a store without listings: it has no prefixes.
    fn head_of_object(&self, key: &Key) -> Option<Dated<Option<Meta>>> {
        if self.lists {
            return None;
        }
        let object = self.keys.object(key)?;
        match object.value {
            CachedObject::Object(meta) => Some(object.with(Some(meta))),
            CachedObject::Missing | CachedObject::Version(_) => None,
        }
    }

    /// Returns the known state of an object.
    pub(super) fn object(&self, key: &Key) -> Option<Dated<CachedObject>> {
        let of_dir = self.dirs.look(key).and_then(|found| {
            let object = match found.value {
                None => CachedObject::Missing,
                Some(entry) if entry.kind == EntryKind::File => CachedObject::Object(entry.meta?),
                Some(_) => return None,
            };
            Some(found.with(object))
        });
        newer(self.keys.object(key), of_dir)
    }

    /// Returns the version of an object, if known; `None` inside if the object is missing.
    pub(super) fn version(&self, key: &Key) -> Option<Dated<Option<Version>>> {
        let known = self.object(key)?;
        Some(known.with(known.value.version()))
    }

    /// Returns a document, if known; `None` inside if it is missing.
    pub(super) fn document(&self, key: &Key) -> Option<Dated<Option<Arc<Object>>>> {
        let known = self.object(key);
        if let Some(missing) = known.filter(|known| known.value == CachedObject::Missing) {
            return Some(missing.with(None));
        }
        let document = self.keys.document(key)?;
        let version = document.value.version;
        match known.filter(|known| known.asked > document.asked) {
            // The version has changed since.
            Some(newer) if newer.value.version() != Some(version) => None,
            // A later answer has another length.
            Some(newer) if is_other_length(newer.value, &document.value) => None,
            // A later answer confirms the version.
            Some(newer) => Some(newer.with(Some(document.value))),
            None => Some(document.with(Some(document.value.clone()))),
        }
    }
}

/// Whether the known length of an object differs.
fn is_other_length(known: CachedObject, object: &Object) -> bool {
    let content = known.content();
    content.is_some_and(|(_, size)| size != object.size)
}
