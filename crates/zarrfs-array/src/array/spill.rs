//! Spills evicted chunks to disk that a sequential reader still needs.
//!
//! A spilled chunk is read back instead of decoded again, and is valid only for its version. `read_tracker` decides
//! which chunks are needed; `spill_file` stores them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::array::chunk::Cached;
use crate::array::read_tracker::ReadTrackers;
use crate::array::spill_file;
use crate::array::spill_file::{SpillConfig, SpillFile, SpilledChunk};
use zarr_format::grid::{ChunkIndex, Runs};
use zarrfs_store::Version;
use zarrfs_store::stats::Stats;

/// The maximum number of unneeded chunks that are dropped for each chunk that is written.
const DROPPED_AT_ONCE: usize = 4;

/// The spilled chunks of a mount's arrays.
pub(super) struct Spill {
    file: SpillFile,
    /// The trackers of the arrays that may have spilled chunks, by array number.
    arrays: Mutex<HashMap<u64, Weak<ReadTrackers>>>,
    stats: Arc<Stats>,
}

impl Spill {
    /// Creates the spill file, or returns `None` if no folder allows it.
    pub(super) fn open(config: &SpillConfig, memory: u64, stats: Arc<Stats>) -> Option<Spill> {
        let file = spill_file::open(config, memory)?;
        Some(Spill {
            file,
            arrays: Mutex::default(),
            stats,
        })
    }

    /// Spills an evicted chunk if a sequential reader still needs it.
    pub(super) fn write_evicted(&self, chunk: SpilledChunk, value: &Cached) {
        let Cached::Chunk(decoded) = value else {
            return;
        };
        // A chunk that was read from the file may have been dropped there since.
        let is_there = decoded.is_on_disk && self.file.has(&chunk);
        if is_there || !decoded.version.is_lasting() || !self.is_needed(&chunk) {
            return;
        }
        self.drop_unwanted(DROPPED_AT_ONCE);
        if self.file.write(chunk, decoded.version, decoded.bytes()) {
            self.stats.spill_written_chunks.add(1);
        }
    }

    /// Registers an array that may spill chunks.
    pub(super) fn add(&self, array: u64, trackers: &Arc<ReadTrackers>) {
        let mut arrays = self.arrays.lock();
        arrays.retain(|_, trackers| trackers.strong_count() > 0);
        arrays.insert(array, Arc::downgrade(trackers));
    }

    /// Whether a sequential reader still needs a chunk.
    fn is_needed(&self, chunk: &SpilledChunk) -> bool {
        let trackers = self.arrays.lock().get(&chunk.0).and_then(Weak::upgrade);
        trackers.is_some_and(|trackers| trackers.is_needed(ChunkIndex(chunk.1)))
    }

    /// Drops the oldest chunks that no reader needs, at most `most` of them.
    pub(super) fn drop_unwanted(&self, most: usize) {
        self.file
            .drop_unwanted(most, |chunk| !self.is_needed(chunk));
    }

    /// Whether the empty file would have room for `bytes` bytes.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        self.file.has_room_for(bytes)
    }

    /// Whether the file has no chunks.
    pub(super) fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// Whether the file has any version of a chunk.
    pub(super) fn has(&self, chunk: &SpilledChunk) -> bool {
        self.file.has(chunk)
    }

    /// Returns the `length` bytes of a chunk of this version, or `None` if they are not in the file.
    pub(super) fn find(
        &self,
        chunk: &SpilledChunk,
        version: Version,
        length: usize,
    ) -> Option<Vec<u8>> {
        let bytes = self.file.read(chunk, version, length)?;
        self.stats.spill_hit_chunks.add(1);
        Some(bytes)
    }

    /// Reads runs of such a chunk into their places in `out`; returns false if the chunk is not in the file.
    pub(super) fn find_runs(
        &self,
        chunk: &SpilledChunk,
        version: Version,
        length: usize,
        runs: &Runs,
        out: &mut [u8],
    ) -> bool {
        let is_found = self.file.read_runs(chunk, version, length, runs, out);
        self.stats.spill_hit_chunks.add(u64::from(is_found));
        is_found
    }
}
