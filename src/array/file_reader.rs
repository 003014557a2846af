//! Reads ranges of a flat file out of the chunks of its array.
//!
//! A range of bytes is cut into boxes, these into the pieces under them, and each piece's runs of bytes are copied into
//! the answer by an `Assembler`. Pieces are taken one after another, so a read never holds more than one that it has to
//! load; the other missing ones are meanwhile decoded by the engine's threads.

use std::ops::Range;
use std::sync::Arc;

use crate::array::assembler::{Assembler, Source};
use crate::array::chunk_reader::ChunkReader;
use crate::array::chunk_rows::ChunkRows;
use crate::array::chunk_slice::{ChunkSlice, PendingSlices};
use crate::array::file_layout::{FileLayout, in_buffer};
use crate::array::parallel_decode::ParallelDecode;
use crate::array::piece::{CacheKey, Piece};
use crate::array::prefetcher::Prefetcher;
use crate::array::read_ahead::ReadAhead;
use crate::array::read_contents::ReadContents;
use crate::array::read_tracker::{ReadTracker, Window};
use crate::error::{Error, Result};
use crate::request_context::RequestContext;
use crate::sync::read_bytes::ReadBytes;

/// The shortest runs, in bytes, that are read directly: each takes a buffer of a system call.
const MIN_DIRECT_RUN: u64 = 256;

/// Reads one flat file.
pub(super) struct FileReader {
    pub(super) chunks: Arc<ChunkReader>,
    layout: Arc<FileLayout>,
    ahead: ReadAhead,
    /// Whether reads go to the stored chunks themselves, which are not encoded.
    direct: bool,
    pub(super) missed: PendingSlices,
    /// Called by each read that has begun to copy.
    #[cfg(test)]
    pub(super) while_copying: crate::array::assembler::WhileCopying,
}

impl Drop for FileReader {
    fn drop(&mut self) {
        if self.ahead.prefetcher.trackers.remove(&self.ahead.tracker) {
            self.chunks.groups.forget_runs();
        }
        self.chunks.give_up_spilled();
    }
}

impl FileReader {
    /// Begins to follow a reader of a file.
    pub(super) fn new(prefetcher: Arc<Prefetcher>, layout: Arc<FileLayout>) -> FileReader {
        let chunks = prefetcher.chunks.clone();
        let direct = layout.order.is_none() && chunks.reads_direct(MIN_DIRECT_RUN);
        let grid = &chunks.decoder.pieces;
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
            chunks,
            layout,
            direct,
            missed: PendingSlices::default(),
            #[cfg(test)]
            while_copying: None,
        }
    }

    /// Whether a reader that opens the file now is expected to be sequential.
    pub(super) fn expects_sequential(&self) -> bool {
        self.ahead.expects_sequential()
    }

    fn assembler<'a>(&'a self, context: &'a RequestContext) -> Assembler<'a> {
        Assembler {
            chunks: &self.chunks,
            layout: &self.layout,
            context,
            #[cfg(test)]
            while_copying: &self.while_copying,
        }
    }

    /// Returns the bytes of a range if all pieces under it are in memory and current; if not, `read` will find its parts
    /// computed. The range must lie in the file.
    pub(super) fn read_now(
        &self,
        context: &RequestContext,
        range: Range<u64>,
    ) -> Option<ReadBytes> {
        let (array, grid) = (&self.chunks.array, &self.chunks.decoder.pieces);
        let is_long = range.end - range.start > self.layout.max_read(grid);
        if self.direct || is_long || !array.metadata_hold(context) {
            return None;
        }
        let parts = self.layout.parts(grid, &range);
        let Some(pieces) = self.chunks.pieces_in_memory(&parts) else {
            self.missed.keep(range, parts);
            return None;
        };
        array.engine.stats.cache_hit_chunks.add(pieces.len() as u64);
        let mut pieces = pieces.into_iter();
        let source = |_| {
            let piece = pieces.next().ok_or_else(|| Error::invalid("", "no piece"));
            piece.map(Source::Piece)
        };
        // They were looked up together, under one version of each stored chunk.
        let mut contents = ReadContents::default();
        let assembler = self.assembler(context);
        let bytes = assembler.assemble(&range, &parts, &mut contents, source);
        let bytes = bytes.ok()?;
        let (ahead, consumed) = self.ahead.tracker.note(&range);
        self.retire_consumed(&parts, consumed);
        self.ahead.prefetch(&ahead);
        Some(bytes).filter(|_| array.store_holds())
    }

    /// Returns the bytes of a range; fetches and decodes what is missing. The range must lie in the file.
    pub(super) fn read(&self, context: &RequestContext, range: Range<u64>) -> Result<ReadBytes> {
        self.chunks.array.check_metadata(context)?;
        let read = |contents: &mut ReadContents| self.read_parts(context, range.clone(), contents);
        let bytes = self.chunks.read_one_content(context, read)?;
        self.chunks.array.check_store()?;
        Ok(bytes)
    }

    /// Returns the bytes of a range of any length.
    fn read_parts(
        &self,
        context: &RequestContext,
        range: Range<u64>,
        contents: &mut ReadContents,
    ) -> Result<ReadBytes> {
        let most = self.layout.max_read(&self.chunks.decoder.pieces);
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

    /// Returns the bytes of a range that is no longer than `max_read`.
    fn read_part(
        &self,
        context: &RequestContext,
        range: Range<u64>,
        contents: &mut ReadContents,
    ) -> Result<ReadBytes> {
        let parts = self.missed.take(&range);
        let parts = parts.unwrap_or_else(|| self.layout.parts(&self.chunks.decoder.pieces, &range));
        if self.direct {
            // The kernel reads the stored files ahead.
            self.ahead.tracker.note(&range);
            return self.read_stored(context, &range, &parts, contents);
        }
        // Before anything is decoded, so that evicted pieces which the reader needs are spilled.
        let ahead = self.ahead.tracker.begin(&range);
        let mut beside = ParallelDecode::new(&self.ahead, &parts);
        beside.begin();
        self.ahead.prefetch(&ahead);
        let source = |piece| {
            beside.take();
            self.chunks.source(context, piece)
        };
        let assembler = self.assembler(context);
        let bytes = assembler.assemble(&range, &parts, contents, source);
        drop(beside);
        let consumed = self.ahead.tracker.finish(&range);
        self.retire_consumed(&parts, consumed);
        bytes
    }

    /// Returns the bytes of a range out of the stored chunks themselves and what was written to them.
    fn read_stored(
        &self,
        context: &RequestContext,
        range: &Range<u64>,
        parts: &[ChunkSlice],
        contents: &mut ReadContents,
    ) -> Result<ReadBytes> {
        let source = |piece| {
            let written = self.chunks.written(piece);
            Ok(written.map_or(Source::Stored, |piece| Source::Piece(Piece::Data(piece))))
        };
        let assembler = self.assembler(context);
        assembler.assemble(range, parts, contents, source)
    }

    /// Has those pieces of a read that was answered evicted first which a sequential reader has consumed. Their memory is
    /// used again.
    fn retire_consumed(&self, parts: &[ChunkSlice], consumed: Option<u64>) {
        let Some(consumed) = consumed else { return };
        let groups = parts.chunk_by(ChunkSlice::is_of_same_piece);
        let is_consumed = |part: &&ChunkSlice| {
            let shape = self.chunks.decoder.pieces.shape_of(part.piece);
            self.ahead.tracker.ends_before(part, &shape, consumed)
        };
        let pieces = groups.filter_map(<[ChunkSlice]>::first).filter(is_consumed);
        let keys: Vec<CacheKey> = pieces
            .map(|part| (self.chunks.array.id, 0, part.piece.0))
            .collect();
        self.chunks.array.engine.cache.retire(&keys);
    }
}
