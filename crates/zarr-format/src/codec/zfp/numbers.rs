//! Converts numbers to the types of zfp (codec `zfp`, "Compression", step 1).
//!
//! Short integers become the upper bits of longer ones, float16 becomes float32. Unsigned numbers of 32 and 64 bits are
//! clamped to the largest signed number, as in the zarrs crate, since the specification does not define them.

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

use super::field::Scalar;

/// Casts numbers in little-endian bytes to another type.
pub(super) type Cast = fn(&[u8]) -> Vec<u8>;

/// The conversion of numbers to a type of zfp.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberConversion {
    pub(super) scalar: Scalar,
    /// The casts to zfp's type and back, or `None` if the types are the same.
    pub(super) cast: Option<(Cast, Cast)>,
    /// Whether some numbers are clamped and so not restored.
    pub(super) clamps: bool,
}

impl NumberConversion {
    /// Returns the conversion of a type, or `None` if zfp does not support it.
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
            DataType::Float(2) => numbers(Scalar::Float, Some(HALF), false),
            DataType::Int(1) => numbers(Scalar::Int32, Some(INT8), false),
            DataType::Int(2) => numbers(Scalar::Int32, Some(INT16), false),
            DataType::UInt(1) => numbers(Scalar::Int32, Some(UINT8), false),
            DataType::UInt(2) => numbers(Scalar::Int32, Some(UINT16), false),
            DataType::UInt(4) => numbers(Scalar::Int32, Some(UINT32), true),
            DataType::UInt(8) => numbers(Scalar::Int64, Some(UINT64), true),
            _ => None,
        }
    }
}

/// Casts each number of `N` bytes to one of `M`.
fn each<const N: usize, const M: usize>(
    numbers: &[u8],
    cast: impl Fn([u8; N]) -> [u8; M],
) -> Vec<u8> {
    let (words, _) = numbers.as_chunks();
    words.iter().flat_map(|word| cast(*word)).collect()
}

/// Makes the two casts between a type and zfp's.
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

const HALF: (Cast, Cast) = casts!(f16, f32, f16::to_f32, f16::from_f32);

const INT8: (Cast, Cast) = casts!(i8, i32, |n| i32::from(n) << 23, |n| {
    (n >> 23).clamp(-0x80, 0x7f) as i8
});

const INT16: (Cast, Cast) = casts!(i16, i32, |n| i32::from(n) << 15, |n| {
    (n >> 15).clamp(-0x8000, 0x7fff) as i16
});

const UINT8: (Cast, Cast) = casts!(u8, i32, |n| (i32::from(n) - 0x80) << 23, |n| {
    ((n >> 23) + 0x80).clamp(0, 0xff) as u8
});

const UINT16: (Cast, Cast) = casts!(u16, i32, |n| (i32::from(n) - 0x8000) << 15, |n| {
    ((n >> 15) + 0x8000).clamp(0, 0xffff) as u16
});

const UINT32: (Cast, Cast) = casts!(u32, i32, |n| i32::try_from(n).unwrap_or(i32::MAX), |n| {
    u32::try_from(n).unwrap_or(0)
});

const UINT64: (Cast, Cast) = casts!(u64, i64, |n| i64::try_from(n).unwrap_or(i64::MAX), |n| {
    u64::try_from(n).unwrap_or(0)
});
