//! Assigns file IDs, which survive writes in place and renames.
//!
//! Another file that gets the same name gets another ID. The kernel's pages belong to such an ID (`vfs`). Keys that
//! were not written through this overlay need none: the version of their content is used. A file that was opened on the
//! store's content keeps that ID when it is written; the store's content then gets another ID, which is visible after a
//! discard.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::key_ranges::joined;
use zarrfs_store::{Key, StoreVersion, Version};

/// Maximum number of keys with their own ID.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// The IDs of written files.
pub(super) struct FileIds {
    last: u64,
    by_key: LruCache<Key, FileId>,
    /// New IDs of the store's contents whose version number is now the ID of a written file.
    stored: LruCache<u64, u64>,
}

/// The ID of a key's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    id: u64,
    /// The inode of the layer's file with this ID. The key may have another file at the moment.
    inode: u64,
    /// The store's version of the content, once it was committed and is no longer in the layer.
    committed: Option<StoreVersion>,
}

impl Default for FileIds {
    fn default() -> FileIds {
        FileIds {
            last: 0,
            by_key: LruCache::new(MAX_FILES),
            stored: LruCache::new(MAX_FILES),
        }
    }
}

impl FileIds {
    /// Returns an unused ID.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last += 1;
        // Version numbers are IDs too: hash the number, so that it differs from them.
        Version::of(&[b"file", &self.last.to_le_bytes()[..]].concat()).number()
    }

    /// Returns the ID of the layer's file of a key with this inode, or the inode if no other ID is known.
    pub(super) fn of_upper(&mut self, key: &Key, inode: u64) -> u64 {
        let file = self.by_key.get(key).filter(|file| file.inode == inode);
        file.map_or(inode, |file| file.id)
    }

    /// Whether the file of a key has its own ID.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.by_key.contains(key)
    }

    /// Returns the ID of the store's object of a key, if it is the committed file or has a new ID.
    pub(super) fn of_stored(&mut self, key: &Key, version: Version) -> Option<u64> {
        let file = self.by_key.get(key);
        let file = file.filter(|file| file.committed.is_none_or(|own| version.may_be(own.into())));
        let id = file.map(|file| file.id);
        id.or_else(|| self.stored.get(&version.number()).copied())
    }

    /// Gives the store's content another ID, because the file with this ID is about to be written.
    pub(super) fn note_write(&mut self, id: u64) {
        if self.stored.get(&id).is_none() {
            let other = self.new_id();
            self.stored.put(id, other);
        }
    }

    /// Sets the ID of a key's file. Call it before the file gets the key, so that the file is never found without its
    /// ID.
    pub(super) fn set(&mut self, key: &Key, id: u64, inode: u64) {
        let file = FileId {
            id,
            inode,
            committed: None,
        };
        self.by_key.put(key.clone(), file);
    }

    /// Records that the store has the file of a key, in this version.
    pub(super) fn set_committed(&mut self, key: &Key, version: StoreVersion) {
        if let Some(file) = self.by_key.get_mut(key) {
            file.committed = Some(version);
        }
    }

    /// Records that a key has lost its file.
    pub(super) fn remove(&mut self, key: &Key) {
        self.by_key.pop(key);
    }

    /// Records that the keys at and below a prefix have the store's objects again.
    pub(super) fn remove_below(&mut self, prefix: &Key) {
        self.take_below(prefix);
    }

    fn take_below(&mut self, prefix: &Key) -> Vec<(Key, FileId)> {
        let all = self.by_key.iter();
        let below = all.filter(|(key, _)| key.below(prefix).is_some());
        let keys: Vec<Key> = below.map(|(key, _)| key.clone()).collect();
        let taken = keys.into_iter().filter_map(|key| {
            let file = self.by_key.pop(&key)?;
            Some((key.below(prefix)?, file))
        });
        taken.collect()
    }

    /// Renames the keys of all files at and below `from`.
    pub(super) fn rename(&mut self, from: &Key, to: &Key) {
        self.remove(to);
        for (rest, file) in self.take_below(from) {
            self.by_key.put(joined(to, &rest), file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_file_keeps_its_number_under_another_name() {
        let mut ids = FileIds::default();
        let id = ids.new_id();
        assert_ne!(id, ids.new_id());
        ids.set(&key("a/x"), id, 5);
        ids.rename(&key("a"), &key("b"));
        assert_eq!(ids.of_upper(&key("b/x"), 5), id);
        assert_eq!(ids.of_upper(&key("b/x"), 6), 6, "another file");
        assert_eq!(ids.of_upper(&key("a/x"), 5), 5);
        ids.set_committed(&key("b/x"), StoreVersion(7));
        assert_eq!(ids.of_stored(&key("b/x"), Version::numbered(7)), Some(id));
        assert_eq!(ids.of_stored(&key("b/x"), Version::numbered(8)), None);
    }

    #[test]
    fn what_the_store_has_is_not_the_file_that_was_written() {
        let mut ids = FileIds::default();
        let stored = key("x");
        assert_eq!(ids.of_stored(&stored, Version::numbered(7)), None);
        ids.note_write(7);
        ids.set(&stored, 7, 5);
        assert_eq!(ids.of_upper(&stored, 5), 7);
        ids.remove_below(&Key::root());
        let other = ids.of_stored(&stored, Version::numbered(7));
        assert!(other.is_some_and(|other| other != 7));
        ids.note_write(7);
        assert_eq!(ids.of_stored(&stored, Version::numbered(7)), other);
    }
}
