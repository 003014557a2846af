//! Codec `crc32c`: four bytes of checksum after the data.
//!
//! Checked on every decode, then cut off without a copy. `numcodecs.crc32c` may have the checksum in front
//! (`location`).

use std::borrow::Cow;

use crate::error::Error;
use crate::error::Result;

use super::config::Members;
use super::kind::BytesToBytes;
use super::kind::Codec;
use super::kind::Data;
use super::kind::Length;
use super::kind::Place;

const NAME: &str = "crc32c";
const WIDTH: usize = 4;

/// A checksum, and where it stands.
#[derive(Debug)]
struct Crc32c {
    at_start: bool,
}

/// Reads the configuration (codec `crc32c`: "Configuration parameters: None").
pub(super) fn build(members: Members<'_>, _: &Place<'_>) -> Result<Codec> {
    let at_start = members.word("location", &["start", "end"])? == Some("start");
    Ok(Codec::BytesToBytes(Box::new(Crc32c { at_start })))
}

impl Crc32c {
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

impl BytesToBytes for Crc32c {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.plus(WIDTH)
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let short = || Error::corrupt(NAME, format!("{} bytes hold no checksum", encoded.len()));
        let (stored, rest) = self.split(&encoded).ok_or_else(short)?;
        want.check(NAME, rest.len())?;
        let found = crc32c::crc32c(rest);
        if found != stored {
            return Err(Error::corrupt(
                NAME,
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
        let checksum = crc32c::crc32c(&decoded).to_le_bytes();
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
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use serde_json::json;

    #[test]
    fn the_checksum_of_nine_digits() {
        let pipeline = pipeline("uint8", &[9], json!(["bytes", "crc32c"])).unwrap();
        let encoded = pipeline.encode(b"123456789").unwrap();
        assert_eq!(encoded[9..], 0xe306_9283_u32.to_le_bytes());
        assert_eq!(pipeline.decode(encoded).unwrap(), b"123456789");
    }

    #[test]
    fn the_checksum_may_stand_in_front() {
        let start = json!({ "name": "numcodecs.crc32c", "configuration": { "location": "start" } });
        let pipeline = pipeline("uint8", &[9], json!(["bytes", start])).unwrap();
        let encoded = pipeline.encode(b"123456789").unwrap();
        assert_eq!(encoded[..4], 0xe306_9283_u32.to_le_bytes());
        assert_eq!(pipeline.decode(encoded).unwrap(), b"123456789");
    }

    #[test]
    fn each_flipped_bit_is_found() {
        let pipeline = pipeline("uint8", &[9], json!(["bytes", "crc32c"])).unwrap();
        let encoded = pipeline.encode(b"123456789").unwrap();
        for bit in 0..encoded.len() * 8 {
            let mut flipped = encoded.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(pipeline.decode(flipped).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    #[test]
    fn short_and_long_input_is_corrupt() {
        let pipeline = pipeline("uint8", &[9], json!(["bytes", "crc32c"])).unwrap();
        for length in [0, 3, 4, 12, 14] {
            assert_eq!(
                pipeline.decode(vec![0; length]).unwrap_err().kind(),
                Kind::Corrupt
            );
        }
    }
}
