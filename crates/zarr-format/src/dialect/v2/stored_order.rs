//! Tracks the byte order of elements between the filters of v2.
//!
//! In v2 a filter gets bytes as they would be stored, and names its own types; in final v3 it gets numbers, and only
//! codec `bytes` has a byte order. Both are equivalent if each filter reads the type that the previous one has written.
//! `WordOrder` checks that, and determines the byte order of `bytes`. After `bytes`, filters get bytes in v3 too.

use serde_json::{Map, Value, json};

use crate::model::CodecSpec;

/// The byte order of elements: the length of their words in bytes, and whether the words are big-endian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WordOrder {
    word: usize,
    big: bool,
}

impl WordOrder {
    /// Returns the order of an array's elements.
    pub(super) fn new(word: usize, big: bool) -> WordOrder {
        WordOrder {
            word,
            big: big && word > 1,
        }
    }

    /// Whether words are big-endian.
    pub(super) fn is_big(self) -> bool {
        self.big
    }

    /// Returns the codec `bytes` for this order.
    pub(super) fn bytes_codec(self) -> CodecSpec {
        let configuration = match self {
            WordOrder { word: 0 | 1, .. } => Value::Null,
            WordOrder { big: true, .. } => json!({ "endian": "big" }),
            WordOrder { big: false, .. } => json!({ "endian": "little" }),
        };
        CodecSpec::new("bytes", configuration)
    }

    /// Returns the order after a filter, or `None` if the filter reads the elements as another type, so that it must
    /// get bytes.
    pub(super) fn after(self, id: &str, filter: &Map<String, Value>) -> Option<WordOrder> {
        let named = |name: &str| {
            filter
                .get(name)
                .and_then(Value::as_str)
                .and_then(WordOrder::read)
        };
        let (taken, given) = match id {
            "delta" | "fixedscaleoffset" | "quantize" => (named("dtype"), named("astype")),
            "astype" => (named("decode_dtype"), named("encode_dtype")),
            "categorize" => (None, named("astype")),
            "packbits" => (Some(WordOrder::new(1, false)), None),
            _ => return Some(self),
        };
        let taken = taken.unwrap_or(self);
        let same = taken == self || !taken.big && !self.big;
        same.then_some(given.unwrap_or(taken))
    }

    /// Reads a type as numpy names it: `>i4`, `|u1`, `complex64`.
    fn read(dtype: &str) -> Option<WordOrder> {
        let plain = dtype.trim_start_matches(['<', '>', '|', '=']);
        // The unit of a date is between brackets.
        let plain = plain.split('[').next().unwrap_or(plain);
        let start = plain.find(|c: char| c.is_ascii_digit());
        let (kind, size) = plain.split_at(start.unwrap_or(plain.len()));
        let size: usize = size.parse().unwrap_or(1);
        let bytes = if kind.len() > 1 { size / 8 } else { size };
        let word = if kind.starts_with('c') {
            bytes / 2
        } else {
            bytes
        };
        Some(WordOrder::new(word, dtype.starts_with('>'))).filter(|_| !kind.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(order: WordOrder, filter: Value) -> Option<WordOrder> {
        let members = filter.as_object().unwrap();
        order.after(members["id"].as_str().unwrap(), members)
    }

    #[test]
    fn types_of_numpy_have_their_order() {
        for (dtype, word, big) in [
            ("<i4", 4, false),
            (">f8", 8, true),
            ("|u1", 1, false),
            (">u1", 1, false),
            (">c16", 8, true),
            ("int32", 4, false),
            ("complex64", 4, false),
            (">M8[ns]", 8, true),
            ("bool", 0, false),
        ] {
            assert_eq!(
                WordOrder::read(dtype),
                Some(WordOrder { word, big }),
                "{dtype}"
            );
        }
    }

    #[test]
    fn a_filter_may_change_the_order() {
        let little = WordOrder::new(8, false);
        let cast = json!({ "id": "astype", "decode_dtype": "<f8", "encode_dtype": ">f4" });
        assert_eq!(after(little, cast), Some(WordOrder::new(4, true)));
        let packed = json!({ "id": "packbits" });
        let codec = after(WordOrder::new(1, false), packed)
            .unwrap()
            .bytes_codec();
        assert!(codec.configuration.is_empty());
        let same = json!({ "id": "delta", "dtype": ">i4" });
        assert_eq!(
            after(WordOrder::new(4, true), same),
            Some(WordOrder::new(4, true))
        );
    }

    #[test]
    fn what_is_taken_for_something_else_has_to_be_bytes() {
        for (order, dtype) in [
            (WordOrder::new(4, false), ">i4"),
            (WordOrder::new(4, true), "<i4"),
            (WordOrder::new(4, true), "|u1"),
            (WordOrder::new(4, true), ">i8"),
            (WordOrder::new(1, false), ">i4"),
        ] {
            assert_eq!(
                after(order, json!({ "id": "delta", "dtype": dtype })),
                None,
                "{dtype}"
            );
        }
        // Little-endian bytes are the same for any type.
        let view = json!({ "id": "delta", "dtype": "<i8" });
        assert!(after(WordOrder::new(1, false), view).is_some());
    }
}
