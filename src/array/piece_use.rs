//! What readers in order have had of a decoded piece, and when it is worth nothing any more.
//!
//! A piece of which every byte was given out is in the kernel's page cache: it leaves first, and its memory is the next
//! to be decoded into. Where a row of pieces is larger than the memory, a part of the row is kept as it is and the other
//! pieces leave when they were used: if each were kept until it is the oldest, all would have left before they are
//! wanted again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::array::unread::UnreadPieces;
use crate::grid::ChunkIndex;

/// What readers have had of a piece.
pub(super) struct PieceUse {
    array: Arc<UnreadPieces>,
    /// Bytes that lie in the array.
    length: u64,
    /// How many of them were not given out.
    left: AtomicU64,
    /// Whether it counts among the pieces that are kept.
    is_kept: AtomicBool,
    is_extra: bool,
}

impl PieceUse {
    /// Begins the use of a piece that was loaded; `share` is how many bytes of pieces are kept of the array.
    pub(super) fn new(array: Arc<UnreadPieces>, piece: ChunkIndex, share: u64) -> PieceUse {
        let length = array.bytes_of(piece);
        let is_extra = array.kept().saturating_add(length) > share;
        array.add_kept(length);
        PieceUse {
            array,
            length,
            left: AtomicU64::new(length),
            is_kept: AtomicBool::new(true),
            is_extra,
        }
    }

    /// Returns the array.
    pub(super) fn array(&self) -> &UnreadPieces {
        &self.array
    }

    /// Notes that a reader in order was given so many bytes; returns whether the piece was given out whole.
    pub(super) fn note_given(&self, bytes: u64) -> bool {
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or_default() <= bytes
    }

    /// Whether the piece was given out whole.
    pub(super) fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Whether enough of the array was kept when the piece was loaded.
    pub(super) fn is_extra(&self) -> bool {
        self.is_extra
    }

    /// Counts the piece no more among those that are kept.
    pub(super) fn retire(&self) {
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.array.remove_kept(self.length);
        }
    }
}

impl Drop for PieceUse {
    fn drop(&mut self) {
        self.retire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Grid;

    #[test]
    fn a_piece_at_the_edge_is_given_out_with_its_last_byte_in_the_array() {
        let array = UnreadPieces::new(2, Grid::new(&[6, 5], &[4, 4]).unwrap(), true);
        let edge = PieceUse::new(array.clone(), ChunkIndex(3), 100);
        assert_eq!(array.kept(), 2 * 2);
        assert!(!edge.note_given(3) && !edge.is_spent());
        assert!(edge.note_given(1) && edge.is_spent());
        edge.retire();
        assert_eq!(array.kept(), 0);
        drop(edge);
        assert_eq!(array.kept(), 0);
    }

    #[test]
    fn pieces_beyond_the_share_are_extra() {
        let array = UnreadPieces::new(1, Grid::new(&[4, 8], &[4, 4]).unwrap(), true);
        let first = PieceUse::new(array.clone(), ChunkIndex(0), 20);
        let second = PieceUse::new(array.clone(), ChunkIndex(1), 20);
        assert!(!first.is_extra() && second.is_extra());
        drop(first);
        second.retire();
        assert!(!PieceUse::new(array, ChunkIndex(0), 20).is_extra());
    }
}
