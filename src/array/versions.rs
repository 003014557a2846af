//! The current version of each stored chunk of an array, as far as it is known.
//!
//! Every stored chunk that was read has an entry: its version, or that it is missing; until when that counts; and the
//! position in the store's log of changes from before it was asked for, since a change of the chunk's key ends it. A
//! cached piece is used only under the version in this table, so the cache needs no invalidation. Changes of versions
//! are counted: they tell one content of the array from another.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::store::{ChangeLog, Key, LogPosition, StoreInfo, Version};

/// What is known of a stored chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// The store was not asked yet.
    Unknown,
    /// The store has to be asked again.
    Stale,
    /// The version; nothing if the chunk is missing.
    Known(Option<Version>),
}

/// The most chunks in the table, which takes about 64 MiB then.
const MAX_CHUNKS: usize = 1 << 20;

/// The most chunks that the store is asked about when a file is opened.
const MAX_CHUNKS_ASKED: usize = 1 << 12;

/// An answer of the store and how long it counts.
#[derive(Clone, Copy, Debug)]
struct VersionEntry {
    version: Option<Version>,
    until: Instant,
    position: LogPosition,
}

/// The versions of an array's stored chunks, by their number in the grid.
pub struct ChunkVersions {
    known: Mutex<HashMap<u64, VersionEntry>>,
    /// Number of changes that were seen.
    changes: AtomicU64,
    log: Arc<ChangeLog>,
    freshness: Duration,
}

impl ChunkVersions {
    /// Builds an empty table of chunks of a store.
    pub fn new(info: &StoreInfo) -> ChunkVersions {
        ChunkVersions {
            known: Mutex::default(),
            changes: AtomicU64::new(0),
            log: info.changes.clone(),
            freshness: info.freshness,
        }
    }

    /// Returns the position in the store's log of changes, to be taken before the store is asked.
    pub fn position(&self) -> LogPosition {
        self.log.position()
    }

    /// Locks the table to look up several chunks.
    pub fn lock(&self) -> LockedVersions<'_> {
        LockedVersions {
            known: self.known.lock(),
            versions: self,
        }
    }

    /// Whether an entry still counts; if so, its position moves on past the changes of other keys.
    fn holds(
        &self,
        entry: &mut VersionEntry,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> bool {
        if now >= entry.until {
            return false;
        }
        let position = self.log.position();
        let is_unchanged = position == entry.position || {
            let is_unchanged = |key: &Key| !self.log.changed_since(entry.position, key);
            keys().is_ok_and(|keys| keys.iter().all(is_unchanged))
        };
        if is_unchanged {
            entry.position = position;
        }
        is_unchanged
    }

    /// Notes the version of a chunk that the store, asked after `position`, returned just now.
    pub fn note(&self, number: u64, version: Option<Version>, position: LogPosition) {
        if self.replace(number, version, position) {
            self.count_change();
        }
    }

    /// Notes the version of a chunk that was put just now, after `position`; what readers see has not changed by it.
    pub fn note_put(&self, number: u64, version: Version, position: LogPosition) {
        self.replace(number, Some(version), position);
    }

    /// Puts an entry into the table; returns whether it replaces one of another version.
    fn replace(&self, number: u64, version: Option<Version>, position: LogPosition) -> bool {
        let mut known = self.known.lock();
        if known.len() >= MAX_CHUNKS {
            // Chunks without an entry can change unnoticed, so they count as changed.
            known.clear();
            self.count_change();
        }
        let entry = VersionEntry {
            version,
            until: Instant::now() + self.freshness,
            position,
        };
        let replaced = known.insert(number, entry);
        replaced.is_some_and(|replaced| replaced.version != version)
    }

    fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of changes that were seen.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the chunks that the store has to be asked about again, nothing if there may be too many; `keys` returns
    /// the keys that a chunk may have.
    pub fn stale(&self, keys: impl Fn(u64) -> Result<Vec<Key>>) -> Option<Vec<u64>> {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() > MAX_CHUNKS_ASKED {
            return None;
        }
        let stale = known.iter_mut().filter_map(|(&number, entry)| {
            (!self.holds(entry, now, || keys(number))).then_some(number)
        });
        Some(stale.collect())
    }
}

/// The locked table.
pub struct LockedVersions<'a> {
    known: MutexGuard<'a, HashMap<u64, VersionEntry>>,
    versions: &'a ChunkVersions,
}

impl LockedVersions<'_> {
    /// Returns what is known of a chunk; `keys` returns the keys that it may have.
    pub fn of(
        &mut self,
        number: u64,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> VersionState {
        let Some(entry) = self.known.get_mut(&number) else {
            return VersionState::Unknown;
        };
        if self.versions.holds(entry, now, keys) {
            VersionState::Known(entry.version)
        } else {
            VersionState::Stale
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Result<Vec<Key>> {
        Ok(vec![Key::new(format!("c/{number}"))?])
    }

    fn versions(freshness: Duration) -> ChunkVersions {
        ChunkVersions::new(&StoreInfo::new(freshness))
    }

    fn of(versions: &ChunkVersions, number: u64) -> VersionState {
        versions.lock().of(number, Instant::now(), || key(number))
    }

    #[test]
    fn a_version_that_changes_is_counted() {
        let versions = versions(Duration::from_secs(60));
        let position = versions.position();
        assert_eq!(of(&versions, 1), VersionState::Unknown);
        for version in [Some(Version(1)), Some(Version(1)), None, Some(Version(2))] {
            versions.note(1, version, position);
        }
        assert_eq!(of(&versions, 1), VersionState::Known(Some(Version(2))));
        assert_eq!(versions.changes(), 2);
        versions.note_put(1, Version(3), position);
        assert_eq!(versions.changes(), 2);
    }

    #[test]
    fn a_change_of_a_key_ends_what_was_known_of_it() {
        let versions = versions(Duration::from_secs(60));
        for number in [1, 2] {
            versions.note(number, Some(Version(1)), versions.position());
        }
        assert_eq!(versions.stale(key), Some(vec![]));
        versions.log.note(&key(1).unwrap()[0]);
        assert_eq!(versions.stale(key), Some(vec![1]));
        assert_eq!(of(&versions, 1), VersionState::Stale);
        assert_eq!(of(&versions, 2), VersionState::Known(Some(Version(1))));
    }

    #[test]
    fn answers_grow_old() {
        let versions = versions(Duration::ZERO);
        versions.note(1, None, versions.position());
        assert_eq!(of(&versions, 1), VersionState::Stale);
        assert_eq!(versions.stale(key), Some(vec![1]));
    }
}
