//! Rebuilds an encoded shard with some of its inner chunks replaced.
//!
//! All other inner chunks keep their exact bytes: they are copied as stored and never decoded. Bytes that several
//! entries of an index share remain shared. The caller reads and writes the shards.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::error::{Error, Result};

use super::level::{ShardIndex, ShardLevel};

/// New encoded inner chunks by path: the number of the inner chunk on each level of nested sharding, outermost first.
pub type InnerChunks = BTreeMap<Vec<usize>, Vec<u8>>;

/// Rebuilds a shard of nested `levels`; `old` is the stored shard, or `None` if there is none (codec
/// `sharding_indexed`, "Binary shard format").
///
/// Fails with `Corrupt` if the old shard's index is damaged, or if an inner chunk to be copied exceeds the shard.
pub(crate) fn rebuild(
    levels: &[ShardLevel],
    old: Option<&[u8]>,
    replaced: &InnerChunks,
) -> Result<Vec<u8>> {
    let mut builder = ShardBuilder {
        replaced,
        path: Vec::with_capacity(levels.len()),
        out: Vec::new(),
    };
    builder.append_shard(levels, old)?;
    Ok(builder.out)
}

/// A shard that is being rebuilt, with all shards nested in it.
struct ShardBuilder<'a> {
    replaced: &'a InnerChunks,
    /// Path of the current inner chunk: its number on each level of nested sharding.
    path: Vec<usize>,
    out: Vec<u8>,
}

impl ShardBuilder<'_> {
    /// Appends the rebuilt shard at `path` to `out`.
    fn append_shard(&mut self, levels: &[ShardLevel], old: Option<&[u8]>) -> Result<()> {
        let Some((level, inner_levels)) = levels.split_first() else {
            return Ok(());
        };
        let start = self.out.len();
        if !level.index_at_end() {
            self.out.resize(start + level.index_bytes(), 0);
        }
        let mut old = old.map(|old| OldShard::new(level, old)).transpose()?;
        let mut ranges = Vec::with_capacity(level.count());
        for n in 0..level.count() {
            self.path.push(n);
            ranges.push(if self.is_replaced() {
                let begin = (self.out.len() - start) as u64;
                self.append_replaced(inner_levels, old.as_ref(), n)?;
                Some(begin..(self.out.len() - start) as u64)
            } else {
                match &mut old {
                    Some(old) => old.copy(n, start, &mut self.out)?,
                    None => None,
                }
            });
            self.path.pop();
        }
        let index = level.encode_index(&ranges)?;
        if level.index_at_end() {
            self.out.extend_from_slice(&index);
        } else if let Some(room) = self.out.get_mut(start..start + index.len()) {
            room.copy_from_slice(&index);
        }
        Ok(())
    }

    /// Whether the inner chunk at `path`, or an inner chunk nested in it, is replaced.
    fn is_replaced(&self) -> bool {
        let next = self.replaced.range(self.path.clone()..).next();
        next.is_some_and(|(found, _)| found.starts_with(&self.path))
    }

    /// Appends inner chunk `n`, which is at `path`, to `out`: the new inner chunk, or a rebuilt inner shard if only
    /// inner chunks nested in it are new.
    fn append_replaced(
        &mut self,
        inner_levels: &[ShardLevel],
        old: Option<&OldShard<'_>>,
        n: usize,
    ) -> Result<()> {
        if let Some(inner) = self.replaced.get(self.path.as_slice()) {
            self.out.extend_from_slice(inner);
            return Ok(());
        }
        let old = old.map(|old| old.inner(n)).transpose()?.flatten();
        self.append_shard(inner_levels, old)
    }
}

/// The stored version of a shard, whose unchanged inner chunks are copied.
struct OldShard<'a> {
    bytes: &'a [u8],
    index: ShardIndex,
    /// For each copied range of the stored shard, its range in the new shard.
    copied: HashMap<Range<usize>, Range<u64>>,
    /// How many bytes may still be copied, so that overlapping inner chunks are noticed.
    budget: usize,
}

impl<'a> OldShard<'a> {
    fn new(level: &ShardLevel, bytes: &'a [u8]) -> Result<OldShard<'a>> {
        let index = level.index_range(bytes.len());
        let index = index.and_then(|range| bytes.get(range)).ok_or_else(|| {
            let (size, length) = (bytes.len(), level.index_bytes());
            let found = format!("{size} bytes are too short for an index of {length} bytes");
            Error::corrupt("shard index", found)
        })?;
        Ok(OldShard {
            bytes,
            index: level.decode_index(index, bytes.len() as u64)?,
            copied: HashMap::new(),
            budget: bytes.len(),
        })
    }

    /// Returns the encoded bytes of inner chunk `n` of the stored shard, or `None` if it is not stored.
    fn inner(&self, n: usize) -> Result<Option<&'a [u8]>> {
        let range = self.index.memory_range(n)?;
        Ok(range.and_then(|range| self.bytes.get(range)))
    }

    /// Copies inner chunk `n` of the stored shard to a new shard that begins at offset `start` of `out`. Returns its
    /// range in the new shard.
    fn copy(&mut self, n: usize, start: usize, out: &mut Vec<u8>) -> Result<Option<Range<u64>>> {
        let Some(range) = self.index.memory_range(n)? else {
            return Ok(None);
        };
        if let Some(copy) = self.copied.get(&range) {
            return Ok(Some(copy.clone()));
        }
        // Refuse overlapping inner chunks, which could make the new shard much longer than the stored one.
        let left = self.budget.checked_sub(range.len());
        self.budget = left.ok_or_else(|| {
            Error::corrupt(
                format!("inner chunk {n}"),
                "overlaps other inner chunks of the shard",
            )
        })?;
        let begin = (out.len() - start) as u64;
        out.extend_from_slice(self.bytes.get(range.clone()).unwrap_or_default());
        let copy = begin..(out.len() - start) as u64;
        self.copied.insert(range, copy.clone());
        Ok(Some(copy))
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
        let mut subchunks = Vec::new();
        open_shard(pipeline, 0, shard, &mut subchunks);
        subchunks
    }

    fn replaced(pipeline: &Pipeline, subchunks: &[(&[usize], &[u8])]) -> InnerChunks {
        let subchunks = subchunks.iter();
        subchunks
            .map(|(path, bytes)| (path.to_vec(), pipeline.encode(bytes).unwrap()))
            .collect()
    }

    #[test]
    fn inner_chunks_are_added_and_replaced_in_a_shard() {
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
            // The old bytes of replaced inner chunks are dropped, so a shard that is rebuilt again does not grow.
            let again = pipeline.rebuild_shard(Some(&more), &one).unwrap();
            assert_eq!(again.len(), more.len());
        }
    }

    #[test]
    fn unchanged_inner_chunks_are_copied_without_decoding() {
        let codecs = json!([sharding(&[2], json!(["bytes", "crc32c"]), "end")]);
        let pipeline = pipeline("uint8", &[4], codecs).unwrap();
        let both = replaced(&pipeline, &[(&[0], &[1, 2]), (&[1], &[3, 4])]);
        let mut shard = pipeline.rebuild_shard(None, &both).unwrap();
        // Break the checksum of the first inner chunk: it is still copied, since copying does not decode.
        shard[0] ^= 1;
        let wrong = shard[..6].to_vec();
        let one = replaced(&pipeline, &[(&[1], &[5, 6])]);
        let rebuilt = pipeline.rebuild_shard(Some(&shard), &one).unwrap();
        assert_eq!(rebuilt[..6], wrong);
    }

    #[test]
    fn rebuilding_a_nested_shard_keeps_the_other_inner_chunks() {
        for location in ["start", "end"] {
            let inner = sharding(&[1, 2], json!(["bytes", "zstd"]), location);
            let nested = json!([sharding(&[2, 4], json!([inner]), location)]);
            let pipeline = pipeline("uint8", &[4, 8], nested).unwrap();
            let path: &[usize] = &[3, 1];
            let first = replaced(&pipeline, &[(path, &[4, 5]), (&[0, 3], &[6, 7])]);
            let shard = pipeline.rebuild_shard(None, &first).unwrap();
            let second = replaced(&pipeline, &[(&[3, 2], &[8, 9])]);
            let shard = pipeline.rebuild_shard(Some(&shard), &second).unwrap();
            let subchunks: Vec<_> = opened(&pipeline, &shard).into_iter().flatten().collect();
            assert_eq!(subchunks, [[6, 7], [4, 5], [8, 9]]);
        }
    }

    #[test]
    fn a_shared_range_is_stored_once_and_overlaps_are_corrupt() {
        let codecs = json!([sharding(&[1], json!(["bytes"]), "end")]);
        let pipeline = pipeline("uint8", &[4], codecs).unwrap();
        let level = &pipeline.shards()[0];
        let one = replaced(&pipeline, &[(&[0], &[1])]);
        let shard = |ranges: &[Option<Range<u64>>]| {
            [vec![7; 1000], level.encode_index(ranges).unwrap()].concat()
        };
        // Inner chunks with equal ranges are copied once; partly overlapping ranges are an error.
        let same = shard(&[None, Some(0..900), Some(0..900), Some(0..900)]);
        let rebuilt = pipeline.rebuild_shard(Some(&same), &one).unwrap();
        assert!(rebuilt.len() < same.len());
        let other = shard(&[None, Some(0..900), Some(1..900), None]);
        let error = pipeline.rebuild_shard(Some(&other), &one).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(pipeline.rebuild_shard(Some(&[1, 2]), &one).is_err());
    }
}
