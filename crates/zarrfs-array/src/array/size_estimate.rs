//! Estimates the sizes of chunks whose elements have no fixed length.
//!
//! The metadata tell only what no chunk exceeds, and memory has room for two such chunks at most. So a chunk is taken to
//! be longer by half, at most, than the longest that was seen of its array, encoded and decoded. One that turns out to
//! be longer still is loaded again, with room for any; nothing but the time that it takes depends on a guess.

use std::sync::atomic::{AtomicU64, Ordering};

use zarr_format::codec::Pipeline;

/// Bytes by which a chunk may exceed the longest one and its half: short ones differ more.
const SLACK: u64 = 4 << 10;

/// The lengths in bytes that a chunk is taken to have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedSizes {
    pub(super) encoded: u64,
    pub(super) decoded: u64,
}

/// The longest chunks that were decoded, in bytes; 0 if there were none.
#[derive(Default)]
pub(super) struct SizeEstimate {
    encoded: AtomicU64,
    decoded: AtomicU64,
}

impl SizeEstimate {
    /// Notes the lengths of a chunk.
    pub(super) fn note(&self, encoded: u64, decoded: u64) {
        self.encoded.fetch_max(encoded, Ordering::Relaxed);
        self.decoded.fetch_max(decoded, Ordering::Relaxed);
    }

    /// Returns the lengths that the next chunk is taken to have; nothing if none was seen.
    pub(super) fn guess(&self) -> Option<EstimatedSizes> {
        let decoded = self.decoded.load(Ordering::Relaxed);
        let encoded = self.encoded.load(Ordering::Relaxed);
        (decoded > 0).then(|| EstimatedSizes {
            encoded: with_half(encoded),
            decoded: with_half(decoded),
        })
    }
}

/// Returns the most bytes of a chunk beside one of `bytes`.
fn with_half(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 2).saturating_add(SLACK)
}

impl EstimatedSizes {
    /// Returns the bytes that a chunk takes while it is decoded.
    pub(super) fn while_decoded(self, pipeline: &Pipeline) -> u64 {
        let copies = pipeline.decoded_copies().max(1);
        let decoded = self.decoded.saturating_mul(copies);
        self.encoded.saturating_add(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_the_longest_and_its_half() {
        let estimate = SizeEstimate::default();
        assert_eq!(estimate.guess(), None);
        for (encoded, decoded) in [(10, 300), (40, 200), (5, 5)] {
            estimate.note(encoded, decoded);
        }
        let guessed = EstimatedSizes {
            encoded: 60 + SLACK,
            decoded: 450 + SLACK,
        };
        assert_eq!(estimate.guess(), Some(guessed));
    }
}
