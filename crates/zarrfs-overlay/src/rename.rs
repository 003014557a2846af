//! Renames files and whole folders without copying them.
//!
//! A file of the upper folder is renamed there. An object of the store gets a whiteout at its new name that names the
//! old name as its source, and becomes visible there. A rename may need both and is still one step for programs: the
//! journal records its start, and recovery finishes it after a crash.

use std::sync::Arc;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::derived::has_program_copies;
use crate::journal_record::JournalRecord;
use crate::layer_dir::{LayerDir, os_error};
use crate::layered_store::{LayeredStore, Resolved};
use crate::name_change::{NameChange, unlisted_keys};
use crate::open_file::OpenFile;
use crate::overlay_core::{already_exists, wrong_kind};
use crate::records::{Renaming, Whiteout, joined, renamed};
use crate::{content, encodings};
use zarr_format::dialect::consolidated::may_be_consolidated;
use zarr_format::error::{Error, Result};
use zarrfs_store::tree::RenameMode;
use zarrfs_store::{EntryKind, Key, Meta};

/// Completes the part of a rename that is in the upper folder, unless it was completed before.
pub(crate) fn finish(dir: &LayerDir, renaming: &Renaming) -> Result<()> {
    let (from, to) = (&renaming.from, &renaming.to);
    if renaming.in_upper {
        return match dir.rename(from, to, RenameFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done.map_err(|error| os_error(from, error)),
        };
    }
    match dir.kind(to)? {
        None => Ok(()),
        Some(EntryKind::Directory) => dir.remove(to, AtFlags::REMOVEDIR),
        Some(_) => dir.remove(to, AtFlags::empty()),
    }
}

fn is_folder(found: &Resolved) -> bool {
    LayeredStore::kind(found) == EntryKind::Directory
}

/// A rename of a file or folder, made under the lock of the names.
pub(crate) struct Rename<'a> {
    pub(crate) change: &'a NameChange<'a>,
    pub(crate) from: &'a Key,
    pub(crate) to: &'a Key,
}

impl Rename<'_> {
    pub(crate) fn run(&self, onto: RenameMode) -> Result<()> {
        let (change, from, to) = (self.change, self.from, self.to);
        // Make all three checks before returning an error, so that the store is asked for all missing answers together.
        let (old, new, above) = (
            change.find(from),
            change.find(to),
            change.check_folder_of(to),
        );
        let (old, new) = (old?.ok_or_else(|| Error::not_found(from))?, new?);
        above?;
        if self.is_done_already(&old, new.as_ref(), onto)? {
            return Ok(());
        }
        for file in change.registered_below(from) {
            file.publish_if_complete(change)?;
        }
        if !is_folder(&old) {
            change.check_removable(from)?;
            return self.replace();
        }
        self.check_movable()?;
        self.replace()?;
        change.encoding_cache.rename(from, to);
        Ok(())
    }

    /// Fails with `Unsupported` for a folder that may have keys in a store that cannot list them, because a commit
    /// could not rename these keys. With write-through this is every folder, because files leave the upper folder when
    /// they are stored.
    fn check_movable(&self) -> Result<()> {
        let (change, from) = (self.change, self.from);
        if change.store.info().lists {
            return Ok(());
        }
        if change.config.write_through || change.find_lower(from)?.is_some() {
            return Err(unlisted_keys(from));
        }
        Ok(())
    }

    fn replace(&self) -> Result<()> {
        let (change, from, to) = (self.change, self.from, self.to);
        let layer = &change.top.layer;
        let in_upper = layer.dir.stat(from)?.is_some();
        // Compute both before returning an error, so that the store is asked for all missing answers together.
        let (bases, whiteouts) = (self.base_records(), self.whiteouts());
        let (mut records, whiteouts) = (bases?, whiteouts?);
        change.make_parents(to)?;
        let incomplete = layer.lock().records.incomplete_below(from);
        records.extend(self.incomplete_files(&incomplete));
        records.extend(self.marks());
        records.extend(encodings::records_after_rename(
            &layer.lock().records,
            from,
            to,
        ));
        if self.has_program_copies()? {
            records.push(JournalRecord::CopiesWritten(to.clone()));
        }
        let replaces = !in_upper && layer.dir.stat(to)?.is_some();
        let attributes = self.attributes();
        let is_one_step = whiteouts.is_empty() && attributes.is_empty() && !replaces;
        records.extend(whiteouts);
        records.extend(attributes);
        let renaming = Renaming {
            from: from.clone(),
            to: to.clone(),
            in_upper,
        };
        if !is_one_step {
            let (from, to) = (from.clone(), to.clone());
            records.push(JournalRecord::RenameStarted { from, to, in_upper });
        }
        let layout = layer.write_layout();
        change.record(records)?;
        // Drop the replaced file's ID first. Otherwise a lookup could find the renamed object under that ID before the
        // table is updated.
        change.open.lock().ids.remove(to);
        layer.retain_synced(&change.upper, to)?;
        finish(&layer.dir, &renaming)?;
        change.detach(to);
        self.update_open_files(change.registered_below(from));
        change.open.lock().ids.rename(from, to);
        drop(layout);
        if !is_one_step {
            change.record(vec![JournalRecord::RenameFinished])?;
        }
        change.open.lock().failed_writes.rename(from, to);
        let completed = incomplete.into_iter().map(JournalRecord::Completed);
        change.record(completed.collect())?;
        self.forget_old_name()
    }

    /// Drops what is known about the old name, and invalidates cached answers about both names.
    fn forget_old_name(&self) -> Result<()> {
        let (change, from, to) = (self.change, self.from, self.to);
        self.forget_created_below()?;
        change.top.layer.lock().generations.forget_below(from);
        change.mark_written(to);
        change.mark_tree_changed(to);
        change.mark_tree_changed(from);
        Ok(())
    }

    /// Checks whether the rename is allowed at its new name; returns whether there is nothing to do.
    fn is_done_already(
        &self,
        old: &Resolved,
        new: Option<&Resolved>,
        onto: RenameMode,
    ) -> Result<bool> {
        let (from, to) = (self.from, self.to);
        if from == to && onto != RenameMode::NoReplace {
            return Ok(true);
        }
        if from != to && to.below(from).is_some() {
            return Err(Error::invalid(to, "cannot move a directory into itself"));
        }
        match (onto, new) {
            (_, None) => Ok(false),
            (RenameMode::NoReplace, Some(_)) => Err(already_exists(to)),
            (RenameMode::Replace, Some(new)) => self.check_replaced(old, new).map(|()| false),
        }
    }

    /// Fails if a rename may not replace `new` by `old`, because only one is a folder or a folder is not empty.
    fn check_replaced(&self, old: &Resolved, new: &Resolved) -> Result<()> {
        let (change, to) = (self.change, self.to);
        match (is_folder(old), is_folder(new)) {
            (false, true) => Err(wrong_kind(to, true)),
            (true, false) => Err(wrong_kind(to, false)),
            (true, true) => change.check_empty(to),
            (false, false) => Ok(()),
        }
    }

    /// Returns records of the store's versions of all files under the old and the new names, before the rename.
    fn base_records(&self) -> Result<Vec<JournalRecord>> {
        let (change, from, to) = (self.change, self.from, self.to);
        let mut records = Vec::new();
        let moves_folder = self.is_folder_at(from)?;
        for key in [from, to] {
            let stored = change.find_lower(key)?;
            let is_file = |meta: &Meta| meta.kind != EntryKind::Directory;
            if key == to && change.top.layer.dir.stat(to)?.is_none() {
                // An object was renamed to `to` before, and the rename now replaces it.
                let replaced = stored.as_ref();
                let replaced = replaced.filter(|stored| is_file(&stored.1) && stored.0 != *to);
                if let Some((from, meta)) = replaced {
                    records.extend(change.moved_base_record(from, meta.version, None)?);
                }
            }
            if stored.map_or(!moves_folder && key == to, |stored| is_file(&stored.1)) {
                let limit = if key == from {
                    content::MAX_REMOVED
                } else {
                    content::MAX_REPLACED
                };
                records.extend(self.file_base_record(key, limit)?);
            }
        }
        let below = change.top.layer.lock().records.bases_below(from);
        let rests = below.iter().filter_map(|(key, _)| key.below(from));
        let targets = rests.filter(|rest| !rest.is_root());
        let targets =
            targets.map(|rest| self.file_base_record(&joined(to, &rest), content::MAX_REPLACED));
        // Ask for all keys before returning an error, so that the store gets all questions together.
        let targets: Vec<Result<Option<JournalRecord>>> = targets.collect();
        for record in targets {
            records.extend(record?);
        }
        Ok(records)
    }

    /// Returns a record of the store's version of a key, or `None` if the upper folder has a folder there.
    fn file_base_record(&self, key: &Key, limit: u64) -> Result<Option<JournalRecord>> {
        let change = self.change;
        match change.top.layer.dir.kind(key)? {
            Some(EntryKind::Directory) => Ok(None),
            _ => change.base_record(key, limit),
        }
    }

    /// Returns records that move the incomplete files in `incomplete` to their new names.
    fn incomplete_files(&self, incomplete: &[Key]) -> Vec<JournalRecord> {
        let (change, from, to) = (self.change, self.from, self.to);
        let mut records = Vec::new();
        if change.top.layer.lock().records.is_incomplete(to) {
            // An incomplete file at the new name is gone after the rename.
            records.push(JournalRecord::Completed(to.clone()));
        }
        let created = incomplete.iter().filter_map(|key| renamed(key, from, to));
        records.extend(created.map(JournalRecord::Created));
        records
    }

    /// Returns records that move the contents of the renamed files to their new names.
    fn marks(&self) -> Vec<JournalRecord> {
        let (change, from, to) = (self.change, self.from, self.to);
        let state = change.top.layer.lock();
        let marks = &state.records.marks;
        let mut records = vec![JournalRecord::Removed(to.clone())];
        for old in marks.keys_below(from) {
            if let (Some(key), Some(mark)) = (renamed(&old, from, to), marks.last(&old)) {
                records.push(JournalRecord::Written { key, mark });
            }
            records.push(JournalRecord::Removed(old));
        }
        records.extend(state.records.program_copies.records_after_rename(from, to));
        records
    }

    /// Whether the layer's file at `from` becomes consolidated metadata by the rename, with copies that a program
    /// wrote.
    fn has_program_copies(&self) -> Result<bool> {
        let (change, from, to) = (self.change, self.from, self.to);
        if !may_be_consolidated(to) {
            return Ok(false);
        }
        let file = change.top.layer.dir.open_file(from);
        file.map_or(Ok(false), |file| has_program_copies(to, &file))
    }

    /// Returns records that move recorded attributes to the new names.
    fn attributes(&self) -> Vec<JournalRecord> {
        let (change, from, to) = (self.change, self.from, self.to);
        let layer = &change.top.layer;
        let moved = layer.lock().records.attribute_overrides_below(from);
        let mut records = layer.dropped_attributes(to);
        records.extend(layer.dropped_attributes(from));
        records.extend(moved.into_iter().filter_map(|(key, attributes)| {
            let key = renamed(&key, from, to)?;
            Some(JournalRecord::Attributes { key, attributes })
        }));
        records
    }

    /// Returns records of whiteouts, so that `to` shows the store's objects at and below `from`.
    fn whiteouts(&self) -> Result<Vec<JournalRecord>> {
        let (change, from, to) = (self.change, self.from, self.to);
        let (lower, hides) = (change.find_lower(from), change.find_lower(to));
        let (lower, hides) = (lower?.map(|(lower, _)| lower), hides?.is_some());
        let below_to = change.top.layer.whiteouts(to);
        let below_from = change.top.layer.whiteouts(from);
        let whiteout = |key: Key, source| JournalRecord::Whiteout { key, source };
        let mut records: Vec<JournalRecord> = Vec::new();
        let moves = lower.is_some() || below_from.iter().any(|whiteout| whiteout.at != *from);
        let is_special = self.is_special_in_upper(from)?;
        if moves || (is_special && (hides || !below_to.is_empty())) {
            let below_to = below_to.into_iter().map(|whiteout| whiteout.at);
            records.extend(below_to.map(JournalRecord::WhiteoutRemoved));
            records.push(whiteout(to.clone(), lower.clone()));
        }
        for Whiteout { at, source } in below_from {
            let Some(rest) = at.below(from).filter(|rest| !rest.is_root()) else {
                continue;
            };
            records.push(JournalRecord::WhiteoutRemoved(at));
            records.push(whiteout(joined(to, &rest), source));
        }
        if lower.is_some() {
            records.push(whiteout(from.clone(), None));
        }
        Ok(records)
    }

    /// Whether the upper folder has a folder or a symbolic link at a key.
    fn is_special_in_upper(&self, key: &Key) -> Result<bool> {
        let change = self.change;
        let kind = change.top.layer.dir.kind(key)?;
        Ok(kind.is_some_and(|kind| kind != EntryKind::File))
    }

    fn is_folder_at(&self, key: &Key) -> Result<bool> {
        let change = self.change;
        Ok(change.find(key)?.is_some_and(|found| is_folder(&found)))
    }

    fn update_open_files(&self, files: Vec<Arc<OpenFile>>) {
        let (change, from, to) = (self.change, self.from, self.to);
        for file in &files {
            let Some(old) = file.key() else { continue };
            let Some(new) = renamed(&old, from, to) else {
                continue;
            };
            let mut open = change.open.lock();
            open.files.unregister(&old, file);
            open.files.register(&new, file);
            drop(open);
            file.rename(new);
        }
    }

    /// Drops the records of keys below a renamed folder that the store never had, because they do not exist any more.
    fn forget_created_below(&self) -> Result<()> {
        let (change, from) = (self.change, self.from);
        let state = change.top.layer.lock();
        let keys = state.records.bases_below(from).into_iter();
        let keys = keys.map(|(key, _)| key);
        let created = keys.filter(|key| state.records.is_new(key));
        let reverted = created.map(JournalRecord::Reverted).collect();
        drop(state);
        change.record(reverted)
    }
}
