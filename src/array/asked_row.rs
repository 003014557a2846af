//! The row of pieces that a reader in order was read ahead for last, and how much of it.
//!
//! Every plane of a row of pieces has parts of all of them. Once one plane was asked for, the others have nothing new: small
//! inner chunks would be looked up once more for each of them. A reader that goes back is asked for again.

use parking_lot::Mutex;
use std::ops::Range;

/// How the bytes of a file lie in rows of pieces.
#[derive(Clone, Copy)]
pub(super) struct PieceRows {
    /// Bytes of a plane: of one index along the first axis.
    pub(super) plane: u64,
    /// Planes of a row, and how many of the first row come before the file.
    pub(super) planes: u64,
    pub(super) skipped: u64,
}

/// The bytes of one row that were asked for, without a gap.
#[derive(Default)]
pub(super) struct AskedRow(Mutex<Range<u64>>);

impl PieceRows {
    /// Returns the row that a byte lies in.
    fn row(&self, at: u64) -> u64 {
        (at / self.plane.max(1) + self.skipped) / self.planes.max(1)
    }

    /// Returns where a row begins in the file.
    fn start(&self, row: u64) -> u64 {
        let first = row.saturating_mul(self.planes).saturating_sub(self.skipped);
        first.saturating_mul(self.plane)
    }
}

impl AskedRow {
    /// Notes that a range is asked for; returns whether it may have pieces that the ranges before did not.
    pub(super) fn note(&self, rows: PieceRows, range: &Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let mut asked = self.0.lock();
        let row = rows.row(range.end - 1);
        let goes_on = (asked.start..=asked.end).contains(&range.start)
            && range.end > asked.end
            && rows.row(asked.start) == row;
        let is_known = goes_on && asked.end - asked.start >= rows.plane;
        let start = if goes_on {
            asked.start
        } else {
            range.start.max(rows.start(row))
        };
        *asked = start..range.end;
        !is_known
    }

    /// Forgets what was noted: not all of it was asked for.
    pub(super) fn forget(&self) {
        *self.0.lock() = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ROWS: PieceRows = PieceRows {
        plane: 100,
        planes: 4,
        skipped: 1,
    };

    /// Asks for ranges of a length, one after the other; returns those that may have new pieces.
    fn asked(length: u64, ranges: Range<u64>) -> Vec<Range<u64>> {
        let row = AskedRow::default();
        let ranges = ranges.map(|number| number * length..(number + 1) * length);
        ranges.filter(|range| row.note(ROWS, range)).collect()
    }

    #[test]
    fn one_plane_of_a_row_asks_for_all_of_it() {
        assert_eq!(asked(100, 0..8), [0..100, 300..400, 700..800]);
        assert_eq!(
            asked(50, 0..10),
            [0..50, 50..100, 300..350, 350..400],
            "halves of planes"
        );
        assert_eq!(asked(150, 0..3), [0..150, 300..450]);
    }

    #[test]
    fn no_piece_is_left_out() {
        // Pieces of 10 bytes of a plane.
        let piece = |at: u64| (ROWS.row(at), at % ROWS.plane / 10);
        for length in [1, 7, 30, 64, 100, 110, 333, 1000] {
            let found: HashSet<_> = asked(length, 0..3000 / length)
                .into_iter()
                .flatten()
                .map(piece)
                .collect();
            let all: HashSet<_> = (0..3000 / length * length).map(piece).collect();
            assert_eq!(found, all, "{length}");
        }
    }

    #[test]
    fn a_reader_that_goes_back_asks_again() {
        let row = AskedRow::default();
        for (range, is_new) in [
            (300..450, true),
            (450..500, false),
            (300..400, true),
            (400..500, false),
            (600..650, true),
            (650..700, true),
            (700..701, true),
            (700..700, false),
        ] {
            assert_eq!(row.note(ROWS, &range), is_new, "{range:?}");
        }
        row.forget();
        assert!(row.note(ROWS, &(701..801)));
    }
}
