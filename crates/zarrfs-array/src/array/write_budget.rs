//! Counts what all arrays together have written and not stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Chunks that are not stored yet may hold the memory divided by this.
pub(super) const DIRTY_SHARE: u64 = 4;

/// What all arrays together have still to store.
pub(super) struct WriteBudget {
    /// Bytes of chunks.
    bytes: AtomicU64,
    /// Counts writes, which orders them.
    clock: AtomicU64,
    /// Whether writes are refused: what is here is stored for the last time.
    is_closed: AtomicBool,
    /// The bytes that chunks may hold.
    share: u64,
}

impl WriteBudget {
    /// Begins with nothing to be stored, beside all that counts in `memory` bytes.
    pub(super) fn new(memory: u64) -> Arc<WriteBudget> {
        Arc::new(WriteBudget {
            bytes: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            share: memory / DIRTY_SHARE,
        })
    }

    /// Returns the bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Refuses all writes from now on. Those that an array has taken are in its table.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether writes are refused.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Returns the bytes that chunks may hold.
    pub(super) fn share(&self) -> u64 {
        self.share
    }

    /// Counts bytes of chunks.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of chunks no more.
    pub(super) fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a write; returns how many there were before.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}
