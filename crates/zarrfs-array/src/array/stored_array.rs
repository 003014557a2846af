//! Describes a stored array: its path, its metadata and its chunk grid.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::array::Engine;
use crate::array::chunk::CacheKey;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid};
use zarr_format::model::Array;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, LogPosition, MovingPosition, QueryStamp, Store, StoreInfo};

/// An array in a store, whether or not its chunks can be decoded.
pub(super) struct StoredArray {
    /// The number of the array, which is unique for each time that an array is opened.
    pub(super) id: u64,
    pub(super) path: Key,
    pub(super) modified: SystemTime,
    /// How many times the whole store (a ZIP archive, for example) had been replaced when the metadata were read.
    replacements: u64,
    /// The last version of the metadata documents that was found to describe this array.
    same_version: AtomicU64,
    /// The metadata without attributes, which are not needed to read data.
    pub(super) metadata: Arc<Array>,
    pub(super) element: usize,
    pub(super) grid: Result<Grid>,
    /// For an array of a draft version of Zarr v3: the key of its metadata document and the folder of its chunks.
    pub(super) draft_keys: Option<(Key, Key)>,
    hierarchy: Arc<Hierarchy>,
    pub(super) info: StoreInfo,
    pub(super) engine: Arc<Engine>,
    checked: MetadataCheck,
}

/// When the metadata were last checked to be those that the array was opened with.
struct MetadataCheck {
    /// The time from which `fresh` is counted.
    start: Instant,
    /// The time until which the check is valid, in nanoseconds after `start`.
    fresh: AtomicU64,
    /// The position in the change log at the time of the check. The next change in the log invalidates the check.
    position: MovingPosition,
}

impl StoredArray {
    /// Creates the description of an array from its node in the hierarchy.
    pub(super) fn new(
        entry: &NodeEntry,
        metadata: Arc<Array>,
        hierarchy: Arc<Hierarchy>,
        engine: Arc<Engine>,
    ) -> Arc<StoredArray> {
        Arc::new(StoredArray {
            id: engine.last_id.fetch_add(1, Ordering::Relaxed) + 1,
            path: entry.path.clone(),
            modified: entry.modified,
            replacements: entry.replacements,
            same_version: AtomicU64::new(entry.version),
            element: metadata.element_size().unwrap_or(0),
            grid: Grid::of(&metadata).map_err(|error| error.about(&entry.path)),
            draft_keys: hierarchy.draft_keys(entry),
            checked: MetadataCheck {
                start: hierarchy.store().info().clock.now(),
                fresh: AtomicU64::new(0),
                position: MovingPosition::new(LogPosition::default()),
            },
            info: hierarchy.store().info().clone(),
            metadata,
            hierarchy,
            engine,
        })
    }

    /// Returns the grid of stored chunks, which is known even if the chunks cannot be decoded.
    pub(super) fn grid(&self) -> Result<&Grid> {
        self.grid.as_ref().map_err(Error::clone)
    }

    pub(super) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Adds a hint to the error that a chunk is too large: the command-line option that raises the limit.
    pub(super) fn with_option(&self, error: Error) -> Error {
        let is_variable = self.metadata.data_type.is_variable();
        match error.kind() {
            Kind::TooLarge if is_variable => self.engine.with_option(error, is_variable),
            _ => error,
        }
    }

    pub(super) fn chunk_key(&self, chunk: ChunkIndex) -> CacheKey {
        CacheKey::of_chunk(self.id, chunk)
    }

    /// Returns the store keys that a chunk may have (one for each key separator), by the indices of the chunk.
    pub(super) fn keys(&self, indices: &[u64]) -> Result<Vec<Key>> {
        self.metadata
            .keys
            .candidates(indices)
            .into_iter()
            .map(Key::new)
            .collect()
    }
    /// Returns the store keys that a chunk may have (one for each key separator), by the number of the chunk.
    pub(super) fn stored_keys(&self, number: u64) -> Result<Vec<Key>> {
        self.keys(&self.grid()?.indices(ChunkIndex(number)))
    }

    /// Returns the store key that a chunk has, or its first possible key if the chunk is not stored.
    pub(super) fn key_of(&self, context: &RequestContext, indices: &[u64]) -> Result<Key> {
        let keys = self.keys(indices)?;
        if keys.len() > 1 {
            for key in &keys {
                if self.store().version(context, key)?.is_some() {
                    return Ok(key.clone());
                }
            }
        }
        let none = || Error::unsupported(&self.path, "the chunks have no keys");
        keys.into_iter().next().ok_or_else(none)
    }

    /// Sends a request to the store; returns the answer, and the time and log position of the request.
    pub(super) fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        let store = self.store();
        self.info.ask(context, |context| question(context, store))
    }

    /// Whether any key in the folder of the array's chunks was changed through the store since a position in the change
    /// log.
    pub(super) fn chunks_may_have_changed(&self, since: LogPosition) -> bool {
        let folder = Key::new(self.metadata.keys.folder());
        let log = &self.info.changes;
        // A zero-dimensional array counts as changed, because the key of its only chunk may be outside of the folder.
        self.metadata.shape.is_empty()
            || folder.is_ok_and(|folder| log.below_changed_since(since, &folder))
    }

    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let room = self.engine.cache.reserve(bytes, self.engine.deadline());
        room.map_err(|error| error.about(&self.path))
    }

    pub(super) fn document_version(&self) -> u64 {
        self.same_version.load(Ordering::Relaxed)
    }

    /// Whether a node of the hierarchy is still this array with the same files; its attributes may differ.
    pub(super) fn is_same(&self, found: &NodeEntry) -> bool {
        if found.replacements != self.replacements {
            return false;
        }
        if found.version == self.same_version.load(Ordering::Relaxed) {
            return true;
        }
        let is_like = |array: &Array| {
            array.shape == self.metadata.shape && array.is_stored_like(&self.metadata)
        };
        let is_same = found.array().is_some_and(is_like);
        if is_same {
            self.same_version.store(found.version, Ordering::Relaxed);
        }
        is_same
    }

    /// Fails with `Changed` if the array's metadata differ from those that the array was opened with.
    pub(super) fn check_metadata(&self, context: &RequestContext) -> Result<()> {
        match self.hierarchy.node(context, &self.path)? {
            Some(found) if self.is_same(&found) => Ok(()),
            _ => {
                self.checked.fresh.store(0, Ordering::Relaxed);
                Err(self.changed())
            }
        }
    }

    /// Fails with `Changed` if new metadata give the stored chunks another meaning; the shape of the array may differ.
    pub(super) fn check_chunks_hold(&self, context: &RequestContext) -> Result<()> {
        let found = self.hierarchy.node(context, &self.path)?;
        let array = found.as_deref().and_then(NodeEntry::array);
        match array {
            Some(array) if array.is_stored_like(&self.metadata) => self.check_store(),
            _ => Err(self.changed()),
        }
    }

    /// Whether the whole store is still the one that the metadata were read from: chunks of an archive and of its
    /// replacement must never be mixed.
    pub(super) fn has_same_store(&self) -> bool {
        self.info.archive_generation.number() == self.replacements
    }

    /// Fails with `Changed` if the whole store was replaced. If the check succeeds, all reads before it came from one
    /// store.
    pub(super) fn check_store(&self) -> Result<()> {
        if self.has_same_store() {
            return Ok(());
        }
        Err(self.changed())
    }

    fn changed(&self) -> Error {
        let why = if self.has_same_store() {
            "the metadata changed while a file was open"
        } else {
            "the zip archive was replaced while a file was open"
        };
        Error::new(Kind::Changed, &self.path, why)
    }

    /// Whether the metadata are known at the time `now` to be those that the array was opened with. Sends no request;
    /// takes no lock until the TTL of the metadata ends or something is changed through the store. Call
    /// `has_same_store` after the read.
    pub(super) fn has_current_metadata(&self, now: Instant) -> bool {
        let MetadataCheck {
            start,
            fresh,
            position,
        } = &self.checked;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let age = nanoseconds(now.saturating_duration_since(*start));
        // The log position is read before the node is looked up, so that no change after the lookup is missed.
        let present = self.info.changes.position();
        if present == position.get() && age < fresh.load(Ordering::Relaxed) {
            return true;
        }
        let Some(answer) = self.hierarchy.cached_answer(&self.path) else {
            return false;
        };
        if !answer.found.is_some_and(|found| self.is_same(&found)) {
            fresh.store(0, Ordering::Relaxed);
            return false;
        }
        let asked = answer.asked;
        let left = asked
            .saturating_duration_since(*start)
            .saturating_add(self.info.freshness);
        let left = left.saturating_sub(start.saturating_duration_since(asked));
        fresh.store(nanoseconds(left), Ordering::Relaxed);
        position.set(present);
        true
    }
}
