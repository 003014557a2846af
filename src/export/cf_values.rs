//! The arithmetic of CF: elements of any number type masked, scaled and counted as times.
//!
//! Results are those of numpy with the types that xarray computes in, bit for bit.

use std::hash::{DefaultHasher, Hash, Hasher};

use half::f16;

use crate::export::cf_numbers::{CfNumber, FillNumber, Stored, for_type};
use crate::export::conversion::Conversion;
use crate::export::times::TimeCount;

/// What numbers become. Factor and summand are 1 and 0 where attributes give none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// The same.
    Same,
    /// Whether it is not 0.
    Truth,
    Half {
        factor: f64,
        summand: f64,
    },
    Single {
        factor: f64,
        summand: f64,
    },
    Double {
        factor: f64,
        summand: f64,
    },
    /// Whole numbers of eight bytes, the smallest for none.
    Long {
        factor: i64,
    },
    /// Nanoseconds since 1970.
    Time {
        count: TimeCount,
        factor: f64,
        summand: f64,
    },
    /// Numbers of `unit` nanoseconds as numbers of `step` nanoseconds, which numpy calls `name`.
    Duration {
        unit: i64,
        step: i64,
        name: &'static str,
        factor: f64,
        summand: f64,
    },
}

/// The smallest number: not a time.
const NOT_A_TIME: i64 = i64::MIN;

/// What becomes of each element.
#[derive(Debug)]
pub(super) struct CfConversion {
    /// The elements, after `_Unsigned`.
    pub(super) stored: Stored,
    pub(super) meaning: Meaning,
    /// Values that stand for none.
    pub(super) fills: Vec<FillNumber>,
}

impl Conversion for CfConversion {
    fn written_size(&self) -> usize {
        match self.meaning {
            Meaning::Same => self.stored.size(),
            Meaning::Truth => 1,
            Meaning::Half { .. } => 2,
            Meaning::Single { .. } => 4,
            Meaning::Double { .. }
            | Meaning::Long { .. }
            | Meaning::Time { .. }
            | Meaning::Duration { .. } => 8,
        }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        for_type!(self.stored, convert, self, decoded, written);
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        hasher.finish()
    }
}

fn each<T: CfNumber<N>, const N: usize, const M: usize>(
    decoded: &[u8],
    written: &mut [u8],
    value: impl Fn(T) -> [u8; M],
) {
    let from = decoded.as_chunks::<N>().0.iter();
    for (element, out) in from.zip(written.as_chunks_mut::<M>().0) {
        *out = value(T::read(*element));
    }
}

fn convert<T: CfNumber<N>, const N: usize>(of: &CfConversion, decoded: &[u8], written: &mut [u8]) {
    let fills: Vec<f64> = of.fills.iter().map(FillNumber::double).collect();
    // Most arrays have one fill value or none; a loop without another in it is compiled to instructions for several elements.
    match fills[..] {
        [] => convert_with::<T, N>(of, decoded, written, |_| false),
        [one] => convert_with::<T, N>(of, decoded, written, |number| number == one),
        _ => convert_with::<T, N>(of, decoded, written, |number| fills.contains(&number)),
    }
}

fn convert_with<T: CfNumber<N>, const N: usize>(
    of: &CfConversion,
    decoded: &[u8],
    written: &mut [u8],
    is_fill: impl Fn(f64) -> bool + Copy,
) {
    match of.meaning {
        Meaning::Same => written.copy_from_slice(decoded),
        Meaning::Truth => each::<T, N, 1>(decoded, written, |number| [u8::from(!number.is_zero())]),
        Meaning::Half { factor, summand } => {
            let (factor, summand) = (f16::from_f64(factor), f16::from_f64(summand));
            each::<T, N, 2>(decoded, written, |number| {
                let half = f16::from_f32(number.single());
                let value = if is_fill(half.to_f64()) {
                    f16::NAN
                } else {
                    half * factor + summand
                };
                value.to_le_bytes()
            });
        }
        Meaning::Single { factor, summand } => {
            let (factor, summand) = (factor.single(), summand.single());
            each::<T, N, 4>(decoded, written, |number| {
                let single = number.single();
                let value = if is_fill(f64::from(single)) {
                    f32::NAN
                } else {
                    scaled_single(single, factor, summand)
                };
                value.to_le_bytes()
            });
        }
        Meaning::Double { factor, summand } => each::<T, N, 8>(decoded, written, |number| {
            masked_double(number.double(), is_fill, factor, summand).to_le_bytes()
        }),
        Meaning::Long { .. } | Meaning::Time { .. } | Meaning::Duration { .. } => {
            count::<T, N>(of, decoded, written);
        }
    }
}

/// Converts elements into whole numbers, fill values of which are compared as such.
fn count<T: CfNumber<N>, const N: usize>(of: &CfConversion, decoded: &[u8], written: &mut [u8]) {
    match of.meaning {
        Meaning::Long { factor } => each::<T, N, 8>(decoded, written, |number| {
            let value = if is_fill_of(number, &of.fills) {
                NOT_A_TIME
            } else {
                number.long().wrapping_mul(factor)
            };
            value.to_le_bytes()
        }),
        Meaning::Time {
            count,
            factor,
            summand,
        } => each::<T, N, 8>(decoded, written, |number| {
            let scale = (factor, summand);
            let nanoseconds = of.nanoseconds::<T, N>(number, count.unit, scale);
            let time = nanoseconds.and_then(|time| time.checked_add(count.origin));
            time_bytes(time)
        }),
        Meaning::Duration {
            unit,
            step,
            factor,
            summand,
            ..
        } => each::<T, N, 8>(decoded, written, |number| {
            let nanoseconds = of.nanoseconds::<T, N>(number, unit, (factor, summand));
            time_bytes(nanoseconds.map(|time| time / i128::from(step)))
        }),
        _ => {}
    }
}

impl CfConversion {
    /// Returns the nanoseconds that an element counts; nothing for a fill value and for what is no number.
    fn nanoseconds<T: CfNumber<N>, const N: usize>(
        &self,
        number: T,
        unit: i64,
        (factor, summand): (f64, f64),
    ) -> Option<i128> {
        if is_fill_of(number, &self.fills) {
            return None;
        }
        let is_scaled = factor != 1.0 || summand != 0.0;
        match number.whole() {
            Some(whole) if !is_scaled => {
                let is_none = whole == i128::from(NOT_A_TIME);
                (!is_none).then(|| whole * i128::from(unit))
            }
            _ => {
                let count = number.double() * factor + summand;
                let time = count * unit.double();
                (!time.is_nan()).then(|| cut(time))
            }
        }
    }
}

/// Cuts a fraction off.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what does not fit is no time either"
)]
fn cut(time: f64) -> i128 {
    time as i128
}

fn is_fill_of<T: CfNumber<N>, const N: usize>(number: T, fills: &[FillNumber]) -> bool {
    fills.iter().any(|fill| match (fill, number.whole()) {
        (FillNumber::Whole(fill), Some(number)) => *fill == number,
        (fill, _) => fill.double() == number.double(),
    })
}

/// Multiplies and adds; where nothing is added, not even the sign of zero changes.
fn masked_double(number: f64, is_fill: impl Fn(f64) -> bool, factor: f64, summand: f64) -> f64 {
    if is_fill(number) {
        return f64::NAN;
    }
    let product = number * factor;
    if summand == 0.0 {
        product
    } else {
        product + summand
    }
}

fn scaled_single(number: f32, factor: f32, summand: f32) -> f32 {
    let product = number * factor;
    if summand == 0.0 {
        product
    } else {
        product + summand
    }
}

/// Returns a time as it is written; one that does not fit is not a time.
fn time_bytes(time: Option<i128>) -> [u8; 8] {
    let time = time.and_then(|time| i64::try_from(time).ok());
    time.unwrap_or(NOT_A_TIME).to_le_bytes()
}
