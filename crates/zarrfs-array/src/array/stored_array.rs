//! An array as it is in the store: its place, its metadata and the grid of its chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::array::Engine;
use crate::hierarchy::{Hierarchy, NodeEntry};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Grid};
use zarr_format::model::Array;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, LogPosition, QueryStamp, Store};

/// An array of a store, which may not decode.
pub struct StoredArray {
    /// Different for each array that is opened.
    pub(super) id: u64,
    pub(super) path: Key,
    /// When its documents had last been changed when it was opened.
    pub(super) modified: SystemTime,
    /// How often all of the store had been replaced when its documents were read.
    replacements: u64,
    /// The version of the node's documents that were last found to describe this array.
    same_version: AtomicU64,
    /// Without attributes, which are not needed to read data.
    pub(super) metadata: Arc<Array>,
    /// Bytes of an element; 0 if that is unknown.
    pub(super) element: usize,
    pub(super) grid: Result<Grid>,
    /// The document and the folder of the chunks, for an array of a draft.
    pub(super) draft_keys: Option<(Key, Key)>,
    pub(super) hierarchy: Arc<Hierarchy>,
    pub(super) engine: Arc<Engine>,
}

impl StoredArray {
    /// Takes what a node says of an array.
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
            metadata,
            hierarchy,
            engine,
        })
    }

    /// Returns the grid of chunks as stored; it exists whether or not they decode.
    pub(super) fn grid(&self) -> Result<&Grid> {
        self.grid.as_ref().map_err(Error::clone)
    }

    /// Returns the store.
    pub(super) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Returns an error about a chunk that does not fit with the option that gives it more room.
    pub fn with_option(&self, error: Error) -> Error {
        let is_variable = self.metadata.data_type.is_variable();
        match error.kind() {
            Kind::TooLarge if is_variable => self.engine.with_option(error, is_variable),
            _ => error,
        }
    }

    /// Returns the keys that a chunk may be stored under, by its indices.
    pub(super) fn keys(&self, indices: &[u64]) -> Result<Vec<Key>> {
        self.metadata
            .keys
            .candidates(indices)
            .into_iter()
            .map(Key::new)
            .collect()
    }
    /// Returns the keys that a chunk may be stored under, by its number.
    pub(super) fn stored_keys(&self, number: u64) -> Result<Vec<Key>> {
        self.keys(&self.grid()?.indices(ChunkIndex(number)))
    }

    /// Returns the key that a chunk is stored under, or the first that it may have.
    pub(super) fn key_of(&self, context: &RequestContext, indices: &[u64]) -> Result<Key> {
        let keys = self.keys(indices)?;
        if keys.len() > 1 {
            for key in &keys {
                if self.store().version(context, key)?.is_some() {
                    return Ok(key.clone());
                }
            }
        }
        let none = || Error::unsupported(&self.path, "its chunks have no keys");
        keys.into_iter().next().ok_or_else(none)
    }

    /// Asks the store; returns its answer and how old that is.
    pub(super) fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        let store = self.store();
        store
            .info()
            .ask(context, |context| question(context, store))
    }

    /// Whether anything was changed through the store since a position in the folder that all chunks lie in.
    pub(super) fn chunks_may_have_changed(&self, since: LogPosition) -> bool {
        let folder = Key::new(self.metadata.keys.folder());
        let log = &self.store().info().changes;
        // The only chunk of an array without dimensions has a key of its own.
        self.metadata.shape.is_empty()
            || folder.is_ok_and(|folder| log.below_changed_since(since, &folder))
    }

    /// Takes room in the budget for bytes of this array.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let room = self.engine.cache.reserve(bytes, self.engine.deadline());
        room.map_err(|error| error.about(&self.path))
    }

    /// Returns the version of the documents that were last found to describe this array.
    pub(super) fn document_version(&self) -> u64 {
        self.same_version.load(Ordering::Relaxed)
    }

    /// Whether a node is this array with the same files: only attributes may have changed.
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

    /// Fails with `Changed` if the metadata are no longer those that the array was opened with.
    pub(super) fn check_metadata(&self, context: &RequestContext) -> Result<()> {
        match self.hierarchy.node(context, &self.path)? {
            Some(found) if self.is_same(&found) => Ok(()),
            _ => Err(self.changed()),
        }
    }

    /// Fails with `Changed` if the metadata give stored chunks another meaning by now; the shape may be another.
    pub(super) fn check_chunks_hold(&self, context: &RequestContext) -> Result<()> {
        let found = self.hierarchy.node(context, &self.path)?;
        let array = found.as_deref().and_then(NodeEntry::array);
        match array {
            Some(array) if array.is_stored_like(&self.metadata) => self.check_store(),
            _ => Err(self.changed()),
        }
    }

    /// Whether all of the store is as it was when the metadata were read: chunks of an archive and of another one that has
    /// taken its place are never mixed.
    pub(super) fn store_holds(&self) -> bool {
        self.store().info().replacements.count() == self.replacements
    }

    /// Fails with `Changed` if it is not. What was read before the call is of the one content.
    pub(super) fn check_store(&self) -> Result<()> {
        if self.store_holds() {
            return Ok(());
        }
        Err(self.changed())
    }

    fn changed(&self) -> Error {
        let why = if self.store_holds() {
            "the metadata changed while a file was open"
        } else {
            "the archive was replaced while a file was open"
        };
        Error::new(Kind::Changed, &self.path, why)
    }

    /// Whether the metadata are known to be those that the array was opened with, without asking.
    pub(super) fn metadata_hold(&self, context: &RequestContext) -> bool {
        let known = self.hierarchy.node(&context.without_waiting(), &self.path);
        matches!(known, Ok(Some(found)) if self.is_same(&found))
    }
}
