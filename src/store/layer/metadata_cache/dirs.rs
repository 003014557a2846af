//! The directories that are remembered: the names of each as they become known, read once for all readers.
//!
//! Names stand in the order of the store's listing, each with its cursor there. A complete directory also tells what is
//! not in it. Names count in a part of the memory budget, and their number is bounded: what was listed least recently
//! goes first. A directory that grows beyond half of the bound is evicted while it is read, and its readers go on with
//! listings of their own, so that one of millions of names takes no more memory than one of thousands.

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use indexmap::IndexMap;
use lru::LruCache;

use super::dated::{Dated, Lifetime};
use super::listing_prefetch::PassedDir;
use crate::error::{Error, Result};
use crate::known::Known;
use crate::store::{EntryKind, Key, Listing, Meta, Name};
use crate::sync::budget::{Evict, MemoryBudget, Priority};
use crate::sync::stepped_room::SteppedRoom;

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirEntry {
    pub(super) kind: EntryKind,
    pub(super) cursor: u64,
    /// What `head` answers.
    pub(super) meta: Option<Meta>,
}

/// What a name of ordinary length takes, in bytes.
const NAME_BYTES: u64 = 192;

/// Names in the order of the listing.
pub(super) type NameMap = IndexMap<Box<[u8]>, DirEntry>;

/// How far a directory is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Growing,
    Complete,
    Evicted,
}

/// A directory's names.
pub(super) struct CachedDir {
    pub(super) prefix: Key,
    /// When the store was asked for the first of the names.
    pub(super) asked: Instant,
    /// The flat listing that found the names, and how far it was then.
    pub(super) passed: Option<PassedDir>,
    known: RwLock<(NameMap, Extent)>,
    source: Mutex<NameSource>,
    /// Requests to the source: a reader that waited for another's request knows by it whose error it sees.
    requests: AtomicU64,
    /// Names held by all directories.
    total: Arc<AtomicUsize>,
}

/// Where further names come from.
#[derive(Default)]
struct NameSource {
    listing: Option<Box<dyn Listing>>,
    failed: Option<Error>,
}

/// What stands at a place of a directory.
pub(super) enum Slot {
    Entry(Name),
    End,
    /// The names were evicted; the reader goes on with a listing of its own.
    Evicted,
}

impl CachedDir {
    /// Builds a directory whose names come from a listing that has just begun.
    fn growing(
        prefix: Key,
        asked: Instant,
        listing: Box<dyn Listing>,
        total: &Arc<AtomicUsize>,
    ) -> CachedDir {
        CachedDir {
            prefix,
            asked,
            passed: None,
            known: RwLock::new((NameMap::new(), Extent::Growing)),
            source: Mutex::new(NameSource {
                listing: Some(listing),
                failed: None,
            }),
            requests: AtomicU64::new(0),
            total: total.clone(),
        }
    }

    /// Returns how many names are held.
    pub(super) fn len(&self) -> usize {
        self.known.read().0.len()
    }

    /// Returns what is known of a name; `Unknown` if it may come yet.
    pub(super) fn look(&self, name: &[u8]) -> Known<DirEntry> {
        let known = self.known.read();
        match (known.0.get(name), known.1) {
            (Some(entry), _) => Known::Is(*entry),
            (None, Extent::Complete) => Known::Missing,
            (None, _) => Known::Unknown,
        }
    }

    /// Returns where a name stands.
    pub(super) fn place_of(&self, name: &[u8]) -> Option<usize> {
        self.known.read().0.get_index_of(name)
    }

    /// Returns where the name with a cursor stands.
    pub(super) fn place_of_cursor(&self, cursor: u64) -> Option<usize> {
        let known = self.known.read();
        let is_it = |place: &usize| {
            let found = known.0.get_index(*place);
            found.is_some_and(|(_, entry)| entry.cursor == cursor)
        };
        let guess = usize::try_from(cursor).ok()?.checked_sub(1)?;
        let guess = Some(guess).filter(is_it);
        guess.or_else(|| (0..known.0.len()).find(is_it))
    }

    /// Returns the directories among the names from `start` to `end`.
    pub(super) fn directories(&self, start: usize, end: usize) -> Vec<Vec<u8>> {
        let known = self.known.read();
        let names = (start..end).map_while(|place| known.0.get_index(place));
        let directories = names.filter(|(_, entry)| entry.kind == EntryKind::Directory);
        directories.map(|(name, _)| name.to_vec()).collect()
    }

    /// Returns what stands at a place; asks the source for names that were not read yet.
    pub(super) fn at(&self, place: usize) -> Result<Slot> {
        loop {
            let requests = self.requests.load(Ordering::Acquire);
            if let Some(slot) = self.known_at(place) {
                return Ok(slot);
            }
            let mut source = self.source.lock();
            if self.requests.load(Ordering::Acquire) != requests {
                match &source.failed {
                    Some(error) => return Err(error.clone()),
                    None => continue,
                }
            }
            if let Err(error) = self.read_name(&mut source) {
                source.failed = Some(error.clone());
                return Err(error);
            }
        }
    }

    fn known_at(&self, place: usize) -> Option<Slot> {
        let known = self.known.read();
        match (known.0.get_index(place), known.1) {
            (Some((name, entry)), _) => Some(Slot::Entry(Name {
                name: name.to_vec(),
                kind: entry.kind,
                cursor: entry.cursor,
                meta: entry.meta,
            })),
            (None, Extent::Complete) => Some(Slot::End),
            (None, Extent::Evicted) => Some(Slot::Evicted),
            (None, Extent::Growing) => None,
        }
    }

    /// Reads one more name.
    fn read_name(&self, source: &mut NameSource) -> Result<()> {
        source.failed = None;
        let next = match &mut source.listing {
            Some(listing) => listing.next(),
            None => Ok(None),
        };
        self.requests.fetch_add(1, Ordering::Release);
        let next = next?;
        let mut known = self.known.write();
        match next {
            _ if known.1 == Extent::Evicted => {}
            None => {
                known.1 = Extent::Complete;
                known.0.shrink_to_fit();
                source.listing = None;
            }
            Some(name) => {
                let entry = DirEntry {
                    kind: name.kind,
                    cursor: name.cursor,
                    meta: name.meta,
                };
                if known.0.insert(name.name.into(), entry).is_none() {
                    self.total.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Drops the names of a directory that is not complete.
    fn evict(&self) {
        let mut known = self.known.write();
        if known.1 == Extent::Growing {
            self.total.fetch_sub(known.0.len(), Ordering::Relaxed);
            *known = (NameMap::new(), Extent::Evicted);
        }
    }

    /// Takes the listing of a directory that was evicted; its first reader goes on with it.
    pub(super) fn take_listing(&self) -> Option<Box<dyn Listing>> {
        self.source.lock().listing.take()
    }
}

impl Drop for CachedDir {
    fn drop(&mut self) {
        let held = self.known.read().0.len();
        self.total.fetch_sub(held, Ordering::Relaxed);
    }
}

/// Directories by key, bounded by the names that all of them hold. The names of a directory that is being read count
/// until its last reader is done.
pub(super) struct DirCache {
    by_key: Mutex<LruCache<Key, Arc<CachedDir>>>,
    /// Names held now.
    total: Arc<AtomicUsize>,
    /// What the names count in.
    room: SteppedRoom,
    max_names: usize,
    lifetime: Lifetime,
}

impl DirCache {
    /// Builds a cache of at most `max_names` names, which count in `memory`; those of a directory count for `lifetime`.
    pub(super) fn new(
        max_names: usize,
        lifetime: Lifetime,
        memory: &Arc<MemoryBudget>,
    ) -> Arc<DirCache> {
        let cache = Arc::new(DirCache {
            by_key: Mutex::new(LruCache::unbounded()),
            total: Arc::default(),
            room: SteppedRoom::new(memory, NAME_BYTES, max_names),
            max_names,
            lifetime,
        });
        let weak: Weak<DirCache> = Arc::downgrade(&cache);
        cache.room.memory().register(Priority::Metadata, weak);
        cache
    }

    /// Whether there is room for all names that are held.
    fn has_room(&self) -> bool {
        self.room.cover(|| self.total.load(Ordering::Relaxed))
    }

    /// Whether the names of a directory still count.
    pub(super) fn is_fresh(&self, dir: &CachedDir) -> bool {
        self.lifetime.is_fresh(dir.asked)
    }

    /// Builds a directory whose names come from a listing that has just begun. It is not in the cache yet.
    pub(super) fn growing(
        &self,
        prefix: &Key,
        asked: Instant,
        listing: Box<dyn Listing>,
    ) -> Arc<CachedDir> {
        let dir = CachedDir::growing(prefix.clone(), asked, listing, &self.total);
        Arc::new(dir)
    }

    /// Builds a directory of which all names are known. It is not in the cache yet.
    pub(super) fn complete(
        &self,
        prefix: Key,
        asked: Instant,
        names: NameMap,
        passed: PassedDir,
    ) -> Arc<CachedDir> {
        self.total.fetch_add(names.len(), Ordering::Relaxed);
        Arc::new(CachedDir {
            prefix,
            asked,
            passed: Some(passed),
            known: RwLock::new((names, Extent::Complete)),
            source: Mutex::default(),
            requests: AtomicU64::new(0),
            total: self.total.clone(),
        })
    }

    /// Returns a directory that is remembered.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<CachedDir>> {
        let mut dirs = self.by_key.lock();
        let dir = dirs.get(key)?.clone();
        self.is_fresh(&dir).then_some(dir)
    }

    /// Remembers a directory.
    pub(super) fn put(&self, dir: &Arc<CachedDir>) {
        let mut dirs = self.by_key.lock();
        let replaced = dirs.push(dir.prefix.clone(), dir.clone());
        drop(dirs);
        drop(replaced);
        self.trim(dir);
    }

    /// Forgets a directory.
    pub(super) fn forget(&self, key: &Key) {
        let forgotten = self.by_key.lock().pop(key);
        drop(forgotten);
    }

    /// Whether the directory above this one is remembered and has it as a directory.
    pub(super) fn is_directory(&self, key: &Key) -> bool {
        let above = key.parent().and_then(|parent| self.get(&parent));
        let entry = above.map_or(Known::Unknown, |above| above.look(key.name()));
        matches!(entry, Known::Is(entry) if entry.kind == EntryKind::Directory)
    }

    /// Makes room after `grown` got a name.
    pub(super) fn trim(&self, grown: &Arc<CachedDir>) {
        if self.has_room() {
            return;
        }
        if grown.len() > self.max_names / 2 {
            self.forget(&grown.prefix);
            grown.evict();
        }
        while !self.has_room() {
            if !self.evict_one() {
                grown.evict();
                return;
            }
        }
    }

    /// Returns what the directories tell of a key: its entry, or nothing if it, or what it would lie in, is missing.
    pub(super) fn look(&self, key: &Key) -> Option<Dated<Option<DirEntry>>> {
        let mut looked = key.clone();
        loop {
            let parent = looked.parent()?;
            let Some(dir) = self.get(&parent) else {
                looked = parent;
                continue;
            };
            let dated = |value| {
                let asked = dir.asked;
                Some(Dated { value, asked })
            };
            match dir.look(looked.name()) {
                Known::Missing => return dated(None),
                Known::Is(entry) if looked == *key => return dated(Some(entry)),
                // Nothing lies in an object.
                Known::Is(entry) if entry.kind == EntryKind::File => return dated(None),
                Known::Is(_) => return None,
                Known::Unknown => looked = parent,
            }
        }
    }
}

impl Evict for DirCache {
    fn evict_one(&self) -> bool {
        let oldest = self.by_key.lock().pop_lru();
        let Some((_, oldest)) = oldest else {
            return false;
        };
        oldest.evict();
        drop(oldest);
        self.room.shrink(self.total.load(Ordering::Relaxed));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stats::Stats;
    use crate::store::listing::NameList;
    use crate::sync::clock::Clock;

    /// Reads a directory of so many names.
    fn read(cache: &DirCache, prefix: &str, count: usize) -> Arc<CachedDir> {
        let names = (0..count).map(|number| (format!("{number:06}").into_bytes(), EntryKind::File));
        let names: Vec<_> = names.collect();
        let prefix = Key::new(prefix).unwrap();
        let dir = cache.growing(&prefix, Instant::now(), Box::new(NameList::new(names)));
        cache.put(&dir);
        for place in 0..count {
            let _ = dir.at(place).unwrap();
            cache.trim(&dir);
        }
        dir
    }

    #[test]
    fn b02_names_stay_within_their_part_of_the_memory() {
        let memory = MemoryBudget::new(NAME_BYTES * 20_000, Arc::new(Stats::default()));
        let lifetime = Lifetime {
            clock: Clock::default(),
            ttl: Duration::from_secs(1000),
        };
        let cache = DirCache::new(200_000, lifetime, &memory);
        for number in 0..20 {
            let dir = read(&cache, &format!("d{number}"), 4000);
            assert_eq!(dir.len(), 4000);
        }
        let has = |prefix: &str| cache.get(&Key::new(prefix).unwrap()).is_some();
        assert!(has("d19") && !has("d0"));
        assert!(memory.held() >= NAME_BYTES * 4000);
        let _all = memory.try_reserve(NAME_BYTES * 20_000).unwrap();
        assert!(!has("d19"), "names give way to other memory");
        assert_eq!(read(&cache, "late", 10).len(), 0);
    }
}
