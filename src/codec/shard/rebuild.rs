//! A shard made anew with some of its inner chunks replaced.
//!
//! Inner chunks that are not replaced keep their exact bytes: they are copied as they are stored and never
//! decoded. What was stored under several entries of an index is stored once again. Nothing is read here.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::error::{Error, Result};

use super::index::{ShardIndex, ShardLevel};

/// Encoded inner chunks by their place: on each level of sharding, outermost first, the number in its shard.
pub type InnerChunks = BTreeMap<Vec<usize>, Vec<u8>>;

/// Makes a shard of these levels anew; `old` is what was stored before, if there was something (codec
/// `sharding_indexed`, "Binary shard format").
///
/// Fails with `Corrupt` if the old shard's index does not check, or an inner chunk that is kept lies outside it.
pub(crate) fn rebuild(
    levels: &[ShardLevel],
    old: Option<&[u8]>,
    replaced: &InnerChunks,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut path = Vec::with_capacity(levels.len());
    shard(levels, old, (replaced, &mut path), &mut out)?;
    Ok(out)
}

/// Appends a shard to `out`; `path` leads to it.
fn shard(
    levels: &[ShardLevel],
    old: Option<&[u8]>,
    (replaced, path): (&InnerChunks, &mut Vec<usize>),
    out: &mut Vec<u8>,
) -> Result<()> {
    let Some((level, below)) = levels.split_first() else {
        return Ok(());
    };
    let first = out.len();
    let length = level.index_bytes();
    if !level.index_at_end() {
        out.resize(first + length, 0);
    }
    let mut kept = old.map(|old| KeptShard::new(level, old)).transpose()?;
    let mut ranges = Vec::with_capacity(level.count());
    for n in 0..level.count() {
        path.push(n);
        let begin = out.len();
        let range = if !is_replaced(replaced, path) {
            match &mut kept {
                Some(kept) => kept.copy(n, first, out)?,
                None => None,
            }
        } else {
            match replaced.get(path.as_slice()) {
                Some(inner) => out.extend_from_slice(inner),
                None => {
                    let old = match &kept {
                        Some(kept) => kept.inner(n)?,
                        None => None,
                    };
                    shard(below, old, (replaced, path), out)?;
                }
            }
            Some((begin - first) as u64..(out.len() - first) as u64)
        };
        ranges.push(range);
        path.pop();
    }
    let index = level.encode_index(&ranges)?;
    if level.index_at_end() {
        out.extend_from_slice(&index);
    } else if let Some(place) = out.get_mut(first..first + length) {
        place.copy_from_slice(&index);
    }
    Ok(())
}

/// Whether an inner chunk, or one within it, is replaced.
fn is_replaced(replaced: &InnerChunks, path: &[usize]) -> bool {
    let next = replaced.range(path.to_vec()..).next();
    next.is_some_and(|(found, _)| found.starts_with(path))
}

/// A shard whose inner chunks are kept.
struct KeptShard<'a> {
    bytes: &'a [u8],
    index: ShardIndex,
    /// Where what was copied lies now, counted from the start of the new shard.
    copied: HashMap<Range<u64>, Range<u64>>,
    /// How many bytes may still be copied.
    left: u64,
}

impl<'a> KeptShard<'a> {
    fn new(level: &ShardLevel, bytes: &'a [u8]) -> Result<KeptShard<'a>> {
        let length = level.index_bytes();
        let start = match level.index_at_end() {
            true => bytes.len().checked_sub(length),
            false => Some(0),
        };
        let index = start.and_then(|start| bytes.get(start..start.checked_add(length)?));
        let size = bytes.len() as u64;
        let index = index.ok_or_else(|| {
            let found = format!("{size} bytes have no room for an index of {length}");
            Error::corrupt("shard index", found)
        })?;
        Ok(KeptShard {
            bytes,
            index: level.decode_index(index, size)?,
            copied: HashMap::new(),
            left: size,
        })
    }

    /// Returns the bytes of an inner chunk; nothing if it is not stored.
    fn inner(&self, n: usize) -> Result<Option<&'a [u8]>> {
        let range = self.index.range(n)?;
        Ok(range.and_then(|range| self.bytes.get(range.start as usize..range.end as usize)))
    }

    /// Appends an inner chunk to a new shard that begins at `first`; returns where it lies in that.
    fn copy(&mut self, n: usize, first: usize, out: &mut Vec<u8>) -> Result<Option<Range<u64>>> {
        let Some(range) = self.index.range(n)? else {
            return Ok(None);
        };
        if let Some(range) = self.copied.get(&range) {
            return Ok(Some(range.clone()));
        }
        // Inner chunks that overlap could make a shard of any length.
        let left = self.left.checked_sub(range.end - range.start);
        self.left = left.ok_or_else(|| {
            Error::corrupt(format!("inner chunk {n}"), "overlaps others of its shard")
        })?;
        let begin = (out.len() - first) as u64;
        out.extend_from_slice(self.inner(n)?.unwrap_or_default());
        let place = begin..(out.len() - first) as u64;
        self.copied.insert(range, place.clone());
        Ok(Some(place))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::codec::Pipeline;
    use crate::codec::shard::tests::{open_shard, sharding};
    use crate::codec::tests::pipeline;
    use crate::error::Kind;

    fn opened(pipeline: &Pipeline, shard: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut pieces = Vec::new();
        open_shard(pipeline, 0, shard, &mut pieces);
        pieces
    }

    fn replaced(pipeline: &Pipeline, pieces: &[(&[usize], &[u8])]) -> InnerChunks {
        let encoded =
            |(path, bytes): &(&[usize], &[u8])| (path.to_vec(), pipeline.encode(bytes).unwrap());
        pieces.iter().map(encoded).collect()
    }

    #[test]
    fn a_shard_grows_inner_chunk_by_inner_chunk() {
        for location in ["start", "end"] {
            let codecs = json!([sharding(&[2], json!(["bytes", "crc32c"]), location)]);
            let pipeline = pipeline("uint8", &[6], codecs).unwrap();
            let one = replaced(&pipeline, &[(&[1], &[4, 5])]);
            let shard = pipeline.rebuild_shard(None, &one).unwrap();
            assert_eq!(opened(&pipeline, &shard), [None, Some(vec![4, 5]), None]);
            let two = replaced(&pipeline, &[(&[0], &[1, 2]), (&[2], &[8, 9])]);
            let more = pipeline.rebuild_shard(Some(&shard), &two).unwrap();
            let all = [Some(vec![1, 2]), Some(vec![4, 5]), Some(vec![8, 9])];
            assert_eq!(opened(&pipeline, &more), all);
            // What is replaced leaves no gap behind.
            let again = pipeline.rebuild_shard(Some(&more), &one).unwrap();
            assert_eq!(again.len(), more.len());
        }
    }

    #[test]
    fn inner_chunks_that_are_kept_are_never_decoded() {
        let codecs = json!([sharding(&[2], json!(["bytes", "crc32c"]), "end")]);
        let pipeline = pipeline("uint8", &[4], codecs).unwrap();
        let both = replaced(&pipeline, &[(&[0], &[1, 2]), (&[1], &[3, 4])]);
        let mut shard = pipeline.rebuild_shard(None, &both).unwrap();
        // The checksum of the first one is wrong now.
        shard[0] ^= 1;
        let wrong = shard[..6].to_vec();
        let one = replaced(&pipeline, &[(&[1], &[5, 6])]);
        let rebuilt = pipeline.rebuild_shard(Some(&shard), &one).unwrap();
        assert_eq!(rebuilt[..6], wrong);
    }

    #[test]
    fn nested_shards_are_made_anew_only_on_the_way() {
        for location in ["start", "end"] {
            let inner = sharding(&[1, 2], json!(["bytes", "zstd"]), location);
            let nested = json!([sharding(&[2, 4], json!([inner]), location)]);
            let pipeline = pipeline("uint8", &[4, 8], nested).unwrap();
            let path: &[usize] = &[3, 1];
            let first = replaced(&pipeline, &[(path, &[4, 5]), (&[0, 3], &[6, 7])]);
            let shard = pipeline.rebuild_shard(None, &first).unwrap();
            let second = replaced(&pipeline, &[(&[3, 2], &[8, 9])]);
            let shard = pipeline.rebuild_shard(Some(&shard), &second).unwrap();
            let pieces: Vec<_> = opened(&pipeline, &shard).into_iter().flatten().collect();
            assert_eq!(pieces, [[6, 7], [4, 5], [8, 9]]);
        }
    }

    #[test]
    fn hostile_indexes_do_not_blow_up() {
        let codecs = json!([sharding(&[1], json!(["bytes"]), "end")]);
        let pipeline = pipeline("uint8", &[4], codecs).unwrap();
        let level = &pipeline.shards()[0];
        let one = replaced(&pipeline, &[(&[0], &[1])]);
        let shard = |ranges: &[Option<Range<u64>>]| {
            [vec![7; 1000], level.encode_index(ranges).unwrap()].concat()
        };
        // Twice the same is stored once; what overlaps is refused.
        let same = shard(&[None, Some(0..900), Some(0..900), Some(0..900)]);
        let rebuilt = pipeline.rebuild_shard(Some(&same), &one).unwrap();
        assert!(rebuilt.len() < same.len());
        let other = shard(&[None, Some(0..900), Some(1..900), None]);
        let error = pipeline.rebuild_shard(Some(&other), &one).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(pipeline.rebuild_shard(Some(&[1, 2]), &one).is_err());
    }
}
