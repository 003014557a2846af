//! The arithmetic of CF: elements of any number type masked, scaled and counted as times.
//!
//! Results are those of numpy with the types that xarray computes in, bit for bit.

use half::f16;

use crate::formats::cf_counts::{CountedNumbers, NOT_A_TIME, duration_of, time_bytes, time_of};
use crate::formats::cf_numbers::{CfNumber, CfPacking, FillNumber, Stored, for_type, is_fill_of};
use crate::formats::conversion::{Conversion, digest_of};
use crate::formats::times::TimeCount;
use zarr_format::grid::element_blocks;

/// What numbers become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// The same.
    Same,
    Half(CfPacking),
    Single(CfPacking),
    Double(CfPacking),
    /// Whole numbers of eight bytes.
    Long {
        factor: i64,
    },
    /// Nanoseconds since 1970.
    Time {
        count: TimeCount,
        numbers: CountedNumbers,
    },
    /// Numbers of `unit` nanoseconds as numbers of `step` nanoseconds, which numpy calls `name`.
    Duration {
        unit: i64,
        step: i64,
        name: &'static str,
        numbers: CountedNumbers,
    },
}

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

/// Whether numbers are other than 0, as those that stand for none are.
#[derive(Debug)]
pub(super) struct Truth {
    /// Bytes of a number.
    pub(super) size: usize,
    /// Whether its highest bit is a sign alone.
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

/// Converts elements into whole numbers, fill values of which are compared as such.
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
