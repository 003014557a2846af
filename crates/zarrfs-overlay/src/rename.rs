//! Renames files and whole folders without copying them.
//!
//! A file of the upper folder is renamed there; an object of the store becomes visible at its new name by a whiteout
//! that has the old name as its source. Both happen in one step: the journal records that a rename starts, and recovery
//! finishes the rename after a crash.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::content;
use crate::derived::has_program_copies;
use crate::journal_record::JournalRecord;
use crate::layer_dir::{LayerDir, os_error};
use crate::layered_store::{LayeredStore, Resolved};
use crate::name_change::{NameChange, keys_not_known};
use crate::open_file::OpenFile;
use crate::overlay_core::wrong_kind;
use crate::records::joined;
use zarr_format::dialect::consolidated::may_be_consolidated;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::tree::RenameMode;
use zarrfs_store::{EntryKind, Key, Meta};

/// Completes a rename in the upper folder, if it is not complete yet. `in_upper` says whether the upper folder has
/// `from`.
pub(crate) fn finish(keys: &LayerDir, from: &Key, to: &Key, in_upper: bool) -> Result<()> {
    if in_upper {
        return match keys.rename(from, to, RenameFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done.map_err(|error| os_error(from, error)),
        };
    }
    match keys.kind(to)? {
        None => Ok(()),
        Some(EntryKind::Directory) => keys.remove(to, AtFlags::REMOVEDIR),
        Some(_) => keys.remove(to, AtFlags::empty()),
    }
}

fn is_folder(found: &Resolved) -> bool {
    LayeredStore::kind(found) == EntryKind::Directory
}

impl NameChange<'_> {
    /// Renames `from` to `to`.
    pub(crate) fn rename(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        // Evaluate all three, so that missing answers are requested together.
        let (old, new, above) = (self.find(from), self.find(to), self.check_folder_of(to));
        let (old, new) = (old?.ok_or_else(|| Error::not_found(from))?, new?);
        above?;
        if self.is_done_already(from, to, &old, new.as_ref(), onto)? {
            return Ok(());
        }
        for file in self.registered_below(from) {
            file.publish_if_complete(self)?;
        }
        if !is_folder(&old) {
            self.check_removable(from)?;
            return self.rename_onto(from, to);
        }
        self.check_movable(from)?;
        self.rename_onto(from, to)?;
        self.seen.rename(from, to);
        Ok(())
    }

    /// Fails with `Unsupported` for a folder that may have keys of a store that does not list them: a commit could not
    /// rename these keys. With write-through every folder may, since the upper folder keeps no files.
    fn check_movable(&self, from: &Key) -> Result<()> {
        if self.store.info().lists {
            return Ok(());
        }
        if self.config.write_through || self.find_lower(from)?.is_some() {
            return Err(keys_not_known(from));
        }
        Ok(())
    }

    /// Renames `from` to `to`, replacing the content of `to`.
    fn rename_onto(&self, from: &Key, to: &Key) -> Result<()> {
        let layer = &self.top.layer;
        let in_upper = layer.dir.stat(from)?.is_some();
        // Evaluate both, so that missing answers are requested together.
        let (bases, whiteouts) = (
            self.rename_base_records(from, to),
            self.rename_whiteouts(from, to),
        );
        let (mut records, whiteouts) = (bases?, whiteouts?);
        self.make_parents(to)?;
        let incomplete = layer.lock().records.incomplete_below(from);
        records.extend(self.incomplete_after_rename(&incomplete, from, to));
        records.extend(self.marks_after_rename(from, to));
        records.extend(self.encodings_after_rename(from, to));
        if self.has_program_copies(from, to)? {
            records.push(JournalRecord::CopiesWritten(to.clone()));
        }
        let replaces = !in_upper && layer.dir.stat(to)?.is_some();
        let attributes = self.renamed_attributes(from, to);
        let is_one_step = whiteouts.is_empty() && attributes.is_empty() && !replaces;
        records.extend(whiteouts);
        records.extend(attributes);
        if !is_one_step {
            let (from, to) = (from.clone(), to.clone());
            records.push(JournalRecord::RenameStarted { from, to, in_upper });
        }
        let shape = layer.reshape();
        self.record(records)?;
        // Otherwise the object found at `to` would have the ID of the replaced file until the table is updated.
        self.open.lock().ids.remove(to);
        layer.retain_synced(&self.upper, to)?;
        finish(&layer.dir, from, to, in_upper)?;
        self.detach(to);
        self.rename_open_files(self.registered_below(from), from, to);
        self.open.lock().ids.rename(from, to);
        drop(shape);
        if !is_one_step {
            self.record(vec![JournalRecord::RenameFinished])?;
        }
        self.open.lock().failed_writes.rename(from, to);
        let completed = incomplete.into_iter().map(JournalRecord::Completed);
        self.record(completed.collect())?;
        self.forget_renamed(from, to)
    }

    /// Drops the cached state of the old name, and records the change of both names.
    fn forget_renamed(&self, from: &Key, to: &Key) -> Result<()> {
        self.forget_created_below(from)?;
        self.top.layer.lock().generations.forget_below(from);
        self.note_write(to);
        self.note_tree_change(to);
        self.note_tree_change(from);
        Ok(())
    }

    /// Checks the new name; returns whether there is nothing to do.
    fn is_done_already(
        &self,
        from: &Key,
        to: &Key,
        old: &Resolved,
        new: Option<&Resolved>,
        onto: RenameMode,
    ) -> Result<bool> {
        if from == to && onto != RenameMode::NoReplace {
            return Ok(true);
        }
        if from != to && to.below(from).is_some() {
            return Err(Error::invalid(to, "lies in what is renamed"));
        }
        match (onto, new) {
            (_, None) => Ok(false),
            (RenameMode::NoReplace, Some(_)) => {
                Err(Error::new(Kind::Exists, to, "is there already"))
            }
            (RenameMode::Replace, Some(new)) => self.check_replaced(to, old, new).map(|()| false),
        }
    }

    /// Checks that `old` may replace `new`.
    fn check_replaced(&self, to: &Key, old: &Resolved, new: &Resolved) -> Result<()> {
        match (is_folder(old), is_folder(new)) {
            (false, true) => Err(wrong_kind(to, true)),
            (true, false) => Err(wrong_kind(to, false)),
            (true, true) => self.check_empty(to),
            (false, false) => Ok(()),
        }
    }

    /// Returns the records of the store's versions at the keys of files after a rename.
    fn rename_base_records(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let moves_folder = self.is_folder_at(from)?;
        for key in [from, to] {
            let stored = self.find_lower(key)?;
            let is_file = |(_, meta): &(Key, Meta)| meta.kind != EntryKind::Directory;
            if key == to && self.top.layer.dir.stat(to)?.is_none() {
                // The rename replaces an object of the store that is visible at `to` from another key.
                let replaced = stored.as_ref();
                let replaced = replaced.filter(|stored| is_file(stored) && stored.0 != *to);
                if let Some((from, meta)) = replaced {
                    records.extend(self.moved_base_record(from, meta.version, None)?);
                }
            }
            if stored.map_or(!moves_folder && key == to, |stored| is_file(&stored)) {
                let limit = if key == from {
                    content::MAX_REMOVED
                } else {
                    content::MAX_REPLACED
                };
                records.extend(self.file_base_record(key, limit)?);
            }
        }
        let below = self.top.layer.lock().records.bases_below(from);
        let rests = below.iter().filter_map(|(key, _)| key.below(from));
        let targets = rests.filter(|rest| !rest.is_root());
        let targets =
            targets.map(|rest| self.file_base_record(&joined(to, &rest), content::MAX_REPLACED));
        // Evaluate all, so that missing answers are requested together.
        let targets: Vec<Result<Option<JournalRecord>>> = targets.collect();
        for record in targets {
            records.extend(record?);
        }
        Ok(records)
    }

    /// Returns the base record of a key, or `None` if the key is a folder of the upper folder.
    fn file_base_record(&self, key: &Key, limit: u64) -> Result<Option<JournalRecord>> {
        match self.top.layer.dir.kind(key)? {
            Some(EntryKind::Directory) => Ok(None),
            _ => self.base_record(key, limit),
        }
    }

    /// Returns the records of incomplete files after a rename. `incomplete` are the incomplete files at and below
    /// `from`.
    fn incomplete_after_rename(
        &self,
        incomplete: &[Key],
        from: &Key,
        to: &Key,
    ) -> Vec<JournalRecord> {
        let mut records = Vec::new();
        if self.top.layer.lock().records.is_incomplete(to) {
            // It is replaced.
            records.push(JournalRecord::Completed(to.clone()));
        }
        let renamed = |key: &Key| key.below(from).map(|rest| joined(to, &rest));
        let created = incomplete.iter().filter_map(renamed);
        records.extend(created.map(JournalRecord::Created));
        records
    }

    /// Returns the records of the files' contents after a rename.
    fn marks_after_rename(&self, from: &Key, to: &Key) -> Vec<JournalRecord> {
        let state = self.top.layer.lock();
        let marks = &state.records.marks;
        let mut records = vec![JournalRecord::Removed(to.clone())];
        for old in marks.keys_below(from) {
            let new = old.below(from).map(|rest| joined(to, &rest));
            if let (Some(key), Some(mark)) = (new, marks.last(&old)) {
                records.push(JournalRecord::Written { key, mark });
            }
            records.push(JournalRecord::Removed(old));
        }
        records.extend(state.records.program_copies.renamed(from, to));
        records
    }

    /// Whether the layer's file at `from` holds copies of documents that count under the name `to`.
    fn has_program_copies(&self, from: &Key, to: &Key) -> Result<bool> {
        if !may_be_consolidated(to) {
            return Ok(false);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = self.top.layer.dir.open_key(from, flags);
        file.map_or(Ok(false), |file| has_program_copies(to, &File::from(file)))
    }

    /// Returns the records that move the kept attributes from the old name to the new name.
    fn renamed_attributes(&self, from: &Key, to: &Key) -> Vec<JournalRecord> {
        let layer = &self.top.layer;
        let moved = layer.lock().records.kept_attributes_below(from);
        let mut records = layer.dropped_attributes(to);
        records.extend(layer.dropped_attributes(from));
        records.extend(moved.into_iter().filter_map(|(key, attributes)| {
            let key = joined(to, &key.below(from)?);
            Some(JournalRecord::Attributes { key, attributes })
        }));
        records
    }

    /// Returns the changes of whiteouts that make `to` show the store's objects at and below `from`.
    fn rename_whiteouts(&self, from: &Key, to: &Key) -> Result<Vec<JournalRecord>> {
        let (lower, hides) = (self.find_lower(from), self.find_lower(to));
        let (lower, hides) = (lower?.map(|(lower, _)| lower), hides?.is_some());
        let below_to = self.top.layer.whiteouts(to);
        let below_from = self.top.layer.whiteouts(from);
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

    /// Whether the upper folder has a folder or a symbolic link, which hides a key without changing its content.
    fn is_special_in_upper(&self, key: &Key) -> Result<bool> {
        let kind = self.top.layer.dir.kind(key)?;
        Ok(kind.is_some_and(|kind| kind != EntryKind::File))
    }

    fn is_folder_at(&self, key: &Key) -> Result<bool> {
        Ok(self.find(key)?.is_some_and(|found| is_folder(&found)))
    }

    /// Updates the keys of open files after a rename.
    fn rename_open_files(&self, files: Vec<Arc<OpenFile>>, from: &Key, to: &Key) {
        for file in &files {
            let Some(old) = file.key() else { continue };
            let Some(rest) = old.below(from) else {
                continue;
            };
            let new = joined(to, &rest);
            let mut open = self.open.lock();
            open.files.unregister(&old, file);
            open.files.register(&new, file);
            drop(open);
            file.set_key(new);
        }
    }

    /// Drops the bases of keys that the store never had, below a renamed folder.
    fn forget_created_below(&self, from: &Key) -> Result<()> {
        let state = self.top.layer.lock();
        let keys = state.records.bases_below(from).into_iter();
        let keys = keys.map(|(key, _)| key);
        let created = keys.filter(|key| state.records.is_new(key));
        let reverted = created.map(JournalRecord::Reverted).collect();
        drop(state);
        self.record(reverted)
    }
}
