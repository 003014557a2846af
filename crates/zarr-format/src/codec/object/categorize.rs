//! Codec `categorize` of numcodecs: stores each text as the number of its label.
//!
//! Labels are counted from 1. All other numbers are decoded as empty text, and text without a label is encoded as 0.
//! Labels may be long and used many times, so the decoded length is computed before the chunk is allocated.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;

use crate::codec::config::Configuration;
use crate::codec::records;
use crate::codec::traits::{ArrayRepr, ArrayToArray, ChainPosition, Codec, Data};
use crate::dialect::typestr;
use crate::error::{Error, Result};
use crate::model::{DataType, utf32_bytes};

/// Codec `categorize`: its labels, and the shape and data type of decoded and encoded chunks.
#[derive(Debug)]
struct Categorize {
    decoded: ArrayRepr,
    encoded: ArrayRepr,
    /// Decoded elements by label number; number 0 is the empty text.
    elements: Vec<Vec<u8>>,
    /// Numbers by label. A label that is listed twice has the number of its last position, as in numcodecs.
    numbers: HashMap<Vec<u8>, u64>,
    /// Size of an encoded label number in bytes.
    width: usize,
    signed: bool,
    /// Maximum length of a decoded chunk in bytes.
    max_bytes: usize,
}

/// Builds `categorize` from `labels` and `astype`, the type of the encoded numbers (numcodecs, `Categorize`).
pub(crate) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let labels = labels(config)?;
    let astype = match config.get("astype") {
        None => DataType::UInt(1),
        Some(astype) => typestr::parse(astype)?.data_type,
    };
    let (width, signed) = match astype {
        DataType::UInt(width) => (width, false),
        DataType::Int(width) => (width, true),
        _ => return Err(config.unexpected("astype", "an integer type")),
    };
    let repr = position.repr;
    if !matches!(repr.data_type, DataType::Text | DataType::FixedText(_)) {
        let why = format!("categorize decodes to strings, not to {}", repr.data_type);
        return Err(Error::unsupported("codecs", why));
    }
    let empty = std::iter::once("");
    let texts = empty.chain(labels.iter().map(String::as_str));
    let elements = texts.map(|text| element(&repr.data_type, text)).collect();
    let numbered = labels.iter().zip(1_u64..);
    let numbers = numbered.map(|(label, n)| (element(&repr.data_type, label), n));
    Ok(Codec::ArrayToArray(Box::new(Categorize {
        elements,
        numbers: numbers.collect(),
        encoded: ArrayRepr {
            data_type: astype,
            shape: repr.shape.clone(),
            fill: vec![0; width],
        },
        max_bytes: position.length()?.upper_bound(),
        decoded: repr.clone(),
        width,
        signed,
    })))
}

fn labels(config: Configuration<'_>) -> Result<Vec<String>> {
    let list = config.get("labels").and_then(Value::as_array);
    let labels: Option<Vec<String>> = list.and_then(|list| {
        list.iter()
            .map(|label| Some(label.as_str()?.to_string()))
            .collect()
    });
    labels.ok_or_else(|| config.unexpected("labels", "a list of strings"))
}

/// Encodes text as an element of `data_type`, truncated to the length of the type as numpy does.
fn element(data_type: &DataType, text: &str) -> Vec<u8> {
    match data_type {
        DataType::FixedText(length) => {
            let mut bytes = utf32_bytes(text);
            bytes.resize(length.saturating_mul(4), 0);
            bytes
        }
        _ => {
            let count = u32::try_from(text.len()).unwrap_or(u32::MAX);
            [&count.to_le_bytes(), text.as_bytes()].concat()
        }
    }
}

impl Categorize {
    /// Returns the text element for an encoded label number; the empty text if no label has the number.
    fn element(&self, number: &[u8]) -> &[u8] {
        let mut wide = [0; 8];
        wide.iter_mut()
            .zip(number)
            .for_each(|(wide, byte)| *wide = *byte);
        let is_negative = self.signed && number.last().is_some_and(|byte| byte >> 7 == 1);
        let label = usize::try_from(u64::from_le_bytes(wide)).ok();
        let label = label.filter(|_| !is_negative);
        let empty = self.elements.first().map(Vec::as_slice).unwrap_or_default();
        label
            .and_then(|label| self.elements.get(label))
            .map_or(empty, Vec::as_slice)
    }

    /// Encodes a label number; fails with `Invalid` if it exceeds the range of the encoded type.
    fn number(&self, label: u64) -> Result<Vec<u8>> {
        let bits = 8 * self.width - usize::from(self.signed);
        if bits < 64 && label >> bits != 0 {
            let found = format!(
                "label {label} is out of range of {}",
                self.encoded.data_type
            );
            return Err(Error::invalid("categorize", found));
        }
        Ok(label.to_le_bytes().into_iter().take(self.width).collect())
    }

    /// Splits a decoded chunk of texts into its elements.
    fn split<'a>(&self, decoded: &'a [u8]) -> Result<Vec<&'a [u8]>> {
        match self.decoded.data_type.size() {
            Some(size) => Ok(decoded.chunks_exact(size).collect()),
            None => records::split(decoded, self.decoded.shape.iter().product())
                .map_err(|error| Error::invalid("categorize", error.detail())),
        }
    }
}

impl ArrayToArray for Categorize {
    fn encoded_repr(&self) -> &ArrayRepr {
        &self.encoded
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let numbers = encoded.chunks_exact(self.width);
        let bytes = numbers.clone().fold(0_usize, |bytes, number| {
            bytes.saturating_add(self.element(number).len())
        });
        if bytes > self.max_bytes {
            let found = format!(
                "{bytes} bytes of labels exceed the limit of {}",
                self.max_bytes
            );
            return Err(Error::too_large("categorize", found));
        }
        let mut out = Vec::with_capacity(bytes);
        numbers.for_each(|number| out.extend_from_slice(self.element(number)));
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let mut out = Vec::new();
        for part in self.split(&decoded)? {
            out.extend(self.number(self.numbers.get(part).copied().unwrap_or(0))?);
        }
        Ok(Cow::Owned(out))
    }

    /// Codec `categorize` is always lossy, since text without a label is lost.
    fn is_lossy(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::tests::array;
    use crate::error::{Kind, Result};
    use crate::model::DataType;

    fn categorize(data_type: DataType, configuration: Value) -> Result<Pipeline> {
        let codec = json!({ "name": "numcodecs.categorize", "configuration": configuration });
        let mut array = array("uint8", &[4], json!([codec, "bytes"]));
        array.fill_value.bytes = vec![0; data_type.size().unwrap_or(0)];
        array.data_type = data_type;
        Pipeline::new(&array, 1 << 20)
    }

    #[test]
    fn numbers_and_labels_are_converted_both_ways() {
        let labels = json!(["ab", "\u{e9}"]);
        let decoded = b"\x02\0\0\0ab\x02\0\0\0\xc3\xa9\0\0\0\0\x02\0\0\0ab";
        for (astype, stored) in [
            ("|u1", &b"\x01\x02\0\x01"[..]),
            ("<i2", b"\x01\0\x02\0\0\0\x01\0"),
        ] {
            let codec = categorize(
                DataType::Text,
                json!({ "labels": labels, "astype": astype }),
            )
            .unwrap();
            assert_eq!(codec.decode(stored.to_vec()).unwrap(), decoded);
            assert_eq!(codec.encode(decoded).unwrap(), stored);
        }
    }

    #[test]
    fn numbers_without_a_label_decode_to_empty_text() {
        let codec =
            categorize(DataType::Text, json!({ "labels": ["a"], "astype": "|i1" })).unwrap();
        let decoded = codec.decode(vec![0x7f, 0xff, 2, 1]).unwrap();
        assert_eq!(decoded, b"\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a");
        let unknown = b"\x01\0\0\0b\x01\0\0\0a\0\0\0\0\0\0\0\0";
        assert_eq!(codec.encode(unknown).unwrap(), [0, 1, 0, 0]);
    }

    #[test]
    fn labels_are_truncated_to_the_length_of_fixed_text() {
        let codec = categorize(DataType::FixedText(2), json!({ "labels": ["abc"] })).unwrap();
        let decoded = codec.decode(vec![1, 0, 0, 1]).unwrap();
        assert_eq!(decoded[..8], *b"a\0\0\0b\0\0\0");
        assert_eq!(decoded.len(), 32);
        assert_eq!(codec.encode(&decoded).unwrap(), [1, 0, 0, 1]);
    }

    #[test]
    fn labels_beyond_the_chunk_limit_are_too_large() {
        let long = "x".repeat(300_000);
        let codec = categorize(DataType::Text, json!({ "labels": [long] })).unwrap();
        assert_eq!(codec.decode(vec![1, 1, 1, 0]).unwrap().len(), 900_016);
        assert_eq!(codec.decode(vec![1; 4]).unwrap_err().kind(), Kind::TooLarge);
    }

    #[test]
    fn a_label_number_beyond_its_type_cannot_be_encoded() {
        let labels: Vec<String> = (1..=300).map(|n| n.to_string()).collect();
        let codec = categorize(DataType::Text, json!({ "labels": labels })).unwrap();
        let decoded = b"\x03\0\0\x00300\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(codec.encode(decoded).unwrap_err().kind(), Kind::Invalid);
    }
}
