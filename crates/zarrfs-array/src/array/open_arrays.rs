//! Keeps arrays open while they are in use, and longer if memory allows.
//!
//! An array counts until its last holder drops it. An array without room in the budget is open only while it is in use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::array::OpenArray;
use zarrfs_store::Key;
use zarrfs_store::sync::aged_map::{AgedMap, Minute};
use zarrfs_store::sync::budget::{Evict, MemoryBudget, Priority};

/// The least value of `swept_at`.
const MIN_SWEPT: usize = 1 << 10;

/// The open arrays.
pub(super) struct OpenArrays {
    state: Mutex<KeptArrays>,
}

struct KeptArrays {
    /// The last arrays that were used, kept open even if they are not in use.
    kept: AgedMap<Key, Arc<OpenArray>>,
    /// The arrays in use, and some that no longer are.
    used: HashMap<Key, Weak<OpenArray>>,
    /// The length of `used` at which arrays that are no longer in use are removed.
    swept_at: usize,
}

impl OpenArrays {
    /// Creates an empty set that is evicted when the budget needs memory.
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Arc<OpenArrays> {
        let arrays = Arc::new(OpenArrays {
            state: Mutex::new(KeptArrays {
                kept: AgedMap::default(),
                used: HashMap::new(),
                swept_at: MIN_SWEPT,
            }),
        });
        let weak: Weak<OpenArrays> = Arc::downgrade(&arrays);
        memory.register(Priority::OpenArrays, weak);
        arrays
    }

    /// Returns the array at a path, if it is open.
    pub(super) fn get(&self, path: &Key) -> Option<Arc<OpenArray>> {
        let mut state = self.state.lock();
        if let Some(array) = state.kept.get(path) {
            return Some(array.clone());
        }
        let array = state.used.get(path)?.upgrade()?;
        // The array was not in `kept`, so nothing is replaced.
        let _ = state.keep(&array);
        Some(array)
    }

    /// Adds an array that was opened.
    pub(super) fn put(&self, array: &Arc<OpenArray>) {
        let mut state = self.state.lock();
        let replaced = state.keep(array);
        state
            .used
            .insert(array.path().clone(), Arc::downgrade(array));
        state.sweep();
        drop(state);
        drop(replaced);
    }
}

impl KeptArrays {
    /// Keeps an array open if it counts in the budget; returns the array that it replaces.
    fn keep(&mut self, array: &Arc<OpenArray>) -> Option<Arc<OpenArray>> {
        array.room.as_ref()?;
        self.kept.put(array.path().clone(), array.clone())
    }

    fn sweep(&mut self) {
        if self.used.len() > self.swept_at {
            self.used.retain(|_, array| array.strong_count() > 0);
            self.used.shrink_to_fit();
            self.swept_at = MIN_SWEPT.max(2 * self.used.len());
        }
    }
}

impl Evict for OpenArrays {
    fn evict_one(&self, before: Minute) -> bool {
        let evicted = self.state.lock().kept.pop_unused(before);
        evicted.is_some()
    }
}
