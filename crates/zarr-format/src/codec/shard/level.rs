//! Divides shards into inner chunks, and decodes and encodes their indexes.
//!
//! Decoding an index verifies its length and checksum. An entry is checked against the shard's length only when it is
//! used, so that a bad entry affects only one inner chunk. The caller reads the index and the inner chunks from the
//! store.

use std::borrow::Cow;
use std::ops::Range;

use crate::codec::chain::Chain;
use crate::codec::config::Configuration;
use crate::codec::traits::{ArrayRepr, ChainContext, Length};
use crate::error::{Error, Result};
use crate::model::{CodecSpec, DataType};

/// Value of the offset and of the length in the index entry of an inner chunk that is not stored.
const NOT_STORED: u64 = u64::MAX;

/// Length of an index entry in bytes: offset and length, 64 bits each.
const ENTRY_BYTES: usize = 16;

/// The division of a shard into inner chunks (codec `sharding_indexed`, "Definitions").
#[derive(Debug)]
pub struct ShardLevel {
    inner_shape: Vec<u64>,
    chunks_per_shard: Vec<u64>,
    count: usize,
    index: Chain,
    index_bytes: usize,
    index_at_end: bool,
}

impl ShardLevel {
    /// Reads the configuration of shards with the shape and data type of `repr` (codec `sharding_indexed`,
    /// "Configuration parameters").
    pub(in crate::codec) fn new(
        config: Configuration<'_>,
        repr: &ArrayRepr,
        context: ChainContext,
    ) -> Result<ShardLevel> {
        let inner_shape = config.integers("chunk_shape")?;
        let chunks_per_shard = divide(&repr.shape, &inner_shape).ok_or_else(|| {
            config.unexpected(
                "chunk_shape",
                format!("lengths that divide the shard shape {:?}", repr.shape),
            )
        })?;
        let entries = index_repr(&chunks_per_shard);
        let bytes = entries.bytes(context.max_chunk);
        let bytes = bytes.map_err(|error| error.about("shard index"))?;
        let index = Chain::new(&config.codecs("index_codecs")?, &entries, context.nested())?;
        let Length::Exact(index_bytes) = index.encoded_length() else {
            return Err(config.unexpected("index_codecs", "codecs with an output of fixed length"));
        };
        let location = config.keyword("index_location", &["start", "end"])?;
        Ok(ShardLevel {
            inner_shape,
            chunks_per_shard,
            count: bytes / ENTRY_BYTES,
            index,
            index_bytes,
            index_at_end: location != Some("start"),
        })
    }

    /// Returns the codecs of the inner chunks, in the order of encoding.
    pub(in crate::codec) fn inner_codecs(config: Configuration<'_>) -> Result<Vec<CodecSpec>> {
        config.codecs("codecs")
    }

    /// Returns the shape of an inner chunk ("inner chunk shape").
    pub fn inner_shape(&self) -> &[u64] {
        &self.inner_shape
    }

    /// Returns the number of inner chunks along each dimension ("chunks per shard").
    pub fn chunks_per_shard(&self) -> &[u64] {
        &self.chunks_per_shard
    }

    /// Returns the number of inner chunks in a shard.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the length in bytes of the encoded index of a shard.
    pub fn index_bytes(&self) -> usize {
        self.index_bytes
    }

    /// Returns the length in bytes of the decoded index of a shard.
    pub fn entries_bytes(&self) -> usize {
        self.count.saturating_mul(ENTRY_BYTES)
    }

    /// Whether the index is at the end of the shard, not at its start (`index_location`).
    pub fn index_at_end(&self) -> bool {
        self.index_at_end
    }

    /// Returns the byte range of the index in a shard of `length` bytes, or `None` if the shard is too short for an
    /// index.
    pub(super) fn index_range(&self, length: usize) -> Option<Range<usize>> {
        let spare = length.checked_sub(self.index_bytes)?;
        let start = if self.index_at_end { spare } else { 0 };
        Some(start..start + self.index_bytes)
    }

    /// Decodes the index (codec `sharding_indexed`, "Binary shard format") of a shard of `shard_bytes` bytes; fails
    /// with `Corrupt` if the length or checksum of the index is wrong.
    pub fn decode_index(&self, encoded: &[u8], shard_bytes: u64) -> Result<ShardIndex> {
        let subject = "shard index";
        Length::Exact(self.index_bytes).check(subject, encoded.len())?;
        let entries = self
            .index
            .decode(Cow::Borrowed(encoded))
            .map_err(|error| error.about(subject))?;
        Ok(ShardIndex {
            entries: entries.into_owned(),
            shard_bytes,
        })
    }

    /// Encodes the index of a shard. `ranges[n]` is the byte range of inner chunk `n`, or `None` if it is not stored.
    pub fn encode_index(&self, ranges: &[Option<Range<u64>>]) -> Result<Vec<u8>> {
        let mut entries = Vec::with_capacity(ranges.len().saturating_mul(ENTRY_BYTES));
        for range in ranges {
            let (offset, length) = match range {
                Some(range) => (range.start, range.end.saturating_sub(range.start)),
                None => (NOT_STORED, NOT_STORED),
            };
            entries.extend_from_slice(&offset.to_le_bytes());
            entries.extend_from_slice(&length.to_le_bytes());
        }
        Ok(self.index.encode(Cow::Owned(entries))?.into_owned())
    }
}

/// Returns the shape, data type and fill value of an index: an offset and a length for each inner chunk.
fn index_repr(chunks_per_shard: &[u64]) -> ArrayRepr {
    ArrayRepr {
        data_type: DataType::UInt(8),
        shape: [chunks_per_shard, &[2]].concat(),
        fill: NOT_STORED.to_le_bytes().to_vec(),
    }
}

/// Returns the number of inner chunks along each dimension, or `None` unless `inner` divides `shard` evenly.
fn divide(shard: &[u64], inner: &[u64]) -> Option<Vec<u64>> {
    if shard.len() != inner.len() {
        return None;
    }
    let whole =
        |(&shard, &inner): (&u64, &u64)| (inner > 0 && shard % inner == 0).then(|| shard / inner);
    shard.iter().zip(inner).map(whole).collect()
}

/// The decoded index of one shard.
#[derive(Clone, Debug)]
pub struct ShardIndex {
    /// Offset and length of each inner chunk, little-endian; not parsed, to avoid a second copy.
    entries: Vec<u8>,
    shard_bytes: u64,
}

impl ShardIndex {
    /// Returns the range of inner chunk `n` (in C order) in the shard, in bytes. Returns `None` if the inner chunk is
    /// not stored and reads as the fill value (codec `sharding_indexed`, "Binary shard format").
    ///
    /// Fails with `Corrupt` if the entry exceeds the shard, `Invalid` if there is no inner chunk `n`.
    pub fn range(&self, n: usize) -> Result<Option<Range<u64>>> {
        let subject = || format!("inner chunk {n}");
        let (entries, _) = self.entries.as_chunks::<ENTRY_BYTES>();
        let none = || {
            Error::invalid(
                subject(),
                format!("the shard has only {} inner chunks", entries.len()),
            )
        };
        let entry = entries.get(n).ok_or_else(none)?;
        let [offset, length] = offset_and_length(entry);
        if offset == NOT_STORED && length == NOT_STORED {
            return Ok(None);
        }
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= self.shard_bytes);
        let outside = || {
            format!(
                "offset {offset} and length {length} lie outside the shard of {} bytes",
                self.shard_bytes
            )
        };
        end.map(|end| Some(offset..end))
            .ok_or_else(|| Error::corrupt(subject(), outside()))
    }

    /// Returns the range of inner chunk `n` in a shard that is in memory, or `None` if it is not stored.
    pub(super) fn memory_range(&self, n: usize) -> Result<Option<Range<usize>>> {
        let place =
            |offset: u64| usize::try_from(offset).map_err(|error| Error::too_large("shard", error));
        let range = self.range(n)?;
        range
            .map(|range| Ok(place(range.start)?..place(range.end)?))
            .transpose()
    }

    /// Returns the memory that the decoded index takes, in bytes.
    pub fn memory(&self) -> usize {
        self.entries.capacity() + size_of::<ShardIndex>()
    }
}

fn offset_and_length(entry: &[u8; ENTRY_BYTES]) -> [u64; 2] {
    let (words, _) = entry.as_chunks();
    [0, 1].map(|n| u64::from_le_bytes(words[n]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::registry;
    use crate::error::Kind;
    use serde_json::{Value, json};

    fn level(shape: &[u64], configuration: Value) -> Result<ShardLevel> {
        let repr = ArrayRepr {
            data_type: DataType::UInt(1),
            shape: shape.to_vec(),
            fill: vec![0],
        };
        let context = ChainContext {
            max_chunk: 1 << 20,
            depth: 0,
            find: registry::find,
        };
        let spec = CodecSpec::new("sharding_indexed", configuration);
        ShardLevel::new(Configuration::of(&spec), &repr, context)
    }

    fn small(index_codecs: Value) -> Result<ShardLevel> {
        level(
            &[4, 6],
            json!({ "chunk_shape": [2, 3], "codecs": ["bytes"], "index_codecs": index_codecs }),
        )
    }

    #[test]
    fn index_ranges_round_trip_in_both_byte_orders() {
        let ranges = [Some(0..10), None, Some(20..20), Some(90..100)];
        for endian in ["little", "big"] {
            let bytes = json!({ "name": "endian", "configuration": { "endian": endian } });
            let level = small(json!([bytes, "crc32c"])).unwrap();
            assert_eq!(level.chunks_per_shard(), [2, 2]);
            assert_eq!(level.index_bytes(), 68);
            assert!(level.index_at_end());
            let encoded = level.encode_index(&ranges).unwrap();
            let index = level.decode_index(&encoded, 100).unwrap();
            for (n, range) in ranges.iter().enumerate() {
                assert_eq!(index.range(n).unwrap(), *range);
            }
            assert_eq!(index.range(4).unwrap_err().kind(), Kind::Invalid);
        }
    }

    #[test]
    fn an_invalid_index_entry_affects_only_its_inner_chunk() {
        let level = small(json!(["bytes"])).unwrap();
        let bad = [
            [u64::MAX, 5],
            [5, u64::MAX],
            [u64::MAX - 1, 2],
            [0, 101],
            [101, 0],
            [1 << 63, 1 << 63],
        ];
        for [offset, length] in bad {
            let numbers = [offset, length, 0, 100, u64::MAX, u64::MAX, 100, 0];
            let encoded: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let index = level.decode_index(&encoded, 100).unwrap();
            assert_eq!(index.range(0).unwrap_err().kind(), Kind::Corrupt);
            assert_eq!(index.range(1).unwrap(), Some(0..100));
            assert_eq!(index.range(2).unwrap(), None);
            assert_eq!(index.range(3).unwrap(), Some(100..100));
        }
    }

    #[test]
    fn checksum_and_length_of_an_index_are_checked() {
        let level = small(json!(["bytes", "crc32c"])).unwrap();
        let mut encoded = level.encode_index(&[None, None, None, None]).unwrap();
        assert_eq!(
            level.decode_index(&encoded[1..], 100).unwrap_err().kind(),
            Kind::Corrupt
        );
        encoded[3] ^= 1;
        assert_eq!(
            level.decode_index(&encoded, 100).unwrap_err().kind(),
            Kind::Corrupt
        );
    }

    #[test]
    fn invalid_sharding_configurations_are_corrupt() {
        for shape in [
            json!([2]),
            json!([2, 4]),
            json!([0, 3]),
            json!([2, 3, 1]),
            json!("x"),
        ] {
            let error = level(
                &[4, 6],
                json!({ "chunk_shape": shape, "index_codecs": ["bytes"] }),
            )
            .unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(error.to_string().contains("chunk_shape"), "{error}");
        }
        for codecs in [
            json!(["bytes", "zstd"]),
            json!(["bytes", "bytes"]),
            json!(null),
        ] {
            assert_eq!(small(codecs).unwrap_err().kind(), Kind::Corrupt);
        }
    }

    #[test]
    fn an_index_beyond_the_limit_is_too_large() {
        let configuration = json!({ "chunk_shape": [1], "index_codecs": ["bytes"] });
        assert_eq!(
            level(&[1 << 17], configuration).unwrap_err().kind(),
            Kind::TooLarge
        );
    }

    #[test]
    fn a_shard_without_dimensions_has_one_inner_chunk() {
        let level = level(&[], json!({ "chunk_shape": [], "index_codecs": ["bytes"] })).unwrap();
        assert_eq!((level.count(), level.index_bytes()), (1, 16));
    }
}
