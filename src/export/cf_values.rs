//! The arithmetic of CF: elements of any number type masked, scaled and counted as times.
//!
//! Results are those of numpy with the types that xarray computes in, bit for bit.

use std::hash::{DefaultHasher, Hash, Hasher};

use half::f16;

use crate::export::conversion::Conversion;
use crate::export::times::TimeCount;
use crate::model::DataType;

/// A number type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stored {
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    F2,
    F4,
    F8,
}

/// A value that stands for none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FillNumber {
    Whole(i128),
    Float(f64),
}

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

impl Stored {
    /// Returns the number type of elements, if they are real numbers that numpy has.
    pub(super) fn of(data_type: &DataType) -> Option<Stored> {
        Some(match data_type {
            DataType::Int(1) => Stored::I1,
            DataType::Int(2) => Stored::I2,
            DataType::Int(4) => Stored::I4,
            DataType::Int(8) => Stored::I8,
            DataType::UInt(1) => Stored::U1,
            DataType::UInt(2) => Stored::U2,
            DataType::UInt(4) => Stored::U4,
            DataType::UInt(8) => Stored::U8,
            DataType::Float(2) => Stored::F2,
            DataType::Float(4) => Stored::F4,
            DataType::Float(8) => Stored::F8,
            _ => return None,
        })
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Stored::I1 | Stored::I2 | Stored::I4 | Stored::I8 => DataType::Int(self.size()),
            Stored::U1 | Stored::U2 | Stored::U4 | Stored::U8 => DataType::UInt(self.size()),
            Stored::F2 | Stored::F4 | Stored::F8 => DataType::Float(self.size()),
        }
    }

    pub(super) fn size(self) -> usize {
        match self {
            Stored::I1 | Stored::U1 => 1,
            Stored::I2 | Stored::U2 | Stored::F2 => 2,
            Stored::I4 | Stored::U4 | Stored::F4 => 4,
            Stored::I8 | Stored::U8 | Stored::F8 => 8,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Stored::F2 | Stored::F4 | Stored::F8)
    }

    pub(super) fn unsigned(self) -> Stored {
        match self {
            Stored::I1 => Stored::U1,
            Stored::I2 => Stored::U2,
            Stored::I4 => Stored::U4,
            Stored::I8 => Stored::U8,
            other => other,
        }
    }

    pub(super) fn signed(self) -> Stored {
        match self {
            Stored::U1 => Stored::I1,
            Stored::U2 => Stored::I2,
            Stored::U4 => Stored::I4,
            Stored::U8 => Stored::I8,
            other => other,
        }
    }

    /// Returns the value of an element.
    pub(super) fn number(self, bytes: &[u8]) -> FillNumber {
        let mut number = FillNumber::Whole(0);
        each_number(self, bytes, |whole, float| {
            number = whole.map_or(FillNumber::Float(float), FillNumber::Whole);
        });
        number
    }
}

/// Calls `visit` with each element, as a whole number if it is one.
fn each_number(stored: Stored, bytes: &[u8], mut visit: impl FnMut(Option<i128>, f64)) {
    with_numbers(stored, bytes, &mut visit);
}

/// A number type whose elements are read.
trait Number<const N: usize>: Copy {
    fn read(bytes: [u8; N]) -> Self;
    fn double(self) -> f64;
    fn single(self) -> f32;
    fn long(self) -> i64;
    fn whole(self) -> Option<i128>;
    fn is_zero(self) -> bool;
}

macro_rules! numbers {
    ($($number:ty, $size:literal, $whole:expr;)*) => {$(
        impl Number<$size> for $number {
            fn read(bytes: [u8; $size]) -> $number {
                <$number>::from_le_bytes(bytes)
            }

            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, clippy::unnecessary_cast, reason = "as numpy casts")]
            fn double(self) -> f64 {
                self as f64
            }

            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, clippy::cast_possible_truncation, clippy::unnecessary_cast, reason = "as numpy casts")]
            fn single(self) -> f32 {
                self as f32
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_lossless, clippy::unnecessary_cast, reason = "as numpy casts")]
            fn long(self) -> i64 {
                self as i64
            }

            fn whole(self) -> Option<i128> {
                $whole(self)
            }

            fn is_zero(self) -> bool {
                self == <$number>::default()
            }
        }
    )*};
}

numbers! {
    i8, 1, |number| Some(i128::from(number));
    u8, 1, |number| Some(i128::from(number));
    i16, 2, |number| Some(i128::from(number));
    u16, 2, |number| Some(i128::from(number));
    i32, 4, |number| Some(i128::from(number));
    u32, 4, |number| Some(i128::from(number));
    i64, 8, |number| Some(i128::from(number));
    u64, 8, |number| Some(i128::from(number));
    f32, 4, |_| None;
    f64, 8, |_| None;
}

impl Number<2> for f16 {
    fn read(bytes: [u8; 2]) -> f16 {
        f16::from_le_bytes(bytes)
    }

    fn double(self) -> f64 {
        self.to_f64()
    }

    fn single(self) -> f32 {
        self.to_f32()
    }

    fn long(self) -> i64 {
        self.to_f64().long()
    }

    fn whole(self) -> Option<i128> {
        None
    }

    fn is_zero(self) -> bool {
        self.to_f32() == 0.0
    }
}

/// Calls a generic function for the type of the elements.
macro_rules! for_type {
    ($stored:expr, $function:ident, $($argument:expr),*) => {
        match $stored {
            Stored::I1 => $function::<i8, 1>($($argument),*),
            Stored::I2 => $function::<i16, 2>($($argument),*),
            Stored::I4 => $function::<i32, 4>($($argument),*),
            Stored::I8 => $function::<i64, 8>($($argument),*),
            Stored::U1 => $function::<u8, 1>($($argument),*),
            Stored::U2 => $function::<u16, 2>($($argument),*),
            Stored::U4 => $function::<u32, 4>($($argument),*),
            Stored::U8 => $function::<u64, 8>($($argument),*),
            Stored::F2 => $function::<f16, 2>($($argument),*),
            Stored::F4 => $function::<f32, 4>($($argument),*),
            Stored::F8 => $function::<f64, 8>($($argument),*),
        }
    };
}

fn with_numbers(stored: Stored, bytes: &[u8], visit: &mut dyn FnMut(Option<i128>, f64)) {
    fn all<T: Number<N>, const N: usize>(bytes: &[u8], visit: &mut dyn FnMut(Option<i128>, f64)) {
        for &element in bytes.as_chunks::<N>().0 {
            let number = T::read(element);
            visit(number.whole(), number.double());
        }
    }
    for_type!(stored, all, bytes, visit);
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

fn each<T: Number<N>, const N: usize, const M: usize>(
    decoded: &[u8],
    written: &mut [u8],
    value: impl Fn(T) -> [u8; M],
) {
    let from = decoded.as_chunks::<N>().0.iter();
    for (element, out) in from.zip(written.as_chunks_mut::<M>().0) {
        *out = value(T::read(*element));
    }
}

fn convert<T: Number<N>, const N: usize>(of: &CfConversion, decoded: &[u8], written: &mut [u8]) {
    let fills: Vec<f64> = of.fills.iter().map(FillNumber::double).collect();
    // Most arrays have one fill value or none; NaN is equal to nothing.
    let first = fills.first().copied().unwrap_or(f64::NAN);
    let others = fills.get(1..).unwrap_or_default();
    let is_fill = |number: f64| number == first || others.contains(&number);
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
        Meaning::Long { factor } => each::<T, N, 8>(decoded, written, |number| {
            let value = match is_fill_of(number, &of.fills) {
                true => NOT_A_TIME,
                false => number.long().wrapping_mul(factor),
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
    }
}

impl CfConversion {
    /// Returns the nanoseconds that an element counts; nothing for a fill value and for what is no number.
    fn nanoseconds<T: Number<N>, const N: usize>(
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

fn is_fill_of<T: Number<N>, const N: usize>(number: T, fills: &[FillNumber]) -> bool {
    fills.iter().any(|fill| match (fill, number.whole()) {
        (FillNumber::Whole(fill), Some(number)) => *fill == number,
        (fill, _) => fill.double() == number.double(),
    })
}

impl FillNumber {
    #[expect(clippy::cast_precision_loss, reason = "so does numpy")]
    fn double(&self) -> f64 {
        match self {
            FillNumber::Whole(number) => *number as f64,
            FillNumber::Float(number) => *number,
        }
    }
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
