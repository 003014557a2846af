//! The three kinds of codecs, and what each promises.
//!
//! An array between two codecs has a `Form`, bytes between two codecs have a `Length`; a codec says how its
//! encoding changes them, so that every decode knows how much it has to give before it allocates. Running
//! codecs one after the other is `chain.rs`.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::model::{DataType, bytes_of};

/// Bytes between two codecs: borrowed as long as no codec had to change them.
pub(crate) type Data<'a> = Cow<'a, [u8]>;

/// An array as one codec hands it to the next; its bytes are in C order, little-endian. An element without a
/// fixed length is a count of its bytes (u32, little-endian) and the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// The type of an element.
    pub(crate) data_type: DataType,
    /// Elements along each dimension.
    pub(crate) shape: Vec<u64>,
    /// What elements that are not stored read as.
    pub(crate) fill: Vec<u8>,
}

/// Bytes of the count before an element without a fixed length.
pub(crate) const COUNT: usize = 4;

impl Form {
    /// Returns the length of an element in bytes.
    pub(crate) fn element(&self) -> Result<usize> {
        let name = &self.data_type;
        self.data_type.size().ok_or_else(|| {
            let why = if name.is_variable() {
                "elements have no fixed length"
            } else {
                "is not known"
            };
            Error::unsupported("data_type", format!("{name}: {why}"))
        })
    }

    /// Returns how many bytes all elements have, at most `most`; elements without a fixed length have four
    /// bytes at least. `TooLarge` if there is no room for them.
    pub(crate) fn length(&self, most: u64) -> Result<Length> {
        if !self.data_type.is_variable() {
            return Ok(Length::Exact(self.bytes(most)?));
        }
        let least = bytes_of(&self.shape, COUNT)?;
        if least > most {
            let found = format!("a chunk of at least {least} bytes exceeds the limit of {most}");
            return Err(Error::too_large("chunk_shape", found));
        }
        Ok(Length::AtMost(usize::try_from(most).unwrap_or(usize::MAX)))
    }

    /// Returns the bytes of all elements; `TooLarge` above `most`.
    pub(crate) fn bytes(&self, most: u64) -> Result<usize> {
        let bytes = bytes_of(&self.shape, self.element()?)?;
        let fits = usize::try_from(bytes).ok().filter(|_| bytes <= most);
        fits.ok_or_else(|| {
            Error::too_large(
                "chunk_shape",
                format!("a chunk of {bytes} bytes exceeds the limit of {most}"),
            )
        })
    }
}

/// How many bytes a step has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Exactly that many.
    Exact(usize),
    /// Not known in advance, but never more.
    AtMost(usize),
}

impl Length {
    /// Returns the most bytes there may be.
    pub(crate) fn most(self) -> usize {
        match self {
            Length::Exact(bytes) | Length::AtMost(bytes) => bytes,
        }
    }

    /// Returns the length after `bytes` more.
    pub(crate) fn plus(self, bytes: usize) -> Length {
        match self {
            Length::Exact(length) => Length::Exact(length.saturating_add(bytes)),
            Length::AtMost(length) => Length::AtMost(length.saturating_add(bytes)),
        }
    }

    /// Returns the most that a compressor is taken to make of this many bytes. Looser than any encoder's
    /// own bound, since writers split streams and pad them.
    pub(crate) fn compressed(self) -> Length {
        const SLACK: usize = 1 << 10;
        Length::AtMost(
            self.most()
                .saturating_add(self.most() / 4)
                .saturating_add(SLACK),
        )
    }

    /// Checks what `codec` gave.
    pub(crate) fn check(self, codec: &str, found: usize) -> Result<()> {
        match self {
            Length::Exact(bytes) if found != bytes => Err(Error::corrupt(
                codec,
                format!("expected {bytes} bytes, found {found}"),
            )),
            Length::AtMost(bytes) if found > bytes => Err(Error::corrupt(
                codec,
                format!("expected at most {bytes} bytes, found {found}"),
            )),
            Length::Exact(_) | Length::AtMost(_) => Ok(()),
        }
    }
}

/// An `array -> array` codec (core specification, "Codecs"). It may change shape and data type.
pub(crate) trait ArrayToArray: Debug + Send + Sync {
    /// Returns the array as it stands after encoding, which is what the next codec works on.
    fn encoded_form(&self) -> &Form;

    /// Returns whether encoding changes no byte.
    fn is_identity(&self) -> bool;

    /// Undoes the encoding.
    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    /// Encodes an array of exactly the bytes of its decoded form.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Returns whether a decoded chunk may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// An `array -> bytes` codec (core specification, "Codecs").
pub(crate) trait ArrayToBytes: Debug + Send + Sync {
    /// Returns how many bytes encoding gives.
    fn encoded_length(&self) -> Length;

    /// Returns whether encoding changes no byte.
    fn is_identity(&self) -> bool;

    /// Undoes the encoding; the input may have any length.
    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    /// Encodes an array of exactly the bytes of its decoded form.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Returns whether a decoded chunk may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A `bytes -> bytes` codec (core specification, "Codecs").
pub(crate) trait BytesToBytes: Debug + Send + Sync {
    /// Returns how many bytes encoding gives.
    fn encoded_length(&self, decoded: Length) -> Length;

    /// Undoes the encoding, which has to give `want`; the input may have any length.
    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>>;

    /// Encodes bytes.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Returns whether a decoded chunk may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A codec of one of the three kinds.
pub(crate) enum Codec {
    ArrayToArray(Box<dyn ArrayToArray>),
    ArrayToBytes(Box<dyn ArrayToBytes>),
    BytesToBytes(Box<dyn BytesToBytes>),
}

/// Where in a chain a codec stands, for its constructor.
pub(crate) struct ChainPosition<'a> {
    /// The array as the codecs before have left it.
    pub(crate) form: &'a Form,
    /// The length of an element if the bytes still are elements, else 1.
    pub(crate) stride: usize,
    /// Whether the codecs before have left bytes, no longer an array.
    pub(crate) after_bytes: bool,
    /// The most decoded bytes of a chunk.
    pub(crate) max_chunk: u64,
    /// How many chains lie around this one.
    pub(crate) depth: usize,
}
