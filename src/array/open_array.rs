//! An array opened: its metadata, how its chunks decode, and what of them is in memory.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::DirtyChunks;
use crate::array::lengths::VersionedLength;
use crate::array::read_tracker::ReadTrackers;
use crate::array::shard_group::ShardGroups;
use crate::array::stored_array::StoredArray;
use crate::array::versions::{ChunkVersions, LockedVersions, VersionState};
use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::model::Array;
use crate::store::{EncodedBy, Key, QueryStamp};
use crate::sync::budget::Reservation;

/// An array, ready to be read.
pub struct OpenArray {
    stored: Arc<StoredArray>,
    pub(super) decoder: Result<Arc<Decoder>>,
    /// The readers of its open files; `None` if the array cannot be decoded.
    pub(super) trackers: Option<Arc<ReadTrackers>>,
    /// Whether a warning was logged that memory has no room for a row of chunks.
    pub(super) has_warned: AtomicBool,
    pub(super) versions: ChunkVersions,
    /// Inner chunks that are read together.
    pub(super) groups: ShardGroups,
    /// What was written and is not stored yet.
    pub(super) dirty: Arc<DirtyChunks>,
    /// By which metadata chunks are encoded, once that was asked.
    pub(super) encoded_by: OnceLock<Option<EncodedBy>>,
    /// Lengths of files that had to be read to know them.
    pub(super) lengths: Mutex<HashMap<String, VersionedLength>>,
    /// Whether next to nothing of it was stored, and how old the answer is.
    pub(super) sparse: Mutex<Option<(bool, QueryStamp)>>,
    /// The room of the array in the memory budget, until its last holder drops it; nothing if there was none left.
    pub(super) room: Option<Reservation>,
}

impl Deref for OpenArray {
    type Target = StoredArray;

    fn deref(&self) -> &StoredArray {
        &self.stored
    }
}

impl OpenArray {
    /// Opens an array whose pending writes are in `dirty`, and which counts in `room`.
    pub(super) fn new(
        stored: Arc<StoredArray>,
        dirty: Arc<DirtyChunks>,
        room: Option<Reservation>,
    ) -> OpenArray {
        let engine = &stored.engine;
        let decoder = Decoder::new(stored.clone()).map(Arc::new);
        let chunks = stored.grid.as_ref().map_or(0, Grid::len);
        let decodable = decoder.as_ref().ok();
        let trackers = decodable.map(|decoder| Arc::new(ReadTrackers::new(decoder.pieces.clone())));
        if let (Some(spill), Some(trackers)) = (&engine.spill, &trackers)
            && decodable.is_some_and(|decoder| decoder.is_encoded())
        {
            spill.add(stored.id, trackers);
        }
        OpenArray {
            trackers,
            has_warned: AtomicBool::new(false),
            decoder,
            dirty,
            encoded_by: OnceLock::new(),
            groups: ShardGroups::default(),
            lengths: Mutex::default(),
            sparse: Mutex::default(),
            versions: ChunkVersions::new(stored.store().info(), chunks, &engine.metadata),
            room,
            stored,
        }
    }

    /// Returns a number that no other open array has: the same as long as the metadata mean the same files.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the metadata, without attributes.
    pub fn array(&self) -> &Array {
        &self.metadata
    }

    /// Returns the path of the array.
    pub fn path(&self) -> &Key {
        &self.path
    }

    /// Returns when the documents of the array had last been changed when it was opened.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Returns the grid of chunks as stored; it exists whether or not they decode.
    pub fn stored_grid(&self) -> Result<&Grid> {
        self.stored.grid()
    }

    /// Fails if the array cannot be decoded.
    pub fn check_decodable(&self) -> Result<()> {
        self.decoder().map(drop)
    }

    /// Takes room in the budget for bytes of this array.
    pub fn room(&self, bytes: u64) -> Result<Reservation> {
        self.reserve(bytes)
    }

    /// Whether stored chunks are their own decoded form, in files of this machine, in rows of at least `run` bytes:
    /// then the kernel's cache of the files is all the cache they need.
    pub(super) fn reads_direct(&self, run: u64) -> bool {
        let Ok(decoder) = self.decoder() else {
            return false;
        };
        let row = decoder.stored.chunk_shape().last().copied().unwrap_or(1);
        !decoder.is_encoded()
            && self.store().info().folder.is_some()
            && row.saturating_mul(self.element as u64) >= run
    }

    /// Returns what is known of the version of a stored chunk.
    pub(super) fn version_state(&self, stored: u64) -> VersionState {
        self.version_in(&self.versions.lock(), stored, self.versions.now())
    }

    /// Like `version_state`, in the locked table.
    pub(super) fn version_in(
        &self,
        versions: &LockedVersions<'_>,
        stored: u64,
        now: Instant,
    ) -> VersionState {
        versions.of(stored, now, || self.stored_keys(stored))
    }

    pub(super) fn decoder(&self) -> Result<&Arc<Decoder>> {
        self.decoder.as_ref().map_err(Error::clone)
    }
}
