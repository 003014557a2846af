//! How often all of a store was replaced at once, as where another archive takes the place of one.
//!
//! A reader takes the number before it asks the store; what it was answered is of one content of the whole store as long
//! as the number stays. Stores whose keys change one by one never count.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often a store was replaced as a whole.
#[derive(Debug, Default)]
pub struct Replacements(AtomicU64);

impl Replacements {
    /// Returns how often.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Counts one, before the first answer is given out of what is there now.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
