//! Reads an open entry, stored or deflated.
//!
//! Reads return the content at the time of opening, or `Changed`. A deflated entry can only be inflated from its
//! beginning. The bytes that were inflated last are kept, so that sequential reads, even slightly out of order, need
//! one pass; a read further back starts again. The bytes that all readers of a store keep have a common limit.
//!
//! An inflated entry has exactly the length and the checksum in the directory, or is `Corrupt`. Besides the kept bytes,
//! only one piece of compressed bytes and the bytes that the caller requested are in memory.

use flate2::{Crc, Decompress, FlushDecompress, Status};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::{Key, Meta, Reader};
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

use super::archive::{Archive, EntryData, check_crc};
use super::index::ZipEntry;
use crate::request_context::RequestContext;

/// The number of inflated bytes in memory of all readers of a store together.
pub(super) type InflateCache = Arc<AtomicUsize>;

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

pub(super) struct DeflatedReader {
    archive: Arc<Archive>,
    key: Key,
    entry: ZipEntry,
    start: u64,
    meta: Meta,
    state: Mutex<InflateBuffer>,
    cache: InflateCache,
}

/// The decoder of a deflated entry, and the last bytes that it produced.
struct InflateBuffer {
    inflate: Inflate,
    buffer: Vec<u8>,
}

impl DeflatedReader {
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

    /// Inflates up to `BLOCK` more bytes of the entry and appends them to the buffer.
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

    /// Drops the oldest inflated bytes once the buffer exceeds its limit by more than a quarter.
    fn trim(&self, state: &mut InflateBuffer) {
        // With 8 MiB, a shorter entry is inflated only once, in whatever order it is read. If the buffers of all
        // readers exceed 32 MiB, the limit of each is 256 KiB.
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

    /// Returns the offset in the entry of the first byte in the buffer.
    fn buffer_start(&self) -> u64 {
        self.inflate.produced() - self.buffer.len() as u64
    }

    /// Appends to `out` those bytes of a range that are in the buffer.
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
        // The lock is held while the archive is read, since the decoder has only one position.
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

/// Length of the buffer for inflated bytes that are skipped.
const BLOCK: usize = 128 << 10;

/// The decoder of a deflated entry, with its compressed input.
pub(super) struct Inflate {
    entry: ZipEntry,
    decoder: Decompress,
    /// The compressed bytes that were fetched last; the decoder has consumed the first `used` bytes.
    input: Vec<u8>,
    used: usize,
    /// Offset and number of the compressed bytes that are not yet fetched.
    next: u64,
    left: u64,
    /// Number of compressed bytes that one request to the store fetches.
    piece: u64,
    produced: u64,
    crc: Crc,
}

impl Inflate {
    /// Begins to inflate an entry. Compressed bytes are fetched in pieces of `piece` bytes.
    pub(super) fn new(entry: &ZipEntry, data: EntryData, piece: u64) -> Inflate {
        let have = data.first.len() as u64;
        Inflate {
            entry: *entry,
            // Raw deflate, without a zlib header (APPNOTE 4.4.5).
            decoder: Decompress::new(false),
            input: data.first,
            used: 0,
            next: data.start + have,
            left: entry.compressed - have,
            piece,
            produced: 0,
            crc: Crc::new(),
        }
    }

    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    pub(super) fn whole(mut self, context: &RequestContext, archive: &Archive) -> Result<Vec<u8>> {
        self.take(context, archive, self.entry.size)
    }

    /// Inflates the next `length` bytes of the entry, which must have that many left.
    pub(super) fn take(
        &mut self,
        context: &RequestContext,
        archive: &Archive,
        length: u64,
    ) -> Result<Vec<u8>> {
        let length = usize::try_from(length).map_err(|error| Error::too_large("", error))?;
        let mut out = buffer::with_capacity(length);
        if out.capacity() < length {
            return Err(Error::new(Kind::Unavailable, "", "out of memory"));
        }
        out.resize(length, 0);
        self.fill(context, archive, &mut out)?;
        Ok(out)
    }

    /// Inflates and discards the bytes before the offset `place` in the entry.
    pub(super) fn skip_to(
        &mut self,
        context: &RequestContext,
        archive: &Archive,
        place: u64,
    ) -> Result<()> {
        let mut block = vec![0; BLOCK];
        while self.produced < place {
            let left = usize::try_from(place - self.produced).unwrap_or(usize::MAX);
            let length = left.min(BLOCK);
            self.fill(context, archive, &mut block[..length])?;
        }
        Ok(())
    }

    /// Fills `out` with the next inflated bytes; the entry must have that many left. At the end of the entry, verifies
    /// its checksum.
    pub(super) fn fill(
        &mut self,
        context: &RequestContext,
        archive: &Archive,
        out: &mut [u8],
    ) -> Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            match self.step(context, archive, &mut out[filled..])? {
                0 => {
                    return Err(self.wrong(
                        context,
                        archive,
                        "decompresses to fewer bytes than the zip archive states",
                    ));
                }
                length => filled += length,
            }
        }
        self.crc.update(out);
        self.produced += filled as u64;
        if self.produced == self.entry.size {
            self.check_end(context, archive)?;
        }
        Ok(())
    }

    fn check_end(&mut self, context: &RequestContext, archive: &Archive) -> Result<()> {
        // Some writers mark an empty file as deflated and write no data.
        if self.entry.compressed > 0 && self.step(context, archive, &mut [0])? != 0 {
            return Err(self.wrong(
                context,
                archive,
                "decompresses to more bytes than the zip archive states",
            ));
        }
        check_crc(self.crc.sum(), &self.entry)
            .map_err(|error| archive.error_or_changed(context, error))
    }

    /// Inflates some bytes into `out`. Returns 0 at the end of the compressed data.
    fn step(
        &mut self,
        context: &RequestContext,
        archive: &Archive,
        out: &mut [u8],
    ) -> Result<usize> {
        loop {
            self.fetch(context, archive)?;
            let input = self.input.get(self.used..).unwrap_or_default();
            let (read, written) = (self.decoder.total_in(), self.decoder.total_out());
            let status = self.decoder.decompress(input, out, FlushDecompress::None);
            let read = self.decoder.total_in() - read;
            let read = usize::try_from(read).unwrap_or(input.len());
            let written = self.decoder.total_out() - written;
            let written = usize::try_from(written).unwrap_or(out.len());
            self.used += read;
            match status {
                Err(error) => {
                    return Err(self.wrong(
                        context,
                        archive,
                        &format!("cannot decompress the zip entry: {error}"),
                    ));
                }
                Ok(_) if written > 0 => return Ok(written),
                Ok(Status::StreamEnd) => return Ok(0),
                Ok(_) if read > 0 => {}
                Ok(_) => {
                    return Err(self.wrong(
                        context,
                        archive,
                        "the compressed data of the zip entry are cut off",
                    ));
                }
            }
        }
    }

    /// Fetches more compressed bytes once the decoder has consumed the last ones.
    fn fetch(&mut self, context: &RequestContext, archive: &Archive) -> Result<()> {
        if self.used < self.input.len() || self.left == 0 {
            return Ok(());
        }
        let length = self.left.min(self.piece);
        let old = std::mem::replace(&mut self.input, archive.read(context, self.next, length)?);
        buffer::recycle(old);
        self.used = 0;
        self.next += length;
        self.left -= length;
        Ok(())
    }

    fn wrong(&self, context: &RequestContext, archive: &Archive, what: &str) -> Error {
        archive.error_or_changed(context, Error::corrupt("", what))
    }
}
