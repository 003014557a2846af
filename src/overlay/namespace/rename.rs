//! Renames, of files and of whole folders: nothing is copied.
//!
//! What the upper folder has is renamed there; what the store has shows under its new name by a whiteout with the
//! old one as its source. Both are one step: the journal says that a rename starts, and recovery finishes it after a
//! crash.

use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::overlay::journal::JournalRecord;
use crate::overlay::open_file::OpenFile;
use crate::overlay::records::joined;
use crate::overlay::upper::{Upper, os_error};
use crate::overlay::{OverlayCore, Resolved, wrong_kind};
use crate::store::tree::RenameMode;
use crate::store::{EntryKind, Key, Meta};

/// Does in the upper folder what a rename does, as far as it was not done; `in_upper` if the upper folder has what
/// is renamed.
pub(in crate::overlay) fn finish(
    upper: &Upper,
    from: &Key,
    to: &Key,
    in_upper: bool,
) -> Result<()> {
    if in_upper {
        return match rename_in_upper(upper, from, to, RenameFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done.map_err(|error| os_error(from, error)),
        };
    }
    let Some(stat) = upper.stat(to)? else {
        return Ok(());
    };
    let flags = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    let removed = upper
        .parent(to)
        .and_then(|(folder, name)| rustix::fs::unlinkat(folder, name, flags));
    removed.map_err(|error| os_error(to, error))
}

fn rename_in_upper(
    upper: &Upper,
    from: &Key,
    to: &Key,
    flags: RenameFlags,
) -> rustix::io::Result<()> {
    let (old, old_name) = upper.parent(from)?;
    let (new, new_name) = upper.parent(to)?;
    rustix::fs::renameat_with(old, old_name, new, new_name, flags)
}

fn is_folder(found: &Resolved) -> bool {
    match found {
        Resolved::Upper(stat) => FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        Resolved::Lower(_, meta) => meta.kind == EntryKind::Directory,
    }
}

impl OverlayCore {
    /// Gives what is at `from` the name `to`. The names must be locked.
    pub(super) fn rename(self: &Arc<Self>, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        let old = self.find(from)?.ok_or_else(|| Error::not_found(from))?;
        let new = self.find(to)?;
        if self.is_done_already(from, to, (&old, new.as_ref()), onto)? {
            return Ok(());
        }
        for file in self.registered_below(from) {
            file.publish_if_complete()?;
        }
        if onto == RenameMode::Exchange {
            self.exchange(from, to)
        } else {
            self.rename_onto(from, to)
        }
    }

    /// Renames; what is at `to` is replaced.
    fn rename_onto(&self, from: &Key, to: &Key) -> Result<()> {
        let in_upper = self.upper.stat(from)?.is_some();
        self.make_parents(to)?;
        let mut records = self.rename_base_records(from, to)?;
        let whiteouts = self.rename_whiteouts(from, to)?;
        let incomplete = self.state.lock().records.incomplete_below(from);
        records.extend(self.incomplete_after_rename(&incomplete, from, to));
        let replaces = !in_upper && self.upper.stat(to)?.is_some();
        let is_one_step = whiteouts.is_empty() && !replaces;
        records.extend(whiteouts);
        if !is_one_step {
            let (from, to) = (from.clone(), to.clone());
            records.push(JournalRecord::RenameStarted { from, to, in_upper });
        }
        self.record(records)?;
        finish(&self.upper, from, to, in_upper)?;
        if !is_one_step {
            self.record(vec![JournalRecord::RenameFinished])?;
        }
        self.state.lock().failed_writes.rename(from, to);
        let completed = incomplete.into_iter().map(JournalRecord::Completed);
        self.record(completed.collect())?;
        self.forget_created_below(from)?;
        self.detach(to);
        self.rename_open_files(self.registered_below(from), from, to);
        self.state.lock().write_numbers.forget_below(from);
        self.note_write(to);
        self.note_tree_change(to);
        self.note_tree_change(from);
        Ok(())
    }

    /// Checks what has the new name; returns whether there is nothing to do.
    fn is_done_already(
        self: &Arc<Self>,
        from: &Key,
        to: &Key,
        (old, new): (&Resolved, Option<&Resolved>),
        onto: RenameMode,
    ) -> Result<bool> {
        if from == to && onto != RenameMode::Nothing {
            return Ok(true);
        }
        if (from != to && to.below(from).is_some())
            || (onto == RenameMode::Exchange && from.below(to).is_some())
        {
            return Err(Error::invalid(to, "lies in what is renamed"));
        }
        match (onto, new) {
            (RenameMode::Exchange, None) => Err(Error::not_found(to)),
            (RenameMode::Exchange, Some(_)) | (_, None) => Ok(false),
            (RenameMode::Nothing, Some(_)) => Err(Error::new(Kind::Exists, to, "is there already")),
            (RenameMode::Replace, Some(new)) => self.check_replaced(to, old, new),
        }
    }

    /// Checks that `old` may replace `new`; returns whether both are names of one file.
    fn check_replaced(self: &Arc<Self>, to: &Key, old: &Resolved, new: &Resolved) -> Result<bool> {
        if let (Resolved::Upper(old), Resolved::Upper(new)) = (old, new)
            && (old.st_dev, old.st_ino) == (new.st_dev, new.st_ino)
        {
            return Ok(true);
        }
        match (is_folder(old), is_folder(new)) {
            (false, true) => Err(wrong_kind(to, true)),
            (true, false) => Err(wrong_kind(to, false)),
            (true, true) => self.check_empty(to).map(|()| false),
            (false, false) => Ok(false),
        }
    }

    /// Returns the records of the store's versions at the keys where files will be after a rename.
    fn rename_base_records(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let moves_folder = self.is_folder_at(from)?;
        for key in [from, to] {
            let stored = self.find_lower(key)?;
            let is_file = |(_, meta): &(Key, Meta)| meta.kind != EntryKind::Directory;
            if key == to && self.upper.stat(to)?.is_none() {
                // Another object of the store that shows at `to` is replaced.
                let replaced = stored.as_ref();
                let replaced = replaced.filter(|stored| is_file(stored) && stored.0 != *to);
                records.extend(
                    replaced.and_then(|(from, meta)| self.moved_base_record(from, meta.version)),
                );
            }
            if stored.map_or(!moves_folder && key == to, |stored| is_file(&stored)) {
                records.extend(self.file_base_record(key)?);
            }
        }
        let below = self.state.lock().records.bases_below(from);
        for (key, _) in below {
            if let Some(rest) = key.below(from).filter(|rest| !rest.is_root()) {
                records.extend(self.file_base_record(&joined(to, &rest))?);
            }
        }
        Ok(records)
    }

    /// Returns the base record of a key, unless it is a folder of the upper folder.
    fn file_base_record(&self, key: &Key) -> Result<Option<JournalRecord>> {
        match self.upper.stat(key)? {
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(None),
            _ => self.base_record(key),
        }
    }

    /// Returns the records of which files are incomplete after a rename; `incomplete` are those at `from` and below.
    fn incomplete_after_rename(
        &self,
        incomplete: &[Key],
        from: &Key,
        to: &Key,
    ) -> Vec<JournalRecord> {
        let mut records = Vec::new();
        if self.state.lock().records.is_incomplete(to) {
            // It is replaced.
            records.push(JournalRecord::Completed(to.clone()));
        }
        let renamed = |key: &Key| key.below(from).map(|rest| joined(to, &rest));
        let created = incomplete.iter().filter_map(renamed);
        records.extend(created.map(JournalRecord::Created));
        records
    }

    /// Returns the changes of whiteouts after which `to` shows what the store has at `from` and below.
    fn rename_whiteouts(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let lower = self.find_lower(from)?.map(|(lower, _)| lower);
        let hides = self.find_lower(to)?.is_some();
        let below_to = self.whiteouts(to);
        let below_from = self.whiteouts(from);
        let whiteout = |key: Key, source| JournalRecord::Whiteout { key, source };
        let mut records: Vec<JournalRecord> = Vec::new();
        let moves = lower.is_some() || below_from.iter().any(|(key, _)| key != from);
        let is_special = self.is_special_in_upper(from)?;
        if moves || (is_special && (hides || !below_to.is_empty())) {
            let below_to = below_to.into_iter().map(|(key, _)| key);
            records.extend(below_to.map(JournalRecord::WhiteoutRemoved));
            records.push(whiteout(to.clone(), lower.clone()));
        }
        for (key, source) in below_from {
            let Some(rest) = key.below(from).filter(|rest| !rest.is_root()) else {
                continue;
            };
            records.push(JournalRecord::WhiteoutRemoved(key));
            records.push(whiteout(joined(to, &rest), source));
        }
        if lower.is_some() {
            records.push(whiteout(from.clone(), None));
        }
        Ok(records)
    }

    /// Whether the upper folder has something that is no regular file: it hides a key without changing it.
    fn is_special_in_upper(&self, key: &Key) -> Result<bool> {
        let stat = self.upper.stat(key)?;
        Ok(stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile))
    }

    /// Gives two files, or folders of the upper folder alone, each other's name.
    fn exchange(self: &Arc<Self>, from: &Key, to: &Key) -> Result<()> {
        for key in [from, to] {
            self.prepare_exchange(key)?;
        }
        let mut records = self.rename_base_records(from, to)?;
        records.extend(self.rename_base_records(to, from)?);
        for key in [from, to] {
            if self.find_lower(key)?.is_some() {
                // A folder may be there after the exchange.
                let (key, source) = (key.clone(), None);
                records.push(JournalRecord::Whiteout { key, source });
            }
        }
        self.record(records)?;
        rename_in_upper(&self.upper, from, to, RenameFlags::EXCHANGE)
            .map_err(|error| os_error(from, error))?;
        let (first, second) = (self.registered_below(from), self.registered_below(to));
        self.rename_open_files(first, from, to);
        self.rename_open_files(second, to, from);
        self.note_tree_change(from);
        self.note_tree_change(to);
        Ok(())
    }

    /// Brings what is to be exchanged into the upper folder. `Invalid` for a folder of the store.
    fn prepare_exchange(self: &Arc<Self>, key: &Key) -> Result<()> {
        let shows_below = self.whiteouts(key).iter().any(|(below, _)| below != key);
        let is_stored = self.find_lower(key)?.is_some();
        if (is_stored || shows_below) && self.is_folder_at(key)? {
            let why = "folders of the store cannot be exchanged";
            return Err(Error::invalid(key, why));
        }
        if self.upper.stat(key)?.is_none() {
            self.open_file(key)?.publish_copy()?;
        }
        for file in self.registered_below(key) {
            file.publish_if_complete()?;
        }
        self.check_complete(key)
    }

    fn is_folder_at(&self, key: &Key) -> Result<bool> {
        Ok(self.find(key)?.is_some_and(|found| is_folder(&found)))
    }

    /// Gives open files their keys after a rename.
    fn rename_open_files(&self, files: Vec<Arc<OpenFile>>, from: &Key, to: &Key) {
        for file in &files {
            let Some(old) = file.key() else { continue };
            let Some(rest) = old.below(from) else {
                continue;
            };
            let new = joined(to, &rest);
            let mut state = self.state.lock();
            state.open_files.unregister(&old, file);
            state.open_files.register(&new, file);
            drop(state);
            file.set_key(new);
        }
    }

    /// Drops the bases of keys that the store never had, below a folder that was renamed.
    fn forget_created_below(&self, from: &Key) -> Result<()> {
        let bases = self.state.lock().records.bases_below(from);
        let created = bases.into_iter();
        let created = created.filter(|(_, base)| base.version.is_none());
        self.record(
            created
                .map(|(key, _)| JournalRecord::Reverted(key))
                .collect(),
        )
    }
}
