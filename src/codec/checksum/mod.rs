//! Codecs that add a checksum: `crc32c`, `crc32`, `adler32`, `fletcher32`, `jenkins_lookup3`.
//!
//! Four bytes, little-endian, behind the data or in front of it (`location`). Checked on every decode, then
//! cut off without a copy. The sums that no library has are in `lookup3.rs` and `fletcher.rs`.

use std::borrow::Cow;
use std::fmt::Debug;

use serde_json::Value;

use crate::error::{Error, Result};

use super::config::Members;
use super::kind::{BytesToBytes, ChainPosition, Codec, Data, Length};
use fletcher::fletcher32;
use lookup3::lookup3;

mod fletcher;
mod lookup3;

const WIDTH: usize = 4;

/// How a sum is taken.
#[derive(Debug)]
enum Sum {
    Plain(fn(&[u8]) -> u32),
    /// Bob Jenkins' hash of a prefix and the data, from a first value.
    Lookup3 {
        prefix: Vec<u8>,
        first: u32,
    },
}

/// A checksum, and where it stands.
#[derive(Debug)]
struct Checksum {
    name: &'static str,
    sum: Sum,
    at_start: bool,
}

/// Reads the configuration (codec `crc32c`: "Configuration parameters: None"; numcodecs has `location`).
pub(super) fn crc32c(members: Members<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build("crc32c", Sum::Plain(crc32c::crc32c), start(members, false)?)
}

/// Reads the configuration of `numcodecs.crc32`; its sum stands in front if nothing is said.
pub(super) fn crc32(members: Members<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(
        "crc32",
        Sum::Plain(libdeflater::crc32),
        start(members, true)?,
    )
}

/// Reads the configuration of `numcodecs.adler32`; its sum stands in front if nothing is said.
pub(super) fn adler32(members: Members<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(
        "adler32",
        Sum::Plain(libdeflater::adler32),
        start(members, true)?,
    )
}

/// Builds `numcodecs.fletcher32`, HDF5's, which has nothing to configure.
pub(super) fn fletcher(_: Members<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build("fletcher32", Sum::Plain(fletcher32), false)
}

/// Reads the configuration of `numcodecs.jenkins_lookup3`: `initval`, and a `prefix` that is summed but not
/// stored, as text or as a list of bytes.
pub(super) fn jenkins_lookup3(members: Members<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let first = members.integer("initval", 0..=i64::from(u32::MAX))?;
    let wrong = || members.wrong("prefix", "a text or a list of bytes");
    let prefix = match members.get("prefix") {
        None => Vec::new(),
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(_) => {
            let list = members.integers("prefix").map_err(|_| wrong())?;
            let bytes: Option<Vec<u8>> = list.into_iter().map(|n| u8::try_from(n).ok()).collect();
            bytes.ok_or_else(wrong)?
        }
    };
    let first = first.unwrap_or(0) as u32;
    build("jenkins_lookup3", Sum::Lookup3 { prefix, first }, false)
}

fn start(members: Members<'_>, default: bool) -> Result<bool> {
    let location = members.word("location", &["start", "end"])?;
    Ok(location.map_or(default, |location| location == "start"))
}

fn build(name: &'static str, sum: Sum, at_start: bool) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Checksum {
        name,
        sum,
        at_start,
    })))
}

impl Sum {
    fn of(&self, data: &[u8]) -> u32 {
        match self {
            Sum::Plain(sum) => sum(data),
            Sum::Lookup3 { prefix, first } if prefix.is_empty() => lookup3(data, *first),
            Sum::Lookup3 { prefix, first } => lookup3(&[prefix, data].concat(), *first),
        }
    }
}

impl Checksum {
    /// Returns the checksum and the bytes it is about.
    fn split<'b>(&self, encoded: &'b [u8]) -> Option<(u32, &'b [u8])> {
        let (stored, rest) = if self.at_start {
            encoded.split_first_chunk::<WIDTH>()?
        } else {
            let (rest, stored) = encoded.split_last_chunk::<WIDTH>()?;
            (stored, rest)
        };
        Some((u32::from_le_bytes(*stored), rest))
    }
}

impl BytesToBytes for Checksum {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.plus(WIDTH)
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let short = || {
            Error::corrupt(
                self.name,
                format!("{} bytes hold no checksum", encoded.len()),
            )
        };
        let (stored, rest) = self.split(&encoded).ok_or_else(short)?;
        want.check(self.name, rest.len())?;
        let found = self.sum.of(rest);
        if found != stored {
            return Err(Error::corrupt(
                self.name,
                format!("expected checksum {stored:08x}, found {found:08x}"),
            ));
        }
        let length = rest.len();
        let start = if self.at_start { WIDTH } else { 0 };
        Ok(match encoded {
            Cow::Borrowed(bytes) => {
                Cow::Borrowed(bytes.get(start..start + length).unwrap_or_default())
            }
            Cow::Owned(mut bytes) => {
                bytes.truncate(start + length);
                bytes.drain(..start);
                Cow::Owned(bytes)
            }
        })
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let checksum = self.sum.of(&decoded).to_le_bytes();
        let mut bytes = decoded.into_owned();
        if self.at_start {
            bytes.splice(0..0, checksum);
        } else {
            bytes.extend_from_slice(&checksum);
        }
        Ok(Cow::Owned(bytes))
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use serde_json::{Value, json};

    const NAMES: [&str; 5] = [
        "crc32c",
        "numcodecs.crc32",
        "numcodecs.adler32",
        "numcodecs.fletcher32",
        "numcodecs.jenkins_lookup3",
    ];

    fn nine(name: &str, configuration: Value) -> Pipeline {
        let codec = json!({ "name": name, "configuration": configuration });
        pipeline("uint8", &[9], json!(["bytes", codec])).unwrap()
    }

    #[test]
    fn the_checksums_of_nine_digits() {
        for (name, at_start, sum) in [
            ("crc32c", false, 0xe306_9283_u32),
            ("numcodecs.crc32", true, 0xcbf4_3926),
            ("numcodecs.adler32", true, 0x091e_01de),
        ] {
            let encoded = nine(name, json!({})).encode(b"123456789").unwrap();
            let place = if at_start {
                &encoded[..4]
            } else {
                &encoded[9..]
            };
            assert_eq!(place, sum.to_le_bytes(), "{name}");
        }
    }

    #[test]
    fn the_checksum_may_stand_on_either_side() {
        for name in ["numcodecs.crc32c", "numcodecs.crc32", "numcodecs.adler32"] {
            let start = nine(name, json!({ "location": "start" }));
            let end = nine(name, json!({ "location": "end" }));
            let (first, last) = (
                start.encode(b"123456789").unwrap(),
                end.encode(b"123456789").unwrap(),
            );
            assert_eq!((&first[..4], &first[4..]), (&last[9..], &last[..9]));
            assert_eq!(start.decode(first).unwrap(), b"123456789");
            assert_eq!(end.decode(last).unwrap(), b"123456789");
        }
    }

    #[test]
    fn a_prefix_is_summed_and_not_stored() {
        let plain = nine("numcodecs.jenkins_lookup3", json!({ "initval": 7 }));
        let text = nine(
            "numcodecs.jenkins_lookup3",
            json!({ "initval": 7, "prefix": "ab" }),
        );
        let list = nine(
            "numcodecs.jenkins_lookup3",
            json!({ "initval": 7, "prefix": [97, 98] }),
        );
        let encoded = text.encode(b"123456789").unwrap();
        assert_eq!(encoded.len(), 13);
        assert_eq!(list.decode(encoded.clone()).unwrap(), b"123456789");
        assert_eq!(plain.decode(encoded).unwrap_err().kind(), Kind::Corrupt);
    }

    #[test]
    fn each_flipped_bit_is_found() {
        for name in NAMES {
            let pipeline = nine(name, json!({}));
            let encoded = pipeline.encode(b"123456789").unwrap();
            assert_eq!(pipeline.decode(encoded.clone()).unwrap(), b"123456789");
            for bit in 0..encoded.len() * 8 {
                let mut flipped = encoded.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(pipeline.decode(flipped).unwrap_err().kind(), Kind::Corrupt);
            }
        }
    }

    #[test]
    fn short_and_long_input_is_corrupt() {
        for name in NAMES {
            for length in [0, 3, 4, 12, 14] {
                let error = nine(name, json!({})).decode(vec![0; length]).unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupt);
            }
        }
    }
}
