//! What programs were shown of an array while it is open for writing.
//!
//! The kernel keeps what was read of a decoded file as pages, and writes a page back whole once a program has changed a
//! byte of it by way of a map. The bytes around that one are those that were read. So while the array is open
//! for writing, the pieces that were read are remembered by their digests, the oldest of each: pages that are written
//! back to a piece with another content would undo a change that their program has not seen.

use std::sync::atomic::{AtomicUsize, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use crate::grid::Coordinates;

/// The most pieces that are remembered; those read longest ago are forgotten first.
const MAX_PIECES: usize = 1 << 16;

/// The pieces that were shown, by their indices among all pieces of the array.
pub(super) struct ShownPieces {
    /// How many have the array open for writing.
    writers: AtomicUsize,
    /// The digest of each; nothing for a piece that was not stored.
    digests: Mutex<LruCache<Coordinates, Option<u64>>>,
}

impl Default for ShownPieces {
    fn default() -> ShownPieces {
        ShownPieces {
            writers: AtomicUsize::new(0),
            // A bounded cache would take the memory for all that it may hold at once.
            digests: Mutex::new(LruCache::unbounded()),
        }
    }
}

impl ShownPieces {
    /// Notes that the array was opened for writing.
    pub(super) fn add_writer(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that a writer is gone; with the last one nothing need be remembered.
    pub(super) fn remove_writer(&self) {
        if self.writers.fetch_sub(1, Ordering::AcqRel) == 1 {
            *self.digests.lock() = LruCache::unbounded();
        }
    }

    /// Whether the array is open for writing.
    pub(super) fn are_wanted(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// Whether a piece was shown.
    pub(super) fn has(&self, piece: &Coordinates) -> bool {
        self.digests.lock().contains(piece)
    }

    /// Notes that a piece is shown.
    pub(super) fn note(&self, piece: Coordinates, digest: Option<u64>) {
        let mut digests = self.digests.lock();
        digests.get_or_insert(piece, || digest);
        if digests.len() > MAX_PIECES {
            digests.pop_lru();
        }
    }

    /// Whether a piece was shown with another content.
    pub(super) fn differs(&self, piece: &Coordinates, digest: Option<u64>) -> bool {
        let mut digests = self.digests.lock();
        digests.get(piece).is_some_and(|shown| *shown != digest)
    }

    /// Notes the content of a piece that was written here: pages of it hold what was written.
    pub(super) fn note_written(&self, piece: &Coordinates, digest: u64) {
        if let Some(shown) = self.digests.lock().peek_mut(piece) {
            *shown = Some(digest);
        }
    }

    /// Forgets a piece whose pages the kernel drops.
    pub(super) fn forget(&self, piece: &Coordinates) {
        self.digests.lock().pop(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_content_that_was_shown_counts_until_the_last_writer_is_gone() {
        let (shown, piece) = (ShownPieces::default(), Coordinates::from_slice(&[1, 2]));
        shown.add_writer();
        shown.add_writer();
        shown.note(piece.clone(), Some(1));
        shown.note(piece.clone(), Some(2));
        assert!(!shown.differs(&piece, Some(1)) && shown.differs(&piece, Some(2)));
        shown.note_written(&piece, 3);
        assert!(!shown.differs(&piece, Some(3)) && shown.differs(&piece, None));
        shown.remove_writer();
        assert!(shown.are_wanted() && shown.has(&piece));
        shown.remove_writer();
        assert!(!shown.are_wanted() && !shown.has(&piece));
    }

    #[test]
    fn nothing_is_known_of_a_piece_that_was_not_shown() {
        let (shown, piece) = (ShownPieces::default(), Coordinates::new());
        shown.note_written(&piece, 1);
        assert!(!shown.has(&piece) && !shown.differs(&piece, Some(2)));
    }
}
