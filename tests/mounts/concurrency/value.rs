//! Makes contents that show which write they are from.
//!
//! They also show whether the content is complete, and whether it is from one write only.
//!
//! A file is a sequence of records of 32 bytes, each with the key, the writer, the number of the write, its own index
//! and a checksum. A chunk of an array is one number, repeated.

use std::fmt;

use serde::{Deserialize, Serialize};

const RECORD: usize = 32;

/// The minimum and maximum length in bytes of a file that is written as a whole.
const LENGTHS: (u32, u32) = (100, 8192);

pub(crate) const CHUNK: usize = 4096;

/// Identifies a write: the key, the writer, and the number among the writer's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Tag {
    pub(crate) key: u16,
    pub(crate) writer: u8,
    pub(crate) number: u32,
}

/// The content of a key, as a write or a removal has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Value {
    Missing,
    Empty,
    /// The first bytes of the content of this write; the second field is the length in bytes.
    Content(Tag, u32),
}

/// What an actor has seen of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Seen {
    Value(Value),
    /// The length of the file in bytes; `None` if the key is missing.
    Length(Option<u64>),
    Listed(bool),
    /// A content with parts of several writes, or with less than one record.
    Mixture(Vec<Tag>),
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{} w{} n{}", self.key, self.writer, self.number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Missing => f.write_str("nothing"),
            Value::Empty => f.write_str("no bytes"),
            Value::Content(tag, length) => write!(f, "[{tag}], {length} bytes"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Value(value) => value.fmt(f),
            Seen::Length(None) => f.write_str("nothing"),
            Seen::Length(Some(length)) => write!(f, "{length} bytes"),
            Seen::Listed(true) => f.write_str("its name"),
            Seen::Listed(false) => f.write_str("no name"),
            Seen::Mixture(tags) => write!(f, "a mixture of {tags:?}"),
        }
    }
}

impl Value {
    pub(crate) fn length(self) -> Option<u64> {
        match self {
            Value::Missing => None,
            Value::Empty => Some(0),
            Value::Content(_, length) => Some(u64::from(length)),
        }
    }

    /// Returns the write that the value comes from, or `None` if the file is missing or empty.
    pub(crate) fn tag(self) -> Option<Tag> {
        match self {
            Value::Content(tag, _) => Some(tag),
            Value::Missing | Value::Empty => None,
        }
    }

    /// Returns the value of the same write with another length.
    pub(crate) fn cut(self, length: u32) -> Value {
        match self {
            Value::Content(tag, _) if length > 0 => Value::Content(tag, length),
            _ => Value::Empty,
        }
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        let Value::Content(tag, length) = self else {
            return Vec::new();
        };
        let length = length as usize;
        let records = (0..length.div_ceil(RECORD)).flat_map(|place| tag.record(place));
        records.take(length).collect()
    }

    pub(crate) fn chunk(self) -> Vec<u8> {
        let number = match self {
            Value::Content(tag, _) => tag.packed(),
            _ => 0,
        };
        number.to_le_bytes().repeat(CHUNK / 8)
    }
}

impl Seen {
    /// Whether what was seen agrees with a key that has the value `value`.
    pub(crate) fn is_of(&self, value: Value) -> bool {
        match self {
            Seen::Value(seen) => *seen == value,
            Seen::Length(length) => *length == value.length(),
            Seen::Listed(is_listed) => *is_listed == (value != Value::Missing),
            Seen::Mixture(_) => false,
        }
    }

    /// Returns the writes from which parts were seen.
    pub(crate) fn tags(&self) -> impl Iterator<Item = Tag> + '_ {
        let (one, several) = match self {
            Seen::Value(value) => (value.tag(), &[][..]),
            Seen::Mixture(tags) => (None, &tags[..]),
            Seen::Length(_) | Seen::Listed(_) => (None, &[][..]),
        };
        one.into_iter().chain(several.iter().copied())
    }

    /// Finds out which write the bytes of a file are from; `None` stands for a missing file.
    pub(crate) fn of_file(bytes: Option<&[u8]>) -> Seen {
        let Some(bytes) = bytes else {
            return Seen::Value(Value::Missing);
        };
        if bytes.is_empty() {
            return Seen::Value(Value::Empty);
        }
        let mut tags: Vec<Tag> = bytes.chunks(RECORD).filter_map(Tag::parse).collect();
        tags.dedup();
        if let [tag] = tags[..] {
            let value = Value::Content(tag, bytes.len() as u32);
            if value.bytes() == bytes {
                return Seen::Value(value);
            }
        }
        Seen::Mixture(tags)
    }

    /// Finds out which write the bytes of a decoded chunk are from; a missing chunk reads as zeros.
    pub(crate) fn of_chunk(bytes: &[u8]) -> Seen {
        let numbers = bytes.chunks(8).map(|bytes| {
            let bytes = bytes.try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.dedup();
        match numbers[..] {
            [0] if bytes.len() == CHUNK => Seen::Value(Value::Missing),
            [number] if bytes.len() == CHUNK => {
                Seen::Value(Value::Content(Tag::unpacked(number), CHUNK as u32))
            }
            _ => Seen::Mixture(numbers.into_iter().map(Tag::unpacked).collect()),
        }
    }
}

impl Tag {
    /// Returns the value that a file has after this write of the whole file.
    pub(crate) fn file(self) -> Value {
        let (shortest, longest) = LENGTHS;
        let spread = crc32c::crc32c(&self.packed().to_le_bytes()) % (longest - shortest);
        Value::Content(self, shortest + spread)
    }

    /// Returns the value that a chunk has after this write.
    pub(crate) fn chunk(self) -> Value {
        Value::Content(self, CHUNK as u32)
    }

    fn packed(self) -> u64 {
        u64::from(self.key) << 48 | u64::from(self.writer) << 40 | u64::from(self.number)
    }

    fn unpacked(number: u64) -> Tag {
        Tag {
            key: (number >> 48) as u16,
            writer: (number >> 40) as u8,
            number: number as u32,
        }
    }

    fn record(self, place: usize) -> Vec<u8> {
        let Tag {
            key,
            writer,
            number,
        } = self;
        let text = format!("k{key:04} w{writer:02} n{number:07} i{place:03} ");
        let checksum = crc32c::crc32c(text.as_bytes()) & 0xff_ffff;
        format!("{text}c{checksum:06x}\n").into_bytes()
    }

    /// Returns the write that a record is from, or `None` if the record is not complete or damaged.
    fn parse(bytes: &[u8]) -> Option<Tag> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split_whitespace();
        let mut number = |letter| words.next()?.strip_prefix(letter)?.parse::<u32>().ok();
        let (key, writer) = (number('k')?, number('w')?);
        let tag = Tag {
            key: u16::try_from(key).ok()?,
            writer: u8::try_from(writer).ok()?,
            number: number('n')?,
        };
        let place = number('i')? as usize;
        (tag.record(place) == bytes).then_some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        key: 12,
        writer: 3,
        number: 4567,
    };

    #[test]
    fn the_bytes_of_a_file_identify_its_write() {
        let value = TAG.file();
        let bytes = value.bytes();
        assert_eq!(Some(bytes.len() as u64), value.length());
        assert_eq!(Seen::of_file(Some(&bytes)), Seen::Value(value));
        let cut = &bytes[..70];
        assert_eq!(Seen::of_file(Some(cut)), Seen::Value(value.cut(70)));
        assert_eq!(Seen::of_file(None), Seen::Value(Value::Missing));
        assert_eq!(
            Seen::of_chunk(&TAG.chunk().chunk()),
            Seen::Value(TAG.chunk())
        );
        assert_eq!(Seen::of_chunk(&[0; CHUNK]), Seen::Value(Value::Missing));
    }

    #[test]
    fn a_byte_of_another_write_is_detected() {
        let bytes = TAG.file().bytes();
        let other = Tag {
            number: 4568,
            ..TAG
        };
        let (other, end) = (other.file().cut(8000).bytes(), bytes.len());
        for place in 0..end {
            let mut mixed = bytes.clone();
            mixed[place] ^= 1;
            assert!(matches!(Seen::of_file(Some(&mixed)), Seen::Mixture(_)));
        }
        let joined = [&bytes[..64], &other[64..]].concat();
        let tags = vec![
            TAG,
            Tag {
                number: 4568,
                ..TAG
            },
        ];
        assert_eq!(Seen::of_file(Some(&joined)), Seen::Mixture(tags));
        // A record that occurs twice, or at a wrong index, is detected.
        let shifted = [&bytes[..64], &bytes[32..]].concat();
        assert!(matches!(Seen::of_file(Some(&shifted)), Seen::Mixture(_)));
    }
}
