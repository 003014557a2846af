//! Codec `sharding_indexed` over a whole shard in memory.
//!
//! Only for shards whose inner chunks cannot be read one by one, because there is another codec before or after the
//! sharding; in the usual case the pipeline has a `ShardLevel` instead. Both give equal bytes: inner chunks that are
//! not stored are the fill value, and encoding does not store inner chunks that have only fill values.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};

use super::chain::Chain;
use super::config::Configuration;
use super::kind::{ArrayRepr, ArrayToBytes, ChainPosition, Codec, Data, Length};
use super::records;
use index::{NAME, ShardIndex, ShardLevel};
use ragged::ShardRecords;
use rows::Rows;

pub(super) mod index;
mod ragged;
pub(super) mod rebuild;
mod rows;

/// A level of sharding, and the codec chain of its inner chunks.
#[derive(Debug)]
struct Sharding {
    /// Length of a decoded shard.
    length: Length,
    /// Bytes of an element, or `None` if the length is not fixed.
    element_size: Option<usize>,
    /// The fill value as bytes, with its length prefix if elements have no fixed length.
    fill: Vec<u8>,
    level: ShardLevel,
    rows: Rows,
    chain: Chain,
}

/// Reads the configuration (codec `sharding_indexed`, "Configuration parameters").
pub(super) fn build(config: Configuration<'_>, position: &ChainPosition<'_>) -> Result<Codec> {
    let repr = position.repr;
    let level = ShardLevel::new(config, repr, position.context)?;
    let inner = ArrayRepr {
        shape: level.inner_shape().to_vec(),
        ..repr.clone()
    };
    let codecs = ShardLevel::inner_codecs(config)?;
    let (element_size, fill) = if repr.data_type.is_variable() {
        (None, records::encode(&repr.fill)?)
    } else {
        (Some(repr.element_size()?), repr.fill.clone())
    };
    Ok(Codec::ArrayToBytes(Box::new(Sharding {
        length: position.length()?,
        chain: Chain::new(&codecs, &inner, position.context.nested())?,
        rows: Rows::new(&repr.shape, &level)?,
        element_size,
        fill,
        level,
    })))
}

impl Sharding {
    /// Returns the range of the index in a shard of `length` bytes.
    fn index_range(&self, length: usize) -> Result<Range<usize>> {
        let missing = || {
            let index = self.level.index_bytes();
            Error::corrupt(NAME, format!("{length} bytes hold no index of {index}"))
        };
        self.level.index_range(length).ok_or_else(missing)
    }

    /// Returns inner chunk `n`, decoded, or `None` if it is not stored.
    fn inner<'a>(
        &self,
        encoded: &'a [u8],
        index: &ShardIndex,
        n: usize,
    ) -> Result<Option<Data<'a>>> {
        let Some(range) = index.memory_range(n)? else {
            return Ok(None);
        };
        let inner = encoded.get(range).unwrap_or_default();
        let inner = self.chain.decode(Cow::Borrowed(inner));
        inner
            .map(Some)
            .map_err(|error| error.about(format!("inner chunk {n}")))
    }

    /// Decodes a shard whose elements have `element_size` bytes each.
    fn join(&self, encoded: &[u8], index: &ShardIndex, element_size: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; self.length.upper_bound()];
        let is_zero = self.fill.iter().all(|&byte| byte == 0);
        for n in 0..self.level.count() {
            match self.inner(encoded, index, n)? {
                Some(inner) => self.rows.for_each(n, element_size, &mut |shard, row| {
                    out[shard].copy_from_slice(&inner[row]);
                }),
                None if is_zero => {}
                None => self.rows.for_each(n, element_size, &mut |shard, _| {
                    let elements = out[shard].chunks_exact_mut(element_size.max(1));
                    elements.for_each(|element| element.copy_from_slice(&self.fill));
                }),
            }
        }
        Ok(out)
    }

    /// Returns the decoded inner chunks of a shard, in C order.
    fn split(&self, decoded: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut pieces = vec![Vec::new(); self.level.count()];
        if let Some(element_size) = self.element_size {
            for (n, piece) in pieces.iter_mut().enumerate() {
                let mut take = |shard: Range<usize>, _| piece.extend_from_slice(&decoded[shard]);
                self.rows.for_each(n, element_size, &mut take);
            }
            return Ok(pieces);
        }
        self.records().split(decoded, pieces)
    }

    fn records(&self) -> ShardRecords<'_> {
        ShardRecords {
            rows: &self.rows,
            max_bytes: self.length.upper_bound(),
        }
    }

    fn is_fill(&self, inner: &[u8]) -> bool {
        let elements = inner.chunks(self.fill.len().max(1));
        elements.into_iter().all(|element| element == self.fill)
    }
}

impl ArrayToBytes for Sharding {
    /// Returns an upper bound, since unused space between inner chunks is allowed.
    fn encoded_length(&self) -> Length {
        let inner = self.chain.encoded_length();
        let all = inner.upper_bound().saturating_mul(self.level.count());
        let most = all.saturating_add(self.level.index_bytes());
        inner.bounding(most).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let index = self.index_range(encoded.len())?;
        let index = encoded.get(index).unwrap_or_default();
        let index = self.level.decode_index(index, encoded.len() as u64)?;
        let decoded = match self.element_size {
            Some(element_size) => self.join(&encoded, &index, element_size),
            None => {
                let inner = (0..self.level.count()).map(|n| self.inner(&encoded, &index, n));
                self.records().join(inner, &self.fill)
            }
        };
        decoded.map(Cow::Owned)
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let index_bytes = self.level.index_bytes();
        let mut out = if self.level.index_at_end() {
            Vec::new()
        } else {
            vec![0; index_bytes]
        };
        let mut ranges = Vec::with_capacity(self.level.count());
        for inner in self.split(&decoded)? {
            if self.is_fill(&inner) {
                ranges.push(None);
                continue;
            }
            let start = out.len() as u64;
            out.extend_from_slice(&self.chain.encode(Cow::Owned(inner))?);
            ranges.push(Some(start..out.len() as u64));
        }
        let index = self.level.encode_index(&ranges)?;
        if self.level.index_at_end() {
            out.extend_from_slice(&index);
        } else {
            out[..index_bytes].copy_from_slice(&index);
        }
        Ok(Cow::Owned(out))
    }

    fn is_lossy(&self) -> bool {
        self.chain.is_lossy()
    }
}

#[cfg(test)]
mod tests {
    use crate::codec::Pipeline;
    use crate::codec::chain::MAX_DEPTH;
    use crate::codec::tests::{pipeline, sample};
    use crate::error::Kind;
    use serde_json::{Value, json};

    /// Returns a sharding codec with inner chunks of `shape`, encoded by `codecs`.
    pub(in crate::codec) fn sharding(shape: &[u64], codecs: Value, location: &str) -> Value {
        let little = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        json!({ "name": "sharding_indexed", "configuration": {
            "chunk_shape": shape, "codecs": codecs, "index_codecs": [little, "crc32c"], "index_location": location,
        }})
    }

    /// Decodes a shard level by level, one inner chunk after the other, as `array.rs` does.
    pub(in crate::codec) fn open_shard(
        pipeline: &Pipeline,
        level: usize,
        shard: &[u8],
        out: &mut Vec<Option<Vec<u8>>>,
    ) {
        let Some(outer) = pipeline.shards().get(level) else {
            return out.push(Some(pipeline.decode(shard.to_vec()).unwrap()));
        };
        let start = if outer.index_at_end() {
            shard.len() - outer.index_bytes()
        } else {
            0
        };
        let index = &shard[start..start + outer.index_bytes()];
        let index = outer.decode_index(index, shard.len() as u64).unwrap();
        for n in 0..outer.count() {
            match index.range(n).unwrap() {
                Some(range) => open_shard(
                    pipeline,
                    level + 1,
                    &shard[range.start as usize..range.end as usize],
                    out,
                ),
                None => out.push(None),
            }
        }
    }

    #[test]
    fn chains_and_nesting_are_bounded() {
        assert!(pipeline("uint8", &[4], json!(vec!["crc32c"; 64])).is_ok());
        assert_eq!(
            pipeline("uint8", &[4], json!(vec!["crc32c"; 65]))
                .unwrap_err()
                .kind(),
            Kind::TooLarge
        );
        let mut codecs = json!(["bytes"]);
        for depth in 1..=10 {
            codecs = json!([sharding(&[1], codecs, "end")]);
            assert_eq!(
                pipeline("uint8", &[1], codecs.clone()).is_ok(),
                depth <= MAX_DEPTH,
                "{depth}"
            );
            let mut whole = codecs.clone();
            whole.as_array_mut().unwrap().push(json!("crc32c"));
            assert_eq!(
                pipeline("uint8", &[1], whole).is_ok(),
                depth <= MAX_DEPTH,
                "{depth}"
            );
        }
    }

    #[test]
    fn nested_shards_open_to_what_the_whole_decodes_to() {
        for location in ["start", "end"] {
            let inner = sharding(&[1, 2], json!(["bytes", "zstd"]), location);
            let nested = sharding(&[2, 4], json!([inner]), location);
            let peeled = pipeline("uint8", &[4, 8], json!([nested])).unwrap();
            assert_eq!(
                (peeled.chunk_shape(), peeled.chunk_bytes()),
                ([1, 2].as_slice(), 2)
            );
            assert_eq!(peeled.shards().len(), 2);
            let still = json!({ "name": "transpose", "configuration": { "order": [0, 1] } });
            let whole = pipeline("uint8", &[4, 8], json!([still, nested])).unwrap();
            assert!(whole.shards().is_empty());
            // The first inner shard has only the fill value (3), and so has one inner chunk of the last.
            let data: Vec<u8> = (0..32)
                .map(|n| if n < 16 && n % 8 < 4 || n >= 30 { 3 } else { n })
                .collect();
            let shard = whole.encode(&data).unwrap();
            assert_eq!(whole.decode(shard.clone()).unwrap(), data);
            let mut pieces = Vec::new();
            open_shard(&peeled, 0, &shard, &mut pieces);
            assert_eq!(pieces.len(), 1 + 3 * 4);
            assert_eq!(pieces[0], None);
            assert_eq!(pieces[1], Some(vec![4, 5]));
            assert_eq!(pieces[12], None);
        }
    }

    #[test]
    fn a_compressor_after_sharding_is_undone_first() {
        let shards = sharding(&[2], json!(["bytes"]), "end");
        let pipeline = pipeline("uint8", &[8], json!([shards, "gzip", "crc32c"])).unwrap();
        let data = [3, 3, 1, 2, 3, 4, 3, 3];
        assert_eq!(
            pipeline.decode(pipeline.encode(&data).unwrap()).unwrap(),
            data
        );
    }

    #[test]
    fn a_shard_that_is_mostly_index_passes_a_compressor() {
        let shards = sharding(&[1], json!(["bytes"]), "end");
        let pipeline = pipeline("uint8", &[1 << 17], json!([shards, "gzip"])).unwrap();
        let data = sample(1 << 17);
        assert!(pipeline.decode(pipeline.encode(&data).unwrap()).unwrap() == data);
    }

    #[test]
    fn a_shard_without_dimensions_decodes() {
        let pipeline = pipeline(
            "uint8",
            &[],
            json!([sharding(&[], json!(["bytes", "gzip"]), "end"), "crc32c"]),
        )
        .unwrap();
        for value in [3, 9] {
            assert_eq!(
                pipeline.decode(pipeline.encode(&[value]).unwrap()).unwrap(),
                [value]
            );
        }
    }

    #[test]
    fn shards_that_are_cut_or_point_outside_are_corrupt() {
        for location in ["start", "end"] {
            let shards = sharding(&[2], json!(["bytes"]), location);
            let still = json!({ "name": "transpose", "configuration": { "order": [0] } });
            let pipeline = pipeline("uint8", &[4], json!([still, shards])).unwrap();
            let shard = pipeline.encode(&[1, 2, 4, 5]).unwrap();
            for end in 0..shard.len() {
                assert_eq!(
                    pipeline.decode(shard[..end].to_vec()).unwrap_err().kind(),
                    Kind::Corrupt
                );
            }
        }
    }
}
