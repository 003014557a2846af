//! Drops the frozen layer at the end of a commit.
//!
//! This is one step for programs, made under the lock of the names: before it they see the frozen layer, after it the
//! store. First the keys that no store can hold move to the top layer. A crash in between leaves the frozen layer, and
//! the next commit finds that the store has it.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{RenameFlags, Stat};

use super::freeze::copy_folders_above;
use crate::OverlayCore;
use crate::changes::KeptKeys;
use crate::derived::has_program_copies;
use crate::journal_line::{ContentDigest, JournalRecord};
use crate::key_ranges::joined;
use crate::keys_dir::os_error;
use crate::layer::{ChangeLayer, Located};
use crate::layered_store::LayeredStore;
use crate::open_file::state::ContentSource;
use crate::open_file::{OpenFile, OpenedAs};
use zarr_format::dialect::consolidated::may_be_consolidated;
use zarr_format::error::Result;
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
    pub(super) fn thaw(
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
            let inode = unless_on_top(&top.layer, &key, || frozen.keys.stat(&key))?;
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
            let is_on_top = || top.keys.stat(&key).is_ok_and(|found| found.is_some());
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
        if frozen.keys.stat(key)?.is_none() {
            return Ok(());
        }
        // If it was renamed since, the base of the new name counts.
        let base = frozen.base(key).filter(|_| shown == *key);
        copy_folders_above(&frozen.keys, &top.layer.keys, &shown)?;
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
        let keys = &frozen.keys;
        let moved = keys.rename_to(key, &top.layer.keys, &shown, RenameFlags::empty());
        moved.map_err(|error| os_error(key, error))
    }
}

/// Returns the inode of a file of the frozen layer, or `None` if the top layer has another file at the key.
fn unless_on_top(
    top: &ChangeLayer,
    key: &Key,
    frozen: impl FnOnce() -> Result<Option<Stat>>,
) -> Result<Option<u64>> {
    if top.keys.stat(key)?.is_some() {
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
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
            let keys = &frozen.layer.keys;
            keys.rename_to(
                &key("kept"),
                &top.layer.keys,
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
