//! What a read wants of one piece.
//!
//! A read that finds a piece missing in memory is answered later by another thread. It keeps the parts that it has
//! computed for that thread, so that they are computed once.

use parking_lot::Mutex;
use std::ops::Range;

use crate::grid::{ChunkIndex, Coordinates, Region};

/// A piece under a read and what of it is wanted.
pub(super) struct ChunkSlice {
    pub(super) piece: ChunkIndex,
    /// The piece's first element.
    pub(super) start: Coordinates,
    /// The elements that are wanted.
    pub(super) region: Region,
}

impl ChunkSlice {
    pub(super) fn new(piece: ChunkIndex, start: &[u64], region: &Region) -> ChunkSlice {
        ChunkSlice {
            piece,
            start: Coordinates::from_slice(start),
            region: region.clone(),
        }
    }

    /// Whether another part is of the same piece.
    pub(super) fn is_of_same_piece(&self, other: &ChunkSlice) -> bool {
        self.piece == other.piece
    }
}

/// The parts of the range that a flat file was asked for last and could not answer from memory.
#[derive(Default)]
pub(super) struct PendingSlices(Mutex<Option<(Range<u64>, Vec<ChunkSlice>)>>);

impl PendingSlices {
    /// Keeps the parts of a range for the thread that will read it.
    pub(super) fn keep(&self, range: Range<u64>, parts: Vec<ChunkSlice>) {
        *self.0.lock() = Some((range, parts));
    }

    /// Takes the parts of a range, if they were kept and not taken yet.
    pub(super) fn take(&self, range: &Range<u64>) -> Option<Vec<ChunkSlice>> {
        let mut kept = self.0.lock();
        let (_, parts) = kept.take_if(|(kept, _)| kept == range)?;
        Some(parts)
    }
}
