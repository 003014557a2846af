//! A stored shard, or an inner chunk of one, by its key: `a/c/0/0` and `a/c/0/0@1.0`.
//!
//! Behind `@` stands the number of an inner chunk in C order, or its indices in the shard joined by dots. Of an inner
//! chunk that is a shard itself, `@` names an inner chunk again: `a/c/0/0@1.0@3`.

use std::ops::Range;

use crate::inspect::access::OpenedStore;
use crate::inspect::file_ending::SELECTED;
use crate::inspect::key_of_chunk::find_chunk;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Coordinates, Grid, NumberedName, joined_indices};
use zarrfs_array::array::ShardFile;
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

/// What the key of a shard, or of an inner chunk, stands for.
pub enum ShardPart {
    /// A shard, or an inner chunk that is a shard itself.
    Shard(ShardFile),
    /// An inner chunk.
    Inner(InnerChunk),
}

/// An inner chunk of a shard.
pub struct InnerChunk {
    /// The shard that it is in.
    pub shard: ShardFile,
    /// Its number in C order.
    pub number: u64,
}

impl InnerChunk {
    /// Returns its bytes in the shard, or `None` if it is not stored. Fails as `ShardFile::range`.
    pub fn range(&self) -> Result<Option<Range<u64>>> {
        self.shard.range(self.number)
    }
}

impl ShardPart {
    /// Finds what a path names, or returns `None` if it does not begin with the key of a chunk.
    ///
    /// Fails with `Unsupported` if the array has no shards, with `NotFound` if the shard is not stored, and with
    /// `Invalid` for an inner chunk that cannot be.
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
            return Err(Error::unsupported(&key, "is a chunk and not a shard"));
        }
        let missing = || Error::new(Kind::NotFound, &key, "the shard is not stored");
        let mut shard = array.shard_file(context, &indices)?.ok_or_else(missing)?;
        let mut parts = parts.peekable();
        while let Some(name) = parts.next() {
            let number = number_of(shard.inner(), name)
                .ok_or_else(|| no_inner_chunk(shard.inner(), path))?;
            if !shard.holds_shards() && parts.peek().is_some() {
                return Err(Error::invalid(path, "an inner chunk is not a shard here"));
            }
            match shard.shard_within(context, number)? {
                Some(inner) => shard = inner,
                None => return Ok(Some(ShardPart::Inner(InnerChunk { shard, number }))),
            }
        }
        Ok(Some(ShardPart::Shard(shard)))
    }
}

/// Reads the number of an inner chunk, or its indices; `None` if it names none.
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
    let indices = joined_indices(&grid.indices(ChunkIndex(last)));
    let why =
        format!("no such inner chunk: they are @0 to @{last}, the last one is also @{indices}");
    Error::invalid(path, why)
}

/// What the index of a shard says.
#[derive(Clone, Debug)]
pub struct ShardInfo {
    /// The key of the stored object.
    pub key: Key,
    /// Its bytes in that object.
    pub bytes: Range<u64>,
    /// The bytes of the index in the shard, or `None` if the shard is too short for one.
    pub index: Option<Range<u64>>,
    /// What is known of the checksum of the index.
    pub checksum: Checksum,
    /// Inner chunks along each dimension.
    pub chunks_per_shard: Vec<u64>,
    /// Where inner chunks lie, or why the index does not read.
    pub chunks: Result<InnerChunks>,
}

/// The checksum of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It is that of the index.
    Correct,
    /// It is another one.
    Wrong,
    /// The codecs of the index make none.
    None,
    /// It was not read.
    NotRead,
}

impl Checksum {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Checksum::Correct => "correct",
            Checksum::Wrong => "wrong",
            Checksum::None => "none",
            Checksum::NotRead => "not read",
        }
    }
}

/// The stored inner chunks of a shard.
#[derive(Clone, Debug, Default)]
pub struct InnerChunks {
    /// How many are stored.
    pub stored: u64,
    /// Bytes of the shard that nothing uses.
    pub unused: u64,
    /// The first of them by their indices, with their bytes in the shard or what is wrong with the entry.
    pub places: Vec<(Coordinates, Result<Range<u64>>)>,
}

/// The most inner chunks whose places are listed.
const MAX_PLACES: usize = 100_000;

impl ShardInfo {
    /// Reads off what there is to know of a shard.
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
            if found.places.len() < MAX_PLACES {
                found.places.push((shard.indices(number), place));
            }
        }
        found.unused = unused(shard.byte_length(), used);
        found
    }

    /// Returns how many stored inner chunks have no place in the list.
    pub fn not_listed(&self) -> u64 {
        self.stored - self.places.len() as u64
    }
}

/// Returns how many bytes of a length lie in none of these ranges.
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
    fn bytes_between_and_behind_ranges_are_unused() {
        assert_eq!(unused(10, vec![6..8, 0..2, 1..3, 0..1]), 3 + 2);
        assert_eq!(unused(3, vec![]), 3);
        assert_eq!(unused(3, vec![0..1, 1..3]), 0);
    }
}
