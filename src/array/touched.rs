//! How many chunks a request looked at, and how many of them were decoded in memory.
//!
//! They are counted in the thread that asks: chunks that other threads decode ahead are not its own.

use std::cell::Cell;

/// The chunks that a request looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchedChunks {
    /// How many, inner chunks of shards one by one.
    pub chunks: u64,
    /// How many of them were found decoded in memory.
    pub hits: u64,
}

thread_local! {
    static TOUCHED: Cell<TouchedChunks> = const { Cell::new(TouchedChunks { chunks: 0, hits: 0 }) };
}

/// Returns what this thread looked at since it was asked last.
pub fn take_touched() -> TouchedChunks {
    TOUCHED.take()
}

/// Counts chunks that this thread looks at, and how many of them are in memory.
pub(super) fn note(chunks: u64, hits: u64) {
    let counted = TOUCHED.get();
    TOUCHED.set(TouchedChunks {
        chunks: counted.chunks.wrapping_add(chunks),
        hits: counted.hits.wrapping_add(hits),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_not_counted_again() {
        note(2, 1);
        note(1, 0);
        let (chunks, hits) = (3, 1);
        assert_eq!(take_touched(), TouchedChunks { chunks, hits });
        assert_eq!(take_touched(), TouchedChunks::default());
    }
}
