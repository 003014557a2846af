//! Tracks the contents of each key, so that recovery detects torn files.
//!
//! A file gets its key before its bytes are on disk. The journal has a mark of each content: the file's inode, its
//! length and a digest of its bytes. A content is synced once its bytes, its name and its mark are on disk. The content
//! that replaces a synced content may be torn after a power loss, so the synced file is kept until the new content is
//! synced, and `recovery` restores it.

use std::collections::BTreeMap;

use crate::journal_record::{JournalRecord, Mark};
use crate::records::below;
use zarr_format::model::document::is_document;
use zarrfs_store::Key;

/// A content that a key got since its last synced content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LaterContent {
    /// The number of syncs that had begun when the key got this content.
    epoch: u64,
    /// `None` if the key lost its file.
    mark: Option<Mark>,
}

/// The contents of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyMarks {
    synced: Option<Mark>,
    later: Vec<LaterContent>,
}

/// The marks of a layer's files.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The number of syncs that have begun.
    epoch: u64,
    by_key: BTreeMap<Key, KeyMarks>,
    /// The keys of `by_key` that name documents. Finding them among all keys would take long, since most keys are
    /// chunks.
    documents: BTreeMap<Key, ()>,
}

impl Marks {
    /// Records that a key gets a content, or loses its file if `mark` is `None`.
    pub(crate) fn set(&mut self, key: Key, mark: Option<Mark>) {
        if mark.is_none() && !self.by_key.contains_key(&key) {
            return;
        }
        if is_document(key.name()) {
            self.documents.insert(key.clone(), ());
        }
        let epoch = self.epoch;
        let later = &mut self.by_key.entry(key).or_default().later;
        // If the process is killed, the last recorded content may not be in place yet, and the key still has the
        // previous one. A rename over a file records two contents at once: the removal of the file and the new file. So
        // the last three are needed.
        if later.len() == 3 {
            later.remove(0);
        }
        later.push(LaterContent { epoch, mark });
    }

    /// Records that the last content of a key is synced, if it has this inode.
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

    /// Records that a sync of everything begins.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Records that everything from before an epoch is synced.
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

    /// Replaces all contents by these synced contents.
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

    /// Forgets a key.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
        self.documents.remove(key);
    }

    /// Returns the number of syncs of everything that have begun.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the synced content of a key.
    pub(crate) fn synced(&self, key: &Key) -> Option<Mark> {
        self.by_key.get(key)?.synced
    }

    /// Returns the last recorded content of a key.
    pub(crate) fn last(&self, key: &Key) -> Option<Mark> {
        let marks = self.by_key.get(key)?;
        marks.later.last().map_or(marks.synced, |last| last.mark)
    }

    /// Whether the last content of a key is synced.
    pub(crate) fn is_synced(&self, key: &Key) -> bool {
        self.last(key) == self.synced(key)
    }

    /// Returns the contents that the file of a key may have, the synced content first.
    pub(crate) fn contents(&self, key: &Key) -> Vec<Mark> {
        let Some(marks) = self.by_key.get(key) else {
            return Vec::new();
        };
        let later = marks.later.iter().rev().filter_map(|later| later.mark);
        marks.synced.into_iter().chain(later).collect()
    }

    /// Returns the keys at and below a prefix that have marks.
    pub(crate) fn keys_below(&self, prefix: &Key) -> Vec<Key> {
        below(&self.by_key, prefix)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Returns the documents at and below a prefix that have marks.
    pub(crate) fn documents_below<'a>(&'a self, prefix: &'a Key) -> impl Iterator<Item = &'a Key> {
        below(&self.documents, prefix).map(|(key, ())| key)
    }

    /// Returns the records of a key's marks.
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

    /// Returns a minimal list of records that leads to this state, or to one in which fewer contents are synced.
    pub(crate) fn summary(&self) -> Vec<JournalRecord> {
        let epoch = (self.epoch > 0).then_some(JournalRecord::SyncStarted(self.epoch));
        let marks = self.by_key.keys().flat_map(|key| self.records_of(key));
        epoch.into_iter().chain(marks).collect()
    }

    /// Returns the number of records in a summary.
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

    /// If the process is killed after a rename over a file is recorded but before it is done, the key has the old file.
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
