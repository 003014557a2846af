//! Returns the current version of each stored chunk of an array.
//!
//! Every stored chunk that was read has an entry in a table: its version or that it is missing, the time of the request
//! (for the TTL), and the position in the change log before the request, because a later change of the chunk's key
//! invalidates the entry. A valid version in the table is returned without a request; otherwise the store is asked. A
//! cached chunk is used only under the version in this table, so the chunk cache needs no invalidation. A new version
//! renews the array's page version, so that the kernel drops its pages. The memory of entries is charged to the budget
//! of open arrays. If the budget has no room for another entry, the older half of the entries is dropped; their chunks
//! may then change unnoticed, so the page version is renewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use lru::LruCache;
use parking_lot::{RwLock, RwLockReadGuard};
use twox_hash::XxHash64;

use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Result};
use zarr_format::grid::{Grid, Region};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::BatchedReservation;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{LogPosition, MovingPosition, QueryStamp, Version};

/// The version of an array's content in the kernel's page cache.
///
/// The version changes when readers see another content, and the process uses no number twice. The kernel keeps the
/// pages of a decoded file as long as the version stays the same. An array may have changed while it was closed, so
/// opening it creates a new version.
pub(super) struct PageVersion(AtomicU64);

impl PageVersion {
    fn next() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LAST.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Creates a page version with a number that was never used before.
    pub(super) fn new() -> PageVersion {
        PageVersion(AtomicU64::new(PageVersion::next()))
    }

    pub(super) fn renew(&self) {
        self.0.store(PageVersion::next(), Ordering::Release);
    }

    /// Returns a number that changes when one of the two page versions changes.
    pub(super) fn with(&self, other: &PageVersion) -> u64 {
        let both = [self, other].map(|version| version.0.load(Ordering::Acquire).to_le_bytes());
        XxHash64::oneshot(0, both.as_flattened())
    }
}

/// What the table knows of the version of a stored chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    /// The table has no entry for the chunk: the store was not asked.
    Unknown,
    /// The entry expired or was invalidated; the store has to be asked again.
    Stale,
    /// The version of the stored chunk; `None` if the chunk is missing.
    Known(Option<Version>),
}

/// The maximum number of entries for which opening a file asks the store about all stale ones.
const MAX_REFRESHED: usize = 1 << 12;

/// The memory of an entry in bytes, including its links in the LRU order and the spare capacity of the hash table.
const ENTRY_BYTES: u64 = 128;

/// The number of entries whose memory is already part of the reservation of the open array.
const FREE_ENTRIES: usize = 16;

/// The store's answer about the version of a chunk, with its time.
struct VersionEntry {
    version: Option<Version>,
    asked: Instant,
    /// The position in the change log up to which the chunk is known to be unchanged.
    position: MovingPosition,
}

/// The versions of the stored chunks of an array, by the chunk's number in the chunk grid.
pub(super) struct ChunkVersions {
    array: Arc<StoredArray>,
    /// The entries by chunk number, in the order of insertion.
    entries: RwLock<LruCache<u64, VersionEntry>>,
    room: BatchedReservation,
    /// Version of the kernel's pages, renewed when the store returns another version of a chunk than the recorded one.
    pub(super) page_version: PageVersion,
}

/// The versions of chunks under a read lock, as they are valid at the time `now`. Other threads may look up versions
/// concurrently.
pub(super) struct LockedVersions<'a> {
    entries: RwLockReadGuard<'a, LruCache<u64, VersionEntry>>,
    versions: &'a ChunkVersions,
    now: Instant,
}

impl LockedVersions<'_> {
    pub(super) fn state(&self, number: u64) -> VersionState {
        match self.entries.peek(&number) {
            None => VersionState::Unknown,
            Some(entry) if self.versions.is_valid(entry, number, self.now) => {
                VersionState::Known(entry.version)
            }
            Some(_) => VersionState::Stale,
        }
    }
}

impl ChunkVersions {
    pub(super) fn new(array: Arc<StoredArray>) -> Arc<ChunkVersions> {
        let chunks = array.grid.as_ref().map_or(0, Grid::len);
        let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
        Arc::new(ChunkVersions {
            entries: RwLock::new(LruCache::unbounded()),
            room: BatchedReservation::new(&array.engine.metadata, ENTRY_BYTES, chunks),
            page_version: PageVersion::new(),
            array,
        })
    }

    /// Locks the versions of the chunks for several lookups. The TTLs of all of them are compared with the time `now`.
    pub(super) fn lock(&self, now: Instant) -> LockedVersions<'_> {
        LockedVersions {
            entries: self.entries.read(),
            versions: self,
            now,
        }
    }

    pub(super) fn state(&self, number: u64) -> VersionState {
        self.lock(self.array.info.clock.now()).state(number)
    }

    /// Whether the entry of a chunk is still valid; if so, advances its position in the change log past changes of
    /// other keys.
    fn is_valid(&self, entry: &VersionEntry, number: u64, now: Instant) -> bool {
        if now.saturating_duration_since(entry.asked) >= self.array.info.freshness {
            return false;
        }
        let (position, before) = (self.array.info.changes.position(), entry.position.get());
        if position == before {
            return true;
        }
        let is_unchanged = self.is_unchanged(number, before);
        if is_unchanged {
            entry.position.set(position);
        }
        is_unchanged
    }

    /// Whether none of a chunk's possible keys was changed through the store since a position in the change log.
    fn is_unchanged(&self, number: u64, since: LogPosition) -> bool {
        let changes = &self.array.info.changes;
        let keys = self.array.stored_keys(number);
        keys.is_ok_and(|keys| keys.iter().all(|key| !changes.changed_since(since, key)))
    }

    /// Returns the current version of a stored chunk, or `None` if the chunk is missing; asks the store if the table
    /// has no valid version.
    pub(super) fn current(&self, context: &RequestContext, number: u64) -> Result<Option<Version>> {
        match self.state(number) {
            VersionState::Known(version) => Ok(version),
            VersionState::Unknown | VersionState::Stale => self.fetch(context, number),
        }
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
        self.record(number, version, stamp);
        Ok(version)
    }

    /// Asks the store again about all chunks with stale versions; returns false without a request if the table has more
    /// than `MAX_REFRESHED` entries.
    pub(super) fn refresh(&self, context: &RequestContext) -> Result<bool> {
        let now = self.array.info.clock.now();
        let stale: Vec<u64> = {
            let entries = self.entries.read();
            if entries.len() > MAX_REFRESHED {
                return Ok(false);
            }
            let stale = entries.iter();
            let stale = stale.filter(|(number, entry)| !self.is_valid(entry, **number, now));
            stale.map(|(number, _)| *number).collect()
        };
        for number in stale {
            self.fetch(context, number)?;
        }
        let oldest = self
            .entries
            .read()
            .iter()
            .map(|(_, entry)| entry.asked)
            .min();
        if let Some(oldest) = oldest {
            context.record_age(oldest);
        }
        Ok(true)
    }

    /// Records the version of a chunk that the store returned; another version than before renews the page version.
    pub(super) fn record(&self, number: u64, version: Option<Version>, stamp: QueryStamp) {
        if self.replace(number, version, stamp) {
            self.page_version.renew();
        }
    }

    /// Records the version of a chunk after a put. The page version stays, because readers have already seen the
    /// chunk's content while it was dirty.
    pub(super) fn record_put(&self, number: u64, version: Version, stamp: QueryStamp) {
        self.replace(number, Some(version), stamp);
    }

    /// Inserts the version of a chunk, unless the table has a newer entry; returns whether the chunk had another
    /// version.
    fn replace(&self, number: u64, version: Option<Version>, stamp: QueryStamp) -> bool {
        // Memory is reserved before the table is locked, because reserving may close other arrays.
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
            // Half of the entries are dropped at once, because it has to be rare: the new page version makes the kernel
            // drop its pages.
            for _ in 0..entries.len().div_ceil(2) {
                entries.pop_lru();
            }
            self.page_version.renew();
        }
        let entry = VersionEntry {
            version,
            asked: stamp.request_time,
            position: MovingPosition::new(stamp.position),
        };
        let replaced = entries.put(number, entry);
        replaced.is_some_and(|replaced| replaced.version != version)
    }

    /// Whether a chunk that was read may have been changed through the store since a position in the change log.
    pub(super) fn may_have_changed(&self, since: LogPosition) -> bool {
        if !self.array.chunks_may_have_changed(since) {
            return false;
        }
        let entries = self.entries.read();
        let mut numbers = entries.iter().map(|(number, _)| *number);
        entries.len() > MAX_REFRESHED || !numbers.all(|number| self.is_unchanged(number, since))
    }

    /// Returns a version for the content of all chunks of `grid` that a box of elements covers; asks the store for
    /// unknown versions. The version is lasting (`Version::is_lasting`) if the versions of all these chunks are.
    /// `Unavailable` if the store takes longer than the timeout of a read.
    pub(super) fn of_region(
        &self,
        context: &RequestContext,
        grid: &Grid,
        region: &Region,
    ) -> Result<Version> {
        let deadline = self.array.engine.deadline();
        let mut all = CombinedVersion::default();
        let mut add = |chunks: Vec<u64>| -> Result<()> {
            for version in self.fetch_all(context, chunks, deadline) {
                all.add(version?);
            }
            Ok(())
        };
        let (mut batch, mut outcome) = (Vec::new(), Ok(()));
        grid.visit(region, |chunk, _, _| {
            batch.push(chunk.0);
            // The versions are requested in batches, to bound the memory for the chunk numbers.
            if batch.len() == 1 << 12 {
                outcome = add(std::mem::take(&mut batch));
            }
            outcome.is_ok()
        });
        outcome?;
        add(batch)?;
        Ok(all.version())
    }

    /// Returns the versions of some chunks, in order; asks the store for unknown versions until the deadline.
    fn fetch_all(
        &self,
        context: &RequestContext,
        chunks: Vec<u64>,
        deadline: Instant,
    ) -> Vec<Result<Option<Version>>> {
        let known = self.lock(self.array.info.clock.now());
        let states = chunks.into_iter().map(|chunk| (chunk, known.state(chunk)));
        let states: Vec<(u64, VersionState)> = states.collect();
        drop(known);
        let find = |(chunk, state)| match state {
            VersionState::Known(version) => Ok(version),
            _ if Instant::now() > deadline => {
                let why = "cannot get the versions of all chunks in time (see --timeout)";
                Err(Error::unavailable(&self.array.path, why))
            }
            VersionState::Unknown | VersionState::Stale => self.fetch(context, chunk),
        };
        let mut all = states.iter();
        let threads = if all.all(|(_, state)| matches!(state, VersionState::Known(_))) {
            1
        } else {
            self.array.engine.limits.fetches.max(1)
        };
        parallel_map(threads, states, &find)
    }
}

/// Returns one version for the content of several boxes of elements. It is valid only while the program runs, because
/// the disk cache finds an entry by the metadata of one array, and the boxes may be of several arrays.
pub fn combined_version(parts: impl Iterator<Item = Result<Version>>) -> Result<Version> {
    let mut all = CombinedVersion::default();
    for part in parts {
        all.add(Some(part?));
    }
    Ok(all.version().as_transient())
}

/// One version for several contents, which depends on their order.
struct CombinedVersion {
    number: u64,
    is_lasting: bool,
}

impl Default for CombinedVersion {
    fn default() -> CombinedVersion {
        CombinedVersion {
            number: Version::NONE.number(),
            is_lasting: true,
        }
    }
}

impl CombinedVersion {
    /// Adds a content to the combined version by its own version; `None` if the content is missing.
    fn add(&mut self, version: Option<Version>) {
        let parts = [
            self.number,
            u64::from(version.is_some()),
            version.map_or(0, Version::number),
        ];
        let parts = parts.map(u64::to_le_bytes);
        self.number = XxHash64::oneshot(0, parts.as_flattened());
        self.is_lasting &= version.is_none_or(Version::is_lasting);
    }

    /// Returns the combined version. It is lasting if all added versions are lasting.
    fn version(&self) -> Version {
        let version = Version::of_hash(self.number);
        if self.is_lasting {
            version
        } else {
            version.as_transient()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::array::OpenArray;
    use crate::array::sample_array::SampleArray;
    use zarrfs_store::Key;
    use zarrfs_store::request_context::UNLIMITED;

    /// Opens an array of `chunks` chunks of one element, with an empty table of chunk versions.
    fn array(chunks: u64, memory: u64) -> Arc<OpenArray> {
        SampleArray::new(&[chunks], &[1]).open(memory)
    }

    fn stamp(versions: &ChunkVersions) -> QueryStamp {
        versions.array.info.ask(&UNLIMITED, |_| ()).1
    }

    fn change(versions: &ChunkVersions, number: u64) {
        let key = Key::new(format!("c/{number}")).unwrap();
        versions.array.info.changes.record(&key);
    }

    fn page_version(versions: &ChunkVersions) -> u64 {
        versions.page_version.0.load(Ordering::Acquire)
    }

    fn known(version: u64) -> VersionState {
        VersionState::Known(Some(Version::numbered(version)))
    }

    /// Invariant (reading): A decoded chunk is used only under the current version of its key; one file never has
    /// chunks of an archive and of its replacement.
    #[test]
    fn a_new_chunk_version_gives_a_new_page_version() {
        let versions = &array(10, 1 << 20).versions;
        let stamp = stamp(versions);
        assert_eq!(versions.state(1), VersionState::Unknown);
        let mut numbers = vec![page_version(&array(10, 1 << 20).versions)];
        for version in [None, Some(1), None, Some(2)] {
            let version = version.map(Version::numbered);
            versions.record(1, version, stamp);
            let number = page_version(versions);
            assert!(!numbers.contains(&number), "a number is given twice");
            numbers.push(number);
            versions.record(1, version, stamp);
            assert_eq!(page_version(versions), number);
        }
        assert_eq!(versions.state(1), known(2));
        versions.record_put(1, Version::numbered(3), stamp);
        assert_eq!(page_version(versions), numbers[4]);
    }

    #[test]
    fn a_changed_key_makes_its_chunk_version_stale() {
        let versions = &array(10, 1 << 20).versions;
        for number in [1, 2] {
            versions.record(number, Some(Version::numbered(1)), stamp(versions));
        }
        let changes = &versions.array.info.changes;
        let before = changes.position();
        assert!(!versions.may_have_changed(before));
        change(versions, 3);
        assert!(!versions.may_have_changed(before));
        change(versions, 1);
        assert!(versions.may_have_changed(before));
        assert!(!versions.may_have_changed(changes.position()));
        assert_eq!(versions.state(1), VersionState::Stale);
        assert_eq!(versions.state(2), known(1));
        assert!(versions.refresh(&UNLIMITED).unwrap());
        assert!(!matches!(versions.state(1), VersionState::Stale));
        assert_eq!(versions.state(2), known(1), "it was valid");
    }

    #[test]
    fn an_older_answer_does_not_replace_a_valid_version() {
        let versions = &array(10, 1 << 20).versions;
        let first = stamp(versions);
        versions.array.info.clock.advance(Duration::from_secs(15));
        versions.record(1, Some(Version::numbered(2)), stamp(versions));
        let number = page_version(versions);
        versions.record(1, Some(Version::numbered(1)), first);
        assert_eq!(versions.state(1), known(2));
        assert_eq!(page_version(versions), number);
        // An answer from a cache may be older than the entry that a change of the key invalidated.
        change(versions, 1);
        let position = versions.array.info.changes.position();
        let stamp = QueryStamp { position, ..first };
        versions.record(1, Some(Version::numbered(1)), stamp);
        assert_eq!(versions.state(1), known(1));
        assert_ne!(page_version(versions), number);
    }

    #[test]
    fn a_known_version_is_stale_after_its_ttl() {
        let versions = &array(10, 1 << 20).versions;
        let asked = stamp(versions);
        let half = versions.array.info.freshness / 2;
        versions.array.info.clock.advance(half);
        versions.record(1, None, asked);
        assert_eq!(versions.state(1), VersionState::Known(None));
        versions.array.info.clock.advance(half);
        assert_eq!(versions.state(1), VersionState::Stale);
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn chunk_versions_stay_within_the_metadata_memory() {
        let array = array(3000, 400_000);
        let (stored, memory) = (&array.versions.array, &array.versions.array.engine.metadata);
        let before = memory.held();
        let tables = [0, 1].map(|_| ChunkVersions::new(stored.clone()));
        for number in 0..3000 {
            for versions in &tables {
                versions.record(number, Some(Version::numbered(1)), stamp(versions));
                assert_eq!(versions.state(number), known(1));
            }
            let entries: usize = tables.iter().map(|table| table.entries.read().len()).sum();
            let free = tables.len() * FREE_ENTRIES;
            assert!((entries - free.min(entries)) as u64 * ENTRY_BYTES <= memory.held() - before);
        }
        assert!(memory.held() - before > 10_000);
        drop(tables);
        assert_eq!(memory.held(), before);
    }

    #[test]
    fn evicting_old_versions_changes_the_page_version() {
        let (array, count) = (array(1000, 1 << 20), FREE_ENTRIES as u64);
        let (versions, memory) = (&array.versions, &array.versions.array.engine.metadata);
        let _full = memory.try_reserve(memory.limit() - memory.held()).unwrap();
        let mut contents = Vec::new();
        for number in 0..3 * count {
            versions.record(number, Some(Version::numbered(number)), stamp(versions));
            contents.push(page_version(versions));
            assert_eq!(versions.state(number), known(number));
        }
        assert_eq!(versions.state(0), VersionState::Unknown);
        assert!(contents[..FREE_ENTRIES].iter().all(|&it| it == contents[0]));
        contents.dedup();
        assert_eq!(contents.len(), 5, "once for each half that was dropped");
    }
}
