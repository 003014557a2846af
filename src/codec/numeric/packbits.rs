//! Codec `packbits`: each number in as many bits as it needs, the lowest bit first.
//!
//! Bits left over in the last byte are 0 when written and of no meaning when read. What is cut off an element
//! (`first_bit`, `last_bit`) comes back as zeros, or as the sign of a signed integer. `numcodecs.packbits` is
//! another codec (`packed_truth.rs`).

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::kind::{ArrayToBytes, ChainPosition, Codec, Data, Length};
use crate::error::{Error, Result};
use crate::model::DataType;
use crate::sync::buffer;

use super::number::{Dtype, Number};

const NAME: &str = "packbits";

/// Where the number of padding bits is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Padding {
    None,
    First,
    Last,
}

/// Which bits of a number are stored, and how many numbers there are.
#[derive(Debug)]
struct PackBits {
    /// Numbers in a chunk, both parts of a complex number counted.
    count: usize,
    width: usize,
    first: u32,
    /// From 1 to 64.
    bits: u32,
    signed: bool,
    lossy: bool,
    padding: Padding,
}

/// Reads the configuration (codec `packbits`, "Configuration parameters"); its schema has other names for
/// the same members.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let dtype = Dtype::of(&position.repr.data_type).ok_or_else(|| {
        let name = position.repr.data_type.to_string();
        Error::unsupported("codecs", format!("packbits of data type {name}"))
    })?;
    let width = dtype.number.width();
    let all = match (&position.repr.data_type, dtype.number) {
        (_, Number::Bool) => 1,
        (DataType::Small(number), _) => number.narrow().map_or(8, |(bits, _)| i64::from(bits)),
        _ => width as i64 * 8,
    };
    let bit = |name: &str, other: &str| match config.integer(name, 0..=all - 1)? {
        Some(bit) => Ok(Some(bit)),
        None => config.integer(other, 0..=all - 1),
    };
    let first = bit("first_bit", "start_bit")?.unwrap_or(0);
    let last = bit("last_bit", "end_bit")?.unwrap_or(all - 1);
    if last < first {
        return Err(config.unexpected("last_bit", format!("no less than first_bit, {first}")));
    }
    let names = ["none", "first_byte", "last_byte", "start_byte", "end_byte"];
    let padding = match config.keyword("padding_encoding", &names)? {
        Some("first_byte" | "start_byte") => Padding::First,
        Some("last_byte" | "end_byte") => Padding::Last,
        _ => Padding::None,
    };
    Ok(Codec::ArrayToBytes(Box::new(PackBits {
        count: position.bytes()? / width,
        width,
        first: first as u32,
        bits: (last - first + 1) as u32,
        signed: matches!(
            dtype.number,
            Number::I8 | Number::I16 | Number::I32 | Number::I64
        ),
        lossy: last - first + 1 < all,
        padding,
    })))
}

impl PackBits {
    /// Returns the bytes that hold the bits.
    fn packed(&self) -> usize {
        let whole = self.count / 8 * self.bits as usize;
        whole + (self.count % 8 * self.bits as usize).div_ceil(8)
    }

    /// Returns how many bits of the last byte are not used.
    fn unused(&self) -> u8 {
        (self.count % 8 * self.bits as usize).wrapping_neg() as u8 & 7
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Returns the number that stored bits stand for.
    fn extended(&self, bits: u64) -> u64 {
        let top = self.first + self.bits;
        let number = bits << self.first;
        let negative = self.signed && bits >> (self.bits - 1) == 1;
        if negative && top < 64 {
            number | u64::MAX << top
        } else {
            number
        }
    }

    /// Takes the count of padding bits off, which has to be the one that follows from the shape.
    fn without_padding<'b>(&self, encoded: &'b [u8]) -> Result<&'b [u8]> {
        let (found, bits) = match self.padding {
            Padding::None => return Ok(encoded),
            Padding::First => encoded.split_first(),
            Padding::Last => encoded.split_last(),
        }
        .ok_or_else(|| Error::corrupt(NAME, "no bytes at all"))?;
        if *found != self.unused() {
            let what = format!("expected {} bits of padding, found {found}", self.unused());
            return Err(Error::corrupt(NAME, what));
        }
        Ok(bits)
    }
}

impl ArrayToBytes for PackBits {
    fn encoded_length(&self) -> Length {
        let extra = usize::from(self.padding != Padding::None);
        Length::Exact(self.packed().saturating_add(extra))
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.encoded_length().check(NAME, encoded.len())?;
        let mut bytes = self.without_padding(&encoded)?.iter();
        let mut out = buffer::of_length(self.count * self.width);
        let (mut held, mut ready) = (0_u128, 0);
        for number in out.chunks_exact_mut(self.width) {
            while ready < self.bits {
                held |= u128::from(*bytes.next().unwrap_or(&0)) << ready;
                ready += 8;
            }
            let bits = held as u64 & self.mask();
            held >>= self.bits;
            ready -= self.bits;
            let extended = self.extended(bits).to_le_bytes();
            number.copy_from_slice(&extended[..self.width]);
        }
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut out = Vec::with_capacity(self.packed() + 1);
        out.extend((self.padding == Padding::First).then(|| self.unused()));
        let (mut held, mut ready) = (0_u128, 0);
        for number in decoded.chunks_exact(self.width) {
            let mut bits = [0; 8];
            bits[..self.width].copy_from_slice(number);
            let bits = u64::from_le_bytes(bits) >> self.first & self.mask();
            held |= u128::from(bits) << ready;
            ready += self.bits;
            while ready >= 8 {
                out.push(held as u8);
                held >>= 8;
                ready -= 8;
            }
        }
        out.extend((ready > 0).then_some(held as u8));
        out.extend((self.padding == Padding::Last).then(|| self.unused()));
        Ok(Cow::Owned(out))
    }

    fn is_lossy(&self) -> bool {
        self.lossy
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::tests::pipeline;
    use crate::error::{Kind, Result};
    use serde_json::{Value, json};

    fn packbits(data_type: &str, length: u64, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "packbits", "configuration": configuration });
        pipeline(data_type, &[length], json!([codec]))
    }

    #[test]
    fn truth_takes_a_bit_the_lowest_first() {
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
    fn signed_numbers_are_extended_and_others_not() {
        for (data_type, expected) in [("int8", [0xfc_u8, 2]), ("uint8", [0x0c, 2])] {
            let pipeline =
                packbits(data_type, 2, json!({ "first_bit": 1, "last_bit": 3 })).unwrap();
            assert_eq!(pipeline.encode(&[0xfc, 3]).unwrap(), [0x0e]);
            assert_eq!(pipeline.decode(vec![0x0e]).unwrap(), expected);
            assert!(pipeline.is_lossy());
        }
    }

    #[test]
    fn wide_numbers_come_back() {
        let data: Vec<u8> = (0..64).collect();
        for data_type in ["uint64", "int64", "float64", "complex64"] {
            let pipeline = packbits(data_type, 8, json!({})).unwrap();
            let encoded = pipeline.encode(&data).unwrap();
            assert_eq!(encoded, data);
            assert_eq!(pipeline.decode(encoded).unwrap(), data);
        }
    }

    #[test]
    fn faults_are_corrupt() {
        assert_eq!(
            packbits("int8", 2, json!({ "first_bit": 3, "last_bit": 2 }))
                .unwrap_err()
                .kind(),
            Kind::Corrupt
        );
        assert_eq!(
            packbits("int8", 2, json!({ "last_bit": 8 }))
                .unwrap_err()
                .kind(),
            Kind::Corrupt
        );
        let pipeline = packbits("bool", 10, json!({ "padding_encoding": "first_byte" })).unwrap();
        for encoded in [vec![], vec![6, 0], vec![5, 9, 3], vec![6, 9, 3, 0]] {
            assert_eq!(pipeline.decode(encoded).unwrap_err().kind(), Kind::Corrupt);
        }
    }
}
