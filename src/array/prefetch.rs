//! Decoding before somebody waits: the other pieces of a read, and what a reader in order wants next.
//!
//! Pieces go to the engine's threads in batches that are worth a hand-over. Nobody waits for a batch, and
//! what fails in it is said to whoever reads the piece.

use std::ops::Range;

use crate::array::access_pattern::{Prediction, Window};
use crate::array::decoder::Decoder;
use crate::array::flat_file::FlatFile;
use crate::grid::{ChunkIndex, boxes};

/// Decoded bytes that are worth a hand-over to another thread.
const BATCH: usize = 256 << 10;

/// The least distance to read ahead, in bytes.
const LEAST_AHEAD: u64 = 16 << 20;

/// How many chunks are decoded ahead of a reader in equal steps where nothing comes over a network.
const LEAST_STEPS: usize = 4;

impl FlatFile {
    /// Has pieces decoded by the engine's threads, as far as these have room for more work.
    pub(super) fn decode_beside(
        &self,
        decoder: &Decoder,
        pieces: impl Iterator<Item = ChunkIndex>,
    ) {
        // What comes over a network comes side by side.
        let size = match self.array.engine.limits.fetches {
            0 => (BATCH / decoder.pipeline.chunk_bytes().max(1)).max(1),
            _ => 1,
        };
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
                // The reader may have been faster.
                let is_passed = || {
                    array
                        .origin
                        .as_ref()
                        .is_some_and(|origin| origin.is_passed(piece))
                };
                if !array.has_piece(piece) && !is_passed() {
                    array.engine.stats.prefetched_chunks.add(1);
                    let _ = array.piece(decoder, piece);
                }
            }
        })
    }

    /// Notes that a range is to be read; returns what its reader will want next.
    pub(super) fn note_read(&self, decoder: &Decoder, range: &Range<u64>) -> Prediction {
        let reach = self.reach(decoder);
        let length = range.end - range.start;
        let ahead = self.pattern.note(range.start, length, reach);
        self.note_rest();
        match ahead {
            Prediction::Steps { .. } if reach.most == 0 => Prediction::NOTHING,
            ahead => ahead,
        }
    }

    /// Has decoded what a reader will want next.
    pub(super) fn read_ahead(&self, decoder: &Decoder, ahead: &Prediction) {
        match ahead {
            Prediction::Range(_) => {
                let pieces = ahead
                    .ranges(self.length)
                    .flat_map(|range| self.pieces(decoder, &range));
                self.decode_beside(decoder, pieces);
            }
            Prediction::Steps { .. } => self.step_ahead(decoder, ahead),
        }
    }

    /// Has decoded what the next steps will want, as many pieces as come at a time.
    fn step_ahead(&self, decoder: &Decoder, ahead: &Prediction) {
        let size = decoder.pipeline.chunk_bytes().max(1) as u64;
        let room = self.array.engine.limits.memory / 4 / size;
        let wanted = (self.array.engine.limits.fetches.max(LEAST_STEPS) as u64).min(room);
        let mut pieces: Vec<ChunkIndex> = Vec::new();
        for range in ahead.ranges(self.length) {
            for piece in self.pieces(decoder, &range) {
                if !pieces.contains(&piece) {
                    pieces.push(piece);
                }
            }
            if pieces.len() as u64 >= wanted {
                break;
            }
        }
        pieces.truncate(wanted as usize);
        self.decode_beside(decoder, pieces.into_iter());
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

    /// Returns how far to read ahead: one row of chunks along the first axis, so that the next row decodes while
    /// this one is read; over a network as much again, since requests for the row after that one have to be under
    /// way when this one's last chunk is waited for. Never so much that it does not fit the memory.
    fn reach(&self, decoder: &Decoder) -> Window {
        let quarter = self.array.engine.limits.memory / 4;
        let chunk = decoder.pieces.chunk_shape().first().copied().unwrap_or(1);
        let row = match self.region.shape.first() {
            Some(&rows) => self.length / rows.max(1) * chunk.min(rows),
            None => 0,
        };
        if row > quarter {
            return Window { least: 0, most: 0 };
        }
        let most = match self.array.engine.limits.fetches as u64 {
            0 => row.max(LEAST_AHEAD),
            fetches => {
                let at_once = fetches.saturating_mul(decoder.pipeline.chunk_bytes() as u64);
                row.saturating_add(row.max(at_once)).max(LEAST_AHEAD)
            }
        };
        let least = match self.array.engine.limits.fetches {
            0 => 0,
            _ => row,
        };
        let most = most.min(quarter);
        Window { least, most }
    }
}
