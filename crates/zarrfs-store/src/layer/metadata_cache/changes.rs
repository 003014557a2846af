//! Prevents caching of answers that a concurrent change made stale.
//!
//! An answer is cached under the read lock, if its key was not changed since the request; a change invalidates entries
//! under the write lock. A query after a change never joins a request from before it. The lock is never held during a
//! request.

use parking_lot::RwLock;
use std::sync::Arc;

use crate::{ChangeLog, Key, LogPosition, QueryStamp};

/// The changes made through this store.
pub(super) struct ChangeTracker {
    log: Arc<ChangeLog>,
    lock: RwLock<()>,
}

/// The kind of a change to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The key exists now, and so do its ancestors.
    Put,
    /// The key is missing or in an unknown state, and its ancestors may be gone.
    Erased,
}

impl ChangeTracker {
    /// Builds a tracker over the change log of a store.
    pub(super) fn new(log: Arc<ChangeLog>) -> ChangeTracker {
        ChangeTracker {
            log,
            lock: RwLock::default(),
        }
    }

    /// Identifies a query about a key; the identifier differs after a change of the key.
    pub(super) fn question(&self, key: &Key) -> (Key, LogPosition) {
        (key.clone(), self.log.last_change(key))
    }

    /// Identifies a query about a prefix; the identifier differs after a change at or below the prefix.
    pub(super) fn question_below(&self, prefix: &Key) -> (Key, LogPosition) {
        (prefix.clone(), self.log.last_change_below(prefix))
    }

    /// Caches an answer about a key, unless the key was changed since the request.
    pub(super) fn store_if_unchanged(&self, stamp: QueryStamp, key: &Key, store: impl FnOnce()) {
        let _lock = self.lock.read();
        if !self.log.changed_since(stamp.position, key) {
            store();
        }
    }

    /// Caches an answer about a prefix, unless something at or below it was changed since the request.
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

    /// Runs `store` while no invalidation runs; `store` must check itself whether the answer is stale.
    pub(super) fn store(&self, store: impl FnOnce()) {
        let _lock = self.lock.read();
        store();
    }

    /// Runs the invalidation for a change of a key. Then enters the change in the log once more, since an answer given
    /// in between may be from before the change.
    pub(super) fn forget(&self, key: &Key, forget: impl FnOnce()) {
        let _lock = self.lock.write();
        forget();
        self.log.note(key);
    }
}
