//! Holds a dirty chunk and the stored content that it was edited from.
//!
//! If a subchunk is written in part, the other elements were read from the store. So two values are recorded: the
//! version of the stored chunk, as the condition of the put, and a digest of the subchunk as it was read. If the put
//! finds another version, the digest tells whether the content is still the same or the put is a conflict.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::array::chunk::DecodedChunk;
use zarr_format::grid::Coordinates;
use zarrfs_store::{Condition, Version};

/// Decoded subchunks of a stored chunk, by position: with sharding, the number of the inner chunk in its shard, one
/// number for each nested shard.
pub(super) type Subchunks = BTreeMap<Vec<usize>, Arc<DecodedChunk>>;

/// The content that a subchunk had before it was edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The edit started from no content, because it wrote all elements of the subchunk.
    Nothing,
    /// The edit started from a dirty subchunk, which an earlier write had left.
    Written,
    /// The edit started from the stored subchunk: the version of its stored chunk (`None` if that was missing) and the
    /// digest of the subchunk (`None` if it was not stored).
    Stored(Option<Version>, Option<u64>),
}

/// A subchunk after a write, and the content that it was edited from.
pub(super) struct WrittenSubchunk {
    pub(super) place: Vec<usize>,
    /// The indices of the subchunk in the grid of subchunks, which stay the same when the array grows.
    pub(super) indices: Coordinates,
    pub(super) decoded: Arc<DecodedChunk>,
    pub(super) basis: Basis,
}

/// The digest that a subchunk had when it was read for an edit; `None` if it was not stored, or was written whole and
/// therefore not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadDigest(pub(super) Option<u64>);

/// A changed chunk that has to be stored.
#[derive(Clone)]
pub(super) struct DirtyChunk {
    pub(super) subchunks: Subchunks,
    pub(super) indices: BTreeMap<Vec<usize>, Coordinates>,
    /// The condition under which the chunk is put: the version of the stored chunk that it was edited from.
    pub(super) condition: Condition,
    /// The digests of the subchunks that were read before an edit, by position; `None` for a subchunk that was not
    /// stored.
    pub(super) read: BTreeMap<Vec<usize>, Option<u64>>,
    /// The number of the last write to the chunk, from `DirtyBytes::writes`.
    pub(super) touched: u64,
    pub(super) failed: bool,
}

impl Default for DirtyChunk {
    fn default() -> DirtyChunk {
        DirtyChunk {
            subchunks: Subchunks::default(),
            indices: BTreeMap::new(),
            condition: Condition::Any,
            read: BTreeMap::new(),
            touched: 0,
            failed: false,
        }
    }
}

impl DirtyChunk {
    /// Records the content that a subchunk was edited from. The first version that was read becomes the condition of
    /// the chunk's put.
    pub(super) fn depend(&mut self, place: &[usize], basis: Basis) {
        match basis {
            Basis::Nothing => {
                self.read.remove(place);
            }
            Basis::Written => {}
            Basis::Stored(version, digest) => {
                if self.condition == Condition::Any {
                    self.condition = Condition::unchanged(version);
                }
                self.read.insert(place.to_vec(), digest);
            }
        }
        if self.read.is_empty() {
            self.condition = Condition::Any;
        }
    }

    /// Records the number of the last write to the chunk, and that storing it has not failed since.
    pub(super) fn mark_written(&mut self, touched: u64) {
        (self.touched, self.failed) = (touched, false);
    }

    /// Records that the chunk's key in the store already has this content, in this version.
    pub(super) fn confirm(&mut self, version: Version) {
        for (place, digest) in &mut self.read {
            *digest = self.subchunks.get(place).map(|subchunk| subchunk.digest());
        }
        if !self.read.is_empty() {
            self.condition = Condition::Version(version);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_put_condition_is_the_first_version_read() {
        let mut chunk = DirtyChunk::default();
        for (version, digest) in [(1, 5), (2, 6)] {
            let basis = Basis::Stored(Some(Version::numbered(version)), Some(digest));
            chunk.depend(&[version as usize], basis);
        }
        assert_eq!(chunk.condition, Condition::Version(Version::numbered(1)));
        chunk.depend(&[1], Basis::Written);
        assert_eq!(chunk.read.len(), 2);
    }

    #[test]
    fn fully_written_subchunks_set_no_put_condition() {
        let mut chunk = DirtyChunk::default();
        chunk.depend(&[0], Basis::Nothing);
        assert_eq!(chunk.condition, Condition::Any);
        chunk.depend(&[1], Basis::Stored(None, None));
        assert_eq!(chunk.condition, Condition::Absent);
        chunk.depend(&[0], Basis::Nothing);
        assert_eq!(chunk.condition, Condition::Absent);
        chunk.depend(&[1], Basis::Nothing);
        assert_eq!(chunk.condition, Condition::Any);
    }
}
