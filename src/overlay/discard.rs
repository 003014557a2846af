//! Discard: drops changes, so that the store's own state shows again.

use rustix::fs::AtFlags;

use super::journal::JournalRecord;
use super::listing::list_recursive;
use super::{Overlay, OverlayCore};
use crate::error::{Error, Kind, Result};
use crate::store::{EntryKind, Key};

impl Overlay {
    /// Drops what was changed at a path and below; returns how many keys that were. Files that are open keep their
    /// content until they are closed.
    ///
    /// `NotFound` if nothing was changed there.
    pub fn discard(&self, path: &Key) -> Result<u64> {
        let core = &self.0;
        loop {
            let whiteouts = core.whiteouts(path);
            let moved = core.moved_base_records(&whiteouts)?;
            let _names = core.names.lock();
            // Otherwise names changed while the store was asked.
            if core.whiteouts(path) == whiteouts {
                return core.discard(path, whiteouts, moved);
            }
        }
    }
}

impl OverlayCore {
    /// Returns the records of the versions that the store has where something was renamed from: it stays removed.
    fn moved_base_records(&self, whiteouts: &[(Key, Option<Key>)]) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        for source in whiteouts.iter().filter_map(|(_, source)| source.as_ref()) {
            for (key, meta) in list_recursive(&*self.lower, source)?.objects {
                let version = match meta {
                    Some(meta) => Some(meta.version),
                    None => self.lower.version(&key)?,
                };
                records.extend(version.and_then(|version| self.moved_base_record(&key, version)));
            }
        }
        Ok(records)
    }

    /// Drops the changes at a path and below, among them these whiteouts, and takes `records` of what was renamed
    /// from there. The names must be locked.
    fn discard(
        &self,
        path: &Key,
        whiteouts: Vec<(Key, Option<Key>)>,
        mut records: Vec<JournalRecord>,
    ) -> Result<u64> {
        let bases = self.state.lock().records.bases_below(path);
        let open = self.registered_below(path);
        let pending = open.iter().filter(|file| file.is_pending()).count() as u64;
        let is_in_upper = !path.is_root() && self.upper.stat(path)?.is_some()
            || !self.upper_names(path).unwrap_or_default().is_empty();
        if bases.is_empty() && whiteouts.is_empty() && pending == 0 && !is_in_upper {
            let why = "nothing was changed there";
            return Err(Error::new(Kind::NotFound, path, why));
        }
        for key in open.iter().filter_map(|file| file.key()) {
            self.detach(&key);
        }
        let removed = self.remove_all_from_upper(path)?.max(pending);
        let changed = bases.len().max(whiteouts.len()) as u64;
        for (key, _) in bases {
            records.push(JournalRecord::Completed(key.clone()));
            records.push(JournalRecord::Reverted(key));
        }
        let whiteouts = whiteouts.into_iter().map(|(key, _)| key);
        records.extend(whiteouts.map(JournalRecord::WhiteoutRemoved));
        self.record(records)?;
        self.note_tree_change(path);
        Ok(changed.max(removed))
    }

    /// Removes what the upper folder has at a path and below; returns how many files, and folders without any, that
    /// were.
    fn remove_all_from_upper(&self, path: &Key) -> Result<u64> {
        let Some(stat) = self.upper.stat(path)? else {
            return Ok(0);
        };
        if self.meta(path, &stat).kind != EntryKind::Directory {
            self.remove_from_upper(path, AtFlags::empty())?;
            self.note_removal(path);
            return Ok(1);
        }
        let mut removed = 0;
        for (name, _) in self.upper_names(path)? {
            removed += self.remove_all_from_upper(&path.child(&name)?)?;
        }
        if path.is_root() {
            return Ok(removed);
        }
        self.remove_from_upper(path, AtFlags::REMOVEDIR)?;
        Ok(removed.max(1))
    }
}
