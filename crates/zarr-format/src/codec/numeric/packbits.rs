//! Codecs `packbits` and `numcodecs.packbits`: numbers and booleans without their unused bits.
//!
//! `packbits` stores each number in its significant bits, the lowest bit first. Unused bits of the last byte are
//! written as 0 and ignored by decoding. The bits of an element that are not stored (`first_bit`, `last_bit`) are
//! decoded as zeros, or as the sign of a signed integer. `numcodecs.packbits` is a different format, for booleans only:
//! the first boolean is the highest bit of a byte.

use std::borrow::Cow;

use crate::buffer;
use crate::codec::config::Configuration;
use crate::codec::traits::{ArrayToBytes, BytesToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};
use crate::grid::element_blocks;
use crate::model::DataType;

use super::array_codec;
use super::number::{Dtype, Number};

/// Where the chunk states its number of padding bits: nowhere, in the first byte or in the last byte.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Padding {
    None,
    First,
    Last,
}

/// Codec `packbits`: stores `bits` bits of each of `count` numbers, beginning with bit `first_bit`.
#[derive(Debug)]
struct PackBits {
    /// Number of numbers in a chunk: two for each complex element.
    count: usize,
    /// Size of a decoded number in bytes.
    width: usize,
    first_bit: u32,
    /// How many bits of a number are stored, from 1 to 64.
    bits: u32,
    signed: bool,
    lossy: bool,
    padding: Padding,
}

/// Builds codec `packbits` (specification, "Configuration parameters"). The JSON schema of the specification names the
/// parameters differently; both names are accepted.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let dtype = Dtype::of(&position.repr.data_type).ok_or_else(|| {
        let name = position.repr.data_type.to_string();
        Error::unsupported(
            "codecs",
            format!("packbits does not support data type {name}"),
        )
    })?;
    let width = dtype.number.width();
    let all = match (&position.repr.data_type, dtype.number) {
        (_, Number::Bool) => 1,
        (DataType::Small(number), _) => number.narrow().map_or(8, |(bits, _)| bits),
        (_, number) => number.bits(),
    };
    let bit = |name: &str, other: &str| match config.unsigned(name, 0..=all - 1)? {
        Some(bit) => Ok(Some(bit)),
        None => config.unsigned(other, 0..=all - 1),
    };
    let first_bit = bit("first_bit", "start_bit")?.unwrap_or(0);
    let last_bit = bit("last_bit", "end_bit")?.unwrap_or(all - 1);
    if last_bit < first_bit {
        return Err(config.unexpected("last_bit", format!("at least first_bit ({first_bit})")));
    }
    let bits = last_bit - first_bit + 1;
    let names = ["none", "first_byte", "last_byte", "start_byte", "end_byte"];
    let padding = match config.keyword("padding_encoding", &names)? {
        Some("first_byte" | "start_byte") => Padding::First,
        Some("last_byte" | "end_byte") => Padding::Last,
        _ => Padding::None,
    };
    Ok(Codec::ArrayToBytes(Box::new(PackBits {
        count: position.bytes()? / width,
        width,
        first_bit,
        bits,
        signed: matches!(
            dtype.number,
            Number::I8 | Number::I16 | Number::I32 | Number::I64
        ),
        lossy: bits < all,
        padding,
    })))
}

impl PackBits {
    /// Returns the length in bytes of the packed bits of a chunk.
    fn packed_bytes(&self) -> usize {
        let whole = self.count / 8 * self.bits as usize;
        whole + (self.count % 8 * self.bits as usize).div_ceil(8)
    }

    /// Returns the number of unused bits in the last byte of a chunk, from 0 to 7.
    fn padding_bits(&self) -> u8 {
        let used = self.count % 8 * self.bits as usize % 8;
        [0, 7, 6, 5, 4, 3, 2, 1][used]
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Restores a number from its stored bits: the bits above them are the sign of a signed integer or zeros, those
    /// below zeros.
    fn extend(&self, bits: u64) -> u64 {
        let top = self.first_bit + self.bits;
        let number = bits << self.first_bit;
        let negative = self.signed && bits >> (self.bits - 1) == 1;
        if negative && top < 64 {
            number | u64::MAX << top
        } else {
            number
        }
    }

    /// Removes the byte that states the number of padding bits; fails with `Corrupt` if it contradicts the shape of the
    /// chunk.
    fn without_padding<'b>(&self, encoded: &'b [u8]) -> Result<&'b [u8]> {
        let (found, bits) = match self.padding {
            Padding::None => return Ok(encoded),
            Padding::First => encoded.split_first(),
            Padding::Last => encoded.split_last(),
        }
        .ok_or_else(|| Error::corrupt("packbits", "the chunk is empty"))?;
        if *found != self.padding_bits() {
            let what = format!(
                "expected {} bits of padding, found {found}",
                self.padding_bits()
            );
            return Err(Error::corrupt("packbits", what));
        }
        Ok(bits)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lowest 64 bits are meant"
)]
fn low_bits(buffer: u128) -> u64 {
    buffer as u64
}

impl ArrayToBytes for PackBits {
    fn encoded_length(&self) -> Length {
        let extra = usize::from(self.padding != Padding::None);
        Length::Exact(self.packed_bytes().saturating_add(extra))
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.encoded_length().check("packbits", encoded.len())?;
        let mut bytes = self.without_padding(&encoded)?.iter();
        let mut out = buffer::of_length(self.count * self.width);
        // `buffer` holds the `ready` bits that were read but belong to the next numbers.
        let (mut buffer, mut ready) = (0_u128, 0);
        for number in out.chunks_exact_mut(self.width) {
            while ready < self.bits {
                buffer |= u128::from(*bytes.next().unwrap_or(&0)) << ready;
                ready += 8;
            }
            let extended = self.extend(low_bits(buffer) & self.mask()).to_le_bytes();
            buffer >>= self.bits;
            ready -= self.bits;
            number.copy_from_slice(&extended[..self.width]);
        }
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut out = Vec::with_capacity(self.packed_bytes() + 1);
        out.extend((self.padding == Padding::First).then(|| self.padding_bits()));
        // `buffer` holds the `ready` bits that do not fill an output byte yet.
        let (mut buffer, mut ready) = (0_u128, 0);
        for number in decoded.chunks_exact(self.width) {
            let mut bits = [0; 8];
            bits[..self.width].copy_from_slice(number);
            let bits = u64::from_le_bytes(bits) >> self.first_bit & self.mask();
            buffer |= u128::from(bits) << ready;
            ready += self.bits;
            while ready >= 8 {
                out.push(low_bits(buffer).to_le_bytes()[0]);
                buffer >>= 8;
                ready -= 8;
            }
        }
        out.extend((ready > 0).then_some(low_bits(buffer).to_le_bytes()[0]));
        out.extend((self.padding == Padding::Last).then(|| self.padding_bits()));
        Ok(Cow::Owned(out))
    }

    fn is_lossy(&self) -> bool {
        self.lossy
    }
}

/// Codec `numcodecs.packbits`: packs eight booleans into each byte, after a first byte with the number of padding bits
/// in the last. It encodes to bytes although it is an `array -> array` codec, so the encoded array has the data type
/// `uint8`.
#[derive(Debug)]
struct PackedBooleans {
    /// Whether decoded bytes may differ from 0 and 1. Encoding then loses their values.
    lossy: bool,
}

/// Builds `numcodecs.packbits`, which encodes any byte except 0 as true.
pub(crate) fn booleans(_: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let lossy = position.after_bytes || position.repr.data_type != DataType::Bool;
    let codec = Box::new(PackedBooleans { lossy });
    if position.after_bytes {
        return Ok(Codec::BytesToBytes(codec));
    }
    array_codec(codec, DataType::UInt(1), position)
}

fn boolean_bytes(count: usize) -> usize {
    count.div_ceil(8).saturating_add(1)
}

/// Returns the bits of a byte, the highest first, each as a byte of 0 or 1.
fn spread([byte]: [u8; 1]) -> [u8; 8] {
    // The multiplication copies the byte, each copy shifted one bit further, so that the mask picks another bit from
    // each copy.
    let copies = u64::from(byte).wrapping_mul(0x8040_2010_0804_0201);
    (copies >> 7 & 0x0101_0101_0101_0101).to_le_bytes()
}

impl BytesToBytes for PackedBooleans {
    fn encoded_length(&self, decoded: Length) -> Length {
        decoded.map(boolean_bytes)
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
        let mut encoded = Vec::with_capacity(boolean_bytes(decoded.len()));
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
    use crate::codec::Pipeline;
    use crate::codec::tests::{assert_corrupt, assert_round_trip, pipeline};
    use crate::error::Result;
    use serde_json::{Value, json};

    fn packbits(data_type: &str, length: u64, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "packbits", "configuration": configuration });
        pipeline(data_type, &[length], json!([codec]))
    }

    #[test]
    fn bools_are_packed_from_the_lowest_bit() {
        let data = [1, 0, 0, 1, 0, 0, 0, 0, 1, 1];
        for (padding, expected) in [
            ("none", vec![0x09, 0x03]),
            ("first_byte", vec![6, 0x09, 0x03]),
            ("end_byte", vec![0x09, 0x03, 6]),
        ] {
            let pipeline = packbits("bool", 10, json!({ "padding_encoding": padding })).unwrap();
            assert_eq!(pipeline.encode(&data).unwrap(), expected);
            assert_eq!(pipeline.decode(expected).unwrap(), data);
            assert!(!pipeline.is_lossy());
        }
    }

    #[test]
    fn only_signed_numbers_are_sign_extended() {
        for (data_type, expected) in [("int8", [0xfc_u8, 2]), ("uint8", [0x0c, 2])] {
            let pipeline =
                packbits(data_type, 2, json!({ "first_bit": 1, "last_bit": 3 })).unwrap();
            assert_eq!(pipeline.encode(&[0xfc, 3]).unwrap(), [0x0e]);
            assert_eq!(pipeline.decode(vec![0x0e]).unwrap(), expected);
            assert!(pipeline.is_lossy());
        }
    }

    #[test]
    fn numbers_of_64_bits_round_trip() {
        let data: Vec<u8> = (0..64).collect();
        for data_type in ["uint64", "int64", "float64", "complex64"] {
            let pipeline = packbits(data_type, 8, json!({})).unwrap();
            let encoded = pipeline.encode(&data).unwrap();
            assert_eq!(encoded, data);
            assert_eq!(pipeline.decode(encoded).unwrap(), data);
        }
    }

    #[test]
    fn padding_that_contradicts_the_shape_is_corrupt() {
        let pipeline = packbits("bool", 10, json!({ "padding_encoding": "first_byte" })).unwrap();
        for encoded in [vec![], vec![6, 0], vec![5, 9, 3], vec![6, 9, 3, 0]] {
            assert_corrupt(&pipeline, encoded);
        }
    }

    #[test]
    fn the_example_of_numcodecs_is_encoded_and_decoded() {
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
    fn numcodecs_packbits_turns_nonzero_numbers_into_1() {
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
    fn every_element_count_round_trips() {
        for count in (1..40).chain([511, 512, 513, 600]) {
            let pipeline =
                pipeline("bool", &[count], json!(["numcodecs.packbits", "bytes"])).unwrap();
            let data: Vec<u8> = (0..count).map(|n| u8::from(n % 3 == 0)).collect();
            assert_round_trip(&pipeline, &data);
        }
    }

    #[test]
    fn another_element_count_is_corrupt() {
        let pipeline = pipeline("bool", &[4], json!(["numcodecs.packbits", "bytes"])).unwrap();
        for encoded in [vec![], vec![4], vec![3, 0], vec![200, 0], vec![4, 0, 0]] {
            assert_corrupt(&pipeline, encoded);
        }
    }
}
