//! Codec `numcodecs.fixedscaleoffset`: `(x - offset) * scale`, rounded to a whole number and cast.
//!
//! Arithmetic is numpy 2's between an array and a Python number: floats keep their width; integers remain integers if
//! their type can represent the other number, and become float64 otherwise. Division always gives floats. Rounding is
//! to nearest, ties to even.

use serde_json::{Number as JsonNumber, Value};

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::element::{Element, Wide, map_elements, rounding, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// The transformation, and the decoded and the encoded type.
#[derive(Debug)]
struct FixedScaleOffset {
    offset: JsonNumber,
    scale: JsonNumber,
    decoded: Number,
    encoded: Number,
}

/// Reads the configuration: `offset`, `scale`, `dtype`, and `astype` if the encoded type differs.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let decoded = decoded_dtype(config, "dtype", position)?;
    let encoded = Dtype::member(config, "astype")?.unwrap_or(decoded);
    if (decoded.parts, encoded.parts) != (1, 1) {
        let what = "fixedscaleoffset does not support complex numbers";
        return Err(Error::unsupported("codecs", what));
    }
    let transformation = FixedScaleOffset {
        offset: number(config, "offset")?,
        scale: number(config, "scale")?,
        decoded: decoded.number,
        encoded: encoded.number,
    };
    Numeric::new("fixedscaleoffset", decoded, encoded, transformation).at(position)
}

fn number(config: Configuration<'_>, name: &str) -> Result<JsonNumber> {
    match config.get(name) {
        Some(Value::Number(number)) => Ok(number.clone()),
        _ => Err(config.unexpected(name, "a number")),
    }
}

fn float(number: &JsonNumber) -> f64 {
    number.as_f64().unwrap_or(f64::NAN)
}

impl Kernel for FixedScaleOffset {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let round = rounding(self.encoded);
        let (scale, offset) = (round(float(&self.scale)), round(float(&self.offset)));
        let undo = |wide: Wide| Wide::Float(round(round(round(wide.as_float()) / scale) + offset));
        with_element!(self.encoded, From => with_element!(self.decoded, To => {
            map_elements::<From, To>(encoded, decoded, undo)
        }));
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        with_element!(self.decoded, From => with_element!(self.encoded, To => {
            map_elements::<From, To>(decoded, encoded, self.transformation::<From>())
        }));
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        true
    }
}

impl FixedScaleOffset {
    /// Returns the calculation of encoding, before the cast of the result.
    fn transformation<From: Element>(&self) -> impl Fn(Wide) -> Wide {
        let round = rounding(self.decoded);
        let (scale, offset) = (round(float(&self.scale)), round(float(&self.offset)));
        let whole = |number: &JsonNumber| self.integer_of_type::<From>(number);
        let (whole_offset, whole_scale) = (whole(&self.offset), whole(&self.scale));
        move |wide| {
            let wide = match (wide, whole_offset) {
                (Wide::Float(number), _) => Wide::Float(round(number - offset)),
                (_, None) => Wide::Float(wide.as_float() - offset),
                (_, Some(offset)) => From::cast(wide).minus(From::cast(offset)).wide(),
            };
            match (wide, whole_scale) {
                (Wide::Float(number), _) => Wide::Float(round(number * scale).round_ties_even()),
                (_, None) => Wide::Float((wide.as_float() * scale).round_ties_even()),
                (_, Some(scale)) => From::cast(product(wide, scale)).wide(),
            }
        }
    }

    /// Returns a number if it is an integer that the decoded type can represent; always `None` for `Bool`.
    fn integer_of_type<From: Element>(&self, number: &JsonNumber) -> Option<Wide> {
        let wide = number.as_i64().map(Wide::Signed);
        let wide = wide.or_else(|| number.as_u64().map(Wide::Unsigned))?;
        let is_in_range =
            self.decoded != Number::Bool && From::cast(wide).wide().as_whole() == wide.as_whole();
        is_in_range.then_some(wide)
    }
}

/// Returns the product modulo 2^64; narrower integers wrap it further.
fn product(one: Wide, other: Wide) -> Wide {
    let number = one.as_whole().wrapping_mul(other.as_whole());
    Wide::Unsigned(u64::cast(Wide::whole(number)))
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use serde_json::{Value, json};

    fn scaled(data_type: &str, configuration: Value) -> Pipeline {
        let codec = json!({ "name": "numcodecs.fixedscaleoffset", "configuration": configuration });
        pipeline(data_type, &[4], json!([codec, "bytes"])).unwrap()
    }

    #[test]
    fn floats_become_whole_numbers() {
        let pipeline = scaled(
            "float64",
            json!({ "offset": 1000, "scale": 10, "dtype": "<f8", "astype": "|u1" }),
        );
        let data: Vec<u8> = [1000.0_f64, 1000.11, 1000.25, 1001.0]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let encoded = pipeline.encode(&data).unwrap();
        assert_eq!(encoded, [0, 1, 2, 10]);
        let decoded = pipeline.decode(encoded).unwrap();
        let decoded: Vec<f64> = decoded
            .chunks(8)
            .map(|n| f64::from_le_bytes(n.try_into().unwrap()))
            .collect();
        assert_eq!(decoded, [1000.0, 1000.1, 1000.2, 1001.0]);
        assert!(pipeline.is_lossy());
    }

    #[test]
    fn integers_wrap_and_are_divided_as_floats() {
        let pipeline = scaled("uint8", json!({ "offset": 5, "scale": 2, "dtype": "|u1" }));
        assert_eq!(
            pipeline.encode(&[0, 1, 2, 100]).unwrap(),
            [246, 248, 250, 190]
        );
        assert_eq!(pipeline.decode(vec![0, 1, 2, 100]).unwrap(), [5, 5, 6, 55]);
    }
}
