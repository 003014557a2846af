//! Records which chunks of an array were decoded before.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use zarr_format::grid::ChunkIndex;

/// The maximum number of chunks in an array whose decoded chunks are recorded.
const MAX_KNOWN: u64 = 1 << 20;

/// One bit per chunk of an array; empty if the array has too many chunks.
#[derive(Default)]
pub(super) struct DecodedChunks(OnceLock<Box<[AtomicU64]>>);

impl DecodedChunks {
    /// Records that one of `count` chunks is decoded; returns whether it is known to have been decoded before.
    pub(super) fn note(&self, count: u64, chunk: ChunkIndex) -> bool {
        if count > MAX_KNOWN {
            return false;
        }
        let empty = || (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let words = self.0.get_or_init(empty);
        let place = usize::try_from(chunk.0 / 64).ok();
        let Some(word) = place.and_then(|place| words.get(place)) else {
            return false;
        };
        let bit = 1 << (chunk.0 % 64);
        word.fetch_or(bit, Ordering::Relaxed) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_known_to_have_been_decoded() {
        let decoded = DecodedChunks::default();
        for chunk in [0, 63, 64, 399] {
            assert!(!decoded.note(400, ChunkIndex(chunk)), "{chunk}");
            assert!(decoded.note(400, ChunkIndex(chunk)), "{chunk}");
        }
        assert!(!decoded.note(400, ChunkIndex(1)));
        assert!(!decoded.note(400, ChunkIndex(u64::MAX)));
    }
}
