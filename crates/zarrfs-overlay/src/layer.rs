//! One layer of changes: written files under their keys, and a journal.
//!
//! The journal records removals and renames. Programs change the top layer. A frozen layer changes only through the
//! commit that writes it to the store. `layered_store` combines a layer with the store below it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Stat as Native};
use rustix::io::Errno;

use crate::attribute_override::AttributeOverride;
use crate::attributes;
use crate::journal::Journal;
use crate::journal_record::{JournalRecord, Mark};
use crate::layer_dir::{LayerDir, os_error};
use crate::records::{BaseVersion, Records, Whiteout, below};
use crate::upper::{LayerPaths, Upper};
use zarr_format::error::{Kind, Result};
use zarrfs_store::sync::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use zarrfs_store::{Key, Meta};

/// A layer of changes: files that programs wrote, and a journal of removals, renames and attributes.
pub(crate) struct ChangeLayer {
    /// The folder with the written files under their keys.
    pub(crate) dir: LayerDir,
    state: Mutex<LayerState>,
    /// Lock for the names of keys. It is held for writing while files, records and the table of open files change
    /// together, so that a lookup or a listing never sees half of a change.
    layout: RwLock<()>,
    /// The folder of a layer whose changes are all in the store. It is removed when the last reader drops the layer.
    committed_folder: Mutex<Option<PathBuf>>,
}

/// Where a layer finds the content of a key.
pub(crate) enum Located {
    /// The layer has a file or folder of the key, with this `stat`.
    Upper(Native),
    /// The layer has no file or folder of the key. The store or the frozen layer below may have one, under the given
    /// key.
    Lower(Key),
    /// A whiteout hides the key.
    Hidden,
}

/// The state of a layer of changes, except for the files themselves.
pub(crate) struct LayerState {
    pub(crate) records: Records,
    pub(crate) journal: Journal,
    pub(crate) generations: Generations,
    /// Names in the folder `pending/` of files that were replaced, by their former keys. Such a file is retained until
    /// the new file is synced, because recovery may need it after a power loss.
    retained: HashMap<Key, Vec<String>>,
    /// The amount of writes since the last sync of the whole layer began.
    unsynced: Unsynced,
}

/// The number and size of the files that were written and may not be on disk yet.
#[derive(Clone, Copy, Default)]
struct Unsynced {
    contents: usize,
    bytes: u64,
}

impl Unsynced {
    fn add(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Written { mark, .. } => {
                self.contents += 1;
                self.bytes += mark.length;
            }
            JournalRecord::Removed(_) => self.contents += 1,
            _ => {}
        }
    }
}

impl ChangeLayer {
    pub(crate) fn open(paths: &LayerPaths, generations: Generations) -> Result<ChangeLayer> {
        let mut records = Records::default();
        let journal = Journal::open(&paths.journal, &mut |record| records.apply(record))?;
        Ok(ChangeLayer {
            dir: LayerDir::open(&paths.keys)?,
            state: Mutex::new(LayerState {
                records,
                journal,
                generations,
                retained: HashMap::new(),
                unsynced: Unsynced::default(),
            }),
            layout: RwLock::default(),
            committed_folder: Mutex::default(),
        })
    }

    /// Returns where the content of a key is: in the layer, below it, or hidden by a whiteout.
    pub(crate) fn locate(&self, key: &Key) -> Result<Located> {
        let _layout = self.layout.read();
        if let Some(stat) = self.dir.stat(key)? {
            return Ok(Located::Upper(stat));
        }
        Ok(self.lower_key(key).map_or(Located::Hidden, Located::Lower))
    }

    /// Locks the names for reading, so that records and files stay consistent with each other.
    pub(crate) fn read_layout(&self) -> RwLockReadGuard<'_, ()> {
        self.layout.read()
    }

    /// Locks the names for writing, so that lookups of keys wait.
    pub(crate) fn write_layout(&self) -> RwLockWriteGuard<'_, ()> {
        self.layout.write()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LayerState> {
        self.state.lock()
    }

    /// Appends records to the journal and applies them. The journal is rewritten if most of its records are obsolete.
    pub(crate) fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.take_records(list, false)
    }

    /// Records changes that a crash may lose: if the disk is full, they take effect, but are not written to the
    /// journal.
    pub(crate) fn record_if_room(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.take_records(list, true)
    }

    fn take_records(&self, list: Vec<JournalRecord>, may_be_lost: bool) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        self.lock().take_records(list, may_be_lost)
    }

    /// Moves a pending file to its key; the journal must already have its mark. If a synced file is replaced, it is
    /// retained in `pending/`, and its name there and its inode are returned.
    pub(crate) fn publish(
        &self,
        upper: &Upper,
        pending: &str,
        key: &Key,
    ) -> Result<Option<(String, u64)>> {
        let mut replaced = None;
        let published = if let Some(inode) = self.synced_file(key)? {
            match upper.pending.exchange(pending, &self.dir, key) {
                Ok(retained) => {
                    self.record_retained(key, retained.clone());
                    return Ok(Some((retained, inode)));
                }
                // Without RENAME_EXCHANGE in the file system, rename twice. The lock `layout` makes lookups wait while
                // the key has no file.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                    replaced = Some((self.retain(upper, key)?, inode));
                    upper.pending.publish(pending, &self.dir, key)
                }
                Err(error) => Err(error),
            }
        } else {
            upper.pending.publish(pending, &self.dir, key)
        };
        published.map_err(|error| os_error(key, error))?;
        Ok(replaced)
    }

    /// Removes the file of a key, after the removal was recorded. A synced file is retained in `pending/`, because a
    /// power loss may undo the removal's record.
    pub(crate) fn remove_file(&self, upper: &Upper, key: &Key) -> Result<()> {
        match self.synced_file(key)? {
            Some(_) => self.retain(upper, key).map(drop),
            None => self.dir.remove(key, AtFlags::empty()),
        }
    }

    /// Retains the synced file of a key in `pending/`, because another file is about to replace it.
    pub(crate) fn retain_synced(&self, upper: &Upper, key: &Key) -> Result<()> {
        if self.synced_file(key)?.is_some() {
            self.retain(upper, key)?;
        }
        Ok(())
    }

    /// Returns the inode of a key's file if its content is certainly on disk, or else `None`.
    fn synced_file(&self, key: &Key) -> Result<Option<u64>> {
        let Some(synced) = self.synced(key) else {
            return Ok(None);
        };
        let inode = self.dir.stat(key)?.map(|stat| stat.st_ino);
        Ok(inode.filter(|inode| *inode == synced.inode))
    }

    fn retain(&self, upper: &Upper, key: &Key) -> Result<String> {
        let name = upper.pending.retain(&self.dir, key);
        let name = name.map_err(|error| os_error(key, error))?;
        self.record_retained(key, name.clone());
        Ok(name)
    }

    fn record_retained(&self, key: &Key, name: String) {
        let mut state = self.lock();
        state.retained.entry(key.clone()).or_default().push(name);
    }

    /// Removes the retained files of keys from this layer and returns them, for the layer that the keys move to.
    pub(crate) fn take_retained<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> RetainedFiles {
        let mut state = self.lock();
        keys.filter_map(|key| state.retained.remove_entry(key))
            .collect()
    }

    /// Adds the retained files of keys that move to this layer from another layer.
    pub(crate) fn add_retained(&self, files: RetainedFiles) {
        self.lock().retained.extend(files);
    }

    /// Whether the layer retains replaced files until the files that replaced them are synced.
    pub(crate) fn has_retained(&self) -> bool {
        !self.lock().retained.is_empty()
    }

    pub(crate) fn sync_journal(&self) -> Result<()> {
        let end = self.lock().journal.end();
        end.sync()
    }

    /// Records that a key's content is on disk, unless the key has a newer content. The record is synced too, because
    /// without it recovery restores the content before.
    pub(crate) fn record_synced(&self, key: &Key, mark: &Mark) -> Result<()> {
        if self.last_mark(key) == Some(*mark) && self.synced(key) != Some(*mark) {
            let (synced, inode) = (key.clone(), mark.inode);
            self.record(vec![JournalRecord::Synced { key: synced, inode }])?;
            self.drop_synced_attributes(key)?;
        }
        self.sync_journal()
    }

    /// Removes the retained files of a key from the layer's state, if the key's last content is synced. Returns their
    /// names in `pending/`.
    pub(crate) fn take_replaced(&self, key: &Key) -> Vec<String> {
        let mut state = self.lock();
        let is_idle = state.is_synced(key);
        let names = is_idle.then(|| state.retained.remove(key));
        names.flatten().unwrap_or_default()
    }

    fn synced(&self, key: &Key) -> Option<Mark> {
        self.lock().records.marks.synced(key)
    }

    /// Returns the mark (inode, length and digest) of the last content that was recorded for a key.
    pub(crate) fn last_mark(&self, key: &Key) -> Option<Mark> {
        self.lock().records.marks.last(key)
    }

    /// Whether a sync should start, because 4096 files or 256 MiB are not synced. The limit bounds the files that
    /// recovery must check after a power loss, and the retained files.
    pub(crate) fn is_sync_due(&self) -> bool {
        let unsynced = self.lock().unsynced;
        unsynced.contents >= 4096 || unsynced.bytes >= 256 << 20
    }

    /// Records that a sync of the whole layer begins; returns the number of the sync.
    pub(crate) fn begin_sync(&self) -> Result<u64> {
        let mut state = self.lock();
        state.unsynced = Unsynced::default();
        let number = state.records.marks.epoch() + 1;
        drop(state);
        self.record(vec![JournalRecord::SyncStarted(number)])?;
        Ok(number)
    }

    /// Records that a sync of the whole layer is complete, and removes files that were retained until then.
    pub(crate) fn end_sync(&self, upper: &Upper, number: u64) -> Result<()> {
        self.record(vec![JournalRecord::SyncFinished(number)])?;
        self.drop_synced_attributes(&Key::root())?;
        self.sync_journal()?;
        self.drop_retained(upper, |state, key| state.is_synced(key));
        Ok(())
    }

    /// Drops the records of contents at and below a key, because its files were moved out of the layer.
    pub(crate) fn forget_contents(&self, upper: &Upper, prefix: &Key) -> Result<()> {
        let keys = self.lock().records.marks.keys_below(prefix);
        self.record(keys.into_iter().map(JournalRecord::Forgotten).collect())?;
        self.drop_retained(upper, |_, key| key.below(prefix).is_some());
        Ok(())
    }

    /// Removes the retained files of the keys for which `is_idle` returns `true`.
    pub(crate) fn drop_retained(&self, upper: &Upper, is_idle: impl Fn(&LayerState, &Key) -> bool) {
        let mut state = self.lock();
        let idle = state.retained.keys().filter(|key| is_idle(&state, key));
        let idle: Vec<Key> = idle.cloned().collect();
        let names: Vec<String> = idle
            .iter()
            .filter_map(|key| state.retained.remove(key))
            .flatten()
            .collect();
        drop(state);
        names.iter().for_each(|name| upper.pending.discard(name));
    }

    /// Marks the layer as completely synced, unless the journal has grown since its length was `length` bytes.
    pub(crate) fn close(&self, upper: &Upper, length: u64) -> Result<()> {
        let mut state = self.lock();
        if state.journal.len() != length {
            return Ok(());
        }
        let epoch = state.records.marks.epoch();
        let records = [JournalRecord::SyncFinished(epoch), JournalRecord::Closed];
        state.journal.append(&records)?;
        state.journal.end().sync()?;
        records
            .into_iter()
            .for_each(|record| state.records.apply(record));
        drop(state);
        self.drop_retained(upper, |state, key| state.is_synced(key));
        Ok(())
    }

    /// Returns the key below the layer whose object the layer shows at `key`, or `None` if a whiteout hides it.
    pub(crate) fn lower_key(&self, key: &Key) -> Option<Key> {
        self.lock().records.lower_key(key)
    }

    /// Returns the store's version of a key before its first change, or `None` if the key was not changed.
    pub(crate) fn base(&self, key: &Key) -> Option<BaseVersion> {
        self.lock().records.base(key)
    }

    /// Returns the attributes that were set on a key whose content is below the layer. Returns `None` if the layer has
    /// a file of the key, because that file has the attributes.
    pub(crate) fn attribute_override(&self, key: &Key) -> Result<Option<Arc<AttributeOverride>>> {
        let overrides = self.lock().records.attribute_override(key);
        match overrides {
            Some(overrides) if overrides.is_of_copy || self.dir.stat(key)?.is_none() => {
                Ok(Some(overrides))
            }
            _ => Ok(None),
        }
    }

    /// Drops recorded attributes at and below a prefix if the layer has a synced file with them. If the disk is full,
    /// the next mount drops them.
    fn drop_synced_attributes(&self, prefix: &Key) -> Result<()> {
        let mut state = self.lock();
        let synced = state.records.attributes_of_synced(prefix);
        if synced.is_empty() {
            return Ok(());
        }
        let dropped = synced.into_iter().map(JournalRecord::AttributesDropped);
        state.take_records(dropped.collect(), true)
    }

    /// Returns the keys at and below a prefix whose attributes were changed, but not their content.
    pub(crate) fn keys_with_attributes(&self, prefix: &Key) -> Result<Vec<Key>> {
        let overrides = self.lock().records.attribute_overrides_below(prefix);
        let mut keys = Vec::new();
        for (key, _) in overrides {
            if matches!(self.locate(&key)?, Located::Lower(_)) {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Returns journal records that drop the attributes of all keys at and below a prefix.
    pub(crate) fn dropped_attributes(&self, prefix: &Key) -> Vec<JournalRecord> {
        let overrides = self.lock().records.attribute_overrides_below(prefix);
        let keys = overrides.into_iter().map(|(key, _)| key);
        keys.map(JournalRecord::AttributesDropped).collect()
    }

    /// Drops recorded attributes that no longer matter, because the layer has a file of the key or hides the key. The
    /// attributes of mere copies of the store's objects remain.
    pub(crate) fn drop_stale_attributes(&self) -> Result<()> {
        let overrides = self.lock().records.attribute_overrides_below(&Key::root());
        for (key, overrides) in overrides {
            let counts = match self.locate(&key)? {
                Located::Lower(_) => true,
                Located::Upper(_) => overrides.is_of_copy,
                Located::Hidden => false,
            };
            if !counts {
                self.record(vec![JournalRecord::AttributesDropped(key)])?;
            }
        }
        Ok(())
    }

    /// Returns the whiteouts at and below a prefix. Each has the key whose object is shown there instead, if there is
    /// one.
    pub(crate) fn whiteouts(&self, prefix: &Key) -> Vec<Whiteout> {
        self.lock().records.whiteouts(prefix)
    }

    /// Whether the layer changes what a key shows: with its own file, a whiteout or a rename.
    pub(crate) fn is_changed(&self, key: &Key) -> Result<bool> {
        Ok(!matches!(self.locate(key)?, Located::Lower(lower) if lower == *key))
    }

    pub(crate) fn meta(&self, key: &Key, stat: &Native) -> Meta {
        attributes::meta_of(stat, self.generation(key))
    }

    /// Returns the generation of a key, the number of its last write.
    pub(crate) fn generation(&self, key: &Key) -> u64 {
        self.lock().generations.get(key)
    }

    /// Returns the length in bytes of the layer's file, or `None` if the file is missing, incomplete or not regular.
    pub(crate) fn complete_file_size(&self, key: &Key) -> Result<Option<u64>> {
        let is_incomplete = self.lock().records.is_incomplete(key);
        let stat = self.dir.stat(key)?.filter(|stat| {
            !is_incomplete && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        });
        Ok(stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Whether an open file is the file that the layer now has under a key.
    pub(crate) fn is_file_of(&self, key: &Key, file: &File) -> Result<bool> {
        let own = rustix::fs::fstat(file).map_err(|error| os_error(key, error))?;
        let found = self.dir.stat(key)?;
        Ok(found.is_some_and(|stat| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino)))
    }

    /// Lets a committed layer remove its folder when its last reader drops the layer.
    pub(crate) fn remove_folder_at_end(&self, folder: PathBuf) {
        *self.committed_folder.lock() = Some(folder);
    }
}

/// Replaced files that are retained until the new files are synced: their names in `pending/`, by their former keys.
pub(crate) type RetainedFiles = Vec<(Key, Vec<String>)>;

impl LayerState {
    fn take_records(&mut self, list: Vec<JournalRecord>, may_be_lost: bool) -> Result<()> {
        match self.journal.append(&list) {
            Err(error) if may_be_lost && error.kind() == Kind::NoSpace => log::debug!("{error}"),
            appended => appended?,
        }
        for record in list {
            self.unsynced.add(&record);
            self.records.apply(record);
        }
        self.compact()
    }

    fn is_synced(&self, key: &Key) -> bool {
        self.records.marks.is_synced(key)
    }

    /// Rewrites the journal if it is much longer than necessary. If the disk has no space for two journals, nothing
    /// happens.
    pub(crate) fn compact(&mut self) -> Result<()> {
        // Count 256 bytes of extended attributes as one more record, because percent encoding may take three characters
        // for each byte.
        let records = self.records.len() + self.records.xattr_bytes() / 256;
        if !self.journal.is_oversized(records) {
            return Ok(());
        }
        match self.journal.rewrite(&self.records.summary()) {
            Err(error) if error.kind() == Kind::NoSpace => Ok(()),
            done => done,
        }
    }
}

impl Drop for ChangeLayer {
    fn drop(&mut self) {
        let Some(folder) = self.committed_folder.get_mut().take() else {
            return;
        };
        // Remove the folder in another thread, because the last reader must not wait until thousands of files are
        // removed.
        let remove = move || {
            if let Err(error) = fs::remove_dir_all(&folder) {
                log::warn!(
                    "{}: cannot remove the remains of a commit: {error}",
                    folder.display()
                );
            }
        };
        let thread = std::thread::Builder::new().name("removal".into());
        if let Err(error) = thread.spawn(remove) {
            log::warn!("the next mount removes the remains of a commit: {error}");
        }
    }
}

/// The generations of keys: a key's generation is the number of its last write.
///
/// They distinguish two writes within one tick of the file system's clock, after which size, inode and time may be the
/// same. Only keys that were written since the overlay was opened, and whose file is still there, have a generation.
/// Numbers are not used twice, so a key that was dropped and written again has a new generation.
#[derive(Default)]
pub(crate) struct Generations {
    last: u64,
    by_key: BTreeMap<Key, u64>,
}

impl Generations {
    /// Returns the generations of a new top layer, whose numbers continue. Keys that move to that layer keep their
    /// generation.
    pub(crate) fn following<'a>(&self, moved: impl Iterator<Item = &'a Key>) -> Generations {
        let numbered = moved.map(|key| (key.clone(), self.get(key)));
        Generations {
            last: self.last,
            by_key: numbered.filter(|(_, number)| *number > 0).collect(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> u64 {
        self.by_key.get(key).copied().unwrap_or(0)
    }

    pub(crate) fn advance(&mut self, key: &Key) {
        self.last += 1;
        self.by_key.insert(key.clone(), self.last);
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
    }

    pub(crate) fn forget_below(&mut self, prefix: &Key) {
        let keys: Vec<Key> = below(&self.by_key, prefix)
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter().for_each(|key| self.forget(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn a_forgotten_generation_number_is_not_reused() {
        let mut numbers = Generations::default();
        numbers.advance(&key("a/b"));
        let first = numbers.get(&key("a/b"));
        numbers.forget_below(&key("a"));
        assert_eq!((numbers.get(&key("a/b")), numbers.by_key.len()), (0, 0));
        numbers.advance(&key("a/b"));
        assert!(![0, first].contains(&numbers.get(&key("a/b"))));
    }
}
