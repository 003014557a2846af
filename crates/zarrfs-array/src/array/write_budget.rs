//! Counts the dirty bytes of all arrays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Dirty chunks may use 1/N of the memory.
pub(super) const DIRTY_SHARE: u64 = 4;

/// The dirty bytes of all arrays, and their limit.
pub(super) struct WriteBudget {
    /// Bytes of chunks.
    bytes: AtomicU64,
    /// Counts writes, which orders them.
    clock: AtomicU64,
    /// Whether writes are refused: the dirty chunks are being stored for the last time.
    is_closed: AtomicBool,
    /// The maximum number of dirty bytes.
    share: u64,
}

impl WriteBudget {
    /// Creates the counters for a mount with `memory` bytes of memory.
    pub(super) fn new(memory: u64) -> Arc<WriteBudget> {
        Arc::new(WriteBudget {
            bytes: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            share: memory / DIRTY_SHARE,
        })
    }

    /// Returns the number of dirty bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Refuses all writes from now on. Writes that were accepted are in the write buffers.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether writes are refused.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of dirty bytes.
    pub(super) fn share(&self) -> u64 {
        self.share
    }

    /// Adds dirty bytes.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts dirty bytes.
    pub(super) fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a write; returns the number of writes before it.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}
