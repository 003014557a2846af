//! Counts how often a whole store was replaced.
//!
//! An open zip archive is replaced as a whole, for instance. A reader takes the count before its requests to the store;
//! their answers belong to one state of the store while the count stays the same. Stores whose keys change one by one
//! never count.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of replacements.
#[derive(Debug, Default)]
pub struct Replacements(AtomicU64);

impl Replacements {
    /// Returns the number of replacements.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts a replacement; call it before returning the first answer from the new content.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
