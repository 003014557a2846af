//! Keeps answers of the store from being stored after a change that makes them untrue.
//!
//! An answer is stored with the lock held for reading, if its key was not changed since it was asked for; what a change
//! makes untrue is forgotten with the lock held for writing. A question that is asked after a change never joins a
//! request from before it. The lock is never held while the store is asked.

use parking_lot::RwLock;
use std::sync::Arc;

use crate::{ChangeLog, Key, LogPosition, QueryStamp};

/// The changes that are made through this store.
pub(super) struct ChangeTracker {
    log: Arc<ChangeLog>,
    lock: RwLock<()>,
}

/// Which way a key was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// It holds something, and the directories above it exist.
    Put,
    /// It holds nothing, or that is not known, and directories above it may be gone.
    Erased,
}

impl ChangeTracker {
    /// Follows the change log of a store.
    pub(super) fn new(log: Arc<ChangeLog>) -> ChangeTracker {
        ChangeTracker {
            log,
            lock: RwLock::default(),
        }
    }

    /// Returns what tells a question about a key from the same one before a change of that key.
    pub(super) fn question(&self, key: &Key) -> (Key, LogPosition) {
        (key.clone(), self.log.last_change(key))
    }

    /// Returns what tells a question about a prefix from the same one before a change there or below.
    pub(super) fn question_below(&self, prefix: &Key) -> (Key, LogPosition) {
        (prefix.clone(), self.log.last_change_below(prefix))
    }

    /// Stores an answer about a key, unless the key was changed since.
    pub(super) fn store_if_unchanged(&self, stamp: QueryStamp, key: &Key, store: impl FnOnce()) {
        let _lock = self.lock.read();
        if !self.log.changed_since(stamp.position, key) {
            store();
        }
    }

    /// Stores an answer about a prefix, unless something at or below it was changed since.
    pub(super) fn store_if_unchanged_below(
        &self,
        stamp: QueryStamp,
        prefix: &Key,
        store: impl FnOnce(),
    ) {
        let _lock = self.lock.read();
        if !self.log.below_changed_since(stamp.position, prefix) {
            store();
        }
    }

    /// Stores something while no change is being forgotten; whether it is still true is up to `store`.
    pub(super) fn store(&self, store: impl FnOnce()) {
        let _lock = self.lock.read();
        store();
    }

    /// Forgets what a change of a key made untrue. The change is noted once more after that: an answer given in between
    /// may be from before it.
    pub(super) fn forget(&self, key: &Key, forget: impl FnOnce()) {
        let _lock = self.lock.write();
        forget();
        self.log.note(key);
    }
}
