//! The current version of each stored chunk of an array, as far as it is known.
//!
//! Every stored chunk that was read has an entry: its version, or that it is missing; when the store was asked, from
//! when that counts; and the position in the store's log of changes from before it was asked for, since a change of the
//! chunk's key ends it. A cached piece is used only under the version in this table, so the cache needs no
//! invalidation. A version that changes gives the array's content another number. Entries count in the memory of open
//! arrays; where that has no room for another one, the oldest leaves, and its chunk counts as changed once it is looked
//! at again.

use lru::LruCache;
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::chunk_set::ChunkSet;
use crate::array::content_number::ContentNumber;
use crate::array::versions_room::VersionsRoom;
use crate::error::Result;
use crate::store::{ChangeLog, Key, LogPosition, MovingPosition, QueryStamp, StoreInfo, Version};
use crate::sync::budget::MemoryBudget;
use crate::sync::clock::Clock;

/// What is known of a stored chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    /// The store was not asked yet.
    Unknown,
    /// The store has to be asked again.
    Stale,
    /// The version; nothing if the chunk is missing.
    Known(Option<Version>),
}

/// The most chunks that the store is asked about when a file is opened.
const MAX_CHUNKS_ASKED: usize = 1 << 12;

/// An answer of the store and how old it is.
struct VersionEntry {
    version: Option<Version>,
    asked: Instant,
    /// The last change of the store that is known to have left the chunk as it is.
    position: MovingPosition,
}

/// What is known of chunks, by their number in the grid.
struct KnownVersions {
    /// In the order in which they were noted.
    entries: LruCache<u64, VersionEntry>,
    /// The chunks whose entries left since the content got its number: they can change unnoticed.
    left: ChunkSet,
}

/// The versions of an array's stored chunks.
pub(super) struct ChunkVersions {
    known: RwLock<KnownVersions>,
    room: VersionsRoom,
    content: ContentNumber,
    log: Arc<ChangeLog>,
    clock: Clock,
    freshness: Duration,
}

impl ChunkVersions {
    /// Builds an empty table of chunks of a store, whose entries will count in `memory`.
    pub(super) fn new(info: &StoreInfo, memory: &Arc<MemoryBudget>) -> ChunkVersions {
        ChunkVersions {
            known: RwLock::new(KnownVersions {
                entries: LruCache::unbounded(),
                left: ChunkSet::default(),
            }),
            room: VersionsRoom::new(memory),
            content: ContentNumber::new(),
            log: info.changes.clone(),
            clock: info.clock.clone(),
            freshness: info.freshness,
        }
    }

    /// Returns the time by which versions grow old.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Locks the table to look up several chunks; others may look up chunks meanwhile.
    pub(super) fn lock(&self) -> LockedVersions<'_> {
        LockedVersions {
            known: self.known.read(),
            versions: self,
        }
    }

    /// Whether an entry still counts; if so, its position moves on past the changes of other keys.
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

    /// Whether no key that a chunk may have was changed through the store since a position.
    fn is_unchanged(&self, since: LogPosition, keys: impl FnOnce() -> Result<Vec<Key>>) -> bool {
        let is_unchanged = |key: &Key| !self.log.changed_since(since, key);
        keys().is_ok_and(|keys| keys.iter().all(is_unchanged))
    }

    /// Notes the version of a chunk that the store returned.
    pub(super) fn note(&self, number: u64, version: Option<Version>, stamp: QueryStamp) {
        if self.replace(number, version, stamp) {
            self.content.renew();
        }
    }

    /// Notes the version of a chunk that was put; what readers see has not changed by it.
    pub(super) fn note_put(&self, number: u64, version: Version, stamp: QueryStamp) {
        self.replace(number, Some(version), stamp);
    }

    /// Puts an entry into the table, unless a newer answer is there; returns whether it replaces one of another version.
    fn replace(&self, number: u64, version: Option<Version>, stamp: QueryStamp) -> bool {
        let entries = self.known.read().entries.len() + 1;
        let has_room = self.room.cover(entries);
        let mut known = self.known.write();
        let is_newer = |entry: &VersionEntry| {
            entry.asked > stamp.asked && entry.position.get() >= stamp.position
        };
        if known.entries.peek(&number).is_some_and(is_newer) {
            return false;
        }
        if !has_room && !known.entries.contains(&number) {
            known.drop_oldest();
        }
        self.renew_if_left(&mut known, |left| left.may_have(number));
        let entry = VersionEntry {
            version,
            asked: stamp.asked,
            position: MovingPosition::new(stamp.position),
        };
        let replaced = known.entries.put(number, entry);
        replaced.is_some_and(|replaced| replaced.version != version)
    }

    /// Gives the content another number if chunks are looked at again whose entries left.
    fn renew_if_left(&self, known: &mut KnownVersions, are_among: impl Fn(&ChunkSet) -> bool) {
        if are_among(&known.left) {
            known.left = ChunkSet::default();
            self.content.renew();
        }
    }

    /// Returns the number of the content, as far as changes of it were seen.
    pub(super) fn content(&self) -> &ContentNumber {
        &self.content
    }

    /// Returns the chunks that the store has to be asked about again, nothing if there may be too many; `keys` returns
    /// the keys that a chunk may have. Those whose entries left count as changed.
    pub(super) fn stale(&self, keys: impl Fn(u64) -> Result<Vec<Key>>) -> Option<Vec<u64>> {
        if !self.known.read().left.is_empty() {
            self.renew_if_left(&mut self.known.write(), |left| !left.is_empty());
        }
        let now = self.now();
        let entries = &self.known.read().entries;
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
        let known = self.known.read();
        let is_unchanged = |&number: &u64| self.is_unchanged(since, || keys(number));
        !known.left.is_empty()
            || known.entries.len() > MAX_CHUNKS_ASKED
            || !known.entries.iter().all(|(number, _)| is_unchanged(number))
    }
}

impl KnownVersions {
    fn drop_oldest(&mut self) {
        if let Some((number, _)) = self.entries.pop_lru() {
            self.left.add(number);
        }
    }
}

/// The locked table.
pub(super) struct LockedVersions<'a> {
    known: RwLockReadGuard<'a, KnownVersions>,
    versions: &'a ChunkVersions,
}

impl LockedVersions<'_> {
    /// Returns what is known of a chunk; `keys` returns the keys that it may have.
    pub(super) fn of(
        &self,
        number: u64,
        now: Instant,
        keys: impl FnOnce() -> Result<Vec<Key>>,
    ) -> VersionState {
        let Some(entry) = self.known.entries.peek(&number) else {
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
    use crate::array::versions_room::{ENTRY_BYTES, FREE_ENTRIES};
    use crate::stats::Stats;

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
        store.ask(|| ()).1
    }

    fn memory(bytes: u64) -> Arc<MemoryBudget> {
        MemoryBudget::new(bytes, Arc::new(Stats::default()))
    }

    fn table(store: &StoreInfo) -> ChunkVersions {
        ChunkVersions::new(store, &memory(1 << 20))
    }

    fn of(versions: &ChunkVersions, number: u64) -> VersionState {
        versions.lock().of(number, versions.now(), || key(number))
    }

    #[test]
    fn a_version_that_changes_is_another_content() {
        let store = store();
        let (versions, stamp) = (table(&store), stamp(&store));
        assert_eq!(of(&versions, 1), VersionState::Unknown);
        let mut numbers = vec![table(&store).content().get()];
        for version in [None, Some(Version(1)), None, Some(Version(2))] {
            versions.note(1, version, stamp);
            let number = versions.content().get();
            assert!(!numbers.contains(&number), "a number is given twice");
            numbers.push(number);
            versions.note(1, version, stamp);
            assert_eq!(versions.content().get(), number);
        }
        assert_eq!(of(&versions, 1), VersionState::Known(Some(Version(2))));
        versions.note_put(1, Version(3), stamp);
        assert_eq!(versions.content().get(), numbers[4]);
    }

    #[test]
    fn a_change_of_a_key_ends_what_was_known_of_it() {
        let store = store();
        let versions = table(&store);
        for number in [1, 2] {
            versions.note(number, Some(Version(1)), stamp(&store));
        }
        let before = store.changes.position();
        assert_eq!(versions.stale(key), Some(vec![]));
        assert!(!versions.may_have_changed(before, key));
        store.changes.note(&key(3).unwrap()[0]);
        assert!(!versions.may_have_changed(before, key));
        store.changes.note(&key(1).unwrap()[0]);
        assert!(versions.may_have_changed(before, key));
        assert!(!versions.may_have_changed(store.changes.position(), key));
        assert_eq!(versions.stale(key), Some(vec![1]));
        assert_eq!(of(&versions, 1), VersionState::Stale);
        assert_eq!(of(&versions, 2), VersionState::Known(Some(Version(1))));
    }

    #[test]
    fn an_older_answer_replaces_none() {
        let store = store();
        let (versions, first) = (table(&store), stamp(&store));
        store.clock.advance(MINUTE / 4);
        versions.note(1, Some(Version(2)), stamp(&store));
        let number = versions.content().get();
        versions.note(1, Some(Version(1)), first);
        assert_eq!(of(&versions, 1), VersionState::Known(Some(Version(2))));
        assert_eq!(versions.content().get(), number);
        // An answer from memory may be older than what a change of the key has ended.
        store.changes.note(&key(1).unwrap()[0]);
        let position = store.changes.position();
        versions.note(1, Some(Version(1)), QueryStamp { position, ..first });
        assert_eq!(of(&versions, 1), VersionState::Known(Some(Version(1))));
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
    fn b02_versions_stay_within_their_part_of_the_memory() {
        let (store, memory) = (store(), memory(100_000));
        let tables = [0, 1].map(|_| ChunkVersions::new(&store, &memory));
        for number in 0..3000 {
            for versions in &tables {
                versions.note(number, Some(Version(1)), stamp(&store));
                assert_eq!(of(versions, number), VersionState::Known(Some(Version(1))));
            }
            let entries: usize = tables
                .iter()
                .map(|table| table.known.read().entries.len())
                .sum();
            let free = tables.len() * FREE_ENTRIES;
            assert!((entries - free.min(entries)) as u64 * ENTRY_BYTES <= memory.held());
        }
        assert!(memory.held() > 10_000);
        drop(tables);
        assert_eq!(memory.held(), 0);
    }

    /// A table whose memory has no room but for `FREE_ENTRIES`, with entries of so many chunks.
    fn full(store: &StoreInfo, chunks: u64) -> ChunkVersions {
        let versions = ChunkVersions::new(store, &memory(0));
        for number in 0..chunks {
            versions.note(number, Some(Version(number)), stamp(store));
        }
        versions
    }

    #[test]
    fn the_oldest_entry_leaves_and_the_content_stays() {
        let (store, count) = (store(), FREE_ENTRIES as u64);
        let versions = full(&store, count);
        let content = versions.content().get();
        for number in count..4 * count {
            versions.note(number, Some(Version(number)), stamp(&store));
            assert_eq!(of(&versions, number - count), VersionState::Unknown);
            let oldest = VersionState::Known(Some(Version(number - count + 1)));
            assert_eq!(of(&versions, number - count + 1), oldest);
        }
        assert_eq!(versions.content().get(), content);
    }

    #[test]
    fn a_chunk_whose_entry_left_counts_as_changed() {
        let store = store();
        let chunks = 2 * FREE_ENTRIES as u64;
        let versions = full(&store, chunks);
        let content = versions.content().get();
        versions.note(0, Some(Version(0)), stamp(&store));
        let again = versions.content().get();
        assert_ne!(again, content, "it came again");
        let before = store.changes.position();
        assert!(!versions.may_have_changed(before, key));
        versions.note(chunks, None, stamp(&store));
        assert!(versions.may_have_changed(before, key));
        assert_eq!(versions.content().get(), again);
        assert_eq!(versions.stale(key), Some(vec![]));
        let opened = versions.content().get();
        assert_ne!(opened, again, "a file was opened");
        versions.stale(key);
        assert_eq!(versions.content().get(), opened);
    }

    #[test]
    fn passes_over_many_chunks_renew_the_content_seldom() {
        let store = store();
        let versions = full(&store, 0);
        let mut numbers = Vec::new();
        for _ in 0..4 {
            for number in 0..1000 {
                versions.note(number, Some(Version(number)), stamp(&store));
                numbers.push(versions.content().get());
            }
        }
        numbers.dedup();
        assert!(numbers.len() < 20, "{} times", numbers.len());
    }
}
