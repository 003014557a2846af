//! Converts CF counts of times and durations into nanoseconds.
//!
//! xarray converts with numpy, to nanoseconds without their fraction. If numpy does not support the reference date or
//! the unit, xarray uses cftime, which computes whole microseconds.

use half::f16;

use crate::formats::cf::numbers::{CfNumber, CfPacking, FillNumber, Stored, for_type, is_fill_of};
use crate::formats::cf::times::TimeCount;

/// NaT, numpy's missing time: the smallest 64-bit integer.
pub(crate) const NOT_A_TIME: i64 = i64::MIN;

const SECOND: i64 = 1_000_000_000;

/// The arithmetic on a stored number that gives a count of a unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CountedNumbers {
    /// The stored number itself is the count.
    Stored,
    /// The stored number is unpacked as a double.
    Double(CfPacking),
    /// The stored number is multiplied as a 64-bit integer.
    Long { factor: i64 },
}

/// A count of a unit of time, such as 3 (days).
#[derive(Clone, Copy)]
enum CountValue {
    Whole(i128),
    Float(f64),
}

impl CountedNumbers {
    /// Returns the count that an element holds, or `None` for a fill number or NaN.
    fn value<T: CfNumber<N>, const N: usize>(
        self,
        number: T,
        fills: &[FillNumber],
    ) -> Option<CountValue> {
        if is_fill_of(number, fills) {
            return None;
        }
        let float = |value: f64| (!value.is_nan()).then_some(CountValue::Float(value));
        let whole = |value: i128| {
            let is_none = value == i128::from(NOT_A_TIME);
            (!is_none).then_some(CountValue::Whole(value))
        };
        match (self, number.whole()) {
            (CountedNumbers::Stored, Some(number)) => whole(number),
            (CountedNumbers::Stored, None) => float(number.double()),
            (CountedNumbers::Double(packing), _) => float(packing.double(number.double())),
            (CountedNumbers::Long { factor }, _) => {
                whole(i128::from(number.long().wrapping_mul(factor)))
            }
        }
    }
}

/// Converts numbers that count a unit since a date into times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountedTime {
    pub(crate) count: TimeCount,
    pub(crate) numbers: CountedNumbers,
}

impl CountedTime {
    /// Returns the time of an element in nanoseconds since 1970, or `None` if the element is missing or has no valid
    /// time.
    pub(crate) fn time<T: CfNumber<N>, const N: usize>(
        &self,
        number: T,
        fills: &[FillNumber],
    ) -> Option<i128> {
        let count = &self.count;
        let value = self.numbers.value(number, fills)?;
        if count.is_in_microseconds {
            let origin = count.origin.div_euclid(1000);
            let microseconds = microseconds(value, count.unit)?;
            return microseconds.checked_add(origin)?.checked_mul(1000);
        }
        let nanoseconds = match value {
            CountValue::Whole(whole) => whole * i128::from(count.unit),
            CountValue::Float(float) => cut(float * double(count.unit)),
        };
        nanoseconds.checked_add(count.origin)
    }

    /// Returns the times of encoded elements, in nanoseconds since 1970.
    pub(crate) fn times(
        &self,
        stored: Stored,
        elements: &[u8],
        fills: &[FillNumber],
    ) -> Vec<Option<i128>> {
        for_type!(stored, each_time, self, elements, fills)
    }
}

fn each_time<T: CfNumber<N>, const N: usize>(
    of: &CountedTime,
    elements: &[u8],
    fills: &[FillNumber],
) -> Vec<Option<i128>> {
    let elements = elements.as_chunks::<N>().0.iter();
    elements
        .map(|element| of.time(T::read(*element), fills))
        .collect()
}

/// Converts a count of a unit into whole microseconds as cftime does. A result less than one microsecond from a whole
/// second becomes that second, unless the unit is at most a millisecond; other results are rounded.
fn microseconds(value: CountValue, unit: i64) -> Option<i128> {
    // Integers go through a float as well, because cftime converts them to floats.
    let (mantissa, exponent) = match value {
        CountValue::Whole(whole) => parts(whole_double(whole))?,
        CountValue::Float(float) => parts(float)?,
    };
    // A unit below 1000 nanoseconds can only be one nanosecond; any other is a whole number of microseconds.
    let (over, under) = if unit < 1000 {
        (1, 1000)
    } else {
        (unit / 1000, 1)
    };
    let product = mantissa * i128::from(over);
    // The shift is limited to 100 bits, because nothing is left of the mantissa after it.
    let (product, divisor) = if exponent >= 0 {
        (product << exponent, under)
    } else {
        (product, under << (-exponent).min(100))
    };
    let (floor, rest) = (product.div_euclid(divisor), product.rem_euclid(divisor));
    let nearest = match (rest * 2).cmp(&divisor) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Equal => floor + floor.rem_euclid(2),
        std::cmp::Ordering::Greater => floor + 1,
    };
    let is_small = unit <= 1_000_000;
    Some(match nearest.rem_euclid(1_000_000) {
        1 if !is_small => floor,
        999_999 if !is_small => floor + i128::from(rest > 0),
        _ => nearest,
    })
}

/// Returns a float as a mantissa and a power of 2, or `None` if it is too large to be a count of time.
fn parts(float: f64) -> Option<(i128, i32)> {
    if float.abs() > 1e19 || !float.is_finite() {
        return None;
    }
    let bits = float.to_bits();
    let (exponent, fraction) = ((bits >> 52) & 0x7ff, bits & ((1 << 52) - 1));
    let mantissa = if exponent == 0 {
        fraction << 1
    } else {
        fraction | 1 << 52
    };
    let sign = if float.is_sign_negative() { -1 } else { 1 };
    let exponent = i32::try_from(exponent).ok()? - 1075;
    Some((i128::from(mantissa) * sign, exponent))
}

/// Converts numbers that count a unit into durations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountedDuration {
    /// Length of the counted unit, in nanoseconds.
    pub(crate) unit: i64,
    /// Length in nanoseconds, and numpy's name, of the unit of the decoded durations.
    pub(crate) step: i64,
    pub(crate) name: &'static str,
    pub(crate) numbers: CountedNumbers,
}

impl CountedDuration {
    /// Returns the duration of an element, in units of `step`. As in xarray, a count with a fraction is converted to
    /// finer units (each 1000 times finer), until no fraction is left or the unit is a nanosecond.
    pub(crate) fn duration<T: CfNumber<N>, const N: usize>(
        &self,
        number: T,
        fills: &[FillNumber],
    ) -> Option<i128> {
        let (unit, step) = (self.unit, i128::from(self.step));
        let (mut float, mut own) = match self.numbers.value(number, fills)? {
            CountValue::Whole(whole) => return Some(whole * i128::from(unit) / step),
            CountValue::Float(float) if unit > SECOND => (float * double(unit / SECOND), SECOND),
            CountValue::Float(float) => (float, unit),
        };
        while own > 1 && float.fract() != 0.0 {
            float *= 1000.0;
            own /= 1000;
        }
        Some(cut(float) * i128::from(own) / step)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what does not fit is no time either"
)]
fn cut(time: f64) -> i128 {
    (time as i128).clamp(-(1 << 96), 1 << 96)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "units are exact, and so does numpy"
)]
fn double(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "so does xarray for cftime")]
fn whole_double(number: i128) -> f64 {
    number as f64
}

/// Returns the bytes of a time as a 64-bit integer. A time out of range becomes NaT (not a time).
pub(crate) fn time_bytes(time: Option<i128>) -> [u8; 8] {
    let time = time.and_then(|time| i64::try_from(time).ok());
    time.unwrap_or(NOT_A_TIME).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_rounded_as_by_cftime() {
        let minutes = |float: f64| microseconds(CountValue::Float(float), 60_000_000_000);
        assert_eq!(minutes(33.740_179_4), Some(2_024_410_764));
        assert_eq!(minutes(0.0), Some(0));
        assert_eq!(minutes(-1.5), Some(-90_000_000));
        assert_eq!(minutes(1e300), None);
        assert_eq!(minutes(1e-300), Some(0));
        // Less than a microsecond from a whole second, a result becomes that second; otherwise it does not.
        let seconds = |float: f64| microseconds(CountValue::Float(float), SECOND);
        assert_eq!(seconds(0.999_998_8), Some(999_999));
        assert_eq!(seconds(0.999_999_2), Some(1_000_000));
        assert_eq!(seconds(2.000_000_9), Some(2_000_000));
        assert_eq!(seconds(2.000_001_1), Some(2_000_001));
        assert_eq!(seconds(2.000_002), Some(2_000_002));
    }
}
