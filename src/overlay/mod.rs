//! The overlay: a store over a store. It can be changed, while the one below stays as it is until a commit.
//!
//! What is written lies in the upper folder under its key; what is removed or renamed stands in its journal. A
//! reader finds the upper folder's file first, then the store's object, unless a whiteout hides it. After a crash at
//! any point each key has the state before a change or the one after it. `commit` brings the changes into the store,
//! `changes` lists them, `discard` drops them.
//!
//! Locks are taken in this order: `committing` (one commit at a time), `names` (one change of names at a time), the
//! state of an open file, `state`. `state` is never held during a request to the store. The state of a file is held
//! while its content is copied from the store, and a change of its name waits for that. `names` is held during
//! requests for single keys: whether a name is free, which kind of thing it is, which version is about to be hidden,
//! and what the folders above it are. Most of these were asked just before the lock was taken, so that a metadata
//! cache below answers them. Contents and listings of the store are asked for without `names`; once it is taken, the
//! records tell whether the answer still counts. There are two exceptions: a folder that is removed or replaced is
//! listed, since it has to be empty, and an exchange of two names copies the files.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Stat as Native};

use crate::error::{Error, Kind, Result};
use crate::store::backend::local::LocalStore;
use crate::store::tree::{AttrChange, Time};
use crate::store::{
    EntryKind, Hints, Key, Meta, Store, StoreConfig, StoreInfo, StoreStack, Version,
};

mod attributes;
pub mod changes;
pub mod commit;
mod content;
mod discard;
mod folders;
mod journal;
mod listing;
mod namespace;
mod open_file;
mod records;
mod recovery;
mod store;
mod upper;
mod write_numbers;

use journal::{Journal, JournalRecord};
use open_file::OpenFile;
use open_file::failed_writes::FailedWritesTable;
use open_file::table::OpenFileTable;
use records::Records;
use upper::{Upper, os_error};
use write_numbers::WriteNumbers;

pub use records::BaseVersion;
pub use upper::belongs_to;

/// How an overlay is opened.
#[derive(Clone, Debug)]
pub struct OverlayConfig {
    /// Owner of folders that the store has no attributes for.
    pub uid: u32,
    /// Group of those.
    pub gid: u32,
    /// Each change is committed at once: a file's when it is flushed, that of a name when it is made.
    pub write_through: bool,
}

/// A store that can be changed, over one that is not; clones are the same overlay.
#[derive(Clone)]
pub struct Overlay(Arc<OverlayCore>);

/// The state that all files of one overlay share.
struct OverlayCore {
    lower: Arc<dyn Store>,
    upper: Upper,
    /// The upper folder's files under their keys, for reading.
    files: LocalStore,
    config: OverlayConfig,
    /// Held while names are made, removed, renamed or given to another content.
    names: Mutex<()>,
    /// Held during a commit.
    committing: Mutex<()>,
    state: Mutex<OverlayState>,
    /// What the overlay is as a store. Its log of changes is its own: a write to the upper folder leaves true what is
    /// known of the store below.
    info: StoreInfo,
}

struct OverlayState {
    records: Records,
    journal: Journal,
    open_files: OpenFileTable,
    failed_writes: FailedWritesTable,
    write_numbers: WriteNumbers,
}

/// Where a key's content or folder is.
enum Resolved {
    /// In the upper folder.
    Upper(Native),
    /// In the store, under this key.
    Lower(Key, Meta),
}

impl Overlay {
    /// Opens the upper folder at `path` over a store that is shown as `name`, and recovers it after a crash.
    ///
    /// `Exists` if the folder is in use, `Invalid` if it belongs to another store, `Corrupt` if it is damaged.
    pub fn open(
        path: &Path,
        lower: Arc<dyn Store>,
        name: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        let upper = Upper::open(path, Some(name))?;
        let (mut journal, list) = Journal::open(&upper.journal())?;
        let mut records = Records::default();
        for record in list {
            records.apply(record);
        }
        recovery::recover(&upper, &mut journal, &mut records)?;
        let summary = records.summary();
        if journal.is_oversized(summary.len()) {
            journal.rewrite(&summary)?;
        }
        let files = LocalStore::open(&upper.keys(), &StoreConfig::default())?;
        let below = lower.info();
        let info = StoreInfo {
            lists: below.lists,
            clock: below.clock.clone(),
            ..StoreInfo::new(below.freshness)
        };
        Ok(Overlay(Arc::new(OverlayCore {
            lower,
            upper,
            files,
            config,
            names: Mutex::default(),
            committing: Mutex::default(),
            state: Mutex::new(OverlayState {
                records,
                journal,
                open_files: OpenFileTable::default(),
                failed_writes: FailedWritesTable::default(),
                write_numbers: WriteNumbers::default(),
            }),
            info,
        })))
    }

    /// Returns the store below, which is not changed before a commit.
    pub fn lower(&self) -> &Arc<dyn Store> {
        &self.0.lower
    }

    /// Returns the overlay as the top of a stack, over the store that it was opened over, whose hints are `below`.
    pub fn stack(&self, below: Arc<dyn Hints>) -> StoreStack {
        let overlay = self.clone();
        StoreStack {
            store: Arc::new(self.clone()),
            hints: Arc::new(store::OverlayHints { overlay, below }),
            tree: Some(Arc::new(self.clone())),
        }
    }

    /// Returns where the upper folder is.
    pub fn path(&self) -> &Path {
        self.0.upper.path()
    }
}

impl OverlayCore {
    /// Appends records to the journal, then applies them.
    fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.journal.append(&list)?;
        for record in list {
            if let JournalRecord::Completed(key) = &record {
                state.failed_writes.set(key, None);
            }
            state.records.apply(record);
        }
        Ok(())
    }

    /// Notes that what a key shows, or its attributes, changed: answers that were remembered do not count any more.
    fn note_change(&self, key: &Key) {
        self.info.changes.note(key);
    }

    /// Notes the same of a key and all that is below it.
    fn note_tree_change(&self, prefix: &Key) {
        self.info.changes.note_tree(prefix);
    }

    /// Notes that the upper folder has another content of a key.
    fn note_write(&self, key: &Key) {
        self.state.lock().write_numbers.advance(key);
        self.note_change(key);
    }

    /// Notes that the upper folder has no content of a key any more.
    fn note_removal(&self, key: &Key) {
        self.state.lock().write_numbers.forget(key);
        self.note_change(key);
    }

    fn write_number(&self, key: &Key) -> u64 {
        self.state.lock().write_numbers.get(key)
    }

    /// Returns which key of the store shows at `key`; `None` if it is hidden.
    fn lower_key(&self, key: &Key) -> Option<Key> {
        self.state.lock().records.lower_key(key)
    }

    /// Returns the base of a key; `None` if the key was not changed.
    fn base(&self, key: &Key) -> Option<BaseVersion> {
        self.state.lock().records.base(key)
    }

    /// Returns the whiteouts at and below a prefix, with the keys of the store that show there instead.
    fn whiteouts(&self, prefix: &Key) -> Vec<(Key, Option<Key>)> {
        self.state.lock().records.whiteouts(prefix)
    }

    /// Asks the store for what shows at `key`, unless a whiteout hides it.
    fn find_lower(&self, key: &Key) -> Result<Option<(Key, Meta)>> {
        let Some(lower) = self.lower_key(key) else {
            return Ok(None);
        };
        let meta = self.lower.head(&lower)?;
        Ok(meta.map(|meta| (lower, meta)))
    }

    /// Returns where the content or folder of a key is; `None` if there is nothing.
    fn find(&self, key: &Key) -> Result<Option<Resolved>> {
        // A rename between both looks can hide a key from either: the lookup is repeated then.
        for _ in 0..MAX_LOOKUPS {
            let position = self.info.changes.position();
            if let Some(stat) = self.upper.stat(key)? {
                return Ok(Some(Resolved::Upper(stat)));
            }
            let found = self.find_lower(key)?;
            if !self.info.changes.changed_since(position, key) {
                return Ok(found.map(|(lower, meta)| Resolved::Lower(lower, meta)));
            }
        }
        let found = self.find_lower(key)?;
        Ok(found.map(|(lower, meta)| Resolved::Lower(lower, meta)))
    }

    /// Returns the open file of a key, if there is one.
    fn registered(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.state.lock().open_files.get(key)
    }

    /// Returns the open files at and below a prefix.
    fn registered_below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        self.state.lock().open_files.below(prefix)
    }

    /// Takes the key away from its open file, whose content stays readable until it is closed.
    fn detach(&self, key: &Key) {
        let file = self.state.lock().open_files.remove(key);
        if let Some(file) = file {
            file.detach();
        }
    }

    /// Returns the record of the store's version of a key whose content is about to change; `None` if it was
    /// recorded before. Asks the store for the version.
    fn base_record(&self, key: &Key) -> Result<Option<JournalRecord>> {
        let version = match self.base(key) {
            Some(base) if !base.same_content => return Ok(None),
            Some(base) => base.version,
            None => self.lower.version(key)?,
        };
        Ok(Some(JournalRecord::Base {
            key: key.clone(),
            version,
            same_content: false,
        }))
    }

    /// Returns the record of the version of a key that is hidden because it shows under another name; `None` if it
    /// is not hidden, or was recorded before.
    fn moved_base_record(&self, from: &Key, version: Version) -> Option<JournalRecord> {
        let state = self.state.lock();
        let is_hidden = state.records.lower_key(from).as_ref() != Some(from);
        (is_hidden && state.records.base(from).is_none()).then(|| JournalRecord::Base {
            key: from.clone(),
            version: Some(version),
            same_content: false,
        })
    }

    /// Returns the attributes that something of the store gets when it is copied to the upper folder.
    fn initial_attributes(&self, mode: u32, modified: Option<SystemTime>) -> AttrChange {
        let modified = modified.map(Time::At);
        let is_root = rustix::process::geteuid().is_root();
        AttrChange {
            mode: Some(mode),
            uid: is_root.then_some(self.config.uid),
            gid: is_root.then_some(self.config.gid),
            accessed: modified,
            modified,
            ..AttrChange::default()
        }
    }

    /// Returns kind, size and version of a file of the upper folder.
    fn meta(&self, key: &Key, stat: &Native) -> Meta {
        attributes::meta_of(stat, self.write_number(key))
    }

    /// Returns the kind of what was found at a key.
    fn kind(&self, key: &Key, found: &Resolved) -> EntryKind {
        match found {
            Resolved::Upper(stat) => self.meta(key, stat).kind,
            Resolved::Lower(_, meta) => meta.kind,
        }
    }

    /// Removes the upper folder's file or folder of a key.
    fn remove_from_upper(&self, key: &Key, flags: AtFlags) -> Result<()> {
        let removed = self
            .upper
            .parent(key)
            .and_then(|(folder, name)| rustix::fs::unlinkat(folder, name, flags));
        removed.map_err(|error| os_error(key, error))
    }
}

/// How often a key is looked up while names change.
const MAX_LOOKUPS: usize = 8;

/// Returns the error of an operation on a file that is a folder, or the other way round.
fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    if is_folder {
        Error::new(Kind::IsADirectory, key, "is a directory")
    } else {
        Error::new(Kind::NotADirectory, key, "is not a directory")
    }
}
