//! Codec `conditional`: `bytes -> bytes` codecs, each of which a chunk may omit.
//!
//! A chunk begins with a header of one bit for each codec, which is set if the codec was applied. The first codec has
//! the lowest bit of the first byte. Encoding omits compressors that do not shorten the chunk and applies all other
//! codecs.

use std::borrow::Cow;

use crate::error::{Error, Result};

use super::chain::check_limits;
use super::config::Configuration;
use super::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};

/// Codec `conditional`: the codecs that a chunk may omit, and the length of its header in bytes.
#[derive(Debug)]
struct Conditional {
    codecs: Vec<Box<dyn BytesToBytes>>,
    header_bytes: usize,
}

/// Builds codec `conditional` (specification, "Codec Configuration").
pub(super) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let specs = config.codecs("codecs")?;
    let context = position.context.nested();
    check_limits(specs.len(), context)?;
    let inner = ChainPosition {
        context,
        after_bytes: true,
        ..*position
    };
    let mut codecs = Vec::with_capacity(specs.len());
    for spec in &specs {
        match inner.build(spec)? {
            Codec::BytesToBytes(codec) => codecs.push(codec),
            _ => return Err(config.unexpected("codecs", "bytes -> bytes codecs")),
        }
    }
    Ok(Codec::BytesToBytes(Box::new(Conditional {
        header_bytes: header_bytes(config, codecs.len())?,
        codecs,
    })))
}

/// Returns the length of the header in bytes, from `header_bits`, a multiple of 8. By default it has a bit for each of
/// the `codecs`.
fn header_bytes(config: Configuration<'_>, codecs: usize) -> Result<usize> {
    let least = u32::try_from(codecs.next_multiple_of(8)).unwrap_or(u32::MAX);
    let bits = config.unsigned("header_bits", least..=1 << 20)?;
    let bits = bits.unwrap_or(least);
    if bits % 8 != 0 {
        return Err(config.unexpected("header_bits", "a multiple of 8"));
    }
    Ok(bits as usize / 8)
}

impl Conditional {
    /// Returns the codecs whose bits are set in the header of a chunk, in the order of encoding.
    fn applied(&self, header: &[u8]) -> Result<Vec<&dyn BytesToBytes>> {
        let mut applied = Vec::new();
        for (n, byte) in header.iter().enumerate() {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                let codec = self.codecs.get(8 * n + bit);
                let unknown = || {
                    Error::corrupt(
                        "conditional",
                        format!(
                            "the header names codec {}, which does not exist",
                            8 * n + bit
                        ),
                    )
                };
                applied.push(codec.ok_or_else(unknown)?.as_ref());
            }
        }
        Ok(applied)
    }
}

impl BytesToBytes for Conditional {
    fn encoded_length(&self, decoded: Length) -> Length {
        // The upper bound is reached if exactly the codecs that can lengthen the data are applied.
        let most = self
            .codecs
            .iter()
            .fold(decoded.upper_bound(), |most, codec| {
                codec
                    .encoded_length(Length::AtMost(most))
                    .upper_bound()
                    .max(most)
            });
        decoded.bounding(most.saturating_add(self.header_bytes))
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let short = || {
            Error::corrupt(
                "conditional",
                format!("{} bytes are too short for the header", encoded.len()),
            )
        };
        let (header, rest) = encoded
            .split_at_checked(self.header_bytes)
            .ok_or_else(short)?;
        let applied = self.applied(header)?;
        let cap = want.upper_bound().saturating_mul(2).saturating_add(1 << 20);
        let mut lengths = vec![want];
        for codec in &applied {
            let last = lengths.last().copied().unwrap_or(want);
            lengths.push(codec.encoded_length(last).within(cap));
        }
        let mut data = Cow::Borrowed(rest);
        for (codec, want) in applied.iter().zip(&lengths).rev() {
            data = codec.decode(data, *want)?;
            want.check("conditional", data.len())?;
        }
        want.check("conditional", data.len())?;
        Ok(Cow::Owned(data.into_owned()))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut header = vec![0; self.header_bytes];
        let mut data = decoded;
        for (n, codec) in self.codecs.iter().enumerate() {
            let length = Length::Exact(data.len());
            let compresses = matches!(codec.encoded_length(length), Length::AtMost(_));
            let encoded = codec.encode(Cow::Borrowed(&data))?;
            if !compresses || encoded.len() < data.len() {
                header[n / 8] |= 1 << (n % 8);
                data = Cow::Owned(encoded.into_owned());
            }
        }
        header.extend_from_slice(&data);
        Ok(Cow::Owned(header))
    }

    fn is_lossy(&self) -> bool {
        self.codecs.iter().any(|codec| codec.is_lossy())
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline, sample};
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn conditional(configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "conditional", "configuration": configuration });
        pipeline("uint8", &[1000], json!(["bytes", codec]))
    }

    #[test]
    fn compressors_that_do_not_help_are_skipped() {
        let pipeline = conditional(json!({ "codecs": ["zstd", "gzip", "crc32c"] })).unwrap();
        let smooth = vec![7; 1000];
        let encoded = pipeline.encode(&smooth).unwrap();
        assert_eq!(encoded[0], 0b101);
        assert_eq!(pipeline.decode(encoded).unwrap(), smooth);
        let rough: Vec<u8> = sample(4000).into_iter().step_by(4).collect();
        let encoded = pipeline.encode(&rough).unwrap();
        assert_eq!((encoded[0], encoded.len()), (0b100, 1 + 1000 + 4));
        assert_eq!(pipeline.decode(encoded).unwrap(), rough);
    }

    #[test]
    fn every_mask_of_applied_codecs_is_decoded() {
        let names = ["gzip", "zstd", "numcodecs.crc32"];
        let all = conditional(json!({ "codecs": names, "header_bits": 16 })).unwrap();
        let data = sample(1000);
        for mask in 0..8_u8 {
            let applied = (0..3).filter(|n| mask >> n & 1 == 1).map(|n| names[n]);
            let codecs: Vec<&str> = ["bytes"].into_iter().chain(applied).collect();
            let plain = pipeline("uint8", &[1000], json!(codecs)).unwrap();
            let mut encoded = vec![mask, 0];
            encoded.extend(plain.encode(&data).unwrap());
            assert_eq!(all.decode(encoded).unwrap(), data, "{mask}");
        }
    }

    #[test]
    fn invalid_data_and_configurations_are_refused() {
        let pipeline = conditional(json!({ "codecs": ["gzip"] })).unwrap();
        for encoded in [
            vec![],
            vec![0; 1000],
            vec![0; 1002],
            vec![2; 1001],
            vec![1; 1001],
        ] {
            assert_corrupt(&pipeline, encoded);
        }
        for configuration in [
            json!({}),
            json!({ "codecs": ["bytes"] }),
            json!({ "codecs": ["gzip"], "header_bits": 12 }),
            json!({ "codecs": ["gzip"], "header_bits": 0 }),
        ] {
            let error = conditional(configuration.clone()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{configuration}");
        }
        let mut codecs = json!(["gzip"]);
        for _ in 0..10 {
            codecs = json!([{ "name": "conditional", "configuration": { "codecs": codecs } }]);
        }
        let error = conditional(json!({ "codecs": codecs })).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge);
    }
}
