//! Describes the elements of a chunk that a read wants.
//!
//! A read that needs a chunk which is not in memory is answered later by another thread. It keeps its slices for that
//! thread, so that they are computed once.

use parking_lot::Mutex;
use std::ops::Range;

use zarr_format::grid::{ChunkIndex, Coordinates, Region};

/// A chunk under a read, and the elements wanted of it.
pub(super) struct ChunkSlice {
    pub(super) chunk: ChunkIndex,
    /// The chunk's first element.
    pub(super) start: Coordinates,
    /// The wanted elements.
    pub(super) region: Region,
}

impl ChunkSlice {
    pub(super) fn new(chunk: ChunkIndex, start: &[u64], region: &Region) -> ChunkSlice {
        ChunkSlice {
            chunk,
            start: Coordinates::from_slice(start),
            region: region.clone(),
        }
    }

    /// Whether both slices are of the same chunk.
    pub(super) fn is_of_same_chunk(&self, other: &ChunkSlice) -> bool {
        self.chunk == other.chunk
    }
}

/// The slices of the last range of a flat file that could not be answered from memory.
#[derive(Default)]
pub(super) struct PendingSlices(Mutex<Option<(Range<u64>, Vec<ChunkSlice>)>>);

impl PendingSlices {
    /// Keeps the slices of a range for the thread that will read it.
    pub(super) fn keep(&self, range: Range<u64>, slices: Vec<ChunkSlice>) {
        *self.0.lock() = Some((range, slices));
    }

    /// Takes the slices of a range, if they were kept.
    pub(super) fn take(&self, range: &Range<u64>) -> Option<Vec<ChunkSlice>> {
        let mut kept = self.0.lock();
        let (_, slices) = kept.take_if(|(kept, _)| kept == range)?;
        Some(slices)
    }
}
