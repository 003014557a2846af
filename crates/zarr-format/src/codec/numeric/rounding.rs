//! Rounds to integers and to floats of any width, in the modes of `cast_value`.
//!
//! Nothing is rounded twice: a number is decomposed into an integer and a power of two, and all bits that do not fit
//! are dropped at once.

use crate::codec::config::Configuration;
use crate::error::Result;

use super::element::Wide;
use super::number::Number;

/// The direction of rounding (codec `cast_value`, "rounding").
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rounding {
    NearestEven,
    NearestAway,
    TowardsZero,
    TowardsPositive,
    TowardsNegative,
}

/// A format of IEEE 754: the number of mantissa digits, and the smallest and largest exponents of normal numbers.
#[derive(Clone, Copy, Debug)]
struct FloatFormat {
    digits: i32,
    min_exponent: i32,
    max_exponent: i32,
}

impl FloatFormat {
    fn of(number: Number) -> FloatFormat {
        let (digits, min_exponent, max_exponent) = match number {
            Number::F16 => (11, -14, 15),
            Number::F32 => (24, -126, 127),
            _ => (53, -1022, 1023),
        };
        FloatFormat {
            digits,
            min_exponent,
            max_exponent,
        }
    }
}

impl Rounding {
    /// Reads `rounding`.
    pub(super) fn read(config: Configuration<'_>) -> Result<Rounding> {
        let words = [
            "nearest-even",
            "nearest-away",
            "towards-zero",
            "towards-positive",
            "towards-negative",
        ];
        Ok(match config.keyword("rounding", &words)? {
            Some("nearest-away") => Rounding::NearestAway,
            Some("towards-zero") => Rounding::TowardsZero,
            Some("towards-positive") => Rounding::TowardsPositive,
            Some("towards-negative") => Rounding::TowardsNegative,
            _ => Rounding::NearestEven,
        })
    }

    /// Rounds a finite float to an integer.
    pub(super) fn whole(self, number: f64) -> f64 {
        match self {
            Rounding::NearestEven => number.round_ties_even(),
            Rounding::NearestAway => number.round(),
            Rounding::TowardsZero => number.trunc(),
            Rounding::TowardsPositive => number.ceil(),
            Rounding::TowardsNegative => number.floor(),
        }
    }

    /// Rounds a number to a float of type `to`. Returns `None` beyond the largest finite one.
    pub(super) fn float(self, number: Wide, to: Number) -> Option<f64> {
        let (negative, mantissa, exponent) = match number {
            Wide::Signed(number) => (number < 0, number.unsigned_abs(), 0),
            Wide::Unsigned(number) => (false, number, 0),
            Wide::Float(number) if !number.is_finite() => return Some(number),
            Wide::Float(number) => decomposed(number),
        };
        let format = FloatFormat::of(to);
        let length = (u64::BITS - mantissa.leading_zeros()).cast_signed();
        let last = (exponent + length - 1).max(format.min_exponent) - (format.digits - 1);
        let (mantissa, last) = match last - exponent {
            ..=0 => (u128::from(mantissa), exponent),
            dropped => (
                self.drop_bits(negative, u128::from(mantissa), dropped),
                last,
            ),
        };
        let length = (u128::BITS - mantissa.leading_zeros()).cast_signed();
        let fits = mantissa == 0 || last + length - 1 <= format.max_exponent;
        let number = scaled(mantissa as f64, last);
        fits.then_some(if negative { -number } else { number })
    }

    /// Returns a mantissa without its last `dropped` bits, rounded.
    fn drop_bits(self, negative: bool, mantissa: u128, dropped: i32) -> u128 {
        // A mantissa has at most 64 bits: if 127 are dropped, no bit is left and the remainder is below one half.
        let dropped = dropped.min(127);
        let upper = mantissa >> dropped;
        let rest = mantissa - (upper << dropped);
        let half = 1 << (dropped - 1);
        let up = match self {
            Rounding::NearestEven => rest > half || rest == half && upper % 2 == 1,
            Rounding::NearestAway => rest >= half,
            Rounding::TowardsZero => false,
            Rounding::TowardsPositive => rest > 0 && !negative,
            Rounding::TowardsNegative => rest > 0 && negative,
        };
        upper + u128::from(up)
    }
}

/// Returns whether a finite float is negative, and the mantissa and the exponent with mantissa * 2^exponent = |number|.
fn decomposed(number: f64) -> (bool, u64, i32) {
    let bits = number.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52 & 0x7ff) as i32 {
        0 => (number.is_sign_negative(), fraction, -1074),
        exponent => (
            number.is_sign_negative(),
            fraction | 1 << 52,
            exponent - 1075,
        ),
    }
}

/// Returns number * 2^exponent; in two steps, since the power alone could be out of range.
fn scaled(number: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    number * 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Rounding; 5] = [
        Rounding::NearestEven,
        Rounding::NearestAway,
        Rounding::TowardsZero,
        Rounding::TowardsPositive,
        Rounding::TowardsNegative,
    ];

    #[test]
    fn nearest_even_is_what_the_processor_does() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let number = f64::from_bits(bits);
            let expected = number as f32;
            if number.is_finite() && expected.is_finite() {
                let found = Rounding::NearestEven.float(Wide::Float(number), Number::F32);
                assert_eq!(found, Some(f64::from(expected)), "{number}");
            }
            let found = Rounding::NearestEven.float(Wide::Signed(bits as i64), Number::F32);
            assert_eq!(found, Some(f64::from(bits as i64 as f32)));
            let found = Rounding::NearestEven.float(Wide::Unsigned(bits), Number::F64);
            assert_eq!(found, Some(bits as f64));
        }
    }

    #[test]
    fn each_direction_has_its_neighbour() {
        // Halfway between 2048 and the next float16, 2050.
        let expected = [
            [2048.0, 2050.0, 2048.0, 2050.0, 2048.0],
            [-2048.0, -2050.0, -2048.0, -2048.0, -2050.0],
        ];
        for (number, expected) in [2049, -2049].into_iter().zip(expected) {
            let found = ALL.map(|way| way.float(Wide::Signed(number), Number::F16));
            assert_eq!(found, expected.map(Some), "{number}");
        }
        assert_eq!(
            ALL.map(|way| way.whole(-2.5)),
            [-2.0, -3.0, -2.0, -2.0, -3.0]
        );
    }

    #[test]
    fn the_ends_of_the_range() {
        let float16 = |number: f64| ALL.map(|way| way.float(Wide::Float(number), Number::F16));
        assert_eq!(float16(65504.0), [Some(65504.0); 5]);
        assert_eq!(float16(65519.0)[0], Some(65504.0));
        assert_eq!(float16(65520.0)[..3], [None, None, Some(65504.0)]);
        assert_eq!(float16(65536.0), [None; 5]);
        let least = 2.0_f64.powi(-24);
        assert_eq!(
            float16(least / 2.0),
            [0.0, least, 0.0, least, 0.0].map(Some)
        );
        assert_eq!(float16(1e-300), [0.0, 0.0, 0.0, least, 0.0].map(Some));
        assert!(float16(-1e-300)[0].unwrap().is_sign_negative());
        let tiny = f64::from_bits(1);
        assert_eq!(
            Rounding::NearestEven.float(Wide::Float(tiny), Number::F64),
            Some(tiny)
        );
    }
}
