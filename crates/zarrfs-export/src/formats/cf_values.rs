//! CF arithmetic: masks and scales elements, and converts counts to times.
//!
//! Results equal those of numpy with xarray's data types bit for bit.

use half::f16;

use crate::formats::cf_counts::{CountedNumbers, NOT_A_TIME, duration_of, time_bytes, time_of};
use crate::formats::cf_numbers::{CfNumber, CfPacking, FillNumber, Stored, for_type, is_fill_of};
use crate::formats::conversion::{Conversion, digest_of};
use crate::formats::times::TimeCount;
use zarr_format::grid::element_blocks;

/// The result of decoding a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// The unchanged number.
    Same,
    Half(CfPacking),
    Single(CfPacking),
    Double(CfPacking),
    /// 64-bit integers.
    Long {
        factor: i64,
    },
    /// Nanoseconds since 1970.
    Time {
        count: TimeCount,
        numbers: CountedNumbers,
    },
    /// Durations, from units of `unit` nanoseconds to units of `step` nanoseconds, numpy's unit `name`.
    Duration {
        unit: i64,
        step: i64,
        name: &'static str,
        numbers: CountedNumbers,
    },
}

/// The conversion of CF elements.
#[derive(Debug)]
pub(super) struct CfConversion {
    /// The number type, after `_Unsigned` was applied.
    pub(super) stored: Stored,
    pub(super) meaning: Meaning,
    /// The fill numbers.
    pub(super) fills: Vec<FillNumber>,
}

impl Conversion for CfConversion {
    fn written_size(&self) -> usize {
        match self.meaning {
            Meaning::Same => self.stored.size(),
            Meaning::Half(_) => 2,
            Meaning::Single(_) => 4,
            Meaning::Double(_)
            | Meaning::Long { .. }
            | Meaning::Time { .. }
            | Meaning::Duration { .. } => 8,
        }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        for_type!(self.stored, convert, self, decoded, written);
    }

    fn digest(&self) -> u64 {
        digest_of(self)
    }
}

/// Converts numbers to booleans: 0 and fill numbers are false.
#[derive(Debug)]
pub(super) struct Truth {
    /// Size of a number in bytes.
    pub(super) size: usize,
    /// Whether the highest bit is only a sign, so that -0 is false.
    pub(super) is_float: bool,
}

impl Conversion for Truth {
    fn written_size(&self) -> usize {
        1
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let mask = if self.is_float { 0x7f } else { 0xff };
        for (number, truth) in decoded.chunks_exact(self.size).zip(written) {
            let (last, rest) = number.split_last().unwrap_or((&0, &[]));
            *truth = u8::from(last & mask != 0 || rest.iter().any(|&byte| byte != 0));
        }
    }

    fn digest(&self) -> u64 {
        (self.size << 1 | usize::from(self.is_float)) as u64
    }
}

fn each<T: CfNumber<N>, const N: usize, const M: usize>(
    decoded: &[u8],
    written: &mut [u8],
    value: impl Fn(T) -> [u8; M],
) {
    element_blocks::convert(decoded, written, |element| value(T::read(element)));
}

fn convert<T: CfNumber<N>, const N: usize>(of: &CfConversion, decoded: &[u8], written: &mut [u8]) {
    let fills: Vec<f64> = of.fills.iter().map(FillNumber::double).collect();
    // Most arrays have at most one fill number; a loop without an inner loop is vectorized.
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
        Meaning::Half(packing) => halves::<T, N>(decoded, written, packing, is_fill),
        Meaning::Single(packing) => singles::<T, N>(decoded, written, packing, is_fill),
        Meaning::Double(packing) => each::<T, N, 8>(decoded, written, |number| {
            let double = number.double();
            let value = if is_fill(double) {
                f64::NAN
            } else {
                packing.double(double)
            };
            value.to_le_bytes()
        }),
        Meaning::Long { .. } | Meaning::Time { .. } | Meaning::Duration { .. } => {
            count::<T, N>(of, decoded, written);
        }
    }
}

fn halves<T: CfNumber<N>, const N: usize>(
    decoded: &[u8],
    written: &mut [u8],
    packing: CfPacking,
    is_fill: impl Fn(f64) -> bool,
) {
    let (factor, summand) = (
        f16::from_f64(packing.factor),
        f16::from_f64(packing.summand),
    );
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

fn singles<T: CfNumber<N>, const N: usize>(
    decoded: &[u8],
    written: &mut [u8],
    packing: CfPacking,
    is_fill: impl Fn(f64) -> bool,
) {
    let (factor, summand) = (packing.factor.single(), packing.summand.single());
    each::<T, N, 4>(decoded, written, |number| {
        let single = number.single();
        let value = if is_fill(f64::from(single)) {
            f32::NAN
        } else {
            single * factor + summand
        };
        value.to_le_bytes()
    });
}

/// Converts elements into integers; they are compared with fill numbers as integers.
fn count<T: CfNumber<N>, const N: usize>(of: &CfConversion, decoded: &[u8], written: &mut [u8]) {
    let fills = &of.fills[..];
    match of.meaning {
        Meaning::Long { factor } => each::<T, N, 8>(decoded, written, |number| {
            let value = if is_fill_of(number, fills) {
                NOT_A_TIME
            } else {
                number.long().wrapping_mul(factor)
            };
            value.to_le_bytes()
        }),
        Meaning::Time { count, numbers } => each::<T, N, 8>(decoded, written, |number| {
            time_bytes(time_of(number, fills, (&count, numbers)))
        }),
        Meaning::Duration {
            unit,
            step,
            numbers,
            ..
        } => each::<T, N, 8>(decoded, written, |number| {
            time_bytes(duration_of(number, fills, (unit, step, numbers)))
        }),
        _ => {}
    }
}
