//! Describes a shard, or an inner chunk, by its key: `a/c/0/0` and `a/c/0/0@1.0`.
//!
//! After `@` comes the number of an inner chunk in C order, or its indices in the shard joined by dots. If the inner
//! chunk is a shard itself, another `@` names an inner chunk in it: `a/c/0/0@1.0@3`.

use std::ops::Range;

use crate::inspect::file_ending::SELECTED;
use crate::inspect::opened_store::{OpenedStore, find_chunk};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Grid, NumberedName, join_indices};
use zarrfs_array::array::ShardFile;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// A shard, or an inner chunk of a shard.
pub enum ShardPart {
    /// A shard, which may itself be an inner chunk of another shard.
    Shard(ShardFile),
    /// An inner chunk that is not a shard.
    Inner(InnerChunk),
}

/// An inner chunk of a shard.
pub struct InnerChunk {
    /// The shard that contains the inner chunk.
    pub shard: ShardFile,
    /// The number of the inner chunk in the shard, in C order.
    pub number: u64,
}

impl InnerChunk {
    /// Returns the byte range of the inner chunk in the shard, or `None` if it is not stored. Fails as
    /// `ShardFile::range` does.
    pub fn range(&self) -> Result<Option<Range<u64>>> {
        self.shard.range(self.number)
    }
}

impl ShardPart {
    /// Finds the shard or inner chunk at a path, or returns `None` if the path does not begin with the key of a chunk.
    ///
    /// Fails with `Unsupported` if the array has no shards, with `NotFound` if the shard is not stored, and with
    /// `Invalid` if the shard has no such inner chunk.
    pub fn at(
        context: &RequestContext,
        opened: &OpenedStore,
        path: &Key,
    ) -> Result<Option<ShardPart>> {
        let Some(parent) = path.parent() else {
            return Ok(None);
        };
        let mut parts = path.name().split(|&byte| char::from(byte) == SELECTED);
        let Ok(key) = parent.child(parts.next().unwrap_or_default()) else {
            return Ok(None);
        };
        let Some((array, indices)) = find_chunk(context, &opened.hierarchy, &opened.arrays, &key)?
        else {
            return Ok(None);
        };
        if !array.has_shards()? {
            return Err(Error::unsupported(&key, "a chunk, not a shard"));
        }
        let missing = || Error::new(Kind::NotFound, &key, "the shard is not stored");
        let mut shard = array.shard_file(context, &indices)?.ok_or_else(missing)?;
        let mut parts = parts.peekable();
        while let Some(name) = parts.next() {
            let number = number_of(shard.inner(), name)
                .ok_or_else(|| no_inner_chunk(shard.inner(), path))?;
            if !shard.holds_shards() && parts.peek().is_some() {
                return Err(Error::invalid(path, "the inner chunk is not a shard"));
            }
            match shard.shard_within(context, number)? {
                Some(inner) => shard = inner,
                None => return Ok(Some(ShardPart::Inner(InnerChunk { shard, number }))),
            }
        }
        Ok(Some(ShardPart::Shard(shard)))
    }
}

/// Parses the number or the indices of an inner chunk; `None` if the shard has no such inner chunk.
fn number_of(grid: &Grid, name: &[u8]) -> Option<u64> {
    let parsed = NumberedName::parse(name)?;
    if !parsed.prefix.is_empty() || !parsed.suffix.is_empty() {
        return None;
    }
    match parsed.indices[..] {
        [number] => (number < grid.len()).then_some(number),
        ref indices => grid.index(indices).map(|ChunkIndex(number)| number),
    }
}

fn no_inner_chunk(grid: &Grid, path: &Key) -> Error {
    let last = grid.len().saturating_sub(1);
    let indices = join_indices(&grid.indices(ChunkIndex(last)));
    let why = format!("no such inner chunk; choose one of @0 to @{last} (@{indices})");
    Error::invalid(path, why)
}

/// What the index of a shard says about its inner chunks.
#[derive(Clone, Debug)]
pub struct ShardInfo {
    /// The key of the object that contains the shard.
    pub key: Key,
    /// The byte range of the shard in the object.
    pub bytes: Range<u64>,
    /// The byte range of the index in the shard, or `None` if the shard is too short for an index.
    pub index: Option<Range<u64>>,
    /// Whether the checksum of the index is correct.
    pub checksum: Checksum,
    /// Number of inner chunks in the shard along each dimension.
    pub chunks_per_shard: Vec<u64>,
    /// The stored inner chunks, or the error of an invalid index.
    pub chunks: Result<InnerChunks>,
}

/// The state of the checksum of a shard's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The checksum matches the index.
    Correct,
    /// The checksum does not match the index.
    Wrong,
    /// The codecs of the index include no checksum.
    None,
    /// The checksum was not compared, because the index could not be read.
    NotRead,
}

impl Checksum {
    /// Returns the state of the checksum in words for display.
    pub fn name(self) -> &'static str {
        match self {
            Checksum::Correct => "correct",
            Checksum::Wrong => "wrong",
            Checksum::None => "none",
            Checksum::NotRead => "not read",
        }
    }
}

/// The inner chunks that are stored according to the index of a shard.
#[derive(Clone, Debug, Default)]
pub struct InnerChunks {
    /// Number of stored inner chunks in the shard.
    pub stored: u64,
    /// Size in bytes of the gaps in the shard, which belong neither to the index nor to a stored inner chunk.
    pub unused: u64,
    /// The indices of the first 100,000 stored inner chunks, each with its byte range in the shard or the error of its
    /// entry in the index.
    pub places: Vec<(Coordinates, Result<Range<u64>>)>,
}

impl ShardInfo {
    /// Describes an opened shard by its index.
    pub fn of(shard: &ShardFile) -> ShardInfo {
        let checksum = match (shard.fault(), shard.has_checksum()) {
            (None, true) => Checksum::Correct,
            (None, false) => Checksum::None,
            (Some(error), true) if error.detail().contains("checksum") => Checksum::Wrong,
            (Some(_), _) => Checksum::NotRead,
        };
        ShardInfo {
            key: shard.key.clone(),
            bytes: shard.bytes().clone(),
            index: shard.index_range(),
            checksum,
            chunks_per_shard: shard.inner().counts().to_vec(),
            chunks: match shard.fault() {
                Some(error) => Err(error.clone()),
                None => Ok(InnerChunks::of(shard)),
            },
        }
    }
}

impl InnerChunks {
    fn of(shard: &ShardFile) -> InnerChunks {
        let mut found = InnerChunks::default();
        let mut used: Vec<Range<u64>> = shard.index_range().into_iter().collect();
        for number in 0..shard.inner().len() {
            let place = match shard.range(number) {
                Ok(None) => continue,
                Ok(Some(range)) => {
                    used.push(range.clone());
                    Ok(range)
                }
                Err(error) => Err(error),
            };
            found.stored += 1;
            if found.places.len() < 100_000 {
                found.places.push((shard.indices(number), place));
            }
        }
        found.unused = unused(shard.byte_length(), used);
        found
    }

    /// Returns the number of stored inner chunks that are beyond the 100,000 in `places`.
    pub fn not_listed(&self) -> u64 {
        self.stored - self.places.len() as u64
    }
}

/// Returns the number of bytes, of `length`, that are in none of the ranges.
fn unused(length: u64, mut used: Vec<Range<u64>>) -> u64 {
    used.sort_unstable_by_key(|range| (range.start, range.end));
    let (mut end, mut unused) = (0, 0);
    for range in used {
        unused += range.start.saturating_sub(end);
        end = end.max(range.end);
    }
    unused + length.saturating_sub(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_and_after_ranges_are_unused() {
        assert_eq!(unused(10, vec![6..8, 0..2, 1..3, 0..1]), 3 + 2);
        assert_eq!(unused(3, vec![]), 3);
        assert_eq!(unused(3, vec![0..1, 1..3]), 0);
    }
}
