//! Holds the store, the options, the progress counters and the memory budget of a check.

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

/// Maximum time that a check waits for memory from the budget before it fails to read a metadata document.
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
    /// Returns advice about a node, such as which views do not show the node.
    pub notes: fn(&Arc<Arrays>, &Arc<NodeEntry>) -> Vec<String>,
    /// The progress of the check, which the caller may display.
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
    /// Number of nodes checked so far.
    pub nodes: u64,
    /// Number of keys checked so far.
    pub keys: u64,
    /// Number of decoded chunks so far.
    pub chunks: u64,
    /// Size in bytes of the decoded chunks, as they are stored.
    pub bytes: u64,
}

impl CheckProgress {
    /// Returns how many nodes, keys, chunks and bytes were checked so far.
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
    pub(crate) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Returns a metadata document with the reservation for its memory, or `None` if the document is missing.
    ///
    /// `listed` is the document's size from a listing; `None` requests it from the store. Fails with `TooLarge` if the
    /// document is larger than `MAX_DOCUMENT`, and with the errors of the store.
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
        // Two documents are in memory when they are compared, each as bytes and as parsed JSON.
        let needed = size.min(MAX_DOCUMENT).saturating_mul(4);
        let needed = needed.min(self.memory.limit() / 4);
        let reservation = self.memory.reserve(needed, Instant::now() + MEMORY_WAIT)?;
        let object = self.store().get(&UNLIMITED, key, MAX_DOCUMENT)?;
        Ok(object.map(|object| (object.bytes, reservation)))
    }

    /// Requests the size of an object from the store.
    pub(crate) fn request_size(&self, key: &Key) -> Result<u64> {
        let reader = self.store().open(&UNLIMITED, key, None)?;
        Ok(reader.meta(&UNLIMITED)?.size)
    }

    /// Returns the first `HEAD` bytes of an object, or `None` if they cannot be read.
    pub(crate) fn read_head(&self, key: &Key, size: u64) -> Option<ObjectHead> {
        let range = ByteRange::Span(0..size.min(HEAD as u64));
        let object = self.store().get_range(&UNLIMITED, key, range).ok()??;
        Some(ObjectHead {
            bytes: object.bytes,
            size,
        })
    }

    /// Returns the size of an object, or `None` if only a request to a remote store would tell the size.
    pub(crate) fn size_of(&self, key: &Key, meta: Option<&Meta>) -> Option<u64> {
        match meta {
            Some(meta) => Some(meta.size),
            None if self.is_remote => None,
            None => match self.store().head(&UNLIMITED, key).ok()?? {
                // A listing gives the length of a symbolic link's target path, not the size of the target file.
                meta if meta.kind == EntryKind::Link => self.request_size(key).ok(),
                meta => Some(meta.size),
            },
        }
    }

    /// Reserves memory for a chunk, both stored and decoded. Fails with `TooLarge` if the budget is too small for the
    /// chunk.
    pub(crate) fn reserve_chunk(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        self.reserve(size.saturating_add(decoded_bytes(size, pipeline)))
    }

    /// Reserves memory for a shard: its indexes, one inner chunk, and all of its bytes if the shard is read whole.
    /// Fails with `TooLarge` if the budget is too small for the shard.
    pub(crate) fn reserve_shard(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        let whole = if size <= MAX_WHOLE { size } else { 0 };
        let encoded = size.min(pipeline.stored_bound());
        let inner = encoded.saturating_add(decoded_bytes(encoded, pipeline));
        let indexes = index_bytes(size, pipeline.shards());
        self.reserve(whole.saturating_add(inner).saturating_add(indexes))
    }

    /// Reserves memory for the indexes of a shard only. Fails with `TooLarge` if the budget is too small for the
    /// indexes.
    pub(crate) fn reserve_indexes(&self, size: u64, pipeline: &Pipeline) -> Result<Reservation> {
        self.reserve(index_bytes(size, pipeline.shards()))
    }

    /// Reserves memory from the budget. Fails with `TooLarge` for more than 3/4 of the budget, since the rest is for
    /// nodes and for keys in consolidated metadata.
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

/// Maximum size in bytes of a shard that is read in one request if all of its inner chunks are needed.
pub(crate) const MAX_WHOLE: u64 = 32 << 20;

/// Returns how many bytes of memory the encoded and the decoded indexes of a shard of `size` bytes take.
fn index_bytes(size: u64, levels: &[ShardLevel]) -> u64 {
    // Maximum memory in bytes that a decoded entry of a shard index takes.
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

/// Returns how many bytes of memory a chunk of `size` stored bytes takes when it is decoded. A chunk of variable-length
/// elements is rarely as long as allowed, so a multiple of `size` is assumed for it if that is smaller.
fn decoded_bytes(size: u64, pipeline: &Pipeline) -> u64 {
    let decoded = pipeline.chunk_bytes() as u64;
    let decoded = if pipeline.has_fixed_length() {
        decoded
    } else {
        decoded.min(size.saturating_mul(64).max(1 << 20))
    };
    decoded.saturating_mul(pipeline.decoded_copies())
}
