//! Has the chunks of one read decoded by the engine's threads.

use std::sync::atomic::Ordering;

use crate::array::chunk_slice::ChunkSlice;
use crate::array::prefetcher::Taken;
use crate::array::read_ahead::ReadAhead;
use zarr_format::grid::ChunkIndex;

/// The chunks of a read beside the one that it takes itself, which are decoded by the engine's threads.
pub(super) struct ParallelDecode<'a> {
    file: &'a ReadAhead,
    /// Each once, in the order in which they are taken.
    chunks: Vec<ChunkIndex>,
    /// How many the threads have.
    submitted: usize,
    /// How many chunks are decoded before they are taken.
    ahead: usize,
    taken: Taken,
}

impl<'a> ParallelDecode<'a> {
    /// Prepares a read of some slices. Where memory has no room for a row of chunks, only a few are decoded at a time:
    /// more would evict what is kept of the row.
    pub(super) fn new(file: &'a ReadAhead, slices: &[ChunkSlice]) -> ParallelDecode<'a> {
        let groups = slices.chunk_by(ChunkSlice::is_of_same_chunk);
        let chunk = |group: &[ChunkSlice]| Some(group.first()?.chunk);
        let is_row_too_long = file.is_row_too_long();
        if is_row_too_long && file.tracker.has_read(0) {
            file.warn_of_row();
        }
        ParallelDecode {
            file,
            chunks: groups.filter_map(chunk).collect(),
            // Inner chunks are read together with the first one.
            submitted: usize::from(!file.prefetcher.reader.decoder.reads_groups()),
            ahead: if is_row_too_long {
                file.prefetcher.reader.array.engine.encoders
            } else {
                usize::MAX
            },
            taken: Taken::default(),
        }
    }

    /// Has the first chunks decoded that come after the one that is taken first.
    pub(super) fn begin(&mut self) {
        self.submit(1);
    }

    /// Notes that the next chunk is taken, and has those decoded that come after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.submit(taken);
    }

    fn submit(&mut self, taken: usize) {
        let end = taken.saturating_add(self.ahead).min(self.chunks.len());
        if let Some(next) = self.chunks.get(self.submitted..end)
            && !next.is_empty()
        {
            let chunks = (self.submitted..).zip(next.iter().copied());
            let span = self.file.ordered_span();
            let prefetcher = &self.file.prefetcher;
            prefetcher.decode_beside(chunks, &self.taken, span);
            self.submitted = end.max(self.submitted);
        }
    }
}

impl Drop for ParallelDecode<'_> {
    fn drop(&mut self) {
        self.taken.store(usize::MAX, Ordering::Relaxed);
    }
}
