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
//! let config = OverlayConfig::default();
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
//! and the attributes of keys whose content was not written (`attribute_override`). A reader finds the layer's file
//! first, then the store's object, unless a whiteout hides it. After a crash, each key has the state before or after
//! its last change. `changes` lists the changes, `discard` drops them, `moved_store` recognizes a store that was moved,
//! and `encodings` records the metadata that chunks were encoded with. `commit` freezes the layer and puts an empty
//! layer over it in one step. Programs continue in the new layer, while the commit writes the frozen layer to the store
//! and then drops it.
//!
//! Locks are taken in this order. `path_locks`, only with write-through: changes of one path run one after the other,
//! until the store has them. `names`: one change of names, publication of a file or exchange of layers at a time. Then
//! the state of an open file, the table of open files, and the state of a layer. Of these, only `path_locks` is held
//! during a request to the store, so a store that does not answer blocks only the requests that need its answer:
//! `name_change` queries the store before it locks. Two further locks are also held during requests. `committing` is
//! held during a commit or a discard, and taken before all others. `copying` is held while copies in consolidated
//! metadata are updated (`commit/copies`), and taken after `path_locks`.
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

use crate::changes::ChangeSet;
use crate::commit::{CommitConfig, Outcome, ProgressFn};
use crate::derived::DerivedCache;
use crate::encodings::EncodingCache;
use crate::layer::{ChangeLayer, Generations};
use crate::layered_store::LayeredStore;
use crate::open_file::table::{FailedWritesTable, FileIds, OpenFileTable, OpenState};
use crate::overlay_core::OverlayCore;
use crate::upper::Upper;
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::{Mutex, RwLock};
use zarrfs_store::{Hints, Key, PathLocks, Store, StoreInfo, StoreStack};

mod attribute_override;
mod attributes;
pub mod changes;
pub mod commit;
mod content;
pub mod copy;
mod derived;
mod discard;
mod encodings;
mod journal;
mod journal_record;
mod layer;
mod layer_dir;
mod layered_store;
mod listing;
mod lower_answers;
mod marks;
mod moved_store;
mod name_change;
mod open_file;
mod overlay_core;
mod pending_folder;
mod pending_object;
mod program_copies;
mod records;
mod recovery;
mod rename;
#[cfg(test)]
mod schedules;
mod store;
#[cfg(test)]
mod testing;
mod tree;
mod upper;

pub use discard::Discarded;
pub use journal_record::ContentDigest;
pub use records::BaseVersion;
pub use upper::belongs_to;

/// Options of an overlay.
#[derive(Clone, Debug, Default)]
pub struct OverlayConfig {
    /// User ID of the upper folder's copies of objects and folders that have no owner in the store.
    pub uid: u32,
    /// Group ID of the upper folder's copies of objects and folders that have no group in the store.
    pub gid: u32,
    /// Write-through: whether each change goes to the store at once. The content of a file is put when the file is
    /// flushed; a change of a name is made when the program makes it.
    pub write_through: bool,
}

/// A writable overlay over a store. Clones share the same state.
#[derive(Clone)]
pub struct Overlay(Arc<OverlayCore>);

impl Overlay {
    /// Opens the upper folder at `path` over a store, and recovers the folder after a crash. `place` is the store's
    /// path or URL without secrets.
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

    /// Opens an existing upper folder whose store may have moved since, and recovers the folder after a crash. The
    /// folder still belongs to the store's old place until `rebind` is called.
    ///
    /// Errors: as for `open`, and `Invalid` if the store is clearly another one, because it has none of the keys that
    /// were changed in the folder.
    pub fn open_moved(
        context: &RequestContext,
        path: &Path,
        store: Arc<dyn Store>,
        place: &str,
        config: OverlayConfig,
    ) -> Result<Overlay> {
        check_writes_through(&*store, place, &config)?;
        let overlay = Overlay::over(Upper::open(path, None)?, store, place, config)?;
        moved_store::check(&overlay.0, context)?;
        Ok(overlay)
    }

    /// Makes the upper folder belong to the place of the store that it was opened over.
    pub fn rebind(&self) -> Result<()> {
        self.0.upper.rebind(&self.0.place)
    }

    /// Returns the path or URL of the store below the overlay.
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
        let paths = upper.top();
        let layer = ChangeLayer::open(&paths, Generations::default())?;
        let frozen = open_frozen(&upper, &store, &info, &layer)?;
        recovery::recover(&upper, &layer, &paths.keys, None)?;
        // Recovery no longer needs the folder `pending/`, so move its incomplete files to where the user finds them.
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
            derived: DerivedCache::default(),
            encoding_cache: EncodingCache::default(),
            is_syncing: AtomicBool::new(false),
            open: Mutex::new(OpenState {
                files: OpenFileTable::default(),
                failed_writes: FailedWritesTable::default(),
                ids: FileIds::default(),
            }),
            info,
        })))
    }

    /// Returns the store below the overlay. Only commits change it.
    pub fn lower(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Returns a stack of stores with the overlay at its top. `below` are the hints of the overlay's store.
    pub fn stack(&self, below: Arc<dyn Hints>) -> StoreStack {
        let overlay = self.clone();
        StoreStack {
            store: Arc::new(self.clone()),
            hints: Arc::new(store::OverlayHints { overlay, below }),
            tree: Some(Arc::new(self.clone())),
            repository: None,
        }
    }

    /// Returns the differences between the overlay and its store, including those of an unfinished commit. The store is
    /// listed where folders were renamed or removed; if it cannot list its keys, only known keys are returned.
    pub fn changes(&self, context: &RequestContext) -> Result<ChangeSet> {
        ChangeSet::of_overlay(&self.0.top(), context)
    }

    /// Commits all changes that are complete when the commit begins. Later writes stay in the upper folder. If an error
    /// ends the commit after its first change of the store, the error is in the outcome.
    pub fn commit(
        &self,
        context: &RequestContext,
        config: CommitConfig,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        commit::run(&self.0, context, config, progress)
    }

    /// Discards the changes at and below a path, after a running commit has ended. Open files keep their content until
    /// they are closed, and refuse further writes. Files that were renamed to the path from elsewhere get their old
    /// names back.
    ///
    /// Errors: `NotFound` if there are no changes. `Invalid` if something was renamed from the path to elsewhere, or if
    /// the old name of something that was renamed to the path is in use.
    pub fn discard(&self, context: &RequestContext, path: &Key) -> Result<Discarded> {
        discard::run(&self.0, context, path)
    }

    /// Whether a commit or a discard is running.
    pub fn is_at_work(&self) -> bool {
        self.0.committing.try_lock().is_none()
    }

    /// Returns the paths of rescued files: files that were incomplete when the process was killed or the machine
    /// stopped.
    pub fn rescued(&self) -> Result<Vec<String>> {
        self.0.upper.rescued_files()
    }

    /// Syncs all changes and marks the upper folder as synced, so that the next opening skips its checks.
    pub fn close(&self) -> Result<()> {
        self.0.close()
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

/// Opens the frozen layer that an interrupted commit has left, and recovers it; returns `None` if there is none.
/// `above` is the top layer.
fn open_frozen(
    upper: &Upper,
    store: &Arc<dyn Store>,
    info: &StoreInfo,
    above: &ChangeLayer,
) -> Result<Option<Arc<LayeredStore>>> {
    let Some(paths) = upper.frozen() else {
        return Ok(None);
    };
    let layer = ChangeLayer::open(&paths, Generations::default())?;
    layer.lock().records.forget_attributes();
    recovery::recover(upper, &layer, &paths.keys, Some(above))?;
    Ok(Some(Arc::new(LayeredStore {
        layer: Arc::new(layer),
        lower: store.clone(),
        frozen: None,
        info: info.clone(),
    })))
}
