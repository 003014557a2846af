//! Converts numbers of types that numpy lacks: small integers and floats.
//!
//! The types are extensions of v3. An element of fewer than eight bits takes one byte. Only fill values are converted
//! between numbers and their codes (bits), so speed does not matter: the code of a number is found by trying all codes.

use half::{bf16, f16};

/// How the bits of a number type are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Signed integer of N bits, in two's complement.
    Signed(u32),
    /// Unsigned integer of N bits.
    Unsigned(u32),
    /// bfloat16: the upper half of a float32.
    Brain,
    /// float16 as a part of a complex number.
    Half,
    /// A float of fewer than 16 bits.
    Float(Float),
}

/// Format of a float of fewer than 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// Total number of bits of the float.
    pub bits: u32,
    /// Number of bits of the mantissa.
    pub mantissa: u32,
    /// Bias that is subtracted from the stored exponent.
    pub bias: i32,
    /// Whether the float has a sign bit.
    pub signed: bool,
    /// Which codes (bits) of the float are infinity or NaN.
    pub special: Special,
}

/// Which codes (bits) of a small float are infinity or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// As in IEEE 754: codes with the largest exponent are infinity or NaN.
    Ieee,
    /// The code is NaN if all bits except the sign are set; there is no infinity.
    AllOnes,
    /// The code of the negative zero is NaN; there is no infinity.
    NegativeZero,
    /// Every code is a finite number.
    None,
}

/// A number type of v3 that numpy lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct NumberType {
    /// Name of the data type in v3.
    pub name: &'static str,
    /// Size of an element in bytes.
    pub size: usize,
    /// Size in bytes of a word, the unit of byte order; 1 if byte order has no meaning.
    pub word: usize,
    /// How the bits of a number are interpreted.
    pub coding: Coding,
    /// numpy's data type, little-endian, that stands for this type in a `.npy` file.
    pub npy: &'static str,
}

const fn byte(name: &'static str, coding: Coding, npy: &'static str) -> NumberType {
    NumberType {
        name,
        size: 1,
        word: 1,
        coding,
        npy,
    }
}

const fn float(bits: u32, mantissa: u32, bias: i32, special: Special) -> Coding {
    Coding::Float(Float {
        bits,
        mantissa,
        bias,
        signed: true,
        special,
    })
}

const NUMBERS: &[NumberType] = &[
    byte("int2", Coding::Signed(2), "|i1"),
    byte("int4", Coding::Signed(4), "|i1"),
    byte("uint2", Coding::Unsigned(2), "|u1"),
    byte("uint4", Coding::Unsigned(4), "|u1"),
    byte("float4_e2m1fn", float(4, 1, 1, Special::None), "|V1"),
    byte("float6_e2m3fn", float(6, 3, 1, Special::None), "|V1"),
    byte("float6_e3m2fn", float(6, 2, 3, Special::None), "|V1"),
    byte("float8_e3m4", float(8, 4, 3, Special::Ieee), "|V1"),
    byte("float8_e4m3", float(8, 3, 7, Special::Ieee), "|V1"),
    byte(
        "float8_e4m3b11fnuz",
        float(8, 3, 11, Special::NegativeZero),
        "|V1",
    ),
    byte("float8_e4m3fn", float(8, 3, 7, Special::AllOnes), "|V1"),
    byte(
        "float8_e4m3fnuz",
        float(8, 3, 8, Special::NegativeZero),
        "|V1",
    ),
    byte("float8_e5m2", float(8, 2, 15, Special::Ieee), "|V1"),
    byte(
        "float8_e5m2fnuz",
        float(8, 2, 16, Special::NegativeZero),
        "|V1",
    ),
    byte(
        "float8_e8m0fnu",
        // float8_e8m0fnu has only powers of two.
        Coding::Float(Float {
            bits: 8,
            mantissa: 0,
            bias: 127,
            signed: false,
            special: Special::AllOnes,
        }),
        "|V1",
    ),
    NumberType {
        name: "bfloat16",
        size: 2,
        word: 2,
        coding: Coding::Brain,
        npy: "|V2",
    },
    NumberType {
        name: "complex_bfloat16",
        size: 4,
        word: 2,
        coding: Coding::Brain,
        npy: "|V4",
    },
    NumberType {
        name: "complex_float16",
        size: 4,
        word: 2,
        coding: Coding::Half,
        npy: "|V4",
    },
];

impl NumberType {
    /// Returns the number type with a v3 name, or `None` if there is no such type.
    pub fn named(name: &str) -> Option<&'static NumberType> {
        NUMBERS.iter().find(|number| number.name == name)
    }

    /// Returns the little-endian code of the number (of one part of a complex number) nearest to `value`, or `None` if
    /// the type has no such number.
    pub fn code(&self, value: f64) -> Option<Vec<u8>> {
        match self.coding {
            Coding::Signed(bits) => {
                let half = f64::from(1_u32 << (bits - 1));
                let fits = value.fract() == 0.0 && (-half..half).contains(&value);
                fits.then(|| vec![byte_of(value)])
            }
            Coding::Unsigned(bits) => {
                let fits = value.fract() == 0.0 && (0.0..f64::from(1_u32 << bits)).contains(&value);
                fits.then(|| vec![byte_of(value)])
            }
            Coding::Brain => Some(bf16::from_f64(value).to_le_bytes().to_vec()),
            Coding::Half => Some(f16::from_f64(value).to_le_bytes().to_vec()),
            Coding::Float(float) => float.nearest(value).map(|code| vec![code]),
        }
    }

    /// Converts the little-endian code of a number, or of one part of a complex number, to a float64.
    pub fn value(&self, code: &[u8]) -> Option<f64> {
        match (self.coding, code) {
            (Coding::Signed(_), &[byte]) => Some(f64::from(byte.cast_signed())),
            (Coding::Unsigned(_), &[byte]) => Some(f64::from(byte)),
            (Coding::Brain, &[a, b]) => Some(bf16::from_le_bytes([a, b]).to_f64()),
            (Coding::Half, &[a, b]) => Some(f16::from_le_bytes([a, b]).to_f64()),
            (Coding::Float(float), &[byte]) => Some(float.value(byte)),
            _ => None,
        }
    }

    /// Returns how many bits of a byte a number uses and whether it is signed, or `None` for types of 8 bits or more.
    pub fn narrow(&self) -> Option<(u32, bool)> {
        match self.coding {
            Coding::Signed(bits) => Some((bits, true)),
            Coding::Unsigned(bits) => Some((bits, false)),
            Coding::Float(float) if float.bits < 8 => Some((float.bits, false)),
            Coding::Brain | Coding::Half | Coding::Float(_) => None,
        }
    }

    /// Whether a byte is a valid code of the number type; always true for types of 8 bits or more.
    fn is_valid_code(&self, code: u8) -> bool {
        match self.narrow() {
            Some((bits, true)) => {
                let half = 1_i16 << (bits - 1);
                (-half..half).contains(&i16::from(code.cast_signed()))
            }
            Some((bits, false)) => u16::from(code) < 1 << bits,
            None => true,
        }
    }

    /// Returns the first byte of decoded elements that is not a valid code, or `None` if all bytes are valid.
    pub fn first_invalid_code(&self, elements: &[u8]) -> Option<u8> {
        self.narrow()?;
        elements
            .iter()
            .copied()
            .find(|&code| !self.is_valid_code(code))
    }
}

/// Converts a whole number to a byte, a negative number to two's complement.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is between -128 and 255"
)]
fn byte_of(number: f64) -> u8 {
    number as i16 as u8
}

impl Float {
    fn value(&self, code: u8) -> f64 {
        let code = u32::from(code) & ((1 << self.bits) - 1);
        let magnitude_bits = self.bits - u32::from(self.signed);
        let negative = self.signed && code >> magnitude_bits == 1;
        let magnitude = code & ((1 << magnitude_bits) - 1);
        let exponent = magnitude >> self.mantissa;
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let most = (1 << (magnitude_bits - self.mantissa)) - 1;
        let size = match self.special {
            Special::Ieee if exponent == most && fraction == 0 => f64::INFINITY,
            Special::Ieee if exponent == most => f64::NAN,
            Special::AllOnes if magnitude == (1 << magnitude_bits) - 1 => f64::NAN,
            Special::NegativeZero if negative && magnitude == 0 => return f64::NAN,
            _ => self.finite(exponent, fraction),
        };
        if negative { -size } else { size }
    }

    fn finite(&self, exponent: u32, fraction: u32) -> f64 {
        let part = f64::from(fraction) / f64::from(1_u32 << self.mantissa);
        // A float without a mantissa has no zero, and so no subnormal numbers.
        if exponent == 0 && self.mantissa > 0 {
            return part * 2_f64.powi(1 - self.bias);
        }
        (1.0 + part) * 2_f64.powi(exponent.cast_signed() - self.bias)
    }

    /// Returns the code of the number nearest to `value`; ties go to the even code.
    fn nearest(&self, value: f64) -> Option<u8> {
        let codes = 0..=(u8::MAX >> (u8::BITS - self.bits));
        if value.is_nan() {
            // Of several NaNs choose the first quiet NaN, as other programs write it.
            let has_quiet = self.special == Special::Ieee && self.mantissa > 0;
            let quiet = if has_quiet {
                1 << (self.mantissa - 1)
            } else {
                0
            };
            return codes
                .into_iter()
                .find(|&code| code & quiet == quiet && self.value(code).is_nan());
        }
        let same_sign =
            |code: &u8| self.value(*code).is_sign_negative() == value.is_sign_negative();
        let distance = |code: u8| {
            let found = self.value(code);
            if found == value {
                0.0
            } else {
                (found - value).abs()
            }
        };
        codes
            .filter(|&code| !self.value(code).is_nan())
            .filter(|code| value == 0.0 || same_sign(code))
            .filter(|&code| value.is_infinite() || self.value(code).is_finite())
            .min_by(|&a, &b| {
                let nearer = distance(a).total_cmp(&distance(b));
                nearer.then((a & 1).cmp(&(b & 1)))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str, value: f64) -> u8 {
        NumberType::named(name).unwrap().code(value).unwrap()[0]
    }

    #[test]
    fn well_known_numbers_have_the_right_code() {
        assert_eq!(code("float8_e4m3fn", 1.0), 0x38);
        assert_eq!(code("float8_e4m3fn", 448.0), 0x7e);
        assert_eq!(code("float8_e5m2", f64::INFINITY), 0x7c);
        assert_eq!(code("float8_e5m2", -1.5), 0xbe);
        assert_eq!(code("float8_e4m3fnuz", f64::NAN), 0x80);
        assert_eq!(code("float8_e5m2", f64::NAN), 0x7e);
        assert_eq!(code("float8_e4m3", f64::NAN), 0x7c);
        assert_eq!(code("float8_e4m3fn", f64::NAN), 0x7f);
        assert_eq!(code("float8_e8m0fnu", 2.0), 0x80);
        assert_eq!(code("float4_e2m1fn", 6.0), 0x7);
        assert_eq!(code("int4", -8.0), 0xf8);
    }

    #[test]
    fn every_value_is_encoded_back_to_itself() {
        for number in NUMBERS.iter().filter(|number| number.size == 1) {
            let bits = number.narrow().map_or(8, |(bits, _)| bits);
            for code in 0..(1_u16 << bits) as u8 {
                let Some(value) = number.value(&[code]).filter(|value| !value.is_nan()) else {
                    continue;
                };
                let Some(found) = number.code(value) else {
                    continue;
                };
                assert_eq!(number.value(&found), Some(value), "{} {code}", number.name);
            }
        }
    }

    #[test]
    fn integers_that_do_not_fit_have_no_code() {
        for (name, value) in [
            ("int2", 2.0),
            ("uint4", 16.0),
            ("uint4", -1.0),
            ("int4", 0.5),
        ] {
            assert_eq!(NumberType::named(name).unwrap().code(value), None, "{name}");
        }
    }
}
