//! Codecs `vlen-utf8`, `vlen-bytes` and numcodecs' `vlen-array`: store each element after its length.
//!
//! A chunk has the number of elements, then the length and the bytes of each element. Decoded elements without a fixed
//! length have almost the same form, so decoding only checks and copies them. Some writers use these codecs also for
//! elements of fixed length, which decoding pads with zeros. Numbers in lists may be big-endian.

use std::borrow::Cow;

use crate::codec::config::Configuration;
use crate::codec::order::bytes::swap_words;
use crate::codec::records::{self, LENGTH_PREFIX};
use crate::codec::traits::{ArrayRepr, ArrayToBytes, ChainPosition, Codec, Data, Length};
use crate::dialect::typestr;
use crate::error::{Error, Result};
use crate::model::{DataType, utf32_bytes, utf32_text};

/// Which bytes an element may contain: UTF-8 text or any bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Content {
    Text,
    Any,
}

/// A codec that stores the length before each element (`vlen-utf8` and others).
#[derive(Debug)]
struct Vlen {
    repr: ArrayRepr,
    count: usize,
    content: Content,
    /// Width in bytes of the numbers whose bytes are swapped in an element; 1 if none are.
    swapped: usize,
    encoded: Length,
}

/// Builds `vlen-utf8` (extension codec `vlen-utf8`, "Format and algorithm").
pub(crate) fn utf8(_members: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    build(position, Content::Text, 1)
}

/// Builds `vlen-bytes` (extension codec `vlen-bytes`, "Format and algorithm").
pub(crate) fn bytes(_members: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    build(position, Content::Any, 1)
}

/// Builds `vlen-array`, whose elements are lists of numbers of type `dtype` (numcodecs, `VLenArray`).
pub(crate) fn array(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let wrong = || config.unexpected("dtype", "a numeric type");
    let typed = typestr::parse(config.get("dtype").ok_or_else(wrong)?)?;
    let word = typed.data_type.word();
    build(
        position,
        Content::Any,
        if typed.is_big() { word } else { 1 },
    )
}

fn build(position: &ChainPosition<'_>, content: Content, swapped: usize) -> Result<Codec> {
    let repr = position.repr.clone();
    let decoded = position.length()?;
    let count: u64 = repr.shape.iter().product();
    let count = usize::try_from(count).map_err(|error| Error::too_large("chunk_shape", error))?;
    let counts = count.saturating_add(1).saturating_mul(LENGTH_PREFIX);
    Ok(Codec::ArrayToBytes(Box::new(Vlen {
        repr,
        count,
        content,
        swapped,
        encoded: decoded.bounding(decoded.upper_bound().saturating_add(counts)),
    })))
}

impl Vlen {
    /// Checks every element of an encoded chunk and calls `visit` with the element.
    fn for_each(&self, encoded: &[u8], mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let corrupt = |what: String| Error::corrupt("vlen", what);
        let cut = || corrupt("the chunk is cut off within an element".to_string());
        let (count, mut rest) = encoded
            .split_first_chunk::<LENGTH_PREFIX>()
            .ok_or_else(cut)?;
        let count = u32::from_le_bytes(*count) as usize;
        if count != self.count {
            return Err(corrupt(format!(
                "expected {} elements, found {count}",
                self.count
            )));
        }
        for _ in 0..count {
            let (length, after) = rest.split_first_chunk::<LENGTH_PREFIX>().ok_or_else(cut)?;
            let length = u32::from_le_bytes(*length) as usize;
            let (element, after) = after.split_at_checked(length).ok_or_else(cut)?;
            if self.content == Content::Text && std::str::from_utf8(element).is_err() {
                return Err(corrupt("an element is not valid UTF-8".to_string()));
            }
            visit(element)?;
            rest = after;
        }
        match rest.len() {
            0 => Ok(()),
            more => Err(corrupt(format!(
                "{more} unexpected bytes after the last element"
            ))),
        }
    }

    /// Swaps the bytes of all numbers in elements without a fixed length.
    fn swap(&self, mut records: Vec<u8>) -> Vec<u8> {
        let mut offset = 0;
        while self.swapped > 1
            && let Some(rest) = records.get_mut(offset..)
            && let Some((record, _)) = records::split_first(rest)
        {
            let length = record.len();
            swap_words(&mut rest[LENGTH_PREFIX..length], self.swapped);
            offset += length;
        }
        records
    }

    /// Appends an element of fixed length to `out`, padded with zeros; fails with `Corrupt` if it is longer than
    /// `size`.
    fn pad(&self, element: &[u8], size: usize, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + size;
        match &self.repr.data_type {
            DataType::FixedText(_) => {
                out.extend(utf32_bytes(&String::from_utf8_lossy(element)));
            }
            _ => out.extend_from_slice(element),
        }
        if out.len() > end {
            let found = format!("an element is longer than {}", self.repr.data_type);
            return Err(Error::corrupt("vlen", found));
        }
        out.resize(end, 0);
        Ok(())
    }

    /// Returns the bytes of an element of fixed length without its trailing zeros.
    fn unpad(&self, element: &[u8]) -> Vec<u8> {
        if let DataType::FixedText(_) = self.repr.data_type {
            return utf32_text(element).into_bytes();
        }
        let length = element
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        element[..length].to_vec()
    }
}

impl ArrayToBytes for Vlen {
    fn encoded_length(&self) -> Length {
        self.encoded
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let Some(size) = self.repr.data_type.size() else {
            self.for_each(&encoded, |_| Ok(()))?;
            let mut records = encoded.into_owned();
            records.drain(..LENGTH_PREFIX);
            return Ok(Cow::Owned(self.swap(records)));
        };
        let mut out = Vec::with_capacity(self.count.saturating_mul(size));
        self.for_each(&encoded, |element| self.pad(element, size, &mut out))?;
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let count = u32::try_from(self.count).map_err(|error| Error::too_large("chunk", error))?;
        let mut out = count.to_le_bytes().to_vec();
        match self.repr.data_type.size() {
            None => {
                out.extend(self.swap(decoded.into_owned()));
                self.for_each(&out, |_| Ok(()))
                    .map_err(|error| Error::invalid("chunk", error.detail()))?;
            }
            Some(size) => {
                for element in decoded.chunks_exact(size) {
                    records::append(&mut out, &self.unpad(element))?;
                }
            }
        }
        Ok(Cow::Owned(out))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::Pipeline;
    use crate::codec::tests::{array, assert_corrupt, pipeline};
    use crate::model::DataType;

    const STORED: &[u8] = b"\x03\0\0\0\x02\0\0\0hi\0\0\0\0\x02\0\0\0\xc3\xa9";

    #[test]
    fn text_of_variable_length_round_trips() {
        let pipeline = pipeline("string", &[3], json!(["vlen-utf8"])).unwrap();
        let decoded = pipeline.decode(STORED.to_vec()).unwrap();
        assert_eq!(decoded, &STORED[4..]);
        assert_eq!(pipeline.encode(&decoded).unwrap(), STORED);
    }

    #[test]
    fn elements_of_fixed_length_are_padded() {
        for (data_type, codec, decoded) in [
            (
                DataType::FixedBytes(2),
                "vlen-bytes",
                &b"hi\0\0\xc3\xa9"[..],
            ),
            (
                DataType::FixedText(2),
                "vlen-utf8",
                b"h\0\0\0i\0\0\0\0\0\0\0\0\0\0\0\xe9\0\0\0\0\0\0\0",
            ),
        ] {
            let mut array = array("uint8", &[3], json!([codec]));
            array.fill_value.bytes = vec![0; data_type.size().unwrap()];
            array.data_type = data_type;
            let pipeline = Pipeline::new(&array, 1 << 20).unwrap();
            assert_eq!(pipeline.decode(STORED.to_vec()).unwrap(), decoded);
            assert_eq!(pipeline.encode(decoded).unwrap(), STORED);
        }
    }

    #[test]
    fn big_endian_lists_are_decoded_to_little_endian() {
        let codec = json!({ "name": "vlen-array", "configuration": { "dtype": ">i2" } });
        let mut array = array("uint8", &[2], json!([codec]));
        array.data_type = DataType::List(Box::new(DataType::Int(2)));
        let pipeline = Pipeline::new(&array, 1 << 20).unwrap();
        let stored = b"\x02\0\0\0\x04\0\0\0\0\x01\0\x02\x02\0\0\0\0\x03";
        let decoded = b"\x04\0\0\0\x01\0\x02\0\x02\0\0\0\x03\0";
        assert_eq!(pipeline.decode(stored.to_vec()).unwrap(), decoded);
        assert_eq!(pipeline.encode(decoded).unwrap(), stored);
    }

    #[test]
    fn invalid_vlen_chunks_are_corrupt() {
        let pipeline = pipeline("string", &[3], json!(["vlen-utf8"])).unwrap();
        let mut long = STORED.to_vec();
        long.push(0);
        let mut huge = STORED.to_vec();
        huge[4..8].fill(0xff);
        let mut fewer = STORED.to_vec();
        fewer[0] = 2;
        let mut latin = STORED.to_vec();
        *latin.last_mut().unwrap() = b'(';
        for wrong in [long, huge, fewer, latin, STORED[..9].to_vec(), vec![]] {
            assert_corrupt(&pipeline, wrong);
        }
    }
}
