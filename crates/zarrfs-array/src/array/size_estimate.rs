//! Estimates the sizes of chunks whose elements have no fixed length.
//!
//! The metadata give only an upper bound, and memory has room for at most two such chunks. So a chunk is expected to be
//! at most 1.5 times as long as the longest chunk of its array so far, encoded and decoded. A chunk that is longer is
//! loaded again, with room for any length; a wrong estimate costs only time.

use std::sync::atomic::{AtomicU64, Ordering};

use zarr_format::codec::Pipeline;

/// Bytes by which a chunk may exceed 1.5 times the longest one: short chunks differ more.
const SLACK: u64 = 4 << 10;

/// The expected maximum lengths of a chunk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EstimatedSizes {
    pub(super) encoded: u64,
    pub(super) decoded: u64,
}

/// The lengths of the longest decoded chunks in bytes; 0 if there were none.
#[derive(Default)]
pub(super) struct SizeEstimate {
    encoded: AtomicU64,
    decoded: AtomicU64,
}

impl SizeEstimate {
    /// Records the lengths of a chunk.
    pub(super) fn note(&self, encoded: u64, decoded: u64) {
        self.encoded.fetch_max(encoded, Ordering::Relaxed);
        self.decoded.fetch_max(decoded, Ordering::Relaxed);
    }

    /// Returns the expected lengths of the next chunk, or `None` if no chunk was decoded yet.
    pub(super) fn guess(&self) -> Option<EstimatedSizes> {
        let decoded = self.decoded.load(Ordering::Relaxed);
        let encoded = self.encoded.load(Ordering::Relaxed);
        (decoded > 0).then(|| EstimatedSizes {
            encoded: with_half(encoded),
            decoded: with_half(decoded),
        })
    }
}

/// Returns 1.5 times `bytes`, plus `SLACK`.
fn with_half(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 2).saturating_add(SLACK)
}

impl EstimatedSizes {
    /// Returns the memory in bytes that a chunk needs while it is decoded.
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
