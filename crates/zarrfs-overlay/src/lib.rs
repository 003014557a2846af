//! Copy on write: a store over a store. It can be changed, while the one below stays as it is until a commit.
//!
//! ```
//! use std::sync::Arc;
//!
//! use zarrfs_overlay::{Overlay, OverlayConfig};
//! use zarrfs_store::backend::memory::MemoryStore;
//! use zarrfs_store::request_context::UNLIMITED;
//! use zarrfs_store::{Condition, Key, PutBody, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(MemoryStore::default());
//! let upper = tempfile::tempdir()?;
//! let config = OverlayConfig { uid: 0, gid: 0, write_through: false };
//! let overlay = Overlay::open(upper.path(), store.clone(), "memory", config)?;
//! let key = Key::new("a/c/0")?;
//! overlay.put(&UNLIMITED, &key, PutBody::Bytes(b"new"), &Condition::Any)?;
//! assert_eq!(overlay.get(&UNLIMITED, &key, 8)?.unwrap().bytes, b"new");
//! assert!(store.get(&UNLIMITED, &key, 8)?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! What is written lies in a layer of changes (`layer`) under its key; what is removed or renamed, and attributes that were
//! set of what was not written (`kept_attributes`), stand in the layer's journal. A reader finds the layer's file first,
//! then the store's object, unless a whiteout hides it. After a crash at any point each key has the state before a change
//! or the one after it. `changes` lists the changes, `discard` drops them; `moved_store` knows a store that was moved,
//! `encodings` by which metadata chunks were encoded. `commit` freezes the layer and opens an empty one over it, in one
//! step: programs go on in the new layer, and the commit brings the frozen one, which does not change, into the store.
//! Then the frozen layer is dropped, since the store has it.
//!
//! Locks are taken in this order: `path_locks` (with write-through alone: changes of one path come one after another,
//! also while they are stored), `names` (one change of names, one publication or one exchange of layers at a time),
//! the state of an open file, `open_files`, the state of a layer. None but `path_locks` is held during a request to the
//! store, so that a store that does not answer blocks no request that does not need its answer: `name_change` asks before
//! it locks. `committing` is held during a commit and a discard. `copying` comes after `path_locks` and is held during the
//! requests that bring copies of documents into the store (`commit/copies`), which take turns.
//!
//! Copies in consolidated metadata are no changes: `derived` makes them of the documents when they are read.

#![warn(missing_docs, unreachable_pub, clippy::all)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::expect_used,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test that panics has failed, and its numbers are small"
    )
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use rustix::fs::Stat as Native;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::sync::locks::{Mutex, RwLock};
use zarrfs_store::tree::{AttrChange, Time};
use zarrfs_store::{EncodedBy, Hints, Key, Meta, PathLocks, Store, StoreInfo, StoreStack, Version};

mod attributes;
pub mod changes;
pub mod commit;
mod content;
mod derived;
mod discard;
mod durability;
mod encodings;
mod file_ids;
mod folders;
mod journal;
mod journal_line;
mod kept_attributes;
mod key_ranges;
mod keys_dir;
mod layer;
mod layered_reads;
mod layered_store;
mod listing;
mod marks;
mod moved_store;
mod name_change;
mod namespace;
mod open_file;
mod open_folders;
mod program_copies;
mod records;
mod recovery;
#[cfg(test)]
mod schedules;
mod store;
mod upper;
mod write_numbers;

use derived::DerivedTable;
use encodings::SeenMetadata;
use file_ids::FileIds;
use journal::Journal;
use journal_line::JournalRecord;
use keys_dir::KeysDir;
use layer::ChangeLayer;
use layered_store::LayeredStore;
use open_file::OpenFile;
use open_file::failed_writes::FailedWritesTable;
use open_file::table::OpenFileTable;
use records::Records;
use upper::Upper;
use write_numbers::WriteNumbers;
use zarrfs_store::request_context::RequestContext;

pub use discard::Discarded;
pub use journal_line::ContentDigest;
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
    store: Arc<dyn Store>,
    /// Where the store is.
    place: String,
    upper: Upper,
    config: OverlayConfig,
    /// What programs change, over the store or over a frozen layer.
    top: RwLock<Arc<LayeredStore>>,
    path_locks: PathLocks,
    /// Held while names are made, removed, renamed or given to another content, and while layers are exchanged.
    names: Mutex<()>,
    /// Held during a commit.
    committing: Mutex<()>,
    /// Held while the store gets copies of documents that were committed.
    copying: Mutex<()>,
    /// What is known of documents whose copies are derived.
    derived: DerivedTable,
    /// The metadata of arrays that programs have seen.
    seen: SeenMetadata,
    /// Whether a thread syncs what was changed.
    is_syncing: AtomicBool,
    open: Mutex<OpenState>,
    /// What the overlay is as a store. Its log of changes is its own: a write to the upper folder leaves true what is
    /// known of the store below.
    info: StoreInfo,
}

/// What is known of files that are or were open.
struct OpenState {
    files: OpenFileTable,
    failed_writes: FailedWritesTable,
    ids: FileIds,
}

/// Where a key's content or folder is.
enum Resolved {
    /// In the layer.
    Upper(Native),
    /// In the store below, under this key.
    Lower(Key, Meta),
}

impl Overlay {
    /// Opens the upper folder at `path` over the store at `place`, a path or URL without secrets, and recovers it after a
    /// crash.
    ///
    /// `Exists` if the folder is in use, `Invalid` if it belongs to a store in another place, `Corrupt` if it is damaged,
    /// `ReadOnly` if changes would go to a store at once that takes none.
    pub fn open(
        path: &Path,
        store: Arc<dyn Store>,
        place: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        check_writes_through(&*store, place, &config)?;
        Overlay::over(Upper::open(path, Some(place))?, store, place, config)
    }

    /// The same of an upper folder that is there, also if its store was in another place before. It still belongs to that
    /// one, until `rebind`.
    ///
    /// `Invalid` if the store is plainly another one: it has nothing of what was changed in the folder.
    pub fn open_moved(
        context: &RequestContext,
        path: &Path,
        store: Arc<dyn Store>,
        place: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        check_writes_through(&*store, place, &config)?;
        let overlay = Overlay::over(Upper::open(path, None)?, store, place, config)?;
        overlay.0.check_moved(context)?;
        Ok(overlay)
    }

    /// Has the upper folder belong to the store that it was opened over, from now on.
    pub fn rebind(&self) -> Result<()> {
        self.0.upper.rebind(&self.0.place)
    }

    /// Returns the place of the store below.
    pub fn store_place(&self) -> &str {
        &self.0.place
    }

    fn over(
        upper: Upper,
        store: Arc<dyn Store>,
        place: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        upper.finish_freezing()?;
        let below = store.info();
        let info = StoreInfo {
            lists: below.lists,
            concurrency: below.concurrency,
            not_shown: below.not_shown.clone(),
            clock: below.clock.clone(),
            replacements: below.replacements.clone(),
            sends_parts: below.sends_parts.clone(),
            ..StoreInfo::new(below.freshness)
        };
        let layer = read_layer(&upper.journal(), &upper.keys())?;
        let frozen = open_frozen(&upper, &store, &info, &layer)?;
        recovery::recover(&upper, &layer, &upper.keys(), None)?;
        // Recovery has taken what it needs of them.
        upper.rescue_pending()?;
        upper.make_next_ahead();
        let top = LayeredStore::over(Arc::new(layer), &store, frozen, info.clone());
        Ok(Overlay(Arc::new(OverlayCore {
            store,
            place: zarrfs_store::place(place),
            upper,
            config,
            top: RwLock::new(Arc::new(top)),
            path_locks: PathLocks::default(),
            names: Mutex::default(),
            committing: Mutex::default(),
            copying: Mutex::default(),
            derived: DerivedTable::default(),
            seen: SeenMetadata::default(),
            is_syncing: AtomicBool::new(false),
            open: Mutex::new(OpenState {
                files: OpenFileTable::default(),
                failed_writes: FailedWritesTable::default(),
                ids: FileIds::default(),
            }),
            info,
        })))
    }

    /// Returns the store below, which is not changed before a commit.
    pub fn lower(&self) -> &Arc<dyn Store> {
        &self.0.store
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

    /// Whether a commit or a discard is at work at this moment.
    pub fn is_at_work(&self) -> bool {
        self.0.committing.try_lock().is_none()
    }

    /// Returns where the files are that were not whole when this program or the machine stopped.
    pub fn rescued(&self) -> Result<Vec<String>> {
        self.0.upper.rescued_files()
    }

    /// Returns where the upper folder is.
    pub fn path(&self) -> &Path {
        self.0.upper.path()
    }
}

/// `ReadOnly` if changes would go at once to a store that takes none.
fn check_writes_through(store: &dyn Store, place: &str, config: &OverlayConfig) -> Result<()> {
    if config.write_through {
        store.info().check_changeable(place)
    } else {
        Ok(())
    }
}

/// Opens a layer of the upper folder, with its journal and its folder of keys.
fn read_layer(journal: &Path, keys: &Path) -> Result<ChangeLayer> {
    let mut records = Records::default();
    let journal = Journal::open(journal, &mut |record| records.apply(record))?;
    let files = KeysDir::open(keys)?;
    Ok(ChangeLayer::new(
        files,
        journal,
        records,
        WriteNumbers::default(),
    ))
}

/// Opens the layer that a commit had frozen when it ended before its time, and recovers it after a crash; nothing if there
/// is none. `above` is the layer over it.
fn open_frozen(
    upper: &Upper,
    store: &Arc<dyn Store>,
    info: &StoreInfo,
    above: &ChangeLayer,
) -> Result<Option<Arc<LayeredStore>>> {
    let Some(journal) = upper.frozen_journal() else {
        return Ok(None);
    };
    let layer = read_layer(&journal, &upper.frozen_keys())?;
    layer.lock().records.forget_attributes();
    recovery::recover(upper, &layer, &upper.frozen_keys(), Some(above))?;
    Ok(Some(Arc::new(LayeredStore {
        layer: Arc::new(layer),
        lower: store.clone(),
        frozen: None,
        info: info.clone(),
    })))
}

impl OverlayCore {
    /// Returns the layer that programs change, over what lies below it, as it is now.
    fn top(&self) -> Arc<LayeredStore> {
        self.top.read().clone()
    }

    /// Looks at the layer on top; again if another one came meanwhile, since what a commit leaves out moves there.
    fn look<T>(&self, find: impl Fn(&Arc<LayeredStore>) -> Result<T>) -> Result<T> {
        loop {
            let top = self.top();
            let found = find(&top);
            if Arc::ptr_eq(&self.top(), &top) {
                return found;
            }
        }
    }

    /// Appends records to the journal of the layer on top, then applies them, with those of what changed chunks were
    /// encoded by. The names must be locked.
    fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.record_encoded(list, None)
    }

    /// The same of chunks that were encoded by these metadata.
    fn record_encoded(&self, mut list: Vec<JournalRecord>, said: Option<&EncodedBy>) -> Result<()> {
        list.extend(self.encoding_records(&list, said));
        let completed = list.iter().filter_map(|record| match record {
            JournalRecord::Completed(key) => Some(key.clone()),
            _ => None,
        });
        let completed: Vec<Key> = completed.collect();
        self.top().layer.record(list)?;
        if !completed.is_empty() {
            let mut open = self.open.lock();
            completed
                .iter()
                .for_each(|key| open.failed_writes.set(key, None));
        }
        Ok(())
    }

    /// Notes that what a key shows, or its attributes, changed: answers that were remembered do not count any more.
    fn note_change(&self, key: &Key) {
        self.info.changes.note(key);
        self.note_copies_of(key);
    }

    /// Notes the same of a key and all that is below it.
    fn note_tree_change(&self, prefix: &Key) {
        self.info.changes.note_tree(prefix);
        self.note_copies_below(prefix);
    }

    /// Notes that the layer on top has another content of a key.
    fn note_write(&self, key: &Key) {
        self.top().layer.lock().write_numbers.advance(key);
        self.note_change(key);
    }

    /// Notes that the layer on top has no content of a key any more.
    fn note_removal(&self, key: &Key) {
        self.top().layer.lock().write_numbers.forget(key);
        self.note_change(key);
    }

    /// Whether length and digest of what the store had are noted with the first change of a key: inode and change time of
    /// a file, by which a folder of this machine tells contents apart, may change without it. A change that is stored at
    /// once needs none.
    fn takes_digests(&self) -> bool {
        self.store.info().folder.is_some() && !self.config.write_through
    }

    /// Whether they are noted of a content that was copied here: where the server sends no ETag they have to be.
    fn takes_digest_of(&self, version: Version) -> bool {
        let lacks_etag = !version.is_lasting() && !self.config.write_through;
        self.takes_digests() || lacks_etag
    }

    /// Returns the open file of a key, if there is one.
    fn registered(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.open.lock().files.get(key)
    }

    /// Returns the open files at and below a prefix.
    fn registered_below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        self.open.lock().files.below(prefix)
    }

    /// Takes the key away from its open file, whose content stays readable until it is closed.
    fn detach(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.detach();
        }
    }

    /// Takes the key away from its open file, because something else than a program at work on names gave it another
    /// content: what is written to the file from now on is refused.
    fn revoke(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.revoke();
        }
    }

    /// Returns the attributes that something of the store gets when it is copied to the upper folder: those that the
    /// store has, the mount's owner, and this time.
    fn initial_attributes(&self, stored: AttrChange, modified: Option<SystemTime>) -> AttrChange {
        let modified = modified.map(Time::At);
        let is_root = rustix::process::geteuid().is_root();
        AttrChange {
            uid: stored.uid.or(is_root.then_some(self.config.uid)),
            gid: stored.gid.or(is_root.then_some(self.config.gid)),
            accessed: modified,
            modified,
            ..stored
        }
    }
}

/// Returns the change that sets a mode.
fn mode(mode: u32) -> AttrChange {
    AttrChange {
        mode: Some(mode),
        ..AttrChange::default()
    }
}

/// Returns the error of an operation on a file that is a folder, or the other way round.
fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    if is_folder {
        Error::new(Kind::IsADirectory, key, "is a directory")
    } else {
        Error::new(Kind::NotADirectory, key, "is not a directory")
    }
}
