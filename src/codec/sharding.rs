//! Codec `sharding_indexed` over a whole shard in memory.
//!
//! Only for shards that cannot be opened piece by piece, because another codec stands before or after; the
//! usual case is peeled off as `ShardLevel`s in `mod.rs`. Both give equal bytes: inner chunks that are not
//! stored are the fill value, and on encoding those that are nothing but fill are not stored.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::Error;
use crate::error::Result;

use super::chain::Chain;
use super::config::Members;
use super::kind::ArrayToBytes;
use super::kind::Codec;
use super::kind::Data;
use super::kind::Form;
use super::kind::Length;
use super::kind::Place;
use super::shard_index::NAME;
use super::shard_index::ShardLevel;

/// A level, and the chain of its inner chunks.
#[derive(Debug)]
struct Sharding {
    form: Form,
    element: usize,
    bytes: usize,
    inner_bytes: usize,
    level: ShardLevel,
    chain: Chain,
}

/// Reads the configuration (codec `sharding_indexed`, "Configuration parameters").
pub(super) fn build(members: Members<'_>, place: &Place<'_>) -> Result<Codec> {
    let form = place.form.clone();
    let level = ShardLevel::new(members, &form, place.max_chunk, place.depth)?;
    let inner = Form {
        shape: level.inner_shape().to_vec(),
        ..form.clone()
    };
    let codecs = ShardLevel::inner_codecs(members)?;
    let chain = Chain::new(&codecs, &inner, place.max_chunk, place.depth + 1)?;
    let bytes = form.bytes(place.max_chunk)?;
    let inner_bytes = inner.bytes(place.max_chunk)?;
    let element = form.element()?;
    Ok(Codec::ArrayToBytes(Box::new(Sharding {
        form,
        element,
        bytes,
        inner_bytes,
        level,
        chain,
    })))
}

impl Sharding {
    /// Returns where the index lies in a shard of `length` bytes.
    fn index_place(&self, length: usize) -> Result<Range<usize>> {
        let index = self.level.index_bytes();
        let start = if self.level.index_at_end() {
            length.checked_sub(index)
        } else {
            Some(0)
        };
        let place = start
            .map(|start| start..start + index)
            .filter(|place| place.end <= length);
        place
            .ok_or_else(|| Error::corrupt(NAME, format!("{length} bytes hold no index of {index}")))
    }

    /// Calls `visit` for each row of inner chunk `n`, with its place in the shard and in the inner chunk.
    fn for_each_row(&self, n: usize, visit: &mut dyn FnMut(Range<usize>, Range<usize>)) {
        let mut origin = 0;
        let mut rest = n;
        let mut distance = self.element;
        let mut steps = Vec::with_capacity(self.form.shape.len());
        let dimensions = self
            .form
            .shape
            .iter()
            .zip(self.level.inner_shape())
            .zip(self.level.chunks_per_shard());
        // All of these fit usize: the whole shard does.
        for ((&shard, &inner), &count) in dimensions.rev() {
            let (shard, inner, count) = (shard as usize, inner as usize, count as usize);
            origin += rest % count * inner * distance;
            rest /= count;
            steps.push((inner, distance));
            distance *= shard;
        }
        let row = steps
            .first()
            .map_or(self.element, |(inner, distance)| inner * distance);
        let mut place = 0;
        steps.iter_mut().take(1).for_each(|step| step.0 = 1);
        walk(&steps, origin, &mut |start| {
            visit(start..start + row, place..place + row);
            place += row;
        });
    }

    fn fill_inner(&self, n: usize, out: &mut [u8]) {
        if self.form.fill.iter().all(|&byte| byte == 0) {
            return;
        }
        self.for_each_row(n, &mut |shard, _| {
            out[shard]
                .chunks_exact_mut(self.element.max(1))
                .for_each(|out| out.copy_from_slice(&self.form.fill));
        });
    }

    fn is_fill(&self, inner: &[u8]) -> bool {
        inner
            .chunks_exact(self.element.max(1))
            .all(|element| element == self.form.fill)
    }
}

/// Calls `visit` for each combination of steps; the slowest stands last.
fn walk(steps: &[(usize, usize)], start: usize, visit: &mut dyn FnMut(usize)) {
    let Some(((count, distance), faster)) = steps.split_last() else {
        return visit(start);
    };
    for n in 0..*count {
        walk(faster, start + n * distance, visit);
    }
}

impl ArrayToBytes for Sharding {
    /// Unused space between inner chunks is allowed, so this is only a bound.
    fn encoded_length(&self) -> Length {
        let inner = self
            .chain
            .encoded_length()
            .most()
            .saturating_mul(self.level.count());
        Length::Exact(inner.saturating_add(self.level.index_bytes())).compressed()
    }

    fn is_identity(&self) -> bool {
        false
    }

    fn decode<'a>(&self, encoded: Data<'a>) -> Result<Data<'a>> {
        let place = self.index_place(encoded.len())?;
        let index = encoded.get(place).unwrap_or_default();
        let index = self.level.decode_index(index, encoded.len() as u64)?;
        let mut out = vec![0; self.bytes];
        for n in 0..self.level.count() {
            let Some(range) = index.range(n)? else {
                self.fill_inner(n, &mut out);
                continue;
            };
            let inner = encoded
                .get(range.start as usize..range.end as usize)
                .unwrap_or_default();
            let inner = self
                .chain
                .decode(Cow::Borrowed(inner))
                .map_err(|error| error.about(format!("inner chunk {n}")))?;
            self.for_each_row(n, &mut |shard, row| out[shard].copy_from_slice(&inner[row]));
        }
        Ok(Cow::Owned(out))
    }

    fn encode<'a>(&self, decoded: Data<'a>) -> Result<Data<'a>> {
        let index_bytes = self.level.index_bytes();
        let mut out = if self.level.index_at_end() {
            Vec::new()
        } else {
            vec![0; index_bytes]
        };
        let mut ranges = Vec::with_capacity(self.level.count());
        let mut inner = vec![0; self.inner_bytes];
        for n in 0..self.level.count() {
            self.for_each_row(n, &mut |shard, row| {
                inner[row].copy_from_slice(&decoded[shard])
            });
            if self.is_fill(&inner) {
                ranges.push(None);
                continue;
            }
            let start = out.len() as u64;
            out.extend_from_slice(&self.chain.encode(Cow::Borrowed(&inner))?);
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
    use crate::codec::tests::pipeline;
    use crate::codec::tests::sample;
    use crate::error::Kind;
    use serde_json::Value;
    use serde_json::json;

    /// Sharding of inner chunks `shape`, coded by `codecs`.
    fn sharding(shape: &[u64], codecs: Value, location: &str) -> Value {
        let little = json!({ "name": "bytes", "configuration": { "endian": "little" } });
        json!({ "name": "sharding_indexed", "configuration": {
            "chunk_shape": shape, "codecs": codecs, "index_codecs": [little, "crc32c"], "index_location": location,
        }})
    }

    /// Decodes a shard by its levels, one inner chunk after the other, as `array.rs` will.
    fn open_shard(pipeline: &Pipeline, level: usize, shard: &[u8], out: &mut Vec<Option<Vec<u8>>>) {
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
            // The first inner shard is nothing but fill (3), and so is one inner chunk of the last.
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
