//! Holds the store, the options, the progress and the memory of a check.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rules::foreign::{HEAD, ObjectHead};
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, MAX_DOCUMENT, NodeEntry};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::{ByteRange, EntryKind, Key, Meta, Store};

/// Maximum time that reading a document waits until the budget has memory for it.
const MEMORY_WAIT: Duration = Duration::from_secs(600);

/// The store and the options of a check.
pub struct CheckContext {
    /// The nodes of the store.
    pub hierarchy: Arc<Hierarchy>,
    /// The arrays of the store.
    pub arrays: Arc<Arrays>,
    /// The memory budget for decoded chunks.
    pub memory: Arc<MemoryBudget>,
    /// Whether every chunk is read and decoded.
    pub data: bool,
    /// Whether the store is on a network, where each lookup of a key is a request.
    pub is_remote: bool,
    /// The number of nodes, and of chunks, that are checked in parallel.
    pub threads: usize,
    /// Returns sentences about a node that are reported as advice, such as which views do not show it.
    pub notes: fn(&Arc<Arrays>, &Arc<NodeEntry>) -> Vec<String>,
    /// The progress of the check.
    pub progress: Arc<CheckProgress>,
}

/// The progress of a check, for display.
#[derive(Default)]
pub struct CheckProgress {
    nodes: AtomicU64,
    keys: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
}

/// How many nodes, keys, chunks and bytes were checked.
#[derive(Clone, Copy, Debug)]
pub struct CheckCounts {
    /// The number of nodes.
    pub nodes: u64,
    /// The number of keys.
    pub keys: u64,
    /// The number of decoded chunks.
    pub chunks: u64,
    /// The stored bytes of the decoded chunks.
    pub bytes: u64,
}

impl CheckProgress {
    /// Returns the counts so far.
    pub fn counts(&self) -> CheckCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CheckCounts {
            nodes: of(&self.nodes),
            keys: of(&self.keys),
            chunks: of(&self.chunks),
            bytes: of(&self.bytes),
        }
    }

    pub(crate) fn add_node(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_chunk(&self, bytes: u64) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl CheckContext {
    /// Returns the store that the hierarchy reads.
    pub(crate) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Returns a document and the reservation for its memory, or `None` if the document is missing.
    ///
    /// `listed` is the size from a listing; without it, the store is asked. Fails as the store does, and with
    /// `TooLarge` if the document is larger than `MAX_DOCUMENT`.
    pub(crate) fn document(
        &self,
        key: &Key,
        listed: Option<u64>,
    ) -> Result<Option<(Vec<u8>, Reservation)>> {
        let size = match listed {
            Some(size) => size,
            None => match self.store().head(&UNLIMITED, key)? {
                Some(meta) => meta.size,
                None => return Ok(None),
            },
        };
        // A document is in memory as bytes and as members, and so is the document that it is compared with.
        let needed = size.min(MAX_DOCUMENT).saturating_mul(4);
        let needed = needed.min(self.memory.limit() / 4);
        let reservation = self.memory.reserve(needed, Instant::now() + MEMORY_WAIT)?;
        let object = self.store().get(&UNLIMITED, key, MAX_DOCUMENT)?;
        Ok(object.map(|object| (object.bytes, reservation)))
    }

    /// Returns the size of an object, for which it makes a request.
    pub(crate) fn request_size(&self, key: &Key) -> Result<u64> {
        let reader = self.store().open(&UNLIMITED, key, None)?;
        Ok(reader.meta(&UNLIMITED)?.size)
    }

    /// Returns the first bytes of an object, at most `HEAD`. Returns `None` if they cannot be read.
    pub(crate) fn read_head(&self, key: &Key, size: u64) -> Option<ObjectHead> {
        let range = ByteRange::Span(0..size.min(HEAD as u64));
        let object = self.store().get_range(&UNLIMITED, key, range).ok()??;
        Some(ObjectHead {
            bytes: object.bytes,
            size,
        })
    }

    /// Returns the size of an object. Returns `None` if a request would be needed to find it.
    pub(crate) fn size_of(&self, key: &Key, meta: Option<&Meta>) -> Option<u64> {
        match meta {
            Some(meta) => Some(meta.size),
            None if self.is_remote => None,
            None => match self.store().head(&UNLIMITED, key).ok()?? {
                // For a symbolic link, a listing has the length of the link's target path instead of the size of the
                // file.
                meta if meta.kind == EntryKind::Link => self.request_size(key).ok(),
                meta => Some(meta.size),
            },
        }
    }

    /// Reserves memory for a chunk, both stored and decoded. Fails with `TooLarge` if the chunk can never fit in
    /// memory.
    pub(crate) fn reserve_chunk(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        self.reserve(size.saturating_add(decoded_bytes(size, pipeline)))
    }

    /// Reserves memory for a shard: for all of its bytes if it is read whole, for one inner chunk, and for the indexes.
    /// Fails with `TooLarge` if these can never fit in memory.
    pub(crate) fn reserve_shard(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        let whole = if size <= MAX_WHOLE { size } else { 0 };
        let encoded = size.min(pipeline.stored_bound());
        let inner = encoded.saturating_add(decoded_bytes(encoded, pipeline));
        let indexes = index_bytes(size, pipeline.shards());
        self.reserve(whole.saturating_add(inner).saturating_add(indexes))
    }

    /// Reserves memory for the indexes of a shard, but for no chunks. Fails with `TooLarge` if they can never fit in
    /// memory.
    pub(crate) fn reserve_indexes(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        self.reserve(index_bytes(size, pipeline.shards()))
    }

    /// Reserves memory from the budget. Fails with `TooLarge` for more than 3/4 of the budget, since nodes and the keys
    /// of copies in consolidated metadata need the rest.
    fn reserve(&self, bytes: u64) -> Result<Reservation> {
        let limit = self.memory.limit() / 4 * 3;
        if bytes > limit {
            let option = self.memory.option();
            let why = format!(
                "needs {bytes} bytes at once, but --memory {option} leaves {limit}: give more --memory"
            );
            return Err(Error::too_large("", why));
        }
        self.memory.reserve(bytes, Instant::now() + MEMORY_WAIT)
    }
}

/// Maximum size in bytes of a shard that is read whole, if all of its inner chunks are needed.
pub(crate) const MAX_WHOLE: u64 = 32 << 20;

/// Returns how many bytes of memory the indexes of a shard of `size` bytes and their entries take.
fn index_bytes(size: u64, levels: &[ShardLevel]) -> u64 {
    // No entry takes more memory than this.
    let entry_bytes = 96;
    let bytes = levels.iter().map(|level| {
        let entries = level.count() as u64;
        let encoded = level.index_bytes() as u64;
        encoded
            .saturating_mul(2)
            .saturating_add(entries.saturating_mul(entry_bytes))
    });
    let all = bytes.fold(0, u64::saturating_add);
    all.min(size.saturating_mul(entry_bytes))
}

/// Returns how many bytes of memory decoding a chunk takes. Variable-length elements hardly ever reach the maximum
/// length of a chunk. For these, a multiple of the stored size is assumed, if it is smaller.
fn decoded_bytes(size: u64, pipeline: &Pipeline) -> u64 {
    let decoded = pipeline.chunk_bytes() as u64;
    let decoded = if pipeline.has_fixed_length() {
        decoded
    } else {
        decoded.min(size.saturating_mul(64).max(1 << 20))
    };
    decoded.saturating_mul(pipeline.decoded_copies())
}
