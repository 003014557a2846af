//! Room in the memory of open arrays for the versions of chunks of one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::sync::budget::{MemoryBudget, Reservation};

/// The bytes of an entry: its own, and its places in the order and in the table, which has room for more.
pub(super) const ENTRY_BYTES: u64 = 128;

/// Entries that count with the array itself.
pub(super) const FREE_ENTRIES: usize = 16;

/// The most entries for which room is taken at a time.
const MAX_STEP: usize = 1 << 10;

/// Room for the entries of a table.
pub(super) struct VersionsRoom {
    memory: Arc<MemoryBudget>,
    taken: Mutex<Vec<Reservation>>,
    /// The number of entries that there is room for.
    covered: AtomicUsize,
}

impl VersionsRoom {
    /// Takes none yet but what counts with the array itself.
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> VersionsRoom {
        VersionsRoom {
            memory: memory.clone(),
            taken: Mutex::default(),
            covered: AtomicUsize::new(FREE_ENTRIES),
        }
    }

    /// Takes room for so many entries, if there is not enough yet; returns whether there is. No lock is held while room
    /// is taken, since that may close arrays.
    pub(super) fn cover(&self, entries: usize) -> bool {
        let covered = self.covered.load(Ordering::Relaxed);
        if entries <= covered {
            return true;
        }
        // A table doubles as well when it grows.
        let step = covered.min(MAX_STEP);
        let Some(room) = self.memory.try_reserve(step as u64 * ENTRY_BYTES) else {
            return false;
        };
        let mut taken = self.taken.lock();
        taken.push(room);
        self.covered.fetch_add(step, Ordering::Relaxed);
        true
    }
}
