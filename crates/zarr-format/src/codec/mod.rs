//! Decodes and encodes chunks with the codecs of an array.
//!
//! A `Pipeline` is built once for an array and shared by all threads. Decoded bytes are always in C order,
//! little-endian, and their number is exactly what the metadata promise. Only this folder names codec crates. To add a
//! codec, write its file and add a line to `registry.rs`. The caller fetches and stores chunks, and supplies the values
//! of chunks that are not stored.

use std::borrow::Cow;

use crate::buffer;
use crate::error::{Error, Result};
use crate::model::{Array, CodecSpec};

mod chain;
mod checksum;
mod compress;
mod conditional;
mod config;
mod numeric;
mod object;
mod order;
mod records;
mod registry;
mod shard;
mod traits;
#[cfg(feature = "zfp")]
mod zfp;

use chain::{Chain, MAX_DEPTH};
use compress::leniency;
pub use compress::leniency::Leniency;
use config::Configuration;
use traits::{ArrayRepr, ChainContext, Length};

pub use checksum::lookup3;
pub use shard::level::{ShardIndex, ShardLevel};
pub use shard::rebuild::InnerChunks;

/// The codecs of an array, ready to decode and encode its subchunks. A subchunk is the smallest part of the array that
/// can be fetched and decoded alone: an innermost inner chunk if sharding is the only codec, else a chunk.
#[derive(Debug)]
pub struct Pipeline {
    chunk_shape: Vec<u64>,
    chunk_bytes: Length,
    shards: Vec<ShardLevel>,
    chain: Chain,
}

impl Pipeline {
    /// Builds the codec chain of `array` (core specification, "codecs").
    ///
    /// Fails with `Unsupported` for an unknown codec or data type, `Corrupt` for an invalid configuration, `TooLarge`
    /// for a chunk of more than `max_chunk` decoded bytes.
    pub fn new(array: &Array, max_chunk: u64) -> Result<Pipeline> {
        if let Some(reason) = &array.undecodable {
            return Err(Error::unsupported("", reason));
        }
        let mut context = ChainContext {
            max_chunk,
            depth: 0,
            find: registry::find,
        };
        let mut repr = chunk_repr(array)?;
        let mut shards = Vec::new();
        let mut codecs = Cow::Borrowed(array.codecs.as_slice());
        while let Some(sharding) = only_sharding(&codecs) {
            let config = Configuration::of(sharding);
            let level = ShardLevel::new(config, &repr, context)?;
            repr.shape = level.inner_shape().to_vec();
            shards.push(level);
            if shards.len() > MAX_DEPTH {
                return Err(Error::too_large(
                    "codecs",
                    format!("more than {MAX_DEPTH} levels of sharding"),
                ));
            }
            context = context.nested();
            codecs = Cow::Owned(ShardLevel::inner_codecs(config)?);
        }
        let chunk_bytes = repr.length(max_chunk)?;
        let chain = Chain::new(&codecs, &repr, context)?;
        Ok(Pipeline {
            chunk_shape: repr.shape,
            chunk_bytes,
            shards,
            chain,
        })
    }

    /// Returns the shape of a subchunk.
    pub fn chunk_shape(&self) -> &[u64] {
        &self.chunk_shape
    }

    /// Returns the decoded length of a subchunk in bytes; an upper bound if elements have no fixed length.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes.upper_bound()
    }

    /// Returns the levels of nested sharding, outermost first; empty if the array has no shards.
    pub fn shards(&self) -> &[ShardLevel] {
        &self.shards
    }

    /// Whether the encoded bytes of a subchunk equal its decoded bytes, so that it needs no decoding.
    pub fn is_identity(&self) -> bool {
        self.chain.is_identity()
    }

    /// Whether a subchunk may differ after encoding and decoding, so that writing it back loses data.
    pub fn is_lossy(&self) -> bool {
        self.chain.is_lossy()
    }

    /// Whether all elements have the same length in bytes, so that `chunk_bytes` is exact and not only an upper bound.
    pub fn has_fixed_length(&self) -> bool {
        matches!(self.chunk_bytes, Length::Exact(_))
    }

    /// Whether the codec chain has `bytes -> bytes` codecs, such as compressors.
    pub fn has_compressors(&self) -> bool {
        self.chain.has_compressors()
    }

    /// Returns the length of every encoded subchunk in bytes. Returns `None` if the length varies or the array has
    /// shards.
    pub fn stored_length(&self) -> Option<u64> {
        match self.chain.encoded_length() {
            Length::Exact(bytes) if self.shards.is_empty() => Some(bytes as u64),
            _ => None,
        }
    }

    /// Returns the maximum length of an encoded subchunk in bytes.
    pub fn stored_bound(&self) -> u64 {
        self.chain.encoded_length().upper_bound() as u64
    }

    /// Decodes one subchunk into exactly `chunk_bytes()` bytes, C order and little-endian (core specification,
    /// "Decoding procedure"), or into at most that many bytes if elements have no fixed length. If no codec changes a
    /// byte, returns `encoded` itself. Fails with `Corrupt` for bytes that do not decode, `TooLarge` if elements
    /// without a fixed length exceed the maximum of a chunk.
    pub fn decode<'a>(&self, encoded: impl Into<Cow<'a, [u8]>>) -> Result<Vec<u8>> {
        let encoded = encoded.into();
        if !self.chain.has_compressors() {
            return Ok(self.chain.decode(encoded)?.into_owned());
        }
        let decoded = self
            .chain
            .decode(Cow::Borrowed(&encoded))
            .map(Cow::into_owned);
        if let Cow::Owned(encoded) = encoded {
            buffer::recycle(encoded);
        }
        decoded
    }

    /// Decodes one subchunk whose elements have no fixed length; fails with `TooLarge` if it has more than `most`
    /// bytes.
    pub fn decode_within(&self, encoded: &[u8], most: usize) -> Result<Vec<u8>> {
        let decoded = self.chain.decode_within(Cow::Borrowed(encoded), most)?;
        Ok(decoded.into_owned())
    }

    /// Decodes one subchunk, and also returns the faults that the codecs tolerated.
    pub fn decode_with_leniency(&self, encoded: Vec<u8>) -> Result<(Vec<u8>, Leniency)> {
        let (decoded, leniency) = leniency::recorded(|| self.decode(encoded));
        Ok((decoded?, leniency))
    }

    /// Returns how many decoded copies of a subchunk are in memory at once, at most, while it is decoded.
    pub fn decoded_copies(&self) -> u64 {
        // A codec needs its input and its output in memory. For the first codec that runs, the input is the encoded
        // subchunk and counts as no copy.
        self.chain.steps().min(2) as u64
    }

    /// Encodes one subchunk of exactly `chunk_bytes()` bytes (core specification, "Encoding procedure"). Fails with
    /// `Invalid` for another number of bytes, or for values that the codecs cannot represent.
    pub fn encode(&self, decoded: &[u8]) -> Result<Vec<u8>> {
        Ok(self.chain.encode(Cow::Borrowed(decoded))?.into_owned())
    }

    /// Returns the encoded shard `old` with the subchunks in `replaced` exchanged. All other subchunks keep their exact
    /// encoded bytes.
    ///
    /// Fails with `Corrupt` if `old` is not a valid shard.
    pub fn rebuild_shard(&self, old: Option<&[u8]>, replaced: &InnerChunks) -> Result<Vec<u8>> {
        shard::rebuild::rebuild(&self.shards, old, replaced)
    }
}

/// Returns the shape, data type and fill value of a chunk, as the first codec of the chain encodes it.
fn chunk_repr(array: &Array) -> Result<ArrayRepr> {
    let (rank, chunk) = (array.shape.len(), &array.chunk_shape);
    if chunk.len() != rank || chunk.contains(&0) {
        return Err(Error::corrupt(
            "chunk_shape",
            format!("expected {rank} lengths above 0, found {chunk:?}"),
        ));
    }
    let fill = array.fill_value.bytes.clone();
    let element = if array.data_type.is_variable() {
        fill.len()
    } else {
        array.element_size()?
    };
    if fill.len() != element {
        return Err(Error::corrupt(
            "fill_value",
            format!("expected {element} bytes, found {}", fill.len()),
        ));
    }
    Ok(ArrayRepr {
        data_type: array.data_type.clone(),
        shape: chunk.clone(),
        fill,
    })
}

/// Returns the sharding codec if it is the only codec, so that inner chunks can be fetched one by one.
fn only_sharding(codecs: &[CodecSpec]) -> Option<&CodecSpec> {
    match codecs {
        [codec] if codec.name == "sharding_indexed" => Some(codec),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::model::{Attributes, DataType, FillValue, KeyScheme};
    use serde_json::{Value, json};

    const MAX_CHUNK: u64 = 1 << 27;

    /// Returns an array of a single chunk with `codecs`, a list as in `zarr.json`.
    pub(super) fn array(data_type: &str, chunk_shape: &[u64], codecs: Value) -> Array {
        let members = CodecSpec::new("", json!({ "codecs": codecs }));
        let data_type = DataType::from_v3(data_type);
        Array {
            dialect: "v3",
            shape: chunk_shape.to_vec(),
            chunk_shape: chunk_shape.to_vec(),
            chunk_edges: Vec::new(),
            fill_value: FillValue {
                bytes: vec![3; data_type.size().unwrap_or(0)],
                json: Value::Null,
                is_none: false,
            },
            data_type,
            codecs: Configuration::of(&members).codecs("codecs").unwrap(),
            keys: KeyScheme {
                prefix: "c/".into(),
                separator: '/',
                other_separator: None,
                scalar_keys: vec!["c".into()],
                v3: Value::Null,
            },
            dimension_names: Vec::new(),
            attributes: Attributes::default(),
            undecodable: None,
        }
    }

    pub(super) fn pipeline(
        data_type: &str,
        chunk_shape: &[u64],
        codecs: Value,
    ) -> Result<Pipeline> {
        Pipeline::new(&array(data_type, chunk_shape, codecs), MAX_CHUNK)
    }

    /// Checks that data are unchanged after encoding and decoding.
    #[track_caller]
    pub(super) fn assert_round_trip(pipeline: &Pipeline, data: &[u8]) {
        let decoded = pipeline.decode(pipeline.encode(data).unwrap());
        assert!(decoded.unwrap() == data);
    }

    #[track_caller]
    pub(super) fn assert_corrupt(pipeline: &Pipeline, encoded: impl Into<Vec<u8>>) {
        let decoded = pipeline.decode(encoded.into());
        assert_eq!(decoded.unwrap_err().kind(), Kind::Corrupt);
    }

    pub(super) fn sample(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length)
            .map(|n| if n % 4 == 0 { next() } else { (n / 64) as u8 })
            .collect()
    }

    #[test]
    fn invalid_metadata_gives_the_right_kind_of_error() {
        let unknown = pipeline("uint8", &[4], json!(["bytes", "lzw"])).unwrap_err();
        assert_eq!(
            (unknown.kind(), unknown.to_string().contains("lzw")),
            (Kind::Unsupported, true)
        );
        let variable = pipeline("string", &[4], json!(["bytes"])).unwrap_err();
        assert_eq!(
            (variable.kind(), variable.to_string().contains("string")),
            (Kind::Unsupported, true),
            "{variable}"
        );
        let huge = pipeline("uint8", &[1 << 20, 1 << 20], json!(["bytes"])).unwrap_err();
        assert_eq!(huge.kind(), Kind::TooLarge);
        let wrapping = pipeline("uint8", &[1 << 62, 4], json!(["bytes"])).unwrap_err();
        assert_eq!(wrapping.kind(), Kind::TooLarge);
        assert_eq!(
            pipeline("uint8", &[0], json!(["bytes"]))
                .unwrap_err()
                .kind(),
            Kind::Corrupt
        );
        let mut reasoned = array("uint8", &[4], json!([]));
        reasoned.undecodable = Some("pickled".to_string());
        let reasoned = Pipeline::new(&reasoned, MAX_CHUNK).unwrap_err();
        assert_eq!(
            (reasoned.kind(), reasoned.detail()),
            (Kind::Unsupported, "pickled")
        );
    }

    #[test]
    fn invalid_codec_configurations_are_refused() {
        // Columns: data type, codec, kind of error, a word of the error message, configuration. The fill value of
        // uint16 is 771.
        let table = r#"
            uint32    blosc                Corrupt     cname        { "cname": "lzo" }
            uint32    blosc                Corrupt     clevel       { "clevel": "high" }
            uint32    blosc                Corrupt     shuffle      { "shuffle": 3 }
            uint8     numcodecs.lzma       Corrupt     format       { "format": 4 }
            uint8     numcodecs.lzma       Corrupt     filters      { "format": 3 }
            uint8     numcodecs.lzma       Corrupt     check        { "check": 7 }
            uint8     numcodecs.lzma       Corrupt     preset       { "preset": "high" }
            uint8     numcodecs.lzma       Corrupt     filters      { "format": 3, "filters": [{ "id": 99 }] }
            uint8     numcodecs.lzma       Corrupt     filters      { "format": 3, "filters": [{ "id": 3, "dist": 257 }] }
            uint8     numcodecs.lzma       Corrupt     filters      { "format": 3, "filters": [{ "id": 33, "lc": 5 }] }
            uint8     numcodecs.lzma       Corrupt     filters      { "format": 3, "filters": [{ "id": 3 }] }
            uint8     numcodecs.lzma       Corrupt     delta        { "delta": 0 }
            uint8     cast_value           Corrupt     data_type    {}
            uint8     cast_value           Corrupt     rounding     { "data_type": "int8", "rounding": "up" }
            uint8     cast_value           Corrupt     out_of_range { "data_type": "float32", "out_of_range": "wrap" }
            uint8     cast_value           Corrupt     scalar_map   { "data_type": "int8", "scalar_map": { "encode": [[1]] } }
            uint8     cast_value           Corrupt     scale        { "data_type": "int8", "scale": 1 }
            bool      cast_value           Unsupported bool         { "data_type": "int8" }
            int8      cast_value           Unsupported bool         { "data_type": "bool" }
            int8      cast_value           Unsupported int4         { "data_type": "int4" }
            int8      cast_value           Unsupported r8           { "data_type": "r8" }
            int16     scale_offset         Corrupt     scale        { "scale": 0 }
            int16     scale_offset         Corrupt     scale        { "scale": "x" }
            int16     scale_offset         Corrupt     factor       { "factor": 2 }
            uint16    scale_offset         Corrupt     fill         { "scale": 100 }
            int32     quantize             Unsupported quantize     { "digits": 1, "dtype": "<i4" }
            float32   quantize             Corrupt     digits       { "digits": "x" }
            uint8     delta                Unsupported <U4          { "dtype": "<U4" }
            uint8     delta                Corrupt     bytes        { "dtype": "<i4" }
            float32   fixedscaleoffset     Corrupt     scale        { "offset": 1 }
            int64     astype               Unsupported dates        { "encode_dtype": "<M8[s]", "decode_dtype": "<M8[ns]" }
            uint8     astype               Corrupt     encode_dtype {}
            float32   bitround             Corrupt     keepbits     { "keepbits": 24 }
            bool      bitround             Unsupported bool         { "keepbits": 1 }
            int8      packbits             Corrupt     last_bit     { "first_bit": 3, "last_bit": 2 }
            int8      packbits             Corrupt     last_bit     { "last_bit": 8 }
            complex64 numcodecs.pcodec     Unsupported complex64    {}
            string    numcodecs.categorize Corrupt     labels       { "labels": "a" }
            string    numcodecs.categorize Corrupt     labels       { "labels": [1] }
            string    numcodecs.categorize Corrupt     labels       {}
            string    numcodecs.categorize Corrupt     astype       { "labels": [], "astype": "<f4" }
            int32     numcodecs.categorize Unsupported int32        { "labels": [] }
        "#;
        for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
            let (words, configuration) = row.split_at(row.find('{').unwrap());
            let [data_type, name, kind, word] = Vec::from_iter(words.split_whitespace())[..] else {
                panic!("{row}")
            };
            let configuration: Value = serde_json::from_str(configuration).unwrap();
            let codec = json!({ "name": name, "configuration": configuration });
            let error = pipeline(data_type, &[6], json!([codec])).unwrap_err();
            assert_eq!(format!("{:?}", error.kind()), kind, "{row}: {error}");
            assert!(error.to_string().contains(word), "{row}: {error}");
        }
    }

    #[test]
    fn codecs_in_the_wrong_order_are_corrupt() {
        let transpose = json!({ "name": "transpose", "configuration": { "order": [0] } });
        for codecs in [
            json!(["bytes", transpose]),
            json!(["bytes", "bytes"]),
            json!(["zstd", "bytes"]),
        ] {
            assert_eq!(
                pipeline("uint8", &[4], codecs).unwrap_err().kind(),
                Kind::Corrupt
            );
        }
    }

    #[test]
    fn arrays_without_dimensions_round_trip() {
        for codecs in [json!([]), json!(["bytes", "zstd"])] {
            let pipeline = pipeline("uint8", &[], codecs).unwrap();
            assert_eq!(pipeline.chunk_bytes(), 1);
            assert_eq!(
                pipeline.decode(pipeline.encode(&[9]).unwrap()).unwrap(),
                [9]
            );
        }
    }

    #[test]
    fn encoding_a_chunk_of_another_length_is_invalid() {
        let pipeline = pipeline("uint8", &[4], json!(["bytes"])).unwrap();
        assert_eq!(pipeline.encode(&[0; 5]).unwrap_err().kind(), Kind::Invalid);
    }

    /// Invariant (reading): A chunk or a value that does not fit in memory is `TooLarge`, never `Corrupt`.
    #[test]
    fn variable_length_chunks_beyond_the_limit_are_too_large() {
        let texts: Vec<String> = (0..2000_u64)
            .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).repeat(9))
            .collect();
        let record = |text: &String| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
        let elements: Vec<u8> = texts.iter().flat_map(record).collect();
        let codec = |name: &str| json!({"name": name, "configuration": {}});
        let named = |name: &str, member: &str, value: Value| json!({"name": name, "configuration": {member: value}});
        let blosc = json!({"name": "blosc", "configuration":
            {"cname": "zstd", "clevel": 1, "shuffle": "noshuffle", "typesize": 1, "blocksize": 0}});
        let mut chains: Vec<Vec<Value>> = [
            named("zstd", "level", json!(1)),
            named("gzip", "level", json!(1)),
            blosc,
            codec("crc32c"),
            codec("numcodecs.zlib"),
            codec("numcodecs.bz2"),
            codec("numcodecs.lz4"),
            named("numcodecs.lzma", "preset", json!(1)),
            named("numcodecs.lzma", "format", json!(2)),
            named("numcodecs.shuffle", "elementsize", json!(4)),
            codec("numcodecs.crc32"),
            codec("numcodecs.fletcher32"),
            codec("numcodecs.base64"),
        ]
        .into_iter()
        .map(|compressor| vec![codec("vlen-utf8"), compressor])
        .collect();
        chains.push(vec![codec("vlen-utf8")]);
        chains.push(vec![codec("numcodecs.json2")]);
        chains.push(vec![codec("numcodecs.msgpack2"), codec("numcodecs.zlib")]);
        let zstd = named("zstd", "level", json!(1));
        chains.push(vec![codec("vlen-utf8"), zstd.clone(), codec("crc32c")]);
        chains.push(vec![
            codec("vlen-utf8"),
            zstd.clone(),
            named("gzip", "level", json!(1)),
        ]);
        chains.push(vec![json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": [2000], "codecs": ["vlen-utf8", zstd], "index_codecs": ["bytes", "crc32c"]}})]);
        for chain in chains {
            let mut array = array("string", &[2000], json!(chain));
            array.fill_value.bytes = Vec::new();
            let of_limit = |limit| Pipeline::new(&array, limit).unwrap();
            let encoded = of_limit(MAX_CHUNK).encode(&elements).unwrap();
            assert_eq!(
                of_limit(MAX_CHUNK).decode(encoded.clone()).unwrap(),
                elements
            );
            for limit in [10_000, elements.len() as u64 - 1] {
                let error = of_limit(limit).decode(encoded.clone()).unwrap_err();
                assert_eq!(error.kind(), Kind::TooLarge, "{chain:?} {limit}: {error}");
            }
            let page = b"<!DOCTYPE html><html><body>Not found</body></html>".repeat(9);
            let error = of_limit(10_000).decode(page).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt, "{chain:?}: {error}");
        }
    }
}
