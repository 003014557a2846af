//! Tracks the chunk keys that are open for writing.
//!
//! The decoded files of their arrays cannot be opened for writing at the same time.
//!
//! The kernel caches pages of a chunk file, and mmap write-back writes whole pages: they would undo writes to a decoded
//! file, as pages of a decoded file would undo writes to a chunk file (`writers`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::array::writers::CLOSE_WAIT;
use zarrfs_store::Key;

/// The keys that are open for writing, with the number of their handles.
#[derive(Default)]
pub(super) struct WrittenKeys {
    open: Mutex<BTreeMap<Key, usize>>,
    closed: Condvar,
}

/// A handle through which a key is open for writing; dropped when it is closed.
pub struct WrittenKey {
    keys: Arc<WrittenKeys>,
    key: Key,
}

impl WrittenKeys {
    pub(super) fn add(self: &Arc<Self>, key: &Key) -> WrittenKey {
        *self.open.lock().entry(key.clone()).or_insert(0) += 1;
        WrittenKey {
            keys: self.clone(),
            key: key.clone(),
        }
    }

    /// Waits until no matching key is open, at most for the time that a close may take; returns a key that stays open.
    pub(super) fn wait_for_none(&self, is_meant: impl Fn(&Key) -> bool) -> Option<Key> {
        let end = Instant::now() + CLOSE_WAIT;
        let mut open = self.open.lock();
        loop {
            let found = open.keys().find(|key| is_meant(key))?.clone();
            if self.closed.wait_until(&mut open, end).timed_out() {
                return Some(found);
            }
        }
    }
}

impl Drop for WrittenKey {
    fn drop(&mut self) {
        let mut open = self.keys.open.lock();
        if let Some(handles) = open.get_mut(&self.key) {
            *handles -= 1;
            if *handles == 0 {
                open.remove(&self.key);
                self.keys.closed.notify_all();
            }
        }
    }
}
