//! Write-through: commits each change at once, and returns the store's error.
//!
//! A change is first made in the upper folder, as without write-through. If the store refuses it or is unreachable, the
//! change stays in the upper folder, `status` shows it, and the next change of the key retries it. The paths of a
//! change are locked until it is in the store. So changes of one path are stored in order, and changes of other paths
//! in parallel.

use std::sync::Arc;

use rustix::fs::AtFlags;

use crate::commit::{Commit, erase_folders};
use crate::journal_record::JournalRecord;
use crate::layer::ChangeLayer;
use crate::listing::list_recursive;
use crate::overlay_core::OverlayCore;
use crate::records::Whiteout;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, StoreVersion};

/// Commits the changes at `paths`, which must be locked. Fails with `Changed` on a conflict.
pub(crate) fn run(core: &Arc<OverlayCore>, context: &RequestContext, paths: &[Key]) -> Result<()> {
    let top = core.top();
    let commit = Commit {
        core,
        context,
        layered: &top,
        paths,
        force: false,
        is_live: true,
    };
    let outcome = commit.run(&|_, _| {})?.or_failed()?;
    for (key, what) in &outcome.lost {
        log::warn!("{key}: the store cannot store the {what}");
    }
    match outcome.conflicts.into_iter().next() {
        None => Ok(()),
        // Another program has replaced the array while its chunk was put. The put is not undone, because the chunk
        // before it belongs to the old array too.
        Some((document, why)) if outcome.left == 0 => Err(Error::new(Kind::Changed, document, why)),
        Some((key, why)) => {
            let why = format!("{why}; the change stays in {}", core.upper.path().display());
            Err(Error::new(Kind::Changed, key, why))
        }
    }
}

/// Drops files and whiteouts of the top layer after a write-through, because the store has them. The paths must be
/// locked.
pub(crate) fn prune(commit: &Commit<'_>) -> Result<()> {
    let prune = Prune { commit };
    for path in commit.paths {
        // Repeat until nothing is dropped: a whiteout may become useless when the whiteout of a folder above it is
        // dropped.
        while prune.prune_whiteouts(path)? {}
        prune.prune_files(path)?;
    }
    Ok(())
}

/// The last step of a write-through, which drops files and whiteouts that the store no longer differs from.
struct Prune<'a> {
    commit: &'a Commit<'a>,
}

impl Prune<'_> {
    /// Drops the whiteouts at and below a path that hide nothing any more. Returns whether some were dropped while
    /// others remain.
    fn prune_whiteouts(&self, path: &Key) -> Result<bool> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let is_committed = |key: &Key| layer.base(key).is_some_and(|base| base.is_committed);
        let mut idle: Vec<(Whiteout, Vec<Key>)> = Vec::new();
        for whiteout in layer.whiteouts(path).into_iter().rev() {
            if !hides_own_key(layer, &whiteout.at) {
                continue;
            }
            let stored = list_recursive(self.commit.context, &*core.store, &whiteout.at)?;
            let objects: Vec<Key> = stored.objects.into_iter().map(|(key, _)| key).collect();
            if objects.iter().all(is_committed) {
                erase_folders(self.commit.context, &*core.store, &stored.folders)?;
                idle.push((whiteout, objects));
            }
        }
        let _names = core.names.lock();
        let present = layer.whiteouts(path);
        let mut unhidden = Vec::new();
        for (whiteout, objects) in idle {
            // Check the whiteout again, because programs may have written files during the requests to the store.
            let mut is_idle = present.contains(&whiteout) && hides_own_key(layer, &whiteout.at);
            for key in &objects {
                is_idle &= is_committed(key) && layer.dir.stat(key)?.is_some();
            }
            if is_idle {
                unhidden.push(whiteout.at);
            }
        }
        let records = unhidden.iter().cloned().map(JournalRecord::WhiteoutRemoved);
        layer.record(records.collect())?;
        unhidden.iter().for_each(|at| core.mark_tree_changed(at));
        Ok(!unhidden.is_empty() && unhidden.len() < present.len())
    }

    /// Drops the upper folder's committed files at and below a path, unless a whiteout still hides their objects in the
    /// store.
    fn prune_files(&self, path: &Key) -> Result<()> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let bases = layer.lock().records.bases_below(path);
        for (key, base) in bases {
            if base.is_committed && layer.lower_key(&key).as_ref() == Some(&key) {
                self.drop_committed(&key, base.version)?;
                core.remove_empty_parents(self.commit.context, &key)?;
            }
        }
        Ok(())
    }

    fn drop_committed(&self, key: &Key, version: Option<StoreVersion>) -> Result<()> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let _names = core.names.lock();
        // Keep the file if it is no longer committed, because a program has written it again.
        if !layer.base(key).is_some_and(|base| base.is_committed) {
            return Ok(());
        }
        if let Some(version) = version {
            if let Some(file) = core.registered(key) {
                file.set_committed(version);
            }
            core.open.lock().ids.set_committed(key, version);
        }
        let mut records = vec![JournalRecord::Reverted(key.clone())];
        if layer.attribute_override(key)?.is_none() {
            // The file has taken over the attributes that were set on its key, so their record is dropped too.
            records.extend(layer.dropped_attributes(key));
        }
        layer.record(records)?;
        if layer.dir.stat(key)?.is_some() {
            layer.dir.remove(key, AtFlags::empty())?;
        }
        layer.forget_contents(&core.upper, key)?;
        core.mark_removed(key);
        Ok(())
    }
}

/// Whether a whiteout hides the store's object of the same name. In a renamed folder, a whiteout hides an object with
/// another name.
fn hides_own_key(layer: &ChangeLayer, at: &Key) -> bool {
    let folder = at.parent();
    folder.is_none_or(|folder| layer.lower_key(&folder).is_none_or(|lower| lower == folder))
}
