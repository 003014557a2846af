//! Which content of each stored key is the current one.
//!
//! Every stored chunk that was read has an entry: the version it had (or that it was missing) and until when
//! that may be taken for true. A cached chunk is served only under the version that stands here, so nothing
//! in a cache ever needs to be invalidated. A version that changes is counted.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

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

/// The generations of an array's stored keys, by their number in the grid.
pub struct Generations {
    known: Mutex<HashMap<u64, (Option<Version>, Instant)>>,
    changes: AtomicU64,
    freshness: Duration,
}

impl Generations {
    /// Builds an empty record; an answer of the store is true for `freshness`.
    pub fn new(freshness: Duration) -> Generations {
        Generations {
            known: Mutex::default(),
            changes: AtomicU64::new(0),
            freshness,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Option<Version>, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of a key.
    pub fn of(&self, number: u64, now: Instant) -> Generation {
        match self.lock().get(&number) {
            None => Generation::Unknown,
            Some((version, until)) if now < *until => Generation::Known(*version),
            Some(_) => Generation::Stale,
        }
    }

    /// Notes what the store said of a key just now.
    pub fn note(&self, number: u64, version: Option<Version>) {
        let mut known = self.lock();
        if known.len() >= MOST {
            // What is forgotten can change unnoticed, so it counts as changed.
            known.clear();
            self.count_change();
        }
        let before = known.insert(number, (version, Instant::now() + self.freshness));
        if before.is_some_and(|(before, _)| before != version) {
            self.count_change();
        }
    }

    fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many changes were seen.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the keys that it is time to ask about; nothing if they are too many.
    pub fn stale(&self) -> Option<Vec<u64>> {
        let now = Instant::now();
        let known = self.lock();
        if known.len() > MOST_ASKED {
            return None;
        }
        Some(
            known
                .iter()
                .filter(|(_, (_, until))| now >= *until)
                .map(|(number, _)| *number)
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_changes_is_counted() {
        let generations = Generations::new(Duration::from_secs(60));
        assert_eq!(generations.of(1, Instant::now()), Generation::Unknown);
        for version in [Some(Version(1)), Some(Version(1)), None, Some(Version(2))] {
            generations.note(1, version);
        }
        assert_eq!(
            generations.of(1, Instant::now()),
            Generation::Known(Some(Version(2)))
        );
        assert_eq!(generations.changes(), 2);
    }

    #[test]
    fn answers_grow_old() {
        let generations = Generations::new(Duration::ZERO);
        generations.note(1, None);
        assert_eq!(generations.of(1, Instant::now()), Generation::Stale);
        assert_eq!(generations.stale(), Some(vec![1]));
    }
}
