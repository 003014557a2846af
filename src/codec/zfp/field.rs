//! An array as zfp sees it: at most four dimensions of one of four types, cut into blocks.
//!
//! Here stands how long a stream may be, before zfp is asked. What zfp makes of the blocks is `zfp_stream.rs`'s.

use super::mode::{MAX_BITS, Mode, rate_bits};

/// The dimensions that zarrs 0.23 counts in every block where the rate is fixed.
const ZARRS_DIMENSIONS: usize = 3;

/// Elements along each side of a block.
pub(super) const SIDE: usize = 4;

/// The types that zfp knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Int32,
    Int64,
    Float,
    Double,
}

impl Scalar {
    /// Returns the length of a number in bytes.
    pub(super) fn width(self) -> usize {
        match self {
            Scalar::Int32 | Scalar::Float => 4,
            Scalar::Int64 | Scalar::Double => 8,
        }
    }
}

/// An array as zfp sees it; its bytes are in C order, little-endian.
#[derive(Debug)]
pub(super) struct ZfpField {
    pub(super) scalar: Scalar,
    /// From one to four lengths above 0, the fastest dimension last.
    pub(super) shape: Vec<usize>,
    /// The bytes of all numbers.
    pub(super) bytes: usize,
}

impl ZfpField {
    /// Returns the lengths of four dimensions, the fastest one first; `absent` for those that are not there.
    pub(super) fn sides(&self, absent: usize) -> [usize; 4] {
        let mut sides = [absent; 4];
        for (side, length) in sides.iter_mut().zip(self.shape.iter().rev()) {
            *side = *length;
        }
        sides
    }

    /// Returns how many blocks there are.
    fn blocks(&self) -> usize {
        let blocks = self.shape.iter().map(|length| length.div_ceil(SIDE));
        blocks.fold(1, usize::saturating_mul)
    }

    /// Returns the most bytes of a stream, its header included.
    pub(super) fn most(&self, mode: Mode) -> usize {
        // Exponents, tests of groups and the count of bits are less than that beside the numbers.
        const BESIDE: usize = 32;
        const HEADER: usize = 32;
        let values = 1 << (2 * self.shape.len().min(4));
        let least = match mode {
            Mode::Rate { rate, dimensions } => {
                rate_bits(rate, dimensions.max(ZARRS_DIMENSIONS)).unwrap_or(MAX_BITS) as usize
            }
            Mode::Expert { minbits, .. } => minbits as usize,
            _ => 0,
        };
        let bits = (values * (8 * self.scalar.width() + 1) + BESIDE).max(least);
        let bytes = self.blocks().saturating_mul(bits) / 8;
        bytes.saturating_add(HEADER)
    }

    /// Returns the dimensions that a stream of `length` bytes counts at `rate`: those of the array, or as many
    /// as zarrs counts.
    pub(super) fn dimensions_at(&self, rate: f64, length: usize) -> usize {
        let own = self.shape.len();
        let found = [own, ZARRS_DIMENSIONS]
            .into_iter()
            .find(|dimensions| self.length_at(rate, *dimensions) == Some(length));
        found.unwrap_or(own)
    }

    /// Returns the bytes of a stream without a header; nothing if there can be none.
    fn length_at(&self, rate: f64, dimensions: usize) -> Option<usize> {
        // A block holds at least the exponent of floats.
        let least = match self.scalar {
            Scalar::Float => 1 + 8,
            Scalar::Double => 1 + 11,
            Scalar::Int32 | Scalar::Int64 => 1,
        };
        let bits = rate_bits(rate, dimensions)?.max(least) as usize;
        let words = self.blocks().checked_mul(bits)?.div_ceil(64);
        words.checked_mul(size_of::<u64>())
    }
}
