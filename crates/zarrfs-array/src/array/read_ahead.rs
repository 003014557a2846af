//! Decodes the chunks of a read, and the chunks that its reader probably reads next.
//!
//! `ReadTracker` predicts the byte ranges. A sequential reader needs memory for all chunks of a chunk row, and over a
//! network for whole shards.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::chunk::CHUNK_OVERHEAD;
use crate::array::chunk_reader::ChunkReader;
use crate::array::file_layout::{ChunkRows, ChunkSlice, FileLayout};
use crate::array::prefetcher::{PlacedChunk, Prefetcher, Taken};
use crate::array::read_tracker::{Prediction, ReadTracker};
use crate::array::shard_groups::OrderedSpan;
use zarr_format::buffer;
use zarr_format::grid::ChunkIndex;

/// The length in bytes up to which the first reader of a file is expected to read the whole file.
pub(super) const MAX_READ_WHOLE: u64 = 16 << 30;

pub(super) struct ReadAhead {
    reader: Arc<ChunkReader>,
    pub(super) prefetcher: Arc<Prefetcher>,
    layout: Arc<FileLayout>,
    pub(super) tracker: Arc<ReadTracker>,
    rows: ChunkRows,
}

impl ReadAhead {
    pub(super) fn new(
        prefetcher: Arc<Prefetcher>,
        layout: Arc<FileLayout>,
        tracker: Arc<ReadTracker>,
        rows: ChunkRows,
    ) -> ReadAhead {
        ReadAhead {
            reader: prefetcher.reader.clone(),
            prefetcher,
            layout,
            tracker,
            rows,
        }
    }

    /// Whether a reader that has not read anything yet is expected to be sequential: true if the last reader was
    /// sequential, or, if there was none, if the file has at most `MAX_READ_WHOLE` bytes.
    pub(super) fn expects_sequential(&self) -> bool {
        let last = self.prefetcher.trackers.was_sequential();
        last.unwrap_or(self.layout.length <= MAX_READ_WHOLE)
    }

    /// Whether a chunk row takes more memory than there is for a sequential reader.
    fn is_row_too_long(&self) -> bool {
        self.rows.bytes > self.reader.decoder.room_for_row()
    }

    /// Logs a hint, once per array, that a chunk row fits neither in memory nor in the spill file.
    fn warn_of_row(&self) {
        let (array, row) = (&*self.reader.array, self.rows.bytes);
        let spill = array.engine.spill.as_ref();
        if self.spills_row() || self.prefetcher.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let needed = buffer::memory_for(row + row / 8) >> 20;
        let memory = buffer::memory_for(array.engine.limits.memory) >> 20;
        let or = match spill {
            _ if !self.reader.decoder.is_encoded() => "",
            Some(_) => ", or free space for --spill",
            None => ", or --spill DIR",
        };
        log::warn!(
            "{}: a row of chunks takes {} MiB, but --memory allows {memory} MiB, so chunks are decoded again for each \
             plane; use --memory {needed}M{or}",
            array.path,
            row >> 20,
        );
    }

    /// Returns the range of shards on a network that a sequential reader is going to read plane by plane, or `None` if
    /// the reader is not expected to do so.
    fn ordered_span(&self) -> Option<Arc<OrderedSpan>> {
        if self.reader.array.engine.limits.fetches == 0 || !self.reader.decoder.reads_groups() {
            return None;
        }
        let (shard, shape) = (
            self.reader.decoder.stored.chunk_shape(),
            &self.layout.region.shape,
        );
        let own: Vec<usize> = (0..shape.len()).collect();
        let order = self.layout.order.as_deref().unwrap_or(&own);
        // A dimension along which a shard, or the box of the file, has only one index does not divide a shard into
        // layers, which a sequential reader reads one after the other.
        let is_deep = |&axis: &usize| shape[axis].min(shard[axis]) > 1;
        let place = order.iter().position(is_deep)?;
        let inner = order.get(place + 1..)?;
        let lengths = inner.iter().map(|&axis| shape[axis]);
        let plane = lengths.fold(self.layout.element as u64, u64::saturating_mul);
        let two_planes = plane.saturating_mul(2);
        let has_gone_on = self.tracker.has_read(two_planes);
        let is_likely_to = self.tracker.begins_with_long_reads() && self.expects_sequential();
        if !(has_gone_on || is_likely_to) || self.reloads_row() {
            return None;
        }
        let shards = inner.iter().map(|&axis| {
            let start = self.layout.region.start[axis];
            let last = start + shape[axis].saturating_sub(1);
            self.reader.decoder.stored.chunk_at(axis, last)
                - self.reader.decoder.stored.chunk_at(axis, start)
                + 1
        });
        let (axis, mut region) = (order[place], self.layout.region.clone());
        if place == 0 {
            // The reader began after the first planes of the file, so these planes are not prefetched.
            let planes = self.tracker.first_byte() / plane.max(1);
            let planes = planes.min(region.shape[axis].saturating_sub(1));
            region.start[axis] += planes;
            region.shape[axis] -= planes;
        }
        Some(Arc::new(OrderedSpan {
            region,
            axis,
            begins_here: place == 0,
            shards: shards.fold(1, u64::saturating_mul),
            // 4 MiB is more than the kernel's readahead reads for a program that only looks at a header.
            has_gone_on: self.tracker.has_read(two_planes.max(4 << 20)),
        }))
    }

    /// Whether the chunks of a chunk row are loaded again for each plane, because the chunk row fits neither in memory
    /// nor in the spill file.
    fn reloads_row(&self) -> bool {
        self.is_row_too_long() && !self.spills_row()
    }

    /// Whether a chunk row that does not fit in memory is spilled to disk.
    fn spills_row(&self) -> bool {
        let spill = self.reader.array.engine.spill.as_ref();
        self.reader.decoder.is_encoded()
            && spill.is_some_and(|spill| spill.has_room_for(self.rows.bytes))
    }

    pub(super) fn prefetch(&self, ahead: &Prediction) {
        match ahead {
            Prediction::Nothing => {}
            Prediction::Range(range) => self.prefetch_range(range.clone()),
            Prediction::Steps { .. } => self.prefetch_steps(ahead),
        }
    }

    fn prefetch_range(&self, range: Range<u64>) {
        let range = self.tracker.unvisited(range, self.rows);
        let range = range.start..range.end.min(self.layout.length);
        if !range.is_empty() {
            let chunks = self
                .layout
                .chunks(&self.reader.decoder.grid, &range)
                .into_iter();
            let span = self.ordered_span();
            self.prefetcher.decode_ahead(chunks, span);
        }
    }

    /// Prefetches chunks for a reader that reads in equal steps, as many chunks as can be fetched concurrently.
    fn prefetch_steps(&self, ahead: &Prediction) {
        let limits = &self.reader.array.engine.limits;
        let size = self.reader.decoder.pipeline.chunk_bytes() as u64 + CHUNK_OVERHEAD;
        let room = usize::try_from(limits.memory / 4 / size).unwrap_or(usize::MAX);
        let wanted = limits.fetches.max(4).min(room);
        let mut chunks: Vec<ChunkIndex> = Vec::new();
        for range in ahead.ranges(self.layout.length) {
            for chunk in self.layout.chunks(&self.reader.decoder.grid, &range) {
                if !chunks.contains(&chunk) {
                    chunks.push(chunk);
                }
            }
            if chunks.len() >= wanted {
                break;
            }
        }
        chunks.truncate(wanted);
        self.prefetcher.decode_ahead(chunks.into_iter(), None);
    }
}

/// The chunks of one read, which the engine's threads decode while the read copies the first chunks.
pub(super) struct ParallelDecode<'a> {
    file: &'a ReadAhead,
    /// The chunks of the read, each once, in the order in which the read takes them.
    chunks: Vec<ChunkIndex>,
    submitted: usize,
    /// The maximum number of chunks that are decoded before the read takes them.
    ahead: usize,
    taken: Taken,
}

impl<'a> ParallelDecode<'a> {
    /// Prepares to decode the chunks of a read. If a chunk row does not fit in memory, only a few chunks are decoded at
    /// a time, because more chunks would evict the cached part of the chunk row.
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
            // The read loads its first chunk itself, so the first chunk is not submitted to the threads. An inner chunk
            // is submitted, because it is fetched in a group with the chunks after it.
            submitted: usize::from(!file.prefetcher.reader.decoder.reads_groups()),
            ahead: if is_row_too_long {
                file.prefetcher.reader.array.engine.encoders
            } else {
                usize::MAX
            },
            taken: Taken::default(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.submit(1);
    }

    /// Records that the read takes its next chunk, and submits chunks after it.
    pub(super) fn take(&mut self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        self.submit(taken);
    }

    fn submit(&mut self, taken: usize) {
        let end = taken.saturating_add(self.ahead).min(self.chunks.len());
        if let Some(next) = self.chunks.get(self.submitted..end)
            && !next.is_empty()
        {
            let chunks = (self.submitted..).zip(next);
            let chunks = chunks.map(|(place, &chunk)| PlacedChunk { place, chunk });
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
