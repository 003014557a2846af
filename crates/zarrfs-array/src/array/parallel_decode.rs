//! Decodes the chunks of one read on the engine's threads.

use std::sync::atomic::Ordering;

use crate::array::chunk_slice::ChunkSlice;
use crate::array::prefetcher::Taken;
use crate::array::read_ahead::ReadAhead;
use zarr_format::grid::ChunkIndex;

/// The chunks of a read that the engine's threads decode while the read consumes them.
pub(super) struct ParallelDecode<'a> {
    file: &'a ReadAhead,
    /// Each chunk once, in the order in which they are consumed.
    chunks: Vec<ChunkIndex>,
    /// The number of chunks that were submitted to the threads.
    submitted: usize,
    /// The maximum number of chunks that are decoded ahead.
    ahead: usize,
    taken: Taken,
}

impl<'a> ParallelDecode<'a> {
    /// Prepares a read of some slices. If a chunk row does not fit in memory, only a few chunks are decoded at a time:
    /// more would evict the cached part of the row.
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
            // Inner chunks are read together with the first one, so that one is submitted too.
            submitted: usize::from(!file.prefetcher.reader.decoder.reads_groups()),
            ahead: if is_row_too_long {
                file.prefetcher.reader.array.engine.encoders
            } else {
                usize::MAX
            },
            taken: Taken::default(),
        }
    }

    /// Submits the first chunks after the one that the read loads itself.
    pub(super) fn begin(&mut self) {
        self.submit(1);
    }

    /// Records that the next chunk is consumed, and submits the ones after it.
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
