//! Codec `numcodecs.packbits`: packs booleans as bits, the first in a byte's highest bit.
//!
//! A leading byte counts the padding bits of the last byte. The codec makes bytes of an array but is one of the
//! `array -> array` codecs, so the encoded chunk is an array of `uint8`. The codec `packbits` of v3 is another one
//! (`packbits.rs`).

use std::borrow::Cow;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::kind::{BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};
use crate::grid::element_blocks;
use crate::model::DataType;

use super::array_codec;

/// Packs eight bytes into one; it has no configuration.
#[derive(Debug)]
struct PackedBooleans {
    /// Whether decoded bytes may differ from 0 and 1.
    lossy: bool,
}

/// Builds the codec. Any byte except 0 is true.
pub(crate) fn build(_: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let lossy = position.after_bytes || position.repr.data_type != DataType::Bool;
    let codec = Box::new(PackedBooleans { lossy });
    if position.after_bytes {
        return Ok(Codec::BytesToBytes(codec));
    }
    array_codec(codec, DataType::UInt(1), position)
}

fn packed_bytes(count: usize) -> usize {
    count.div_ceil(8).saturating_add(1)
}

/// Returns the bits of a byte, the highest first, one in each byte.
fn spread([byte]: [u8; 1]) -> [u8; 8] {
    // Copies of the byte, each shifted one bit further than the one before.
    let copies = u64::from(byte).wrapping_mul(0x8040_2010_0804_0201);
    (copies >> 7 & 0x0101_0101_0101_0101).to_le_bytes()
}

impl BytesToBytes for PackedBooleans {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.map(packed_bytes)
    }

    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>> {
        let wrong = |what: String| Error::corrupt("packbits", what);
        let (&padding, bits) = encoded
            .split_first()
            .ok_or_else(|| wrong("the chunk is empty".to_string()))?;
        let count = bits
            .len()
            .saturating_mul(8)
            .checked_sub(usize::from(padding));
        let count = count.ok_or_else(|| {
            wrong(format!(
                "the padding of {padding} bits is longer than the chunk"
            ))
        })?;
        want.check("packbits", count)?;
        let mut decoded = buffer::of_length(count);
        element_blocks::convert(bits, &mut decoded, spread);
        if let Some(&last) = bits.get(count / 8) {
            let rest = decoded.as_chunks_mut::<8>().1;
            rest.copy_from_slice(&spread([last])[..rest.len()]);
        }
        Ok(Cow::Owned(decoded))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut encoded = Vec::with_capacity(packed_bytes(decoded.len()));
        encoded.push([0, 7, 6, 5, 4, 3, 2, 1][decoded.len() % 8]);
        encoded.extend(decoded.chunks(8).map(|eight| {
            let bits = eight.iter().enumerate();
            bits.fold(0, |byte, (n, &boolean)| {
                byte | u8::from(boolean != 0) << (7 - n)
            })
        }));
        Ok(Cow::Owned(encoded))
    }

    fn is_lossy(&self) -> bool {
        self.lossy
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline};
    use serde_json::json;

    #[test]
    fn the_example_of_numcodecs() {
        for codecs in [
            json!(["numcodecs.packbits", "bytes"]),
            json!(["bytes", "numcodecs.packbits"]),
        ] {
            let pipeline = pipeline("bool", &[2, 2], codecs).unwrap();
            assert_eq!(pipeline.encode(&[1, 0, 0, 1]).unwrap(), [4, 0x90]);
            assert_eq!(pipeline.decode(vec![4, 0x90]).unwrap(), [1, 0, 0, 1]);
        }
    }

    #[test]
    fn what_is_no_truth_is_lost() {
        let codecs = json!(["numcodecs.packbits", "bytes"]);
        assert!(!pipeline("bool", &[4], codecs.clone()).unwrap().is_lossy());
        let other = pipeline("uint8", &[4], codecs).unwrap();
        assert!(other.is_lossy());
        assert_eq!(
            other.decode(other.encode(&[7, 0, 1, 0]).unwrap()).unwrap(),
            [1, 0, 1, 0]
        );
    }

    #[test]
    fn all_counts_come_back() {
        for count in (1..40).chain([511, 512, 513, 600]) {
            let pipeline =
                pipeline("bool", &[count], json!(["numcodecs.packbits", "bytes"])).unwrap();
            let data: Vec<u8> = (0..count).map(|n| u8::from(n % 3 == 0)).collect();
            assert_round_trip(&pipeline, &data);
        }
    }

    #[test]
    fn another_count_is_corrupt() {
        let pipeline = pipeline("bool", &[4], json!(["numcodecs.packbits", "bytes"])).unwrap();
        for encoded in [vec![], vec![4], vec![3, 0], vec![200, 0], vec![4, 0, 0]] {
            assert_corrupt(&pipeline, encoded);
        }
    }
}
