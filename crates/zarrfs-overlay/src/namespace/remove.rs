//! Removes files and empty folders.

use rustix::fs::AtFlags;

use crate::journal_line::JournalRecord;
use crate::layered_store::LayeredStore;
use crate::name_change::NameChange;
use crate::{content, wrong_kind};
use zarr_format::error::{Error, Result};
use zarrfs_store::{EntryKind, Key};

impl NameChange<'_> {
    /// Removes a file's name.
    pub(crate) fn remove_name(&self, key: &Key) -> Result<()> {
        self.check_removable(key)?;
        let layer = &self.top.layer;
        let is_in_upper = layer.keys.stat(key)?.is_some();
        let mut records = Vec::new();
        if let Some((stored, meta)) = self.find_lower(key)? {
            records.extend(self.base_record(key, content::MAX_REMOVED)?);
            if stored != *key && !is_in_upper {
                records.extend(self.moved_base_record(&stored, meta.version, None)?);
            }
            records.push(JournalRecord::Whiteout {
                key: key.clone(),
                source: None,
            });
        }
        if is_in_upper {
            records.push(JournalRecord::Removed(key.clone()));
        }
        records.extend(layer.dropped_attributes(key));
        let shape = layer.reshape();
        self.record(records)?;
        if is_in_upper {
            layer.remove_file(&self.upper, key)?;
        }
        self.detach(key);
        self.open.lock().ids.remove(key);
        drop(shape);
        self.forget_created(key)?;
        self.note_removal(key);
        Ok(())
    }

    /// Drops the records of a file that was created and removed: the store never had it.
    pub(crate) fn forget_created(&self, key: &Key) -> Result<()> {
        let state = self.top.layer.lock();
        let mut records = Vec::new();
        if state.records.is_incomplete(key) {
            records.push(JournalRecord::Completed(key.clone()));
        }
        if state.records.is_new(key) {
            records.push(JournalRecord::Reverted(key.clone()));
        }
        drop(state);
        self.record(records)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&self, path: &Key) -> Result<()> {
        let found = self.find(path)?.ok_or_else(|| Error::not_found(path))?;
        if LayeredStore::kind(&found) != EntryKind::Directory {
            return Err(wrong_kind(path, false));
        }
        let (stored, empty) = (self.find_lower(path), self.check_empty(path));
        let is_stored = stored?.is_some();
        empty?;
        let layer = &self.top.layer;
        let mut records = layer.dropped_attributes(path);
        if is_stored {
            let below = layer.whiteouts(path).into_iter().map(|(key, _)| key);
            records.extend(below.map(JournalRecord::WhiteoutRemoved));
            records.push(JournalRecord::Whiteout {
                key: path.clone(),
                source: None,
            });
        }
        self.record(records)?;
        if layer.keys.stat(path)?.is_some() {
            layer.keys.remove(path, AtFlags::REMOVEDIR)?;
        }
        self.note_tree_change(path);
        Ok(())
    }
}
