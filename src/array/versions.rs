//! Which content of each stored key is the current one.
//!
//! Every stored chunk that was read has an entry: the version it had (or that it was missing), until when that
//! may be taken for true, and its place among the changes made through the store: what was asked before a change of
//! the chunk's key is not true after it. A cached chunk is served only under the version that stands here, so nothing
//! in a cache ever needs to be invalidated. A version that changes is counted.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::store::{ChangeLog, Key, LogPosition, StoreInfo, Version};

/// What is known of a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Nothing: the store was not asked yet.
    Unknown,
    /// The version it had; it is time to ask again.
    Stale,
    /// The version it has; nothing if it is missing.
    Known(Option<Version>),
}

/// The most keys that are remembered, about 64 MiB.
const MAX_KEYS: usize = 1 << 20;

/// The most keys that are asked about when a file is opened.
const MAX_KEYS_ASKED: usize = 1 << 12;

/// What the store said of a key, and for how long that holds.
#[derive(Clone, Copy, Debug)]
struct VersionEntry {
    version: Option<Version>,
    until: Instant,
    position: LogPosition,
}

/// The generations of an array's stored keys, by their number in the grid.
pub struct ChunkVersions {
    known: Mutex<HashMap<u64, VersionEntry>>,
    changes: AtomicU64,
    log: Arc<ChangeLog>,
    freshness: Duration,
}

impl ChunkVersions {
    /// Builds an empty record of keys of a store.
    pub fn new(info: &StoreInfo) -> ChunkVersions {
        ChunkVersions {
            known: Mutex::default(),
            changes: AtomicU64::new(0),
            log: info.changes.clone(),
            freshness: info.freshness,
        }
    }

    /// Returns the place among the changes made through the store, to be taken before the store is asked.
    pub fn position(&self) -> LogPosition {
        self.log.position()
    }

    /// Returns what is known of a chunk; `keys` tells the keys that it may have.
    pub fn of(
        &self,
        number: u64,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> Generation {
        let mut known = self.known.lock();
        let Some(entry) = known.get_mut(&number) else {
            return Generation::Unknown;
        };
        if self.holds(entry, now, keys) {
            Generation::Known(entry.version)
        } else {
            Generation::Stale
        }
    }

    /// Whether an entry is true; if so, changes of other keys up to now need not be looked at again.
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

    /// Notes what the store, asked after `position`, said of a chunk just now.
    pub fn note(&self, number: u64, version: Option<Version>, position: LogPosition) {
        let before = self.insert(number, version, position);
        if before.is_some_and(|before| before != version) {
            self.count_change();
        }
    }

    /// Notes the version of a chunk that was put just now, after `position`; what readers see has not changed by it.
    pub fn note_put(&self, number: u64, version: Version, position: LogPosition) {
        self.insert(number, Some(version), position);
    }

    /// Returns the version that was noted before.
    fn insert(
        &self,
        number: u64,
        version: Option<Version>,
        position: LogPosition,
    ) -> Option<Option<Version>> {
        let mut known = self.known.lock();
        if known.len() >= MAX_KEYS {
            // What is forgotten can change unnoticed, so it counts as changed.
            known.clear();
            self.count_change();
        }
        let entry = VersionEntry {
            version,
            until: Instant::now() + self.freshness,
            position,
        };
        known.insert(number, entry).map(|before| before.version)
    }

    fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many changes were seen.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the chunks that it is time to ask about, whose keys `keys` tells; nothing if they are too many.
    pub fn stale(&self, keys: impl Fn(u64) -> Result<Vec<Key>>) -> Option<Vec<u64>> {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() > MAX_KEYS_ASKED {
            return None;
        }
        let stale = known.iter_mut().filter_map(|(&number, entry)| {
            (!self.holds(entry, now, || keys(number))).then_some(number)
        });
        Some(stale.collect())
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

    fn of(versions: &ChunkVersions, number: u64) -> Generation {
        versions.of(number, Instant::now(), || key(number))
    }

    #[test]
    fn a_version_that_changes_is_counted() {
        let versions = versions(Duration::from_secs(60));
        let position = versions.position();
        assert_eq!(of(&versions, 1), Generation::Unknown);
        for version in [Some(Version(1)), Some(Version(1)), None, Some(Version(2))] {
            versions.note(1, version, position);
        }
        assert_eq!(of(&versions, 1), Generation::Known(Some(Version(2))));
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
        assert_eq!(of(&versions, 1), Generation::Stale);
        assert_eq!(of(&versions, 2), Generation::Known(Some(Version(1))));
    }

    #[test]
    fn answers_grow_old() {
        let versions = versions(Duration::ZERO);
        versions.note(1, None, versions.position());
        assert_eq!(of(&versions, 1), Generation::Stale);
        assert_eq!(versions.stale(key), Some(vec![1]));
    }
}
