//! Describes arrays as zfp does: at most four dimensions, four types.
//!
//! Numbers of other types are converted (codec `zfp`, "Compression", step 1): short integers become the upper bits of
//! longer ones, float16 becomes float32. The specification does not define unsigned numbers of 32 and 64 bits; they are
//! clamped to the largest signed number, as in the zarrs crate. The length of a compressed stream is calculated here,
//! before zfp is called. `stream.rs` encodes and decodes the blocks of an array.

#![expect(
    clippy::cast_possible_truncation,
    reason = "numbers are clamped before they are narrowed"
)]
#![expect(
    clippy::cast_sign_loss,
    reason = "numbers are clamped before they are narrowed"
)]

use half::f16;

use crate::model::DataType;

use super::{MAX_BITS, Mode, rate_bits};

/// zarrs 0.23 computes the size of a block in mode `fixed_rate` for three dimensions, however many the array has.
const ZARRS_DIMENSIONS: usize = 3;

/// A block of zfp has four elements along each dimension.
pub(super) const SIDE: usize = 4;

/// The four number types that zfp compresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    Int32,
    Int64,
    Float,
    Double,
}

impl Scalar {
    pub(super) fn width(self) -> usize {
        match self {
            Scalar::Int32 | Scalar::Float => 4,
            Scalar::Int64 | Scalar::Double => 8,
        }
    }
}

/// Shape and number type of an array for zfp. Its bytes are in C order, little-endian.
#[derive(Debug)]
pub(super) struct ZfpField {
    pub(super) scalar: Scalar,
    /// One to four lengths of dimensions, all above 0; the last dimension varies fastest.
    pub(super) shape: Vec<usize>,
    pub(super) bytes: usize,
}

impl ZfpField {
    /// Returns the lengths of four dimensions, the fastest first; `absent` for dimensions that the array does not have.
    pub(super) fn sides(&self, absent: usize) -> [usize; 4] {
        let mut sides = [absent; 4];
        for (side, length) in sides.iter_mut().zip(self.shape.iter().rev()) {
            *side = *length;
        }
        sides
    }

    fn blocks(&self) -> usize {
        let blocks = self.shape.iter().map(|length| length.div_ceil(SIDE));
        blocks.fold(1, usize::saturating_mul)
    }

    /// Returns the maximum length in bytes of a compressed stream, header included.
    pub(super) fn max_stream_bytes(&self, mode: Mode) -> usize {
        let values = 1 << (2 * self.shape.len().min(4));
        let least = match mode {
            Mode::Rate { rate, dimensions } => {
                rate_bits(rate, dimensions.max(ZARRS_DIMENSIONS)).unwrap_or(MAX_BITS) as usize
            }
            Mode::Expert { minbits, .. } => minbits as usize,
            _ => 0,
        };
        // 32 bits are enough for what zfp adds to a block: exponent, group tests, number of bits.
        let bits = (values * (8 * self.scalar.width() + 1) + 32).max(least);
        let bytes = self.blocks().saturating_mul(bits) / 8;
        // The header of a zfp stream has fewer than 32 bytes.
        bytes.saturating_add(32)
    }

    /// Returns the number of dimensions for which a stream at `rate` bits per number has `length` bytes: that of the
    /// array, or the three that zarrs assumes.
    pub(super) fn dimensions_at(&self, rate: f64, length: usize) -> usize {
        let own = self.shape.len();
        let matching = [own, ZARRS_DIMENSIONS]
            .into_iter()
            .find(|dimensions| self.length_at(rate, *dimensions) == Some(length));
        matching.unwrap_or(own)
    }

    /// Returns the length in bytes of a fixed-rate stream without a header, or `None` if the rate is not valid.
    fn length_at(&self, rate: f64, dimensions: usize) -> Option<usize> {
        // A block has at least one bit and, for floats, the exponent.
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

macro_rules! casts {
    ($narrow:ty, $wide:ty, $up:expr, $down:expr) => {
        (
            |numbers| {
                let up: fn($narrow) -> $wide = $up;
                each(numbers, |word| {
                    up(<$narrow>::from_le_bytes(word)).to_le_bytes()
                })
            },
            |numbers| {
                let down: fn($wide) -> $narrow = $down;
                each(numbers, |word| {
                    down(<$wide>::from_le_bytes(word)).to_le_bytes()
                })
            },
        )
    };
}

pub(super) type Cast = fn(&[u8]) -> Vec<u8>;

/// How numbers of a data type are converted to a type of zfp.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberConversion {
    pub(super) scalar: Scalar,
    /// The casts to the type of zfp and back; `None` if no cast is needed.
    pub(super) cast: Option<(Cast, Cast)>,
    /// Whether the cast clamps some numbers, so that decoding does not restore them.
    pub(super) clamps: bool,
}

impl NumberConversion {
    /// Returns the conversion of a data type, or `None` if zfp does not support it.
    pub(super) fn of(data_type: &DataType) -> Option<NumberConversion> {
        let numbers = |scalar, cast, clamps| {
            Some(NumberConversion {
                scalar,
                cast,
                clamps,
            })
        };
        match data_type {
            DataType::Int(4) => numbers(Scalar::Int32, None, false),
            DataType::Int(8) => numbers(Scalar::Int64, None, false),
            DataType::Float(4) => numbers(Scalar::Float, None, false),
            DataType::Float(8) => numbers(Scalar::Double, None, false),
            DataType::Float(2) => numbers(
                Scalar::Float,
                Some(casts!(f16, f32, f16::to_f32, f16::from_f32)),
                false,
            ),
            DataType::Int(1) => numbers(
                Scalar::Int32,
                Some(casts!(i8, i32, |n| i32::from(n) << 23, |n| {
                    (n >> 23).clamp(-0x80, 0x7f) as i8
                })),
                false,
            ),
            DataType::Int(2) => numbers(
                Scalar::Int32,
                Some(casts!(i16, i32, |n| i32::from(n) << 15, |n| {
                    (n >> 15).clamp(-0x8000, 0x7fff) as i16
                })),
                false,
            ),
            DataType::UInt(1) => numbers(
                Scalar::Int32,
                Some(casts!(u8, i32, |n| (i32::from(n) - 0x80) << 23, |n| {
                    ((n >> 23) + 0x80).clamp(0, 0xff) as u8
                })),
                false,
            ),
            DataType::UInt(2) => numbers(
                Scalar::Int32,
                Some(casts!(u16, i32, |n| (i32::from(n) - 0x8000) << 15, |n| {
                    ((n >> 15) + 0x8000).clamp(0, 0xffff) as u16
                })),
                false,
            ),
            DataType::UInt(4) => numbers(
                Scalar::Int32,
                Some(casts!(
                    u32,
                    i32,
                    |n| i32::try_from(n).unwrap_or(i32::MAX),
                    |n| { u32::try_from(n).unwrap_or(0) }
                )),
                true,
            ),
            DataType::UInt(8) => numbers(
                Scalar::Int64,
                Some(casts!(
                    u64,
                    i64,
                    |n| i64::try_from(n).unwrap_or(i64::MAX),
                    |n| { u64::try_from(n).unwrap_or(0) }
                )),
                true,
            ),
            _ => None,
        }
    }
}

fn each<const N: usize, const M: usize>(
    numbers: &[u8],
    cast: impl Fn([u8; N]) -> [u8; M],
) -> Vec<u8> {
    let (words, _) = numbers.as_chunks();
    words.iter().flat_map(|word| cast(*word)).collect()
}
