//! Which content of each stored key is the current one.
//!
//! Every stored chunk that was read has an entry: the version it had (or that it was missing), until when that
//! may be taken for true, and of which epoch of the store it is: what was asked before a change was made through
//! the store is not true after it. A cached chunk is served only under the version that stands here, so nothing
//! in a cache ever needs to be invalidated. A version that changes is counted.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::store::Version;

/// What is known of a stored key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Nobody asked yet.
    Unknown,
    /// The version it had; it is time to ask again.
    Stale,
    /// The version it has; nothing if it is missing.
    Known(Option<Version>),
}

/// The most keys that are remembered, about 64 MiB.
const MOST: usize = 1 << 20;

/// The most keys that are asked about when a file is opened.
const MOST_ASKED: usize = 1 << 12;

/// What the store said of a key, and for how long that holds.
#[derive(Clone, Copy, Debug)]
struct VersionEntry {
    version: Option<Version>,
    until: Instant,
    epoch: u64,
}

impl VersionEntry {
    fn holds(&self, now: Instant, epoch: u64) -> bool {
        now < self.until && self.epoch == epoch
    }
}

/// The versions of an array's stored keys, by their number in the grid.
pub struct ChunkVersions {
    known: Mutex<HashMap<u64, VersionEntry>>,
    changes: AtomicU64,
    freshness: Duration,
}

impl ChunkVersions {
    /// Builds an empty record; an answer of the store is true for `freshness`.
    pub fn new(freshness: Duration) -> ChunkVersions {
        ChunkVersions {
            known: Mutex::default(),
            changes: AtomicU64::new(0),
            freshness,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, VersionEntry>> {
        self.known.lock()
    }

    /// Returns what is known of a key while the store is in an epoch.
    pub fn of(&self, number: u64, now: Instant, epoch: u64) -> Generation {
        match self.lock().get(&number) {
            None => Generation::Unknown,
            Some(entry) if entry.holds(now, epoch) => Generation::Known(entry.version),
            Some(_) => Generation::Stale,
        }
    }

    /// Notes what the store, asked in an epoch, said of a key just now.
    pub fn note(&self, number: u64, version: Option<Version>, epoch: u64) {
        let before = self.insert(number, version, epoch);
        if before.is_some_and(|before| before != version) {
            self.count_change();
        }
    }

    /// Notes what a key holds that was put there just now, in an epoch before that; what readers see has not
    /// changed by it.
    pub fn note_put(&self, number: u64, version: Version, epoch: u64) {
        self.insert(number, Some(version), epoch);
    }

    /// Returns the version that was noted before.
    fn insert(&self, number: u64, version: Option<Version>, epoch: u64) -> Option<Option<Version>> {
        let mut known = self.lock();
        if known.len() >= MOST {
            // What is forgotten can change unnoticed, so it counts as changed.
            known.clear();
            self.count_change();
        }
        let entry = VersionEntry {
            version,
            until: Instant::now() + self.freshness,
            epoch,
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

    /// Returns the keys that it is time to ask about in an epoch; nothing if they are too many.
    pub fn stale(&self, epoch: u64) -> Option<Vec<u64>> {
        let now = Instant::now();
        let known = self.lock();
        if known.len() > MOST_ASKED {
            return None;
        }
        let stale = known.iter().filter(|(_, entry)| !entry.holds(now, epoch));
        Some(stale.map(|(number, _)| *number).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_changes_is_counted() {
        let versions = ChunkVersions::new(Duration::from_secs(60));
        assert_eq!(versions.of(1, Instant::now(), 0), Generation::Unknown);
        for version in [Some(Version(1)), Some(Version(1)), None, Some(Version(2))] {
            versions.note(1, version, 0);
        }
        assert_eq!(
            versions.of(1, Instant::now(), 0),
            Generation::Known(Some(Version(2)))
        );
        assert_eq!(versions.changes(), 2);
        versions.note_put(1, Version(3), 0);
        assert_eq!(versions.changes(), 2);
    }

    #[test]
    fn a_change_of_the_store_ends_what_was_known() {
        let versions = ChunkVersions::new(Duration::from_secs(60));
        versions.note(1, Some(Version(1)), 7);
        let of = |epoch| versions.of(1, Instant::now(), epoch);
        assert_eq!(of(7), Generation::Known(Some(Version(1))));
        assert_eq!(of(8), Generation::Stale);
        assert_eq!(versions.stale(7), Some(vec![]));
        assert_eq!(versions.stale(8), Some(vec![1]));
    }

    #[test]
    fn answers_grow_old() {
        let versions = ChunkVersions::new(Duration::ZERO);
        versions.note(1, None, 0);
        assert_eq!(versions.of(1, Instant::now(), 0), Generation::Stale);
        assert_eq!(versions.stale(0), Some(vec![1]));
    }
}
