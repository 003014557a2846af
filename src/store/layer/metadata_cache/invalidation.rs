//! Changes made through this store: what they make untrue is forgotten before anybody hears that they are done.
//!
//! An answer about a key that was asked for before a change of it is not remembered after the change, and a question
//! that is asked after the change does not join a request from before it.
use super::shared::MetadataCacheState;
use crate::error::Result;
use crate::store::{ChangeLog, Key, LogPosition};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Instant;

/// The changes that are made through this store.
///
/// What is remembered is noted with the lock held for reading, and forgotten with it held for writing, so that no
/// answer from before a change is noted after what the change made untrue was forgotten.
pub(super) struct ChangeCounter {
    log: Arc<ChangeLog>,
    lock: RwLock<()>,
}

/// When a question was asked.
#[derive(Clone, Copy)]
pub(super) struct QueryStamp {
    pub(super) at: Instant,
    /// The position of the change log then.
    pub(super) position: LogPosition,
}

impl ChangeCounter {
    /// Builds the record of a store's changes.
    pub(super) fn new(log: Arc<ChangeLog>) -> ChangeCounter {
        ChangeCounter {
            log,
            lock: RwLock::default(),
        }
    }

    /// Returns the question about a key that is asked now: one of before a change of the key is another.
    pub(super) fn question(&self, key: &Key) -> (Key, LogPosition) {
        (key.clone(), self.log.last_change(key))
    }

    /// Returns the question about a prefix and what lies below it.
    pub(super) fn question_below(&self, prefix: &Key) -> (Key, LogPosition) {
        (prefix.clone(), self.log.last_change_below(prefix))
    }

    /// Notes that a question is asked now.
    pub(super) fn asked(&self) -> QueryStamp {
        QueryStamp {
            at: Instant::now(),
            position: self.log.position(),
        }
    }

    /// Notes an answer about a key, unless the key was changed since it was asked for.
    pub(super) fn unless_changed(&self, asked: QueryStamp, key: &Key, note: impl FnOnce()) {
        let _lock = self.lock.read();
        if !self.log.changed_since(asked.position, key) {
            note();
        }
    }

    /// Notes an answer about a prefix, unless anything there was changed since it was asked for.
    pub(super) fn unless_changed_below(
        &self,
        asked: QueryStamp,
        prefix: &Key,
        note: impl FnOnce(),
    ) {
        let _lock = self.lock.read();
        if !self.log.below_changed_since(asked.position, prefix) {
            note();
        }
    }

    /// Notes something while nothing changes.
    pub(super) fn between(&self, note: impl FnOnce()) {
        let _lock = self.lock.read();
        note();
    }

    /// Forgets what a change of a key makes untrue. The change is noted once more after that: an answer that came
    /// from here in between may be of before.
    fn change(&self, key: &Key, forget: impl FnOnce()) {
        let _lock = self.lock.write();
        forget();
        self.log.note(key);
    }
}

/// Which way a key was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// It holds something, and the folders above it are there.
    Put,
    /// It holds nothing, and folders above it may be gone.
    Erased,
}

impl MetadataCacheState {
    /// Changes a key, and forgets what may no longer be true whether that succeeds or not.
    pub(super) fn change<T>(
        &self,
        key: &Key,
        way: ChangeKind,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let done = change();
        let way = if done.is_ok() {
            way
        } else {
            ChangeKind::Erased
        };
        self.changes.change(key, || self.forget_changed(key, way));
        done
    }

    fn forget_changed(&self, key: &Key, way: ChangeKind) {
        self.forget(key);
        self.folders.forget(key);
        let mut below = key.clone();
        while let Some(above) = below.parent() {
            let stays = |knows: bool| way == ChangeKind::Put && knows;
            if !stays(self.folders.knows_folder(&below)) {
                self.folders.forget(&above);
            }
            if !stays(self.facts.knows_folder(&above)) {
                self.facts.forget(&above);
            }
            below = above;
        }
        let trails = self.trails.lock().clone();
        for trail in trails {
            if key.below(&trail.prefix).is_some() {
                // What it finds from now on may be from before, and it would be ended by the next change as well.
                self.listed.lock().bar(&trail.prefix);
                self.end(&trail);
            }
        }
    }
}
