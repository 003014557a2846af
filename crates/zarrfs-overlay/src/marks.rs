//! Tracks the contents of each key, so that recovery detects torn files.
//!
//! A file gets its key before its bytes are on disk. So the journal has a mark of each content: the file's inode, its
//! length and a digest of its bytes. A content is synced when its bytes, its name and its mark are on disk. A newer
//! content may be torn after a power loss. So the synced file that it replaced is retained until the newer content is
//! synced, and `recovery` restores the retained file if necessary.

use std::collections::BTreeMap;

use crate::journal_record::{JournalRecord, Mark};
use crate::records::below;
use zarr_format::model::document::is_document;
use zarrfs_store::Key;

/// A content that a key got after its last synced content, so that it may be lost after a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaterContent {
    /// The number of syncs of the whole layer that had begun when the key got the content.
    epoch: u64,
    /// Inode, length and digest of the file; `None` if the file of the key was removed.
    mark: Option<Mark>,
}

/// The contents that the file of one key may have after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyMarks {
    synced: Option<Mark>,
    later: Vec<LaterContent>,
}

/// The contents that the files of a layer may have after a crash, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The number of syncs of the whole layer that have begun.
    epoch: u64,
    by_key: BTreeMap<Key, KeyMarks>,
    /// The keys that name metadata documents, because searching all keys for documents takes long: most keys are
    /// chunks.
    documents: BTreeMap<Key, ()>,
}

impl Marks {
    /// Records that a key gets a new file, or that its file is removed if `mark` is `None`.
    pub(crate) fn set(&mut self, key: Key, mark: Option<Mark>) {
        if mark.is_none() && !self.by_key.contains_key(&key) {
            return;
        }
        if is_document(key.name()) {
            self.documents.insert(key.clone(), ());
        }
        let epoch = self.epoch;
        let later = &mut self.by_key.entry(key).or_default().later;
        // Remember three contents. After a crash the key may still have the content before the last recorded one, and a
        // rename over a file records two contents at once (the removal and the new file).
        if later.len() == 3 {
            later.remove(0);
        }
        later.push(LaterContent { epoch, mark });
    }

    /// Records that the last content of a key is on disk, provided that it is the file with this inode.
    pub(crate) fn set_synced(&mut self, key: &Key, inode: u64) {
        let Some(marks) = self.by_key.get_mut(key) else {
            return;
        };
        if let Some(mark) = marks.later.last().and_then(|last| last.mark)
            && mark.inode == inode
        {
            *marks = KeyMarks {
                synced: Some(mark),
                later: Vec::new(),
            };
        }
    }

    /// Records that the sync number `epoch` of the whole layer begins.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Records that all contents are on disk that were written before the sync number `epoch` began.
    pub(crate) fn end_epoch(&mut self, epoch: u64) {
        self.by_key.retain(|_, marks| {
            match marks.later.last() {
                Some(last) if last.epoch < epoch => {
                    marks.synced = last.mark;
                    marks.later.clear();
                }
                _ => {}
            }
            marks.synced.is_some() || !marks.later.is_empty()
        });
        self.documents
            .retain(|key, ()| self.by_key.contains_key(key));
    }

    /// Replaces everything that is known by the contents that recovery found on disk.
    pub(crate) fn replace(&mut self, synced: BTreeMap<Key, Mark>) {
        let marks = |mark| KeyMarks {
            synced: Some(mark),
            later: Vec::new(),
        };
        let synced = synced.into_iter();
        self.by_key = synced.map(|(key, mark)| (key, marks(mark))).collect();
        let documents = self.by_key.keys().filter(|key| is_document(key.name()));
        self.documents = documents.map(|key| (key.clone(), ())).collect();
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
        self.documents.remove(key);
    }

    /// Returns the number of syncs of the whole layer that have begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the mark of the content of a key that is certainly on disk.
    pub(crate) fn synced(&self, key: &Key) -> Option<Mark> {
        self.by_key.get(key)?.synced
    }

    /// Returns the mark of the last content of a key, which may not be on disk yet.
    pub(crate) fn last(&self, key: &Key) -> Option<Mark> {
        let marks = self.by_key.get(key)?;
        marks.later.last().map_or(marks.synced, |last| last.mark)
    }

    /// Whether the last content of a key is certainly on disk.
    pub(crate) fn is_synced(&self, key: &Key) -> bool {
        self.last(key) == self.synced(key)
    }

    /// Returns the marks of all contents that the file of a key may have after a crash, the synced content first.
    pub(crate) fn contents(&self, key: &Key) -> Vec<Mark> {
        let Some(marks) = self.by_key.get(key) else {
            return Vec::new();
        };
        let later = marks.later.iter().rev().filter_map(|later| later.mark);
        marks.synced.into_iter().chain(later).collect()
    }

    /// Returns the keys at and below a prefix whose contents are tracked.
    pub(crate) fn keys_below(&self, prefix: &Key) -> Vec<Key> {
        below(&self.by_key, prefix)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Returns the metadata documents at and below a prefix whose contents are tracked.
    pub(crate) fn documents_below<'a>(&'a self, prefix: &'a Key) -> impl Iterator<Item = &'a Key> {
        below(&self.documents, prefix).map(|(key, ())| key)
    }

    /// Returns journal records that describe the contents of a key.
    pub(crate) fn records_of(&self, key: &Key) -> Vec<JournalRecord> {
        let Some(marks) = self.by_key.get(key) else {
            return Vec::new();
        };
        let written = |mark: &Mark| JournalRecord::Written {
            key: key.clone(),
            mark: *mark,
        };
        let mut records = Vec::new();
        if let Some(mark) = &marks.synced {
            records.push(written(mark));
            records.push(JournalRecord::Synced {
                key: key.clone(),
                inode: mark.inode,
            });
        }
        records.extend(marks.later.iter().map(|later| match &later.mark {
            Some(mark) => written(mark),
            None => JournalRecord::Removed(key.clone()),
        }));
        records
    }

    /// Returns journal records that describe all contents. A reader of the records may take fewer contents as synced.
    pub(crate) fn summary(&self) -> Vec<JournalRecord> {
        let epoch = (self.epoch > 0).then_some(JournalRecord::SyncStarted(self.epoch));
        let marks = self.by_key.keys().flat_map(|key| self.records_of(key));
        epoch.into_iter().chain(marks).collect()
    }

    pub(crate) fn len(&self) -> usize {
        let of_key = |marks: &KeyMarks| 2 * usize::from(marks.synced.is_some()) + marks.later.len();
        let marks: usize = self.by_key.values().map(of_key).sum();
        usize::from(self.epoch > 0) + marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("a").unwrap()
    }

    fn mark(inode: u64) -> Mark {
        Mark {
            inode,
            length: 1,
            digest: Some(u128::from(inode)),
        }
    }

    #[test]
    fn a_sync_covers_only_contents_from_before_it_began() {
        let mut marks = Marks::default();
        marks.set(key(), Some(mark(1)));
        marks.begin_epoch(1);
        marks.end_epoch(1);
        assert_eq!(marks.synced(&key()), Some(mark(1)));
        marks.begin_epoch(2);
        marks.set(key(), Some(mark(2)));
        marks.end_epoch(2);
        assert_eq!(marks.synced(&key()), Some(mark(1)), "written since");
        assert_eq!(marks.contents(&key()), [mark(1), mark(2)]);
    }

    /// A rename over a file is recorded before it is made. If the process is killed in between, the key still has the
    /// old file.
    #[test]
    fn a_recorded_rename_over_a_file_keeps_the_old_mark() {
        let mut marks = Marks::default();
        marks.set(key(), Some(mark(1)));
        marks.set(key(), None);
        marks.set(key(), Some(mark(2)));
        assert!(marks.contents(&key()).contains(&mark(1)));
    }

    #[test]
    fn a_file_replaced_during_its_sync_is_not_synced() {
        let mut marks = Marks::default();
        marks.set(key(), Some(mark(1)));
        marks.set(key(), Some(mark(2)));
        marks.set_synced(&key(), 1);
        assert_eq!(marks.synced(&key()), None);
        marks.set_synced(&key(), 2);
        assert_eq!(marks.contents(&key()), [mark(2)]);
    }

    #[test]
    fn a_removed_key_is_forgotten_after_the_next_sync() {
        let mut marks = Marks::default();
        marks.set(key(), None);
        assert_eq!(marks.len(), 0);
        marks.set(key(), Some(mark(1)));
        marks.set_synced(&key(), 1);
        marks.set(key(), None);
        assert_eq!(
            (marks.last(&key()), marks.synced(&key())),
            (None, Some(mark(1)))
        );
        marks.begin_epoch(1);
        marks.end_epoch(1);
        assert_eq!(marks.keys_below(&Key::root()), []);
    }
}
