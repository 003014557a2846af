//! Numbers the content that the kernel's pages of an array's files are of.
//!
//! A change of what readers see gives a content another number, and no number is given twice.
//!
//! The kernel keeps the pages of a decoded file as long as the number of its content is the same. An array that is opened
//! again may have changed meanwhile, so it begins with a number of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use twox_hash::XxHash64;

/// The number that was given last, to any content of the process.
static LAST: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of a content that may change.
pub(super) struct PageVersion(AtomicU64);

impl PageVersion {
    /// Numbers a content of which nothing is known.
    pub(super) fn new() -> PageVersion {
        PageVersion(AtomicU64::new(next()))
    }

    /// Gives the content another number, once it has changed.
    pub(super) fn renew(&self) {
        self.0.store(next(), Ordering::Release);
    }

    /// Returns the number.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the number of what this content and another are together.
    pub(super) fn with(&self, other: &PageVersion) -> u64 {
        let both = [self.get().to_le_bytes(), other.get().to_le_bytes()];
        XxHash64::oneshot(0, both.as_flattened())
    }
}
