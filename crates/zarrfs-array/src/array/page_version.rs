//! Numbers the content of an array's files in the kernel's page cache.
//!
//! The number changes with the content that readers see, and no number is used twice.
//!
//! The kernel keeps the pages of a decoded file as long as its content number is the same. The array may have changed
//! while it was closed, so it gets a new number when it is opened.

use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash64;

/// The last number used, for any content of the process.
static LAST: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of a content that may change.
pub(super) struct PageVersion(AtomicU64);

impl PageVersion {
    /// Creates a number for a content that was just opened.
    pub(super) fn new() -> PageVersion {
        PageVersion(AtomicU64::new(next()))
    }

    /// Replaces the number, after the content has changed.
    pub(super) fn renew(&self) {
        self.0.store(next(), Ordering::Release);
    }

    /// Returns the number.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the number of this content combined with another.
    pub(super) fn with(&self, other: &PageVersion) -> u64 {
        let both = [self.get().to_le_bytes(), other.get().to_le_bytes()];
        XxHash64::oneshot(0, both.as_flattened())
    }
}
