//! Inflates a deflated entry from its beginning, piece by piece.
//!
//! The result has exactly the length and the checksum in the directory, or is `Corrupt`. Memory holds at most one piece
//! of compressed bytes, and the bytes that the caller requested. Random access is the work of `reader`.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

use super::archive::{Archive, EntryData, check_crc};
use super::index::ZipEntry;
use crate::request_context::RequestContext;

/// Bytes that are inflated at once when they are discarded.
pub(super) const BLOCK: usize = 128 << 10;

/// The state of an entry that is being inflated.
pub(super) struct Inflate {
    entry: ZipEntry,
    decoder: Decompress,
    /// Compressed bytes that were fetched, and the number of them that are consumed.
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
