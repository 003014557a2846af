//! Codecs `json2` and `msgpack2` of numcodecs: store a chunk as one list.
//!
//! The list has the elements, nested dimension by dimension, then the name of numpy's type and the shape.
//! `json_text.rs` and `message_pack.rs` write and read the list as JSON and MessagePack; `list.rs` has what they share.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::model::DataType;

use super::config::Configuration;
use super::records::{self, LENGTH_PREFIX};
use super::traits::{ArrayRepr, ArrayToBytes, ChainPosition, Codec, Data, Length};
use list::{ChunkBuilder, ObjectElement, dtype_of};

pub(super) mod categorize;
mod json_text;
mod list;
mod message_pack;
pub(super) mod vlen;

#[derive(Clone, Copy, Debug)]
enum Notation {
    Json,
    MessagePack,
}

/// A codec that stores a chunk of Python objects as one list.
#[derive(Debug)]
struct ObjectCodec {
    repr: ArrayRepr,
    notation: Notation,
    /// numpy's name of the data type, with the byte order of the array.
    dtype: String,
    decoded: Length,
}

/// Builds `json2`, and `json`, the same format without the shape (numcodecs, `JSON`).
pub(super) fn json(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    // Chunks of every encoding are read as UTF-8. No store with another encoding is known.
    config.keyword("encoding", &["utf-8", "utf8", "UTF-8", "ascii"])?;
    build(config, position, Notation::Json)
}

/// Builds `msgpack2`, and `msgpack`, the same format without the shape (numcodecs, `MsgPack`).
pub(super) fn message_pack(
    config: Configuration<'_>,
    position: &ChainPosition<'_>,
) -> Result<Codec> {
    build(config, position, Notation::MessagePack)
}

/// Builds the JSON or MessagePack codec. The dialect adds the parameter `endian`, the byte order of the array's type.
fn build(
    config: Configuration<'_>,
    position: &ChainPosition<'_>,
    notation: Notation,
) -> Result<Codec> {
    let repr = position.repr.clone();
    let dtype = dtype_of(&repr.data_type)?;
    let is_big = config.keyword("endian", &["little", "big"])? == Some("big");
    let decoded = position.length()?;
    Ok(Codec::ArrayToBytes(Box::new(ObjectCodec {
        repr,
        notation,
        dtype: if is_big {
            dtype.replace('<', ">")
        } else {
            dtype
        },
        decoded,
    })))
}

impl ObjectCodec {
    /// Splits a decoded chunk into elements; fails with `Invalid` if their number is not the product of the shape.
    fn elements<'a>(&self, decoded: &'a [u8]) -> Result<Vec<ObjectElement<'a>>> {
        let data_type = &self.repr.data_type;
        let element = |part| ObjectElement::of(data_type, part);
        if let Some(size) = data_type.size() {
            return Ok(decoded.chunks_exact(size).map(element).collect());
        }
        let parts = records::split(decoded, self.repr.shape.iter().product())
            .map_err(|error| Error::invalid("chunk", error.detail()))?;
        let bytes = parts
            .into_iter()
            .map(|part| part.get(LENGTH_PREFIX..).unwrap_or_default());
        Ok(bytes.map(element).collect())
    }
}

impl ArrayToBytes for ObjectCodec {
    fn encoded_length(&self) -> Length {
        // As JSON text, with escapes and decimal digits, a value may be several times as long as decoded.
        let most = self.decoded.upper_bound().saturating_mul(8);
        self.decoded.bounding(most).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let mut chunk = ChunkBuilder::new(&self.repr, self.decoded.upper_bound());
        match self.notation {
            Notation::Json => json_text::read(&encoded, &mut chunk)?,
            Notation::MessagePack => message_pack::read(&encoded, &mut chunk)?,
        }
        Ok(Cow::Owned(chunk.finish()))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let elements = self.elements(&decoded)?;
        let encoded = match self.notation {
            Notation::Json => json_text::write(&elements, &self.dtype, &self.repr.shape),
            Notation::MessagePack => message_pack::write(&elements, &self.dtype, &self.repr.shape),
        };
        encoded.map(Cow::Owned)
    }

    /// Chunks of data type `Object` are lossy: a string that looks like a number is written as a number.
    fn is_lossy(&self) -> bool {
        self.repr.data_type == DataType::Object
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::codec::Pipeline;
    use crate::codec::tests::{array, assert_corrupt};
    use crate::error::{Kind, Result};
    use crate::model::DataType;

    pub(in crate::codec) const NOTATIONS: [&str; 2] = ["numcodecs.json2", "numcodecs.msgpack2"];

    pub(in crate::codec) fn codec(
        name: &str,
        data_type: DataType,
        shape: &[u64],
    ) -> Result<Pipeline> {
        let mut array = array("uint8", shape, json!([name]));
        array.fill_value.bytes = vec![0; data_type.size().unwrap_or(0)];
        array.data_type = data_type;
        Pipeline::new(&array, 1 << 16)
    }

    pub(in crate::codec) fn json2(shape: &[u64]) -> Pipeline {
        codec(NOTATIONS[0], DataType::Object, shape).unwrap()
    }

    pub(in crate::codec) fn msgpack2(shape: &[u64]) -> Pipeline {
        codec(NOTATIONS[1], DataType::Object, shape).unwrap()
    }

    pub(in crate::codec) fn records(elements: &[&str]) -> Vec<u8> {
        let record = |text: &&str| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        elements.iter().flat_map(record).collect()
    }

    #[test]
    fn objects_of_every_shape_round_trip() {
        let elements = [
            "",
            "\u{e9}\"\n",
            r#"{"b":[1,-2.5,null,true]}"#,
            "[[],{}]",
            "NaN",
            "-7",
        ];
        for name in NOTATIONS {
            for shape in [&[6][..], &[2, 3], &[1, 6, 1]] {
                let pipeline = codec(name, DataType::Object, shape).unwrap();
                let encoded = pipeline.encode(&records(&elements)).unwrap();
                assert_eq!(
                    pipeline.decode(encoded).unwrap(),
                    records(&elements),
                    "{name}"
                );
            }
            let scalar = codec(name, DataType::Object, &[]).unwrap();
            let encoded = scalar.encode(&records(&["[1]"])).unwrap();
            assert_eq!(scalar.decode(encoded).unwrap(), records(&["[1]"]), "{name}");
        }
    }

    #[test]
    fn unsupported_or_wrong_element_types_are_refused() {
        for name in NOTATIONS {
            let error = codec(name, DataType::Complex(8), &[2]).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported);
        }
        let other = br#"[1,2,"<f8",[2]]"#;
        let numbers = codec(NOTATIONS[0], DataType::Int(4), &[2]).unwrap();
        assert_corrupt(&numbers, other.to_vec());
        for wrong in [
            r#"[1,"2","<i4",[2]]"#,
            r#"[1,null,"<i4",[2]]"#,
            r#"[1,3e9,"<i4",[2]]"#,
        ] {
            let error = numbers.decode(wrong.as_bytes().to_vec()).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{wrong}");
        }
    }
}
