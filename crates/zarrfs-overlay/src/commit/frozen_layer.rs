//! Freezes the layer of changes for a commit, and drops it after the commit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{RenameFlags, Stat};

use crate::changes::KeysWithReason;
use crate::derived::has_program_copies;
use crate::journal_record::{ContentDigest, JournalRecord};
use crate::layer::{ChangeLayer, Located};
use crate::layer_dir::{LayerDir, os_error};
use crate::layered_store::LayeredStore;
use crate::open_file::OpenFile;
use crate::open_file::state::{ContentSource, OpenedAs};
use crate::overlay_core::OverlayCore;
use crate::records::{Whiteout, attempts, renamed};
use zarr_format::dialect::consolidated::may_be_consolidated;
use zarr_format::error::Result;
use zarr_format::model::document::is_document;
use zarrfs_store::sync::locks;
use zarrfs_store::sync::locks::RwLockWriteGuard;
use zarrfs_store::{Key, LogPosition, StoreVersion};

/// Files that a commit does not freeze, each with the reason.
type FilesLeftOut = BTreeMap<Key, &'static str>;

/// Freezes the top layer of changes, so that a commit can write it to the store. Returns the frozen layer, or `None` if
/// it has nothing to commit. Also returns the files that stay in the top layer. There must be no frozen layer yet.
pub(crate) fn freeze(
    core: &Arc<OverlayCore>,
) -> Result<(Option<Arc<LayeredStore>>, KeysWithReason)> {
    wait_for_closes(core);
    let is_stored = core.config.write_through;
    let _paths = is_stored.then(|| core.path_locks.lock(&[Key::root()]));
    let _names = core.names.lock();
    let top = core.top();
    let left_out = left_out(core, &top)?;
    let freeze = Freeze {
        core,
        top,
        left_out,
    };
    let has_changes = freeze.has_changes()?;
    if has_changes {
        freeze.exchange_layers()?;
    }
    let left_out = freeze.left_out.into_iter().collect();
    Ok((has_changes.then_some(freeze.top), left_out))
}

/// Waits at most 0.5 s for the RELEASE of files that were closed. close(2) waits for FLUSH but not for RELEASE, which
/// says that no other process has the file open.
fn wait_for_closes(core: &OverlayCore) {
    let is_closing = |file: &Arc<OpenFile>| file.is_open_for_writing() && !file.is_dirty();
    let open = core.registered_below(&Key::root());
    let closing: Vec<Arc<OpenFile>> = open.into_iter().filter(is_closing).collect();
    for _ in 0..100 {
        if !closing.iter().any(is_closing) {
            return;
        }
        locks::pause(Duration::from_millis(5));
    }
}

/// Returns the files that a commit must leave out, because they are being written or a write of them failed.
fn left_out(core: &OverlayCore, top: &LayeredStore) -> Result<FilesLeftOut> {
    let mut left_out = FilesLeftOut::new();
    for key in top.layer.lock().records.incomplete_below(&Key::root()) {
        left_out.insert(key, "an incomplete file, since a write failed");
    }
    for file in core.registered_below(&Key::root()) {
        let is_written = file.is_open_for_writing() || file.is_dirty();
        if let Some(key) = file.key().filter(|_| is_written) {
            left_out.insert(key, "open for writing");
        }
    }
    add_linked(&top.layer, &mut left_out)?;
    Ok(left_out)
}

/// The start of a commit: freezes the layer of changes and puts an empty layer over it.
///
/// Programs see this as one step, because the lock of the names is held and no file is published in the meantime. Files
/// that are open for writing, or that could not be written completely, move to the new layer and are not committed.
/// After a crash, `Upper::finish_freezing` completes or undoes the step.
struct Freeze<'a> {
    core: &'a Arc<OverlayCore>,
    top: Arc<LayeredStore>,
    left_out: FilesLeftOut,
}

impl Freeze<'_> {
    /// Whether the layer of changes has something to commit.
    fn has_changes(&self) -> Result<bool> {
        let layer = &self.top.layer;
        if !layer.whiteouts(&Key::root()).is_empty() {
            return Ok(true);
        }
        layer.dir.for_each_file(&Key::root(), &mut |key| {
            let base = layer.base(key);
            // A committed metadata document still needs a commit, because an interrupted write-through may not have
            // updated its copies in consolidated metadata.
            let is_put = is_document(key.name());
            let is_content = is_put || base.is_none_or(|base| !base.is_committed);
            Ok(is_content && !self.left_out.contains_key(key))
        })
    }

    /// Puts an empty layer over the top layer, and moves the files that are left out of the commit to it. The lock of
    /// the names must be held.
    fn exchange_layers(&self) -> Result<()> {
        let (top, left_out) = (&self.top, &self.left_out);
        self.core.upper.prepare_next(&self.records_of_next())?;
        // Everything that may fail, except renames, comes before the swap of the folders.
        let opened = self.open_next();
        let layer = Arc::new(opened.inspect_err(|_| self.core.upper.drop_next())?);
        // Create the folders now: they need disk space, and the later renames do not.
        for key in left_out.keys() {
            self.make_way(&layer.dir, key)
                .inspect_err(|_| self.core.upper.drop_next())?;
        }
        for file in self.core.registered_below(&Key::root()) {
            self.freeze_file(&file)
                .inspect_err(|_| self.core.upper.drop_next())?;
        }
        if let Err(error) = self.core.upper.swap_in_next() {
            self.core.upper.undo_swap();
            return Err(error);
        }
        layer
            .lock()
            .journal
            .set_path(&self.core.upper.top().journal);
        if let Some(frozen) = self.core.upper.frozen() {
            top.layer.lock().journal.set_path(&frozen.journal);
        }
        let (frozen, info) = (Some(top.clone()), self.core.info.clone());
        let next = LayeredStore::over(layer.clone(), &self.core.store, frozen, info);
        // The lock stops lookups of moved files until the new layer is in place. A file that cannot be moved stays in
        // the frozen layer.
        let layout = top.layer.write_layout();
        let move_out = |key| top.layer.dir.move_to(&layer.dir, key);
        let moved: Vec<Result<()>> = left_out.keys().map(move_out).collect();
        layer.add_retained(top.layer.take_retained(left_out.keys()));
        *self.core.top.write() = Arc::new(next);
        drop(layout);
        top.layer.lock().records.forget_attributes();
        moved.into_iter().collect::<Result<()>>()?;
        let forgotten = left_out.keys().cloned().map(JournalRecord::Forgotten);
        if let Err(error) = top.layer.record(forgotten.collect()) {
            // The error is harmless, because recovery finds the moved files in the top layer.
            log::debug!("the journal of the frozen layer names files that are gone: {error}");
        }
        self.core.upper.sync()
    }

    /// Opens the new layer, which will become the top layer.
    fn open_next(&self) -> Result<ChangeLayer> {
        let generations = self
            .top
            .layer
            .lock()
            .generations
            .following(self.left_out.keys());
        let layer = ChangeLayer::open(&self.core.upper.next(), generations)?;
        layer.sync_journal()?;
        Ok(layer)
    }

    /// Creates the parents of a key in the new layer, if the old layer has a file of the key, which will be moved.
    fn make_way(&self, next: &LayerDir, key: &Key) -> Result<()> {
        let dir = &self.top.layer.dir;
        match dir.stat(key)? {
            None => Ok(()),
            Some(_) => dir.copy_folders_above(next, key),
        }
    }

    /// Returns the first records of the new layer's journal: those of the files that move to it, and attributes that
    /// were set without a content.
    fn records_of_next(&self) -> Vec<JournalRecord> {
        let state = self.top.layer.lock();
        let mut list = Vec::new();
        for key in self.left_out.keys() {
            // The old layer stays below as the frozen layer. If it hides or renames the store's object of the key, the
            // next change is relative to the frozen layer, not to the store.
            let is_frozen = state.records.lower_key(key).as_ref() != Some(key);
            let base = state.records.base(key);
            list.extend(base.map(|base| match base.version.filter(|_| !is_frozen) {
                Some(version) if base.is_committed => JournalRecord::Committed {
                    key: key.clone(),
                    version,
                },
                version => JournalRecord::Base {
                    key: key.clone(),
                    version,
                    is_frozen,
                    content: base.content.filter(|_| !is_frozen),
                },
            }));
            if let Some((at, by)) = state.records.encoded_by(key) {
                let by = Some(by.clone());
                list.push(JournalRecord::EncodedBy { at, by });
            }
            list.extend(attempts(key, state.records.attempted(key)));
            if state.records.is_incomplete(key) {
                list.push(JournalRecord::Created(key.clone()));
            }
            list.extend(state.records.marks.records_of(key));
            list.extend(state.records.program_copies.records_of(key));
        }
        let overrides = state.records.attribute_overrides_below(&Key::root());
        for (key, mut attributes) in overrides {
            if !self.left_out.contains_key(&key) {
                if state.records.is_taken_over(&key, &attributes) {
                    continue;
                }
                // The copy of the store's object stays in the frozen layer, so the new layer has only the attributes.
                Arc::make_mut(&mut attributes).is_of_copy = false;
            }
            list.push(JournalRecord::Attributes { key, attributes });
        }
        list
    }

    /// Marks an open file as frozen, so that the next write copies its content to the new layer.
    fn freeze_file(&self, file: &OpenFile) -> Result<()> {
        let layer = &self.top.layer;
        let mut state = file.lock();
        let Some(key) = state
            .key
            .clone()
            .filter(|key| !self.left_out.contains_key(key))
        else {
            return Ok(());
        };
        if let (ContentSource::Upper(content), None) = (&state.source, &state.pending) {
            let number = layer.generation(&key);
            state.source = ContentSource::Frozen(content.clone(), number);
        }
        if layer.is_changed(&key)? {
            state.opened_as = OpenedAs::Frozen;
        }
        Ok(())
    }
}

/// Adds the other hard links of files that are left out of a commit, because a write changes the content under all of
/// these names.
fn add_linked(layer: &ChangeLayer, left_out: &mut FilesLeftOut) -> Result<()> {
    let mut inodes = Vec::new();
    for key in left_out.keys() {
        let stat = layer.dir.stat(key)?;
        inodes.extend(
            stat.filter(|stat| stat.st_nlink > 1)
                .map(|stat| stat.st_ino),
        );
    }
    if inodes.is_empty() {
        return Ok(());
    }
    layer.dir.for_each_file(&Key::root(), &mut |key| {
        let stat = layer.dir.stat(key)?;
        if stat.is_some_and(|stat| inodes.contains(&stat.st_ino)) {
            left_out.entry(key.clone()).or_insert("open for writing");
        }
        Ok(false)
    })?;
    Ok(())
}

/// The end of a commit: drops the frozen layer (the changes that the commit has written to the store).
///
/// Programs see this as one step under the lock of the names: before it they see the frozen layer, after it the store.
/// First, the keys that no store can hold move to the top layer. After a crash the frozen layer may still exist, and
/// the next commit finds that the store already has its changes.
pub(crate) struct Thaw<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) frozen: &'a Arc<LayeredStore>,
}

impl Thaw<'_> {
    /// Drops the frozen layer after the store has all its changes. The keys in `uncommittable` move to the top layer.
    pub(crate) fn run(&self, uncommittable: &KeysWithReason) -> Result<()> {
        let is_stored = self.core.config.write_through;
        let _paths = is_stored.then(|| self.core.path_locks.lock(&[Key::root()]));
        let committed = self.committed_files()?;
        let _names = self.core.names.lock();
        let top = self.core.top();
        let records = self.bases_in_store(&top.layer);
        if !records.is_empty() {
            top.layer.record(records)?;
            // Some changes were recorded relative to the frozen layer. The new records, which relate them to the store,
            // must be on disk before the frozen layer is dropped.
            top.layer.sync_journal()?;
        }
        // This lock keeps readers out of the frozen layer until it is removed, because its files are moved away.
        let layout = self.frozen.layer.write_layout();
        for (key, _) in uncommittable {
            self.move_to_top(&top, key)?;
        }
        let folder = self.core.upper.retire_frozen()?;
        self.frozen
            .layer
            .drop_retained(&self.core.upper, |_, _| true);
        // Set the file IDs before the store becomes visible, because a lookup may then find a committed file at once.
        self.set_ids(&top.layer, committed);
        self.show_store(&top, layout, folder);
        Ok(())
    }

    /// Removes the frozen layer between the top layer and the store, so that programs see the committed objects.
    fn show_store(
        &self,
        top: &Arc<LayeredStore>,
        layout: RwLockWriteGuard<'_, ()>,
        folder: PathBuf,
    ) {
        let info = self.core.info.clone();
        let next = LayeredStore::over(top.layer.clone(), &self.core.store, None, info);
        let bases = self.frozen.layer.lock().records.bases_below(&Key::root());
        *self.core.top.write() = Arc::new(next);
        drop(layout);
        self.frozen.layer.remove_folder_at_end(folder);
        for file in self.core.registered_below(&Key::root()) {
            self.show_version(&file);
        }
        if bases.len() > 4096 {
            // Invalidate all caches at once, because this is faster than invalidating so many keys.
            return self.core.mark_tree_changed(&Key::root());
        }
        bases
            .iter()
            .for_each(|(key, _)| self.core.mark_changed(key));
    }

    /// Lists the files that a commit has put into the store. The names are not locked, so programs may replace files in
    /// the meantime.
    fn committed_files(&self) -> Result<CommittedFiles> {
        let since = self.core.info.changes.position();
        let top = self.core.top();
        let bases = self.frozen.layer.lock().records.bases_below(&Key::root());
        let mut files = Vec::new();
        for (key, base) in bases.into_iter().filter(|(_, base)| base.is_committed) {
            let Some(version) = base.version else {
                continue;
            };
            let inode = unless_on_top(&top.layer, &key, || self.frozen.layer.dir.stat(&key))?;
            files.push(CommittedFile {
                key,
                version,
                inode,
            });
        }
        Ok(CommittedFiles { since, files })
    }

    /// Gives the committed objects of the store the file IDs of the frozen layer's files, so that inodes do not change.
    fn set_ids(&self, top: &ChangeLayer, committed: CommittedFiles) {
        let CommittedFiles { since, files } = committed;
        let changes = &self.core.info.changes;
        let mut open = self.core.open.lock();
        for CommittedFile {
            key,
            version,
            inode,
        } in files
        {
            let is_on_top = || top.dir.stat(&key).is_ok_and(|found| found.is_some());
            if let Some(inode) = inode
                && !open.ids.has(&key)
                && !(changes.changed_since(since, &key) && is_on_top())
            {
                open.ids.set(&key, inode, inode);
            }
            open.ids.set_committed(&key, version);
        }
    }

    /// Marks a file that was opened from the frozen layer as a file of the store, with the version that was committed.
    fn show_version(&self, file: &OpenFile) {
        let mut state = file.lock();
        let Some(key) = state
            .key
            .clone()
            .filter(|_| state.opened_as == OpenedAs::Frozen)
        else {
            return;
        };
        let version = self.committed_version(&key);
        state.opened_content = self.committed_content(&key);
        let is_replaced = match &state.source {
            // The file was opened on a renamed object under its old name, and the commit has removed that name from the
            // store.
            ContentSource::Lower(_) => true,
            // The file has copies of metadata, and the commit may have put the document with newer copies.
            ContentSource::Frozen(file, _) => has_program_copies(&key, file).unwrap_or(true),
            ContentSource::Upper(_) => false,
        };
        match version {
            _ if is_replaced => {
                (state.key, state.is_revoked) = (None, true);
                drop(state);
                self.core.open.lock().files.unregister(&key, file);
            }
            Some(version) => state.opened_as = OpenedAs::Stored(key, version),
            None => state.opened_as = OpenedAs::Upper,
        }
    }

    /// Moves a key that no store can hold from the frozen layer to the top layer, if the key is still visible.
    fn move_to_top(&self, top: &LayeredStore, key: &Key) -> Result<()> {
        let Some(visible) = visible_name(&top.layer, key)? else {
            return Ok(());
        };
        if self.frozen.layer.dir.stat(key)?.is_none() {
            return Ok(());
        }
        // If the key was renamed in the top layer, the record of its old name does not apply.
        let base = self.frozen.layer.base(key).filter(|_| visible == *key);
        self.frozen
            .layer
            .dir
            .copy_folders_above(&top.layer.dir, &visible)?;
        let base = base.map(|base| JournalRecord::base(key, base.version, base.content));
        let written = self
            .frozen
            .layer
            .last_mark(key)
            .map(|mark| JournalRecord::Written {
                key: visible.clone(),
                mark,
            });
        top.layer
            .record(base.into_iter().chain(written).collect())?;
        let dir = &self.frozen.layer.dir;
        let moved = dir.rename_to(key, &top.layer.dir, &visible, RenameFlags::empty());
        moved.map_err(|error| os_error(key, error))
    }

    /// Returns the store's version of a key after a commit, or `None` if the commit removed it. A removal without an
    /// answer is not recorded as committed, but the frozen layer then still has a whiteout of the key.
    fn committed_version(&self, key: &Key) -> Option<StoreVersion> {
        let base = self.frozen.layer.base(key)?;
        let is_removed =
            !base.is_committed && self.frozen.layer.lower_key(key).as_ref() != Some(key);
        base.version.filter(|_| !is_removed)
    }

    /// Returns length and digest of a committed file. Returns `None` for consolidated metadata, because the commit may
    /// have put it with other copies than the local file has.
    fn committed_content(&self, key: &Key) -> Option<ContentDigest> {
        let base = self.frozen.layer.base(key).filter(|base| base.is_committed);
        let base = base.filter(|_| !may_be_consolidated(key));
        base.and_then(|_| self.frozen.layer.last_mark(key)?.content())
    }

    /// Returns records that relate changes in the top layer to the store's versions, instead of the frozen layer.
    fn bases_in_store(&self, top: &ChangeLayer) -> Vec<JournalRecord> {
        let bases = top.lock().records.bases_below(&Key::root());
        let mut records = Vec::new();
        for (key, _) in bases.into_iter().filter(|(_, base)| base.is_frozen) {
            records.push(JournalRecord::Reverted(key.clone()));
            let (version, content) = (self.committed_version(&key), self.committed_content(&key));
            records.push(JournalRecord::base(&key, version, content));
        }
        records
    }
}

struct CommittedFiles {
    /// Position in the log of changes. After it, programs may have replaced the files.
    since: LogPosition,
    files: Vec<CommittedFile>,
}

struct CommittedFile {
    key: Key,
    version: StoreVersion,
    /// Inode of the frozen layer's file; `None` if the top layer has another file at the key.
    inode: Option<u64>,
}

/// Returns the inode that `frozen` finds for a key, or `None` if the top layer has another file there.
fn unless_on_top(
    top: &ChangeLayer,
    key: &Key,
    frozen: impl FnOnce() -> Result<Option<Stat>>,
) -> Result<Option<u64>> {
    if top.dir.stat(key)?.is_some() {
        return Ok(None);
    }
    Ok(frozen()?.map(|stat| stat.st_ino))
}

/// Returns the name under which the mount shows the frozen layer's file `key`, or `None` if it is hidden.
fn visible_name(top: &ChangeLayer, key: &Key) -> Result<Option<Key>> {
    let is_visible = |at: &Key| -> Result<bool> {
        Ok(matches!(top.locate(at)?, Located::Lower(lower) if lower == *key))
    };
    if is_visible(key)? {
        return Ok(Some(key.clone()));
    }
    for Whiteout { at, source } in top.whiteouts(&Key::root()) {
        let Some(name) = source.and_then(|source| renamed(key, &source, &at)) else {
            continue;
        };
        if is_visible(&name)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{key, open};
    use std::thread;
    use std::time::Duration;

    use crate::Overlay;
    use crate::commit::{CommitConfig, commit_frozen};
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{OpenMode, Tree};
    use zarrfs_store::{Condition, PutBody, Store};

    fn write(overlay: &Overlay, path: &Key) {
        let file = Tree::open(overlay, &UNLIMITED, path, OpenMode::Write).unwrap();
        file.write_at(&UNLIMITED, 0, b"new").unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    /// Invariant (overlay): Readers always find the changes that a commit leaves in the upper folder.
    ///
    /// A reader finds the file in the frozen layer. Before it opens the file, the file moves to the layer above.
    #[test]
    fn a_change_that_a_commit_keeps_is_always_found() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        for name in ["kept", "changed"] {
            store.set(key(name), b"old".to_vec());
        }
        let overlay = open(&folder.path().join("upper"), &store);
        write(&overlay, &key("kept"));
        write(&overlay, &key("changed"));
        let (frozen, _) = freeze(&overlay.0).unwrap();
        let (frozen, top) = (frozen.unwrap(), overlay.0.top());
        // This lock stops the reader after it has found the file and before it opens the file.
        let numbers = frozen.layer.lock();
        thread::scope(|scope| {
            let get = scope.spawn(|| Store::get(&overlay, &UNLIMITED, &key("kept"), 100));
            let etag = scope.spawn(|| frozen.etag(&UNLIMITED, &key("kept")));
            thread::sleep(Duration::from_millis(200));
            let dir = &frozen.layer.dir;
            dir.rename_to(
                &key("kept"),
                &top.layer.dir,
                &key("kept"),
                RenameFlags::empty(),
            )
            .unwrap();
            drop(numbers);
            let found = get.join().unwrap().unwrap();
            assert_eq!(found.map(|object| object.bytes), Some(b"new".to_vec()));
            assert!(etag.join().unwrap().unwrap().is_some());
        });
    }

    /// A file is written while its previous content is committed, and then the power fails. If another program changes
    /// the store, the next commit must still report a conflict.
    #[test]
    fn a_write_during_a_commit_detects_conflicts_after_a_power_loss() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("upper"), folder.path().join("copy"));
        let store = Arc::new(MemoryStore::default());
        store.set(key("a"), b"old".to_vec());
        let overlay = open(&path, &store);
        let put = |bytes: &[u8]| {
            let body = PutBody::Bytes(bytes);
            Store::put(&overlay, &UNLIMITED, &key("a"), body, &Condition::Any).unwrap();
        };
        put(b"first");
        let (frozen, _) = freeze(&overlay.0).unwrap();
        put(b"second");
        let core = &overlay.0;
        let committed = commit_frozen(core, &UNLIMITED, &frozen.unwrap(), false, &|_, _| {});
        assert!(committed.unwrap().is_complete());
        let synced = core.top().layer.lock().journal.synced();
        // Ignore the failure of `cp`: a thread is removing the folder of the frozen layer, which the test does not
        // need.
        std::process::Command::new("cp")
            .arg("-a")
            .args([&path, &copy])
            .output()
            .unwrap();
        let journal = std::fs::File::options()
            .write(true)
            .open(copy.join("journal"));
        journal.unwrap().set_len(synced).unwrap();
        let overlay = open(&copy, &store);
        store.set(key("a"), b"by others".to_vec());
        let outcome = overlay.commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        let conflicts = outcome.unwrap().conflicts.into_iter();
        let conflicts: Vec<Key> = conflicts.map(|(key, _)| key).collect();
        assert_eq!(conflicts, [key("a")]);
        store.set(key("a"), b"first".to_vec());
        let outcome = overlay.commit(&UNLIMITED, CommitConfig::default(), &|_, _| {});
        assert_eq!(outcome.unwrap().put, 1);
        let stored = store.get(&UNLIMITED, &key("a"), 100).unwrap().unwrap();
        assert_eq!(stored.bytes, b"second");
    }
}
