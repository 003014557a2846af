//! The directories that are remembered.
//!
//! Names count in a part of the memory budget, and their number is bounded: what was listed least recently goes first.
//! A directory that grows beyond half of the bound is evicted while it is read, and its readers go on with listings of
//! their own, so that one of millions of names takes no more memory than one of thousands.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::cached_dir::{CachedDir, DirEntry, NameMap};
use super::dated::{Dated, Lifetime};
use super::listing_prefetch::PassedDir;
use crate::known::Known;
use crate::sync::aged_map::{AgedMap, Minute};
use crate::sync::budget::{Evict, MemoryBudget, Priority};
use crate::sync::stepped_room::SteppedRoom;
use crate::{EntryKind, Key, Listing};

/// What a name of ordinary length takes, in bytes.
const NAME_BYTES: u64 = 192;

/// Directories by key, bounded by the names that all of them hold. The names of a directory that is being read count
/// until its last reader is done.
pub(super) struct DirCache {
    by_key: Mutex<AgedMap<Key, Arc<CachedDir>>>,
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
            by_key: Mutex::new(AgedMap::default()),
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

    /// Returns for how long names count.
    pub(super) fn lifetime(&self) -> &Lifetime {
        &self.lifetime
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
        passed: Option<PassedDir>,
    ) -> Arc<CachedDir> {
        let dir = CachedDir::complete(prefix, asked, names, passed, &self.total);
        Arc::new(dir)
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
        let replaced = dirs.put(dir.prefix.clone(), dir.clone());
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
            if !self.evict_one(Minute::NEVER) {
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
    fn evict_one(&self, before: Minute) -> bool {
        let oldest = self.by_key.lock().pop_unused(before);
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
    use crate::listing::NameList;
    use crate::request_context::UNLIMITED;
    use crate::stats::Stats;
    use crate::sync::clock::Clock;

    /// Reads a directory of so many names.
    fn read(cache: &DirCache, prefix: &str, count: usize) -> Arc<CachedDir> {
        let names = (0..count).map(|number| (format!("{number:06}").into_bytes(), EntryKind::File));
        let names: Vec<_> = names.collect();
        let prefix = Key::new(prefix).unwrap();
        let dir = cache.growing(&prefix, Instant::now(), Box::new(NameList::new(names)));
        cache.put(&dir);
        for place in 0..count {
            let _ = dir.at(&UNLIMITED, place).unwrap();
            cache.trim(&dir);
        }
        dir
    }

    #[test]
    fn names_stay_within_their_part_of_the_memory() {
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
