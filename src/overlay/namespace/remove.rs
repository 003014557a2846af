//! Removing names: of files, and of empty folders.

use std::sync::Arc;

use rustix::fs::AtFlags;

use crate::error::{Error, Kind, Result};
use crate::overlay::journal::JournalRecord;
use crate::overlay::{OverlayCore, Resolved, listing, wrong_kind};
use crate::store::{EntryKind, Key};

impl OverlayCore {
    /// Removes a file's name. The names must be locked.
    pub(in crate::overlay) fn remove_name(&self, key: &Key) -> Result<()> {
        let is_in_upper = self.upper.stat(key)?.is_some();
        let mut records = Vec::new();
        if let Some((stored, meta)) = self.find_lower(key)? {
            records.extend(self.base_record(key)?);
            if stored != *key && !is_in_upper {
                records.extend(self.moved_base_record(&stored, meta.version));
            }
            records.push(JournalRecord::Whiteout {
                key: key.clone(),
                source: None,
            });
        }
        self.record(records)?;
        if is_in_upper {
            self.remove_from_upper(key, AtFlags::empty())?;
        }
        self.forget_created(key)?;
        self.detach(key);
        self.note_removal(key);
        Ok(())
    }

    /// Drops the records of a file that was created and is gone again: the store never had it.
    pub(in crate::overlay) fn forget_created(&self, key: &Key) -> Result<()> {
        let state = self.state.lock();
        let mut records = Vec::new();
        if state.records.is_incomplete(key) {
            records.push(JournalRecord::Completed(key.clone()));
        }
        let base = state.records.base(key);
        if base.is_some_and(|base| base.version.is_none()) {
            records.push(JournalRecord::Reverted(key.clone()));
        }
        drop(state);
        self.record(records)
    }

    /// Removes an empty folder. The names must be locked.
    pub(super) fn remove_folder(self: &Arc<Self>, path: &Key) -> Result<()> {
        let found = self.find(path)?.ok_or_else(|| Error::not_found(path))?;
        if self.kind(path, &found) != EntryKind::Directory {
            return Err(wrong_kind(path, false));
        }
        self.check_empty(path)?;
        let mut records = Vec::new();
        if self.find_lower(path)?.is_some() {
            let below = self.whiteouts(path).into_iter().map(|(key, _)| key);
            records.extend(below.map(JournalRecord::WhiteoutRemoved));
            records.push(JournalRecord::Whiteout {
                key: path.clone(),
                source: None,
            });
        }
        self.record(records)?;
        if self.upper.stat(path)?.is_some() {
            self.remove_from_upper(path, AtFlags::REMOVEDIR)?;
        }
        self.note_tree_change(path);
        Ok(())
    }

    /// `NotEmpty` for a folder that shows a name.
    pub(super) fn check_empty(self: &Arc<Self>, key: &Key) -> Result<()> {
        let mut names = listing::open(self, key)?;
        while let Some(name) = names.next()? {
            if self.still_shows(&key.child(&name.name)?)? {
                let name = String::from_utf8_lossy(&name.name).into_owned();
                let why = format!("still holds {name}");
                return Err(Error::new(Kind::NotEmpty, key, why));
            }
        }
        Ok(())
    }

    /// Whether a name that was listed is there. Some buckets list a folder for a while after its last key was erased;
    /// only a write-through erases keys before their folder is removed.
    fn still_shows(self: &Arc<Self>, key: &Key) -> Result<bool> {
        let may_linger = self.config.write_through && self.lower.info().folder.is_none();
        match self.find(key)? {
            Some(Resolved::Lower(_, meta)) if may_linger && meta.kind == EntryKind::Directory => {
                match listing::open(self, key) {
                    Err(error) if error.kind() == Kind::NotFound => Ok(false),
                    names => Ok(names?.next()?.is_some()),
                }
            }
            found => Ok(found.is_some()),
        }
    }
}
