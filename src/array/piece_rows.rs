//! Rows of pieces: all that lie at one index along the first axis of a flat file. A reader in order passes over a row once
//! for each of its planes, so that a row is what it needs in memory at a time.

use crate::array::asked_row::PieceRows;
use crate::array::decoder::Decoder;
use crate::array::flat_file::FlatFile;

impl FlatFile {
    /// Returns how the file lies in rows of pieces, if all rows have as many planes.
    pub(super) fn piece_rows(&self, decoder: &Decoder) -> Option<PieceRows> {
        let first = self.first_axis();
        let planes = *decoder.pieces.chunk_shape().get(first)?;
        let start = *self.region.start.get(first)?;
        decoder.pieces.is_regular().then(|| PieceRows {
            plane: self.plane_bytes(),
            planes,
            skipped: start % planes.max(1),
        })
    }

    /// Returns the bytes of one index along the first axis.
    pub(super) fn plane_bytes(&self) -> u64 {
        let rows = self.region.shape.get(self.first_axis());
        self.length / rows.copied().unwrap_or(1).max(1)
    }

    /// Whether memory has no room for a row of pieces.
    pub(super) fn is_row_too_long(&self, decoder: &Decoder) -> bool {
        self.row_bytes(decoder) > self.array.kept_share(decoder)
    }

    /// Returns the bytes of a row of pieces along the first axis.
    pub(super) fn row_bytes(&self, decoder: &Decoder) -> u64 {
        let first = self.first_axis();
        let chunk = decoder.pieces.chunk_shape().get(first);
        match self.region.shape.get(first) {
            Some(&rows) => self.plane_bytes() * chunk.copied().unwrap_or(1).min(rows),
            None => 0,
        }
    }

    /// Returns how many shards a reader in order over a network passes over before it comes back to one; nothing unless it
    /// will want all of each: the file has whole shards, and the reader went on from one plane to the next.
    pub(super) fn shards_of_row(&self, decoder: &Decoder) -> Option<u64> {
        let first = self.first_axis();
        let two_planes = self.plane_bytes().saturating_mul(2);
        if self.array.engine.limits.fetches == 0 || !self.pattern.has_read(two_planes) {
            return None;
        }
        let (shard, array) = (decoder.stored.chunk_shape(), &self.array.array.shape);
        let mut shards: u64 = 1;
        for (axis, &length) in self.region.shape.iter().enumerate() {
            let of_shard = shard.get(axis).copied().unwrap_or(1).max(1);
            if length < of_shard.min(array.get(axis).copied().unwrap_or(0)) {
                return None;
            }
            if axis != first {
                shards = shards.saturating_mul(length.div_ceil(of_shard));
            }
        }
        Some(shards)
    }
}
