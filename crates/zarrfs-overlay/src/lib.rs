//! Copy-on-write overlay: a writable store over a store that only commits change.
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
//! Written files are in a layer of changes (`layer`) under their keys. The layer's journal records removals, renames
//! and the attributes that were set on keys without a written content (`kept_attributes`). A reader finds the layer's
//! file first, then the store's object, unless a whiteout hides it. After a crash at any point, each key has the state
//! before a change or the state after it. `changes` lists the changes, `discard` drops them, `moved_store` recognizes a
//! store that was moved, and `encodings` records the metadata that chunks were encoded with. `commit` freezes the layer
//! and opens an empty layer over it, in one step: programs continue in the new layer, while the commit brings the
//! frozen layer, which does not change, into the store. Then it drops the frozen layer.
//!
//! Lock order: `path_locks` (only with write-through: changes of one path take turns, also while they are stored),
//! `names` (one change of names, one publication or one exchange of layers at a time), the state of an open file,
//! `open_files`, the state of a layer. Only `path_locks` is held during a request to the store, so a store that does
//! not answer blocks only the requests that need its answer: `name_change` queries the store before it locks.
//! `committing` is held during a commit and a discard. `copying` comes after `path_locks` and is held during the
//! requests that bring copies of documents into the store (`commit/copies`), which take turns.
//!
//! Copies in consolidated metadata are not changes: `derived` makes them from the documents when they are read.

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

/// Options of an overlay.
#[derive(Clone, Debug)]
pub struct OverlayConfig {
    /// Owner of folders for which the store has no attributes.
    pub uid: u32,
    /// Group of these folders.
    pub gid: u32,
    /// Commits each change at once: the content of a file when it is flushed, a change of a name when it is made.
    pub write_through: bool,
}

/// A writable overlay over a store. Clones share the same state.
#[derive(Clone)]
pub struct Overlay(Arc<OverlayCore>);

/// The state that all files of one overlay share.
struct OverlayCore {
    store: Arc<dyn Store>,
    /// The path or URL of the store.
    place: String,
    upper: Upper,
    config: OverlayConfig,
    /// The layer that programs change, over the store or over a frozen layer.
    top: RwLock<Arc<LayeredStore>>,
    path_locks: PathLocks,
    /// Held while names are created, removed, renamed or given another content, and while layers are exchanged.
    names: Mutex<()>,
    /// Held during a commit.
    committing: Mutex<()>,
    /// Held while copies of committed documents are written to the store.
    copying: Mutex<()>,
    /// Cached documents with derived copies.
    derived: DerivedTable,
    /// The metadata of arrays that programs have seen.
    seen: SeenMetadata,
    /// Whether a thread is syncing changes.
    is_syncing: AtomicBool,
    open: Mutex<OpenState>,
    /// The overlay's own store information. It has its own log of changes, because a write to the upper folder does not
    /// invalidate cached answers of the store below.
    info: StoreInfo,
}

/// The state of files that are or were open.
struct OpenState {
    files: OpenFileTable,
    failed_writes: FailedWritesTable,
    ids: FileIds,
}

/// The place where a key's content or folder was found.
enum Resolved {
    /// In the layer.
    Upper(Native),
    /// In the store below, under this key.
    Lower(Key, Meta),
}

impl Overlay {
    /// Opens the upper folder at `path` over the store at `place`, a path or URL without secrets, and recovers the
    /// folder after a crash.
    ///
    /// Errors: `Exists` if the folder is in use, `Invalid` if it belongs to a store in another place, `Corrupt` if it
    /// is damaged, `ReadOnly` if `config` asks for write-through and the store is read-only.
    pub fn open(
        path: &Path,
        store: Arc<dyn Store>,
        place: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        check_writes_through(&*store, place, &config)?;
        Overlay::over(Upper::open(path, Some(place))?, store, place, config)
    }

    /// Opens an existing upper folder like `open`, even if its store was in another place before. The folder still
    /// belongs to the old place until `rebind`.
    ///
    /// Errors: `Invalid` if the store is clearly another one, that is, it has none of the keys that were changed in the
    /// folder.
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

    /// Makes the upper folder belong to the store that it was opened over, from now on.
    pub fn rebind(&self) -> Result<()> {
        self.0.upper.rebind(&self.0.place)
    }

    /// Returns the path or URL of the store below.
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
            hidden_entries: below.hidden_entries.clone(),
            clock: below.clock.clone(),
            archive_generation: below.archive_generation.clone(),
            sends_parts: below.sends_parts.clone(),
            ..StoreInfo::new(below.freshness)
        };
        let layer = read_layer(&upper.journal(), &upper.keys())?;
        let frozen = open_frozen(&upper, &store, &info, &layer)?;
        recovery::recover(&upper, &layer, &upper.keys(), None)?;
        // Recovery needed the pending files and is done with them.
        upper.rescue_pending()?;
        upper.make_next_ahead();
        let top = LayeredStore::over(Arc::new(layer), &store, frozen, info.clone());
        Ok(Overlay(Arc::new(OverlayCore {
            store,
            place: zarrfs_store::canonical_location(place),
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

    /// Returns the store below, which only a commit changes.
    pub fn lower(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Returns the overlay as the top of a stack, over its store, whose hints are `below`.
    pub fn stack(&self, below: Arc<dyn Hints>) -> StoreStack {
        let overlay = self.clone();
        StoreStack {
            store: Arc::new(self.clone()),
            hints: Arc::new(store::OverlayHints { overlay, below }),
            tree: Some(Arc::new(self.clone())),
        }
    }

    /// Whether a commit or a discard is running.
    pub fn is_at_work(&self) -> bool {
        self.0.committing.try_lock().is_none()
    }

    /// Returns the paths of the files that were incomplete when this program or the machine stopped.
    pub fn rescued(&self) -> Result<Vec<String>> {
        self.0.upper.rescued_files()
    }

    /// Returns the path of the upper folder.
    pub fn path(&self) -> &Path {
        self.0.upper.path()
    }
}

/// Fails with `ReadOnly` if `config` asks for write-through and the store is read-only.
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

/// Opens and recovers the frozen layer of a commit that was interrupted; returns `None` if there is no frozen layer.
/// `above` is the layer over it.
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
    /// Returns the current top layer, which programs change, with the store or frozen layer below it.
    fn top(&self) -> Arc<LayeredStore> {
        self.top.read().clone()
    }

    /// Runs `find` on the top layer; retries if a commit or discard swapped layers, because keys that a commit leaves
    /// out move to the new layer.
    fn look<T>(&self, find: impl Fn(&Arc<LayeredStore>) -> Result<T>) -> Result<T> {
        loop {
            let top = self.top();
            let found = find(&top);
            if Arc::ptr_eq(&self.top(), &top) {
                return found;
            }
        }
    }

    /// Appends records to the journal of the top layer, then applies them. Adds the records of the metadata that
    /// changed chunks were encoded with. The names must be locked.
    fn record(&self, list: Vec<JournalRecord>) -> Result<()> {
        self.record_encoded(list, None)
    }

    /// Does the same for chunks that were encoded with the metadata in `said`.
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

    /// Records that the content or the attributes of a key changed: cached answers are invalid now.
    fn note_change(&self, key: &Key) {
        self.info.changes.record(key);
        self.note_copies_of(key);
    }

    /// Records the same for a key and everything below it.
    fn note_tree_change(&self, prefix: &Key) {
        self.info.changes.record_tree(prefix);
        self.note_copies_below(prefix);
    }

    /// Records that the top layer has a new content of a key.
    fn note_write(&self, key: &Key) {
        self.top().layer.lock().write_numbers.advance(key);
        self.note_change(key);
    }

    /// Records that the top layer no longer has a content of a key.
    fn note_removal(&self, key: &Key) {
        self.top().layer.lock().write_numbers.forget(key);
        self.note_change(key);
    }

    /// Whether length and digest of the store's object are recorded with the first change of a key. A local folder
    /// needs them: it identifies contents by a file's inode and change time, and these can change without the content.
    /// With write-through they are not needed, since changes are stored at once.
    fn takes_digests(&self) -> bool {
        self.store.info().folder.is_some() && !self.config.write_through
    }

    /// Whether length and digest are recorded for a content that was copied up. Without write-through they must be if
    /// the server sends no ETag.
    fn takes_digest_of(&self, version: Version) -> bool {
        let lacks_etag = !version.is_lasting() && !self.config.write_through;
        self.takes_digests() || lacks_etag
    }

    /// Returns the open file of a key, or `None` if it is not open.
    fn registered(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.open.lock().files.get(key)
    }

    /// Returns the open files at and below a prefix.
    fn registered_below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        self.open.lock().files.below(prefix)
    }

    /// Removes the key from its open file, whose content stays readable until the file is closed.
    fn detach(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.detach();
        }
    }

    /// Removes the key from its open file because the key got another content by a change other than a rename or
    /// removal: later writes to the file are refused.
    fn revoke(&self, key: &Key) {
        let file = self.open.lock().files.remove(key);
        if let Some(file) = file {
            file.revoke();
        }
    }

    /// Returns the attributes that a file or folder of the store gets at copy-up: the attributes in `stored`, the
    /// mount's owner where `stored` has none, and `modified` as its times.
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

/// Returns a change that sets only the mode.
fn mode(mode: u32) -> AttrChange {
    AttrChange {
        mode: Some(mode),
        ..AttrChange::default()
    }
}

/// Returns the error of a file operation on a folder, or of a folder operation on a file.
fn wrong_kind(key: &Key, is_folder: bool) -> Error {
    if is_folder {
        Error::new(Kind::IsADirectory, key, "is a directory")
    } else {
        Error::new(Kind::NotADirectory, key, "is not a directory")
    }
}
