//! An array in zfp's terms: at most four dimensions of one of four types.
//!
//! An array is divided into blocks. The length of streams is calculated here, before zfp is called. `stream.rs` codes
//! the blocks.

use super::mode::{MAX_BITS, Mode, rate_bits};

/// The number of dimensions of a block that zarrs 0.23 assumes in mode `fixed_rate`, whatever the array has.
const ZARRS_DIMENSIONS: usize = 3;

/// Elements along each dimension of a block.
pub(super) const SIDE: usize = 4;

/// The number types of zfp.
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

/// An array; its bytes are in C order, little-endian.
#[derive(Debug)]
pub(super) struct ZfpField {
    pub(super) scalar: Scalar,
    /// One to four lengths above 0, the fastest dimension last.
    pub(super) shape: Vec<usize>,
    /// Length of all numbers in bytes.
    pub(super) bytes: usize,
}

impl ZfpField {
    /// Returns the lengths of four dimensions, the fastest first; `absent` for dimensions that the array lacks.
    pub(super) fn sides(&self, absent: usize) -> [usize; 4] {
        let mut sides = [absent; 4];
        for (side, length) in sides.iter_mut().zip(self.shape.iter().rev()) {
            *side = *length;
        }
        sides
    }

    /// Returns the number of blocks.
    fn blocks(&self) -> usize {
        let blocks = self.shape.iter().map(|length| length.div_ceil(SIDE));
        blocks.fold(1, usize::saturating_mul)
    }

    /// Returns the maximum length of a stream in bytes, its header included.
    pub(super) fn max_stream_bytes(&self, mode: Mode) -> usize {
        // An upper bound of a block's overhead in bits: exponents, group tests, the count of bits.
        const OVERHEAD_BITS: usize = 32;
        const HEADER_BYTES: usize = 32;
        let values = 1 << (2 * self.shape.len().min(4));
        let least = match mode {
            Mode::Rate { rate, dimensions } => {
                rate_bits(rate, dimensions.max(ZARRS_DIMENSIONS)).unwrap_or(MAX_BITS) as usize
            }
            Mode::Expert { minbits, .. } => minbits as usize,
            _ => 0,
        };
        let bits = (values * (8 * self.scalar.width() + 1) + OVERHEAD_BITS).max(least);
        let bytes = self.blocks().saturating_mul(bits) / 8;
        bytes.saturating_add(HEADER_BYTES)
    }

    /// Returns the number of dimensions of a block in a stream of `length` bytes at `rate`: the array's, or the number
    /// that zarrs assumes.
    pub(super) fn dimensions_at(&self, rate: f64, length: usize) -> usize {
        let own = self.shape.len();
        let found = [own, ZARRS_DIMENSIONS]
            .into_iter()
            .find(|dimensions| self.length_at(rate, *dimensions) == Some(length));
        found.unwrap_or(own)
    }

    /// Returns the length in bytes of a stream without a header, or `None` if the rate is not valid.
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
