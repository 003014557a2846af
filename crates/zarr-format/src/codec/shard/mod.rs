//! Codec `sharding_indexed`, which decodes and encodes a whole shard in memory.
//!
//! This codec is only for shards whose inner chunks cannot be read one by one, because there is another codec before or
//! after the sharding. Usually sharding is the only codec, and the pipeline has a `ShardLevel` instead. A shard decodes
//! to the same bytes in both cases: inner chunks that are not stored are the fill value, and encoding does not store
//! inner chunks that have only fill values. Elements without a fixed length are copied in C order of the shard. In this
//! order, the elements of each inner chunk also come in the inner chunk's own C order, so every inner chunk is read or
//! written from start to end.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};

use super::chain::Chain;
use super::config::Configuration;
use super::records;
use super::traits::{ArrayRepr, ArrayToBytes, ChainPosition, Codec, Data, Length};
use level::{ShardIndex, ShardLevel};

pub(super) mod level;
pub(super) mod rebuild;

/// Codec `sharding_indexed`: the division of a shard, and the codec chain of its inner chunks.
#[derive(Debug)]
struct Sharding {
    length: Length,
    /// Size of an element in bytes, or `None` if elements have no fixed length.
    element_size: Option<usize>,
    /// The fill value as bytes, with its length prefix if elements have no fixed length.
    fill: Vec<u8>,
    level: ShardLevel,
    rows: Rows,
    chain: Chain,
}

/// Builds codec `sharding_indexed` (specification, "Configuration parameters").
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
    /// Returns the byte range of the index in a shard of `length` bytes; fails if the shard is too short.
    fn index_range(&self, length: usize) -> Result<Range<usize>> {
        let missing = || {
            let index = self.level.index_bytes();
            Error::corrupt(
                "sharding_indexed",
                format!("{length} bytes are too short for an index of {index} bytes"),
            )
        };
        self.level.index_range(length).ok_or_else(missing)
    }

    /// Decodes inner chunk `n` of a shard. Returns `None` if it is not stored.
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

    /// Splits a decoded shard into its decoded inner chunks, in C order.
    fn split(&self, decoded: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut inner = vec![Vec::new(); self.level.count()];
        if let Some(element_size) = self.element_size {
            for (n, chunk) in inner.iter_mut().enumerate() {
                let mut take = |shard: Range<usize>, _| chunk.extend_from_slice(&decoded[shard]);
                self.rows.for_each(n, element_size, &mut take);
            }
            return Ok(inner);
        }
        self.split_records(decoded, inner)
    }

    /// Joins decoded inner chunks, whose elements have no fixed length, into a shard; every element of an inner chunk
    /// that is not stored is the fill value. Fails with `TooLarge` as soon as the elements exceed a chunk, with
    /// `Corrupt` if an inner chunk has more or fewer elements than its shape.
    fn join_records<'a>(
        &self,
        inner: impl Iterator<Item = Result<Option<Data<'a>>>>,
    ) -> Result<Vec<u8>> {
        let mut chunks = Vec::new();
        let mut bytes = 0_usize;
        for chunk in inner {
            let chunk = chunk?;
            bytes = bytes.saturating_add(chunk.as_ref().map_or(0, |chunk| chunk.len()));
            self.check_length(bytes)?;
            chunks.push(chunk);
        }
        let mut rests: Vec<Option<&[u8]>> = chunks.iter().map(Option::as_deref).collect();
        let mut out = Vec::with_capacity(bytes);
        self.rows.for_each_in_shard_order(&mut |n, row| {
            for _ in 0..row {
                let record = match &mut rests[n] {
                    Some(rest) => take_record(rest).ok_or_else(|| miscounted(n))?,
                    None => &self.fill,
                };
                self.check_length(out.len().saturating_add(record.len()))?;
                out.extend_from_slice(record);
            }
            Ok(())
        })?;
        let is_left = |rest: &Option<&[u8]>| rest.is_some_and(|rest| !rest.is_empty());
        match rests.iter().position(is_left) {
            Some(n) => Err(miscounted(n)),
            None => Ok(out),
        }
    }

    /// Appends elements without a fixed length from a shard to its empty inner chunks; fails with `Invalid` if their
    /// number does not match the shape of the shard.
    fn split_records(&self, decoded: &[u8], mut inner: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let mut rest = decoded;
        let wrong = || {
            Error::invalid(
                "sharding_indexed",
                "the number of elements does not match the shape of the shard",
            )
        };
        self.rows.for_each_in_shard_order(&mut |n, row| {
            for _ in 0..row {
                inner[n].extend_from_slice(take_record(&mut rest).ok_or_else(wrong)?);
            }
            Ok(())
        })?;
        rest.is_empty().then_some(inner).ok_or_else(wrong)
    }

    fn check_length(&self, bytes: usize) -> Result<()> {
        if bytes <= self.length.upper_bound() {
            return Ok(());
        }
        let found = format!(
            "the elements exceed the limit of {} bytes",
            self.length.upper_bound()
        );
        Err(Error::too_large("sharding_indexed", found))
    }

    fn is_fill(&self, inner: &[u8]) -> bool {
        let elements = inner.chunks(self.fill.len().max(1));
        elements.into_iter().all(|element| element == self.fill)
    }
}

impl ArrayToBytes for Sharding {
    /// Returns an upper bound of the length of a shard, since unused space between inner chunks is allowed.
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
                self.join_records(inner)
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

fn take_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (record, after) = records::split_first(rest)?;
    *rest = after;
    Some(record)
}

fn miscounted(n: usize) -> Error {
    let found = "the number of elements does not match the shape of the inner chunk";
    Error::corrupt(format!("inner chunk {n}"), found)
}

/// A dimension of a shard: its number of elements, that of an inner chunk, and the number of inner chunks.
#[derive(Clone, Copy, Debug)]
struct ShardDimension {
    shard: usize,
    inner: usize,
    count: usize,
}

/// Iterates over the rows of the inner chunks of a shard.
///
/// A row is a run of elements that are contiguous in the shard and in its inner chunk; every element is in exactly one
/// row. The caller chooses the unit of ranges, bytes or elements.
#[derive(Debug)]
struct Rows {
    dimensions: Vec<ShardDimension>,
}

impl Rows {
    /// Divides a shard of `shape` into inner chunks; fails with `TooLarge` if a length does not fit `usize`.
    fn new(shape: &[u64], level: &ShardLevel) -> Result<Rows> {
        let length = |length: u64| {
            usize::try_from(length).map_err(|error| Error::too_large("chunk_shape", error))
        };
        let inner = level.inner_shape().iter().zip(level.chunks_per_shard());
        let dimensions = shape.iter().zip(inner).map(|(&shard, (&inner, &count))| {
            Ok(ShardDimension {
                shard: length(shard)?,
                inner: length(inner)?,
                count: length(count)?,
            })
        });
        Ok(Rows {
            dimensions: dimensions.collect::<Result<_>>()?,
        })
    }

    /// Calls `visit` for each contiguous row of elements of inner chunk `n` in C order, with the row's range in the
    /// shard and in the inner chunk. Ranges count units, and an element has `unit` of them.
    fn for_each(&self, n: usize, unit: usize, visit: &mut dyn FnMut(Range<usize>, Range<usize>)) {
        let (mut origin, mut rest, mut distance) = (0, n, unit);
        let mut steps = Vec::with_capacity(self.dimensions.len());
        for dimension in self.dimensions.iter().rev() {
            origin += rest % dimension.count * dimension.inner * distance;
            rest /= dimension.count;
            steps.push((dimension.inner, distance));
            distance *= dimension.shard;
        }
        let row = steps.first().map_or(unit, |(inner, step)| inner * step);
        let mut place = 0;
        steps.iter_mut().take(1).for_each(|step| step.0 = 1);
        walk(&steps, origin, &mut |start| {
            visit(start..start + row, place..place + row);
            place += row;
        });
    }

    /// Calls `visit` for each contiguous row of elements in C order of the shard, with the number of its inner chunk
    /// and its number of elements. The rows of each inner chunk come in C order of that chunk. Stops at the first
    /// error.
    fn for_each_in_shard_order(
        &self,
        visit: &mut dyn FnMut(usize, usize) -> Result<()>,
    ) -> Result<()> {
        let Some((last, outer)) = self.dimensions.split_last() else {
            return visit(0, 1);
        };
        let rows = outer.iter().map(|dimension| dimension.shard).product();
        for row in 0..rows {
            let (mut first, mut rest, mut distance) = (0, row, last.count);
            for dimension in outer.iter().rev() {
                first += rest % dimension.shard / dimension.inner * distance;
                rest /= dimension.shard;
                distance *= dimension.count;
            }
            for column in 0..last.count {
                visit(first + column, last.inner)?;
            }
        }
        Ok(())
    }
}

/// Calls `visit` with every offset that the steps reach from `start`. A step is a count and a distance; the last step
/// varies slowest.
fn walk(steps: &[(usize, usize)], start: usize, visit: &mut dyn FnMut(usize)) {
    let Some(((count, distance), faster)) = steps.split_last() else {
        return visit(start);
    };
    for n in 0..*count {
        walk(faster, start + n * distance, visit);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::codec::Pipeline;
    use crate::codec::chain::MAX_DEPTH;
    use crate::codec::tests::{array, assert_corrupt, assert_round_trip, pipeline, sample};
    use crate::error::Kind;

    /// Returns the JSON of a `sharding_indexed` codec with inner chunks of `shape`, encoded by `codecs`.
    pub(in crate::codec) fn sharding(shape: &[u64], codecs: Value, location: &str) -> Value {
        json!({ "name": "sharding_indexed", "configuration": {
            "chunk_shape": shape, "codecs": codecs, "index_codecs": ["bytes", "crc32c"], "index_location": location,
        }})
    }

    /// Decodes a nested shard level by level, one inner chunk after the other, as the reader of arrays does.
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
    fn the_length_and_depth_of_codec_chains_are_limited() {
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
    fn nested_shards_are_decoded_whole_or_by_inner_chunk() {
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
            // Both the first inner shard and the last inner chunk of the last inner shard have only the fill value (3),
            // so they are not stored.
            let data: Vec<u8> = (0..32)
                .map(|n| if n < 16 && n % 8 < 4 || n >= 30 { 3 } else { n })
                .collect();
            let shard = whole.encode(&data).unwrap();
            assert_eq!(whole.decode(shard.clone()).unwrap(), data);
            let mut subchunks = Vec::new();
            open_shard(&peeled, 0, &shard, &mut subchunks);
            assert_eq!(subchunks.len(), 1 + 3 * 4);
            assert_eq!(subchunks[0], None);
            assert_eq!(subchunks[1], Some(vec![4, 5]));
            assert_eq!(subchunks[12], None);
        }
    }

    #[test]
    fn a_compressor_after_sharding_round_trips() {
        let shards = sharding(&[2], json!(["bytes"]), "end");
        let pipeline = pipeline("uint8", &[8], json!([shards, "gzip", "crc32c"])).unwrap();
        let data = [3, 3, 1, 2, 3, 4, 3, 3];
        assert_round_trip(&pipeline, &data);
    }

    #[test]
    fn a_compressed_shard_with_a_large_index_round_trips() {
        let shards = sharding(&[1], json!(["bytes"]), "end");
        let pipeline = pipeline("uint8", &[1 << 17], json!([shards, "gzip"])).unwrap();
        let data = sample(1 << 17);
        assert_round_trip(&pipeline, &data);
    }

    #[test]
    fn a_shard_without_dimensions_round_trips() {
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
    fn truncated_shards_are_corrupt() {
        for location in ["start", "end"] {
            let shards = sharding(&[2], json!(["bytes"]), location);
            let still = json!({ "name": "transpose", "configuration": { "order": [0] } });
            let pipeline = pipeline("uint8", &[4], json!([still, shards])).unwrap();
            let shard = pipeline.encode(&[1, 2, 4, 5]).unwrap();
            for end in 0..shard.len() {
                assert_corrupt(&pipeline, shard[..end].to_vec());
            }
        }
    }

    /// Returns a pipeline for strings with the fill value `nn`.
    fn of_text(shape: &[u64], codecs: Value, max_chunk: u64) -> Pipeline {
        let mut array = array("string", shape, codecs);
        array.fill_value.bytes = b"nn".to_vec();
        Pipeline::new(&array, max_chunk).unwrap()
    }

    /// Returns the record of string `n`: the fill value `nn` below 9, then varying text.
    fn element(n: usize) -> Vec<u8> {
        match n {
            0..9 => b"\x02\0\0\0nn".to_vec(),
            n => [
                &[n as u8 % 5, 0, 0, 0],
                b"abcdefgh"[n % 4..][..n % 5].as_ref(),
            ]
            .concat(),
        }
    }

    fn text(count: usize) -> Vec<u8> {
        (0..count).flat_map(element).collect()
    }

    #[test]
    fn text_in_shards_between_other_codecs_round_trips() {
        let turn = json!({ "name": "transpose", "configuration": { "order": [1, 0] } });
        let text_shards = sharding(&[2, 3], json!(["vlen-utf8", "crc32c"]), "start");
        let nested = sharding(&[4, 3], json!([text_shards.clone()]), "end");
        for codecs in [
            json!([turn, text_shards.clone()]),
            json!([text_shards.clone(), "gzip"]),
            json!([turn, text_shards, "zstd", "crc32c"]),
            json!([nested, "gzip"]),
        ] {
            let pipeline = of_text(&[12, 12], codecs.clone(), 1 << 16);
            assert!(pipeline.shards().is_empty());
            let data = text(144);
            let shard = pipeline.encode(&data).unwrap();
            assert!(pipeline.decode(shard).unwrap() == data, "{codecs}");
        }
        let scalar = sharding(&[], json!(["vlen-utf8"]), "end");
        let scalar = of_text(&[], json!([scalar, "crc32c"]), 1 << 16);
        for text in [&b"\x02\0\0\0nn"[..], b"\x01\0\0\0a"] {
            assert_round_trip(&scalar, text);
        }
    }

    #[test]
    fn a_whole_text_shard_opens_by_inner_chunk() {
        let shards = sharding(&[2, 3], json!(["vlen-utf8"]), "end");
        let turned = json!({ "name": "transpose", "configuration": { "order": [0, 1] } });
        let whole = of_text(&[4, 6], json!([turned, shards.clone()]), 1 << 16);
        let peeled = of_text(&[4, 6], json!([shards]), 1 << 16);
        let shard = whole.encode(&text(24)).unwrap();
        let mut subchunks = Vec::new();
        open_shard(&peeled, 0, &shard, &mut subchunks);
        let expected = |first: usize| {
            let places = [0, 1, 2, 6, 7, 8].map(|place| first + place);
            Some(places.map(element).concat())
        };
        assert_eq!(subchunks, [None, expected(3), expected(12), expected(15)]);
    }

    #[test]
    fn text_shards_beyond_the_chunk_limit_are_too_large() {
        let shards =
            |inner: u64, codec: &str| json!([sharding(&[inner], json!([codec]), "end"), "crc32c"]);
        let large = of_text(&[8], shards(2, "vlen-utf8"), 1 << 16);
        let small = of_text(&[8], shards(2, "vlen-utf8"), 80);
        let shard = large.encode(&b"\x08\0\0\0abcdefgh".repeat(8)).unwrap();
        assert_eq!(small.decode(shard).unwrap_err().kind(), Kind::TooLarge);
        // Inner chunks that are not stored count too: their elements become fill values.
        for (count, kind) in [(12, None), (16, Some(Kind::TooLarge))] {
            let missing = b"\x02\0\0\0nn".repeat(count as usize);
            let large = of_text(&[count], shards(count, "vlen-utf8"), 1 << 16);
            let small = of_text(&[count], shards(count, "vlen-utf8"), 80);
            let found = small.decode(large.encode(&missing).unwrap());
            assert_eq!(found.err().map(|error| error.kind()), kind);
        }
    }

    #[test]
    fn inner_chunks_with_another_element_count_are_corrupt() {
        let shards = |inner: u64| json!([sharding(&[inner], json!(["vlen-bytes"]), "end"), "gzip"]);
        let pairs = of_text(&[4], shards(2), 1 << 16);
        let fours = of_text(&[4], shards(4), 1 << 16);
        let data = b"\x01\0\0\0a".repeat(4);
        assert!(fours.decode(fours.encode(&data).unwrap()).is_ok());
        assert_corrupt(&fours, pairs.encode(&data).unwrap());
        assert!(pairs.encode(&b"\x01\0\0\0a".repeat(3)).is_err());
        assert!(pairs.encode(&b"\x01\0\0\0a".repeat(5)).is_err());
    }
}
