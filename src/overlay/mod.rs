//! The overlay: a store over a store that can be changed, while the one below stays as it is.
//!
//! What is written lies in the upper folder under its key; what is deleted or renamed stands in its journal. A
//! reader finds the upper folder's files first, then what the store has, unless a whiteout hides it. After a cut
//! at any point each key has the state before a change or the one after. When changes reach the store is
//! `changes`' business; what a program may do, the kernel's.
//!
//! Locks are taken in this order: `names` (one change of names at a time), a file's own, `state`. None is held
//! while the store is asked, but for a file's own while its content is copied up.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Stat as Native};

use crate::error::{Error, Kind, Result};
use crate::store::backend::local::LocalStore;
use crate::store::tree::{AttrChange, Time};
use crate::store::{
    EntryKind, Hints, Key, Meta, Store, StoreConfig, StoreInfo, StoreStack, Version,
};

mod attributes;
mod below;
pub mod changes;
pub mod commit;
mod content;
mod discard;
mod journal;
mod listing;
mod namespace;
mod open_file;
mod records;
mod store;
mod upper;

use journal::{Journal, JournalRecord};
use open_file::OpenFile;
use open_file::failed_writes::FailedWrites;
use records::Records;
use upper::{Upper, failed};

pub use records::BaseVersion;
pub use upper::belongs_to;

/// How an overlay is opened.
#[derive(Clone, Debug)]
pub struct OverlayConfig {
    /// Owner of folders that the store has no attributes for.
    pub uid: u32,
    /// Group of those.
    pub gid: u32,
    /// Each change goes to the store at once: a file's when it is flushed, that of a name when it is made.
    pub through: bool,
}

/// A store that can be changed, over one that is not touched; clones are the same overlay.
#[derive(Clone)]
pub struct Overlay(Arc<Shared>);

/// What all files of an overlay share.
struct Shared {
    lower: Arc<dyn Store>,
    upper: Upper,
    /// The upper folder's files by their keys, for readers.
    files: LocalStore,
    config: OverlayConfig,
    names: Mutex<()>,
    /// One commit at a time.
    committing: Mutex<()>,
    state: Mutex<OverlayState>,
    /// What the overlay is as a store. Its changes are its own: what is written to the upper folder leaves what is
    /// known of the store below true.
    info: StoreInfo,
}

struct OverlayState {
    records: Records,
    journal: Journal,
    live: HashMap<Key, Weak<OpenFile>>,
    /// What is missing of files that were made.
    torn: HashMap<Key, FailedWrites>,
    /// Counts writes to keys: the clock does not tell all of them apart.
    writes: HashMap<Key, u64>,
}

/// What a key is.
enum Resolved {
    /// The upper folder has it.
    Upper(Native),
    /// The store has it, under this key.
    Lower(Key, Meta),
}

impl Overlay {
    /// Opens the upper folder at `path` over a store that is shown as `name`; what was cut is put in order.
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
        recover(&upper, &mut journal, &mut records)?;
        let summary = records.summary();
        if journal.is_long_for(summary.len()) {
            journal.rewrite(&summary)?;
        }
        let files = LocalStore::open(&upper.keys(), &StoreConfig::default())?;
        let below = lower.info();
        let info = StoreInfo {
            lists: below.lists,
            ..StoreInfo::new(below.freshness)
        };
        Ok(Overlay(Arc::new(Shared {
            lower,
            upper,
            files,
            config,
            names: Mutex::default(),
            committing: Mutex::default(),
            state: Mutex::new(OverlayState {
                records,
                journal,
                live: HashMap::new(),
                torn: HashMap::new(),
                writes: HashMap::new(),
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

/// Ends what was begun when the program was killed: renames are done, files that were not whole put aside.
fn recover(upper: &Upper, journal: &mut Journal, records: &mut Records) -> Result<()> {
    if let Some((from, to, native)) = records.moving() {
        namespace::rename::finish(upper, &from, &to, native)?;
        journal.append(&[JournalRecord::Moved])?;
        records.apply(JournalRecord::Moved);
    }
    upper.rescue_pending()?;
    for key in records.born_below(&Key::root()) {
        upper.rescue_key(&key)?;
        journal.append(&[JournalRecord::Whole(key.clone())])?;
        records.apply(JournalRecord::Whole(key));
    }
    // What was about to be changed and was not is as in the store.
    for (key, _) in records.all_held(&Key::root()) {
        if records.lower(&key).as_ref() == Some(&key) && upper.stat(&key)?.is_none() {
            journal.append(&[JournalRecord::Let(key.clone())])?;
            records.apply(JournalRecord::Let(key));
        }
    }
    Ok(())
}

impl Shared {
    /// Writes records down, then holds to them.
    fn note(&self, list: Vec<JournalRecord>) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.journal.append(&list)?;
        for record in list {
            if let JournalRecord::Whole(key) = &record {
                state.torn.remove(key);
            }
            state.records.apply(record);
        }
        Ok(())
    }

    /// Notes that what a key is was changed.
    fn changed(&self, key: &Key) {
        self.info.changes.note(key);
    }

    /// Notes that everything at a path and below it may be something else.
    fn tree_changed(&self, path: &Key) {
        self.info.changes.note_tree(path);
    }

    /// Counts and notes a change of a key's content.
    fn written(&self, key: &Key) {
        *self.state.lock().writes.entry(key.clone()).or_default() += 1;
        self.changed(key);
    }

    fn writes(&self, key: &Key) -> u64 {
        self.state.lock().writes.get(key).copied().unwrap_or(0)
    }

    /// Returns which key of the store stands at `key`.
    fn lower_key(&self, key: &Key) -> Option<Key> {
        self.state.lock().records.lower(key)
    }

    /// Returns what the store has at a key that nothing hides.
    fn find_lower(&self, key: &Key) -> Result<Option<(Key, Meta)>> {
        let Some(lower) = self.lower_key(key) else {
            return Ok(None);
        };
        let meta = self.lower.head(&lower)?;
        Ok(meta.map(|meta| (lower, meta)))
    }

    /// Returns what a key is; nothing if there is nothing.
    fn find(&self, key: &Key) -> Result<Option<Resolved>> {
        // What is renamed meanwhile may be in neither place when it is looked for.
        for _ in 0..MOST_LOOKS {
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

    /// Returns the file of a key that is open, if it is.
    fn live(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.state.lock().live.get(key)?.upgrade()
    }

    /// Returns the record of what the store held at a key whose content is about to be another, if there is none
    /// that says so.
    fn hold(&self, key: &Key) -> Result<Option<JournalRecord>> {
        let known = self.state.lock().records.held(key);
        let version = match known {
            Some(known) if !known.same => return Ok(None),
            Some(known) => known.version,
            None => self.lower.version(key)?,
        };
        Ok(Some(JournalRecord::Held {
            key: key.clone(),
            version,
            same: false,
        }))
    }

    /// Returns the record that the store held this under a key which now shows under another name.
    fn hold_moved(&self, from: &Key, version: Version) -> Option<JournalRecord> {
        let state = self.state.lock();
        let is_hidden = state.records.lower(from).as_ref() != Some(from);
        (is_hidden && state.records.held(from).is_none()).then(|| JournalRecord::Held {
            key: from.clone(),
            version: Some(version),
            same: false,
        })
    }

    /// Makes the upper folder's folders above a key, with the attributes that they have in the store.
    fn make_parents(&self, key: &Key) -> Result<()> {
        let Some(parent) = key.parent() else {
            return Ok(());
        };
        if parent.is_root() || self.upper.stat(&parent)?.is_some() {
            return Ok(());
        }
        self.make_parents(&parent)?;
        self.copy_folder(&parent)
    }

    /// Makes a folder of the store in the upper folder.
    fn copy_folder(&self, key: &Key) -> Result<()> {
        let stored = self.find_lower(key)?;
        if stored
            .as_ref()
            .is_some_and(|(_, meta)| meta.kind != EntryKind::Directory)
        {
            return Err(wrong_kind(key, false));
        }
        let modified = stored.map(|(_, meta)| meta.modified);
        let made = || -> rustix::io::Result<()> {
            let (folder, name) = self.upper.parent(key)?;
            match rustix::fs::mkdirat(&folder, name, rustix::fs::Mode::from(0o755)) {
                Err(rustix::io::Errno::EXIST) => return Ok(()),
                made => made?,
            }
            attributes::set_named(&folder, name, &self.first_change(0o755, modified))
        };
        made().map_err(|error| failed(key, error))
    }

    /// Returns the attributes that something of the store gets in the upper folder.
    fn first_change(&self, mode: u32, modified: Option<SystemTime>) -> AttrChange {
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

    /// Returns kind, size and version of the upper folder's file of a key.
    fn meta(&self, key: &Key, stat: &Native) -> Meta {
        attributes::meta_of(stat, self.writes(key))
    }

    /// Removes the upper folder's file or folder of a key.
    fn remove_native(&self, key: &Key, flags: AtFlags) -> Result<()> {
        let removed = self
            .upper
            .parent(key)
            .and_then(|(folder, name)| rustix::fs::unlinkat(folder, name, flags));
        removed.map_err(|error| failed(key, error))
    }
}

/// How often a key is looked for that is renamed meanwhile.
const MOST_LOOKS: usize = 8;

/// Says that a path is no directory, or is one.
fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    match is_folder {
        true => Error::new(Kind::IsADirectory, key, "is a directory"),
        false => Error::new(Kind::NotADirectory, key, "is not a directory"),
    }
}
