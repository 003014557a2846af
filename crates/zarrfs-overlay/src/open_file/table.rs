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

/// Tables of open files, of failed writes to new files, and of file IDs.
pub(crate) struct OpenState {
    pub(crate) files: OpenFileTable,
    pub(crate) failed_writes: FailedWritesTable,
    pub(crate) ids: FileIds,
}

#[derive(Default)]
pub(crate) struct OpenFileTable(HashMap<Key, Weak<OpenFile>>);

impl OpenFileTable {
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.get(key)?.upgrade()
    }

    pub(crate) fn is_free(&self, key: &Key) -> bool {
        self.0.get(key).is_none_or(|file| file.strong_count() == 0)
    }

    pub(crate) fn below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        let all = self.0.iter();
        let below = all.filter(|(key, _)| key.below(prefix).is_some());
        below.filter_map(|(_, file)| file.upgrade()).collect()
    }

    /// Registers an open file under a key; it replaces another open file of the key.
    pub(crate) fn register(&mut self, key: &Key, file: &Arc<OpenFile>) {
        self.0.insert(key.clone(), Arc::downgrade(file));
    }

    /// Removes an open file from the table, unless the key has another open file by now.
    pub(crate) fn unregister(&mut self, key: &Key, file: &OpenFile) {
        let found = self.0.get(key);
        if found.is_some_and(|found| std::ptr::eq(found.as_ptr(), file)) {
            self.0.remove(key);
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.remove(key)?.upgrade()
    }
}

/// Maximum number of keys whose file ID is remembered.
const MAX_FILES: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Assigns file IDs (inode numbers), which survive writes in place and renames.
///
/// The kernel caches pages by file ID (`vfs`), so another file that gets the same name must get another ID. The ID of
/// an object that was not written through the overlay is the number of its version. If such an object is opened and
/// then written, the open file keeps that ID. The object in the store gets another ID, which is visible after a
/// discard.
pub(crate) struct FileIds {
    last: u64,
    by_key: LruCache<Key, FileId>,
    /// The new IDs of objects in the store, by version number. An object has an entry here if a written file has kept
    /// the version number as its ID.
    stored: LruCache<u64, u64>,
}

/// The ID of a key's file, and where the ID applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    id: u64,
    /// The inode of the upper folder's file that has the ID, since the key may get another file.
    inode: u64,
    /// The store's version of the content, if it was committed and is no longer in the upper folder.
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
    /// Returns a file ID that is not in use.
    pub(crate) fn new_id(&mut self) -> u64 {
        self.last += 1;
        // Hash the counter, so that the ID differs from version numbers, which are IDs too.
        Version::of(&[b"file", &self.last.to_le_bytes()[..]].concat()).number()
    }

    /// Returns the ID of the upper folder's file of a key, or its inode if the table has no other ID.
    pub(crate) fn of_upper(&mut self, key: &Key, inode: u64) -> u64 {
        let file = self.by_key.get(key).filter(|file| file.inode == inode);
        file.map_or(inode, |file| file.id)
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.by_key.contains(key)
    }

    /// Returns the ID of an object in the store, or `None` if it is the version number. It differs if this overlay has
    /// committed the object, or if a written file uses the version number.
    pub(crate) fn of_stored(&mut self, key: &Key, version: Version) -> Option<u64> {
        let file = self.by_key.get(key);
        let file = file.filter(|file| file.committed.is_none_or(|own| version.may_be(own.into())));
        let id = file.map(|file| file.id);
        id.or_else(|| self.stored.get(&version.number()).copied())
    }

    /// Gives an object of the store another ID, because a program writes to the open file that has its ID.
    pub(crate) fn mark_written(&mut self, id: u64) {
        if self.stored.get(&id).is_none() {
            let other = self.new_id();
            self.stored.put(id, other);
        }
    }

    /// Sets the ID of a key's file. Must be called before the file gets the key, because a lookup must not find the
    /// file without its ID.
    pub(crate) fn set(&mut self, key: &Key, id: u64, inode: u64) {
        let file = FileId {
            id,
            inode,
            committed: None,
        };
        self.by_key.put(key.clone(), file);
    }

    /// Records that a key's file was committed, with the store's version of it.
    pub(crate) fn set_committed(&mut self, key: &Key, version: StoreVersion) {
        if let Some(file) = self.by_key.get_mut(key) {
            file.committed = Some(version);
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.by_key.pop(key);
    }

    /// Removes the IDs at and below a prefix, because the store's objects are visible there again.
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

    /// Moves the IDs of all files at and below `from` to their new keys after a rename.
    pub(crate) fn rename(&mut self, from: &Key, to: &Key) {
        self.remove(to);
        for (rest, file) in self.take_below(from) {
            self.by_key.put(joined(to, &rest), file);
        }
    }
}

/// The range of bytes that failed writes have left out of a file, and the kind of error, such as a full disk.
///
/// A file with such a range is not published, so that no incomplete content is committed. The range is cleared when it
/// is written again or cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedWrites {
    range: Range<u64>,
    kind: Kind,
}

impl FailedWrites {
    /// Adds a failed write to the range that is missing. A write beyond the file system's maximum file size is left
    /// out, because its bytes can never exist. A write beyond the process's limit (RLIMIT_FSIZE) is added.
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

    /// Returns the range that is still missing after a successful write, or `None` if the file is complete.
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

    /// Returns the range that is still missing after the file was truncated to `length` bytes.
    pub(crate) fn truncated(self, length: u64) -> Option<FailedWrites> {
        self.without(length..u64::MAX)
    }

    /// Returns the error of publishing a file that lacks this range.
    pub(crate) fn error(&self, key: &Key) -> Error {
        let Range { start, end } = self.range;
        let why = format!("incomplete: bytes {start} to {end} could not be written");
        Error::new(self.kind, key, why)
    }
}

/// The failed writes to new files that are incomplete, by key. They are remembered after the files are closed.
#[derive(Default)]
pub(crate) struct FailedWritesTable(HashMap<Key, FailedWrites>);

impl FailedWritesTable {
    pub(crate) fn get(&self, key: &Key) -> Option<&FailedWrites> {
        self.0.get(key)
    }

    pub(crate) fn set(&mut self, key: &Key, failed: Option<&FailedWrites>) {
        match failed {
            Some(failed) => self.0.insert(key.clone(), failed.clone()),
            None => self.0.remove(key),
        };
    }

    /// Moves the missing ranges of the files at and below `from` to their new keys after a rename.
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
