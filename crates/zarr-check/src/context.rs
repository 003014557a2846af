//! What all parts of a check share: the store, how it is checked, and how far the check is.

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

/// How long a document may wait for memory.
pub(super) const MEMORY_WAIT: Duration = Duration::from_secs(600);

/// How often a document is held while it is looked at: its bytes, its members, and what is compared with it.
const DOCUMENT_FORMS: u64 = 4;

/// The part of the budget that one document may take, one in so many bytes.
const MEMORY_SHARE: u64 = 4;

/// What is checked, and with which means.
pub struct CheckContext {
    /// The nodes of the store.
    pub hierarchy: Arc<Hierarchy>,
    /// Its arrays.
    pub arrays: Arc<Arrays>,
    /// What chunks that are decoded count in.
    pub memory: Arc<MemoryBudget>,
    /// Whether every chunk is read and decoded.
    pub data: bool,
    /// Whether the store is on a network, where a question about a key is a request.
    pub is_remote: bool,
    /// How many nodes, and how many chunks, are looked at at a time.
    pub threads: usize,
    /// How far the check is.
    pub progress: Arc<CheckProgress>,
}

/// How far a check is, for a display.
#[derive(Default)]
pub struct CheckProgress {
    nodes: AtomicU64,
    keys: AtomicU64,
    chunks: AtomicU64,
    bytes: AtomicU64,
}

impl CheckProgress {
    /// Returns how many nodes, keys and decoded chunks were looked at, and how many bytes of chunks were read.
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
    /// Returns the store below the hierarchy.
    pub(super) fn store(&self) -> &dyn Store {
        &**self.hierarchy.store()
    }

    /// Returns a document, and the room in memory that it takes while it is looked at; nothing if it is missing.
    ///
    /// Its size is what a listing said; where none did, the store is asked. Fails as the store does, and with `TooLarge`
    /// for more than any document has.
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

    /// Returns the size of an object, asking the store.
    pub(super) fn asked_size(&self, key: &Key) -> Result<u64> {
        let reader = self.store().open(&UNLIMITED, key, None)?;
        Ok(reader.meta(&UNLIMITED)?.size)
    }

    /// Returns the first bytes of an object, at most `HEAD`; nothing where the store does not give them.
    pub(super) fn head_of(&self, key: &Key, size: u64) -> Option<(Vec<u8>, u64)> {
        let range = ByteRange::Span(0..size.min(HEAD));
        let object = self.store().get_range(&UNLIMITED, key, range).ok()??;
        Some((object.bytes, size))
    }

    /// Returns the size of an object that a listing gave, if that costs no request.
    pub(super) fn size_of(&self, key: &Key, meta: Option<&Meta>) -> Option<u64> {
        match meta {
            Some(meta) => Some(meta.size),
            None if self.is_remote => None,
            None => match self.store().head(&UNLIMITED, key).ok()?? {
                // A link is as long as its text, and not as what it leads to.
                meta if meta.kind == EntryKind::Link => self.asked_size(key).ok(),
                meta => Some(meta.size),
            },
        }
    }
}
