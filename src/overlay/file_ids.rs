//! Numbers of files: a file keeps its number while it is written in place or renamed, and another file that gets its
//! name has another number.
//!
//! The kernel's pages belong to such a number (`vfs`). Keys that were not written through this overlay need none:
//! the version of their content serves. What is forgotten because the table is full costs pages, not truth.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::records::joined;
use crate::store::{Key, Version};

/// How many keys have a number of their own.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// The numbers of files that were written.
pub(super) struct FileIds {
    last: u64,
    by_key: LruCache<Key, FileId>,
}

/// The number of a key's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    id: u64,
    /// The store's version of the content, once it was committed and the layer has it no more.
    committed: Option<Version>,
}

impl Default for FileIds {
    fn default() -> FileIds {
        FileIds {
            last: 0,
            by_key: LruCache::new(MAX_FILES),
        }
    }
}

impl FileIds {
    /// Returns a number that no file has had.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last += 1;
        // Versions are numbers as well: these look like none.
        Version::of(&[b"file", &self.last.to_le_bytes()[..]].concat()).0
    }

    /// Returns the number of the file that a layer has under a key.
    pub(super) fn of_upper(&mut self, key: &Key) -> Option<u64> {
        self.by_key.get(key).map(|file| file.id)
    }

    /// Returns the number of the file that the store has under a key, if it is the one that was committed.
    pub(super) fn of_stored(&mut self, key: &Key, version: Version) -> Option<u64> {
        let file = self.by_key.get(key);
        let file = file.filter(|file| file.committed.is_none_or(|own| own == version));
        file.map(|file| file.id)
    }

    /// Notes that a file has a key.
    pub(super) fn set(&mut self, key: &Key, id: u64) {
        let committed = None;
        self.by_key.put(key.clone(), FileId { id, committed });
    }

    /// Notes that the store has the file of a key, as this version.
    pub(super) fn set_committed(&mut self, key: &Key, version: Version) {
        if let Some(file) = self.by_key.get_mut(key) {
            file.committed = Some(version);
        }
    }

    /// Notes that a key's file has lost its key.
    pub(super) fn remove(&mut self, key: &Key) {
        self.by_key.pop(key);
    }

    /// Notes that two files, or the files of two folders, have each other's keys.
    pub(super) fn exchange(&mut self, one: &Key, other: &Key) {
        let (first, second) = (self.take_below(one), self.take_below(other));
        for (rest, file) in first {
            self.by_key.put(joined(other, &rest), file);
        }
        for (rest, file) in second {
            self.by_key.put(joined(one, &rest), file);
        }
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

    /// Notes that files have other keys: all at `from` and below.
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
        ids.set(&key("a/x"), id);
        ids.rename(&key("a"), &key("b"));
        assert_eq!(ids.of_upper(&key("b/x")), Some(id));
        assert_eq!(ids.of_upper(&key("a/x")), None);
        ids.set_committed(&key("b/x"), Version(7));
        assert_eq!(ids.of_stored(&key("b/x"), Version(7)), Some(id));
        assert_eq!(ids.of_stored(&key("b/x"), Version(8)), None);
    }
}
