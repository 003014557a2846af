//! Counts the stored chunks of an array and their bytes.
//!
//! Chunks are counted as the store lists them, so that the cost follows the stored chunks, not the grid.

use std::sync::Arc;

use zarr_format::error::Result;
use zarr_format::grid::Grid;
use zarrfs_array::array::{ListedChunk, OpenArray, ScanDetail};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// A stored chunk, and its length in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkLength {
    /// The key of the chunk.
    pub key: Key,
    /// The stored length in bytes.
    pub bytes: u64,
}

/// Totals of the stored chunks of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkTotals {
    /// Number of chunks in the grid.
    pub total: u64,
    /// Number of stored chunks.
    pub present: u64,
    /// Stored bytes of these chunks.
    pub bytes: u64,
    /// Number of elements of these chunks inside the array; saturates at `u128::MAX`.
    pub elements: u128,
    /// A chunk of the shortest length.
    pub smallest: Option<ChunkLength>,
    /// A chunk of the longest length.
    pub largest: Option<ChunkLength>,
    /// Whether all stored chunks were counted.
    pub is_whole: bool,
}

impl ChunkTotals {
    /// Counts the stored chunks of an array, and may stop after `limit` of them; makes `threads` requests in
    /// parallel.
    ///
    /// Fails if the store cannot tell which chunks it has, or if the grid is unknown.
    pub fn count(
        context: &RequestContext,
        array: &Arc<OpenArray>,
        limit: u64,
        threads: usize,
    ) -> Result<ChunkTotals> {
        let grid = array.stored_grid()?;
        let mut facts = ChunkTotals {
            total: grid.len(),
            ..ChunkTotals::default()
        };
        let mut scan = array.scan_chunks(context, ScanDetail::Length, threads)?;
        while facts.present < limit {
            match scan.next_batch(context)? {
                None => {
                    facts.is_whole = true;
                    break;
                }
                Some(batch) => batch.iter().for_each(|chunk| facts.add(grid, chunk)),
            }
        }
        Ok(facts)
    }

    fn add(&mut self, grid: &Grid, chunk: &ListedChunk) {
        let bytes = chunk.size.unwrap_or_default();
        let shape = grid.region(&chunk.indices).shape;
        self.present += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let lengths = shape.iter().map(|&length| u128::from(length));
        let elements = lengths.fold(1_u128, u128::saturating_mul);
        self.elements = self.elements.saturating_add(elements);
        let found = || ChunkLength {
            key: chunk.key.clone(),
            bytes,
        };
        // Among equal lengths the first key wins, so that the order of a listing does not matter.
        let is_before = |other: &ChunkLength| chunk.key < other.key;
        let is_smaller =
            |other: &ChunkLength| bytes < other.bytes || bytes == other.bytes && is_before(other);
        let is_larger =
            |other: &ChunkLength| bytes > other.bytes || bytes == other.bytes && is_before(other);
        if self.smallest.as_ref().is_none_or(is_smaller) {
            self.smallest = Some(found());
        }
        if self.largest.as_ref().is_none_or(is_larger) {
            self.largest = Some(found());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_any_grid_are_counted() {
        let huge = vec![u64::MAX; 3];
        let grid = Grid::new(&huge, &huge).unwrap();
        let mut facts = ChunkTotals::default();
        let chunk = ListedChunk {
            indices: [0, 0, 0].as_slice().into(),
            key: Key::root(),
            size: Some(u64::MAX),
        };
        facts.add(&grid, &chunk);
        facts.add(&grid, &chunk);
        assert_eq!((facts.elements, facts.bytes), (u128::MAX, u64::MAX));
    }
}
