//! Codec `scale_offset`: `(x - offset) * scale` in the arithmetic of the array's own type.
//!
//! An intermediate or final result that the type cannot represent is an error and never becomes another number.
//! Integers are restored exactly, floats are rounded.

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::error::{Error, Result};

use super::cast_value::scalar;
use super::element::{Wide, rounding, try_map, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric};

const NAME: &str = "scale_offset";

/// Scale and offset, as integers or as floats.
#[derive(Debug)]
enum Transformation {
    Whole { offset: i128, scale: i128 },
    Float { offset: f64, scale: f64 },
}

/// The transformation, and the type of its arithmetic.
#[derive(Debug)]
struct ScaleOffset {
    number: Number,
    transformation: Transformation,
}

/// Reads the configuration (codec `scale_offset`, "Configuration").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    config.only(&["offset", "scale"])?;
    let dtype = Dtype::of_real(&position.repr.data_type, NAME)?;
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
                format!("{NAME} cannot encode the fill value: {}", error.detail()),
            )
        })?;
    Numeric::new(NAME, dtype, dtype, codec).at(position)
}

impl ScaleOffset {
    /// Returns an integer if it is in the range of the type.
    fn whole(&self, number: i128) -> Option<i128> {
        let (min, max) = self.number.bounds();
        (min..=max).contains(&number).then_some(number)
    }

    /// Returns a float rounded to the type, or `None` if the operand was finite but the result is not.
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
        done.map_err(|wide| Error::corrupt(NAME, format!("{wide} is out of range")))
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let done = with_element!(self.number, T => {
            try_map::<T, T>(decoded, encoded, |wide| self.encoded(wide))
        });
        done.map_err(|wide| Error::invalid(NAME, format!("{wide} is out of range")))
    }

    fn is_lossy(&self) -> bool {
        match self.transformation {
            Transformation::Whole { .. } => false,
            Transformation::Float { offset, scale } => offset != 0.0 || scale != 1.0,
        }
    }
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
    fn floats_are_scaled_in_their_own_width() {
        let pipeline = scaled("float32", json!({ "offset": 5, "scale": 0.1 })).unwrap();
        let encoded = pipeline.encode(&15.5_f32.to_le_bytes()).unwrap();
        assert_eq!(encoded, ((15.5_f32 - 5.0) * 0.1).to_le_bytes());
        let decoded = pipeline.decode(encoded).unwrap();
        assert_eq!(decoded, ((15.5_f32 - 5.0) * 0.1 / 0.1 + 5.0).to_le_bytes());
        assert!(pipeline.is_lossy());
    }

    #[test]
    fn integers_are_exact_or_refused() {
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
    fn with_cast_value_it_narrows_a_range() {
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
    fn what_exceeds_the_type_is_corrupt() {
        let pipeline = scaled("float32", json!({ "scale": 0.001 })).unwrap();
        assert_corrupt(&pipeline, f32::MAX.to_le_bytes().to_vec());
        let infinite = f32::INFINITY.to_le_bytes().to_vec();
        assert_eq!(pipeline.decode(infinite.clone()).unwrap(), infinite);
    }
}
