//! The shared state of a check: the store, the options and the progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::foreign::HEAD;
use zarr_format::error::Result;
use zarrfs_array::array::Arrays;
use zarrfs_array::hierarchy::{Hierarchy, MAX_DOCUMENT};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::sync::budget::{MemoryBudget, Reservation};
use zarrfs_store::{ByteRange, EntryKind, Key, Meta, Store};

/// Maximum time that a document waits for memory.
pub(super) const MEMORY_WAIT: Duration = Duration::from_secs(600);

/// The number of forms of a document in memory: its bytes, its members, and the data that it is compared with.
const DOCUMENT_FORMS: u64 = 4;

/// One document may take 1/N of the memory budget.
const MEMORY_SHARE: u64 = 4;

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

impl CheckProgress {
    /// Returns the numbers of nodes, keys and decoded chunks that were checked, and the bytes of chunks that were
    /// read.
    pub fn counts(&self) -> [u64; 4] {
        [&self.nodes, &self.keys, &self.chunks, &self.bytes]
            .map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn add_node(&self) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_chunk(&self, bytes: u64) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl CheckContext {
    /// Returns the store that the hierarchy reads.
    pub(super) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Returns a document and its reserved memory, or `None` if the document is missing.
    ///
    /// The size comes from the listing; without one, the store is asked. Fails as the store does, and with `TooLarge`
    /// if the document is larger than `MAX_DOCUMENT`.
    pub(super) fn document(
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
        let needed = size.min(MAX_DOCUMENT).saturating_mul(DOCUMENT_FORMS);
        let needed = needed.min(self.memory.limit() / MEMORY_SHARE);
        let room = self.memory.reserve(needed, Instant::now() + MEMORY_WAIT)?;
        let object = self.store().get(&UNLIMITED, key, MAX_DOCUMENT)?;
        Ok(object.map(|object| (object.bytes, room)))
    }

    /// Asks the store for the size of an object.
    pub(super) fn asked_size(&self, key: &Key) -> Result<u64> {
        let reader = self.store().open(&UNLIMITED, key, None)?;
        Ok(reader.meta(&UNLIMITED)?.size)
    }

    /// Returns at most the first `HEAD` bytes of an object, and its size; `None` if they cannot be read.
    pub(super) fn head_of(&self, key: &Key, size: u64) -> Option<(Vec<u8>, u64)> {
        let range = ByteRange::Span(0..size.min(HEAD));
        let object = self.store().get_range(&UNLIMITED, key, range).ok()??;
        Some((object.bytes, size))
    }

    /// Returns the size of an object, or `None` if finding it would cost a request.
    pub(super) fn size_of(&self, key: &Key, meta: Option<&Meta>) -> Option<u64> {
        match meta {
            Some(meta) => Some(meta.size),
            None if self.is_remote => None,
            None => match self.store().head(&UNLIMITED, key).ok()?? {
                // The size of a link is the length of its target path.
                meta if meta.kind == EntryKind::Link => self.asked_size(key).ok(),
                meta => Some(meta.size),
            },
        }
    }
}
