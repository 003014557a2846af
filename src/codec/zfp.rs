//! Codecs `zfp` and `zfpy` (feature `zfp`): numbers by the zfp library, exactly or nearly.
//!
//! A stream gives exactly the chunk's numbers, or is `Corrupt`. `zfp` has its mode in the configuration;
//! streams of `zfpy` have a header, which must be that of the chunk. The library is called in `zfp_stream.rs`.

use std::borrow::Cow;

use half::f16;

use crate::error::Error;
use crate::error::Result;
use crate::model::DataType;

use super::config::Members;
use super::kind::ArrayToBytes;
use super::kind::Codec;
use super::kind::Data;
use super::kind::Form;
use super::kind::Length;
use super::kind::Place;
use super::zfp_stream::Field;
use super::zfp_stream::MAX_BITS;
use super::zfp_stream::Mode;
use super::zfp_stream::NAME;
use super::zfp_stream::Scalar;
use super::zfp_stream::decode;
use super::zfp_stream::encode;
use super::zfp_stream::rate_bits;

/// Numbers in little-endian bytes cast to another type.
type Cast = fn(&[u8]) -> Vec<u8>;

/// How numbers become those that zfp knows.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    scalar: Scalar,
    /// To zfp's type and back, if they differ.
    cast: Option<(Cast, Cast)>,
    /// Whether some numbers do not come back.
    clamps: bool,
}

/// A stream of numbers.
#[derive(Debug)]
struct Zfp {
    numbers: Numbers,
    field: Field,
    /// How to encode; of a stream without a header also how to decode.
    mode: Mode,
    has_header: bool,
    /// The most bytes of a stream that is made.
    most: usize,
}

/// Reads the configuration (codec `zfp`, "Configuration parameters").
pub(super) fn build(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    let modes = [
        "reversible",
        "expert",
        "fixed_accuracy",
        "fixed_rate",
        "fixed_precision",
    ];
    let word = members.word("mode", &modes)?;
    let mode = match word.ok_or_else(|| members.wrong("mode", "a mode"))? {
        "expert" => expert(members)?,
        "fixed_accuracy" => accuracy(members)?,
        "fixed_rate" => rate(members, place.form)?,
        "fixed_precision" => Mode::Precision(natural(members, "precision")?),
        _ => Mode::Reversible,
    };
    codec(place, mode, false)
}

/// Reads the configuration (numcodecs, `ZFPY`): modes by number, and a negative parameter for "reversible".
pub(super) fn zfpy(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    let set = |name| {
        let number = members.get(name).map(|_| float(members, name));
        number.transpose().map(|n| n.is_some_and(|n| n >= 0.0))
    };
    let mode = match members.integer("mode", 2..=5)?.unwrap_or(4) {
        2 if set("rate")? => rate(members, place.form)?,
        3 if set("precision")? => Mode::Precision(natural(members, "precision")?),
        4 if set("tolerance")? => accuracy(members)?,
        _ => Mode::Reversible,
    };
    codec(place, mode, true)
}

fn codec(place: &Place<'_>, mode: Mode, has_header: bool) -> Result<Codec> {
    let form = place.form;
    let count = form.bytes(place.max_chunk)? / form.element()?.max(1);
    let numbers = numbers(&form.data_type)
        .filter(|numbers| !has_header || numbers.cast.is_none())
        .ok_or_else(|| {
            let other = &form.data_type;
            let known = match has_header {
                true => "numbers of 32 and 64 bits, no unsigned ones",
                false => "integers and floats",
            };
            Error::unsupported("codecs", format!("{NAME} codes {known}, not {other}"))
        })?;
    let bytes = count.checked_mul(numbers.scalar.width());
    let field = Field {
        scalar: numbers.scalar,
        shape: dimensions(&form.shape)?,
        bytes: bytes.ok_or_else(|| Error::too_large("chunk_shape", "too many numbers"))?,
    };
    let most = usize::try_from(place.max_chunk.saturating_mul(2)).unwrap_or(usize::MAX);
    Ok(Codec::ArrayToBytes(Box::new(Zfp {
        numbers,
        field,
        mode,
        has_header,
        most,
    })))
}

/// Returns the lengths that zfp sees (codec `zfp`, "Supported Chunk Shapes").
fn dimensions(shape: &[u64]) -> Result<Vec<usize>> {
    if shape.len() > 4 {
        let why = format!("{NAME} codes at most 4 dimensions, not {}", shape.len());
        return Err(Error::unsupported("codecs", why));
    }
    if shape.is_empty() {
        return Ok(vec![1]);
    }
    let lengths: std::result::Result<_, _> = shape.iter().map(|&n| usize::try_from(n)).collect();
    lengths.map_err(|error| Error::too_large("chunk_shape", error))
}

fn float(members: Members<'_>, name: &str) -> Result<f64> {
    let number = members.get(name).and_then(serde_json::Value::as_f64);
    number.ok_or_else(|| members.wrong(name, "a number"))
}

fn natural(members: Members<'_>, name: &str) -> Result<u32> {
    let number = members.integer(name, 0..=i64::from(u32::MAX))?;
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| members.wrong(name, "an integer"))
}

fn accuracy(members: Members<'_>) -> Result<Mode> {
    let tolerance = float(members, "tolerance")?;
    match tolerance.is_finite() && tolerance >= 0.0 {
        true => Ok(Mode::Accuracy(tolerance)),
        false => Err(members.wrong("tolerance", "a number not below 0")),
    }
}

fn rate(members: Members<'_>, form: &Form) -> Result<Mode> {
    let rate = float(members, "rate")?;
    let expected = || format!("a rate of 1 to {MAX_BITS} bits a block");
    let dimensions = form.shape.len().max(1);
    let bits = rate_bits(rate, dimensions);
    bits.ok_or_else(|| members.wrong("rate", expected()))?;
    Ok(Mode::Rate { rate, dimensions })
}

fn expert(members: Members<'_>) -> Result<Mode> {
    let (minbits, maxbits) = (natural(members, "minbits")?, natural(members, "maxbits")?);
    if maxbits == 0 || minbits > maxbits.min(MAX_BITS) {
        let expected = format!("at most maxbits ({maxbits}, not 0) and {MAX_BITS}");
        return Err(members.wrong("minbits", expected));
    }
    let maxprec = members.integer("maxprec", 1..=64)?;
    let minexp = members.integer("minexp", -16495..=16495)?;
    Ok(Mode::Expert {
        minbits,
        maxbits,
        maxprec: maxprec.ok_or_else(|| members.wrong("maxprec", "an integer"))? as u32,
        minexp: minexp.ok_or_else(|| members.wrong("minexp", "an integer"))? as i32,
    })
}

/// Returns how a type is coded (codec `zfp`, "Compression", step 1). Unsigned numbers of 32 and 64 bits are cut
/// at the largest signed one, as the zarrs crate has it, since the text says nothing of them.
fn numbers(data_type: &DataType) -> Option<Numbers> {
    macro_rules! cast {
        ($scalar:ident, $narrow:ty, $wide:ty, $up:expr, $down:expr) => {
            Numbers {
                scalar: Scalar::$scalar,
                cast: Some((
                    |decoded| {
                        let (words, _) = decoded.as_chunks();
                        let up: fn($narrow) -> $wide = $up;
                        let wide = words.iter().map(|word| up(<$narrow>::from_le_bytes(*word)));
                        wide.flat_map(<$wide>::to_le_bytes).collect()
                    },
                    |encoded| {
                        let (words, _) = encoded.as_chunks();
                        let down: fn($wide) -> $narrow = $down;
                        let narrow = words.iter().map(|word| down(<$wide>::from_le_bytes(*word)));
                        narrow.flat_map(<$narrow>::to_le_bytes).collect()
                    },
                )),
                clamps: false,
            }
        };
    }
    let plain = |scalar| Numbers {
        scalar,
        cast: None,
        clamps: false,
    };
    let cut = |numbers| Numbers {
        clamps: true,
        ..numbers
    };
    Some(match data_type {
        DataType::Int(4) => plain(Scalar::Int32),
        DataType::Int(8) => plain(Scalar::Int64),
        DataType::Float(4) => plain(Scalar::Float),
        DataType::Float(8) => plain(Scalar::Double),
        DataType::Int(1) => cast!(Int32, i8, i32, |n| i32::from(n) << 23, |n| {
            (n >> 23).clamp(-0x80, 0x7f) as i8
        }),
        DataType::Int(2) => cast!(Int32, i16, i32, |n| i32::from(n) << 15, |n| {
            (n >> 15).clamp(-0x8000, 0x7fff) as i16
        }),
        DataType::UInt(1) => cast!(Int32, u8, i32, |n| (i32::from(n) - 0x80) << 23, |n| {
            ((n >> 23) + 0x80).clamp(0, 0xff) as u8
        }),
        DataType::UInt(2) => cast!(Int32, u16, i32, |n| (i32::from(n) - 0x8000) << 15, |n| {
            ((n >> 15) + 0x8000).clamp(0, 0xffff) as u16
        }),
        DataType::UInt(4) => cut(cast!(
            Int32,
            u32,
            i32,
            |n| i32::try_from(n).unwrap_or(i32::MAX),
            |n| u32::try_from(n).unwrap_or(0)
        )),
        DataType::UInt(8) => cut(cast!(
            Int64,
            u64,
            i64,
            |n| i64::try_from(n).unwrap_or(i64::MAX),
            |n| u64::try_from(n).unwrap_or(0)
        )),
        DataType::Float(2) => cast!(Float, f16, f32, f16::to_f32, f16::from_f32),
        _ => return None,
    })
}

impl ArrayToBytes for Zfp {
    fn encoded_length(&self) -> Length {
        // Other writers' headers may say another mode.
        Length::Exact(self.field.most(self.mode)).compressed()
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
        let room = self.field.most(self.mode);
        if room > self.most.max(1 << 16) {
            let found = format!("a stream of up to {room} bytes exceeds {}", self.most);
            return Err(Error::too_large(NAME, found));
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
    use serde_json::Value;
    use serde_json::json;

    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::codec::tests::sample;
    use crate::error::Kind;

    /// What zfpy 1.0.1 makes of n/7 for n below 15, in 3 rows, and what it reads of that again.
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
    fn streams_are_those_of_zfpy() {
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
    fn streams_without_a_header_are_those_of_the_library() {
        let codec = zfp("int32", &[10], json!({ "mode": "reversible" })).unwrap();
        let stream = bytes("1f00000016f701000000ef03000080a90300000000000000");
        let numbers = Vec::from_iter((-3..7_i32).flat_map(i32::to_le_bytes));
        assert_eq!(codec.encode(&numbers).unwrap(), stream);
        assert_eq!(codec.decode(stream).unwrap(), numbers);
    }

    #[test]
    fn reversible_numbers_of_every_type_and_rank_come_back() {
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
    fn streams_of_other_chunks_are_corrupt() {
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
                // The last word is partly padding.
                let short = codec.decode(encoded[..place].to_vec());
                assert!(short.is_err() || place + 8 > encoded.len(), "{place}");
            }
        }
    }

    #[test]
    fn what_zfp_cannot_do_is_refused() {
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
