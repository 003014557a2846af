//! CF arithmetic: masks and scales elements, and converts counts to times.
//!
//! Results equal those of numpy with xarray's data types bit for bit. CF does not pack complex numbers, so their
//! `scale_factor` and `add_offset` stay attributes.

use half::f16;
use serde_json::Value;

use crate::formats::cf::attributes::{
    AttributeNumber, FILL, NoValues, encoded_number, missing_numbers,
};
use crate::formats::cf::counts::{CountedDuration, CountedTime, NOT_A_TIME, time_bytes};
use crate::formats::cf::numbers::{CfNumber, CfPacking, FillNumber, Stored, for_type, is_fill_of};
use crate::formats::conversion::{Conversion, digest_of};
use zarr_format::grid::element_blocks;
use zarr_format::model::Array;

/// The data type that elements have after CF decoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meaning {
    /// Elements keep their type and value.
    Same,
    Half(CfPacking),
    Single(CfPacking),
    Double(CfPacking),
    /// Elements become 64-bit integers, multiplied by `factor`.
    Long {
        factor: i64,
    },
    /// Elements become nanoseconds since 1970.
    Time(CountedTime),
    Duration(CountedDuration),
}

/// Decodes the elements of an array by the CF conventions.
#[derive(Debug)]
pub(crate) struct CfConversion {
    /// The number type of the stored elements, after `_Unsigned` was applied.
    pub(crate) stored: Stored,
    pub(crate) meaning: Meaning,
    /// Numbers that mark missing values.
    pub(crate) fills: Vec<FillNumber>,
}

impl Conversion for CfConversion {
    fn written_size(&self) -> usize {
        match self.meaning {
            Meaning::Same => self.stored.size(),
            Meaning::Half(_) => 2,
            Meaning::Single(_) => 4,
            Meaning::Double(_) | Meaning::Long { .. } | Meaning::Time(_) | Meaning::Duration(_) => {
                8
            }
        }
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        for_type!(self.stored, convert, self, decoded, written);
    }

    fn digest(&self) -> u64 {
        digest_of(self)
    }
}

/// Converts numbers to booleans: 0 and the numbers that mark missing values become false.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) size: usize,
    /// Whether the numbers are floats. If so, their sign bit is ignored, so that -0 becomes false.
    pub(crate) is_float: bool,
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
    // Most arrays have at most one fill number. Without an inner loop over fill numbers, the compiler vectorizes this
    // loop.
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
        Meaning::Long { .. } | Meaning::Time(_) | Meaning::Duration(_) => {
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

/// Decodes elements into 64-bit integers: scaled numbers, times or durations. Integers are compared with fill numbers
/// as integers, since doubles cannot hold all of them.
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
        Meaning::Time(counted) => each::<T, N, 8>(decoded, written, |number| {
            time_bytes(counted.time(number, fills))
        }),
        Meaning::Duration(counted) => each::<T, N, 8>(decoded, written, |number| {
            time_bytes(counted.duration(number, fills))
        }),
        _ => {}
    }
}

/// Replaces complex numbers that mark missing values by NaN.
#[derive(Debug)]
pub(crate) struct ComplexMask {
    size: usize,
    /// The numbers that mark missing values, as doubles like in xarray. So 0.1 in an attribute marks no float32
    /// element, since 0.1 is rounded in a float32.
    fills: Vec<[f64; 2]>,
}

impl ComplexMask {
    /// Returns the conversion that masks the missing values of an array, or `None` if no number marks missing values.
    pub(crate) fn of(array: &Array, size: usize) -> Result<Option<ComplexMask>, NoValues> {
        let missing = missing_numbers(&array.attributes)?.into_iter();
        let mut fills: Vec<[f64; 2]> = missing.map(|number| [number.to_float(), 0.0]).collect();
        fills.extend(fill_number(array, size)?);
        fills.retain(|[real, imaginary]| !real.is_nan() && !imaginary.is_nan());
        Ok((!fills.is_empty()).then_some(ComplexMask { size, fills }))
    }
}

/// Returns the fill value of an array of complex numbers, or `None` if it has no fill value. For a v2 array this is the
/// `fill_value` of the metadata, otherwise the attribute `_FillValue`.
fn fill_number(array: &Array, size: usize) -> Result<Option<[f64; 2]>, NoValues> {
    if array.dialect == "v2" && !array.fill_value.is_none {
        let bytes = &array.fill_value.bytes;
        return Ok(match size {
            8 => pairs::<4>(bytes).next().map(|pair| pair.map(wide)),
            _ => pairs::<8>(bytes)
                .next()
                .map(|pair| pair.map(f64::from_le_bytes)),
        });
    }
    let value = array.attributes.get(FILL).unwrap_or_default();
    let part = |value: &Value| {
        let number = AttributeNumber::read(value).or_else(|| encoded_number(value))?;
        Some(number.to_float())
    };
    let number = match &value {
        Value::Null => return Ok(None),
        Value::Array(parts) => match parts.as_slice() {
            [real, imaginary] => part(real).zip(part(imaginary)),
            _ => None,
        },
        real => part(real).zip(Some(0.0)),
    };
    let refused = || NoValues::of(FILL, &value, "a number, or a list of two");
    number
        .map(|(real, imaginary)| Some([real, imaginary]))
        .ok_or_else(refused)
}

fn wide(part: [u8; 4]) -> f64 {
    f64::from(f32::from_le_bytes(part))
}

fn pairs<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [[u8; N]; 2]> {
    let parts = bytes.as_chunks::<N>().0.as_chunks::<2>().0;
    parts.iter().copied()
}

/// Copies complex numbers, but replaces both parts of those that mark missing values with the bytes `nothing` (a NaN).
fn mask<const N: usize>(
    decoded: &[u8],
    written: &mut [u8],
    nothing: [u8; N],
    is_fill: impl Fn([[u8; N]; 2]) -> bool,
) {
    let places = written.as_chunks_mut::<N>().0.as_chunks_mut::<2>().0;
    for (pair, place) in pairs::<N>(decoded).zip(places) {
        *place = if is_fill(pair) { [nothing; 2] } else { pair };
    }
}

impl Conversion for ComplexMask {
    fn written_size(&self) -> usize {
        self.size
    }

    fn convert(&self, decoded: &[u8], written: &mut [u8]) {
        let fills = &self.fills;
        if self.size == 8 {
            let is_fill = |pair: [[u8; 4]; 2]| fills.contains(&pair.map(wide));
            mask(decoded, written, f32::NAN.to_le_bytes(), is_fill);
        } else {
            let is_fill = |pair: [[u8; 8]; 2]| fills.contains(&pair.map(f64::from_le_bytes));
            mask(decoded, written, f64::NAN.to_le_bytes(), is_fill);
        }
    }

    fn digest(&self) -> u64 {
        digest_of(self)
    }
}
