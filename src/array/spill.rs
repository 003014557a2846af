//! Decoded pieces on disk: those that left the cache although a reader in order has still to read them.
//!
//! A piece is read back instead of being decoded again, and only for the content that it was decoded of. `read_tracker`
//! says which pieces are needed; `spill_file` keeps them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::array::piece::Cached;
use crate::array::read_tracker::ReadTrackers;
use crate::array::spill_file;
use crate::array::spill_file::{SpillConfig, SpillFile, SpilledPiece};
use crate::grid::{ChunkIndex, Runs};
use crate::stats::Stats;
use crate::store::Version;

/// How many pieces without a reader leave the file for each that comes.
const DROPPED_AT_ONCE: usize = 4;

/// The pieces of a mount's arrays on disk.
pub(super) struct Spill {
    file: SpillFile,
    /// The readers of the arrays that may have pieces there.
    arrays: Mutex<HashMap<u64, Weak<ReadTrackers>>>,
    stats: Arc<Stats>,
}

impl Spill {
    /// Opens the file; nothing if there can be none.
    pub(super) fn open(config: &SpillConfig, memory: u64, stats: Arc<Stats>) -> Option<Spill> {
        let file = spill_file::open(config, memory)?;
        Some(Spill {
            file,
            arrays: Mutex::default(),
            stats,
        })
    }

    /// Writes an evicted piece to disk, if a sequential reader still needs it.
    pub(super) fn write_evicted(&self, piece: SpilledPiece, value: &Cached) {
        let Cached::Chunk(decoded) = value else {
            return;
        };
        // A piece that was read from disk may have been dropped there since.
        let is_there = decoded.is_on_disk && self.file.has(&piece);
        if is_there || !decoded.version.is_lasting() || !self.is_needed(&piece) {
            return;
        }
        self.drop_unwanted(DROPPED_AT_ONCE);
        if self.file.write(piece, decoded.version, decoded.bytes()) {
            self.stats.spill_written_chunks.add(1);
        }
    }

    /// Notes that an array may have pieces on disk.
    pub(super) fn add(&self, array: u64, trackers: &Arc<ReadTrackers>) {
        let mut arrays = self.arrays.lock();
        arrays.retain(|_, trackers| trackers.strong_count() > 0);
        arrays.insert(array, Arc::downgrade(trackers));
    }

    /// Whether a sequential reader still needs a piece.
    fn is_needed(&self, piece: &SpilledPiece) -> bool {
        let trackers = self.arrays.lock().get(&piece.0).and_then(Weak::upgrade);
        trackers.is_some_and(|trackers| trackers.is_needed(ChunkIndex(piece.1)))
    }

    /// Drops the oldest pieces that no reader needs, at most `most`.
    pub(super) fn drop_unwanted(&self, most: usize) {
        self.file
            .drop_unwanted(most, |piece| !self.is_needed(piece));
    }

    /// Whether so many bytes of pieces have room there.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        self.file.has_room_for(bytes)
    }

    /// Whether no piece is on disk.
    pub(super) fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// Whether some content of a piece is on disk.
    pub(super) fn has(&self, piece: &SpilledPiece) -> bool {
        self.file.has(piece)
    }

    /// Returns the bytes of a piece if they are on disk, of this version and `length` many.
    pub(super) fn find(
        &self,
        piece: &SpilledPiece,
        (version, length): (Version, usize),
    ) -> Option<Vec<u8>> {
        let bytes = self.file.read(piece, version, length)?;
        self.stats.spill_hit_chunks.add(1);
        Some(bytes)
    }

    /// Reads runs of such a piece into their places in `out`; false if it is not there.
    pub(super) fn find_runs(
        &self,
        piece: &SpilledPiece,
        content: (Version, usize),
        runs: &Runs,
        out: &mut [u8],
    ) -> bool {
        let is_found = self.file.read_runs(piece, content, runs, out);
        self.stats.spill_hit_chunks.add(u64::from(is_found));
        is_found
    }
}
