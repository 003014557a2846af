//! Returns the current version of each stored chunk of an array.
//!
//! A valid version in the table is returned without a request; otherwise the store is asked.

use std::sync::Arc;
use std::time::Instant;

use crate::array::page_version::PageVersion;
use crate::array::stored_array::StoredArray;
use crate::array::version_table::{LockedVersions, VersionState, VersionTable};
use zarr_format::error::Result;
use zarr_format::grid::Grid;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{LogPosition, QueryStamp, Version};

/// The versions of the stored chunks of an array, by number in the grid of stored chunks.
pub(super) struct ChunkVersions {
    array: Arc<StoredArray>,
    table: VersionTable,
}

/// The locked version table at one time; other lookups may run concurrently.
pub(super) struct KnownVersions<'a> {
    array: &'a StoredArray,
    table: LockedVersions<'a>,
    now: Instant,
}

impl KnownVersions<'_> {
    /// Returns the state of a stored chunk's version.
    pub(super) fn of(&self, number: u64) -> VersionState {
        let keys = || self.array.stored_keys(number);
        self.table.of(number, self.now, keys)
    }
}

impl ChunkVersions {
    /// Creates the table; no version is known yet.
    pub(super) fn new(array: Arc<StoredArray>) -> Arc<ChunkVersions> {
        let chunks = array.grid.as_ref().map_or(0, Grid::len);
        let table = VersionTable::new(array.store().info(), chunks, &array.engine.metadata);
        Arc::new(ChunkVersions { array, table })
    }

    /// Locks the table for several lookups.
    pub(super) fn lock(&self) -> KnownVersions<'_> {
        KnownVersions {
            array: &self.array,
            now: self.table.now(),
            table: self.table.lock(),
        }
    }

    /// Returns the state of a stored chunk's version.
    pub(super) fn state(&self, number: u64) -> VersionState {
        self.lock().of(number)
    }

    /// Asks the store for the version of a stored chunk; returns `None` if the chunk is missing.
    pub(super) fn fetch(&self, context: &RequestContext, number: u64) -> Result<Option<Version>> {
        let keys = self.array.stored_keys(number)?;
        let (version, stamp) = self.array.ask(context, |context, store| {
            let mut versions = keys
                .iter()
                .map(|key| store.version(context, key).transpose());
            versions.find_map(|version| version).transpose()
        });
        let version = version?;
        self.note(number, version, stamp);
        Ok(version)
    }

    /// Asks the store again about all chunks with stale versions; returns false if these may be too many.
    pub(super) fn refresh(&self, context: &RequestContext) -> Result<bool> {
        let keys = |number| self.array.stored_keys(number);
        let Some(stale) = self.table.stale(keys) else {
            return Ok(false);
        };
        for number in stale {
            self.fetch(context, number)?;
        }
        if let Some(oldest) = self.table.oldest() {
            context.record_age(oldest);
        }
        Ok(true)
    }

    /// Records the version of a chunk that the store returned.
    pub(super) fn note(&self, number: u64, version: Option<Version>, stamp: QueryStamp) {
        self.table.note(number, version, stamp);
    }

    /// Records the version of a chunk that was put; the content that readers see is the same.
    pub(super) fn note_put(&self, number: u64, version: Version, stamp: QueryStamp) {
        self.table.note_put(number, version, stamp);
    }

    /// Returns the content number, which changes with each change of a version that was seen.
    pub(super) fn content(&self) -> &PageVersion {
        self.table.content()
    }

    /// Whether a chunk that was read may have been changed through the store since a position.
    pub(super) fn may_have_changed(&self, since: LogPosition) -> bool {
        let keys = |number| self.array.stored_keys(number);
        self.array.chunks_may_have_changed(since) && self.table.may_have_changed(since, keys)
    }
}
