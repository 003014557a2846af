//! The three kinds of codecs, and the traits that they implement.
//!
//! An array between two codecs has an `ArrayRepr`, bytes between two codecs have a `Length`. Each codec states how its
//! encoding changes them, so that the number of decoded bytes is known before anything is allocated. `chain.rs` runs
//! the codecs one after the other.

use std::borrow::Cow;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType, bytes_of};

use super::config::Configuration;
use super::records::LENGTH_PREFIX;

/// Bytes between two codecs: borrowed until a codec changes them.
pub(super) type Data<'a> = Cow<'a, [u8]>;

/// An array between two codecs (core specification, "representation type"). Its bytes are in C order, little-endian. An
/// element without a fixed length is its length in bytes (u32, little-endian) followed by the bytes.
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
                format!("elements of {name} have no fixed length")
            } else {
                format!("unsupported data type {name}")
            };
            Error::unsupported("data_type", why)
        })
    }

    /// Returns the length of all elements in bytes: exact, or limited to `max` if elements have no fixed length.
    /// `TooLarge` if even empty elements exceed `max`.
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

    /// Returns the length of all elements in bytes; `TooLarge` above `max`.
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

/// The number of bytes between two codecs, which decoding must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// Exactly N bytes.
    Exact(usize),
    /// Not known in advance; at most N bytes are valid.
    AtMost(usize),
    /// Not known in advance; more than N bytes may be valid, but exceed the memory limit of a chunk.
    Limited(usize),
}

impl Length {
    /// Returns the maximum number of bytes.
    pub(super) fn upper_bound(self) -> usize {
        match self {
            Length::Exact(bytes) | Length::AtMost(bytes) | Length::Limited(bytes) => bytes,
        }
    }

    /// Returns the length with `change` applied to its number of bytes.
    pub(super) fn map(self, change: impl FnOnce(usize) -> usize) -> Length {
        match self {
            Length::Exact(bytes) => Length::Exact(change(bytes)),
            Length::AtMost(bytes) => Length::AtMost(change(bytes)),
            Length::Limited(bytes) => Length::Limited(change(bytes)),
        }
    }

    /// Returns the length, limited to `most` bytes unless it is exact.
    pub(super) fn within(self, most: usize) -> Length {
        match self {
            Length::Exact(_) => self,
            Length::AtMost(_) | Length::Limited(_) => self.map(|bytes| bytes.min(most)),
        }
    }

    /// Returns an upper bound of `bytes` for data that are derived from data of this length: `Limited` if this length
    /// is `Limited`, else `AtMost`.
    pub(super) fn bounding(self, bytes: usize) -> Length {
        match self {
            Length::Exact(_) | Length::AtMost(_) => Length::AtMost(bytes),
            Length::Limited(_) => Length::Limited(bytes),
        }
    }

    /// Returns the length increased by `bytes`.
    pub(super) fn plus(self, bytes: usize) -> Length {
        self.map(|length| length.saturating_add(bytes))
    }

    /// Returns the upper bound of the compressed length. Looser than any encoder's own bound, since writers split
    /// streams and pad them.
    pub(super) fn compressed(self) -> Length {
        let bytes = self.upper_bound();
        self.bounding(bytes.saturating_add(bytes / 4).saturating_add(1 << 10))
    }

    /// Checks the number of bytes that `codec` gave; `Corrupt` if it is wrong, `TooLarge` if it exceeds the limit but
    /// may be valid. A decoder stops one byte above the limit and so does not know the full length.
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
    /// Returns the encoded array, which is the input of the next codec.
    fn encoded_repr(&self) -> &ArrayRepr;

    /// Whether encoding changes no byte.
    fn is_identity(&self) -> bool;

    /// Decodes an array.
    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    /// Encodes an array of exactly the decoded length.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Whether a chunk may differ after encoding and decoding.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// An `array -> bytes` codec (core specification, "Codecs").
pub(super) trait ArrayToBytes: Debug + Send + Sync {
    /// Returns the encoded length.
    fn encoded_length(&self) -> Length;

    /// Whether encoding changes no byte.
    fn is_identity(&self) -> bool;

    /// Decodes bytes, which may have any length.
    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>>;

    /// Encodes an array of exactly the decoded length.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Whether a chunk may differ after encoding and decoding.
    fn is_lossy(&self) -> bool {
        false
    }
}

/// A `bytes -> bytes` codec (core specification, "Codecs").
pub(super) trait BytesToBytes: Debug + Send + Sync {
    /// Returns the encoded length for a decoded length.
    fn encoded_length(&self, decoded: Length) -> Length;

    /// Decodes bytes of any length, into the number of bytes that `want` allows.
    fn decode<'a>(&self, encoded: Data<'a>, want: Length) -> Result<Data<'a>>;

    /// Encodes bytes.
    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>>;

    /// Whether a chunk may differ after encoding and decoding.
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

/// Builds a codec from its configuration and its position in the chain.
pub(super) type BuildCodec = fn(Configuration<'_>, &ChainPosition<'_>) -> Result<Codec>;

/// Parameters shared by all codecs of one chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainContext {
    /// Maximum number of decoded bytes of a chunk.
    pub(super) max_chunk: u64,
    /// How many codec chains contain this chain: chains of shards within shards.
    pub(super) depth: usize,
    /// Finds a codec by its name. A function pointer, since the registry has codecs that contain chains, which
    /// look up codecs themselves.
    pub(super) find: fn(&str) -> Option<BuildCodec>,
}

impl ChainContext {
    /// Returns the context of a chain inside one of this chain's codecs.
    pub(super) fn nested(self) -> ChainContext {
        ChainContext {
            depth: self.depth + 1,
            ..self
        }
    }
}

/// The position of a codec in a chain, for its constructor.
pub(super) struct ChainPosition<'a> {
    /// The array that the preceding codecs give.
    pub(super) repr: &'a ArrayRepr,
    /// Bytes of an element, or 1 if the data are no longer elements.
    pub(super) element_size: usize,
    /// Whether the preceding codecs give bytes and not an array.
    pub(super) after_bytes: bool,
    /// The parameters of the chain.
    pub(super) context: ChainContext,
}

impl ChainPosition<'_> {
    /// Returns the length of the array in bytes; `TooLarge` above the maximum of a chunk.
    pub(super) fn bytes(&self) -> Result<usize> {
        self.repr.bytes(self.context.max_chunk)
    }

    /// Returns the length of the array; `TooLarge` above the maximum of a chunk.
    pub(super) fn length(&self) -> Result<Length> {
        self.repr.length(self.context.max_chunk)
    }

    /// Builds a codec of the registry; `Unsupported` if there is none with its name.
    pub(super) fn build(&self, spec: &CodecSpec) -> Result<Codec> {
        let unknown = || Error::unsupported("codecs", format!("unsupported codec {}", spec.name));
        let build = (self.context.find)(&spec.name).ok_or_else(unknown)?;
        build(Configuration::of(spec), self)
    }
}
