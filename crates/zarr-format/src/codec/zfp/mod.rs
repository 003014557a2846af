//! Codecs `zfp` and `zfpy` (feature `zfp`): compress numbers with zfp, lossless or lossy.
//!
//! A stream decodes to exactly the chunk's numbers, or is `Corrupt`. `zfp` has its mode in the configuration; streams
//! of `zfpy` have a header, which must match the chunk. Modes whose blocks would exceed `MAX_BITS` bits are refused.
//! `field.rs` converts numbers to the types of zfp, `stream.rs` calls the library.

use std::borrow::Cow;

use crate::error::{Error, Result};

use super::config::Configuration;
use super::traits::{ArrayToBytes, ChainPosition, Codec, Data, Length};
use field::{NumberConversion, ZfpField};
use stream::{decode, encode};

mod field;
mod stream;

/// Maximum number of bits in a zfp block that a mode may request: the maximum that the header of a stream can store.
const MAX_BITS: u32 = 1 << 15;

/// zfp's mode, which sets the precision of encoded numbers (zfp, "Compression Modes").
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Reversible,
    /// Fixed number of bits per number; a block of `dimensions` dimensions has from 1 to `MAX_BITS` bits.
    Rate {
        rate: f64,
        dimensions: usize,
    },
    Precision(u32),
    /// Maximum absolute error, which is finite and not negative.
    Accuracy(f64),
    /// zfp's four parameters: `minbits` is at most `MAX_BITS` and at most `maxbits`, which is not 0; `maxprec` is from
    /// 1 to 64.
    Expert {
        minbits: u32,
        maxbits: u32,
        maxprec: u32,
        minexp: i32,
    },
}

#[derive(Debug)]
struct Zfp {
    numbers: NumberConversion,
    field: ZfpField,
    /// zfp mode for encoding, and for decoding streams without a header.
    mode: Mode,
    has_header: bool,
    /// Maximum length of an encoded stream in bytes.
    max_bytes: usize,
}

pub(super) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    codec(position, zfp_mode(config, rank(position))?, false)
}

pub(super) fn zfpy(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    codec(position, zfpy_mode(config, rank(position))?, true)
}

/// Returns the number of dimensions for zfp, at least 1: an array without dimensions has one number.
fn rank(position: &ChainPosition<'_>) -> usize {
    position.repr.shape.len().max(1)
}

fn codec(position: &ChainPosition<'_>, mode: Mode, has_header: bool) -> Result<Codec> {
    let repr = position.repr;
    let count = position.bytes()? / repr.element_size()?.max(1);
    let numbers = NumberConversion::of(&repr.data_type)
        .filter(|numbers| !has_header || numbers.cast.is_none())
        .ok_or_else(|| {
            let other = &repr.data_type;
            let known = if has_header {
                "signed integers and floats of 32 and 64 bits"
            } else {
                "integers and floats"
            };
            Error::unsupported("codecs", format!("zfp supports {known}, not {other}"))
        })?;
    let bytes = count.checked_mul(numbers.scalar.width());
    let field = ZfpField {
        scalar: numbers.scalar,
        shape: dimensions(&repr.shape)?,
        bytes: bytes
            .ok_or_else(|| Error::too_large("chunk_shape", "too many elements in a chunk"))?,
    };
    let max_bytes = position.context.max_chunk.saturating_mul(2);
    Ok(Codec::ArrayToBytes(Box::new(Zfp {
        numbers,
        field,
        mode,
        has_header,
        max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
    })))
}

/// Returns the shape that zfp gets; fails for more than four dimensions (codec `zfp`, "Supported Chunk Shapes").
fn dimensions(shape: &[u64]) -> Result<Vec<usize>> {
    if shape.len() > 4 {
        let why = format!("zfp supports at most 4 dimensions, not {}", shape.len());
        return Err(Error::unsupported("codecs", why));
    }
    if shape.is_empty() {
        return Ok(vec![1]);
    }
    let lengths: std::result::Result<_, _> = shape.iter().map(|&n| usize::try_from(n)).collect();
    lengths.map_err(|error| Error::too_large("chunk_shape", error))
}

/// Reads the mode of codec `zfp` (codec `zfp`, "Configuration parameters").
fn zfp_mode(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let modes = [
        "reversible",
        "expert",
        "fixed_accuracy",
        "fixed_rate",
        "fixed_precision",
    ];
    let word = config.keyword("mode", &modes)?;
    Ok(
        match word.ok_or_else(|| config.unexpected("mode", "a mode"))? {
            "expert" => expert(config)?,
            "fixed_accuracy" => accuracy(config)?,
            "fixed_rate" => rate(config, dimensions)?,
            "fixed_precision" => Mode::Precision(unsigned(config, "precision")?),
            _ => Mode::Reversible,
        },
    )
}

/// Reads the mode of numcodecs' `ZFPY`, a number. A negative parameter means "reversible".
fn zfpy_mode(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let set = |name| {
        let number = config.get(name).map(|_| float(config, name));
        number.transpose().map(|n| n.is_some_and(|n| n >= 0.0))
    };
    Ok(match config.integer("mode", 2..=5)?.unwrap_or(4) {
        2 if set("rate")? => rate(config, dimensions)?,
        3 if set("precision")? => Mode::Precision(unsigned(config, "precision")?),
        4 if set("tolerance")? => accuracy(config)?,
        _ => Mode::Reversible,
    })
}

fn float(config: Configuration<'_>, name: &str) -> Result<f64> {
    let number = config.get(name).and_then(serde_json::Value::as_f64);
    number.ok_or_else(|| config.unexpected(name, "a number"))
}

fn unsigned(config: Configuration<'_>, name: &str) -> Result<u32> {
    let number = config.unsigned(name, 0..=u32::MAX)?;
    number.ok_or_else(|| config.unexpected(name, "an integer"))
}

fn accuracy(config: Configuration<'_>) -> Result<Mode> {
    let tolerance = float(config, "tolerance")?;
    if tolerance.is_finite() && tolerance >= 0.0 {
        Ok(Mode::Accuracy(tolerance))
    } else {
        Err(config.unexpected("tolerance", "a number of at least 0"))
    }
}

fn rate(config: Configuration<'_>, dimensions: usize) -> Result<Mode> {
    let rate = float(config, "rate")?;
    let expected = || format!("a rate of 1 to {MAX_BITS} bits a block");
    let bits = rate_bits(rate, dimensions);
    bits.ok_or_else(|| config.unexpected("rate", expected()))?;
    Ok(Mode::Rate { rate, dimensions })
}

fn expert(config: Configuration<'_>) -> Result<Mode> {
    let (minbits, maxbits) = (unsigned(config, "minbits")?, unsigned(config, "maxbits")?);
    if maxbits == 0 || minbits > maxbits.min(MAX_BITS) {
        let expected = format!("at most maxbits ({maxbits}, not 0) and {MAX_BITS}");
        return Err(config.unexpected("minbits", expected));
    }
    let maxprec = config.unsigned("maxprec", 1..=64)?;
    let minexp = config.integer("minexp", -16495..=16495)?;
    let minexp = minexp.and_then(|minexp| i32::try_from(minexp).ok());
    Ok(Mode::Expert {
        minbits,
        maxbits,
        maxprec: maxprec.ok_or_else(|| config.unexpected("maxprec", "an integer"))?,
        minexp: minexp.ok_or_else(|| config.unexpected("minexp", "an integer"))?,
    })
}

/// Returns the number of bits of a zfp block at `rate` bits per number, or `None` unless it is from 1 to `MAX_BITS`.
fn rate_bits(rate: f64, dimensions: usize) -> Option<u32> {
    let values = f64::from(1_u32 << (2 * dimensions.min(4)));
    let bits = (values * rate + 0.5).floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 1 to MAX_BITS"
    )]
    (1.0..=f64::from(MAX_BITS))
        .contains(&bits)
        .then_some(bits as u32)
}

impl ArrayToBytes for Zfp {
    fn encoded_length(&self) -> Length {
        // The length is only an upper bound, since a stream with a header may have another mode than the configuration.
        Length::Exact(self.field.max_stream_bytes(self.mode)).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn is_lossy(&self) -> bool {
        self.mode != Mode::Reversible || self.numbers.clamps
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let mode = match self.mode {
            Mode::Rate { rate, .. } => Mode::Rate {
                rate,
                dimensions: self.field.dimensions_at(rate, encoded.len()),
            },
            other => other,
        };
        let mode = (!self.has_header).then_some(mode);
        let wide = decode(&self.field, mode, &encoded)?;
        Ok(Cow::Owned(match self.numbers.cast {
            Some((_, narrow)) => narrow(&wide),
            None => wide,
        }))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let room = self.field.max_stream_bytes(self.mode);
        if room > self.max_bytes.max(1 << 16) {
            let found = format!(
                "a stream of up to {room} bytes exceeds the limit of {}",
                self.max_bytes
            );
            return Err(Error::too_large("zfp", found));
        }
        let wide = match self.numbers.cast {
            Some((widen, _)) => Cow::Owned(widen(&decoded)),
            None => decoded,
        };
        encode(&self.field, self.mode, self.has_header, &wide).map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::tests::{pipeline, sample};
    use crate::error::Kind;

    /// Streams of zfpy 1.0.1 for the numbers n/7 with n below 15, in 3 rows, and what zfpy decodes from them.
    const OF_ZFPY: [(&str, i64, f64, &str, &str); 3] = [
        (
            "tolerance",
            4,
            0.01,
            "7a667005460000200000c0ca012da1211200014860201088c8400020c1401c02a300158004212a100048502010840800",
            "0000403a00c0123e0060923e0060db3e0028123f0010373f00905b3f0008803f0048923f007ca43f00d8b63f0018c93f0058db3f0098ed3f00020040",
        ),
        (
            "rate",
            2,
            8.0,
            "7a667005460000200000f007012da1211200014860201088c84000200371088c0254001284a840002041814000000000",
            "0000a03a0040133e00a0923e00a0db3e0020123f00f0363f00705b3f00f07f3f0038923f00b0a43f00c8b63f0008c93f0048db3f0088ed3f00080040",
        ),
        (
            "precision",
            3,
            12.0,
            "7a667005460000200000b080012da1211200014860201088c8400371088c0254001284a840002001",
            "0000003a0080123e0040923e0040db3e0080133f00e0363f00605b3f00e07f3f0030923f0040a53f00d0b63f0010c93f0050db3f0090ed3f00c0ff3f",
        ),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn zfpy(data_type: &str, shape: &[u64], configuration: Value) -> Pipeline {
        let codec = json!({ "name": "numcodecs.zfpy", "configuration": configuration });
        pipeline(data_type, shape, json!([codec])).unwrap()
    }

    fn zfp(data_type: &str, shape: &[u64], configuration: Value) -> crate::error::Result<Pipeline> {
        let codec = json!({ "name": "zfp", "configuration": configuration });
        pipeline(data_type, shape, json!([codec]))
    }

    #[test]
    fn streams_equal_those_of_zfpy() {
        let numbers = Vec::from_iter((0..15_u8).flat_map(|n| (f32::from(n) / 7.0).to_le_bytes()));
        for (member, mode, value, stream, decoded) in OF_ZFPY {
            let value = if mode == 3 {
                json!(value as i64)
            } else {
                json!(value)
            };
            let codec = zfpy("float32", &[3, 5], json!({ "mode": mode, member: value }));
            assert_eq!(
                codec.decode(bytes(stream)).unwrap(),
                bytes(decoded),
                "{member}"
            );
            assert!(codec.is_lossy());
            assert_eq!(codec.encode(&numbers).unwrap(), bytes(stream), "{member}");
        }
    }

    #[test]
    fn streams_without_a_header_equal_those_of_the_zfp_library() {
        let codec = zfp("int32", &[10], json!({ "mode": "reversible" })).unwrap();
        let stream = bytes("1f00000016f701000000ef03000080a90300000000000000");
        let numbers = Vec::from_iter((-3..7_i32).flat_map(i32::to_le_bytes));
        assert_eq!(codec.encode(&numbers).unwrap(), stream);
        assert_eq!(codec.decode(stream).unwrap(), numbers);
    }

    #[test]
    fn reversible_mode_round_trips_every_type_and_rank() {
        for (data_type, width) in [
            ("int8", 1),
            ("uint8", 1),
            ("int16", 2),
            ("uint16", 2),
            ("int32", 4),
            ("int64", 8),
            ("float32", 4),
            ("float64", 8),
        ] {
            for shape in [
                &[][..],
                &[1],
                &[301],
                &[5, 9],
                &[3, 4, 6],
                &[2, 5, 3, 9],
                &[9, 1, 1, 1],
            ] {
                let count: u64 = shape.iter().product();
                let decoded = sample(count as usize * width);
                let codec = zfp(data_type, shape, json!({ "mode": "reversible" })).unwrap();
                assert!(!codec.is_lossy());
                let encoded = codec.encode(&decoded).unwrap();
                assert!(
                    codec.decode(encoded).unwrap() == decoded,
                    "{data_type} {shape:?}"
                );
            }
        }
    }

    #[test]
    fn lossy_modes_stay_within_their_tolerance() {
        let numbers = Vec::from_iter((0..1000).map(|n| f64::from(n * n % 911) / 7.0));
        let decoded = Vec::from_iter(numbers.iter().flat_map(|n| n.to_le_bytes()));
        for configuration in [
            json!({ "mode": "fixed_accuracy", "tolerance": 0.25 }),
            json!({ "mode": "fixed_rate", "rate": 40 }),
            json!({ "mode": "fixed_precision", "precision": 40 }),
            json!({ "mode": "expert", "minbits": 70, "maxbits": 16658, "maxprec": 64, "minexp": -4 }),
        ] {
            let codec = zfp("float64", &[10, 4, 25], configuration.clone()).unwrap();
            let encoded = codec.encode(&decoded).unwrap();
            let again = codec.decode(encoded).unwrap();
            let (words, _) = again.as_chunks();
            for (word, number) in words.iter().zip(&numbers) {
                let difference = (f64::from_le_bytes(*word) - number).abs();
                assert!(difference <= 0.25, "{configuration} {difference}");
            }
        }
    }

    #[test]
    fn streams_of_another_shape_or_type_are_corrupt() {
        let stream = bytes(OF_ZFPY[0].3);
        for (data_type, shape) in [
            ("float32", &[5, 3][..]),
            ("float32", &[15]),
            ("float32", &[3, 5, 1]),
            ("int32", &[3, 5]),
            ("float64", &[3, 5]),
        ] {
            let error = zfpy(data_type, shape, json!({}))
                .decode(stream.clone())
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{data_type} {shape:?}");
        }
    }

    #[test]
    fn damaged_streams_are_decoded_or_refused() {
        let decoded = sample(4 * 7 * 9 * 8);
        let with_header = zfpy("float64", &[4, 7, 9], json!({ "mode": 5 }));
        let without = zfp("float64", &[4, 7, 9], json!({ "mode": "reversible" })).unwrap();
        for codec in [with_header, without] {
            let encoded = codec.encode(&decoded).unwrap();
            for place in 0..encoded.len() {
                for change in [0xff, 0x80, 1] {
                    let mut damaged = encoded.clone();
                    damaged[place] ^= change;
                    match codec.decode(damaged) {
                        Ok(again) => assert_eq!(again.len(), decoded.len()),
                        Err(error) => assert_eq!(error.kind(), Kind::Corrupt),
                    }
                }
                // The last word of the stream is partly padding, so a truncated last word may still decode.
                let short = codec.decode(encoded[..place].to_vec());
                assert!(short.is_err() || place + 8 > encoded.len(), "{place}");
            }
        }
    }

    #[test]
    fn invalid_zfp_configurations_and_types_are_refused() {
        for (configuration, kind) in [
            (json!({}), Kind::Corrupt),
            (json!({ "mode": "fixed_rate" }), Kind::Corrupt),
            (json!({ "mode": "fixed_rate", "rate": 1e9 }), Kind::Corrupt),
            (json!({ "mode": "fixed_rate", "rate": 0 }), Kind::Corrupt),
            (
                json!({ "mode": "fixed_accuracy", "tolerance": -1 }),
                Kind::Corrupt,
            ),
            (
                json!({ "mode": "expert", "minbits": 40000, "maxbits": 50000, "maxprec": 64, "minexp": 0 }),
                Kind::Corrupt,
            ),
        ] {
            let error = zfp("float32", &[4], configuration.clone()).unwrap_err();
            assert_eq!(error.kind(), kind, "{configuration}");
        }
        let reversible = json!({ "mode": "reversible" });
        for (data_type, shape) in [("complex64", &[4][..]), ("float32", &[1, 1, 1, 1, 1])] {
            let error = zfp(data_type, shape, reversible.clone()).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
        }
    }
}
