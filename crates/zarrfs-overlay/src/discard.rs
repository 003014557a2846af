//! Discards changes, so that the store's own state is visible again.
//!
//! A rename changes two names, and a discard must not undo only one of these changes. So a discard of the new name
//! undoes the whole rename; a discard of only the old name fails, and the error tells the new name.

use std::sync::Arc;

use rustix::fs::AtFlags;

use crate::commit::copies;
use crate::journal_record::JournalRecord;
use crate::layer::ChangeLayer;
use crate::overlay_core::OverlayCore;
use crate::records::Whiteout;
use crate::upper::Upper;
use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key};

/// The counts of a finished discard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Number of keys whose changes were discarded.
    pub dropped: u64,
    /// Number of discarded changes that an interrupted commit had already put into the store, where they stay.
    pub stored: u64,
}

/// Discards the changes at and below a path.
pub(crate) fn run(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    path: &Key,
) -> Result<Discarded> {
    let _one = core.committing.lock();
    if let Err(error) = copies::finish(core, context, path) {
        log::warn!("copies of committed metadata may be outdated: {error}");
    }
    let discarded = core.change_names(context, std::slice::from_ref(path), |change| {
        let top = &change.top;
        // The top layer of changes, then the frozen layer of an interrupted commit, if there is one.
        let layers: Vec<Arc<ChangeLayer>> = std::iter::once(top)
            .chain(&top.frozen)
            .map(|layered| layered.layer.clone())
            .collect();
        let mut undone = Vec::new();
        for layer in &layers {
            undone.push(renames_to_undo(layer, path)?);
        }
        check_changed(core, &layers, path)?;
        for file in core.registered_below(path) {
            file.key().iter().for_each(|key| core.revoke(key));
        }
        core.open.lock().ids.remove_below(path);
        mark_stale_on_top(&layers, path, &undone)?;
        let mut discarded = Discarded::default();
        for (layer, undone) in layers.iter().zip(undone) {
            discarded.stored += committed(layer, path);
            discarded.dropped += discard_in_layer(&core.upper, layer, path, undone)?;
        }
        core.mark_tree_changed(&Key::root());
        let dropped = discarded.dropped.saturating_sub(discarded.stored);
        discarded.dropped = if discarded.stored == 0 {
            dropped.max(1)
        } else {
            dropped
        };
        Ok(discarded)
    })?;
    // Sync now, because the discarded changes must not come back after a power loss.
    core.sync_all()?;
    Ok(discarded)
}

/// Drops a change that the store has refused. The key must have no other changes, and its path must be locked.
pub(crate) fn discard_refused(core: &OverlayCore, key: &Key) -> Result<()> {
    let _names = core.names.lock();
    core.revoke(key);
    core.open.lock().ids.remove(key);
    discard_in_layer(&core.upper, &core.top().layer, key, Vec::new())?;
    core.mark_changed(key);
    Ok(())
}

/// Returns the number of keys at and below a path that an interrupted commit has put into the store.
fn committed(layer: &ChangeLayer, path: &Key) -> u64 {
    let bases = layer.lock().records.bases_below(path);
    bases.iter().filter(|(_, base)| base.is_committed).count() as u64
}

/// Fails with `NotFound` if there are no changes at and below a path.
fn check_changed(core: &OverlayCore, layers: &[Arc<ChangeLayer>], path: &Key) -> Result<()> {
    let open = core.registered_below(path);
    let mut is_changed = open.iter().any(|file| file.is_pending());
    for layer in layers {
        let state = layer.lock();
        is_changed |= !state.records.bases_below(path).is_empty();
        is_changed |= !state.records.whiteouts(path).is_empty();
        is_changed |= !state.records.attribute_overrides_below(path).is_empty();
        drop(state);
        is_changed |= !path.is_root() && layer.dir.stat(path)?.is_some();
        is_changed |= !layer.dir.names(path).unwrap_or_default().is_empty();
    }
    if is_changed {
        return Ok(());
    }
    let why = "no changes at this path; 'zarrfs diff' lists the paths";
    Err(Error::new(Kind::NotFound, path, why))
}

/// Returns the old names of files and folders that were renamed to a path from elsewhere, because a discard gives them
/// these names back. Fails with `Invalid` if an old name is in use again, or if something was renamed away from the
/// path.
fn renames_to_undo(layer: &ChangeLayer, path: &Key) -> Result<Vec<Key>> {
    let is_inside = |key: &Key| key.below(path).is_some();
    let mut old_names = Vec::new();
    for Whiteout { at, source } in layer.whiteouts(&Key::root()) {
        let Some(source) = source else { continue };
        match (is_inside(&at), is_inside(&source)) {
            (true, false) => {
                check_unused(layer, &source, &at)?;
                old_names.push(source);
            }
            (false, true) if !at.is_root() => {
                let why = format!("was renamed to {at}; discard {at} to undo the rename");
                return Err(Error::invalid(source, why));
            }
            _ => {}
        }
    }
    Ok(old_names)
}

/// Fails with `Invalid` if the old name of a rename is in use again, so that the rename cannot be undone.
fn check_unused(layer: &ChangeLayer, old_name: &Key, new_name: &Key) -> Result<()> {
    let shows_folder = |folder: &Key| layer.lower_key(folder).as_ref() == Some(folder);
    let is_hidden = layer.lower_key(old_name).is_none();
    let is_free = is_hidden && layer.dir.stat(old_name)?.is_none();
    if is_free && old_name.parent().as_ref().is_none_or(shows_folder) {
        return Ok(());
    }
    let why =
        format!("was renamed from {old_name}, which was changed since; discard {old_name} too");
    Err(Error::invalid(new_name, why))
}

/// Marks copies in the top layer's consolidated metadata as stale, if they may copy documents whose changes in the
/// frozen layer are discarded. `undone` has the old names of the undone renames, by layer.
fn mark_stale_on_top(layers: &[Arc<ChangeLayer>], path: &Key, undone: &[Vec<Key>]) -> Result<()> {
    let [top, _frozen] = layers else {
        return Ok(());
    };
    let old_names = undone.iter().skip(1).flatten();
    let mut records = Vec::new();
    let state = top.lock();
    for path in std::iter::once(path).chain(old_names) {
        for holder in ConsolidatedDocument::above_tree(path) {
            if state.records.program_copies.stale(holder.key()).is_some() {
                records.push(JournalRecord::CopiesStale {
                    holder: holder.key().clone(),
                    path: path.clone(),
                });
            }
        }
    }
    drop(state);
    top.record(records)
}

/// Discards a layer's changes at and below a path and undoes the renames from `old_names`; returns the number of
/// changed keys. The whiteouts are dropped before the files: after a crash in between, a whiteout without its file
/// would count as a removal, and a commit would remove the store's object.
fn discard_in_layer(
    upper: &Upper,
    layer: &ChangeLayer,
    path: &Key,
    old_names: Vec<Key>,
) -> Result<u64> {
    let with_attributes = layer.keys_with_attributes(path)?.len();
    let _layout = layer.write_layout();
    let bases = layer.lock().records.bases_below(path);
    let unhidden = show_lower(layer, path, old_names)?;
    let marked = layer.lock().records.marks.keys_below(path);
    layer.record(marked.into_iter().map(JournalRecord::Removed).collect())?;
    let removed = remove_all(layer, path)?;
    let incomplete = layer.lock().records.incomplete_below(path).into_iter();
    let mut records: Vec<_> = incomplete.map(JournalRecord::Completed).collect();
    let changed = (bases.len().max(unhidden) + with_attributes) as u64;
    records.extend(layer.dropped_attributes(path));
    let bases = bases.into_iter().map(|(key, _)| key);
    records.extend(bases.map(JournalRecord::Reverted));
    let encoded = layer.lock().records.encoded_below(path).into_iter();
    records.extend(encoded.map(|(at, _)| JournalRecord::EncodedBy { at, by: None }));
    layer.record(records)?;
    layer.forget_contents(upper, path)?;
    layer.lock().generations.forget_below(path);
    Ok(changed.max(removed))
}

/// Removes the whiteouts at and below a path and at `old_names`, so that the store's objects are visible again. Returns
/// the number of whiteouts at and below the path.
fn show_lower(layer: &ChangeLayer, path: &Key, old_names: Vec<Key>) -> Result<usize> {
    let state = layer.lock();
    let whiteouts: Vec<Whiteout> = state.records.whiteouts(path);
    let mut records = Vec::new();
    for old_name in old_names {
        let moved = state.records.bases_below(&old_name).into_iter();
        records.extend(moved.map(|(key, _)| JournalRecord::Reverted(key)));
        records.push(JournalRecord::WhiteoutRemoved(old_name));
    }
    drop(state);
    let unhidden = whiteouts.len();
    let whiteouts = whiteouts.into_iter().map(|whiteout| whiteout.at);
    records.extend(whiteouts.map(JournalRecord::WhiteoutRemoved));
    layer.record(records)?;
    // Sync the records before the files are removed: a power loss must not leave a whiteout without its file.
    layer.sync_journal()?;
    Ok(unhidden)
}

/// Removes a layer's files at and below a path; returns the number of files and empty folders.
fn remove_all(layer: &ChangeLayer, path: &Key) -> Result<u64> {
    match layer.dir.kind(path)? {
        None => return Ok(0),
        Some(EntryKind::Directory) => {}
        Some(_) => {
            layer.dir.remove(path, AtFlags::empty())?;
            return Ok(1);
        }
    }
    let mut removed = 0;
    for (name, _) in layer.dir.names(path)? {
        removed += remove_all(layer, &path.child(&name)?)?;
    }
    if path.is_root() {
        return Ok(removed);
    }
    layer.dir.remove(path, AtFlags::REMOVEDIR)?;
    Ok(removed.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, open};
    use zarrfs_store::Store;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{Credentials, Tree};

    /// The process is killed during the discard of a file that replaced a removed file of the store. The store's object
    /// must not count as removed afterwards.
    #[test]
    fn a_discard_killed_midway_keeps_the_changed_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        store.set(key("a"), b"old".to_vec());
        let overlay = open(&folder.path().join("upper"), &store);
        Tree::unlink(&overlay, &UNLIMITED, &key("a")).unwrap();
        let credentials = Credentials {
            uid: 0,
            gid: 0,
            mode: 0o644,
        };
        let file = Tree::create(&overlay, &UNLIMITED, &key("a"), &credentials).unwrap();
        file.write_at(&UNLIMITED, 0, b"new").unwrap();
        file.flush(&UNLIMITED).unwrap();
        drop(file);
        let layer = overlay.0.top().layer.clone();
        show_lower(&layer, &key("a"), Vec::new()).unwrap();
        let (synced, length) = {
            let state = layer.lock();
            (state.journal.synced(), state.journal.len())
        };
        assert_eq!(
            synced, length,
            "after a loss of power the store shows as well"
        );
        drop((layer, overlay));
        let overlay = open(&folder.path().join("upper"), &store);
        let found = Store::get(&overlay, &UNLIMITED, &key("a"), 100).unwrap();
        assert_eq!(found.map(|object| object.bytes), Some(b"new".to_vec()));
        remove_all(&overlay.0.top().layer, &key("a")).unwrap();
        drop(overlay);
        let overlay = open(&folder.path().join("upper"), &store);
        let found = Store::get(&overlay, &UNLIMITED, &key("a"), 100).unwrap();
        assert_eq!(found.map(|object| object.bytes), Some(b"old".to_vec()));
        assert!(overlay.changes(&UNLIMITED).unwrap().keys.is_empty());
    }
}
