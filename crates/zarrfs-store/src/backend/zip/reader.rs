//! Reads an open entry, stored or deflated.
//!
//! Reads return the content at the time of opening, or `Changed`. A deflated entry can only be inflated from its
//! beginning. The last inflated part is kept, so that sequential reads, even slightly out of order, need one pass; a
//! read further back starts again. The parts that all readers of a store keep have a common limit.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::{Key, Meta, Reader};
use zarr_format::error::Result;

use super::archive::{Archive, EntryData};
use super::index::ZipEntry;
use super::inflate::{BLOCK, Inflate};
use crate::request_context::RequestContext;

/// Number of inflated bytes that all readers of a store keep.
pub(super) type InflateCache = Arc<AtomicUsize>;

/// Reads a stored (uncompressed) entry.
pub(super) struct StoredReader {
    pub(super) archive: Arc<Archive>,
    pub(super) key: Key,
    pub(super) start: u64,
    pub(super) entry: ZipEntry,
}

impl Reader for StoredReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.entry.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let archive = &self.archive;
        let bytes = archive.read_part(context, &self.entry, self.start, offset..end);
        bytes.map_err(|error| error.about(&self.key))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.archive.meta_of(&self.entry))
    }
}

/// Reads a deflated entry.
pub(super) struct DeflatedReader {
    archive: Arc<Archive>,
    key: Key,
    entry: ZipEntry,
    start: u64,
    meta: Meta,
    state: Mutex<InflateBuffer>,
    cache: InflateCache,
}

/// The decoder and the last bytes of its output.
struct InflateBuffer {
    inflate: Inflate,
    buffer: Vec<u8>,
}

impl DeflatedReader {
    /// Opens an entry whose data begin at `start`.
    pub(super) fn new(
        archive: Arc<Archive>,
        key: Key,
        entry: &ZipEntry,
        start: u64,
        cache: InflateCache,
    ) -> DeflatedReader {
        DeflatedReader {
            meta: archive.meta_of(entry),
            archive,
            key,
            entry: *entry,
            start,
            state: Mutex::new(InflateBuffer::begin(entry, start)),
            cache,
        }
    }

    fn read(
        &self,
        context: &RequestContext,
        state: &mut InflateBuffer,
        offset: u64,
        end: u64,
    ) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        if offset < state.buffer_start() {
            self.restart(state);
        }
        state.copy(offset, end, &mut out);
        while state.inflate.produced() < end {
            let at = state.inflate.produced().max(offset);
            self.advance(context, state)?;
            state.copy(at, end, &mut out);
            self.trim(state);
        }
        Ok(out)
    }

    /// Inflates another block and appends it to the kept bytes.
    fn advance(&self, context: &RequestContext, state: &mut InflateBuffer) -> Result<()> {
        let left = self.entry.size - state.inflate.produced();
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
        let old = state.buffer.len();
        state.buffer.resize(old + length, 0);
        self.cache.fetch_add(length, Relaxed);
        state
            .inflate
            .fill(context, &self.archive, &mut state.buffer[old..])
    }

    /// Drops the first of the kept bytes once they exceed the limit by more than a quarter.
    fn trim(&self, state: &mut InflateBuffer) {
        // An entry that fits is inflated once. If all readers together keep more than 32 MiB, each keeps less.
        let most = if self.cache.load(Relaxed) <= 32 << 20 {
            8 << 20
        } else {
            256 << 10
        };
        if state.buffer.len() > most + most / 4 {
            let dropped = state.buffer.len() - most;
            state.buffer.drain(..dropped);
            state.buffer.shrink_to(most + BLOCK);
            self.cache.fetch_sub(dropped, Relaxed);
        }
    }

    fn restart(&self, state: &mut InflateBuffer) {
        self.cache.fetch_sub(state.buffer.len(), Relaxed);
        *state = InflateBuffer::begin(&self.entry, self.start);
    }
}

impl InflateBuffer {
    fn begin(entry: &ZipEntry, start: u64) -> InflateBuffer {
        let data = EntryData {
            start,
            first: Vec::new(),
        };
        InflateBuffer {
            inflate: Inflate::new(entry, data, 256 << 10),
            buffer: Vec::new(),
        }
    }

    /// Returns the offset of the kept bytes in the entry.
    fn buffer_start(&self) -> u64 {
        self.inflate.produced() - self.buffer.len() as u64
    }

    /// Copies the part of a range that is kept.
    fn copy(&self, offset: u64, end: u64, out: &mut Vec<u8>) {
        let start = self.buffer_start();
        let place = |at: u64| {
            let place = usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
            place.min(self.buffer.len())
        };
        out.extend_from_slice(
            self.buffer
                .get(place(offset)..place(end))
                .unwrap_or_default(),
        );
    }
}

impl Reader for DeflatedReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.entry.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        // Locked while the archive is read, since the decoder has only one position.
        let mut state = self.state.lock();
        let read = self.read(context, &mut state, offset, end);
        read.map_err(|error| {
            self.restart(&mut state);
            error.about(&self.key)
        })
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}

impl Drop for DeflatedReader {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        self.cache.fetch_sub(state.buffer.len(), Relaxed);
    }
}
