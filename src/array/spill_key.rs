//! The readers of one array that go through a flat file in order, and which pieces they will read again.
//!
//! A file read in order passes over a row of chunks many times. A piece that lies ahead of such a reader is worth
//! keeping on disk when the cache drops it; one that lies behind all of them is not.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::grid::{ChunkIndex, Grid, Region};
use crate::store::Key;
use crate::store::layer::disk_cache::EntryKey;

/// How long after its last read a reader still counts as reading.
const READER_TIMEOUT: Duration = Duration::from_secs(60);

/// One array: the names of its pieces on disk and its readers in order.
pub(super) struct SpillKey {
    path: Key,
    /// Version of the metadata.
    metadata: u64,
    element: u64,
    pieces: Grid,
    readers: Mutex<HashMap<usize, ReaderProgress>>,
}

/// How far a reader in order has come in a box.
struct ReaderProgress {
    region: Region,
    /// Where the bytes begin that are still to be read.
    rest: u64,
    since: Instant,
}

impl SpillKey {
    pub(super) fn new(path: Key, metadata: u64, element: usize, pieces: Grid) -> Arc<SpillKey> {
        Arc::new(SpillKey {
            path,
            metadata,
            element: element as u64,
            pieces,
            readers: Mutex::default(),
        })
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<usize, ReaderProgress>> {
        self.readers.lock()
    }

    /// Notes that reader `number` has still to read the bytes from `rest` on of the box `region`; `None` if it does
    /// not read in order.
    pub(super) fn note_reader(&self, number: usize, region: &Region, rest: Option<u64>) {
        let mut readers = self.readers();
        match (rest, readers.get_mut(&number)) {
            (None, _) => drop(readers.remove(&number)),
            (Some(rest), Some(progress)) => {
                progress.rest = rest;
                progress.since = Instant::now();
            }
            (Some(rest), None) => {
                let progress = ReaderProgress {
                    region: region.clone(),
                    rest,
                    since: Instant::now(),
                };
                readers.insert(number, progress);
            }
        }
    }

    /// Whether a reader in order has still to read the piece.
    pub(super) fn is_wanted(&self, piece: ChunkIndex) -> bool {
        self.has_reader(piece, |end, rest| end > rest)
    }

    /// Whether readers in order have read the piece and none of them has still to.
    pub(super) fn is_passed(&self, piece: ChunkIndex) -> bool {
        self.has_reader(piece, |end, rest| end <= rest) && !self.is_wanted(piece)
    }

    /// Whether `matches` is true of any reader of the piece, given where the piece ends in the reader's file and
    /// where the bytes begin that are still to be read.
    fn has_reader(&self, piece: ChunkIndex, matches: impl Fn(u64, u64) -> bool) -> bool {
        let region = self.pieces.region(&self.pieces.indices(piece));
        let readers = self.readers();
        readers.values().any(|progress| {
            let end = last_byte(&progress.region, &region, self.element);
            let is_reading = progress.since.elapsed() < READER_TIMEOUT;
            is_reading && end.is_some_and(|end| matches(end, progress.rest))
        })
    }

    /// Returns the name of a piece on disk.
    pub(super) fn entry(&self, piece: u64) -> EntryKey {
        EntryKey::decoded(&self.path, piece, self.metadata)
    }
}

/// Returns where the bytes of a piece end in the flat file of a box; nothing if they have no element in common.
fn last_byte(of: &Region, piece: &Region, element: u64) -> Option<u64> {
    let mut offset: u64 = 0;
    for (axis, (&start, &length)) in of.start.iter().zip(&of.shape).enumerate() {
        let (first, count) = (*piece.start.get(axis)?, *piece.shape.get(axis)?);
        let end = start.checked_add(length)?.min(first.checked_add(count)?);
        let last = end.checked_sub(1)?;
        if last < start.max(first) {
            return None;
        }
        offset = offset.checked_mul(length)?.checked_add(last - start)?;
    }
    offset.checked_add(1)?.checked_mul(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &[u64], shape: &[u64]) -> Region {
        Region {
            start: start.into(),
            shape: shape.into(),
        }
    }

    #[test]
    fn the_last_byte_of_a_piece_in_a_box() {
        let whole = region(&[0, 0], &[10, 10]);
        assert_eq!(last_byte(&whole, &region(&[0, 0], &[5, 5]), 2), Some(90));
        assert_eq!(last_byte(&whole, &region(&[5, 5], &[5, 5]), 2), Some(200));
        let part = region(&[4, 4], &[2, 2]);
        assert_eq!(last_byte(&part, &region(&[0, 0], &[5, 5]), 1), Some(1));
        assert_eq!(last_byte(&part, &region(&[6, 6], &[4, 4]), 1), None);
        assert_eq!(last_byte(&part, &region(&[0, 0], &[4, 9]), 1), None);
        assert_eq!(last_byte(&region(&[], &[]), &region(&[], &[]), 8), Some(8));
    }

    #[test]
    fn what_lies_behind_a_reader_is_not_wanted() {
        let pieces = Grid::new(&[8, 8], &[4, 4]).unwrap();
        let spill_key = SpillKey::new(Key::root(), 1, 1, pieces);
        let whole = region(&[0, 0], &[8, 8]);
        assert!(!spill_key.is_wanted(ChunkIndex(0)), "nobody reads");
        spill_key.note_reader(1, &whole, Some(28));
        assert!(!spill_key.is_wanted(ChunkIndex(0)) && spill_key.is_wanted(ChunkIndex(1)));
        assert!(spill_key.is_wanted(ChunkIndex(3)));
        assert!(spill_key.is_passed(ChunkIndex(0)) && !spill_key.is_passed(ChunkIndex(1)));
        spill_key.note_reader(1, &whole, None);
        assert!(!spill_key.is_wanted(ChunkIndex(3)) && !spill_key.is_passed(ChunkIndex(0)));
    }
}
