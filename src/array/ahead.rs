//! Decoding before somebody waits: the other pieces of a read, and what a reader in order wants next.
//!
//! Pieces go to the engine's threads in batches that are worth a hand-over. Nobody waits for a batch, and
//! what fails in it is said to whoever reads the piece.

use std::ops::Range;

use crate::array::decoder::Decoder;
use crate::array::flat::Flat;
use crate::grid::ChunkIndex;
use crate::grid::boxes;

/// Decoded bytes that are worth a hand-over to another thread.
const BATCH: usize = 256 << 10;

/// The least distance to read ahead, in bytes.
const LEAST_AHEAD: u64 = 16 << 20;

impl Flat {
    /// Has pieces decoded by the engine's threads, as far as these have room for more work.
    pub(super) fn decode_beside(
        &self,
        decoder: &Decoder,
        pieces: impl Iterator<Item = ChunkIndex>,
    ) {
        let size = (BATCH / decoder.pipeline.chunk_bytes().max(1)).max(1);
        let mut missing = pieces.filter(|&piece| !self.array.has_piece(piece));
        loop {
            let mut batch: Vec<ChunkIndex> = missing.by_ref().take(size).collect();
            batch.dedup();
            if batch.is_empty() || !self.submit(batch) {
                return;
            }
        }
    }

    fn submit(&self, batch: Vec<ChunkIndex>) -> bool {
        let array = self.array.clone();
        self.array.engine.decoders.submit(move || {
            let Ok(decoder) = array.decoder() else { return };
            for piece in batch {
                if !array.has_piece(piece) {
                    array.engine.stats.prefetched_chunks.add(1);
                    let _ = array.piece(decoder, piece);
                }
            }
        })
    }

    /// Has decoded what a reader in order will want next.
    pub(super) fn read_ahead(&self, decoder: &Decoder, range: &Range<u64>) {
        let most = self.most_ahead(decoder);
        let ahead = self
            .pattern
            .note(range.start, range.end - range.start, most);
        self.note_rest();
        let ahead = ahead.start.min(self.length)..ahead.end.min(self.length);
        if !ahead.is_empty() {
            self.decode_beside(decoder, self.pieces(decoder, &ahead).into_iter());
        }
    }

    /// Notes that a range was read.
    pub(super) fn note_answer(&self, range: &Range<u64>) {
        if self.array.origin.is_some() {
            self.pattern.note_answer(range.clone());
            self.note_rest();
        }
    }

    fn note_rest(&self) {
        if let Some(origin) = &self.array.origin {
            origin.note(self.number, &self.region, self.pattern.rest());
        }
    }

    /// Returns the pieces under a range.
    fn pieces(&self, decoder: &Decoder, range: &Range<u64>) -> Vec<ChunkIndex> {
        let mut pieces = Vec::new();
        for mut part in boxes(&self.region.shape, self.elements(range)) {
            for (start, &offset) in part.start.iter_mut().zip(&self.region.start) {
                *start += offset;
            }
            decoder.pieces.visit(&part, |piece, _, _| {
                pieces.push(piece);
                true
            });
        }
        pieces
    }

    /// Returns how far to read ahead, in bytes: one row of chunks along the first axis, so that the next row
    /// decodes while this one is read; never so much that both do not fit the memory.
    fn most_ahead(&self, decoder: &Decoder) -> u64 {
        let quarter = self.array.engine.limits.memory / 4;
        let chunk = decoder.pieces.chunk_shape().first().copied().unwrap_or(1);
        let row = match self.region.shape.first() {
            Some(&rows) => self.length / rows.max(1) * chunk.min(rows),
            None => 0,
        };
        if row > quarter {
            return 0;
        }
        row.max(LEAST_AHEAD).min(quarter)
    }
}
