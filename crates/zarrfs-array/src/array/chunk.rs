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

/// The memory of a cached chunk or shard index besides its bytes, for entries in the cache and the memory budget.
/// Without this overhead, an array with chunks of one element used sixty times the memory that was reserved for it.
pub(super) const CHUNK_OVERHEAD: u64 = 256;

#[derive(Clone)]
pub(super) enum Chunk {
    /// The elements of the chunk, in C order and little-endian.
    Data(Arc<DecodedChunk>),
    /// The chunk is not stored: every element is the fill value.
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

pub(super) enum Source {
    Chunk(Chunk),
    /// The file of an uncompressed stored chunk, which is read without the chunk cache.
    Stored,
    /// The spill file, which has the chunk as decoded from this version of the stored chunk.
    Spilled(Version),
}

/// The location of a chunk in the store: its stored chunk, and with sharding its position in the shard.
pub(super) struct ChunkLocation {
    pub(super) stored: u64,
    pub(super) indices: Coordinates,
    /// Number of the inner chunk in its shard; with nested shards one number for each shard, the outermost first. Empty
    /// without sharding.
    pub(super) inner: SmallVec<[usize; 2]>,
}

pub(super) enum MissingChunk {
    Shard,
    /// The shard is stored in this version, and lacks the inner chunk.
    InnerChunk(Version),
}

/// The decoded bytes of a chunk, and the memory that is reserved for them.
pub(super) struct DecodedChunk {
    pub(super) bytes: Vec<u8>,
    /// The version of the stored chunk; `NOT_STORED` for a dirty chunk.
    pub(super) version: Version,
    pub(super) is_on_disk: bool,
    pub(super) _room: Reservation,
}

/// The version that marks a dirty chunk; no stored chunk has it.
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
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_written(&self) -> bool {
        self.version == NOT_STORED
    }

    pub(super) fn digest(&self) -> u64 {
        XxHash64::oneshot(0, &self.bytes)
    }

    /// Returns the digest that the chunk will have after it was stored and read again: lossy codecs change the content.
    pub(super) fn digest_as_stored(&self, pipeline: &Pipeline) -> u64 {
        if !pipeline.is_lossy() {
            return self.digest();
        }
        let encoded = pipeline.encode(&self.bytes);
        let decoded = encoded.and_then(|encoded| pipeline.decode(encoded));
        decoded.map_or_else(|_| self.digest(), |bytes| XxHash64::oneshot(0, &bytes))
    }

    pub(super) fn dirty(bytes: Vec<u8>, room: Reservation) -> DecodedChunk {
        DecodedChunk {
            bytes,
            version: NOT_STORED,
            is_on_disk: false,
            _room: room,
        }
    }

    pub(super) fn into_dirty(mut self) -> DecodedChunk {
        self.version = NOT_STORED;
        self.is_on_disk = false;
        self
    }
}

pub(super) struct CachedShardIndex {
    pub(super) entries: ShardIndex,
    pub(super) version: Version,
    pub(super) _room: Reservation,
}

/// A value in the cache of decoded chunks: a chunk or a shard index.
#[derive(Clone)]
pub(super) enum Cached {
    Chunk(Arc<DecodedChunk>),
    Index(Arc<CachedShardIndex>),
}

/// The key of a value in the cache of decoded chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey {
    pub(super) array: u64,
    /// 0 for a chunk; for a shard index, the nesting depth of the shard, where the outermost shard has depth 1.
    pub(super) depth: u8,
    /// The number of the chunk or shard among all chunks or shards of the array at the same depth.
    pub(super) number: u64,
}

impl CacheKey {
    pub(super) fn of_chunk(array: u64, chunk: ChunkIndex) -> CacheKey {
        CacheKey {
            array,
            depth: 0,
            number: chunk.0,
        }
    }
}
