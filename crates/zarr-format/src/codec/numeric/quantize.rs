//! Codec `numcodecs.quantize`: rounds floats to a number of decimal digits.
//!
//! Encoding keeps only the bits that the digits need. Decoding casts from `astype` to `dtype` and does not restore the
//! lost bits.

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::element::{Wide, cast_all, map_elements, rounding, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// The power of two that scales numbers before they are rounded, and the decoded and the encoded type.
#[derive(Debug)]
struct Quantize {
    scale: f64,
    decoded: Number,
    encoded: Number,
}

/// Reads the configuration: `digits`, `dtype`, and `astype` if the encoded type differs.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
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
    use crate::codec::tests::pipeline;
    use serde_json::json;

    #[test]
    fn scales_are_those_of_numcodecs() {
        for (digits, expected) in [(-1, 0.125), (0, 1.0), (1, 16.0), (2, 128.0), (5, 131_072.0)] {
            assert_eq!(scale(digits), expected, "{digits}");
        }
    }

    #[test]
    fn digits_beyond_those_asked_for_are_gone() {
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
