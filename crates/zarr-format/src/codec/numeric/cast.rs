//! Codecs `numcodecs.astype` and `cast_value`: convert every number to another number type.
//!
//! `astype` casts as numpy does, and loses digits that the encoded type cannot represent. `cast_value` rounds numbers
//! that the other type cannot represent. Numbers out of range are clamped or wrapped if the configuration says so, and
//! are an error otherwise. `scalar_map` replaces single numbers.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::traits::{ChainPosition, Codec};
use crate::dialect::fill;
use crate::error::{Error, Result};
use crate::model::DataType;

use super::element::{Element, Wide, cast_all, try_map, with_element};
use super::number::{Dtype, Number};
use super::{Kernel, Numeric, decoded_dtype};

/// Codec `numcodecs.astype`, which casts as numpy does. It is lossless only if the encoded type can represent every
/// decoded value.
#[derive(Debug)]
struct AsType {
    decoded: Number,
    encoded: Number,
}

/// Builds `numcodecs.astype` from `encode_dtype` and `decode_dtype`.
pub(crate) fn astype(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let decoded = decoded_dtype(config, "decode_dtype", position)?;
    let encoded = Dtype::member(config, "encode_dtype")?
        .ok_or_else(|| config.unexpected("encode_dtype", "a type string of numpy, such as <f4"))?;
    if decoded.parts != encoded.parts || names_dates(config) {
        let what = "astype does not convert between complex and other numbers, or dates";
        return Err(Error::unsupported("codecs", what));
    }
    let cast = AsType {
        decoded: decoded.number,
        encoded: encoded.number,
    };
    Numeric::new("astype", decoded, encoded, cast).at(position)
}

/// Whether `encode_dtype` or `decode_dtype` is a date or duration, whose units numpy would convert.
fn names_dates(config: Configuration<'_>) -> bool {
    ["encode_dtype", "decode_dtype"].iter().any(|name| {
        let text = config.get(name).and_then(Value::as_str).unwrap_or_default();
        text.contains("M8") || text.contains("m8")
    })
}

impl Kernel for AsType {
    fn decode(&self, encoded: &[u8], decoded: &mut [u8]) -> Result<()> {
        cast_all(self.encoded, encoded, self.decoded, decoded);
        Ok(())
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        cast_all(self.decoded, decoded, self.encoded, encoded);
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        !self.decoded.fits(self.encoded)
    }
}

/// What happens to numbers out of range of the other type (codec `cast_value`, "out_of_range").
#[derive(Clone, Copy, Debug, PartialEq)]
enum OutOfRange {
    Refuse,
    Clamp,
    Wrap,
}

/// Numbers and their replacements (`scalar_map`); the first entry that matches a number is used.
type ScalarMap = Vec<(Wide, Wide)>;

/// Codec `cast_value`: both number types, and the configured rules of conversion.
#[derive(Debug)]
struct CastValue {
    decoded: Number,
    encoded: Number,
    rounding: Rounding,
    out_of_range: OutOfRange,
    encode_map: ScalarMap,
    decode_map: ScalarMap,
}

/// Builds codec `cast_value` (specification, "Configuration").
pub(crate) fn value(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    config.only(&["data_type", "rounding", "out_of_range", "scalar_map"])?;
    let target = config.get("data_type").and_then(|value| {
        let name = value.as_str().or_else(|| value.get("name")?.as_str());
        name.map(DataType::from_v3)
    });
    let target = target.ok_or_else(|| config.unexpected("data_type", "a data type"))?;
    let source = &position.repr.data_type;
    let (decoded, encoded) = (
        Dtype::of_real(source, "cast_value")?,
        Dtype::of_real(&target, "cast_value")?,
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
    Numeric::new("cast_value", decoded, encoded, cast).at(position)
}

/// Reads `encode` or `decode` of `scalar_map`: pairs of numbers, each written like a fill value of its type.
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

/// Reads a number that is written like a fill value of `data_type`.
pub(super) fn scalar(data_type: &DataType, value: &Value) -> Option<Wide> {
    let bytes = fill::parse(data_type, value).ok()?.bytes;
    let number = Dtype::of(data_type)?.number;
    (bytes.len() == number.width()).then(|| with_element!(number, T => T::read(&bytes).wide()))
}

impl CastValue {
    /// Checks that the fill value is unchanged after encoding and decoding, as the specification of `cast_value`
    /// demands.
    fn check_fill(&self, fill: &[u8]) -> Result<()> {
        let wide = |number: Number, bytes: &[u8]| with_element!(number, T => T::read(bytes).wide());
        let mut encoded = vec![0; self.encoded.width()];
        let mut back = vec![0; self.decoded.width()];
        let cast = self.encode(fill, &mut encoded);
        let cast = cast.and_then(|()| self.decode(&encoded, &mut back));
        let (fill, back) = (wide(self.decoded, fill), wide(self.decoded, &back));
        if cast.is_err() || !equal(fill, back) {
            return Err(Error::corrupt(
                "codecs",
                "cast_value changes the fill value",
            ));
        }
        Ok(())
    }

    /// Converts `number` to the type `to`; returns `None` if the type cannot represent it.
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
            // A float beyond the range of `i128` is a multiple of 2^64, so it must wrap to 0; `i128::MAX` would wrap to
            // -1.
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

/// Whether two numbers of the same type are equal. Here NaN equals NaN.
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
        done.map_err(|wide| Error::corrupt("cast_value", format!("{wide} is out of range")))
    }

    fn encode(&self, decoded: &[u8], encoded: &mut [u8]) -> Result<()> {
        let cast = |wide| self.cast(wide, self.encoded, &self.encode_map);
        let done = with_element!(self.decoded, From => with_element!(self.encoded, To => {
            try_map::<From, To>(decoded, encoded, cast)
        }));
        done.map_err(|wide| Error::invalid("cast_value", format!("{wide} is out of range")))
    }

    fn is_lossy(&self) -> bool {
        !self.decoded.fits(self.encoded) || !self.encode_map.is_empty()
    }
}

/// How numbers are rounded to integers and to floats of any width (codec `cast_value`, "rounding").
///
/// No number is rounded twice: a number is decomposed into an integer and a power of two, and all bits that do not fit
/// are dropped at once.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rounding {
    NearestEven,
    NearestAway,
    TowardsZero,
    TowardsPositive,
    TowardsNegative,
}

/// Parameters of an IEEE 754 float format: the number of mantissa digits, and the smallest and largest exponents of
/// normal numbers.
#[derive(Clone, Copy, Debug)]
struct FloatFormat {
    digits: i32,
    min_exponent: i32,
    max_exponent: i32,
}

impl FloatFormat {
    fn of(number: Number) -> FloatFormat {
        let (digits, min_exponent, max_exponent) = match number {
            Number::F16 => (11, -14, 15),
            Number::F32 => (24, -126, 127),
            _ => (53, -1022, 1023),
        };
        FloatFormat {
            digits,
            min_exponent,
            max_exponent,
        }
    }
}

impl Rounding {
    fn read(config: Configuration<'_>) -> Result<Rounding> {
        let words = [
            "nearest-even",
            "nearest-away",
            "towards-zero",
            "towards-positive",
            "towards-negative",
        ];
        Ok(match config.keyword("rounding", &words)? {
            Some("nearest-away") => Rounding::NearestAway,
            Some("towards-zero") => Rounding::TowardsZero,
            Some("towards-positive") => Rounding::TowardsPositive,
            Some("towards-negative") => Rounding::TowardsNegative,
            _ => Rounding::NearestEven,
        })
    }

    /// Rounds a finite float to an integer.
    fn whole(self, number: f64) -> f64 {
        match self {
            Rounding::NearestEven => number.round_ties_even(),
            Rounding::NearestAway => number.round(),
            Rounding::TowardsZero => number.trunc(),
            Rounding::TowardsPositive => number.ceil(),
            Rounding::TowardsNegative => number.floor(),
        }
    }

    /// Rounds a number to a float of type `to`. Returns `None` if the result exceeds the largest finite float of that
    /// type.
    fn float(self, number: Wide, to: Number) -> Option<f64> {
        let (negative, mantissa, exponent) = match number {
            Wide::Signed(number) => (number < 0, number.unsigned_abs(), 0),
            Wide::Unsigned(number) => (false, number, 0),
            Wide::Float(number) if !number.is_finite() => return Some(number),
            Wide::Float(number) => decomposed(number),
        };
        let format = FloatFormat::of(to);
        let length = (u64::BITS - mantissa.leading_zeros()).cast_signed();
        let last = (exponent + length - 1).max(format.min_exponent) - (format.digits - 1);
        let (mantissa, last) = match last - exponent {
            ..=0 => (u128::from(mantissa), exponent),
            dropped => (
                self.drop_bits(negative, u128::from(mantissa), dropped),
                last,
            ),
        };
        let length = (u128::BITS - mantissa.leading_zeros()).cast_signed();
        let fits = mantissa == 0 || last + length - 1 <= format.max_exponent;
        let number = scaled(mantissa as f64, last);
        fits.then_some(if negative { -number } else { number })
    }

    /// Drops the last `dropped` bits of a mantissa and rounds the rest.
    fn drop_bits(self, negative: bool, mantissa: u128, dropped: i32) -> u128 {
        // Dropping more than 127 bits gives the same result as 127, since a mantissa has at most 64.
        let dropped = dropped.min(127);
        let upper = mantissa >> dropped;
        let rest = mantissa - (upper << dropped);
        let half = 1 << (dropped - 1);
        let up = match self {
            Rounding::NearestEven => rest > half || rest == half && upper % 2 == 1,
            Rounding::NearestAway => rest >= half,
            Rounding::TowardsZero => false,
            Rounding::TowardsPositive => rest > 0 && !negative,
            Rounding::TowardsNegative => rest > 0 && negative,
        };
        upper + u128::from(up)
    }
}

/// Decomposes a finite float into its sign (true if negative), mantissa and exponent: |number| = mantissa * 2^exponent.
fn decomposed(number: f64) -> (bool, u64, i32) {
    let bits = number.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52 & 0x7ff) as i32 {
        0 => (number.is_sign_negative(), fraction, -1074),
        exponent => (
            number.is_sign_negative(),
            fraction | 1 << 52,
            exponent - 1075,
        ),
    }
}

/// Returns number * 2^exponent. It multiplies twice, since 2^exponent alone could be out of the range of a float64.
fn scaled(number: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    number * 2.0_f64.powi(half) * 2.0_f64.powi(exponent - half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline};
    use crate::error::Kind;
    use serde_json::json;

    fn astype(data_type: &str, encoded: &str) -> Pipeline {
        let configuration = json!({ "encode_dtype": encoded });
        let astype = json!({ "name": "numcodecs.astype", "configuration": configuration });
        let big = json!({ "name": "bytes", "configuration": { "endian": "big" } });
        pipeline(data_type, &[2], json!([astype, big])).unwrap()
    }

    #[test]
    fn astype_stores_narrower_numbers_and_knows_if_it_is_lossy() {
        let pipeline = astype("int32", "<i2");
        let encoded = pipeline
            .encode(&[1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff])
            .unwrap();
        assert_eq!(encoded, [0, 1, 0xff, 0xfe]);
        assert_eq!(
            pipeline.decode(encoded).unwrap(),
            [1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff]
        );
        assert!(pipeline.is_lossy());
        assert!(!astype("float32", "<f8").is_lossy());
        assert!(astype("int32", "<f4").is_lossy());
    }

    fn cast(data_type: &str, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "cast_value", "configuration": configuration });
        pipeline(data_type, &[1], json!([codec, "bytes"]))
    }

    /// Encodes a float64 with `cast_value` to `uint8`; returns the encoded bytes or the kind of error.
    fn as_uint8(number: f64, configuration: Value) -> std::result::Result<Vec<u8>, Kind> {
        let mut configuration = configuration;
        configuration["data_type"] = json!("uint8");
        // All bytes of the fill value in these tests are 3, which is the float64 1.7e-287.
        configuration["scalar_map"]["encode"] = json!([["0x0303030303030303", 77], ["NaN", 5]]);
        configuration["scalar_map"]["decode"] = json!([[77, "0x0303030303030303"]]);
        let pipeline = cast("float64", configuration).unwrap();
        pipeline
            .encode(&number.to_le_bytes())
            .map_err(|error| error.kind())
    }

    #[test]
    fn numbers_that_fit_are_kept_and_nan_is_mapped() {
        assert_eq!(as_uint8(200.0, json!({})), Ok(vec![200]));
        assert_eq!(as_uint8(f64::NAN, json!({})), Ok(vec![5]));
    }

    #[test]
    fn fractions_are_rounded_by_the_configured_mode() {
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
    fn out_of_range_numbers_are_refused_clamped_or_wrapped() {
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
    fn wrapping_applies_to_decoding_and_must_keep_the_fill_value() {
        let pipeline = cast(
            "int32",
            json!({ "data_type": "int16", "out_of_range": "wrap" }),
        );
        // `cast_value` refuses a fill value that does not fit the encoded type.
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
    fn stored_numbers_outside_the_decoded_type_are_corrupt() {
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

    const ALL: [Rounding; 5] = [
        Rounding::NearestEven,
        Rounding::NearestAway,
        Rounding::TowardsZero,
        Rounding::TowardsPositive,
        Rounding::TowardsNegative,
    ];

    #[test]
    fn nearest_even_rounds_like_a_cast_in_rust() {
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..100_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let number = f64::from_bits(bits);
            let expected = number as f32;
            if number.is_finite() && expected.is_finite() {
                let found = Rounding::NearestEven.float(Wide::Float(number), Number::F32);
                assert_eq!(found, Some(f64::from(expected)), "{number}");
            }
            let found = Rounding::NearestEven.float(Wide::Signed(bits as i64), Number::F32);
            assert_eq!(found, Some(f64::from(bits as i64 as f32)));
            let found = Rounding::NearestEven.float(Wide::Unsigned(bits), Number::F64);
            assert_eq!(found, Some(bits as f64));
        }
    }

    #[test]
    fn each_rounding_mode_gives_the_right_neighbour() {
        // 2049 is halfway between 2048 and the next float16, 2050.
        let expected = [
            [2048.0, 2050.0, 2048.0, 2050.0, 2048.0],
            [-2048.0, -2050.0, -2048.0, -2048.0, -2050.0],
        ];
        for (number, expected) in [2049, -2049].into_iter().zip(expected) {
            let found = ALL.map(|way| way.float(Wide::Signed(number), Number::F16));
            assert_eq!(found, expected.map(Some), "{number}");
        }
        assert_eq!(
            ALL.map(|way| way.whole(-2.5)),
            [-2.0, -3.0, -2.0, -2.0, -3.0]
        );
    }

    #[test]
    fn rounding_is_right_at_the_ends_of_the_range() {
        let float16 = |number: f64| ALL.map(|way| way.float(Wide::Float(number), Number::F16));
        assert_eq!(float16(65504.0), [Some(65504.0); 5]);
        assert_eq!(float16(65519.0)[0], Some(65504.0));
        assert_eq!(float16(65520.0)[..3], [None, None, Some(65504.0)]);
        assert_eq!(float16(65536.0), [None; 5]);
        let least = 2.0_f64.powi(-24);
        assert_eq!(
            float16(least / 2.0),
            [0.0, least, 0.0, least, 0.0].map(Some)
        );
        assert_eq!(float16(1e-300), [0.0, 0.0, 0.0, least, 0.0].map(Some));
        assert!(float16(-1e-300)[0].unwrap().is_sign_negative());
        let tiny = f64::from_bits(1);
        assert_eq!(
            Rounding::NearestEven.float(Wide::Float(tiny), Number::F64),
            Some(tiny)
        );
    }
}
