//! What is known of keys without a request.
//!
//! The newer of two answers about one key counts, whether it came from the key itself or from the listing of its
//! directory. An answer counts from when the store was asked.

use std::sync::Arc;

use super::dated::{Dated, newer};
use super::dirs::DirCache;
use super::keys::{CachedObject, KeyTable};
use crate::{EntryKind, Key, Meta, Object, Version};

/// Answers from memory.
pub(super) struct KnownAnswers<'a> {
    pub(super) keys: &'a KeyTable,
    pub(super) dirs: &'a DirCache,
    /// Whether the store lists names, and so knows prefixes.
    pub(super) lists: bool,
}

impl KnownAnswers<'_> {
    /// Returns what `head` answers if that is known.
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

    /// Returns what `head` answers about a known object of a store that knows no prefixes, so that none can be meant.
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

    /// Returns what is known of an object.
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

    /// Returns the version of an object if that is known; nothing in it if the object is missing.
    pub(super) fn version(&self, key: &Key) -> Option<Dated<Option<Version>>> {
        let known = self.object(key)?;
        Some(known.with(known.value.version()))
    }

    /// Returns a document, or that there is none, if that is known.
    pub(super) fn document(&self, key: &Key) -> Option<Dated<Option<Arc<Object>>>> {
        let known = self.object(key);
        if let Some(missing) = known.filter(|known| known.value == CachedObject::Missing) {
            return Some(missing.with(None));
        }
        let document = self.keys.document(key)?;
        let version = document.value.version;
        match known.filter(|known| known.asked > document.asked) {
            // The key has had another version since.
            Some(newer) if newer.value.version() != Some(version) => None,
            // It is longer or shorter than what was given of it.
            Some(newer) if is_other_length(newer.value, &document.value) => None,
            // It was still this version later.
            Some(newer) => Some(newer.with(Some(document.value))),
            None => Some(document.with(Some(document.value.clone()))),
        }
    }
}

/// Whether an object is known to be longer or shorter than this.
fn is_other_length(known: CachedObject, object: &Object) -> bool {
    let content = known.content();
    content.is_some_and(|(_, size)| size != object.size)
}
