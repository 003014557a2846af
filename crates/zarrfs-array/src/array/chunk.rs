//! Defines a decoded chunk and the other values of the chunk cache.
//!
//! A chunk is the smallest part that decodes alone: a stored chunk, or with sharding an inner chunk.

use std::sync::Arc;

use smallvec::SmallVec;
use twox_hash::XxHash64;

use zarr_format::buffer;
use zarr_format::codec::{Pipeline, ShardIndex};
use zarr_format::grid::{ChunkIndex, Coordinates};
use zarrfs_store::Version;
use zarrfs_store::sync::budget::Reservation;

/// The overhead of a chunk or an index in memory, in bytes: its places in the cache and in the memory budget. Without
/// it, an array with chunks of one element used sixty times the memory that was reserved for it.
pub(super) const CHUNK_OVERHEAD: u64 = 256;

/// A chunk as readers see it.
#[derive(Clone)]
pub(super) enum Chunk {
    /// Its elements, C order, little-endian.
    Data(Arc<DecodedChunk>),
    /// Not stored: every element is the fill value.
    Fill,
}

impl Chunk {
    /// Returns a digest of the content, or `None` if the chunk is not stored.
    pub(super) fn digest(&self) -> Option<u64> {
        match self {
            Chunk::Data(decoded) => Some(decoded.digest()),
            Chunk::Fill => None,
        }
    }
}

/// The source of a chunk's bytes.
pub(super) enum Source {
    /// A chunk in memory.
    Chunk(Chunk),
    /// The stored chunk itself.
    Stored,
    /// The chunk in the spill file, in this version.
    Spilled(Version),
}

/// The location of a chunk in its stored chunk.
pub(super) struct ChunkLocation {
    /// The number of the stored chunk.
    pub(super) stored: u64,
    /// The indices of the stored chunk.
    pub(super) indices: Coordinates,
    /// With sharding: the number of the inner chunk in its shard; with nested shards one number for each shard, the
    /// outermost first.
    pub(super) inner: SmallVec<[usize; 2]>,
}

/// The reason why an inner chunk is missing.
pub(super) enum MissingChunk {
    /// The shard itself is not stored.
    Shard,
    /// The shard has this version and lacks the inner chunk.
    InnerChunk(Version),
}

/// The decoded bytes of a chunk, and the memory that is reserved for them.
pub(super) struct DecodedChunk {
    pub(super) bytes: Vec<u8>,
    /// The version of the stored chunk; `NOT_STORED` for a dirty chunk.
    pub(super) version: Version,
    /// Whether it was read from the spill file.
    pub(super) is_on_disk: bool,
    pub(super) _room: Reservation,
}

/// The version of a dirty chunk; no stored chunk has it.
const NOT_STORED: Version = Version::NONE;

impl Drop for DecodedChunk {
    fn drop(&mut self) {
        buffer::recycle(std::mem::take(&mut self.bytes));
    }
}

impl AsRef<[u8]> for DecodedChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DecodedChunk {
    /// Returns the elements.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the chunk is dirty.
    pub(super) fn is_written(&self) -> bool {
        self.version == NOT_STORED
    }

    /// Returns a digest of the content.
    pub(super) fn digest(&self) -> u64 {
        XxHash64::oneshot(0, &self.bytes)
    }

    /// Returns the digest of the content after encoding and decoding: lossy codecs change it.
    pub(super) fn digest_as_stored(&self, pipeline: &Pipeline) -> u64 {
        if !pipeline.is_lossy() {
            return self.digest();
        }
        let encoded = pipeline.encode(&self.bytes);
        let decoded = encoded.and_then(|encoded| pipeline.decode(encoded));
        decoded.map_or_else(|_| self.digest(), |bytes| XxHash64::oneshot(0, &bytes))
    }

    /// Creates a dirty chunk.
    pub(super) fn dirty(bytes: Vec<u8>, room: Reservation) -> DecodedChunk {
        DecodedChunk {
            bytes,
            version: NOT_STORED,
            is_on_disk: false,
            _room: room,
        }
    }

    /// Turns the chunk into a dirty one.
    pub(super) fn into_dirty(mut self) -> DecodedChunk {
        self.version = NOT_STORED;
        self.is_on_disk = false;
        self
    }
}

/// The index of one version of a shard.
pub(super) struct CachedShardIndex {
    pub(super) entries: ShardIndex,
    pub(super) version: Version,
    pub(super) _room: Reservation,
}

/// What the cache of decoded chunks holds under a key.
#[derive(Clone)]
pub(super) enum Cached {
    Chunk(Arc<DecodedChunk>),
    Index(Arc<CachedShardIndex>),
}

/// Identifies a value of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    /// The number of the array.
    pub(super) array: u64,
    /// 0 for a chunk, n for the index of a shard at nesting depth n; the outermost shard has depth 1.
    pub(super) depth: u8,
    /// The number of the chunk or shard among all of the array that have this depth.
    pub(super) number: u64,
}

impl CacheKey {
    /// Returns the key of a chunk.
    pub(super) fn of_chunk(array: u64, chunk: ChunkIndex) -> CacheKey {
        CacheKey {
            array,
            depth: 0,
            number: chunk.0,
        }
    }
}
