//! Tables by key: open files, their failed writes, and file IDs.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Arc, Weak};

use lru::LruCache;

use crate::open_file::OpenFile;
use crate::records::{joined, renamed};
use zarr_format::error::{Error, Kind};
use zarrfs_store::sync::file_limits;
use zarrfs_store::{Key, StoreVersion, Version};

/// The state of files that are or were open.
pub(crate) struct OpenState {
    pub(crate) files: OpenFileTable,
    pub(crate) failed_writes: FailedWritesTable,
    pub(crate) ids: FileIds,
}

/// The open files by key.
#[derive(Default)]
pub(crate) struct OpenFileTable(HashMap<Key, Weak<OpenFile>>);

impl OpenFileTable {
    /// Returns the open file of a key.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.get(key)?.upgrade()
    }

    /// Whether no file of a key is open.
    pub(crate) fn is_free(&self, key: &Key) -> bool {
        self.0.get(key).is_none_or(|file| file.strong_count() == 0)
    }

    /// Returns the open files at and below a prefix.
    pub(crate) fn below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        let all = self.0.iter();
        let below = all.filter(|(key, _)| key.below(prefix).is_some());
        below.filter_map(|(_, file)| file.upgrade()).collect()
    }

    /// Registers a file under a key, replacing any other file.
    pub(crate) fn register(&mut self, key: &Key, file: &Arc<OpenFile>) {
        self.0.insert(key.clone(), Arc::downgrade(file));
    }

    /// Removes a file if it is registered under this key.
    pub(crate) fn unregister(&mut self, key: &Key, file: &OpenFile) {
        let found = self.0.get(key);
        if found.is_some_and(|found| std::ptr::eq(found.as_ptr(), file)) {
            self.0.remove(key);
        }
    }

    /// Removes the file of a key, and returns it if it is open.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.remove(key)?.upgrade()
    }
}

/// Maximum number of keys with their own ID.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Assigns file IDs, which survive writes in place and renames.
///
/// The kernel caches pages by file ID (`vfs`), so another file that gets the same name gets another ID. A key that was
/// not written through this overlay has the version number of its content as its ID. A file that was opened on the
/// store's content keeps that ID when it is written; the store's content then gets another ID, which it has after a
/// discard of the writes.
pub(crate) struct FileIds {
    last: u64,
    by_key: LruCache<Key, FileId>,
    /// By version number, the new ID of a content of the store, if a written file has kept the version number as its
    /// own ID.
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
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last += 1;
        // Version numbers are IDs too: hash the number, so that it differs from them.
        Version::of(&[b"file", &self.last.to_le_bytes()[..]].concat()).number()
    }

    /// Returns the ID of the layer's file of a key with this inode, or the inode if no other ID is known.
    pub(crate) fn of_upper(&mut self, key: &Key, inode: u64) -> u64 {
        let file = self.by_key.get(key).filter(|file| file.inode == inode);
        file.map_or(inode, |file| file.id)
    }

    /// Whether the file of a key has its own ID.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.by_key.contains(key)
    }

    /// Returns the ID of the store's object of a key, if it is the committed file or has a new ID.
    pub(crate) fn of_stored(&mut self, key: &Key, version: Version) -> Option<u64> {
        let file = self.by_key.get(key);
        let file = file.filter(|file| file.committed.is_none_or(|own| version.may_be(own.into())));
        let id = file.map(|file| file.id);
        id.or_else(|| self.stored.get(&version.number()).copied())
    }

    /// Gives the store's content another ID, because the file with this ID is about to be written.
    pub(crate) fn mark_written(&mut self, id: u64) {
        if self.stored.get(&id).is_none() {
            let other = self.new_id();
            self.stored.put(id, other);
        }
    }

    /// Sets the ID of a key's file. Call it before the file gets the key, so that the file is never found without its
    /// ID.
    pub(crate) fn set(&mut self, key: &Key, id: u64, inode: u64) {
        let file = FileId {
            id,
            inode,
            committed: None,
        };
        self.by_key.put(key.clone(), file);
    }

    /// Records that the store has the file of a key, in this version.
    pub(crate) fn set_committed(&mut self, key: &Key, version: StoreVersion) {
        if let Some(file) = self.by_key.get_mut(key) {
            file.committed = Some(version);
        }
    }

    /// Records that a key has lost its file.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.by_key.pop(key);
    }

    /// Records that the keys at and below a prefix have the store's objects again.
    pub(crate) fn remove_below(&mut self, prefix: &Key) {
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
    pub(crate) fn rename(&mut self, from: &Key, to: &Key) {
        self.remove(to);
        for (rest, file) in self.take_below(from) {
            self.by_key.put(joined(to, &rest), file);
        }
    }
}

/// The range of bytes that could not be written, for example because the disk is full, and the kind of error.
///
/// A file with such a range is not published, so no incomplete content is ever committed. The range is cleared when it
/// is written again or cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedWrites {
    range: Range<u64>,
    kind: Kind,
}

impl FailedWrites {
    /// Adds a failed write. A write that no file of the disk can hold is not added: it has no part that is missing. A
    /// write beyond this process's limit of file sizes is added.
    pub(crate) fn with_failure(
        failed: Option<FailedWrites>,
        range: Range<u64>,
        kind: Kind,
    ) -> Option<FailedWrites> {
        let is_limited = || file_limits::size_limit().is_some_and(|limit| range.end > limit);
        if kind == Kind::Invalid || kind == Kind::TooLarge && !is_limited() {
            return failed;
        }
        let before = failed.map_or(range.clone(), |failed| failed.range);
        let range = before.start.min(range.start)..before.end.max(range.end);
        Some(FailedWrites { range, kind })
    }

    /// Returns the missing range after a successful write, or `None` if nothing is missing.
    pub(crate) fn without(self, written: Range<u64>) -> Option<FailedWrites> {
        let Range { mut start, mut end } = self.range;
        if written.start <= start {
            start = start.max(written.end);
        }
        if written.end >= end {
            end = end.min(written.start);
        }
        let kind = self.kind;
        (start < end).then_some(FailedWrites {
            range: start..end,
            kind,
        })
    }

    /// Returns the missing range after the file was set to this length in bytes.
    pub(crate) fn truncated(self, length: u64) -> Option<FailedWrites> {
        self.without(length..u64::MAX)
    }

    /// Returns the error that prevents the publication of the file.
    pub(crate) fn error(&self, key: &Key) -> Error {
        let Range { start, end } = self.range;
        let why = format!("incomplete: bytes {start} to {end} could not be written");
        Error::new(self.kind, key, why)
    }
}

/// The failed writes of incomplete new files, by key. They outlive the open file.
#[derive(Default)]
pub(crate) struct FailedWritesTable(HashMap<Key, FailedWrites>);

impl FailedWritesTable {
    /// Returns the missing range of the file of a key, or `None` if the file is complete.
    pub(crate) fn get(&self, key: &Key) -> Option<&FailedWrites> {
        self.0.get(key)
    }

    /// Sets the missing range of the file of a key, or `None` if the file is complete.
    pub(crate) fn set(&mut self, key: &Key, failed: Option<&FailedWrites>) {
        match failed {
            Some(failed) => self.0.insert(key.clone(), failed.clone()),
            None => self.0.remove(key),
        };
    }

    /// Moves the entries at and below a renamed key.
    pub(crate) fn rename(&mut self, from: &Key, to: &Key) {
        let all = self
            .0
            .drain()
            .map(|(key, failed)| match renamed(&key, from, to) {
                Some(renamed) => (renamed, failed),
                None => (key, failed),
            });
        self.0 = all.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn a_renamed_file_keeps_its_id() {
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
    fn stored_content_gets_a_new_id_once_its_file_is_written() {
        let mut ids = FileIds::default();
        let stored = key("x");
        assert_eq!(ids.of_stored(&stored, Version::numbered(7)), None);
        ids.mark_written(7);
        ids.set(&stored, 7, 5);
        assert_eq!(ids.of_upper(&stored, 5), 7);
        ids.remove_below(&Key::root());
        let other = ids.of_stored(&stored, Version::numbered(7));
        assert!(other.is_some_and(|other| other != 7));
        ids.mark_written(7);
        assert_eq!(ids.of_stored(&stored, Version::numbered(7)), other);
    }

    fn failed(range: Range<u64>) -> Option<FailedWrites> {
        FailedWrites::with_failure(None, range, Kind::NoSpace)
    }

    #[test]
    fn failed_writes_are_joined_into_one_range() {
        let both = FailedWrites::with_failure(failed(10..20), 30..40, Kind::NoSpace);
        assert_eq!(both, failed(10..40));
        let refused = FailedWrites::with_failure(None, 1..2, Kind::TooLarge);
        assert_eq!(refused, None);
    }

    #[test]
    fn a_successful_write_shrinks_the_failed_range() {
        let rest = |written| failed(10..20).and_then(|failed| failed.without(written));
        assert_eq!(rest(10..20), None);
        assert_eq!(rest(0..100), None);
        assert_eq!(rest(10..15), failed(15..20));
        assert_eq!(rest(15..20), failed(10..15));
        assert_eq!(rest(12..15), failed(10..20));
        assert_eq!(rest(20..30), failed(10..20));
        assert_eq!(rest(0..10), failed(10..20));
    }

    #[test]
    fn a_truncation_shrinks_the_failed_range() {
        let cut = |length| failed(10..20).and_then(|failed| failed.truncated(length));
        assert_eq!(cut(0), None);
        assert_eq!(cut(10), None);
        assert_eq!(cut(15), failed(10..15));
        assert_eq!(cut(20), failed(10..20));
    }
}
