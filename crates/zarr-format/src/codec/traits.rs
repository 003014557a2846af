//! Defines the three kinds of codecs and the traits that codecs implement.
//!
//! Between two codecs, an array is described by an `ArrayRepr`, bytes by a `Length`. Each codec states how its encoding
//! changes this description, so that the number of decoded bytes is known before anything is allocated. `chain.rs` runs
//! the codecs one after the other.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType, bytes_of};

use super::config::Configuration;
use super::records::LENGTH_PREFIX;

/// Data between two codecs; bytes are copied only if a codec changes them.
pub(super) type Data<'a> = Cow<'a, [u8]>;

/// Shape, data type and fill value of an array between two codecs (core specification, "representation type"). Its
/// bytes are in C order, little-endian. An element without a fixed length is stored as its length in bytes (u32,
/// little-endian) and its bytes.
#[derive(Clone, Debug)]
pub(super) struct ArrayRepr {
    pub(super) data_type: DataType,
    pub(super) shape: Vec<u64>,
    /// Fill value: the bytes of elements that are not stored.
    pub(super) fill: Vec<u8>,
}

impl ArrayRepr {
    /// Returns the size of an element in bytes; fails with `Unsupported` if elements have no fixed length.
    pub(super) fn element_size(&self) -> Result<usize> {
        let name = &self.data_type;
        self.data_type.size().ok_or_else(|| {
            let why = if name.is_variable() {
                format!("elements of {name} have no fixed length")
            } else {
                format!("unsupported data type {name}")
            };
            Error::unsupported("data_type", why)
        })
    }

    /// Returns the length of the array in bytes: exact, or limited to `max` if elements have no fixed length. Fails
    /// with `TooLarge` if even empty elements exceed `max`.
    pub(super) fn length(&self, max: u64) -> Result<Length> {
        if !self.data_type.is_variable() {
            return Ok(Length::Exact(self.bytes(max)?));
        }
        let least = bytes_of(&self.shape, LENGTH_PREFIX)?;
        if least > max {
            let found =
                format!("a chunk of at least {least} bytes exceeds the limit of {max} bytes");
            return Err(Error::too_large("chunk_shape", found));
        }
        Ok(Length::Limited(usize::try_from(max).unwrap_or(usize::MAX)))
    }

    /// Returns the length of the array in bytes; fails with `TooLarge` if it exceeds `max`.
    pub(super) fn bytes(&self, max: u64) -> Result<usize> {
        let bytes = bytes_of(&self.shape, self.element_size()?)?;
        let fits = usize::try_from(bytes).ok().filter(|_| bytes <= max);
        fits.ok_or_else(|| {
            Error::too_large(
                "chunk_shape",
                format!("a chunk of {bytes} bytes exceeds the limit of {max} bytes"),
            )
        })
    }
}

/// Length in bytes of the data between two codecs, as the metadata determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The length is exactly N bytes.
    Exact(usize),
    /// The length is not known in advance; at most N bytes are valid.
    AtMost(usize),
    /// The length is not known in advance; more than N bytes may be valid, but exceed the memory limit of a chunk.
    Limited(usize),
}

impl Length {
    pub(super) fn upper_bound(self) -> usize {
        match self {
            Length::Exact(bytes) | Length::AtMost(bytes) | Length::Limited(bytes) => bytes,
        }
    }

    /// Applies `change` to the length.
    pub(super) fn map(self, change: impl FnOnce(usize) -> usize) -> Length {
        match self {
            Length::Exact(bytes) => Length::Exact(change(bytes)),
            Length::AtMost(bytes) => Length::AtMost(change(bytes)),
            Length::Limited(bytes) => Length::Limited(change(bytes)),
        }
    }

    /// Limits the length to `most` bytes, unless it is exact.
    pub(super) fn within(self, most: usize) -> Length {
        match self {
            Length::Exact(_) => self,
            Length::AtMost(_) | Length::Limited(_) => self.map(|bytes| bytes.min(most)),
        }
    }

    /// Returns the upper bound `bytes` for data that are derived from data of this length. The result is `Limited` if
    /// this length is, else `AtMost`.
    pub(super) fn bounding(self, bytes: usize) -> Length {
        match self {
            Length::Exact(_) | Length::AtMost(_) => Length::AtMost(bytes),
            Length::Limited(_) => Length::Limited(bytes),
        }
    }

    pub(super) fn plus(self, bytes: usize) -> Length {
        self.map(|length| length.saturating_add(bytes))
    }

    /// Returns an upper bound of the length after compression. It exceeds the bounds of all encoders, since some
    /// writers split streams and pad them.
    pub(super) fn compressed(self) -> Length {
        let bytes = self.upper_bound();
        self.bounding(bytes.saturating_add(bytes / 4).saturating_add(1 << 10))
    }

    /// Checks the length `found` of what `codec` decoded. Fails with `Corrupt` if it is wrong, with `TooLarge` if it
    /// exceeds the limit but may be valid. A decoder stops one byte above the limit, so `found` may not be the full
    /// length.
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
                    1 => format!("decodes to more than the limit of {bytes} bytes"),
                    _ => format!("decodes to {found} bytes, more than the limit of {bytes} bytes"),
                },
            )),
            Length::Exact(_) | Length::AtMost(_) | Length::Limited(_) => Ok(()),
        }
    }
}

/// An `array -> array` codec (core specification, "Codecs"). It may change the shape and the data type.
pub(super) trait ArrayToArray: Debug + Send + Sync {
    /// Returns the shape, data type and fill value of the encoded array, the input of the next codec.
    fn encoded_repr(&self) -> &ArrayRepr;

    /// Whether encoding with this codec changes no byte.
    fn is_identity(&self) -> bool;

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Whether a chunk may differ after encoding and decoding with this codec.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// An `array -> bytes` codec (core specification, "Codecs").
pub(super) trait ArrayToBytes: Debug + Send + Sync {
    /// Returns the length of an encoded chunk.
    fn encoded_length(&self) -> Length;

    fn is_identity(&self) -> bool;

    /// Decodes a chunk. The encoded bytes are unchecked and may have any length.
    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    fn is_lossy(&self) -> bool {
        false
    }
}

/// A `bytes -> bytes` codec (core specification, "Codecs").
pub(super) trait BytesToBytes: Debug + Send + Sync {
    /// Returns the encoded length of data whose decoded length is `decoded`.
    fn encoded_length(&self, decoded: Length) -> Length;

    /// Decodes bytes of any length into as many bytes as `want` allows.
    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>>;

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

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

/// A function that builds a codec from its configuration and its position in the chain.
pub(super) type BuildCodec = fn(Configuration<'_>, &ChainPosition<'_>) -> Result<Codec>;

#[derive(Clone, Copy, Debug)]
pub(super) struct ChainContext {
    /// Maximum length of a decoded chunk in bytes.
    pub(super) max_chunk: u64,
    /// How many codec chains contain this chain, since shards may be nested.
    pub(super) depth: usize,
    /// Finds a codec by its name. It is a function pointer, since codecs with a chain of their own look up other
    /// codecs.
    pub(super) find: fn(&str) -> Option<BuildCodec>,
}

impl ChainContext {
    /// Returns the context of a codec chain nested in a codec of this chain.
    pub(super) fn nested(self) -> ChainContext {
        ChainContext {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// The position of a codec in a chain, as its constructor needs it.
pub(super) struct ChainPosition<'a> {
    /// Shape, data type and fill value of the array that the preceding codecs give.
    pub(super) repr: &'a ArrayRepr,
    /// Size of an element in bytes, or 1 if the preceding codecs give bytes that are not elements.
    pub(super) element_size: usize,
    /// Whether the preceding codecs give bytes and not an array.
    pub(super) after_bytes: bool,
    pub(super) context: ChainContext,
}

impl ChainPosition<'_> {
    /// Returns the length in bytes of the codec's input; fails with `TooLarge` if it exceeds the maximum of a chunk.
    pub(super) fn bytes(&self) -> Result<usize> {
        self.repr.bytes(self.context.max_chunk)
    }

    /// Returns the exact or maximum length of the codec's input; fails with `TooLarge` if it exceeds the maximum of a
    /// chunk.
    pub(super) fn length(&self) -> Result<Length> {
        self.repr.length(self.context.max_chunk)
    }

    /// Builds the codec that `spec` names; fails with `Unsupported` if the registry has no such codec.
    pub(super) fn build(&self, spec: &CodecSpec) -> Result<Codec> {
        let unknown = || Error::unsupported("codecs", format!("unsupported codec {}", spec.name));
        let build = (self.context.find)(&spec.name).ok_or_else(unknown)?;
        build(Configuration::of(spec), self)
    }
}
