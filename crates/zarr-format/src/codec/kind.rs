//! The three kinds of codecs, and what each promises.
//!
//! An array between two codecs has an `ArrayRepr`, bytes between two codecs have a `Length`; a codec says how
//! its encoding changes them, so that every decoding knows how many bytes it has to give before it allocates.
//! Running codecs one after the other is left to `chain.rs`.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType, bytes_of};

use super::config::Configuration;

/// Bytes between two codecs: borrowed as long as no codec had to change them.
pub(super) type Data<'a> = Cow<'a, [u8]>;

/// Bytes of the length (u32, little-endian) before an element without a fixed length.
pub(super) const LENGTH_PREFIX: usize = size_of::<u32>();

/// An array as one codec hands it to the next (core specification, "representation type"); its bytes are in C
/// order, little-endian. An element without a fixed length is the count of its bytes (u32, little-endian) and
/// the bytes.
#[derive(Clone, Debug)]
pub(super) struct ArrayRepr {
    /// The type of an element.
    pub(super) data_type: DataType,
    /// Elements along each dimension.
    pub(super) shape: Vec<u64>,
    /// The value of elements that are not stored.
    pub(super) fill: Vec<u8>,
}

impl ArrayRepr {
    /// Returns the bytes of an element; `Unsupported` if elements have no fixed length.
    pub(super) fn element_size(&self) -> Result<usize> {
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

    /// Returns the length of all elements: exact, or limited to `max` where elements have no fixed length.
    /// `TooLarge` if even empty elements exceed `max`.
    pub(super) fn length(&self, max: u64) -> Result<Length> {
        if !self.data_type.is_variable() {
            return Ok(Length::Exact(self.bytes(max)?));
        }
        let least = bytes_of(&self.shape, LENGTH_PREFIX)?;
        if least > max {
            let found = format!("a chunk of at least {least} bytes exceeds the limit of {max}");
            return Err(Error::too_large("chunk_shape", found));
        }
        Ok(Length::Limited(usize::try_from(max).unwrap_or(usize::MAX)))
    }

    /// Returns the bytes of all elements; `TooLarge` above `max`.
    pub(super) fn bytes(&self, max: u64) -> Result<usize> {
        let bytes = bytes_of(&self.shape, self.element_size()?)?;
        let fits = usize::try_from(bytes).ok().filter(|_| bytes <= max);
        fits.ok_or_else(|| {
            Error::too_large(
                "chunk_shape",
                format!("a chunk of {bytes} bytes exceeds the limit of {max}"),
            )
        })
    }
}

/// The number of bytes that a step has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Exactly that many.
    Exact(usize),
    /// Not known in advance, but never more.
    AtMost(usize),
    /// Not known in advance; more do not fit into the memory that a chunk may take, and may be right all the same.
    Limited(usize),
}

impl Length {
    /// Returns the largest number of bytes.
    pub(super) fn upper_bound(self) -> usize {
        match self {
            Length::Exact(bytes) | Length::AtMost(bytes) | Length::Limited(bytes) => bytes,
        }
    }

    /// Returns the length with its number of bytes changed.
    pub(super) fn map(self, change: impl FnOnce(usize) -> usize) -> Length {
        match self {
            Length::Exact(bytes) => Length::Exact(change(bytes)),
            Length::AtMost(bytes) => Length::AtMost(change(bytes)),
            Length::Limited(bytes) => Length::Limited(change(bytes)),
        }
    }

    /// Returns the length as one of at most `most` bytes, if it is not known in advance.
    pub(super) fn within(self, most: usize) -> Length {
        match self {
            Length::Exact(_) => self,
            Length::AtMost(_) | Length::Limited(_) => self.map(|bytes| bytes.min(most)),
        }
    }

    /// Returns the length of what is made of bytes of this one, at most `bytes`: limited if this one is.
    pub(super) fn bounding(self, bytes: usize) -> Length {
        match self {
            Length::Exact(_) | Length::AtMost(_) => Length::AtMost(bytes),
            Length::Limited(_) => Length::Limited(bytes),
        }
    }

    /// Returns the length after `bytes` more.
    pub(super) fn plus(self, bytes: usize) -> Length {
        self.map(|length| length.saturating_add(bytes))
    }

    /// Returns the upper bound of what a compressor makes of this many bytes. Looser than any encoder's own
    /// bound, since writers split streams and pad them.
    pub(super) fn compressed(self) -> Length {
        const SLACK: usize = 1 << 10;
        let bytes = self.upper_bound();
        self.bounding(bytes.saturating_add(bytes / 4).saturating_add(SLACK))
    }

    /// Checks the number of bytes that `codec` gave; `Corrupt` if it is another one, `TooLarge` if it may be right and does
    /// not fit. A decoder that stops one byte after the last that fits does not know how many there are.
    pub(super) fn check(self, codec: &str, found: usize) -> Result<()> {
        match self {
            Length::Exact(bytes) if found != bytes => Err(Error::corrupt(
                codec,
                format!("expected {bytes} bytes, found {found}"),
            )),
            Length::AtMost(bytes) if found > bytes => Err(Error::corrupt(
                codec,
                format!("expected at most {bytes} bytes, found {found}"),
            )),
            Length::Limited(bytes) if found > bytes => Err(Error::too_large(
                codec,
                match found - bytes {
                    1 => format!("more than {bytes} bytes do not fit"),
                    _ => format!("{found} bytes do not fit where {bytes} do"),
                },
            )),
            Length::Exact(_) | Length::AtMost(_) | Length::Limited(_) => Ok(()),
        }
    }
}

/// An `array -> array` codec (core specification, "Codecs"). It may change shape and data type.
pub(super) trait ArrayToArray: Debug + Send + Sync {
    /// Returns the array as it stands after encoding, which is what the next codec works on.
    fn encoded_repr(&self) -> &ArrayRepr;

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
pub(super) trait ArrayToBytes: Debug + Send + Sync {
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
pub(super) trait BytesToBytes: Debug + Send + Sync {
    /// Returns how many bytes encoding gives.
    fn encoded_length(&self, decoded: Length) -> Length;

    /// Undoes the encoding, which has to give `want` bytes; the input may have any length.
    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>>;

    /// Encodes bytes.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Returns whether a decoded chunk may differ from what was encoded.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A codec of one of the three kinds.
pub(super) enum Codec {
    ArrayToArray(Box<dyn ArrayToArray>),
    ArrayToBytes(Box<dyn ArrayToBytes>),
    BytesToBytes(Box<dyn BytesToBytes>),
}

/// Makes a codec out of its configuration and its position in the chain.
pub(super) type BuildCodec = fn(Configuration<'_>, &ChainPosition<'_>) -> Result<Codec>;

/// What is the same for all codecs of one chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainContext {
    /// The most decoded bytes of a chunk.
    pub(super) max_chunk: u64,
    /// How many chains lie around this one.
    pub(super) depth: usize,
    /// Finds a codec by its name: a function, since codecs with chains inside them stand in the registry too.
    pub(super) find: fn(&str) -> Option<BuildCodec>,
}

impl ChainContext {
    /// Returns the context of a chain inside a codec of this one.
    pub(super) fn nested(self) -> ChainContext {
        ChainContext {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// Where in a chain a codec stands, for its constructor.
pub(super) struct ChainPosition<'a> {
    /// The array as the codecs before have left it.
    pub(super) repr: &'a ArrayRepr,
    /// Bytes of an element if the data still are elements, else 1.
    pub(super) element_size: usize,
    /// Whether the codecs before have left bytes, no longer an array.
    pub(super) after_bytes: bool,
    /// The chain.
    pub(super) context: ChainContext,
}

impl ChainPosition<'_> {
    /// Returns the bytes of the array; `TooLarge` above what a chunk may have.
    pub(super) fn bytes(&self) -> Result<usize> {
        self.repr.bytes(self.context.max_chunk)
    }

    /// Returns the length of the array; `TooLarge` above what a chunk may have.
    pub(super) fn length(&self) -> Result<Length> {
        self.repr.length(self.context.max_chunk)
    }

    /// Builds a codec of the registry; `Unsupported` if none has its name.
    pub(super) fn build(&self, spec: &CodecSpec) -> Result<Codec> {
        let unknown = || Error::unsupported("codecs", format!("codec {} is not known", spec.name));
        let build = (self.context.find)(&spec.name).ok_or_else(unknown)?;
        build(Configuration::of(spec), self)
    }
}
