//! Codecs `scale_offset` and `numcodecs.fixedscaleoffset` store `(x - offset) * scale`.
//!
//! `scale_offset` calculates in the array's own type and refuses numbers out of its range. `fixedscaleoffset`
//! calculates as numpy does, rounds to a whole number and casts it to another type.

use serde_json::{Number as JsonNumber, Value};

use crate::codec::config::Configuration;
use crate::codec::traits::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::cast::scalar;
use super::element::{Element, Wide, map_elements, rounding, try_map, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// Scale and offset of a linear transformation, as integers or as floats.
#[derive(Debug)]
enum Transformation {
    Whole { offset: i128, scale: i128 },
    Float { offset: f64, scale: f64 },
}

/// Codec `scale_offset`: the transformation, and the number type it is computed in. A result that the type cannot
/// represent is an error. Integers are restored exactly, floats are rounded.
#[derive(Debug)]
struct ScaleOffset {
    number: Number,
    transformation: Transformation,
}

/// Builds codec `scale_offset` (specification, "Configuration").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    config.only(&["offset", "scale"])?;
    let dtype = Dtype::of_real(&position.repr.data_type, "scale_offset")?;
    let number = |name: &str, default: i64| match config.get(name) {
        None => Ok(Wide::Signed(default)),
        Some(value) => scalar(&position.repr.data_type, value)
            .ok_or_else(|| config.unexpected(name, "a value of the array's data type")),
    };
    let (offset, scale) = (number("offset", 0)?, number("scale", 1)?);
    if scale.as_float() == 0.0 {
        return Err(config.unexpected("scale", "a number other than 0"));
    }
    let transformation = if dtype.number.is_float() {
        let (offset, scale) = (offset.as_float(), scale.as_float());
        Transformation::Float { offset, scale }
    } else {
        let (offset, scale) = (offset.as_whole(), scale.as_whole());
        Transformation::Whole { offset, scale }
    };
    let codec = ScaleOffset {
        number: dtype.number,
        transformation,
    };
    let mut encoded = vec![0; dtype.size()];
    codec
        .encode(&position.repr.fill, &mut encoded)
        .map_err(|error| {
            Error::corrupt(
                "codecs",
                format!(
                    "scale_offset cannot encode the fill value: {}",
                    error.detail()
                ),
            )
        })?;
    Numeric::new("scale_offset", dtype, dtype, codec).at(position)
}

impl ScaleOffset {
    /// Returns the integer, or `None` if it is out of range of the number type.
    fn whole(&self, number: i128) -> Option<i128> {
        let (min, max) = self.number.bounds();
        (min..=max).contains(&number).then_some(number)
    }

    /// Rounds a float to the number type. Returns `None` if the operand was finite but the result is not.
    fn float(&self, number: f64, was_finite: bool) -> Option<f64> {
        let number = rounding(self.number)(number);
        (number.is_finite() || !was_finite).then_some(number)
    }

    fn decoded(&self, wide: Wide) -> Option<Wide> {
        match self.transformation {
            Transformation::Whole { offset, scale } => {
                let number = wide.as_whole();
                let exact = number % scale == 0;
                let quotient = exact
                    .then_some(number / scale)
                    .and_then(|n| self.whole(n))?;
                self.whole(quotient + offset).map(Wide::whole)
            }
            Transformation::Float { offset, scale } => {
                let number = wide.as_float();
                let quotient = self.float(number / scale, number.is_finite())?;
                let sum = self.float(quotient + offset, number.is_finite())?;
                Some(Wide::Float(sum))
            }
        }
    }

    fn encoded(&self, wide: Wide) -> Option<Wide> {
        match self.transformation {
            Transformation::Whole { offset, scale } => {
                let difference = self.whole(wide.as_whole() - offset)?;
                self.whole(difference * scale).map(Wide::whole)
            }
            Transformation::Float { offset, scale } => {
                let number = wide.as_float();
                let difference = self.float(number - offset, number.is_finite())?;
                let product = self.float(difference * scale, number.is_finite())?;
                Some(Wide::Float(product))
            }
        }
    }
}

impl Kernel for ScaleOffset {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let done = with_element!(self.number, T => {
            try_map::<T, T>(encoded, decoded, |wide| self.decoded(wide))
        });
        done.map_err(|wide| Error::corrupt("scale_offset", format!("{wide} is out of range")))
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let done = with_element!(self.number, T => {
            try_map::<T, T>(decoded, encoded, |wide| self.encoded(wide))
        });
        done.map_err(|wide| Error::invalid("scale_offset", format!("{wide} is out of range")))
    }

    fn is_lossy(&self) -> bool {
        match self.transformation {
            Transformation::Whole { .. } => false,
            Transformation::Float { offset, scale } => offset != 0.0 || scale != 1.0,
        }
    }
}

/// Codec `numcodecs.fixedscaleoffset`, which calculates as numpy 2 does with an array and a Python number. Floats keep
/// their width; integers remain integers if their type can represent the Python number, and become float64 otherwise.
/// Division always gives floats. Rounding is to nearest, ties to even.
#[derive(Debug)]
struct FixedScaleOffset {
    offset: JsonNumber,
    scale: JsonNumber,
    decoded: Number,
    encoded: Number,
}

/// Builds `numcodecs.fixedscaleoffset` from `offset`, `scale`, `dtype`, and `astype` if the encoded type differs.
pub(crate) fn fixed(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
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
    /// Returns the function `(x - offset) * scale`, without the final cast to the encoded type.
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

    /// Returns the configured number if it is an integer that the decoded type can represent; always `None` for `Bool`.
    fn integer_of_type<From: Element>(&self, number: &JsonNumber) -> Option<Wide> {
        let wide = number.as_i64().map(Wide::Signed);
        let wide = wide.or_else(|| number.as_u64().map(Wide::Unsigned))?;
        let is_in_range =
            self.decoded != Number::Bool && From::cast(wide).wide().as_whole() == wide.as_whole();
        is_in_range.then_some(wide)
    }
}

/// Multiplies two integers modulo 2^64. The caller casts the product to the type of the element, which wraps it again
/// if the type is narrower.
fn product(one: Wide, other: Wide) -> Wide {
    let number = one.as_whole().wrapping_mul(other.as_whole());
    Wide::Unsigned(u64::cast(Wide::whole(number)))
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline};
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn scaled(data_type: &str, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "scale_offset", "configuration": configuration });
        pipeline(data_type, &[1], json!([codec, "bytes"]))
    }

    #[test]
    fn floats_are_scaled_in_their_own_precision() {
        let pipeline = scaled("float32", json!({ "offset": 5, "scale": 0.1 })).unwrap();
        let encoded = pipeline.encode(&15.5_f32.to_le_bytes()).unwrap();
        assert_eq!(encoded, ((15.5_f32 - 5.0) * 0.1).to_le_bytes());
        let decoded = pipeline.decode(encoded).unwrap();
        assert_eq!(decoded, ((15.5_f32 - 5.0) * 0.1 / 0.1 + 5.0).to_le_bytes());
        assert!(pipeline.is_lossy());
    }

    #[test]
    fn integers_are_scaled_exactly_or_refused() {
        let pipeline = scaled("uint8", json!({ "offset": 3, "scale": 10 })).unwrap();
        assert_eq!(pipeline.encode(&[28]).unwrap(), [250]);
        assert_eq!(pipeline.decode(vec![250]).unwrap(), [28]);
        assert!(!pipeline.is_lossy());
        for number in [2, 29, 255] {
            assert_eq!(
                pipeline.encode(&[number]).unwrap_err().kind(),
                Kind::Invalid
            );
        }
        assert_corrupt(&pipeline, vec![251]);
    }

    #[test]
    fn offset_and_cast_value_pack_numbers_into_a_narrower_type() {
        let codecs = json!([
            { "name": "scale_offset", "configuration": { "offset": 600 } },
            { "name": "cast_value", "configuration": { "data_type": "uint8" } },
            "bytes"
        ]);
        let pipeline = pipeline("uint16", &[3], codecs).unwrap();
        let data: Vec<u8> = [600_u16, 777, 855]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let encoded = pipeline.encode(&data).unwrap();
        assert_eq!(encoded, [0, 177, 255]);
        assert_eq!(pipeline.decode(encoded).unwrap(), data);
    }

    #[test]
    fn a_decoded_overflow_is_corrupt_and_infinity_is_kept() {
        let pipeline = scaled("float32", json!({ "scale": 0.001 })).unwrap();
        assert_corrupt(&pipeline, f32::MAX.to_le_bytes().to_vec());
        let infinite = f32::INFINITY.to_le_bytes().to_vec();
        assert_eq!(pipeline.decode(infinite.clone()).unwrap(), infinite);
    }

    fn fixed(data_type: &str, configuration: Value) -> Pipeline {
        let codec = json!({ "name": "numcodecs.fixedscaleoffset", "configuration": configuration });
        pipeline(data_type, &[4], json!([codec, "bytes"])).unwrap()
    }

    #[test]
    fn fixedscaleoffset_stores_floats_as_integers() {
        let pipeline = fixed(
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
    fn fixedscaleoffset_wraps_integers_and_divides_as_floats() {
        let pipeline = fixed("uint8", json!({ "offset": 5, "scale": 2, "dtype": "|u1" }));
        assert_eq!(
            pipeline.encode(&[0, 1, 2, 100]).unwrap(),
            [246, 248, 250, 190]
        );
        assert_eq!(pipeline.decode(vec![0, 1, 2, 100]).unwrap(), [5, 5, 6, 55]);
    }
}
