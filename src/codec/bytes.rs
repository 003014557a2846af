//! Codec `bytes` (once `endian`): elements one after the other, in either byte order.
//!
//! Little-endian costs nothing, not even a copy; big-endian is turned round in place. Which part of an
//! element has an order is the data type's business (`DataType::word`).

use crate::error::Result;

use super::config::Members;
use super::kind::ArrayToBytes;
use super::kind::Codec;
use super::kind::Data;
use super::kind::Form;
use super::kind::Length;
use super::kind::Place;

/// Elements as they are, or turned round.
#[derive(Debug)]
struct Bytes {
    length: usize,
    /// What is turned round; 1 if nothing is.
    word: usize,
}

/// Reads the configuration (codec `bytes`, "Configuration parameters").
pub(super) fn build(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    let order = members.word("endian", &["little", "big"])?;
    let word = place.form.data_type.word();
    let word = match order {
        Some("big") => word,
        Some(_) => 1,
        None if word == 1 => 1,
        None => {
            let name = place.form.data_type.v3_name();
            return Err(members.wrong("endian", format!("little or big for data type {name}")));
        }
    };
    let length = place.form.bytes(place.max_chunk)?;
    Ok(Codec::ArrayToBytes(Box::new(Bytes { length, word })))
}

/// Returns the codec for little-endian elements.
pub(super) fn little(form: &Form, max_chunk: u64) -> Result<Box<dyn ArrayToBytes>> {
    Ok(Box::new(Bytes {
        length: form.bytes(max_chunk)?,
        word: 1,
    }))
}

impl Bytes {
    fn turn<'a>(&self, mut data: Data<'a>) -> Data<'a> {
        if self.word > 1 {
            swap_words(data.to_mut(), self.word);
        }
        data
    }
}

impl ArrayToBytes for Bytes {
    fn encoded_length(&self) -> Length {
        Length::Exact(self.length)
    }

    fn is_identity(&self) -> bool {
        self.word == 1
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        Length::Exact(self.length).check("bytes", encoded.len())?;
        Ok(self.turn(encoded))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        Ok(self.turn(decoded))
    }
}

/// Turns each word of `width` bytes round. A rest shorter than a word is left as it is.
pub(super) fn swap_words(data: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => swap_each::<2>(data),
        4 => swap_each::<4>(data),
        8 => swap_each::<8>(data),
        _ => data.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// With the width known when compiled, this becomes byte-shuffle instructions.
fn swap_each<const W: usize>(data: &mut [u8]) {
    for word in data.as_chunks_mut::<W>().0 {
        word.reverse();
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::tests::pipeline;
    use crate::error::Kind;
    use serde_json::json;

    #[test]
    fn big_endian_turns_each_word() {
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
    fn complex_numbers_turn_by_halves_and_raw_not_at_all() {
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
    fn identity_keeps_the_allocation() {
        let pipeline = pipeline("float64", &[4], json!([])).unwrap();
        assert!(pipeline.is_identity());
        let chunk = vec![7; 32];
        let place = chunk.as_ptr();
        let decoded = pipeline.decode(chunk).unwrap();
        assert_eq!(decoded.as_ptr(), place);
    }

    #[test]
    fn byte_order_may_be_absent_only_where_it_has_no_meaning() {
        let codecs = json!([{ "name": "bytes" }]);
        assert!(pipeline("uint8", &[4], codecs.clone()).is_ok());
        let error = pipeline("uint16", &[4], codecs).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(
            error.to_string().contains("configuration.endian"),
            "{error}"
        );
    }

    #[test]
    fn any_other_length_is_corrupt() {
        let pipeline = pipeline("uint8", &[4], json!(["endian"])).unwrap();
        for length in [0, 3, 5] {
            assert_eq!(
                pipeline.decode(vec![0; length]).unwrap_err().kind(),
                Kind::Corrupt
            );
        }
    }
}
