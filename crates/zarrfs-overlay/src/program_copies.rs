//! Tracks copies of documents that programs wrote, and later changes of these documents.
//!
//! Copies in consolidated metadata are normally derived from the metadata documents (`derived`). A copy that a program
//! wrote is used instead, until its document changes again.

use std::collections::{BTreeMap, BTreeSet};

use crate::journal_record::JournalRecord;
use crate::records::{below, renamed};
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarrfs_store::Key;

/// The consolidated documents whose copies a program wrote. Each has the paths that have changed afterwards, so that
/// their copies are stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramCopies(BTreeMap<Key, BTreeSet<Key>>);

impl ProgramCopies {
    /// Records that a program wrote a consolidated document with its copies.
    pub(crate) fn add(&mut self, holder: Key) {
        self.0.insert(holder, BTreeSet::new());
    }

    /// Removes a consolidated document that was dropped from the layer or moved.
    pub(crate) fn remove(&mut self, holder: &Key) {
        self.0.remove(holder);
    }

    /// Removes the consolidated documents for which `is_there` returns `false`.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        self.0.retain(|holder, _| is_there(holder));
    }

    /// Records that a metadata document was changed, so that program-written copies of it are stale.
    pub(crate) fn mark_document_changed(&mut self, document: &Key) {
        self.mark(document, ConsolidatedDocument::above_document);
    }

    /// Records that metadata documents at and below a path were changed, so that program-written copies of them are
    /// stale.
    pub(crate) fn mark_tree_changed(&mut self, path: &Key) {
        self.mark(path, ConsolidatedDocument::above_tree);
    }

    fn mark(&mut self, path: &Key, above: impl Fn(&Key) -> Vec<ConsolidatedDocument>) {
        if self.0.is_empty() {
            return;
        }
        for holder in above(path) {
            self.mark_stale(holder.key(), path.clone());
        }
    }

    /// Records that the copies of documents at and below `path` are stale in the consolidated document `holder`.
    pub(crate) fn mark_stale(&mut self, holder: &Key, path: Key) {
        if let Some(stale) = self.0.get_mut(holder) {
            stale.insert(path);
        }
    }

    /// Returns the paths that were changed after a program wrote a consolidated document. Returns `None` if zarrfs
    /// derives all of its copies.
    pub(crate) fn stale(&self, holder: &Key) -> Option<&BTreeSet<Key>> {
        self.0.get(holder)
    }

    /// Returns journal records for one consolidated document.
    pub(crate) fn records_of(&self, holder: &Key) -> Vec<JournalRecord> {
        let stale = self.0.get(holder).map(|stale| (holder, stale));
        let records = stale
            .into_iter()
            .flat_map(|(holder, stale)| records_of(holder, stale));
        records.collect()
    }

    /// Returns journal records for the consolidated documents at and below `from`, under their names after a rename to
    /// `to`.
    pub(crate) fn records_after_rename(&self, from: &Key, to: &Key) -> Vec<JournalRecord> {
        let mut records = Vec::new();
        for (holder, stale) in below(&self.0, from) {
            let stale = stale
                .iter()
                .map(|path| renamed(path, from, to).unwrap_or_else(|| path.clone()));
            if let Some(holder) = renamed(holder, from, to) {
                records.extend(records_of(&holder, &stale.collect()));
            }
        }
        records
    }

    /// Returns the shortest list of journal records that restores this table.
    pub(crate) fn summary(&self) -> impl Iterator<Item = JournalRecord> {
        self.0
            .iter()
            .flat_map(|(holder, stale)| records_of(holder, stale))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(|stale| 1 + stale.len()).sum()
    }
}

fn records_of(holder: &Key, stale: &BTreeSet<Key>) -> Vec<JournalRecord> {
    let stale = stale.iter().map(|path| JournalRecord::CopiesStale {
        holder: holder.clone(),
        path: path.clone(),
    });
    std::iter::once(JournalRecord::CopiesWritten(holder.clone()))
        .chain(stale)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;
    use crate::testing::key;

    fn stale(records: &Records, holder: &str) -> Vec<Key> {
        let stale = records.program_copies.stale(&key(holder)).unwrap();
        stale.iter().cloned().collect()
    }

    #[test]
    fn documents_changed_after_a_program_copied_them_are_stale() {
        let mut records = Records::default();
        records.apply(JournalRecord::Removed(key("a/.zattrs")));
        records.apply(JournalRecord::CopiesWritten(key(".zmetadata")));
        assert_eq!(stale(&records, ".zmetadata"), []);
        for record in [
            JournalRecord::Removed(key("b/.zattrs")),
            JournalRecord::Removed(key("b/zarr.json")),
            JournalRecord::Removed(key("b/0.0")),
            JournalRecord::Whiteout {
                key: key("c"),
                source: None,
            },
        ] {
            records.apply(record);
        }
        assert_eq!(stale(&records, ".zmetadata"), [key("b/.zattrs"), key("c")]);
        let mut again = Records::default();
        let summary = records.summary();
        assert_eq!(records.len(), summary.len());
        summary.into_iter().for_each(|record| again.apply(record));
        assert_eq!(again.program_copies, records.program_copies);
        for record in records
            .program_copies
            .records_after_rename(&Key::root(), &key("g"))
        {
            again.apply(record);
        }
        assert_eq!(
            stale(&again, "g/.zmetadata"),
            [key("g/b/.zattrs"), key("g/c")]
        );
        again.apply(JournalRecord::Forgotten(key(".zmetadata")));
        assert_eq!(again.program_copies.stale(&key(".zmetadata")), None);
    }
}
