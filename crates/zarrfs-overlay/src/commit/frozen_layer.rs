//! Drops the frozen layer at the end of a commit.
//!
//! This is one step for programs, made under the lock of the names: before it they see the frozen layer, after it the
//! store. First the keys that no store can hold move to the top layer. A crash in between leaves the frozen layer, and
//! the next commit finds that the store has it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, RenameFlags, Stat};
use rustix::io::Errno;

use crate::attributes;
use crate::changes::KeptKeys;
use crate::derived::has_program_copies;
use crate::journal_record::{ContentDigest, JournalRecord};
use crate::layer::{ChangeLayer, Located};
use crate::layer_dir::{LayerDir, os_error};
use crate::layered_store::LayeredStore;
use crate::open_file::state::ContentSource;
use crate::open_file::{OpenFile, OpenedAs};
use crate::overlay_core::OverlayCore;
use crate::records::{joined, tries};
use zarr_format::dialect::consolidated::may_be_consolidated;
use zarr_format::error::Result;
use zarr_format::model::document::is_document;
use zarrfs_store::sync::locks;
use zarrfs_store::sync::locks::RwLockWriteGuard;
use zarrfs_store::{Key, LogPosition, StoreVersion};

/// The files that a frozen layer brought into the store.
struct CommittedFiles {
    /// Changes after this position may have given their names to other files.
    since: LogPosition,
    /// Their keys, versions in the store, and inodes; `None` if the top layer had another file at the key.
    files: Vec<(Key, StoreVersion, Option<u64>)>,
}

/// With more committed keys than this, the whole cache is invalidated instead of each key.
const MAX_NOTED_KEYS: usize = 4096;

impl OverlayCore {
    /// Drops a frozen layer that is in the store, except for the keys in `kept`.
    pub(crate) fn thaw(
        self: &Arc<Self>,
        frozen: &Arc<LayeredStore>,
        kept: &KeptKeys,
    ) -> Result<()> {
        let is_stored = self.config.write_through;
        let _paths = is_stored.then(|| self.path_locks.lock(&[Key::root()]));
        let committed = self.committed_files(&frozen.layer)?;
        let _names = self.names.lock();
        let top = self.top();
        let records = bases_in_store(&top.layer, &frozen.layer);
        if !records.is_empty() {
            top.layer.record(records)?;
            // Without the frozen layer, a base that refers to it would be meaningless.
            top.layer.sync_journal()?;
        }
        // Until the layers are exchanged, readers must not look in the frozen layer for files that have left it.
        let shape = frozen.layer.reshape();
        for (key, _) in kept {
            self.keep(&top, &frozen.layer, key)?;
        }
        let folder = self.upper.retire_frozen()?;
        frozen.layer.drop_retained(&self.upper, |_, _| true);
        // A file that is found in the store must have its file ID at once.
        self.keep_ids(&top.layer, committed);
        self.show_store(&top, frozen, shape, folder);
        Ok(())
    }

    /// Puts the top layer directly over the store.
    fn show_store(
        self: &Arc<Self>,
        top: &Arc<LayeredStore>,
        frozen: &Arc<LayeredStore>,
        shape: RwLockWriteGuard<'_, ()>,
        folder: PathBuf,
    ) {
        let info = self.info.clone();
        let next = LayeredStore::over(top.layer.clone(), &self.store, None, info);
        let bases = frozen.layer.lock().records.bases_below(&Key::root());
        *self.top.write() = Arc::new(next);
        drop(shape);
        frozen.layer.remove_folder_at_end(folder);
        for file in self.registered_below(&Key::root()) {
            self.show_version(&file, &frozen.layer);
        }
        if bases.len() > MAX_NOTED_KEYS {
            return self.note_tree_change(&Key::root());
        }
        bases.iter().for_each(|(key, _)| self.note_change(key));
    }

    /// Collects the files that a frozen layer brought into the store. The names are not locked, so programs may replace
    /// these files.
    fn committed_files(&self, frozen: &ChangeLayer) -> Result<CommittedFiles> {
        let since = self.info.changes.position();
        let top = self.top();
        let bases = frozen.lock().records.bases_below(&Key::root());
        let mut files = Vec::new();
        for (key, base) in bases.into_iter().filter(|(_, base)| base.is_committed) {
            let Some(version) = base.version else {
                continue;
            };
            let inode = unless_on_top(&top.layer, &key, || frozen.dir.stat(&key))?;
            files.push((key, version, inode));
        }
        Ok(CommittedFiles { since, files })
    }

    /// Keeps the file IDs of the files that a frozen layer brought into the store.
    fn keep_ids(&self, top: &ChangeLayer, committed: CommittedFiles) {
        let CommittedFiles { since, files } = committed;
        let changes = &self.info.changes;
        let mut open = self.open.lock();
        for (key, version, inode) in files {
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

    /// Tells an open file which version of the store has its content.
    fn show_version(&self, file: &OpenFile, frozen: &ChangeLayer) {
        let mut state = file.lock();
        let Some(key) = state
            .key
            .clone()
            .filter(|_| state.opened_as == OpenedAs::Frozen)
        else {
            return;
        };
        let version = committed_version(frozen, &key);
        state.opened_content = committed_content(frozen, &key);
        let is_replaced = match &state.source {
            // The renamed object of the store is gone.
            ContentSource::Lower(_) => true,
            // The store's document has other copies now.
            ContentSource::Frozen(file, _) => has_program_copies(&key, file).unwrap_or(true),
            ContentSource::Upper(_) => false,
        };
        match version {
            _ if is_replaced => {
                (state.key, state.is_revoked) = (None, true);
                drop(state);
                self.open.lock().files.unregister(&key, file);
            }
            Some(version) => state.opened_as = OpenedAs::Stored(key, version),
            None => state.opened_as = OpenedAs::Upper,
        }
    }

    /// Moves a key that no store can hold to the top layer, if it is still visible there.
    fn keep(&self, top: &LayeredStore, frozen: &ChangeLayer, key: &Key) -> Result<()> {
        let Some(shown) = shown_as(&top.layer, key)? else {
            return Ok(());
        };
        if frozen.dir.stat(key)?.is_none() {
            return Ok(());
        }
        // If it was renamed since, the base of the new name counts.
        let base = frozen.base(key).filter(|_| shown == *key);
        copy_folders_above(&frozen.dir, &top.layer.dir, &shown)?;
        let base = base.map(|base| JournalRecord::Base {
            key: key.clone(),
            version: base.version,
            is_frozen: false,
            content: base.content,
        });
        let written = frozen.last_mark(key).map(|mark| JournalRecord::Written {
            key: shown.clone(),
            mark,
        });
        top.layer
            .record(base.into_iter().chain(written).collect())?;
        let keys = &frozen.dir;
        let moved = keys.rename_to(key, &top.layer.dir, &shown, RenameFlags::empty());
        moved.map_err(|error| os_error(key, error))
    }
}

/// Returns the inode of a file of the frozen layer, or `None` if the top layer has another file at the key.
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

/// Returns the name at which a key of the layer below is visible, or `None` if it is hidden.
fn shown_as(top: &ChangeLayer, key: &Key) -> Result<Option<Key>> {
    let is_shown = |at: &Key| -> Result<bool> {
        Ok(matches!(top.locate(at)?, Located::Lower(lower) if lower == *key))
    };
    if is_shown(key)? {
        return Ok(Some(key.clone()));
    }
    for (at, source) in top.whiteouts(&Key::root()) {
        let rest = source.as_ref().and_then(|source| key.below(source));
        let Some(name) = rest.map(|rest| joined(&at, &rest)) else {
            continue;
        };
        if is_shown(&name)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns the store's version of a key that a frozen layer changed, or `None` if the store no longer has the key. A
/// removal without an answer is not in the records: the layer's whiteout shows it.
fn committed_version(frozen: &ChangeLayer, key: &Key) -> Option<StoreVersion> {
    let base = frozen.base(key)?;
    let is_removed = !base.is_committed && frozen.lower_key(key).as_ref() != Some(key);
    base.version.filter(|_| !is_removed)
}

/// Returns length and digest of a committed content, or `None` for a document that the store may have with other copies
/// than the layer.
fn committed_content(frozen: &ChangeLayer, key: &Key) -> Option<ContentDigest> {
    let base = frozen.base(key).filter(|base| base.is_committed);
    let base = base.filter(|_| !may_be_consolidated(key));
    base.and_then(|_| frozen.last_mark(key)?.content())
}

/// Returns records that turn changes of the frozen layer's content into changes of the store's content.
fn bases_in_store(top: &ChangeLayer, frozen: &ChangeLayer) -> Vec<JournalRecord> {
    let bases = top.lock().records.bases_below(&Key::root());
    let mut records = Vec::new();
    for (key, _) in bases.into_iter().filter(|(_, base)| base.is_frozen) {
        records.push(JournalRecord::Reverted(key.clone()));
        records.push(JournalRecord::Base {
            version: committed_version(frozen, &key),
            content: committed_content(frozen, &key),
            key,
            is_frozen: false,
        });
    }
    records
}

/// close(2) waits for FLUSH but not for RELEASE, which says that no other process has the file open. A commit waits
/// this long, this many times, for RELEASE.
const CLOSE_WAIT: Duration = Duration::from_millis(5);
const CLOSE_WAITS: usize = 100;

/// Files that stay in the top layer, each with the reason.
type FilesLeftOut = BTreeMap<Key, &'static str>;

impl OverlayCore {
    /// Freezes the top layer; there must be no frozen layer yet. Returns the frozen layer, or `None` if it has nothing
    /// to commit, and the files that are left out.
    pub(crate) fn freeze(self: &Arc<Self>) -> Result<(Option<Arc<LayeredStore>>, KeptKeys)> {
        self.wait_for_closes();
        let is_stored = self.config.write_through;
        let _paths = is_stored.then(|| self.path_locks.lock(&[Key::root()]));
        let _names = self.names.lock();
        let top = self.top();
        let left_out = self.left_out(&top)?;
        let frozen = if has_changes(&top.layer, &left_out)? {
            self.exchange_layers(&top, &left_out)?;
            Some(top)
        } else {
            None
        };
        let left_out = left_out.into_iter().collect();
        Ok((frozen, left_out))
    }

    /// Waits a short time for the RELEASE of files that were closed.
    fn wait_for_closes(&self) {
        let is_closing = |file: &Arc<OpenFile>| file.is_open_for_writing() && !file.is_dirty();
        let open = self.registered_below(&Key::root());
        let closing: Vec<Arc<OpenFile>> = open.into_iter().filter(is_closing).collect();
        for _ in 0..CLOSE_WAITS {
            if !closing.iter().any(is_closing) {
                return;
            }
            locks::pause(CLOSE_WAIT);
        }
    }

    /// Returns the keys of files that are being written, or could not be written completely.
    fn left_out(&self, top: &LayeredStore) -> Result<FilesLeftOut> {
        let mut left_out = FilesLeftOut::new();
        for key in top.layer.lock().records.incomplete_below(&Key::root()) {
            left_out.insert(key, "a file that could not be written whole");
        }
        for file in self.registered_below(&Key::root()) {
            let is_written = file.is_open_for_writing() || file.is_dirty();
            if let Some(key) = file.key().filter(|_| is_written) {
                left_out.insert(key, "open for writing");
            }
        }
        add_linked(&top.layer, &mut left_out)?;
        Ok(left_out)
    }

    /// Puts an empty layer over the top layer, with the files in `left_out`. The names must be locked.
    fn exchange_layers(
        self: &Arc<Self>,
        top: &Arc<LayeredStore>,
        left_out: &FilesLeftOut,
    ) -> Result<()> {
        self.upper.prepare_next(&records_of(&top.layer, left_out))?;
        // All steps that may fail come before the exchange, except for renames.
        let opened = self.open_next(top, left_out);
        let layer = Arc::new(opened.inspect_err(|_| self.upper.drop_next())?);
        // A full disk has no space for folders, but renames need none.
        for key in left_out.keys() {
            make_way(&top.layer.dir, &layer.dir, key).inspect_err(|_| self.upper.drop_next())?;
        }
        for file in self.registered_below(&Key::root()) {
            freeze_file(&file, &top.layer, left_out).inspect_err(|_| self.upper.drop_next())?;
        }
        if let Err(error) = self.upper.swap_in_next() {
            self.upper.undo_swap();
            return Err(error);
        }
        layer.lock().journal.set_path(&self.upper.top().journal);
        if let Some(frozen) = self.upper.frozen() {
            top.layer.lock().journal.set_path(&frozen.journal);
        }
        let (frozen, info) = (Some(top.clone()), self.info.clone());
        let next = LayeredStore::over(layer.clone(), &self.store, frozen, info);
        // Lookups of moved files wait until the layers are exchanged. A file that cannot be moved stays in the frozen
        // layer.
        let shape = top.layer.reshape();
        let move_out = |key| move_file(&top.layer.dir, &layer.dir, key);
        let moved: Vec<Result<()>> = left_out.keys().map(move_out).collect();
        layer.add_retained(top.layer.take_retained(left_out.keys()));
        *self.top.write() = Arc::new(next);
        drop(shape);
        top.layer.lock().records.forget_attributes();
        moved.into_iter().collect::<Result<()>>()?;
        let forgotten = left_out.keys().cloned().map(JournalRecord::Forgotten);
        if let Err(error) = top.layer.record(forgotten.collect()) {
            // Recovery finds these files in the top layer.
            log::debug!("the journal of the frozen layer names files that have left it: {error}");
        }
        self.upper.sync()
    }

    /// Opens the layer that will be put over the top layer.
    fn open_next(&self, top: &LayeredStore, left_out: &FilesLeftOut) -> Result<ChangeLayer> {
        let generations = top.layer.lock().generations.following(left_out.keys());
        let layer = ChangeLayer::open(&self.upper.next(), generations)?;
        layer.sync_journal()?;
        Ok(layer)
    }
}

/// Adds the other names of files that are left out: a write changes the content of all names.
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

/// Whether a layer has something to commit.
fn has_changes(layer: &ChangeLayer, left_out: &FilesLeftOut) -> Result<bool> {
    if !layer.whiteouts(&Key::root()).is_empty() {
        return Ok(true);
    }
    layer.dir.for_each_file(&Key::root(), &mut |key| {
        let base = layer.base(key);
        // An interrupted write-through may have put a document without updating its copies.
        let is_put = is_document(key.name());
        let is_content = is_put || base.is_none_or(|base| !base.is_committed);
        Ok(is_content && !left_out.contains_key(key))
    })
}

/// Returns the records of the next layer: for the files that are left out, and for all attributes without a content.
fn records_of(layer: &ChangeLayer, left_out: &FilesLeftOut) -> Vec<JournalRecord> {
    let state = layer.lock();
    let mut list = Vec::new();
    for key in left_out.keys() {
        // Without its file, the frozen layer may still hide the key or show another object there.
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
        list.extend(tries(key, state.records.tried(key)));
        if state.records.is_incomplete(key) {
            list.push(JournalRecord::Created(key.clone()));
        }
        list.extend(state.records.marks.records_of(key));
        list.extend(state.records.program_copies.records_of(key));
    }
    let kept = state.records.kept_attributes_below(&Key::root());
    for (key, mut attributes) in kept {
        if !left_out.contains_key(&key) {
            if state.records.is_taken_over(&key, &attributes) {
                continue;
            }
            // The next layer has no copy.
            Arc::make_mut(&mut attributes).is_of_copy = false;
        }
        list.push(JournalRecord::Attributes { key, attributes });
    }
    list
}

/// Moves the file of a key, if it exists, to another layer.
fn move_file(from: &LayerDir, to: &LayerDir, key: &Key) -> Result<()> {
    if from.stat(key)?.is_none() {
        return Ok(());
    }
    copy_folders_above(from, to, key)?;
    let moved = from.rename_to(key, to, key, RenameFlags::empty());
    moved.map_err(|error| os_error(key, error))
}

/// Creates the folders in another layer that the file of a key, if it exists, will be moved to.
fn make_way(from: &LayerDir, to: &LayerDir, key: &Key) -> Result<()> {
    match from.stat(key)? {
        None => Ok(()),
        Some(_) => copy_folders_above(from, to, key),
    }
}

/// Creates the folders above a key in another layer, with their attributes.
pub(crate) fn copy_folders_above(from: &LayerDir, to: &LayerDir, key: &Key) -> Result<()> {
    let Some(folder) = key.parent().filter(|folder| !folder.is_root()) else {
        return Ok(());
    };
    if to.stat(&folder)?.is_some() {
        return Ok(());
    }
    copy_folders_above(from, to, &folder)?;
    let stat = from.stat(&folder)?;
    let made = to.parent(&folder).and_then(|(above, name)| {
        match rustix::fs::mkdirat(&above, name, Mode::from(0o755)) {
            Err(Errno::EXIST) => return Ok(()),
            made => made?,
        }
        let posix = stat.map(|stat| attributes::posix_of(&stat));
        posix.map_or(Ok(()), |posix| {
            attributes::set_named(&above, name, &attributes::owner_and_mode(&posix))
        })
    });
    made.map_err(|error| os_error(&folder, error))
}

/// Tells an open file that its content is frozen: a write copies it to the new layer.
fn freeze_file(file: &OpenFile, layer: &ChangeLayer, left_out: &FilesLeftOut) -> Result<()> {
    let mut state = file.lock();
    let Some(key) = state.key.clone().filter(|key| !left_out.contains_key(key)) else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    use crate::commit::CommitConfig;
    use crate::{Overlay, OverlayConfig};
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::{OpenMode, Tree};
    use zarrfs_store::{Condition, PutBody, Store};

    const MOMENT: Duration = Duration::from_millis(200);

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    /// Writes a file, so that there is something to commit.
    fn write(overlay: &Overlay, path: &Key) {
        let file = Tree::open(overlay, &UNLIMITED, path, OpenMode::Write).unwrap();
        file.write_at(&UNLIMITED, 0, b"new").unwrap();
        file.flush(&UNLIMITED).unwrap();
    }

    /// A reader has found the file in the frozen layer, and the file moves before the reader has opened it.
    #[test]
    fn what_a_commit_keeps_is_there_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        for name in ["kept", "changed"] {
            store.set(key(name), b"old".to_vec());
        }
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let overlay = Overlay::open(&folder.path().join("upper"), store, "a store", config);
        let overlay = overlay.unwrap();
        write(&overlay, &key("kept"));
        write(&overlay, &key("changed"));
        let (frozen, _) = overlay.0.freeze().unwrap();
        let (frozen, top) = (frozen.unwrap(), overlay.0.top());
        // A reader needs this lock after the lookup.
        let numbers = frozen.layer.lock();
        thread::scope(|scope| {
            let get = scope.spawn(|| Store::get(&overlay, &UNLIMITED, &key("kept"), 100));
            let etag = scope.spawn(|| frozen.etag(&UNLIMITED, &key("kept")));
            thread::sleep(MOMENT);
            let keys = &frozen.layer.dir;
            keys.rename_to(
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

    /// A file is written during the commit of its previous content. After the commit and a power loss, the write is a
    /// change of the committed content: a later write of another program is a conflict.
    #[test]
    fn a_change_of_what_a_commit_has_put_is_one_of_it_after_a_loss_of_power() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("upper"), folder.path().join("copy"));
        let store = Arc::new(MemoryStore::default());
        store.set(key("a"), b"old".to_vec());
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let open = |path: &std::path::Path| {
            Overlay::open(path, store.clone(), "a store", config.clone()).unwrap()
        };
        let overlay = open(&path);
        let put = |bytes: &[u8]| {
            let body = PutBody::Bytes(bytes);
            Store::put(&overlay, &UNLIMITED, &key("a"), body, &Condition::Any).unwrap();
        };
        put(b"first");
        let (frozen, _) = overlay.0.freeze().unwrap();
        put(b"second");
        let core = &overlay.0;
        let committed = core.commit_frozen(&UNLIMITED, &frozen.unwrap(), false, &|_, _| {});
        assert!(committed.unwrap().is_whole());
        let synced = core.top().layer.lock().journal.synced();
        // `cp` fails at the folder of the frozen layer, which a thread is removing. That folder is not needed.
        std::process::Command::new("cp")
            .arg("-a")
            .args([&path, &copy])
            .output()
            .unwrap();
        let journal = std::fs::File::options()
            .write(true)
            .open(copy.join("journal"));
        journal.unwrap().set_len(synced).unwrap();
        let overlay = open(&copy);
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
