//! A box of an array as one flat file: C order, little-endian, no header.
//!
//! A range of bytes is cut into boxes, these into the pieces under them, and each piece's runs of bytes are
//! copied into the answer. Pieces are taken one after another, so a read never holds more than one; the
//! other missing ones are meanwhile decoded by the engine's threads.

use std::ops::Deref;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::array::Decoder;
use crate::array::OpenArray;
use crate::array::chunk::Chunk;
use crate::array::chunk::Decoded;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::error::Result;
use crate::grid::ChunkIndex;
use crate::grid::Layout;
use crate::grid::Region;
use crate::grid::Runs;
use crate::grid::boxes;
use crate::model::bytes_of;
use crate::prefetch::Pattern;

/// Bytes of a read: inside a decoded piece, or put together.
pub enum Span {
    /// A range of a piece that stays where it is.
    Shared(Arc<Decoded>, Range<usize>),
    /// Bytes put together for this read.
    Own(Buffer),
}

impl Deref for Span {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Span::Shared(decoded, range) => decoded.bytes().get(range.clone()).unwrap_or_default(),
            Span::Own(bytes) => bytes,
        }
    }
}

/// A box of an array as a flat file.
pub struct Flat {
    array: Arc<OpenArray>,
    region: Region,
    length: u64,
    pattern: Pattern,
}

/// A piece under a read and what of it is wanted.
struct Part {
    piece: ChunkIndex,
    start: Vec<u64>,
    part: Region,
}

impl Flat {
    /// Builds the flat file of a box; `Unsupported` or `TooLarge` if it has no length.
    pub fn new(array: Arc<OpenArray>, region: Region) -> Result<Flat> {
        let length = bytes_of(&region.shape, array.array.element_size()?)?;
        Ok(Flat {
            array,
            region,
            length,
            pattern: Pattern::default(),
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
    pub fn read_now(&self, range: Range<u64>) -> Option<Span> {
        let decoder = self.array.decoder().ok()?;
        if !self.array.metadata_hold() {
            return None;
        }
        let now = Instant::now();
        let parts = self.parts(decoder, &range);
        let pieces: Option<Vec<Chunk>> = parts
            .iter()
            .map(|part| self.array.piece_now(decoder, part.piece, now))
            .collect();
        let pieces = pieces?;
        self.array
            .engine
            .stats
            .cache_hit_chunks
            .add(pieces.len() as u64);
        self.read_ahead(decoder, &range);
        let mut pieces = pieces.into_iter();
        self.assemble(decoder, &range, &parts, |_| {
            pieces.next().ok_or_else(|| Error::invalid("", "no piece"))
        })
        .ok()
    }

    /// Returns the bytes of a range; fetches and decodes what is missing. The range must lie in the file.
    pub fn read(&self, range: Range<u64>) -> Result<Span> {
        let decoder = self.array.decoder()?;
        self.array.check_metadata()?;
        let parts = self.parts(decoder, &range);
        self.decode_beside(parts.iter().skip(1).map(|part| part.piece));
        self.read_ahead(decoder, &range);
        self.assemble(decoder, &range, &parts, |piece| {
            self.array.piece(decoder, piece)
        })
    }

    /// Returns the elements that hold a range of bytes.
    fn elements(&self, range: &Range<u64>) -> Range<u64> {
        let element = self.array.element as u64;
        range.start / element..range.end.div_ceil(element)
    }

    /// Returns the pieces under a range, in order of their first byte in each box.
    fn parts(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<Part> {
        let mut parts = Vec::new();
        for mut part in boxes(&self.region.shape, self.elements(range)) {
            for (start, &offset) in part.start.iter_mut().zip(&self.region.start) {
                *start += offset;
            }
            decoder.pieces.visit(&part, |piece, start, shared| {
                parts.push(Part {
                    piece,
                    start: start.to_vec(),
                    part: shared.clone(),
                });
                true
            });
        }
        parts
    }

    /// Puts a range together out of its pieces.
    fn assemble(
        &self,
        decoder: &Decoder,
        range: &Range<u64>,
        parts: &[Part],
        mut piece: impl FnMut(ChunkIndex) -> Result<Chunk>,
    ) -> Result<Span> {
        let size = self.array.element;
        let elements = self.elements(range);
        let aligned = elements.start * size as u64..elements.end * size as u64;
        let to = Layout {
            start: &self.region.start,
            shape: &self.region.shape,
            skipped: elements.start,
        };
        let mut out = Buffer::default();
        for part in parts {
            let from = Layout {
                start: &part.start,
                shape: decoder.pieces.chunk_shape(),
                skipped: 0,
            };
            let runs = Runs::new(&part.part, from, to, size);
            let chunk = piece(part.piece)?;
            if let (Chunk::Data(decoded), Some(run), [_]) = (&chunk, runs.single(), parts) {
                let skip = (range.start - aligned.start) as usize;
                let length = (range.end - range.start) as usize;
                return Ok(Span::Shared(
                    decoded.clone(),
                    run.start + skip..run.start + skip + length,
                ));
            }
            if out.is_empty() {
                out = Buffer::of_length((aligned.end - aligned.start) as usize);
            }
            match &chunk {
                Chunk::Data(decoded) => runs.copy(decoded.bytes(), &mut out),
                Chunk::Fill => runs.fill(&self.array.array.fill_value.bytes, &mut out),
            }
        }
        let start = (range.start - aligned.start) as usize;
        out.cut(start..(range.end - aligned.start) as usize);
        Ok(Span::Own(out))
    }

    /// Has pieces decoded by the engine's threads; returns false when there is no room for more.
    fn decode_beside(&self, pieces: impl Iterator<Item = ChunkIndex>) -> bool {
        let mut last = None;
        for piece in pieces {
            if last == Some(piece) || self.array.has_piece(piece) {
                continue;
            }
            last = Some(piece);
            let array = self.array.clone();
            let queued = self.array.engine.decoders.submit(move || {
                if !array.has_piece(piece)
                    && let Ok(decoder) = array.decoder()
                {
                    array.engine.stats.prefetched_chunks.add(1);
                    // Whoever reads the piece asks again and is told what is wrong.
                    let _ = array.piece(decoder, piece);
                }
            });
            if !queued {
                return false;
            }
        }
        true
    }

    /// Has decoded what a reader in order will want next.
    fn read_ahead(&self, decoder: &Decoder, range: &Range<u64>) {
        let most = self.most_ahead(decoder);
        let ahead = self
            .pattern
            .note(range.start, range.end - range.start, most);
        let ahead = ahead.start.min(self.length)..ahead.end.min(self.length);
        if ahead.is_empty() {
            return;
        }
        for mut part in boxes(&self.region.shape, self.elements(&ahead)) {
            for (start, &offset) in part.start.iter_mut().zip(&self.region.start) {
                *start += offset;
            }
            let mut room = true;
            decoder.pieces.visit(&part, |piece, _, _| {
                room = self.decode_beside(std::iter::once(piece));
                room
            });
            if !room {
                return;
            }
        }
    }

    /// Returns how far to read ahead, in bytes: one row of chunks along the first axis, so that the next row
    /// decodes while this one is read; never so much that both do not fit the memory.
    fn most_ahead(&self, decoder: &Decoder) -> u64 {
        const LEAST: u64 = 16 << 20;
        let quarter = self.array.engine.limits.memory / 4;
        let row: u64 = match self.region.shape.first() {
            Some(&rows) => {
                let chunk = decoder.pieces.chunk_shape().first().copied().unwrap_or(1);
                self.length / rows.max(1) * chunk.min(rows)
            }
            None => 0,
        };
        if row > quarter {
            0
        } else {
            row.max(LEAST).min(quarter)
        }
    }
}
