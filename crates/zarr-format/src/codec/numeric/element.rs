//! Reads, writes, casts and adds elements as numpy does.
//!
//! All elements are little-endian; `mod.rs` swaps the bytes of big-endian ones. Casts and sums are numpy's, since numpy
//! wrote these chunks: integers wrap, floats are rounded to nearest, and a float that does not fit an integer becomes
//! what x86-64's conversion instructions return.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "casts that lose something as numpy's do are what this file is for"
)]

use std::fmt;

use half::f16;

use super::number::Number;

/// A signed integer, unsigned integer or float of any width, as 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wide {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
}

impl Wide {
    /// Returns an integer as 64 bits, signed or unsigned; of a wider integer, only the lowest 64 bits.
    pub(super) fn whole(number: i128) -> Wide {
        i64::try_from(number).map_or(Wide::Unsigned(number as u64), Wide::Signed)
    }

    /// Returns the number as an integer; of a float, the integral part, clamped to 128 bits.
    pub(super) fn as_whole(self) -> i128 {
        match self {
            Wide::Signed(number) => i128::from(number),
            Wide::Unsigned(number) => i128::from(number),
            Wide::Float(number) => number as i128,
        }
    }

    /// Returns the float64 that is nearest to the number.
    pub(super) fn as_float(self) -> f64 {
        match self {
            Wide::Signed(number) => number as f64,
            Wide::Unsigned(number) => number as f64,
            Wide::Float(number) => number,
        }
    }
}

impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wide::Signed(number) => number.fmt(f),
            Wide::Unsigned(number) => number.fmt(f),
            Wide::Float(number) => number.fmt(f),
        }
    }
}

/// A number type of a fixed width, as elements of an array have it.
pub(super) trait Element: Copy {
    const WIDTH: usize;

    fn read(bytes: &[u8]) -> Self;

    fn write(self, bytes: &mut [u8]);

    /// Returns the number as 64 bits of the same class (signed, unsigned or float).
    fn wide(self) -> Wide;

    /// Casts a number to this type as numpy does.
    fn cast(wide: Wide) -> Self;

    fn plus(self, other: Self) -> Self;

    fn minus(self, other: Self) -> Self;
}

/// A boolean of one byte; every byte except 0 is true. As in numpy, the sum of two booleans is their "or", the
/// difference their "exclusive or".
#[derive(Clone, Copy)]
pub(super) struct Boolean(bool);

impl Element for Boolean {
    const WIDTH: usize = 1;

    fn read(bytes: &[u8]) -> Boolean {
        Boolean(bytes.first().is_some_and(|&byte| byte != 0))
    }

    fn write(self, bytes: &mut [u8]) {
        bytes.fill(u8::from(self.0));
    }

    fn wide(self) -> Wide {
        Wide::Unsigned(u64::from(self.0))
    }

    fn cast(wide: Wide) -> Boolean {
        Boolean(match wide {
            Wide::Signed(number) => number != 0,
            Wide::Unsigned(number) => number != 0,
            Wide::Float(number) => number != 0.0,
        })
    }

    fn plus(self, other: Boolean) -> Boolean {
        Boolean(self.0 | other.0)
    }

    fn minus(self, other: Boolean) -> Boolean {
        Boolean(self.0 ^ other.0)
    }
}

/// Implements `Element` for a number type, from its variant of `Wide`, its cast, sum and difference.
macro_rules! number {
    ($type:ty, $class:ident, $cast:expr, $plus:expr, $minus:expr) => {
        impl Element for $type {
            const WIDTH: usize = size_of::<$type>();

            fn read(bytes: &[u8]) -> $type {
                <$type>::from_le_bytes(bytes.try_into().unwrap_or_default())
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn wide(self) -> Wide {
                Wide::$class(self.into())
            }

            fn cast(wide: Wide) -> $type {
                let cast: fn(Wide) -> $type = $cast;
                cast(wide)
            }

            fn plus(self, other: $type) -> $type {
                let plus: fn($type, $type) -> $type = $plus;
                plus(self, other)
            }

            fn minus(self, other: $type) -> $type {
                let minus: fn($type, $type) -> $type = $minus;
                minus(self, other)
            }
        }
    };
}

/// Defines the cast from `Wide` to a primitive type. `$truncate` truncates floats as x86-64 does.
macro_rules! cast {
    ($type:ty, $truncate:expr) => {
        |wide| match wide {
            Wide::Signed(number) => number as $type,
            Wide::Unsigned(number) => number as $type,
            Wide::Float(number) => $truncate(number) as $type,
        }
    };
}

macro_rules! integer {
    ($type:ty, $class:ident, $truncate:ident) => {
        number!(
            $type,
            $class,
            cast!($type, $truncate),
            <$type>::wrapping_add,
            <$type>::wrapping_sub
        );
    };
}

integer!(i8, Signed, to_i32);
integer!(i16, Signed, to_i32);
integer!(i32, Signed, to_i32);
integer!(i64, Signed, to_i64);
integer!(u8, Unsigned, to_i32);
integer!(u16, Unsigned, to_i32);
integer!(u32, Unsigned, to_u32);
integer!(u64, Unsigned, to_u64);

macro_rules! float {
    ($type:ty) => {
        number!(
            $type,
            Float,
            cast!($type, std::convert::identity),
            |one, other| one + other,
            |one, other| one - other
        );
    };
}

float!(f32);
float!(f64);

number!(
    f16,
    Float,
    |wide| f16::from_f32(match wide {
        // numpy also casts integers to float16 via float32.
        Wide::Signed(number) => number as f32,
        Wide::Unsigned(number) => number as f32,
        Wide::Float(number) => odd_f32(number),
    }),
    |one, other| f16::from_f32(one.to_f32() + other.to_f32()),
    |one, other| f16::from_f32(one.to_f32() - other.to_f32())
);

/// Rounds to a float32 with an odd last bit (round to odd). Rounding that float32 to float16 then gives the same result
/// as rounding `number` directly.
fn odd_f32(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) == number || !near.is_finite() {
        return near;
    }
    let bits = near.to_bits();
    let beyond = f64::from(near).abs() > number.abs();
    f32::from_bits((bits - u32::from(beyond)) | 1)
}

/// Truncates a float as x86-64 does: a number that does not fit becomes the smallest integer.
fn to_i32(number: f64) -> i32 {
    if number > -2_147_483_649.0 && number < 2_147_483_648.0 {
        number as i32
    } else {
        i32::MIN
    }
}

fn to_i64(number: f64) -> i64 {
    if (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// Truncates a float via the conversion to `i32`, as compilers do if the processor has no unsigned conversion.
fn to_u32(number: f64) -> u32 {
    let half = 2_147_483_648.0;
    if number >= half {
        (to_i32(number - half) as u32) ^ (1 << 31)
    } else {
        to_i32(number) as u32
    }
}

fn to_u64(number: f64) -> u64 {
    let half = 9_223_372_036_854_775_808.0;
    if number >= half {
        (to_i64(number - half) as u64) ^ (1 << 63)
    } else {
        to_i64(number) as u64
    }
}

/// Evaluates `$body` with `$element` as the Rust type of a number type known only at run time.
macro_rules! with_element {
    ($number:expr, $element:ident => $body:expr) => {
        $crate::codec::numeric::element::with_element!(
            $number, $element => $body,
            Bool: $crate::codec::numeric::element::Boolean,
            I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64,
            F16: half::f16, F32: f32, F64: f64
        )
    };
    ($number:expr, $element:ident => $body:expr, $($kind:ident: $type:ty),*) => {
        match $number {
            $($crate::codec::numeric::number::Number::$kind => {
                type $element = $type;
                $body
            })*
        }
    };
}

pub(super) use with_element;

/// Casts all numbers of `source` to another type and writes them to `target`, which must have exactly their length.
pub(super) fn cast_all(from: Number, source: &[u8], to: Number, target: &mut [u8]) {
    if from == to && from != Number::Bool {
        return target.copy_from_slice(source);
    }
    with_element!(from, From => with_element!(to, To => map_elements::<From, To>(source, target, |wide| wide)));
}

/// Applies `change` to each element of `source`, casts the result to `To` and writes it to `target`.
pub(super) fn map_elements<From: Element, To: Element>(
    source: &[u8],
    target: &mut [u8],
    change: impl Fn(Wide) -> Wide,
) {
    let source = source.chunks_exact(From::WIDTH);
    for (source, target) in source.zip(target.chunks_exact_mut(To::WIDTH)) {
        To::cast(change(From::read(source).wide())).write(target);
    }
}

/// Returns how results are rounded if an operand has type `number`. Computing in float64 and rounding the sum, product
/// or quotient equals rounding once, since float64 has more than twice as many digits.
pub(super) fn rounding(number: Number) -> fn(f64) -> f64 {
    match number {
        Number::F16 => |number| f64::from(f16::cast(Wide::Float(number)).to_f32()),
        Number::F32 => |number| f64::from(f32::cast(Wide::Float(number))),
        _ => |number| number,
    }
}

/// Applies `change` to each element of `source` and writes the result to `target`. Fails with the first element for
/// which `change` returns `None`.
pub(super) fn try_map<From: Element, To: Element>(
    source: &[u8],
    target: &mut [u8],
    change: impl Fn(Wide) -> Option<Wide>,
) -> std::result::Result<(), Wide> {
    let source = source.chunks_exact(From::WIDTH);
    for (source, target) in source.zip(target.chunks_exact_mut(To::WIDTH)) {
        let wide = From::read(source).wide();
        To::cast(change(wide).ok_or(wide)?).write(target);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_equal_those_of_numpy() {
        let cast = |from: f64, to: Number| {
            let mut out = vec![0; to.width()];
            cast_all(Number::F64, &from.to_le_bytes(), to, &mut out);
            out.resize(8, 0);
            u64::from_le_bytes(out.try_into().unwrap())
        };
        assert_eq!(cast(-1.5, Number::U8), 255);
        assert_eq!(cast(300.7, Number::I8), 44);
        assert_eq!(cast(f64::NAN, Number::I32), 1 << 31);
        assert_eq!(cast(3e9, Number::U32), 3_000_000_000);
        assert_eq!(cast(1.5e19, Number::U64), 15_000_000_000_000_000_000);
        assert_eq!(cast(1e20, Number::U64), 0);
        assert_eq!(cast(f64::NAN, Number::Bool), 1);
    }

    #[test]
    fn float16_is_rounded_once() {
        // Slightly above the midpoint of two float16: a float32 cannot represent the excess, so rounding twice would
        // round down.
        let number = 1.0 + 2.0_f64.powi(-11) + 2.0_f64.powi(-40);
        assert_eq!(f16::cast(Wide::Float(number)).to_bits(), 0x3c01);
        assert_eq!(f16::cast(Wide::Float(-number)).to_bits(), 0xbc01);
        assert_eq!(
            f16::cast(Wide::Float(1.0 + 2.0_f64.powi(-11))).to_bits(),
            0x3c00
        );
        assert_eq!(f16::cast(Wide::Float(1e300)), f16::INFINITY);
        assert!(f16::cast(Wide::Float(f64::NAN)).is_nan());
    }
}
