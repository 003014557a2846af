//! Reads ranges of a flat file from the chunks of its array.
//!
//! A range of bytes is cut into boxes of elements, and each box into the chunks that it covers. An `Assembler` copies
//! the byte runs of each chunk into the answer. Chunks are taken one after another, so a read has at most one chunk in
//! memory that it loads itself; the engine's threads decode the other missing chunks concurrently.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::assembler::Assembler;
use crate::array::chunk::{CacheKey, Chunk, Source};
use crate::array::chunk_reader::ChunkReader;
use crate::array::file_layout::{ChunkRows, ChunkSlice, FileLayout, PendingSlices, in_buffer};
use crate::array::prefetcher::Prefetcher;
use crate::array::read_ahead::{ParallelDecode, ReadAhead};
use crate::array::read_tracker::{Prediction, ReadTracker, Window};
use crate::array::read_versions::ReadVersions;
use zarr_format::error::{Error, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::request_context::{RequestContext, would_wait};
use zarrfs_store::sync::read_bytes::ReadBytes;

pub(super) struct FileReader {
    pub(super) reader: Arc<ChunkReader>,
    layout: Arc<FileLayout>,
    ahead: ReadAhead,
    /// Whether reads copy directly from the stored chunks, because these are uncompressed local files.
    direct: bool,
    pub(super) pending: PendingSlices,
    /// Called by each read while it copies; set by tests.
    #[cfg(test)]
    pub(super) while_copying: crate::array::assembler::WhileCopying,
}

impl Drop for FileReader {
    fn drop(&mut self) {
        if self.ahead.prefetcher.trackers.remove(&self.ahead.tracker) {
            self.reader.groups.forget_runs();
        }
        self.reader.give_up_spilled();
    }
}

impl FileReader {
    /// Creates the reader of a file, and the tracker that predicts its next reads.
    pub(super) fn new(prefetcher: Arc<Prefetcher>, layout: Arc<FileLayout>) -> FileReader {
        let reader = prefetcher.reader.clone();
        // A direct read passes one buffer per row of a chunk to the system call, so arrays with short rows are read
        // through the cache.
        let direct = layout.order.is_none() && reader.reads_direct(256);
        let grid = &reader.decoder.grid;
        let rows = ChunkRows::new(grid, &layout.region, layout.slowest_axis(), layout.length);
        let window = if direct {
            Window::default()
        } else {
            prefetcher.window(rows)
        };
        let (region, order) = (layout.region.clone(), layout.order.clone());
        let tracker = Arc::new(ReadTracker::new(region, order, layout.element, window));
        prefetcher.trackers.add(&tracker);
        FileReader {
            ahead: ReadAhead::new(prefetcher, layout.clone(), tracker, rows),
            reader,
            layout,
            direct,
            pending: PendingSlices::default(),
            #[cfg(test)]
            while_copying: None,
        }
    }

    pub(super) fn expects_sequential(&self) -> bool {
        self.ahead.expects_sequential()
    }

    fn assembler<'a>(&'a self, context: &'a RequestContext) -> Assembler<'a> {
        Assembler {
            reader: &self.reader,
            layout: &self.layout,
            context,
            #[cfg(test)]
            while_copying: &self.while_copying,
        }
    }

    /// Returns the bytes of a range of the file; fetches and decodes missing chunks. The range must be inside the file.
    pub(super) fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        if !context.may_wait() {
            return self.read_cached(context, range).ok_or_else(would_wait);
        }
        self.reader.array.check_metadata(context)?;
        let read = |contents: &mut ReadVersions| self.read_parts(context, range.clone(), contents);
        let bytes = self.reader.read_one_version(context, read)?;
        self.reader.array.check_store()?;
        Ok(bytes)
    }

    /// Returns the bytes of a range if all its chunks are in memory and current; otherwise remembers which chunks the
    /// range needs, for a later `read`.
    fn read_cached(&self, context: &RequestContext, range: Range<u64>) -> Option<ReadBytes> {
        let array = &*self.reader.array;
        let now = array.info.clock.now();
        if self.direct || !array.has_current_metadata(now) {
            return None;
        }
        let bytes = match self.read_run(&range, now) {
            Some(bytes) => bytes,
            None => self.read_slices(context, range, now)?,
        };
        Some(bytes).filter(|_| array.has_same_store())
    }

    /// Returns the bytes of a range without a copy, if they are contiguous in a chunk that is in memory.
    fn read_run(&self, range: &Range<u64>, now: Instant) -> Option<ReadBytes> {
        let decoder = &self.reader.decoder;
        let run = self.layout.run_in_chunk(&decoder.grid, range)?;
        let number = decoder.stored_number_at(run.chunk, &run.start);
        let decoded = self.reader.in_memory(run.chunk, number, now)?;
        self.reader.array.engine.stats.cache_hit_chunks.add(1);
        let (ahead, consumed) = self.ahead.tracker.record(range);
        if consumed.is_some_and(|consumed| self.is_consumed(run.chunk, &run.start, consumed)) {
            let key = self.reader.array.chunk_key(run.chunk);
            self.reader.array.engine.cache.retire(&[key]);
        }
        if ahead != Prediction::Nothing {
            self.ahead.prefetch(&ahead);
        }
        Some(ReadBytes::Shared(decoded, run.bytes))
    }

    /// Returns the bytes of a range if all its chunks are in memory; otherwise remembers which chunks the range needs.
    fn read_slices(
        &self,
        context: &RequestContext,
        range: Range<u64>,
        now: Instant,
    ) -> Option<ReadBytes> {
        let grid = &self.reader.decoder.grid;
        if range.end - range.start > self.layout.max_read(grid) {
            return None;
        }
        let slices = self.layout.slices(grid, &range);
        let Some(chunks) = self.reader.all_in_memory(&slices, now) else {
            self.pending.keep(range, slices);
            return None;
        };
        let stats = &self.reader.array.engine.stats;
        stats.cache_hit_chunks.add(chunks.len() as u64);
        let mut chunks = chunks.into_iter();
        let source = |_| {
            let chunk = chunks.next().ok_or_else(|| Error::invalid("", "no chunk"));
            chunk.map(Source::Chunk)
        };
        // All chunks were looked up together, under one version of each stored chunk, so the versions of inner chunks
        // cannot differ.
        let bytes = self
            .assembler(context)
            .assemble(&range, &slices, None, source);
        let bytes = bytes.ok()?;
        let (ahead, consumed) = self.ahead.tracker.record(&range);
        self.retire_consumed(&slices, consumed);
        self.ahead.prefetch(&ahead);
        Some(bytes)
    }

    /// Returns the bytes of a range of any length, which is read in parts of at most `max_read` bytes.
    fn read_parts(
        &self,
        context: &RequestContext,
        range: Range<u64>,
        contents: &mut ReadVersions,
    ) -> Result<ReadBytes> {
        let most = self.layout.max_read(&self.reader.decoder.grid);
        if range.end - range.start <= most {
            return self.read_part(context, range, contents);
        }
        let mut out = Vec::with_capacity(in_buffer(range.end - range.start));
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(most));
            out.extend_from_slice(&self.read_part(context, start..end, contents)?);
            start = end;
        }
        Ok(out.into())
    }

    fn read_part(
        &self,
        context: &RequestContext,
        range: Range<u64>,
        contents: &mut ReadVersions,
    ) -> Result<ReadBytes> {
        let slices = self.pending.take(&range);
        let slices =
            slices.unwrap_or_else(|| self.layout.slices(&self.reader.decoder.grid, &range));
        if self.direct {
            // A direct read prefetches nothing, because the kernel does the readahead for the stored files.
            self.ahead.tracker.record(&range);
            return self.read_stored(context, &range, &slices, contents);
        }
        // The tracker records the read before any chunk is decoded: decoding evicts chunks, and the tracker decides
        // which of them are spilled because the reader still needs them.
        let ahead = self.ahead.tracker.begin(&range);
        let mut beside = ParallelDecode::new(&self.ahead, &slices);
        beside.begin();
        self.ahead.prefetch(&ahead);
        let source = |chunk| {
            beside.take();
            self.reader.source(context, chunk)
        };
        let assembler = self.assembler(context);
        let bytes = assembler.assemble(&range, &slices, Some(contents), source);
        drop(beside);
        let consumed = self.ahead.tracker.finish(&range);
        self.retire_consumed(&slices, consumed);
        bytes
    }

    /// Returns the bytes of a range directly from uncompressed stored chunks, and from dirty chunks.
    fn read_stored(
        &self,
        context: &RequestContext,
        range: &Range<u64>,
        slices: &[ChunkSlice],
        contents: &mut ReadVersions,
    ) -> Result<ReadBytes> {
        let source = |chunk| {
            let written = self.reader.written(chunk);
            Ok(written.map_or(Source::Stored, |chunk| Source::Chunk(Chunk::Data(chunk))))
        };
        let assembler = self.assembler(context);
        assembler.assemble(range, slices, Some(contents), source)
    }

    /// Marks the chunks that a sequential reader has consumed to be evicted first, so that their memory is reused.
    fn retire_consumed(&self, slices: &[ChunkSlice], consumed: Option<u64>) {
        let Some(consumed) = consumed else { return };
        let groups = slices.chunk_by(ChunkSlice::is_of_same_chunk);
        let chunks = groups.filter_map(<[ChunkSlice]>::first);
        let chunks = chunks.filter(|slice| self.is_consumed(slice.chunk, &slice.start, consumed));
        let keys: Vec<CacheKey> = chunks
            .map(|slice| self.reader.array.chunk_key(slice.chunk))
            .collect();
        self.reader.array.engine.cache.retire(&keys);
    }

    /// Whether a sequential reader that has consumed the file up to byte `consumed` has read all of a chunk.
    fn is_consumed(&self, chunk: ChunkIndex, start: &[u64], consumed: u64) -> bool {
        let shape = self.reader.decoder.grid.shape_of(chunk);
        let end = self.ahead.tracker.end_of(start, &shape);
        end.is_some_and(|end| end <= consumed)
    }
}
