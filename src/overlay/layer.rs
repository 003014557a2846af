//! One layer of changes: the files that were written, under their keys, and a journal of what was removed or renamed.
//!
//! The layer on top is changed by programs; a frozen one by the commit alone that brings it into the
//! store. What a layer shows over the store below it is `layered_store`'s.

use std::fs;
use std::fs::File;
use std::path::PathBuf;

use rustix::fs::{FileType, Stat as Native};

use super::attributes;
use super::journal::Journal;
use super::journal_line::JournalRecord;
use super::keys_dir::{KeysDir, os_error};
use super::records::{BaseVersion, Records};
use super::write_numbers::WriteNumbers;
use crate::error::{Kind, Result};
use crate::store::{Key, Meta};
use crate::sync::locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A whiteout: the key, and the key of the store below that shows there instead.
pub(super) type Whiteout = (Key, Option<Key>);

/// A layer of changes.
pub(super) struct ChangeLayer {
    pub(super) keys: KeysDir,
    state: Mutex<LayerState>,
    /// Held for writing while names, records and the table of open files together take another shape: a look for a
    /// key or a listing of a folder sees the one before or the one after.
    shape: RwLock<()>,
    /// A folder that goes with the last reader of the layer: the store has all that was in it.
    committed_folder: Mutex<Option<PathBuf>>,
}

/// Where a layer finds a key.
pub(super) enum Located {
    /// The layer has a file or folder.
    Upper(Native),
    /// The store below may have something, under this key.
    Lower(Key),
    /// A whiteout hides the key.
    Hidden,
}

/// What a layer knows beside its files.
pub(super) struct LayerState {
    pub(super) records: Records,
    pub(super) journal: Journal,
    pub(super) write_numbers: WriteNumbers,
}

impl ChangeLayer {
    /// Builds the layer of these files, this journal and what the journal's records mean.
    pub(super) fn new(
        keys: KeysDir,
        journal: Journal,
        records: Records,
        write_numbers: WriteNumbers,
    ) -> ChangeLayer {
        ChangeLayer {
            keys,
            state: Mutex::new(LayerState {
                records,
                journal,
                write_numbers,
            }),
            shape: RwLock::default(),
            committed_folder: Mutex::default(),
        }
    }

    /// Returns where a key is to be found.
    pub(super) fn locate(&self, key: &Key) -> Result<Located> {
        let _shape = self.shape.read();
        if let Some(stat) = self.keys.stat(key)? {
            return Ok(Located::Upper(stat));
        }
        Ok(self.lower_key(key).map_or(Located::Hidden, Located::Lower))
    }

    /// Has records and files together keep their shape until this is dropped.
    pub(super) fn as_shaped(&self) -> RwLockReadGuard<'_, ()> {
        self.shape.read()
    }

    /// Keeps lookups of keys waiting until this is dropped.
    pub(super) fn reshape(&self) -> RwLockWriteGuard<'_, ()> {
        self.shape.write()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LayerState> {
        self.state.lock()
    }

    /// Appends records to the journal, then applies them. The journal is written anew when most of it counts for
    /// nothing any more.
    pub(super) fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.take_records(list, false)
    }

    /// The same of records that a crash may lose: without room on the disk they are applied alone.
    pub(super) fn record_if_room(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.take_records(list, true)
    }

    fn take_records(&self, list: Vec<JournalRecord>, may_be_lost: bool) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        match state.journal.append(&list) {
            Err(error) if may_be_lost && error.kind() == Kind::NoSpace => log::debug!("{error}"),
            appended => appended?,
        }
        for record in list {
            state.records.apply(record);
        }
        state.compact()
    }

    /// Returns which key of the store below shows at `key`; `None` if it is hidden.
    pub(super) fn lower_key(&self, key: &Key) -> Option<Key> {
        self.lock().records.lower_key(key)
    }

    /// Returns the base of a key; `None` if the key was not changed.
    pub(super) fn base(&self, key: &Key) -> Option<BaseVersion> {
        self.lock().records.base(key)
    }

    /// Returns the whiteouts at and below a prefix, with the keys of the store below that show there instead.
    pub(super) fn whiteouts(&self, prefix: &Key) -> Vec<Whiteout> {
        self.lock().records.whiteouts(prefix)
    }

    /// Whether the layer has another content of a key than the store below, or shows another key there.
    pub(super) fn is_changed(&self, key: &Key) -> Result<bool> {
        Ok(!matches!(self.locate(key)?, Located::Lower(lower) if lower == *key))
    }

    /// Returns kind, size and version of a file of the layer.
    pub(super) fn meta(&self, key: &Key, stat: &Native) -> Meta {
        attributes::meta_of(stat, self.write_number(key))
    }

    /// Returns the number of the last write of a key.
    pub(super) fn write_number(&self, key: &Key) -> u64 {
        self.lock().write_numbers.get(key)
    }

    /// Returns the length in bytes of a file, if it is there and complete.
    pub(super) fn complete_file_size(&self, key: &Key) -> Result<Option<u64>> {
        let is_incomplete = self.lock().records.is_incomplete(key);
        let stat = self.keys.stat(key)?.filter(|stat| {
            !is_incomplete && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        });
        Ok(stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Whether a file of the layer has this key.
    pub(super) fn is_file_of(&self, key: &Key, file: &File) -> Result<bool> {
        let own = rustix::fs::fstat(file).map_err(|error| os_error(key, error))?;
        let found = self.keys.stat(key)?;
        Ok(found.is_some_and(|stat| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino)))
    }

    /// Has a folder removed once the layer has no more readers.
    pub(super) fn remove_folder_at_end(&self, folder: PathBuf) {
        *self.committed_folder.lock() = Some(folder);
    }
}

impl LayerState {
    /// Writes the journal anew if it is much longer than its records need, and there is room for both.
    pub(super) fn compact(&mut self) -> Result<()> {
        if !self.journal.is_oversized(self.records.len()) {
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
        // The last reader does not wait for thousands of files to be removed.
        let remove = move || {
            if let Err(error) = fs::remove_dir_all(&folder) {
                log::warn!("{}: is left over from a commit: {error}", folder.display());
            }
        };
        let thread = std::thread::Builder::new().name("removal".into());
        if let Err(error) = thread.spawn(remove) {
            log::warn!("a folder of a commit is removed at the next mount: {error}");
        }
    }
}
