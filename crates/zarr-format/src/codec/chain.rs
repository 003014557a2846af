//! Builds a chain of codecs and runs the codecs in order.
//!
//! The length of the data is checked after every codec: it must equal the length that follows from the metadata or, if
//! no exact length follows, not exceed an upper bound. Otherwise the chunk is `Corrupt`, or `TooLarge` if a longer
//! result may be valid. Each codec is in its own file; `mod.rs` decides which parts of a shard can be fetched alone.

use crate::error::{Error, Result};
use crate::model::CodecSpec;

use super::order::bytes;
use super::traits::{
    ArrayRepr, ArrayToArray, ArrayToBytes, BytesToBytes, ChainContext, ChainPosition, Codec, Data,
    Length,
};

/// Maximum nesting of codec chains: a sharding codec has a chain of its own, which may contain another sharding codec.
pub(super) const MAX_DEPTH: usize = 8;

/// Fails with `TooLarge` if a codec chain has more than 64 codecs or is nested more than `MAX_DEPTH` deep.
pub(super) fn check_limits(codecs: usize, context: ChainContext) -> Result<()> {
    if codecs <= 64 && context.depth <= MAX_DEPTH {
        return Ok(());
    }
    let limits = format!("more than 64 codecs or {MAX_DEPTH} levels of nesting");
    Err(Error::too_large("codecs", limits))
}

/// A codec of a chain, and the length in bytes of the data that it decodes to.
#[derive(Debug)]
struct ChainStep<C: ?Sized> {
    name: String,
    decoded: Length,
    codec: Box<C>,
}

/// All codecs of an array, in the order of encoding.
#[derive(Debug)]
pub(super) struct Chain {
    filters: Vec<ChainStep<dyn ArrayToArray>>,
    serializer: ChainStep<dyn ArrayToBytes>,
    compressors: Vec<ChainStep<dyn BytesToBytes>>,
    encoded: Length,
}

impl Chain {
    /// Builds a chain of the codecs `specs` for chunks with the shape and data type of `repr`.
    ///
    /// Fails with `Unsupported` for an unknown codec, `Corrupt` for a codec at a wrong position in the chain or with an
    /// invalid configuration, `TooLarge` for too many codecs or too deep a nesting.
    pub(super) fn new(
        specs: &[CodecSpec],
        repr: &ArrayRepr,
        context: ChainContext,
    ) -> Result<Chain> {
        check_limits(specs.len(), context)?;
        let mut builder = ChainBuilder::new(repr.clone(), context)?;
        for spec in specs {
            builder.add(spec)?;
        }
        builder.finish()
    }

    /// Returns the number of bytes of an encoded chunk.
    pub(super) fn encoded_length(&self) -> Length {
        self.encoded
    }

    /// Whether the chain has `bytes -> bytes` codecs; each of these allocates a new buffer when it decodes.
    pub(super) fn has_compressors(&self) -> bool {
        !self.compressors.is_empty()
    }

    /// Returns the number of codecs in the chain that change the bytes of a chunk.
    pub(super) fn steps(&self) -> usize {
        let filters = self.filters.iter();
        let filters = filters.filter(|filter| !filter.codec.is_identity()).count();
        self.compressors.len() + usize::from(!self.serializer.codec.is_identity()) + filters
    }

    /// Whether the encoded bytes of a chunk equal its decoded bytes, since no codec changes them.
    pub(super) fn is_identity(&self) -> bool {
        self.compressors.is_empty()
            && self.serializer.codec.is_identity()
            && self.filters.iter().all(|filter| filter.codec.is_identity())
    }

    /// Whether a codec of the chain is lossy: a chunk may then differ after encoding and decoding.
    pub(super) fn is_lossy(&self) -> bool {
        self.filters.iter().any(|filter| filter.codec.is_lossy())
            || self.serializer.codec.is_lossy()
            || self.compressors.iter().any(|step| step.codec.is_lossy())
    }

    /// Decodes a chunk with all codecs, the last codec first (core specification, "Decoding procedure").
    pub(super) fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        self.decode_within(encoded, usize::MAX)
    }

    /// Decodes a chunk. A chunk whose decoded length does not follow from the metadata may have at most `most` bytes; a
    /// longer chunk is `Corrupt` or `TooLarge`.
    pub(super) fn decode_within<'a>(&self, encoded: Data<'a>, most: usize) -> Result<Data<'a>> {
        let mut data = encoded;
        for step in self.compressors.iter().rev() {
            let decoded = step.decoded.within(cap(most));
            data = step.codec.decode(data, decoded)?;
            decoded.check(&step.name, data.len())?;
        }
        let serializer = &self.serializer;
        data = serializer.codec.decode(data)?;
        let decoded = serializer.decoded.within(most);
        decoded.check(&serializer.name, data.len())?;
        for step in self.filters.iter().rev() {
            data = step.codec.decode(data)?;
            step.decoded.within(most).check(&step.name, data.len())?;
        }
        Ok(data)
    }

    /// Encodes a chunk with all codecs in order (core specification, "Encoding procedure").
    pub(super) fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let expected = self
            .filters
            .first()
            .map_or(self.serializer.decoded, |step| step.decoded);
        expected
            .check("chunk", decoded.len())
            .map_err(|error| Error::invalid("chunk", error.detail()))?;
        let mut data = decoded;
        for step in &self.filters {
            data = step.codec.encode(data)?;
        }
        data = self.serializer.codec.encode(data)?;
        for step in &self.compressors {
            data = step.codec.encode(data)?;
        }
        Ok(data)
    }
}

/// A codec chain that is being built, one codec after the other.
struct ChainBuilder {
    repr: ArrayRepr,
    context: ChainContext,
    /// Upper bound, in bytes, of the data between two codecs if their length does not follow from the metadata.
    cap: usize,
    filters: Vec<ChainStep<dyn ArrayToArray>>,
    serializer: Option<ChainStep<dyn ArrayToBytes>>,
    compressors: Vec<ChainStep<dyn BytesToBytes>>,
    length: Length,
}

impl ChainBuilder {
    fn new(repr: ArrayRepr, context: ChainContext) -> Result<ChainBuilder> {
        let length = repr.length(context.max_chunk)?;
        Ok(ChainBuilder {
            cap: cap(length.upper_bound()),
            repr,
            context,
            filters: Vec::new(),
            serializer: None,
            compressors: Vec::new(),
            length,
        })
    }

    fn add(&mut self, spec: &CodecSpec) -> Result<()> {
        let has_elements = self.compressors.is_empty() && matches!(self.length, Length::Exact(_));
        let position = ChainPosition {
            repr: &self.repr,
            element_size: if has_elements {
                self.repr.element_size()?
            } else {
                1
            },
            after_bytes: self.serializer.is_some() || !self.compressors.is_empty(),
            context: self.context,
        };
        let codec = position.build(spec)?;
        let (name, decoded) = (spec.name.clone(), self.length);
        match codec {
            Codec::ArrayToArray(codec) => self.add_filter(ChainStep {
                name,
                decoded,
                codec,
            }),
            Codec::ArrayToBytes(codec) => self.add_serializer(ChainStep {
                name,
                decoded,
                codec,
            }),
            Codec::BytesToBytes(codec) => self.add_compressor(ChainStep {
                name,
                decoded,
                codec,
            }),
        }
    }

    fn add_filter(&mut self, step: ChainStep<dyn ArrayToArray>) -> Result<()> {
        if self.serializer.is_some() || !self.compressors.is_empty() {
            return Err(misplaced(
                &step.name,
                "an array -> array codec must come before the array -> bytes codec",
            ));
        }
        self.repr = step.codec.encoded_repr().clone();
        self.length = self.repr.length(self.context.max_chunk)?;
        self.cap = self.cap.max(cap(self.length.upper_bound()));
        self.filters.push(step);
        Ok(())
    }

    fn add_serializer(&mut self, step: ChainStep<dyn ArrayToBytes>) -> Result<()> {
        if self.serializer.is_some() || !self.compressors.is_empty() {
            return Err(misplaced(
                &step.name,
                "only one array -> bytes codec is allowed",
            ));
        }
        // A shard with tiny inner chunks is mostly index, so the encoded shard can be far longer than the decoded one;
        // the upper bound must allow for that.
        let length = step.codec.encoded_length();
        let limit = usize::try_from(self.context.max_chunk).unwrap_or(usize::MAX);
        self.cap = self.cap.max(length.upper_bound().min(limit));
        self.length = self.clamp(length);
        self.serializer = Some(step);
        Ok(())
    }

    fn add_compressor(&mut self, step: ChainStep<dyn BytesToBytes>) -> Result<()> {
        self.length = self.clamp(step.codec.encoded_length(self.length));
        self.compressors.push(step);
        Ok(())
    }

    fn clamp(&self, length: Length) -> Length {
        length.within(self.cap)
    }

    /// Finishes the codec chain. If the metadata omit the `array -> bytes` codec, as some writers do, the elements are
    /// little-endian.
    fn finish(self) -> Result<Chain> {
        let max_chunk = self.context.max_chunk;
        let serializer = match self.serializer {
            Some(step) => step,
            None => ChainStep {
                name: "bytes".to_string(),
                decoded: self.repr.length(max_chunk)?,
                codec: bytes::little_endian(&self.repr, max_chunk)?,
            },
        };
        Ok(Chain {
            filters: self.filters,
            serializer,
            compressors: self.compressors,
            encoded: self.length,
        })
    }
}

/// Returns the upper bound for encoded and intermediate data of a chunk of `bytes` bytes: enough for inefficient
/// encoders, too little for decompression bombs.
fn cap(bytes: usize) -> usize {
    bytes.saturating_mul(2).saturating_add(1 << 20)
}

fn misplaced(codec: &str, what: &str) -> Error {
    Error::corrupt("codecs", format!("codec {codec}: {what}"))
}
