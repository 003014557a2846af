//! Codec `bytes` (`endian` in older drafts): stores elements consecutively in either byte order.
//!
//! Little-endian elements are not even copied; big-endian ones are swapped in place. `DataType::words` states which
//! parts of an element have a byte order. Numbers of fewer than eight bits are extended when they are decoded, since
//! some writers leave other values in the unused bits.

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::traits::{ArrayRepr, ArrayToBytes, ChainPosition, Codec, Data, Length};
use crate::error::Result;
use crate::grid::element_blocks::BLOCK;
use crate::model::{DataType, Words};

/// Codec `bytes`: which bytes of the elements are swapped, and which bits are extended.
#[derive(Debug)]
struct ByteOrderCodec {
    length: usize,
    swap: Swap,
    /// For numbers of fewer than eight bits: how many bits of a byte are used, and whether the number is signed.
    narrow: Option<(u32, bool)>,
}

/// Which words (numbers in an element) have their bytes swapped.
#[derive(Debug, PartialEq)]
enum Swap {
    Nothing,
    /// Swap the bytes of all words, each of N bytes.
    Words(usize),
    /// Swap the bytes of the listed words only, in elements of N bytes.
    Fields(usize, Vec<Words>),
}

/// Builds the codec (codec `bytes`, "Configuration parameters"; data type `structured`, "Missing endian
/// configuration"). Without `endian`, elements are little-endian, as zarr-python reads them. Dialect v2 sets `endian`
/// to `mixed` if the fields of a structure have different byte orders; parameter `big` then has a boolean for each of
/// `DataType::words`.
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let data_type = &position.repr.data_type;
    let words = data_type.words();
    let big = match config.keyword("endian", &["little", "big", "mixed"])? {
        Some("big") => vec![true; words.len()],
        Some("mixed") => mixed(config, words.len())?,
        Some(_) | None => vec![false; words.len()],
    };
    let swapped = words.into_iter().zip(big).filter(|(_, big)| *big);
    let swapped: Vec<Words> = swapped.map(|(words, _)| words).collect();
    let swap = match swapped.as_slice() {
        [] => Swap::Nothing,
        [words] if words.width * words.count == position.repr.element_size()? => {
            Swap::Words(words.width)
        }
        _ => Swap::Fields(position.repr.element_size()?, swapped),
    };
    Ok(Codec::ArrayToBytes(Box::new(ByteOrderCodec {
        length: position.bytes()?,
        swap,
        narrow: narrow_bits(data_type),
    })))
}

fn mixed(config: Configuration<'_>, count: usize) -> Result<Vec<bool>> {
    let list = config.get("big").and_then(Value::as_array);
    let big: Option<Vec<bool>> = list.and_then(|list| list.iter().map(Value::as_bool).collect());
    big.filter(|big| big.len() == count)
        .ok_or_else(|| config.unexpected("big", format!("{count} booleans")))
}

fn narrow_bits(data_type: &DataType) -> Option<(u32, bool)> {
    match data_type {
        DataType::Small(number) => number.narrow(),
        _ => None,
    }
}

/// Returns codec `bytes` for little-endian elements; a chunk may have at most `max_chunk` bytes.
pub(crate) fn little_endian(repr: &ArrayRepr, max_chunk: u64) -> Result<Box<dyn ArrayToBytes>> {
    Ok(Box::new(ByteOrderCodec {
        length: repr.bytes(max_chunk)?,
        swap: Swap::Nothing,
        narrow: narrow_bits(&repr.data_type),
    }))
}

impl ByteOrderCodec {
    fn swapped<'a>(&self, mut data: Data<'a>) -> Data<'a> {
        match &self.swap {
            Swap::Nothing => {}
            Swap::Words(width) => swap_words(data.to_mut(), *width),
            Swap::Fields(element, words) => {
                for element in data.to_mut().chunks_exact_mut(*element) {
                    for words in words {
                        let end = words.offset + words.width * words.count;
                        swap_words(&mut element[words.offset..end], words.width);
                    }
                }
            }
        }
        data
    }
}

/// In every byte, replaces the bits above the lowest `bits` by the sign or by zeros.
fn extend(data: &mut [u8], bits: u32, signed: bool) {
    let unused = 8 - bits;
    for byte in data {
        let upper = *byte << unused;
        *byte = if signed {
            (upper.cast_signed() >> unused).cast_unsigned()
        } else {
            upper >> unused
        };
    }
}

impl ArrayToBytes for ByteOrderCodec {
    fn encoded_length(&self) -> Length {
        Length::Exact(self.length)
    }

    fn is_identity(&self) -> bool {
        self.swap == Swap::Nothing && self.narrow.is_none()
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        Length::Exact(self.length).check("bytes", encoded.len())?;
        let mut decoded = self.swapped(encoded);
        if let Some((bits, signed)) = self.narrow {
            extend(decoded.to_mut(), bits, signed);
        }
        Ok(decoded)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        Ok(self.swapped(decoded))
    }
}

/// Reverses the bytes of each word of `width` bytes. A partial word at the end is not changed.
pub(crate) fn swap_words(data: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => swap_each::<2>(data, |word| u16::from_le_bytes(word).to_be_bytes()),
        4 => swap_each::<4>(data, |word| u32::from_le_bytes(word).to_be_bytes()),
        8 => swap_each::<8>(data, |word| u64::from_le_bytes(word).to_be_bytes()),
        _ => data.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// Swaps each word of `W` bytes, in blocks of words (`element_blocks`) so that the loop is vectorized.
fn swap_each<const W: usize>(data: &mut [u8], swapped: impl Fn([u8; W]) -> [u8; W]) {
    let (blocks, rest) = data.as_chunks_mut::<W>().0.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for word in block {
            *word = swapped(*word);
        }
    }
    for word in rest {
        word.reverse();
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::tests::{assert_corrupt, pipeline};
    use serde_json::json;

    #[test]
    fn big_endian_words_are_byte_swapped() {
        let codecs = json!([{ "name": "bytes", "configuration": { "endian": "big" } }]);
        let pipeline = pipeline("int32", &[2], codecs).unwrap();
        assert!(!pipeline.is_identity());
        assert_eq!(
            pipeline.decode(vec![0, 0, 0, 1, 0, 0, 2, 0]).unwrap(),
            [1, 0, 0, 0, 0, 2, 0, 0]
        );
        assert_eq!(
            pipeline.encode(&[1, 0, 0, 0, 0, 2, 0, 0]).unwrap(),
            [0, 0, 0, 1, 0, 0, 2, 0]
        );
    }

    #[test]
    fn complex_parts_are_swapped_separately_and_raw_bytes_never() {
        let codecs = json!([{ "name": "bytes", "configuration": { "endian": "big" } }]);
        let complex = pipeline("complex64", &[1], codecs.clone()).unwrap();
        assert_eq!(
            complex.decode(vec![1, 2, 3, 4, 5, 6, 7, 8]).unwrap(),
            [4, 3, 2, 1, 8, 7, 6, 5]
        );
        let raw = pipeline("r24", &[1], codecs).unwrap();
        assert!(raw.is_identity());
        assert_eq!(raw.decode(vec![1, 2, 3]).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn structures_are_swapped_field_by_field() {
        use crate::codec::Pipeline;
        use crate::codec::tests::array;
        use crate::dialect::typestr;

        let dtype = json!([["a", ">i2"], ["b", "|S1"], ["c", "<i2"], ["d", ">i2", [2]]]);
        let typed = typestr::parse(&dtype).unwrap();
        let codec = typed.bytes_codec();
        let mut array = array("uint8", &[2], json!([codec.to_json()]));
        array.data_type = typed.data_type;
        array.fill_value.bytes = vec![0; 9];
        let pipeline = Pipeline::new(&array, 1 << 20).unwrap();
        let stored: Vec<u8> = (0..18).collect();
        let decoded = pipeline.decode(stored.clone()).unwrap();
        assert_eq!(decoded[..9], [1, 0, 2, 3, 4, 6, 5, 8, 7]);
        assert_eq!(decoded[9..], [10, 9, 11, 12, 13, 15, 14, 17, 16]);
        assert_eq!(pipeline.encode(&decoded).unwrap(), stored);
    }

    #[test]
    fn unused_bits_of_int4_and_uint2_are_ignored() {
        let signed = pipeline("int4", &[3], json!(["bytes"])).unwrap();
        assert_eq!(signed.decode(vec![0x78, 0xf7, 3]).unwrap(), [0xf8, 7, 3]);
        let unsigned = pipeline("uint2", &[2], json!([])).unwrap();
        assert_eq!(unsigned.decode(vec![0xff, 0x81]).unwrap(), [3, 1]);
    }

    #[test]
    fn an_identity_decode_keeps_the_allocation() {
        let pipeline = pipeline("float64", &[4], json!([])).unwrap();
        assert!(pipeline.is_identity());
        let chunk = vec![7; 32];
        let place = chunk.as_ptr();
        let decoded = pipeline.decode(chunk).unwrap();
        assert_eq!(decoded.as_ptr(), place);
    }

    #[test]
    fn a_missing_byte_order_means_little_endian() {
        for codecs in [
            json!([{ "name": "bytes" }]),
            json!([{ "name": "bytes", "configuration": { "endian": null } }]),
        ] {
            let pipeline = pipeline("uint16", &[2], codecs).unwrap();
            assert_eq!(pipeline.decode(vec![1, 0, 2, 3]).unwrap(), [1, 0, 2, 3]);
        }
        let error = pipeline(
            "uint16",
            &[4],
            json!([{ "name": "bytes", "configuration": { "endian": "middle" } }]),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("configuration.endian"), "{error}");
    }

    #[test]
    fn a_chunk_of_another_length_is_corrupt() {
        let pipeline = pipeline("uint8", &[4], json!(["endian"])).unwrap();
        for length in [0, 3, 5] {
            assert_corrupt(&pipeline, vec![0; length]);
        }
    }
}
