//! A box of an array as one flat file: C order, little-endian, no header.
//!
//! A range of bytes is cut into boxes, these into the pieces under them, and each piece's runs of bytes are copied
//! into the answer; a range inside one piece is not copied at all. Pieces are taken one after another, so a read
//! never holds more than one that it has to load; the other missing ones are meanwhile decoded by the engine's
//! threads (`prefetch`).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::array::OpenArray;
use crate::array::access_pattern::AccessPattern;
use crate::array::decoder::Decoder;
use crate::array::piece::{Cached, Piece};
use crate::array::readers::StoredChunk;
use crate::array::versions::{LockedVersions, VersionState};
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Coordinates, Layout, Region, Runs, boxes};
use crate::model::bytes_of;
use crate::sync::buffer::Buffer;
use crate::sync::read_bytes::ReadBytes;

/// A box of an array as a flat file.
pub struct FlatFile {
    pub(super) array: Arc<OpenArray>,
    pub(super) region: Region,
    pub(super) length: u64,
    pub(super) pattern: AccessPattern,
    /// Tells the readers of an array apart.
    pub(super) number: usize,
    /// Whether reads go to the stored chunks themselves, which are not encoded.
    direct: bool,
}

/// The number of the next flat file.
static NEXT_NUMBER: AtomicUsize = AtomicUsize::new(0);

impl Drop for FlatFile {
    fn drop(&mut self) {
        if let Some(spill_key) = &self.array.spill_key {
            spill_key.note_reader(self.number, &self.region, None);
        }
    }
}

/// The shortest runs, in bytes, that are read directly: each takes a buffer of a system call.
const MIN_DIRECT_RUN: u64 = 256;

/// The most parts that a read is made of at a time; a part takes about 200 bytes.
const MAX_PARTS: u64 = 1 << 14;

/// A piece under a read and what of it is wanted.
pub(super) struct Part {
    pub(super) piece: ChunkIndex,
    /// The piece's first element.
    pub(super) start: Coordinates,
    /// The elements that are wanted.
    pub(super) region: Region,
}

impl Part {
    fn new(piece: ChunkIndex, start: &[u64], region: &Region) -> Part {
        Part {
            piece,
            start: start.into(),
            region: region.clone(),
        }
    }
}

/// Where the bytes of a part come from.
enum Source {
    /// A piece in memory.
    Piece(Piece),
    /// The stored chunk itself.
    Stored,
}

/// Returns a length or an offset inside the buffer of one read.
#[expect(
    clippy::cast_possible_truncation,
    reason = "it is at most the length of the buffer, which is a usize"
)]
pub(super) fn in_buffer(bytes: u64) -> usize {
    bytes as usize
}

impl FlatFile {
    /// Builds the flat file of a box; `Unsupported` or `TooLarge` if it has no length.
    pub fn new(array: Arc<OpenArray>, region: Region) -> Result<FlatFile> {
        let length = bytes_of(&region.shape, array.array.element_size()?)?;
        Ok(FlatFile {
            direct: array.reads_direct(MIN_DIRECT_RUN),
            array,
            region,
            length,
            pattern: AccessPattern::default(),
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the array.
    pub fn array(&self) -> &Arc<OpenArray> {
        &self.array
    }

    /// Returns the bytes of a range if all pieces under it are in memory and current; stops at the first that is
    /// not. The range must lie in the file.
    pub fn read_now(&self, range: Range<u64>) -> Option<ReadBytes> {
        let decoder = self.array.decoder().ok()?;
        let is_long = range.end - range.start > self.max_read(decoder);
        if self.direct || is_long || !self.array.metadata_hold() {
            return None;
        }
        let now = self.array.versions.now();
        let (mut parts, mut pieces) = (Vec::new(), Vec::new());
        let versions = self.array.versions.lock();
        let is_complete = self.visit_pieces(decoder, &range, |number, start, shared| {
            let Some(piece) = self.piece_now(decoder, number, &versions, now) else {
                return false;
            };
            parts.push(Part::new(number, start, shared));
            pieces.push(piece);
            true
        });
        drop(versions);
        if !is_complete {
            return None;
        }
        let stats = &self.array.engine.stats;
        stats.cache_hit_chunks.add(pieces.len() as u64);
        let ahead = self.note_read(decoder, &range);
        self.read_ahead(decoder, &ahead);
        let mut pieces = pieces.into_iter();
        let bytes = self.gather(decoder, &range, &parts, |_| {
            let piece = pieces.next().ok_or_else(|| Error::invalid("", "no piece"));
            piece.map(Source::Piece)
        });
        self.note_answer(&range);
        bytes.ok()
    }

    /// Returns a piece if it is in memory and current.
    fn piece_now(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        versions: &LockedVersions<'_>,
        now: Instant,
    ) -> Option<Piece> {
        let array = &*self.array;
        if let Some(written) = array.written(decoder, piece) {
            return Some(Piece::Data(written));
        }
        let stored = decoder.stored_number(piece);
        match array.version_in(versions, decoder, stored, now) {
            VersionState::Known(None) => Some(Piece::Fill),
            VersionState::Known(Some(version)) => {
                match array.engine.cache.get(&(array.id, 0, piece.0)) {
                    Some(Cached::Chunk(decoded)) if decoded.version == version => {
                        Some(Piece::Data(decoded))
                    }
                    _ => None,
                }
            }
            VersionState::Unknown | VersionState::Stale => None,
        }
    }

    /// Returns the bytes of a range; fetches and decodes what is missing. The range must lie in the file.
    pub fn read(&self, range: Range<u64>) -> Result<ReadBytes> {
        let decoder = self.array.decoder()?;
        self.array.check_metadata()?;
        let most = self.max_read(decoder);
        if range.end - range.start <= most {
            return self.read_part(decoder, range);
        }
        let mut out = Vec::with_capacity(in_buffer(range.end - range.start));
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(most));
            out.extend_from_slice(&self.read_part(decoder, start..end)?);
            start = end;
        }
        Ok(out.into())
    }

    /// Returns the bytes of a range that is no longer than `max_read`.
    fn read_part(&self, decoder: &Decoder, range: Range<u64>) -> Result<ReadBytes> {
        let parts = self.parts(decoder, &range);
        if self.direct {
            return self.gather(decoder, &range, &parts, |piece| {
                let written = self.array.written(decoder, piece);
                Ok(written.map_or(Source::Stored, |piece| Source::Piece(Piece::Data(piece))))
            });
        }
        // Before anything is decoded, so that what it evicts is known to be wanted again.
        let ahead = self.note_read(decoder, &range);
        self.decode_beside(decoder, parts.iter().skip(1).map(|part| part.piece));
        self.read_ahead(decoder, &ahead);
        let bytes = self.gather(decoder, &range, &parts, |piece| {
            self.array.piece(decoder, piece).map(Source::Piece)
        });
        self.note_answer(&range);
        bytes
    }

    /// Returns the elements that hold a range of bytes.
    pub(super) fn elements(&self, range: &Range<u64>) -> Range<u64> {
        let element = self.array.element as u64;
        range.start / element..range.end.div_ceil(element)
    }

    /// Returns the most bytes that are read at a time, so that about `MAX_PARTS` pieces lie under them.
    pub(super) fn max_read(&self, decoder: &Decoder) -> u64 {
        let row = if decoder.pieces.is_regular() {
            decoder.pieces.chunk_shape().last().copied().unwrap_or(1)
        } else {
            1
        };
        (MAX_PARTS * self.array.element.max(1) as u64).saturating_mul(row)
    }

    /// Calls `visit` with each piece under a range, its first element and the elements that are wanted of it, in
    /// order of their first byte in each box, until it returns false; returns whether all were visited.
    pub(super) fn visit_pieces(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        mut visit: impl FnMut(ChunkIndex, &[u64], &Region) -> bool,
    ) -> bool {
        for mut part in boxes(&self.region.shape, self.elements(range)) {
            for (start, &offset) in part.start.iter_mut().zip(&self.region.start) {
                *start += offset;
            }
            let mut goes_on = true;
            decoder.pieces.visit(&part, |piece, start, shared| {
                goes_on = visit(piece, start, shared);
                goes_on
            });
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Returns the pieces under a range.
    pub(super) fn parts(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        self.visit_pieces(decoder, range, |piece, start, shared| {
            parts.push(Part::new(piece, start, shared));
            true
        });
        parts
    }

    /// Puts the bytes of a range together out of its parts; a range inside one piece stays where it is.
    fn gather(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
        mut source: impl FnMut(ChunkIndex) -> Result<Source>,
    ) -> Result<ReadBytes> {
        let size = self.array.element as u64;
        let elements = self.elements(range);
        let first = elements.start * size;
        let wanted = in_buffer(range.start - first)..in_buffer(range.end - first);
        let mut out = None;
        for part in parts {
            let runs = self.runs(decoder, &elements, part);
            let source = source(part.piece)?;
            if let (Source::Piece(Piece::Data(decoded)), [_], Some(run)) =
                (&source, parts, runs.single())
            {
                let range = run.start + wanted.start..run.start + wanted.end;
                return Ok(ReadBytes::Shared(decoded.clone(), range));
            }
            let length = || Buffer::of_length(in_buffer(elements.end * size - first));
            let out = out.get_or_insert_with(length);
            match source {
                Source::Piece(Piece::Data(decoded)) => runs.copy(decoded.bytes(), out),
                Source::Piece(Piece::Fill) => runs.fill(&self.array.array.fill_value.bytes, out),
                Source::Stored => self.copy_stored(decoder, part.piece, &runs, out)?,
            }
        }
        let mut out = out.unwrap_or_default();
        out.cut(wanted);
        Ok(ReadBytes::Own(out))
    }

    /// Copies runs out of an uncompressed chunk without keeping it: the kernel caches the file that it is.
    fn copy_stored(
        &self,
        decoder: &Decoder,
        piece: ChunkIndex,
        runs: &Runs,
        out: &mut [u8],
    ) -> Result<()> {
        let length = decoder.pipeline_of(piece)?.chunk_bytes();
        let read = |stored: &StoredChunk| stored.scatter(runs, length, out);
        let found = self.array.read_stored(decoder, piece.0, read)?;
        if found.is_none() {
            runs.fill(&self.array.array.fill_value.bytes, out);
        }
        Ok(())
    }

    /// Returns where a part lies in its piece, and in a buffer of these elements.
    fn runs(&self, decoder: &Decoder, elements: &Range<u64>, part: &Part) -> Runs {
        let from = Layout {
            start: &part.start,
            shape: &decoder.pieces.shape_of(part.piece),
            skipped: 0,
        };
        let to = Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: elements.start,
        };
        Runs::new(&part.region, from, to, self.array.element)
    }
}
