//! Computes the byte ranges of a file's chunk rows.
//!
//! A row is the chunks at one index along the slowest dimension of the file.
//!
//! A sequential reader passes over a row once per plane, so it needs one row in memory at a time.

use std::ops::Range;

use zarr_format::grid::{Grid, Region};

/// The layout of a file's bytes in chunk rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkRows {
    /// Bytes of a plane, which is one index along the slowest dimension.
    pub(super) plane: u64,
    /// The number of planes of a row, and of planes of the first row that are before the file.
    planes: u64,
    skipped: u64,
    /// Bytes of a row.
    pub(super) bytes: u64,
}

impl ChunkRows {
    /// Returns the rows of a file of `length` bytes with a part of an array, whose slowest dimension is `axis`. If rows
    /// differ in length, each plane counts as a row.
    pub(super) fn new(chunks: &Grid, region: &Region, axis: usize, length: u64) -> ChunkRows {
        let of_chunk = chunks.chunk_shape().get(axis).copied().unwrap_or(1).max(1);
        let of_file = region.shape.get(axis).copied().unwrap_or(1).max(1);
        let plane = length / of_file;
        let planes = if chunks.is_regular() { of_chunk } else { 1 };
        ChunkRows {
            plane,
            planes,
            skipped: region.start.get(axis).copied().unwrap_or(0) % planes,
            bytes: plane * of_chunk.min(of_file),
        }
    }

    /// Returns the byte range of the row that contains byte `byte`.
    pub(super) fn range_at(&self, byte: u64) -> Range<u64> {
        let row = (byte / self.plane.max(1) + self.skipped) / self.planes.max(1);
        let start = |row: u64| {
            let planes = row.saturating_mul(self.planes).saturating_sub(self.skipped);
            planes.saturating_mul(self.plane)
        };
        start(row)..start(row + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_chunks_and_not_the_file() {
        let chunks = Grid::new(&[20, 10], &[4, 10]).unwrap();
        let region = Region {
            start: [5, 0].as_slice().into(),
            shape: [12, 10].as_slice().into(),
        };
        let rows = ChunkRows::new(&chunks, &region, 0, 12 * 10);
        assert_eq!((rows.plane, rows.bytes), (10, 40));
        assert_eq!(rows.range_at(0), 0..30);
        assert_eq!(rows.range_at(29), 0..30);
        assert_eq!(rows.range_at(30), 30..70);
        let columns = ChunkRows::new(&chunks, &region, 1, 12 * 10);
        assert_eq!((columns.plane, columns.bytes), (12, 120));
        assert_eq!(columns.range_at(50), 0..120);
    }
}
