//! Codecs `bitround` and `numcodecs.quantize`: numbers rounded to significant bits or decimal digits.
//!
//! Encoding sets insignificant bits to zero, since zeros compress well. Decoding does not restore those bits:
//! `bitround` changes no byte, and `quantize` casts from `astype` to `dtype`.

use crate::codec::config::Configuration;
use crate::codec::traits::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::element::{Wide, cast_all, map_elements, rounding, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// Codec `bitround`: keeps the upper `keepbits` bits of a float's mantissa; in an integer, `keepbits` bits from its
/// highest set bit down. Ties go to even. NaN and infinities are unchanged; an integer that would overflow its type is
/// rounded down.
#[derive(Debug)]
struct BitRound {
    number: Number,
    keepbits: u32,
}

/// Builds codec `bitround` (specification, "Configuration parameters").
pub(crate) fn bitround(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let dtype = Dtype::of(&position.repr.data_type).filter(|dtype| dtype.number != Number::Bool);
    let dtype = dtype.ok_or_else(|| {
        let name = position.repr.data_type.to_string();
        Error::unsupported(
            "codecs",
            format!("bitround does not support data type {name}"),
        )
    })?;
    let max = mantissa(dtype.number).map_or(64, |(bits, _)| bits);
    let keepbits = config
        .unsigned("keepbits", 0..=max)?
        .ok_or_else(|| config.unexpected("keepbits", format!("an integer from 0 to {max}")))?;
    let round = BitRound {
        number: dtype.number,
        keepbits,
    };
    Numeric::new("bitround", dtype, dtype, round).at(position)
}

/// Returns how many bits the mantissa of a float type has, and the mask of its exponent; `None` for integers.
fn mantissa(number: Number) -> Option<(u32, u64)> {
    match number {
        Number::F16 => Some((10, 0x7c00)),
        Number::F32 => Some((23, 0x7f80_0000)),
        Number::F64 => Some((52, 0x7ff0_0000_0000_0000)),
        _ => None,
    }
}

impl Kernel for BitRound {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        decoded.copy_from_slice(encoded);
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let width = self.number.width();
        let elements = decoded
            .chunks_exact(width)
            .zip(encoded.chunks_exact_mut(width));
        for (from, to) in elements {
            let mut bits = [0; 8];
            bits[..width].copy_from_slice(from);
            let rounded = self.round(u64::from_le_bytes(bits));
            to.copy_from_slice(&rounded.to_le_bytes()[..width]);
        }
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        mantissa(self.number).is_none_or(|(bits, _)| self.keepbits < bits)
    }
}

impl BitRound {
    fn round(&self, bits: u64) -> u64 {
        let max = u64::MAX >> (64 - 8 * self.number.width());
        let digits = match mantissa(self.number) {
            Some((_, exponent)) if bits & exponent == exponent => return bits,
            Some((digits, _)) => digits,
            None => u64::BITS - bits.leading_zeros(),
        };
        let dropped = digits.saturating_sub(self.keepbits);
        let Some(half) = dropped.checked_sub(1).map(|shift| 1_u64 << shift) else {
            return bits;
        };
        let mask = u64::MAX.checked_shl(dropped).unwrap_or(0);
        let odd = bits.checked_shr(dropped).unwrap_or(0) & 1;
        let rounded = bits.saturating_add(half - 1 + odd);
        // A float rounded up never carries into its sign, but an integer may overflow its type, so the result is
        // clamped.
        rounded.min(max) & mask
    }
}

/// Codec `numcodecs.quantize`, which rounds floats to decimal digits: a number is multiplied by `scale`, a power of
/// two, rounded to an integer, and divided by `scale`.
#[derive(Debug)]
struct Quantize {
    scale: f64,
    decoded: Number,
    encoded: Number,
}

/// Builds `numcodecs.quantize` from `digits`, `dtype`, and `astype` if the encoded type differs.
pub(crate) fn decimal(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let decoded = decoded_dtype(config, "dtype", position)?;
    let encoded = Dtype::member(config, "astype")?.unwrap_or(decoded);
    for dtype in [decoded, encoded] {
        if !dtype.number.is_float() || dtype.parts != 1 {
            return Err(Error::unsupported(
                "codecs",
                "quantize supports floats only",
            ));
        }
    }
    let digits = config.integer("digits", -300..=300)?;
    let digits = digits
        .and_then(|digits| i32::try_from(digits).ok())
        .ok_or_else(|| config.unexpected("digits", "an integer from -300 to 300"))?;
    let quantize = Quantize {
        scale: scale(digits),
        decoded: decoded.number,
        encoded: encoded.number,
    };
    Numeric::new("quantize", decoded, encoded, quantize).at(position)
}

/// Returns the power of two that preserves `digits` decimal digits, calculated as in numcodecs.
fn scale(digits: i32) -> f64 {
    let exponent = 10.0_f64.powf(f64::from(-digits)).log10();
    let exponent = if exponent < 0.0 {
        exponent.floor()
    } else {
        exponent.ceil()
    };
    let bits = 10.0_f64.powf(-exponent).log2().ceil();
    2.0_f64.powf(bits)
}

impl Kernel for Quantize {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        cast_all(self.encoded, encoded, self.decoded, decoded);
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let round = rounding(self.decoded);
        let scale = round(self.scale);
        let quantize = |wide| match wide {
            Wide::Float(number) => {
                Wide::Float(round(round(scale * number).round_ties_even() / scale))
            }
            other => other,
        };
        with_element!(self.decoded, From => with_element!(self.encoded, To => {
            map_elements::<From, To>(decoded, encoded, quantize)
        }));
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::scale;
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use serde_json::json;

    fn bitround(data_type: &str, length: u64, keepbits: u64) -> Pipeline {
        let codec = json!({ "name": "bitround", "configuration": { "keepbits": keepbits } });
        pipeline(data_type, &[length], json!([codec, "bytes"])).unwrap()
    }

    #[test]
    fn bitround_rounds_the_mantissa_of_floats() {
        let numbers = [0.0_f32, 1.234_567_9, -8.358_719, 98_765.43, f32::INFINITY];
        let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let rounded = bitround("float32", 5, 3).encode(&data).unwrap();
        let rounded: Vec<f32> = rounded
            .chunks(4)
            .map(|n| f32::from_le_bytes(n.try_into().unwrap()))
            .collect();
        assert_eq!(rounded, [0.0, 1.25, -8.0, 98304.0, f32::INFINITY]);
    }

    #[test]
    fn bitround_keeps_the_bits_of_nan() {
        for bits in [0x7f80_0001_u32, 0x7fff_ffff, 0xffff_ffff] {
            let pipeline = bitround("float32", 1, 0);
            let encoded = pipeline.encode(&bits.to_le_bytes()).unwrap();
            assert_eq!(encoded, bits.to_le_bytes());
        }
    }

    #[test]
    fn bitround_rounds_integers_from_their_highest_bit() {
        let data = [0, 3, 7, 15, 17, 54, 89, 128, 255];
        let pipeline = bitround("uint8", 9, 3);
        let rounded = pipeline.encode(&data).unwrap();
        assert_eq!(rounded, [0, 3, 7, 16, 16, 56, 96, 128, 224]);
        assert_eq!(pipeline.decode(rounded.clone()).unwrap(), rounded);
    }

    #[test]
    fn bitround_to_all_bits_is_lossless() {
        assert!(!bitround("float32", 1, 23).is_lossy());
        assert!(bitround("float32", 1, 22).is_lossy());
    }

    #[test]
    fn quantize_uses_the_scales_of_numcodecs() {
        for (digits, expected) in [(-1, 0.125), (0, 1.0), (1, 16.0), (2, 128.0), (5, 131_072.0)] {
            assert_eq!(scale(digits), expected, "{digits}");
        }
    }

    #[test]
    fn quantize_keeps_only_the_given_digits() {
        let codec = json!({ "name": "numcodecs.quantize", "configuration": { "digits": 1, "dtype": "<f8", "astype": "<f4" } });
        let pipeline = pipeline("float64", &[3], json!([codec, "bytes"])).unwrap();
        let data: Vec<u8> = [0.111_f64, 0.333, 1.0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let encoded = pipeline.encode(&data).unwrap();
        let stored: Vec<f32> = encoded
            .chunks(4)
            .map(|n| f32::from_le_bytes(n.try_into().unwrap()))
            .collect();
        assert_eq!(stored, [0.125, 0.3125, 1.0]);
        assert_eq!(
            pipeline.decode(encoded).unwrap()[..8],
            0.125_f64.to_le_bytes()
        );
        assert!(pipeline.is_lossy());
    }
}
