//! A deflated entry, inflated from its beginning on, piece by piece.
//!
//! It gives exactly the bytes that the directory states, checksum included, or `Corrupt`; it never holds more
//! than a piece of the packed bytes and what the caller wants. How to read such an entry at any place is
//! `reader`'s.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

use super::archive::{Archive, EntryData, check_crc};
use super::index::ZipEntry;
use crate::request_context::RequestContext;

/// How much is inflated into memory that is not kept, in one go.
pub(super) const BLOCK: usize = 128 << 10;

/// An entry on its way through the decoder.
pub(super) struct Inflate {
    entry: ZipEntry,
    decoder: Decompress,
    /// Packed bytes that were fetched, and how many of them are used up.
    input: Vec<u8>,
    used: usize,
    /// Where the packed bytes that were not fetched begin, and how many they are.
    next: u64,
    left: u64,
    /// How many bytes are fetched at once.
    piece: u64,
    produced: u64,
    crc: Crc,
}

impl Inflate {
    /// Begins an entry; packed bytes are fetched in pieces of `piece` bytes.
    pub(super) fn new(entry: &ZipEntry, data: EntryData, piece: u64) -> Inflate {
        let have = data.first.len() as u64;
        Inflate {
            entry: *entry,
            // Without the header of zlib (APPNOTE 4.4.5).
            decoder: Decompress::new(false),
            input: data.first,
            used: 0,
            next: data.start + have,
            left: entry.packed - have,
            piece,
            produced: 0,
            crc: Crc::new(),
        }
    }

    /// Returns how many bytes were given so far.
    pub(super) fn produced(&self) -> u64 {
        self.produced
    }

    /// Returns all bytes, from the beginning on.
    pub(super) fn whole(mut self, context: &RequestContext, archive: &Archive) -> Result<Vec<u8>> {
        self.take(context, archive, self.entry.size)
    }

    /// Returns the next `length` bytes, which have to be there.
    pub(super) fn take(
        &mut self,
        context: &RequestContext,
        archive: &Archive,
        length: u64,
    ) -> Result<Vec<u8>> {
        let length = usize::try_from(length).map_err(|error| Error::too_large("", error))?;
        let mut out = buffer::with_capacity(length);
        if out.capacity() < length {
            return Err(Error::new(Kind::Unavailable, "", "no memory"));
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

    /// Fills `out` with the next bytes, which have to be there; checks the end when it is reached.
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
                        "inflates to fewer bytes than the zip says",
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
        // Some writers call an empty file deflated and write nothing at all.
        if self.entry.packed > 0 && self.step(context, archive, &mut [0])? != 0 {
            return Err(self.wrong(context, archive, "inflates to more bytes than the zip says"));
        }
        check_crc(self.crc.sum(), &self.entry).map_err(|error| archive.blame(context, error))
    }

    /// Inflates a little; returns 0 at the end of the stream.
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
                    return Err(self.wrong(context, archive, &format!("is not deflated: {error}")));
                }
                Ok(_) if written > 0 => return Ok(written),
                Ok(Status::StreamEnd) => return Ok(0),
                Ok(_) if read > 0 => {}
                Ok(_) => {
                    return Err(self.wrong(context, archive, "the deflated bytes end too early"));
                }
            }
        }
    }

    /// Fetches the next piece if the last one is used up.
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
        archive.blame(context, Error::corrupt("", what))
    }
}
