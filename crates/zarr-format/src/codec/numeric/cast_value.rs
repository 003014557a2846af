//! Codec `cast_value`: converts each number to the same number of another type.
//!
//! Numbers that the other type cannot represent are rounded. Numbers out of its range are clamped or wrapped if the
//! configuration says so; otherwise they are an error and never become another number. `scalar_map` replaces single
//! numbers.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::kind::{ChainPosition, Codec};
use crate::dialect::fill;
use crate::error::{Error, Result};
use crate::model::DataType;

use super::element::{Element, Wide, try_map, with_element};
use super::number::{Dtype, Number};
use super::rounding::Rounding;
use super::{Kernel, Numeric};

const NAME: &str = "cast_value";

/// The treatment of numbers out of a type's range (codec `cast_value`, "out_of_range").
#[derive(Clone, Copy, Debug, PartialEq)]
enum OutOfRange {
    Refuse,
    Clamp,
    Wrap,
}

/// Pairs of a number and its replacement; the first match counts.
type ScalarMap = Vec<(Wide, Wide)>;

/// The cast, and the decoded and the encoded type.
#[derive(Debug)]
struct CastValue {
    decoded: Number,
    encoded: Number,
    rounding: Rounding,
    out_of_range: OutOfRange,
    encode_map: ScalarMap,
    decode_map: ScalarMap,
}

/// Reads the configuration (codec `cast_value`, "Configuration").
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    config.only(&["data_type", "rounding", "out_of_range", "scalar_map"])?;
    let target = config.get("data_type").and_then(|value| {
        let name = value.as_str().or_else(|| value.get("name")?.as_str());
        name.map(DataType::from_v3)
    });
    let target = target.ok_or_else(|| config.unexpected("data_type", "a data type"))?;
    let source = &position.repr.data_type;
    let (decoded, encoded) = (
        Dtype::of_real(source, NAME)?,
        Dtype::of_real(&target, NAME)?,
    );
    let out_of_range = match config.keyword("out_of_range", &["clamp", "wrap"])? {
        None => OutOfRange::Refuse,
        Some("clamp") => OutOfRange::Clamp,
        Some(_) if encoded.number.is_float() => {
            return Err(config.unexpected("out_of_range", "clamp (floats cannot wrap)"));
        }
        Some(_) => OutOfRange::Wrap,
    };
    let cast = CastValue {
        decoded: decoded.number,
        encoded: encoded.number,
        rounding: Rounding::read(config)?,
        out_of_range,
        encode_map: scalar_map(config, "encode", source, &target)?,
        decode_map: scalar_map(config, "decode", &target, source)?,
    };
    cast.check_fill(&position.repr.fill)?;
    Numeric::new(NAME, decoded, encoded, cast).at(position)
}

/// Reads one direction of `scalar_map`: pairs of numbers, each written as a fill value of its type.
fn scalar_map(
    config: Configuration<'_>,
    side: &str,
    from: &DataType,
    to: &DataType,
) -> Result<ScalarMap> {
    let wrong = || config.unexpected("scalar_map", "lists of pairs of numbers");
    let Some(map) = config.get("scalar_map") else {
        return Ok(ScalarMap::new());
    };
    let map = map.as_object().ok_or_else(wrong)?;
    let Some(list) = map.get(side) else {
        return Ok(ScalarMap::new());
    };
    let pair = |value: &Value| match value.as_array().map(Vec::as_slice) {
        Some([input, output]) => Some((scalar(from, input)?, scalar(to, output)?)),
        _ => None,
    };
    let list = list.as_array().ok_or_else(wrong)?;
    list.iter()
        .map(pair)
        .collect::<Option<ScalarMap>>()
        .ok_or_else(wrong)
}

/// Reads a number written as a fill value.
pub(super) fn scalar(data_type: &DataType, value: &Value) -> Option<Wide> {
    let bytes = fill::parse(data_type, value).ok()?.bytes;
    let number = Dtype::of(data_type)?.number;
    (bytes.len() == number.width()).then(|| with_element!(number, T => T::read(&bytes).wide()))
}

impl CastValue {
    /// Checks that the fill value survives encoding and decoding, as the specification demands.
    fn check_fill(&self, fill: &[u8]) -> Result<()> {
        let wide = |number: Number, bytes: &[u8]| with_element!(number, T => T::read(bytes).wide());
        let mut encoded = vec![0; self.encoded.width()];
        let mut back = vec![0; self.decoded.width()];
        let cast = self.encode(fill, &mut encoded);
        let cast = cast.and_then(|()| self.decode(&encoded, &mut back));
        let (fill, back) = (wide(self.decoded, fill), wide(self.decoded, &back));
        if cast.is_err() || !equal(fill, back) {
            let what = format!("{NAME} changes the fill value");
            return Err(Error::corrupt("codecs", what));
        }
        Ok(())
    }

    /// Returns `number` as a number of type `to`, or `None` if the type cannot represent it.
    fn cast(&self, number: Wide, to: Number, map: &ScalarMap) -> Option<Wide> {
        if let Some((_, output)) = map.iter().find(|(input, _)| equal(*input, number)) {
            return Some(*output);
        }
        if !to.is_float() {
            return self.integer(number, to);
        }
        let sign = match number {
            Wide::Float(number) => number.signum(),
            _ => 1.0,
        };
        let clamped =
            || (self.out_of_range == OutOfRange::Clamp).then_some(f64::INFINITY.copysign(sign));
        let float = self.rounding.float(number, to).or_else(clamped);
        float.map(Wide::Float)
    }

    fn integer(&self, number: Wide, to: Number) -> Option<Wide> {
        let whole = match number {
            Wide::Signed(_) | Wide::Unsigned(_) => number.as_whole(),
            Wide::Float(number) if !number.is_finite() => return None,
            // Beyond 128 bits a float is a multiple of 2^64, so it must wrap to 0; i128::MAX would wrap to -1.
            Wide::Float(float) => match Wide::Float(self.rounding.whole(float)).as_whole() {
                i128::MAX => i128::MAX - i128::from(u64::MAX),
                whole => whole,
            },
        };
        let (min, max) = to.bounds();
        match self.out_of_range {
            _ if (min..=max).contains(&whole) => {}
            OutOfRange::Refuse => return None,
            OutOfRange::Clamp => return Some(Wide::whole(whole.clamp(min, max))),
            OutOfRange::Wrap => return Some(Wide::whole(whole & i128::from(u64::MAX))),
        }
        Some(Wide::whole(whole))
    }
}

/// Whether two numbers of one type are equal. NaN equals NaN.
fn equal(one: Wide, other: Wide) -> bool {
    match (one, other) {
        (Wide::Float(one), Wide::Float(other)) => one == other || one.is_nan() && other.is_nan(),
        _ => one == other,
    }
}

impl Kernel for CastValue {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        let cast = |wide| self.cast(wide, self.decoded, &self.decode_map);
        let done = with_element!(self.encoded, From => with_element!(self.decoded, To => {
            try_map::<From, To>(encoded, decoded, cast)
        }));
        done.map_err(|wide| Error::corrupt(NAME, format!("{wide} is out of range")))
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let cast = |wide| self.cast(wide, self.encoded, &self.encode_map);
        let done = with_element!(self.decoded, From => with_element!(self.encoded, To => {
            try_map::<From, To>(decoded, encoded, cast)
        }));
        done.map_err(|wide| Error::invalid(NAME, format!("{wide} is out of range")))
    }

    fn is_lossy(&self) -> bool {
        !self.decoded.fits(self.encoded) || !self.encode_map.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline};
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn cast(data_type: &str, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "cast_value", "configuration": configuration });
        pipeline(data_type, &[1], json!([codec, "bytes"]))
    }

    /// Returns the encoded bytes of a float64, or the kind of error.
    fn as_uint8(number: f64, configuration: Value) -> std::result::Result<Vec<u8>, Kind> {
        let mut configuration = configuration;
        configuration["data_type"] = json!("uint8");
        // The fill value in these tests, bytes of 3, is 1.7e-287.
        configuration["scalar_map"]["encode"] = json!([["0x0303030303030303", 77], ["NaN", 5]]);
        configuration["scalar_map"]["decode"] = json!([[77, "0x0303030303030303"]]);
        let pipeline = cast("float64", configuration).unwrap();
        pipeline
            .encode(&number.to_le_bytes())
            .map_err(|error| error.kind())
    }

    #[test]
    fn what_the_other_type_has_stays() {
        assert_eq!(as_uint8(200.0, json!({})), Ok(vec![200]));
        assert_eq!(as_uint8(f64::NAN, json!({})), Ok(vec![5]));
    }

    #[test]
    fn fractions_are_rounded() {
        for (rounding, expected) in [
            ("nearest-even", 2),
            ("nearest-away", 3),
            ("towards-zero", 2),
            ("towards-positive", 3),
            ("towards-negative", 2),
        ] {
            assert_eq!(
                as_uint8(2.5, json!({ "rounding": rounding })),
                Ok(vec![expected])
            );
        }
    }

    #[test]
    fn numbers_beyond_the_type() {
        for (number, clamped, wrapped) in [
            (300.0, 255, 44),
            (-1.0, 0, 255),
            (1e60, 255, 0),
            (-1e60, 0, 0),
        ] {
            assert_eq!(as_uint8(number, json!({})), Err(Kind::Invalid));
            assert_eq!(
                as_uint8(number, json!({ "out_of_range": "clamp" })),
                Ok(vec![clamped])
            );
            assert_eq!(
                as_uint8(number, json!({ "out_of_range": "wrap" })),
                Ok(vec![wrapped])
            );
        }
        assert_eq!(
            as_uint8(f64::INFINITY, json!({ "out_of_range": "clamp" })),
            Err(Kind::Invalid)
        );
    }

    #[test]
    fn wrapping_is_that_of_the_specification() {
        let pipeline = cast(
            "int32",
            json!({ "data_type": "int16", "out_of_range": "wrap" }),
        );
        // The fill value does not survive this cast.
        assert_eq!(pipeline.unwrap_err().kind(), Kind::Corrupt);
        let pipeline = cast(
            "uint8",
            json!({ "data_type": "int8", "out_of_range": "wrap" }),
        )
        .unwrap();
        assert_eq!(pipeline.encode(&[128]).unwrap(), [128]);
        assert_eq!(pipeline.decode(vec![0x80]).unwrap(), [128]);
    }

    #[test]
    fn what_decodes_to_no_number_is_corrupt() {
        let pipeline = cast("uint8", json!({ "data_type": "float32" })).unwrap();
        assert!(!pipeline.is_lossy());
        assert_eq!(
            pipeline.decode(7.0_f32.to_le_bytes().to_vec()).unwrap(),
            [7]
        );
        for number in [256.0_f32, -1.0, f32::NAN] {
            assert_corrupt(&pipeline, number.to_le_bytes().to_vec());
        }
    }
}
