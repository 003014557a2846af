//! A box of an array as one flat file: C order, little-endian, no header.
//!
//! A range of bytes is cut into boxes, these into the pieces under them, and each piece's runs of bytes are
//! copied into the answer. Pieces are taken one after another, so a read never holds more than one; the
//! other missing ones are meanwhile decoded by the engine's threads.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::array::OpenArray;
use crate::array::access_pattern::AccessPattern;
use crate::array::chunk::{Decoded, Piece};
use crate::array::decoder::Decoder;
use crate::array::readers::StoredChunk;
use crate::error::{Error, Result};
use crate::grid::{ChunkIndex, Coordinates, Layout, Region, Runs, boxes};
use crate::model::bytes_of;
use crate::sync::buffer::Buffer;

/// Bytes of a read: inside a decoded piece, or put together.
pub enum ReadSpan {
    /// A range of a piece that stays where it is.
    Shared(Arc<Decoded>, Range<usize>),
    /// Bytes put together for this read.
    Own(Buffer),
}

impl Deref for ReadSpan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReadSpan::Shared(decoded, range) => {
                decoded.bytes().get(range.clone()).unwrap_or_default()
            }
            ReadSpan::Own(bytes) => bytes,
        }
    }
}

/// A box of an array as a flat file.
pub struct FlatFile {
    pub(super) array: Arc<OpenArray>,
    pub(super) region: Region,
    pub(super) length: u64,
    pub(super) pattern: AccessPattern,
    /// Tells this file from others.
    pub(super) number: usize,
    /// Whether reads go straight to the stored chunks.
    direct: bool,
}

/// The number of the next flat file.
static LAST: AtomicUsize = AtomicUsize::new(0);

impl Drop for FlatFile {
    fn drop(&mut self) {
        if let Some(origin) = &self.array.origin {
            origin.note(self.number, &self.region, None);
        }
    }
}

/// Runs shorter than this are not worth a place in a system call of their own, in bytes.
const LEAST_RUN: u64 = 256;

/// The most parts that a read is made of at a time; a part takes about 200 bytes.
const MOST_PARTS: u64 = 1 << 14;

/// A piece under a read and what of it is wanted.
pub(super) struct Part {
    pub(super) piece: ChunkIndex,
    /// The piece's first element.
    pub(super) start: Coordinates,
    pub(super) part: Region,
}

impl FlatFile {
    /// Builds the flat file of a box; `Unsupported` or `TooLarge` if it has no length.
    pub fn new(array: Arc<OpenArray>, region: Region) -> Result<FlatFile> {
        let length = bytes_of(&region.shape, array.array.element_size()?)?;
        Ok(FlatFile {
            direct: array.reads_direct(LEAST_RUN),
            array,
            region,
            length,
            pattern: AccessPattern::default(),
            number: LAST.fetch_add(1, Ordering::Relaxed),
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

    /// Returns the bytes of a range if all pieces under it are in memory and current. The range must lie in
    /// the file.
    pub fn read_now(&self, range: Range<u64>) -> Option<ReadSpan> {
        let decoder = self.array.decoder().ok()?;
        let long = range.end - range.start > self.span(decoder);
        if self.direct || long || !self.array.metadata_hold() {
            return None;
        }
        let now = Instant::now();
        let parts = self.parts(decoder, &range);
        let pieces: Option<Vec<Piece>> = parts
            .iter()
            .map(|part| self.array.piece_now(decoder, part.piece, now))
            .collect();
        let pieces = pieces?;
        self.array
            .engine
            .stats
            .cache_hit_chunks
            .add(pieces.len() as u64);
        let ahead = self.note_read(decoder, &range);
        self.read_ahead(decoder, &ahead);
        let mut pieces = pieces.into_iter();
        let span = self.assemble(decoder, &range, &parts, |_| {
            pieces.next().ok_or_else(|| Error::invalid("", "no piece"))
        });
        self.note_answer(&range);
        span.ok()
    }

    /// Returns the bytes of a range; fetches and decodes what is missing. The range must lie in the file.
    pub fn read(&self, range: Range<u64>) -> Result<ReadSpan> {
        let decoder = self.array.decoder()?;
        self.array.check_metadata()?;
        let span = self.span(decoder);
        if range.end - range.start <= span {
            return self.read_span(decoder, range);
        }
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        for start in range.clone().step_by(span as usize) {
            let part = start..range.end.min(start.saturating_add(span));
            out.extend_from_slice(&self.read_span(decoder, part)?);
        }
        Ok(ReadSpan::Own(out.into()))
    }

    /// Returns the bytes of a range of which no more than `span` are read at a time.
    fn read_span(&self, decoder: &Decoder, range: Range<u64>) -> Result<ReadSpan> {
        let parts = self.parts(decoder, &range);
        if self.direct {
            return self.read_direct(decoder, &range, &parts);
        }
        // Before anything is decoded, so that what makes room for it is known to be wanted.
        let ahead = self.note_read(decoder, &range);
        self.decode_beside(decoder, parts.iter().skip(1).map(|part| part.piece));
        self.read_ahead(decoder, &ahead);
        let span = self.assemble(decoder, &range, &parts, |piece| {
            self.array.piece(decoder, piece)
        });
        self.note_answer(&range);
        span
    }

    /// Returns the elements that hold a range of bytes.
    pub(super) fn elements(&self, range: &Range<u64>) -> Range<u64> {
        let element = self.array.element as u64;
        range.start / element..range.end.div_ceil(element)
    }

    /// Returns how many bytes never have more than `MOST_PARTS` under them, or few more.
    pub(super) fn span(&self, decoder: &Decoder) -> u64 {
        let row = match decoder.pieces.is_regular() {
            true => decoder.pieces.chunk_shape().last().copied().unwrap_or(1),
            false => 1,
        };
        (MOST_PARTS * self.array.element.max(1) as u64).saturating_mul(row)
    }

    /// Returns the pieces under a range, in order of their first byte in each box.
    pub(super) fn parts(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        for mut part in boxes(&self.region.shape, self.elements(range)) {
            for (start, &offset) in part.start.iter_mut().zip(&self.region.start) {
                *start += offset;
            }
            decoder.pieces.visit(&part, |piece, start, shared| {
                parts.push(Part {
                    piece,
                    start: start.into(),
                    part: shared.clone(),
                });
                true
            });
        }
        parts
    }

    /// Puts a range together out of its pieces; inside one piece, its bytes stay where they are.
    fn assemble(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
        mut piece: impl FnMut(ChunkIndex) -> Result<Piece>,
    ) -> Result<ReadSpan> {
        let mut first = None;
        if let [part] = parts {
            let chunk = piece(part.piece)?;
            let elements = self.elements(range);
            let skip = (range.start - elements.start * self.array.element as u64) as usize;
            let run = self.runs(decoder, &elements, part).single();
            if let (Piece::Data(decoded), Some(run)) = (&chunk, run) {
                let start = run.start + skip;
                let end = start + (range.end - range.start) as usize;
                return Ok(ReadSpan::Shared(decoded.clone(), start..end));
            }
            first = Some(chunk);
        }
        self.put_together(decoder, range, parts, |part, runs, out| {
            match first.take().map_or_else(|| piece(part.piece), Ok)? {
                Piece::Data(decoded) => runs.copy(decoded.bytes(), out),
                Piece::Fill => runs.fill(&self.array.array.fill_value.bytes, out),
            }
            Ok(())
        })
    }

    /// Puts a range together out of uncompressed chunks without keeping them: the kernel has them already.
    fn read_direct(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
    ) -> Result<ReadSpan> {
        self.put_together(decoder, range, parts, |part, runs, out| {
            if let Some(written) = self.array.written(decoder, part.piece) {
                runs.copy(written.bytes(), out);
                return Ok(());
            }
            let length = decoder.pipeline_of(part.piece)?.chunk_bytes();
            let read = |stored: &StoredChunk| stored.scatter(runs, length, out);
            let found = self.array.read_stored(decoder, part.piece.0, read)?;
            if found.is_none() {
                runs.fill(&self.array.array.fill_value.bytes, out);
            }
            Ok(())
        })
    }

    /// Fills a buffer with what `copy` puts at the runs of each part; returns the bytes of the range.
    fn put_together(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
        mut copy: impl FnMut(&Part, &Runs, &mut [u8]) -> Result<()>,
    ) -> Result<ReadSpan> {
        let size = self.array.element as u64;
        let elements = self.elements(range);
        let first = elements.start * size;
        let mut out = Buffer::of_length((elements.end * size - first) as usize);
        for part in parts {
            copy(part, &self.runs(decoder, &elements, part), &mut out)?;
        }
        out.cut((range.start - first) as usize..(range.end - first) as usize);
        Ok(ReadSpan::Own(out))
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
        Runs::new(&part.part, from, to, self.array.element)
    }
}
