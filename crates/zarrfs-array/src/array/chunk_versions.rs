//! Returns the current version of each stored chunk of an array.
//!
//! A valid version in the table is returned without a request; otherwise the store is asked.
//!
//! Caches the versions of stored chunks.
//!
//! Every stored chunk that was read has an entry: its version or that it is missing, the time of the request (for the
//! TTL), and the position in the change log from before the request, since a change of the chunk's key invalidates the
//! entry. A cached chunk is used only under the version in this table, so the chunk cache needs no invalidation. A new
//! version renews the array's content number. Entries count in the memory of open arrays. If that has no room for
//! another entry, the older half is dropped; those chunks may then change unnoticed, so the content number is renewed.
//!
//! Numbers the content of an array's files in the kernel's page cache.
//!
//! The number changes with the content that readers see, and no number is used twice.
//!
//! The kernel keeps the pages of a decoded file as long as its content number is the same. The array may have changed
//! while it was closed, so it gets a new number when it is opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{RwLock, RwLockReadGuard};
use twox_hash::XxHash64;

use crate::array::stored_array::StoredArray;
use zarr_format::error::Result;
use zarr_format::grid::Grid;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::BatchedReservation;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::sync::clock::Clock;
use zarrfs_store::{ChangeLog, Key, LogPosition, MovingPosition, QueryStamp, StoreInfo, Version};

/// The versions of the stored chunks of an array, by number in the grid of stored chunks.
pub(super) struct ChunkVersions {
    array: Arc<StoredArray>,
    table: VersionTable,
}

/// The locked version table at one time; other lookups may run concurrently.
pub(super) struct KnownVersions<'a> {
    array: &'a StoredArray,
    table: LockedVersions<'a>,
    now: Instant,
}

impl KnownVersions<'_> {
    /// Returns the state of a stored chunk's version.
    pub(super) fn of(&self, number: u64) -> VersionState {
        let keys = || self.array.stored_keys(number);
        self.table.of(number, self.now, keys)
    }
}

impl ChunkVersions {
    /// Creates the table; no version is known yet.
    pub(super) fn new(array: Arc<StoredArray>) -> Arc<ChunkVersions> {
        let chunks = array.grid.as_ref().map_or(0, Grid::len);
        let table = VersionTable::new(array.store().info(), chunks, &array.engine.metadata);
        Arc::new(ChunkVersions { array, table })
    }

    /// Locks the table for several lookups.
    pub(super) fn lock(&self) -> KnownVersions<'_> {
        KnownVersions {
            array: &self.array,
            now: self.table.now(),
            table: self.table.lock(),
        }
    }

    /// Returns the state of a stored chunk's version.
    pub(super) fn state(&self, number: u64) -> VersionState {
        self.lock().of(number)
    }

    /// Asks the store for the version of a stored chunk; returns `None` if the chunk is missing.
    pub(super) fn fetch(&self, context: &RequestContext, number: u64) -> Result<Option<Version>> {
        let keys = self.array.stored_keys(number)?;
        let (version, stamp) = self.array.ask(context, |context, store| {
            let mut versions = keys
                .iter()
                .map(|key| store.version(context, key).transpose());
            versions.find_map(|version| version).transpose()
        });
        let version = version?;
        self.note(number, version, stamp);
        Ok(version)
    }

    /// Asks the store again about all chunks with stale versions; returns false if these may be too many.
    pub(super) fn refresh(&self, context: &RequestContext) -> Result<bool> {
        let keys = |number| self.array.stored_keys(number);
        let Some(stale) = self.table.stale(keys) else {
            return Ok(false);
        };
        for number in stale {
            self.fetch(context, number)?;
        }
        if let Some(oldest) = self.table.oldest() {
            context.record_age(oldest);
        }
        Ok(true)
    }

    /// Records the version of a chunk that the store returned.
    pub(super) fn note(&self, number: u64, version: Option<Version>, stamp: QueryStamp) {
        self.table.note(number, version, stamp);
    }

    /// Records the version of a chunk that was put; the content that readers see is the same.
    pub(super) fn note_put(&self, number: u64, version: Version, stamp: QueryStamp) {
        self.table.note_put(number, version, stamp);
    }

    /// Returns the content number, which changes with each change of a version that was seen.
    pub(super) fn content(&self) -> &PageVersion {
        self.table.content()
    }

    /// Whether a chunk that was read may have been changed through the store since a position.
    pub(super) fn may_have_changed(&self, since: LogPosition) -> bool {
        let keys = |number| self.array.stored_keys(number);
        self.array.chunks_may_have_changed(since) && self.table.may_have_changed(since, keys)
    }
}

/// The state of a stored chunk's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    /// The store has not been asked.
    Unknown,
    /// The entry expired or was invalidated; the store has to be asked again.
    Stale,
    /// The version; `None` if the chunk is missing.
    Known(Option<Version>),
}

/// The maximum number of chunks that the store is asked about when a file is opened.
const MAX_CHUNKS_ASKED: usize = 1 << 12;

/// The bytes of an entry, with its places in the LRU order and in the hash table, which has spare capacity.
const ENTRY_BYTES: u64 = 128;

/// The number of entries that count in the memory of the array itself.
const FREE_ENTRIES: usize = 16;

/// An answer of the store with its age.
struct VersionEntry {
    version: Option<Version>,
    asked: Instant,
    /// The log position up to which the chunk is known to be unchanged.
    position: MovingPosition,
}

/// The versions of an array's stored chunks.
pub(super) struct VersionTable {
    /// By chunk number in the grid, in the order of insertion.
    entries: RwLock<LruCache<u64, VersionEntry>>,
    room: BatchedReservation,
    content: PageVersion,
    log: Arc<ChangeLog>,
    clock: Clock,
    freshness: Duration,
}

impl VersionTable {
    /// Creates an empty table for at most `chunks` chunks of a store, whose entries count in `memory`.
    pub(super) fn new(info: &StoreInfo, chunks: u64, memory: &Arc<MemoryBudget>) -> VersionTable {
        let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
        VersionTable {
            entries: RwLock::new(LruCache::unbounded()),
            room: BatchedReservation::new(memory, ENTRY_BYTES, chunks),
            content: PageVersion::new(),
            log: info.changes.clone(),
            clock: info.clock.clone(),
            freshness: info.freshness,
        }
    }

    /// Returns the time by the clock of the store.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Locks the table for several lookups; other lookups may run concurrently.
    pub(super) fn lock(&self) -> LockedVersions<'_> {
        LockedVersions {
            entries: self.entries.read(),
            versions: self,
        }
    }

    /// Whether an entry is still valid; if so, advances its position past changes of other keys.
    fn holds(
        &self,
        entry: &VersionEntry,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> bool {
        if now.saturating_duration_since(entry.asked) >= self.freshness {
            return false;
        }
        let (position, before) = (self.log.position(), entry.position.get());
        if position == before {
            return true;
        }
        let is_unchanged = self.is_unchanged(before, keys);
        if is_unchanged {
            entry.position.set(position);
        }
        is_unchanged
    }

    /// Whether none of a chunk's possible keys was changed through the store since a position.
    fn is_unchanged(&self, since: LogPosition, keys: impl FnOnce() -> Result<Vec<Key>>) -> bool {
        let is_unchanged = |key: &Key| !self.log.changed_since(since, key);
        keys().is_ok_and(|keys| keys.iter().all(is_unchanged))
    }

    /// Records the version of a chunk that the store returned.
    pub(super) fn note(&self, number: u64, version: Option<Version>, stamp: QueryStamp) {
        if self.replace(number, version, stamp) {
            self.content.renew();
        }
    }

    /// Records the version of a chunk that was put; the content that readers see is the same.
    pub(super) fn note_put(&self, number: u64, version: Version, stamp: QueryStamp) {
        self.replace(number, Some(version), stamp);
    }

    /// Inserts an entry unless the table has a newer one; returns whether it replaces another version.
    fn replace(&self, number: u64, version: Option<Version>, stamp: QueryStamp) -> bool {
        // Before the table is locked, since reserving memory may close arrays.
        let counted = || (self.entries.read().len() + 1).saturating_sub(FREE_ENTRIES);
        let has_room = self.room.cover(counted);
        let mut entries = self.entries.write();
        let is_newer = |entry: &VersionEntry| {
            entry.asked > stamp.request_time && entry.position.get() >= stamp.position
        };
        if entries.peek(&number).is_some_and(is_newer) {
            return false;
        }
        if !has_room && !entries.contains(&number) {
            // Half at a time: each new content number makes the kernel drop its pages.
            for _ in 0..entries.len().div_ceil(2) {
                entries.pop_lru();
            }
            self.content.renew();
        }
        let entry = VersionEntry {
            version,
            asked: stamp.request_time,
            position: MovingPosition::new(stamp.position),
        };
        let replaced = entries.put(number, entry);
        replaced.is_some_and(|replaced| replaced.version != version)
    }

    /// Returns the content number, which changes with each change of a version that was seen.
    pub(super) fn content(&self) -> &PageVersion {
        &self.content
    }

    /// Returns the time of the oldest request, or `None` if the table is empty.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let entries = self.entries.read();
        entries.iter().map(|(_, entry)| entry.asked).min()
    }

    /// Returns the chunks whose entries are stale, or `None` if the table has too many entries; `keys` returns the keys
    /// that a chunk may have.
    pub(super) fn stale(&self, keys: impl Fn(u64) -> Result<Vec<Key>>) -> Option<Vec<u64>> {
        let now = self.now();
        let entries = self.entries.read();
        if entries.len() > MAX_CHUNKS_ASKED {
            return None;
        }
        let stale = entries.iter().filter_map(|(&number, entry)| {
            (!self.holds(entry, now, || keys(number))).then_some(number)
        });
        Some(stale.collect())
    }

    /// Whether a chunk that was read may have been changed through the store since a position; `keys` returns the keys
    /// that a chunk may have.
    pub(super) fn may_have_changed(
        &self,
        since: LogPosition,
        keys: impl Fn(u64) -> Result<Vec<Key>>,
    ) -> bool {
        let entries = self.entries.read();
        let is_unchanged = |&number: &u64| self.is_unchanged(since, || keys(number));
        entries.len() > MAX_CHUNKS_ASKED || !entries.iter().all(|(number, _)| is_unchanged(number))
    }
}

/// The locked table.
pub(super) struct LockedVersions<'a> {
    entries: RwLockReadGuard<'a, LruCache<u64, VersionEntry>>,
    versions: &'a VersionTable,
}

impl LockedVersions<'_> {
    /// Returns the state of a chunk; `keys` returns the keys that it may have.
    pub(super) fn of(
        &self,
        number: u64,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> VersionState {
        let Some(entry) = self.entries.peek(&number) else {
            return VersionState::Unknown;
        };
        if self.versions.holds(entry, now, keys) {
            VersionState::Known(entry.version)
        } else {
            VersionState::Stale
        }
    }
}

/// The last number used, for any content of the process.
static LAST: AtomicU64 = AtomicU64::new(0);

fn next() -> u64 {
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// The number of a content that may change.
pub(super) struct PageVersion(AtomicU64);

impl PageVersion {
    /// Creates a number for a content that was just opened.
    pub(super) fn new() -> PageVersion {
        PageVersion(AtomicU64::new(next()))
    }

    /// Replaces the number, after the content has changed.
    pub(super) fn renew(&self) {
        self.0.store(next(), Ordering::Release);
    }

    /// Returns the number.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns the number of this content combined with another.
    pub(super) fn with(&self, other: &PageVersion) -> u64 {
        let both = [self.get().to_le_bytes(), other.get().to_le_bytes()];
        XxHash64::oneshot(0, both.as_flattened())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::stats::Stats;

    fn key(number: u64) -> Result<Vec<Key>> {
        Ok(vec![Key::new(format!("c/{number}"))?])
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn store() -> StoreInfo {
        StoreInfo {
            clock: Clock::stopped(),
            ..StoreInfo::new(MINUTE)
        }
    }

    fn stamp(store: &StoreInfo) -> QueryStamp {
        store.ask(&UNLIMITED, |_| ()).1
    }

    fn memory(bytes: u64) -> Arc<MemoryBudget> {
        MemoryBudget::new(bytes, Arc::new(Stats::default()))
    }

    fn table(store: &StoreInfo) -> VersionTable {
        VersionTable::new(store, 100, &memory(1 << 20))
    }

    fn of(versions: &VersionTable, number: u64) -> VersionState {
        versions.lock().of(number, versions.now(), || key(number))
    }

    #[test]
    fn a_version_that_changes_is_another_content() {
        let store = store();
        let (versions, stamp) = (table(&store), stamp(&store));
        assert_eq!(of(&versions, 1), VersionState::Unknown);
        let mut numbers = vec![table(&store).content().get()];
        for version in [
            None,
            Some(Version::numbered(1)),
            None,
            Some(Version::numbered(2)),
        ] {
            versions.note(1, version, stamp);
            let number = versions.content().get();
            assert!(!numbers.contains(&number), "a number is given twice");
            numbers.push(number);
            versions.note(1, version, stamp);
            assert_eq!(versions.content().get(), number);
        }
        assert_eq!(
            of(&versions, 1),
            VersionState::Known(Some(Version::numbered(2)))
        );
        versions.note_put(1, Version::numbered(3), stamp);
        assert_eq!(versions.content().get(), numbers[4]);
    }

    #[test]
    fn a_change_of_a_key_ends_what_was_known_of_it() {
        let store = store();
        let versions = table(&store);
        for number in [1, 2] {
            versions.note(number, Some(Version::numbered(1)), stamp(&store));
        }
        let before = store.changes.position();
        assert_eq!(versions.stale(key), Some(vec![]));
        assert!(!versions.may_have_changed(before, key));
        store.changes.record(&key(3).unwrap()[0]);
        assert!(!versions.may_have_changed(before, key));
        store.changes.record(&key(1).unwrap()[0]);
        assert!(versions.may_have_changed(before, key));
        assert!(!versions.may_have_changed(store.changes.position(), key));
        assert_eq!(versions.stale(key), Some(vec![1]));
        assert_eq!(of(&versions, 1), VersionState::Stale);
        assert_eq!(
            of(&versions, 2),
            VersionState::Known(Some(Version::numbered(1)))
        );
    }

    #[test]
    fn an_older_answer_replaces_none() {
        let store = store();
        let (versions, first) = (table(&store), stamp(&store));
        store.clock.advance(MINUTE / 4);
        versions.note(1, Some(Version::numbered(2)), stamp(&store));
        let number = versions.content().get();
        versions.note(1, Some(Version::numbered(1)), first);
        assert_eq!(
            of(&versions, 1),
            VersionState::Known(Some(Version::numbered(2)))
        );
        assert_eq!(versions.content().get(), number);
        // An answer from memory may be older than the entry that a change of the key invalidated.
        store.changes.record(&key(1).unwrap()[0]);
        let position = store.changes.position();
        versions.note(
            1,
            Some(Version::numbered(1)),
            QueryStamp { position, ..first },
        );
        assert_eq!(
            of(&versions, 1),
            VersionState::Known(Some(Version::numbered(1)))
        );
        assert_ne!(versions.content().get(), number);
    }

    #[test]
    fn answers_grow_old() {
        let store = store();
        let versions = table(&store);
        let asked = stamp(&store);
        store.clock.advance(MINUTE / 2);
        versions.note(1, None, asked);
        assert_eq!(of(&versions, 1), VersionState::Known(None));
        store.clock.advance(MINUTE / 2);
        assert_eq!(of(&versions, 1), VersionState::Stale);
        assert_eq!(versions.stale(key), Some(vec![1]));
    }

    #[test]
    fn versions_stay_within_their_part_of_the_memory() {
        let (store, memory) = (store(), memory(100_000));
        let tables = [0, 1].map(|_| VersionTable::new(&store, 3000, &memory));
        for number in 0..3000 {
            for versions in &tables {
                versions.note(number, Some(Version::numbered(1)), stamp(&store));
                assert_eq!(
                    of(versions, number),
                    VersionState::Known(Some(Version::numbered(1)))
                );
            }
            let entries: usize = tables.iter().map(|table| table.entries.read().len()).sum();
            let free = tables.len() * FREE_ENTRIES;
            assert!((entries - free.min(entries)) as u64 * ENTRY_BYTES <= memory.held());
        }
        assert!(memory.held() > 10_000);
        drop(tables);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn the_older_entries_are_dropped_and_the_content_counts_as_another_one() {
        let (store, count) = (store(), FREE_ENTRIES as u64);
        let versions = VersionTable::new(&store, 1000, &memory(0));
        let mut contents = Vec::new();
        for number in 0..3 * count {
            versions.note(number, Some(Version::numbered(number)), stamp(&store));
            contents.push(versions.content().get());
            assert_eq!(
                of(&versions, number),
                VersionState::Known(Some(Version::numbered(number)))
            );
        }
        assert_eq!(of(&versions, 0), VersionState::Unknown);
        assert!(contents[..FREE_ENTRIES].iter().all(|&it| it == contents[0]));
        contents.dedup();
        assert_eq!(contents.len(), 5, "once for each half that was dropped");
    }
}
