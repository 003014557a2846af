//! The readers of one array that go through a flat file in order, and which pieces they will read again.
//!
//! A file read in order passes over a row of chunks many times. A piece that lies ahead of such a reader is worth
//! keeping when memory has no room for it; one that lies behind all of them is not.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::grid::{ChunkIndex, Grid, Region};

/// How long after its last read a reader still counts as reading.
const READER_TIMEOUT: Duration = Duration::from_secs(60);

/// One array: its readers in order, and how much of it is kept for them.
pub(super) struct UnreadPieces {
    /// Bytes of an element.
    element: u64,
    pieces: Grid,
    /// Whether pieces go to disk: to read one back costs less than to load it again.
    spills: bool,
    readers: Mutex<HashMap<usize, ReaderProgress>>,
    /// Bytes of its pieces in memory that were not given out whole.
    kept: AtomicU64,
    /// A bit for each piece that was decoded; none of an array of too many.
    decoded: OnceLock<Box<[AtomicU64]>>,
    /// Whether a warning was logged that memory has no room for a row.
    has_warned: AtomicBool,
}

/// The most pieces of an array of which it is known whether they were decoded before.
const MAX_KNOWN: u64 = 1 << 20;

/// How far a reader in order has come in a box.
struct ReaderProgress {
    region: Region,
    /// Where the bytes begin that are still to be read.
    rest: u64,
    since: Instant,
}

impl ReaderProgress {
    fn is_reading(&self) -> bool {
        self.since.elapsed() < READER_TIMEOUT
    }
}

impl UnreadPieces {
    pub(super) fn new(element: usize, pieces: Grid, spills: bool) -> Arc<UnreadPieces> {
        Arc::new(UnreadPieces {
            element: element as u64,
            pieces,
            spills,
            readers: Mutex::default(),
            kept: AtomicU64::new(0),
            decoded: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Notes that a piece is decoded; returns whether it is known to have been decoded before.
    pub(super) fn note_decoded(&self, piece: ChunkIndex) -> bool {
        let count = self.pieces.len();
        if count > MAX_KNOWN {
            return false;
        }
        let empty = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words = self.decoded.get_or_init(empty);
        let place = usize::try_from(piece.0 / 64).ok();
        let Some(word) = place.and_then(|place| words.get(place)) else {
            return false;
        };
        let bit = 1 << (piece.0 % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }

    /// Returns true the first time.
    pub(super) fn warns(&self) -> bool {
        !self.has_warned.swap(true, Ordering::Relaxed)
    }

    /// Whether pieces go to disk that memory has no room for.
    pub(super) fn spills(&self) -> bool {
        self.spills
    }

    /// Returns the bytes of its pieces that are kept in memory.
    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    pub(super) fn add_kept(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_kept(&self, bytes: u64) {
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes of a piece lie in the array.
    pub(super) fn bytes_of(&self, piece: ChunkIndex) -> u64 {
        let region = self.pieces.region(&self.pieces.indices(piece));
        let elements = region.shape.iter().copied();
        elements.fold(self.element, u64::saturating_mul)
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

    /// Whether there is a reader in order.
    pub(super) fn has_readers(&self) -> bool {
        !self.readers().is_empty()
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
            progress.is_reading() && end.is_some_and(|end| matches(end, progress.rest))
        })
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
    fn a_piece_is_known_to_have_been_decoded() {
        let pieces = Grid::new(&[800, 8], &[4, 4]).unwrap();
        let unread = UnreadPieces::new(1, pieces, true);
        for piece in [0, 63, 64, 399] {
            assert!(!unread.note_decoded(ChunkIndex(piece)), "{piece}");
            assert!(unread.note_decoded(ChunkIndex(piece)), "{piece}");
        }
        assert!(!unread.note_decoded(ChunkIndex(1)));
        assert!(!unread.note_decoded(ChunkIndex(u64::MAX)));
        assert!(unread.warns() && !unread.warns());
    }

    #[test]
    fn what_lies_behind_a_reader_is_not_wanted() {
        let pieces = Grid::new(&[8, 8], &[4, 4]).unwrap();
        let unread = UnreadPieces::new(1, pieces, true);
        let whole = region(&[0, 0], &[8, 8]);
        assert!(!unread.is_wanted(ChunkIndex(0)), "nobody reads");
        unread.note_reader(1, &whole, Some(28));
        assert!(!unread.is_wanted(ChunkIndex(0)) && unread.is_wanted(ChunkIndex(1)));
        assert!(unread.is_wanted(ChunkIndex(3)));
        assert!(unread.is_passed(ChunkIndex(0)) && !unread.is_passed(ChunkIndex(1)));
        unread.note_reader(1, &whole, None);
        assert!(!unread.is_wanted(ChunkIndex(3)) && !unread.is_passed(ChunkIndex(0)));
    }
}
