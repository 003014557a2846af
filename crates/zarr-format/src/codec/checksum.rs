//! Codecs that add a checksum: `crc32c`, `crc32`, `adler32`, `fletcher32`, `jenkins_lookup3`.
//!
//! The checksum is four bytes, little-endian, after or before the data (`location`). Decoding always verifies it, then
//! cuts it off without a copy.

use std::borrow::Cow;
use std::fmt::Debug;

use serde_json::Value;

use crate::error::{Error, Result};

use super::config::Configuration;
use super::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use ChecksumFunction::{Lookup3, Plain};

const CHECKSUM_BYTES: usize = 4;

#[derive(Debug)]
enum ChecksumFunction {
    Plain(fn(&[u8]) -> u32),
    /// Bob Jenkins' hash `lookup3` of `prefix` followed by the data, with the initial value `initial`.
    Lookup3 {
        prefix: Vec<u8>,
        initial: u32,
    },
}

/// A codec that stores a checksum before or after the data.
#[derive(Debug)]
struct Checksum {
    name: &'static str,
    function: ChecksumFunction,
    at_start: bool,
}

/// Builds the codec `crc32c` (its specification says "Configuration parameters: None", but numcodecs has `location`).
pub(super) fn crc32c(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build("crc32c", Plain(crc32c::crc32c), is_at_start(config, false)?)
}

/// Builds `numcodecs.crc32`; the checksum is before the data unless the configuration says otherwise.
pub(super) fn crc32(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(
        "crc32",
        Plain(libdeflater::crc32),
        is_at_start(config, true)?,
    )
}

/// Builds `numcodecs.adler32`; the checksum is before the data unless the configuration says otherwise.
pub(super) fn adler32(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build(
        "adler32",
        Plain(libdeflater::adler32),
        is_at_start(config, true)?,
    )
}

/// Builds `numcodecs.fletcher32`, the checksum of HDF5, which has no parameters.
pub(super) fn fletcher(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    build("fletcher32", Plain(fletcher32), false)
}

/// Builds `numcodecs.jenkins_lookup3` from `initval` and `prefix`. The prefix is hashed but not stored; it is text or a
/// list of bytes.
pub(super) fn jenkins_lookup3(config: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    let initial = config.unsigned("initval", 0..=u32::MAX)?.unwrap_or(0);
    let wrong = || config.unexpected("prefix", "a string or a list of bytes");
    let prefix = match config.get("prefix") {
        None => Vec::new(),
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        Some(_) => {
            let list = config.integers("prefix").map_err(|_| wrong())?;
            let bytes: Option<Vec<u8>> = list.into_iter().map(|n| u8::try_from(n).ok()).collect();
            bytes.ok_or_else(wrong)?
        }
    };
    build("jenkins_lookup3", Lookup3 { prefix, initial }, false)
}

fn is_at_start(config: Configuration<'_>, default: bool) -> Result<bool> {
    let location = config.keyword("location", &["start", "end"])?;
    Ok(location.map_or(default, |location| location == "start"))
}

fn build(name: &'static str, function: ChecksumFunction, at_start: bool) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Checksum {
        name,
        function,
        at_start,
    })))
}

impl ChecksumFunction {
    fn of(&self, data: &[u8]) -> u32 {
        match self {
            Plain(function) => function(data),
            Lookup3 { prefix, initial } if prefix.is_empty() => lookup3(data, *initial),
            Lookup3 { prefix, initial } => lookup3(&[prefix, data].concat(), *initial),
        }
    }
}

impl Checksum {
    /// Splits encoded data into the stored checksum and the data that it covers.
    fn split<'b>(&self, encoded: &'b [u8]) -> Option<(u32, &'b [u8])> {
        let (stored, rest) = if self.at_start {
            encoded.split_first_chunk::<CHECKSUM_BYTES>()?
        } else {
            let (rest, stored) = encoded.split_last_chunk::<CHECKSUM_BYTES>()?;
            (stored, rest)
        };
        Some((u32::from_le_bytes(*stored), rest))
    }
}

impl BytesToBytes for Checksum {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.plus(CHECKSUM_BYTES)
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let short = || {
            Error::corrupt(
                self.name,
                format!("{} bytes are too short for a checksum", encoded.len()),
            )
        };
        let (stored, rest) = self.split(&encoded).ok_or_else(short)?;
        want.check(self.name, rest.len())?;
        let found = self.function.of(rest);
        if found != stored {
            return Err(Error::corrupt(
                self.name,
                format!("expected checksum {stored:08x}, found {found:08x}"),
            ));
        }
        let length = rest.len();
        let start = if self.at_start { CHECKSUM_BYTES } else { 0 };
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
        let checksum = self.function.of(&decoded).to_le_bytes();
        let mut bytes = decoded.into_owned();
        if self.at_start {
            bytes.splice(0..0, checksum);
        } else {
            bytes.extend_from_slice(&checksum);
        }
        Ok(Cow::Owned(bytes))
    }
}

/// Computes HDF5's `fletcher32` checksum over 16-bit words, most significant byte first. An odd last byte is the upper
/// half of a word; the checksum of empty data is 0.
fn fletcher32(data: &[u8]) -> u32 {
    let (mut first, mut second) = (0, 0);
    // Reduce the sums modulo 65535 after every 360 words: more words could overflow 32 bits.
    for block in data.chunks(2 * 360) {
        for word in block.chunks(2) {
            let low = word.get(1).copied().unwrap_or(0);
            first += u32::from(word[0]) << 8 | u32::from(low);
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}

/// Reduces a Fletcher sum modulo 65535, to at most 17 bits.
fn fold(sum: u32) -> u32 {
    (sum & 0xffff) + (sum >> 16)
}

/// Computes Bob Jenkins' hash `lookup3` with a 32-bit result (`hashlittle`), by which HDF5 protects its own structures,
/// from the initial value `initial`. The result does not depend on the machine's byte order.
pub fn lookup3(data: &[u8], initial: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the length counts modulo 2^32"
    )]
    let length = data.len() as u32;
    let start = 0xdead_beef_u32.wrapping_add(length).wrapping_add(initial);
    let mut state = [start; 3];
    if data.is_empty() {
        return start;
    }
    // The last 1 to 12 bytes are mixed by a function of their own, as `lookup3` specifies.
    let (blocks, last) = data.split_at((data.len() - 1) / 12 * 12);
    for block in blocks.chunks_exact(12) {
        add(&mut state, block);
        mix(&mut state);
    }
    add(&mut state, last);
    mix_last(&mut state);
    state[2]
}

/// Adds up to 12 bytes to the state of the hash; missing bytes count as zeros.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    let mut words = [0; 12];
    words[..bytes.len()].copy_from_slice(bytes);
    for (value, word) in state.iter_mut().zip(words.as_chunks::<4>().0) {
        *value = value.wrapping_add(u32::from_le_bytes(*word));
    }
}

fn mix(state: &mut [u32; 3]) {
    for (n, turn) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        let (a, b, c) = (n % 3, (n + 1) % 3, (n + 2) % 3);
        state[a] = state[a].wrapping_sub(state[c]) ^ state[c].rotate_left(turn);
        state[c] = state[c].wrapping_add(state[b]);
    }
}

fn mix_last(state: &mut [u32; 3]) {
    for (n, turn) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (target, source) = ((n + 2) % 3, (n + 1) % 3);
        state[target] =
            (state[target] ^ state[source]).wrapping_sub(state[source].rotate_left(turn));
    }
}

#[cfg(test)]
mod tests {
    use super::{fletcher32, lookup3};
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, pipeline};
    use crate::error::Kind;

    const NAMES: [&str; 5] = [
        "crc32c",
        "numcodecs.crc32",
        "numcodecs.adler32",
        "numcodecs.fletcher32",
        "numcodecs.jenkins_lookup3",
    ];

    fn for_nine_bytes(name: &str, configuration: Value) -> Pipeline {
        let codec = json!({ "name": name, "configuration": configuration });
        pipeline("uint8", &[9], json!(["bytes", codec])).unwrap()
    }

    #[test]
    fn checksums_of_123456789_are_the_published_values() {
        for (name, at_start, sum) in [
            ("crc32c", false, 0xe306_9283_u32),
            ("numcodecs.crc32", true, 0xcbf4_3926),
            ("numcodecs.adler32", true, 0x091e_01de),
        ] {
            let encoded = for_nine_bytes(name, json!({}))
                .encode(b"123456789")
                .unwrap();
            let place = if at_start {
                &encoded[..4]
            } else {
                &encoded[9..]
            };
            assert_eq!(place, sum.to_le_bytes(), "{name}");
        }
    }

    #[test]
    fn the_checksum_is_stored_at_the_start_or_the_end() {
        for name in ["numcodecs.crc32c", "numcodecs.crc32", "numcodecs.adler32"] {
            let start = for_nine_bytes(name, json!({ "location": "start" }));
            let end = for_nine_bytes(name, json!({ "location": "end" }));
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
    fn a_prefix_is_hashed_but_not_stored() {
        let plain = for_nine_bytes("numcodecs.jenkins_lookup3", json!({ "initval": 7 }));
        let text = for_nine_bytes(
            "numcodecs.jenkins_lookup3",
            json!({ "initval": 7, "prefix": "ab" }),
        );
        let list = for_nine_bytes(
            "numcodecs.jenkins_lookup3",
            json!({ "initval": 7, "prefix": [97, 98] }),
        );
        let encoded = text.encode(b"123456789").unwrap();
        assert_eq!(encoded.len(), 13);
        assert_eq!(list.decode(encoded.clone()).unwrap(), b"123456789");
        assert_corrupt(&plain, encoded);
    }

    #[test]
    fn each_flipped_bit_is_detected() {
        for name in NAMES {
            let pipeline = for_nine_bytes(name, json!({}));
            let encoded = pipeline.encode(b"123456789").unwrap();
            assert_eq!(pipeline.decode(encoded.clone()).unwrap(), b"123456789");
            for bit in 0..encoded.len() * 8 {
                let mut flipped = encoded.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_corrupt(&pipeline, flipped);
            }
        }
    }

    #[test]
    fn input_of_another_length_is_corrupt() {
        for name in NAMES {
            for length in [0, 3, 4, 12, 14] {
                let error = for_nine_bytes(name, json!({}))
                    .decode(vec![0; length])
                    .unwrap_err();
                assert_eq!(error.kind(), Kind::Corrupt);
            }
        }
    }

    #[test]
    fn fletcher32_equals_that_of_numcodecs() {
        for (data, sum) in [
            (b"a".as_slice(), [0, b'a', 0, b'a']),
            (b"abc", [b'b', 0xc4, 0xc5, b'%']),
            (b"abcd", [0xc6, 0xc4, b')', b'&']),
            (&[0xff; 7], [0, 0xff, 0, 0xff]),
        ] {
            assert_eq!(fletcher32(data).to_le_bytes(), sum, "{data:?}");
        }
    }

    #[test]
    fn fletcher32_of_long_input_does_not_overflow() {
        assert_eq!(fletcher32(&[0xff; 100_000]), 0xffff_ffff);
        assert_eq!(fletcher32(&[]), 0);
    }

    #[test]
    fn lookup3_gives_the_published_hashes() {
        let score = b"Four score and seven years ago";
        assert_eq!(lookup3(b"", 0), 0xdead_beef);
        assert_eq!(lookup3(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(lookup3(score, 0), 0x1777_0551);
        assert_eq!(lookup3(score, 1), 0xcd62_8161);
    }

    #[test]
    fn lookup3_of_zeros_differs_for_each_length() {
        let mut hashes: Vec<u32> = (0..40)
            .map(|length| lookup3(&[0; 40][..length], 0))
            .collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 40);
    }
}
