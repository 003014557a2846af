//! Write-through: commits each change at once, and returns the store's error.
//!
//! The change goes through the upper folder like any other. If the store refuses it, it stays there, is retried with
//! the next change of that key, and `status` shows it: nothing is lost if the store is unreachable. The paths are
//! locked from the change until it is stored: changes of one path are stored in order, changes of other paths in
//! parallel.

use std::sync::Arc;

use rustix::fs::AtFlags;

use crate::commit::Commit;
use crate::journal_record::JournalRecord;
use crate::layer::{ChangeLayer, Whiteout};
use crate::layered_store::LayeredStore;
use crate::listing::list_recursive;
use crate::name_change::NameChange;
use crate::overlay_core::OverlayCore;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, StoreVersion};

impl OverlayCore {
    /// Commits the changes at these paths, which are locked, if the overlay uses write-through. Fails with `Changed` on
    /// a conflict.
    pub(crate) fn write_through(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
    ) -> Result<()> {
        if !self.config.write_through {
            return Ok(());
        }
        let top = self.top();
        let commit = Commit {
            core: self,
            layered: &top,
            is_live: true,
        };
        let outcome = commit.run(context, paths, false, &|_, _| {})?.or_failed()?;
        for (key, what) in &outcome.lost {
            log::warn!("{key}: the store cannot hold its {what}");
        }
        match outcome.conflicts.into_iter().next() {
            None => Ok(()),
            // The store has the change. It is not undone, because the chunk's previous content belongs to the old array
            // as well.
            Some((document, why)) if outcome.left == 0 => {
                Err(Error::new(Kind::Changed, document, why))
            }
            Some((key, why)) => {
                let why = format!(
                    "{why}; the change is kept in {}",
                    self.upper.path().display()
                );
                Err(Error::new(Kind::Changed, key, why))
            }
        }
    }

    /// Makes a change, and stores it if the overlay uses write-through.
    pub(crate) fn change_and_store<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths)
        })
    }

    /// Removes or renames names, and stores that if the overlay uses write-through. The folders of the names stay, in
    /// the upper folder or in the store.
    pub(crate) fn remove_and_store(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<()>,
    ) -> Result<()> {
        // In a bucket a folder disappears with its last key, so the upper folder keeps it.
        let keeps_folders = self.config.write_through && self.store.info().folder.is_some();
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths).map_err(not_repeated)?;
            let mut emptied = paths.iter().filter(|_| keeps_folders);
            emptied.try_for_each(|path| self.remove_empty_parents(context, path))
        })
    }
}

/// Returns the error of a conflicting removal or rename. After ESTALE the kernel would retry the path walk and report
/// that the name does not exist, since it was already changed here.
fn not_repeated(error: Error) -> Error {
    match error.kind() {
        Kind::Changed => Error::unavailable(error.subject(), error.detail()),
        _ => error,
    }
}

impl NameChange<'_> {
    /// Creates the folder of a removed name in the upper folder, for stores in which folders exist only as parts of
    /// keys.
    pub(crate) fn keep_folder(&self, path: &Key) -> Result<()> {
        if self.config.write_through {
            self.make_parents(path)?;
        }
        Ok(())
    }
}

impl OverlayCore {
    /// Drops whiteouts and files at and below these paths that match the store. The paths are locked.
    pub(crate) fn prune(
        self: &Arc<Self>,
        context: &RequestContext,
        top: &LayeredStore,
        paths: &[Key],
    ) -> Result<()> {
        for path in paths {
            // After a folder's whiteout is gone, a whiteout below it may have nothing to hide.
            while self.prune_whiteouts(context, top, path)? {}
            self.prune_files(context, top, path)?;
        }
        Ok(())
    }

    /// Drops the whiteouts at and below a path that hide nothing; returns whether some were dropped and others remain.
    fn prune_whiteouts(
        &self,
        context: &RequestContext,
        top: &LayeredStore,
        path: &Key,
    ) -> Result<bool> {
        let layer = &top.layer;
        let is_committed = |key: &Key| layer.base(key).is_some_and(|base| base.is_committed);
        let mut idle: Vec<(Whiteout, Vec<Key>)> = Vec::new();
        for whiteout in layer.whiteouts(path).into_iter().rev() {
            if !hides_own_key(layer, &whiteout.0) {
                continue;
            }
            let stored = list_recursive(context, &*self.store, &whiteout.0)?;
            let objects: Vec<Key> = stored.objects.into_iter().map(|(key, _)| key).collect();
            if objects.iter().all(is_committed) {
                self.erase_folders(context, &stored.folders)?;
                idle.push((whiteout, objects));
            }
        }
        let _names = self.names.lock();
        let present = layer.whiteouts(path);
        let mut shown = Vec::new();
        for (whiteout, objects) in idle {
            // Files may have been written during the requests to the store.
            let mut is_idle = present.contains(&whiteout) && hides_own_key(layer, &whiteout.0);
            for key in &objects {
                is_idle &= is_committed(key) && layer.dir.stat(key)?.is_some();
            }
            if is_idle {
                shown.push(whiteout.0);
            }
        }
        let records = shown.iter().cloned().map(JournalRecord::WhiteoutRemoved);
        layer.record(records.collect())?;
        shown.iter().for_each(|at| self.note_tree_change(at));
        Ok(!shown.is_empty() && shown.len() < present.len())
    }

    /// Drops the committed files at and below a path, unless a whiteout hides the store's object.
    fn prune_files(
        self: &Arc<Self>,
        context: &RequestContext,
        top: &LayeredStore,
        path: &Key,
    ) -> Result<()> {
        let layer = &top.layer;
        let bases = layer.lock().records.bases_below(path);
        for (key, base) in bases {
            if base.is_committed && layer.lower_key(&key).as_ref() == Some(&key) {
                self.drop_committed(top, &key, base.version)?;
                self.remove_empty_parents(context, &key)?;
            }
        }
        Ok(())
    }

    fn drop_committed(
        &self,
        top: &LayeredStore,
        key: &Key,
        version: Option<StoreVersion>,
    ) -> Result<()> {
        let layer = &top.layer;
        let _names = self.names.lock();
        // It may have been written again since.
        if !layer.base(key).is_some_and(|base| base.is_committed) {
            return Ok(());
        }
        if let Some(version) = version {
            if let Some(file) = self.registered(key) {
                file.set_committed(version);
            }
            self.open.lock().ids.set_committed(key, version);
        }
        let mut records = vec![JournalRecord::Reverted(key.clone())];
        if layer.kept_attributes(key)?.is_none() {
            // The attributes that the file has taken over are dropped with it.
            records.extend(layer.dropped_attributes(key));
        }
        layer.record(records)?;
        if layer.dir.stat(key)?.is_some() {
            layer.dir.remove(key, AtFlags::empty())?;
        }
        layer.forget_contents(&self.upper, key)?;
        self.note_removal(key);
        Ok(())
    }
}

/// Whether a whiteout hides the store's object of its own key. It hides another key while its folder is renamed.
fn hides_own_key(layer: &ChangeLayer, at: &Key) -> bool {
    let folder = at.parent();
    folder.is_none_or(|folder| layer.lower_key(&folder).is_none_or(|lower| lower == folder))
}
