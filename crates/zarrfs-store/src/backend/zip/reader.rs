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

/// The number of inflated bytes that all readers of a store keep together.
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

    /// Inflates another block and appends it to the buffer of kept bytes.
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

    /// Drops the oldest kept bytes once the kept bytes exceed the limit by more than a quarter.
    fn trim(&self, state: &mut InflateBuffer) {
        // An entry of less than this limit is inflated only once. If all readers together keep more than 32 MiB, each
        // of them keeps less.
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

    /// Returns the offset in the entry at which the kept bytes begin.
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

/// Length of the buffer into which discarded bytes are inflated.
const BLOCK: usize = 128 << 10;

/// The state of an entry that is being inflated.
pub(super) struct Inflate {
    entry: ZipEntry,
    decoder: Decompress,
    /// Compressed bytes that were fetched. `used` of them are consumed.
    input: Vec<u8>,
    used: usize,
    /// Offset and number of the compressed bytes that are not yet fetched.
    next: u64,
    left: u64,
    /// Bytes per fetch.
    piece: u64,
    produced: u64,
    crc: Crc,
}

impl Inflate {
    /// Starts at the beginning of an entry. Compressed bytes are fetched in pieces of `piece` bytes.
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

    /// Returns the number of bytes inflated so far.
    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns the whole content of the entry.
    pub(super) fn whole(mut self, context: &RequestContext, archive: &Archive) -> Result<Vec<u8>> {
        self.take(context, archive, self.entry.size)
    }

    /// Returns the next `length` bytes, which must exist.
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

    /// Discards the bytes up to `place`.
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

    /// Fills `out` with the next bytes, which must exist. Checks the checksum at the end of the entry.
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

    /// Inflates some bytes. Returns 0 at the end of the stream.
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

    /// Fetches the next piece once the last one is consumed.
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
