//! Codec `numcodecs.base64`: stores bytes as padded base64 text of the standard alphabet.
//!
//! As in numcodecs, characters outside the alphabet are skipped and bytes after the padding are ignored.

use std::borrow::Cow;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};

/// Base64 decoder that accepts missing padding, and non-zero trailing bits in the last character.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug)]
struct Base64;

pub(crate) fn build(_: Configuration<'_>, _: &ChainPosition<'_>) -> Result<Codec> {
    Ok(Codec::BytesToBytes(Box::new(Base64)))
}

impl BytesToBytes for Base64 {
    /// Returns only an upper bound of the length of the base64 text, since line feeds may occur anywhere in it.
    fn encoded_length(&self, decoded: Length) -> Length {
        let text = decoded.upper_bound().div_ceil(3).saturating_mul(4);
        decoded.bounding(text.saturating_add(text / 16).saturating_add(1 << 10))
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let text = alphabetic(&encoded);
        // Decode up to three bytes more than expected, so that the caller notices data that are too long.
        let length = (text.len() / 4 * 3 + 3).min(want.upper_bound().saturating_add(3));
        let letters = length.div_ceil(3).saturating_mul(4);
        let text = text.get(..letters).unwrap_or(&text);
        let mut out = buffer::of_length(text.len() / 4 * 3 + 3);
        let decoded = LENIENT.decode_slice(text, &mut out);
        let length = decoded.map_err(|error| Error::corrupt("base64", error))?;
        out.truncate(length);
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        Ok(Cow::Owned(STANDARD.encode(&decoded).into_bytes()))
    }
}

/// Returns the base64 text up to its padding, without characters outside the alphabet.
fn alphabetic(encoded: &[u8]) -> Cow<'_, [u8]> {
    let of_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let end = encoded.iter().position(|byte| !of_alphabet(byte));
    let Some(end) = end.filter(|&end| !is_padding(&encoded[end..])) else {
        return Cow::Borrowed(
            encoded
                .get(..end.unwrap_or(encoded.len()))
                .unwrap_or_default(),
        );
    };
    let mut text = encoded[..end].to_vec();
    for byte in &encoded[end..] {
        // A `=` is padding only if it completes a group of four characters; any other `=` is skipped.
        if *byte == b'=' && text.len() % 4 >= 2 {
            break;
        }
        text.extend(of_alphabet(byte).then_some(byte));
    }
    Cow::Owned(text)
}

fn is_padding(end: &[u8]) -> bool {
    matches!(end, b"=" | b"==")
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_round_trip, pipeline};
    use crate::error::Kind;
    use serde_json::json;

    fn base64(length: u64) -> Pipeline {
        pipeline("uint8", &[length], json!(["bytes", "numcodecs.base64"])).unwrap()
    }

    #[test]
    fn data_of_every_length_round_trip() {
        assert_eq!(base64(2).encode(b"ab").unwrap(), b"YWI=");
        for length in 1..50 {
            let data: Vec<u8> = (0..length as u8).map(|n| n.wrapping_mul(37)).collect();
            let pipeline = base64(length);
            assert_round_trip(&pipeline, &data);
        }
    }

    #[test]
    fn base64_skips_the_characters_that_numcodecs_skips() {
        for (text, data) in [
            ("YWJj\nZGVm", b"abcdef".as_slice()),
            ("YW Jj=", b"abc"),
            ("YWJj====", b"abc"),
            ("YWI=YWI=", b"ab"),
        ] {
            let decoded = base64(data.len() as u64).decode(text.as_bytes());
            assert_eq!(decoded.unwrap(), data, "{text}");
        }
    }

    #[test]
    fn input_that_decodes_to_another_length_is_corrupt() {
        for text in ["", "Y", "YQ==", "YWJj", "====", "YWJjYWJjYWJjYWJj"] {
            assert_eq!(
                base64(2).decode(text.as_bytes()).unwrap_err().kind(),
                Kind::Corrupt,
                "{text}"
            );
        }
    }
}
