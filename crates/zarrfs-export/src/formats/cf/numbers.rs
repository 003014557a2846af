//! The number types that CF decoding supports, read and cast as numpy does.

use half::f16;

use zarr_format::model::DataType;

/// A number type of stored elements that CF decoding supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
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

/// A number that marks missing values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FillNumber {
    Whole(i128),
    Float(f64),
}

/// The factor and the offset that unpack numbers by the CF conventions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CfPacking {
    /// The CF `scale_factor`, or 1 if the attribute is missing.
    pub(crate) factor: f64,
    /// The CF `add_offset`, or -0 if the attribute is missing, because adding 0 would change -0 to 0.
    pub(crate) summand: f64,
}

impl CfPacking {
    /// Unpacks a number: multiplies it by the factor and adds the offset.
    pub(crate) fn double(self, number: f64) -> f64 {
        number * self.factor + self.summand
    }

    /// Whether factor and offset change no number.
    pub(crate) fn is_none(self) -> bool {
        self.factor == 1.0 && self.summand == 0.0 && self.summand.is_sign_negative()
    }
}

/// Calls a generic function with the Rust type of an array's stored elements.
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

impl Stored {
    /// Returns the number type for a data type, or `None` if it is not an integer or a float that numpy has.
    pub(crate) fn of(data_type: &DataType) -> Option<Stored> {
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

    pub(crate) fn data_type(self) -> DataType {
        match self {
            Stored::I1 | Stored::I2 | Stored::I4 | Stored::I8 => DataType::Int(self.size()),
            Stored::U1 | Stored::U2 | Stored::U4 | Stored::U8 => DataType::UInt(self.size()),
            Stored::F2 | Stored::F4 | Stored::F8 => DataType::Float(self.size()),
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Stored::I1 | Stored::U1 => 1,
            Stored::I2 | Stored::U2 | Stored::F2 => 2,
            Stored::I4 | Stored::U4 | Stored::F4 => 4,
            Stored::I8 | Stored::U8 | Stored::F8 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Stored::F2 | Stored::F4 | Stored::F8)
    }

    /// Whether a 32-bit float can hold every number of the type exactly.
    pub(crate) fn fits_single(self) -> bool {
        self.size() <= 2 || self == Stored::F4
    }

    pub(crate) fn unsigned(self) -> Stored {
        match self {
            Stored::I1 => Stored::U1,
            Stored::I2 => Stored::U2,
            Stored::I4 => Stored::U4,
            Stored::I8 => Stored::U8,
            other => other,
        }
    }

    pub(crate) fn signed(self) -> Stored {
        match self {
            Stored::U1 => Stored::I1,
            Stored::U2 => Stored::I2,
            Stored::U4 => Stored::I4,
            Stored::U8 => Stored::I8,
            other => other,
        }
    }

    /// Returns the little-endian bytes of an integer in the number type, or `None` if the type cannot hold it.
    pub(crate) fn bytes_of(self, number: i128) -> Option<Vec<u8>> {
        let bytes = number.to_le_bytes()[..self.size()].to_vec();
        (self.number(&bytes) == FillNumber::Whole(number)).then_some(bytes)
    }

    /// Returns the number that the bytes of an element hold.
    pub(crate) fn number(self, bytes: &[u8]) -> FillNumber {
        for_type!(self, one, bytes)
    }
}

/// Returns the number that the bytes of an element hold, or 0 if bytes are missing.
fn one<T: CfNumber<N>, const N: usize>(bytes: &[u8]) -> FillNumber {
    let number = T::read(bytes.first_chunk().copied().unwrap_or([0; N]));
    let float = || FillNumber::Float(number.double());
    number.whole().map_or_else(float, FillNumber::Whole)
}

/// A Rust number type as which stored elements are read.
pub(crate) trait CfNumber<const N: usize>: Copy {
    fn read(bytes: [u8; N]) -> Self;
    fn double(self) -> f64;
    fn single(self) -> f32;
    fn long(self) -> i64;
    fn whole(self) -> Option<i128>;
}

macro_rules! numbers {
    ($($number:ty, $size:literal, $whole:expr, $long:expr;)*) => {$(
        impl CfNumber<$size> for $number {
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
                $long(self)
            }

            fn whole(self) -> Option<i128> {
                $whole(self)
            }
        }
    )*};
}

numbers! {
    i8, 1, |number| Some(i128::from(number)), |number| number as i64;
    u8, 1, |number| Some(i128::from(number)), |number| number as i64;
    i16, 2, |number| Some(i128::from(number)), |number| number as i64;
    u16, 2, |number| Some(i128::from(number)), |number| number as i64;
    i32, 4, |number| Some(i128::from(number)), |number| number as i64;
    u32, 4, |number| Some(i128::from(number)), |number| number as i64;
    i64, 8, |number| Some(i128::from(number)), |number| number as i64;
    u64, 8, |number| Some(i128::from(number)), |number| number as i64;
    f32, 4, |_| None, |number| long_of(f64::from(number));
    f64, 8, |_| None, long_of;
}

impl CfNumber<2> for f16 {
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
        long_of(self.to_f64())
    }

    fn whole(self) -> Option<i128> {
        None
    }
}

impl FillNumber {
    #[expect(clippy::cast_precision_loss, reason = "so does numpy")]
    pub(crate) fn double(&self) -> f64 {
        match self {
            FillNumber::Whole(number) => *number as f64,
            FillNumber::Float(number) => *number,
        }
    }
}

/// Whether an element equals one of the numbers that mark missing values.
pub(crate) fn is_fill_of<T: CfNumber<N>, const N: usize>(number: T, fills: &[FillNumber]) -> bool {
    fills.iter().any(|fill| match (fill, number.whole()) {
        (FillNumber::Whole(fill), Some(number)) => *fill == number,
        (fill, _) => fill.double() == number.double(),
    })
}

/// Casts a float to a 64-bit integer as processors do: any float out of range gives the smallest integer.
#[expect(clippy::cast_possible_truncation, reason = "the number is checked")]
fn long_of(number: f64) -> i64 {
    let end = 2_f64.powi(63);
    if (-end..end).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

pub(crate) use for_type;
