//! Codec `bitround` (also `numcodecs.bitround`): rounds numbers to a number of significant bits.
//!
//! Floats keep `keepbits` bits of their mantissa, integers keep that many from their highest set bit; ties go to even.
//! Decoding changes no byte. NaN and infinities are kept; an integer that would overflow its type is rounded down.

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::number::{Dtype, Number};
use super::{Kernel, Numeric};

/// The number type, and the number of significant bits kept.
#[derive(Debug)]
struct BitRound {
    number: Number,
    keepbits: u32,
}

/// Reads the configuration (codec `bitround`, "Configuration parameters").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
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

/// Returns the bits of a float's mantissa and the mask of its exponent, or `None` for integers.
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
        // Rounding a float up never carries into its sign, but an integer may overflow its type.
        rounded.min(max) & mask
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use serde_json::json;

    fn bitround(data_type: &str, length: u64, keepbits: u64) -> Pipeline {
        let codec = json!({ "name": "bitround", "configuration": { "keepbits": keepbits } });
        pipeline(data_type, &[length], json!([codec, "bytes"])).unwrap()
    }

    #[test]
    fn floats_lose_the_end_of_their_mantissa() {
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
    fn nan_stays_nan() {
        for bits in [0x7f80_0001_u32, 0x7fff_ffff, 0xffff_ffff] {
            let pipeline = bitround("float32", 1, 0);
            let encoded = pipeline.encode(&bits.to_le_bytes()).unwrap();
            assert_eq!(encoded, bits.to_le_bytes());
        }
    }

    #[test]
    fn integers_are_rounded_from_their_first_bit() {
        let data = [0, 3, 7, 15, 17, 54, 89, 128, 255];
        let pipeline = bitround("uint8", 9, 3);
        let rounded = pipeline.encode(&data).unwrap();
        assert_eq!(rounded, [0, 3, 7, 16, 16, 56, 96, 128, 224]);
        assert_eq!(pipeline.decode(rounded.clone()).unwrap(), rounded);
    }

    #[test]
    fn rounding_to_all_bits_is_lossless() {
        assert!(!bitround("float32", 1, 23).is_lossy());
        assert!(bitround("float32", 1, 22).is_lossy());
    }
}
