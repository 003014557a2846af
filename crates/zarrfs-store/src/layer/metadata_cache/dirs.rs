//! The cache of directories.
//!
//! Names are charged to a part of the memory budget, and their number is bounded; the least recently used directory is
//! evicted first. A directory with more than half of that number is evicted while it is read, and each of its readers
//! continues with a listing of its own. A directory of millions of names thus takes no more memory than one of
//! thousands.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::assembler::AssembledDir;
use super::cached_answers::{Dated, Lifetime};
use super::cached_dir::{CachedDir, DirEntry};
use super::listing_prefetch::PassedDir;
use crate::request_context::RequestContext;
use crate::sync::aged_map::{AgedMap, Minute};
use crate::sync::budget::BatchedReservation;
use crate::sync::budget::{Evict, MemoryBudget, Priority};
use crate::{EntryKind, Key, Listing, Meta, Presence};

/// Memory that a cached name of typical length takes, in bytes.
const NAME_BYTES: u64 = 192;

/// The cached directories by key, with a limit for the total number of names. The names of an evicted directory count
/// until its last reader is done.
pub(super) struct DirCache {
    by_key: Mutex<AgedMap<Key, Arc<CachedDir>>>,
    total: Arc<AtomicUsize>,
    reservation: BatchedReservation,
    max_names: usize,
    lifetime: Lifetime,
}

impl DirCache {
    /// Builds an empty cache of at most `max_names` names, whose memory is charged to the budget `memory`.
    pub(super) fn new(
        max_names: usize,
        lifetime: Lifetime,
        memory: &Arc<MemoryBudget>,
    ) -> Arc<DirCache> {
        let cache = Arc::new(DirCache {
            by_key: Mutex::new(AgedMap::default()),
            total: Arc::default(),
            reservation: BatchedReservation::new(memory, NAME_BYTES, max_names),
            max_names,
            lifetime,
        });
        let weak: Weak<DirCache> = Arc::downgrade(&cache);
        cache
            .reservation
            .memory()
            .register(Priority::Metadata, weak);
        cache
    }

    /// Whether memory is reserved for all cached names. Reserves more if necessary.
    fn has_room(&self) -> bool {
        self.reservation
            .cover(|| self.total.load(Ordering::Relaxed))
    }

    pub(super) fn lifetime(&self) -> &Lifetime {
        &self.lifetime
    }

    pub(super) fn is_fresh(&self, dir: &CachedDir) -> bool {
        self.lifetime.is_fresh(dir.request_time)
    }

    /// Builds a directory from a listing that has just begun, without caching it yet.
    pub(super) fn growing(
        &self,
        prefix: &Key,
        request_time: Instant,
        listing: Box<dyn Listing>,
    ) -> Arc<CachedDir> {
        let dir = CachedDir::growing(prefix.clone(), request_time, listing, &self.total);
        Arc::new(dir)
    }

    pub(super) fn complete(&self, dir: AssembledDir, passed: Option<PassedDir>) -> Arc<CachedDir> {
        Arc::new(CachedDir::complete(dir, passed, &self.total))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<CachedDir>> {
        let mut dirs = self.by_key.lock();
        let dir = dirs.get(key)?.clone();
        self.is_fresh(&dir).then_some(dir)
    }

    pub(super) fn put(&self, dir: &Arc<CachedDir>) {
        let mut dirs = self.by_key.lock();
        let replaced = dirs.put(dir.prefix.clone(), dir.clone());
        drop(dirs);
        drop(replaced);
        self.trim(dir);
    }

    pub(super) fn forget(&self, key: &Key) {
        let forgotten = self.by_key.lock().pop(key);
        drop(forgotten);
    }

    pub(super) fn is_directory(&self, key: &Key) -> bool {
        let above = key.parent().and_then(|parent| self.get(&parent));
        let entry = above.map_or(Presence::Unknown, |above| above.entry(key.name()));
        matches!(entry, Presence::Is(entry) if entry.kind == EntryKind::Directory)
    }

    /// Evicts directories until all names fit into the limit, after the directory `grown` got another name.
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

    /// Returns the cached entry of a key, or `Some(None)` if the key or a directory above it is known to be missing.
    pub(super) fn entry(&self, key: &Key) -> Option<Dated<Option<DirEntry>>> {
        let mut path = key.clone();
        loop {
            let parent = path.parent()?;
            let Some(dir) = self.get(&parent) else {
                path = parent;
                continue;
            };
            let dated = |value| {
                let request_time = dir.request_time;
                Some(Dated {
                    value,
                    request_time,
                })
            };
            match dir.entry(path.name()) {
                Presence::Missing => return dated(None),
                Presence::Is(entry) if path == *key => return dated(Some(entry)),
                // A key above the requested one is an object, and an object has no children.
                Presence::Is(entry) if entry.kind == EntryKind::File => return dated(None),
                Presence::Is(_) => return None,
                Presence::Unknown => path = parent,
            }
        }
    }

    /// Returns all objects below a directory, sorted by bytes, or `None` if any directory below it is not cached.
    pub(super) fn all_below(
        &self,
        context: &RequestContext,
        folder: &Key,
    ) -> Option<Vec<(Key, Meta)>> {
        let mut objects = Vec::new();
        let mut open = vec![folder.clone()];
        let mut times = Vec::new();
        while let Some(prefix) = open.pop() {
            let dir = self.get(&prefix)?;
            times.push(dir.request_time);
            for (name, entry) in dir.all_names()? {
                let key = prefix.child(&name).ok()?;
                match (entry.kind, entry.meta?) {
                    (EntryKind::File, meta) => objects.push((key, meta)),
                    // A directory with metadata of its own is also an object: then the objects are not returned.
                    (EntryKind::Directory, meta) if meta == Meta::prefix() => open.push(key),
                    _ => return None,
                }
            }
        }
        for request_time in times {
            context.record_age(request_time);
        }
        objects.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Some(objects)
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
        self.reservation.shrink(self.total.load(Ordering::Relaxed));
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

    fn read(cache: &DirCache, prefix: &str, count: usize) -> Arc<CachedDir> {
        let names = (0..count).map(|number| (format!("{number:06}").into_bytes(), EntryKind::File));
        let names: Vec<_> = names.collect();
        let prefix = Key::new(prefix).unwrap();
        let dir = cache.growing(&prefix, Instant::now(), Box::new(NameList::new(names)));
        cache.put(&dir);
        for place in 0..count {
            let _ = dir.slot_at(&UNLIMITED, place).unwrap();
            cache.trim(&dir);
        }
        dir
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn cached_names_stay_within_their_memory_limit() {
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
