//! Changes made through this store: what they make untrue is forgotten before anybody hears that they are done.
//!
//! An answer that was asked for before a change is not remembered after it, whatever key it is about; and nobody who
//! asks after a change is given the answer to somebody who asked before.
use super::shared::MetadataCacheState;
use crate::error::Result;
use crate::store::Key;
use parking_lot::RwLock;
use std::time::Instant;

/// How many changes there were.
#[derive(Default)]
pub(super) struct ChangeCounter(RwLock<u64>);

/// When a question was asked.
#[derive(Clone, Copy)]
pub(super) struct QueryStamp {
    pub(super) at: Instant,
    /// How many changes there were then.
    pub(super) changes: u64,
}

impl ChangeCounter {
    /// Returns how many changes there were.
    pub(super) fn count(&self) -> u64 {
        *self.0.read()
    }

    /// Notes that a question is asked now.
    pub(super) fn asked(&self) -> QueryStamp {
        QueryStamp {
            at: Instant::now(),
            changes: self.count(),
        }
    }

    /// Notes an answer, unless something was changed since it was asked for.
    pub(super) fn unless_changed(&self, asked: QueryStamp, note: impl FnOnce()) {
        let changes = self.0.read();
        if *changes == asked.changes {
            note();
        }
    }

    /// Notes something while nothing changes.
    pub(super) fn between(&self, note: impl FnOnce()) {
        let _changes = self.0.read();
        note();
    }

    /// Counts a change and forgets what it makes untrue.
    fn change(&self, forget: impl FnOnce()) {
        let mut changes = self.0.write();
        *changes += 1;
        forget();
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
        self.changes.change(|| self.forget_changed(key, way));
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
