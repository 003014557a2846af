//! The memory that may be held, in bytes: room is taken before memory is, and given back when its last holder drops
//! it, so that the sum never exceeds the limit.
//!
//! Caches register here; a request for room makes them drop what is in use nowhere else, in the order of `Priority`.
//! Work that a program waits for waits for room (`reserve`); what is fetched ahead or merely kept does not
//! (`try_reserve`), so that no two of them wait for each other. A part of a budget has a limit of its own, and what
//! it holds counts in the whole as well; up to that limit it makes others drop values before its own caches do. No lock
//! is held while a cache drops values.

use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::stats::Stats;
use crate::sync::aged_map::Minute;
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

/// How long a request for room waits before it looks again for something that can be dropped: a value becomes
/// evictable without a signal when its last reader is done.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// What is dropped first when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Was fetched before a program asked for it.
    Speculative,
    /// Was read, and may be read again.
    Used,
    /// Small, and costs a request to a store each.
    Metadata,
    /// What the kernel's pages of files count by: they would be read again without it.
    OpenArrays,
}

/// Memory of at least so many K is told in M.
const FEW: u64 = 16 << 10;

/// A cache whose values are counted in a budget.
pub trait Evict: Send + Sync {
    /// Drops the value that was used least recently, if that was before a minute; false if there is none.
    fn evict_one(&self, before: Minute) -> bool;
}

#[derive(Clone)]
struct RegisteredCache {
    priority: Priority,
    /// The budget that the cache registered in.
    budget: u64,
    cache: Weak<dyn Evict>,
}

/// The number of the next budget.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A limit for the bytes that are held.
pub struct MemoryBudget {
    id: u64,
    limit: u64,
    held: Mutex<u64>,
    freed: Condvar,
    /// Sorted by priority; those of parts are among them.
    caches: Mutex<Vec<RegisteredCache>>,
    /// Counters of the whole; a part has none.
    stats: Option<Arc<Stats>>,
    whole: Option<Arc<MemoryBudget>>,
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget")
            .field("limit", &self.limit)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl MemoryBudget {
    /// Builds a budget of `limit` bytes.
    pub fn new(limit: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        stats.memory_budget_bytes.set(limit);
        Arc::new(MemoryBudget::build(limit, Some(stats), None))
    }

    /// Builds the budget of a mount whose `memory` in bytes buffers have a part of that are used again.
    pub fn beside_buffers(memory: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        let budget = MemoryBudget::new(buffer::set_aside(memory), stats.clone());
        stats.memory_budget_bytes.set(memory);
        budget
    }

    /// Builds a budget of at most `limit` bytes, no more than this one has, which are taken from this one.
    pub fn part(self: &Arc<MemoryBudget>, limit: u64) -> Arc<MemoryBudget> {
        let limit = limit.min(self.limit);
        Arc::new(MemoryBudget::build(limit, None, Some(self.clone())))
    }

    fn build(
        limit: u64,
        stats: Option<Arc<Stats>>,
        whole: Option<Arc<MemoryBudget>>,
    ) -> MemoryBudget {
        MemoryBudget {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            limit,
            held: Mutex::new(0),
            freed: Condvar::new(),
            caches: Mutex::default(),
            stats,
            whole,
        }
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the memory of the mount as it is given on the command line, about.
    pub fn option(&self) -> String {
        let whole = self.whole.as_ref().map_or(self.limit, |whole| whole.limit);
        match buffer::memory_for(whole).saturating_add(512) >> 10 {
            kilobytes if kilobytes >= FEW || kilobytes % 1024 == 0 => {
                format!("{}M", (kilobytes + 512) >> 10)
            }
            kilobytes => format!("{kilobytes}K"),
        }
    }

    /// Returns the bytes held now.
    pub fn held(&self) -> u64 {
        *self.held.lock()
    }

    /// Lets requests for room evict values of a cache, for as long as the cache exists.
    pub fn register(&self, priority: Priority, cache: Weak<dyn Evict>) {
        self.add(RegisteredCache {
            priority,
            budget: self.id,
            cache,
        });
    }

    fn add(&self, cache: RegisteredCache) {
        if let Some(whole) = &self.whole {
            whole.add(cache.clone());
        }
        let mut caches = self.caches.lock();
        caches.retain(|other| other.cache.strong_count() > 0);
        caches.push(cache);
        caches.sort_by_key(|cache| cache.priority);
    }

    /// Takes room for `bytes`, if there is some or can be made by evicting values; never waits.
    pub fn try_reserve(self: &Arc<MemoryBudget>, bytes: u64) -> Option<Reservation> {
        self.try_reserve_for(self.id, bytes)
    }

    /// Takes room for the budget `id`, which is this one or a part of it.
    fn try_reserve_for(self: &Arc<MemoryBudget>, id: u64, bytes: u64) -> Option<Reservation> {
        if bytes > self.limit {
            return None;
        }
        while !self.take(bytes) {
            if !self.evict_one(id) {
                return None;
            }
        }
        let mut room = Reservation {
            budget: self.clone(),
            bytes,
            of_whole: None,
        };
        if let Some(whole) = &self.whole {
            room.of_whole = Some(Box::new(whole.try_reserve_for(id, bytes)?));
        }
        Some(room)
    }

    /// Takes room for `bytes`, and waits for it if need be. `TooLarge` if it can never fit, `Unavailable` at
    /// `deadline`.
    pub fn reserve(self: &Arc<MemoryBudget>, bytes: u64, deadline: Instant) -> Result<Reservation> {
        if bytes > self.limit {
            let (limit, option) = (self.limit, self.option());
            return Err(Error::too_large(
                "",
                format!(
                    "needs {bytes} bytes at once, and --memory, which is {option}, leaves {limit}: give more --memory"
                ),
            ));
        }
        loop {
            if let Some(room) = self.try_reserve(bytes) {
                return Ok(room);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!(
                    "no room for {bytes} bytes became free within the time limit in --memory, which is {}: give more --memory",
                    self.option()
                );
                return Err(Error::new(Kind::Unavailable, "", why));
            }
            self.wait(bytes, left.min(RETRY_INTERVAL));
        }
    }

    /// Waits until something is given back here, or in the whole if `bytes` fit here; not at all if they fit in both.
    fn wait(&self, bytes: u64, at_most: Duration) {
        let mut held = self.held.lock();
        if held.saturating_add(bytes) > self.limit {
            self.freed.wait_for(&mut held, at_most);
            return;
        }
        drop(held);
        if let Some(whole) = &self.whole {
            whole.wait(bytes, at_most);
        }
    }

    /// Evicts a value to make room for the budget `id`; false if there is none.
    fn evict_one(&self, id: u64) -> bool {
        let caches = self.caches.lock().clone();
        let is_of_part = |cache: &&RegisteredCache| cache.budget == id && id != self.id;
        let others = caches.iter().filter(|cache| !is_of_part(cache));
        let mut caches = others
            .chain(caches.iter().filter(is_of_part))
            .filter_map(|cache| cache.cache.upgrade());
        caches.any(|cache| cache.evict_one(Minute::NEVER))
    }

    /// Drops all values of at most a priority that were not used since a minute; returns whether there were some.
    pub fn give_back(&self, most: Priority, unused_since: Minute) -> bool {
        let mut caches = self.caches.lock().clone();
        caches.retain(|cache| cache.priority <= most);
        let caches = caches.iter().filter_map(|cache| cache.cache.upgrade());
        let given = caches
            .map(|cache| iter::from_fn(|| cache.evict_one(unused_since).then_some(())).count());
        given.sum::<usize>() > 0
    }

    /// Counts `bytes` as held; false if they do not fit.
    fn take(&self, bytes: u64) -> bool {
        let mut held = self.held.lock();
        let Some(sum) = held.checked_add(bytes).filter(|&sum| sum <= self.limit) else {
            return false;
        };
        *held = sum;
        self.report(sum);
        true
    }

    fn release(&self, bytes: u64) {
        let mut held = self.held.lock();
        *held = held.saturating_sub(bytes);
        self.report(*held);
        drop(held);
        self.freed.notify_all();
    }

    fn report(&self, held: u64) {
        if let Some(stats) = &self.stats {
            stats.memory_held_bytes.set(held);
            if held > stats.memory_peak_bytes.get() {
                stats.memory_peak_bytes.set(held);
            }
        }
    }
}

/// Room in a budget, given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    /// The same room in the budget that this one is a part of.
    of_whole: Option<Box<Reservation>>,
}

impl Reservation {
    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        if let Some(spare) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.release(spare);
        }
        if let Some(of_whole) = &mut self.of_whole {
            of_whole.shrink(bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds reservations; the oldest is evicted first.
    #[derive(Default)]
    struct Rooms(Mutex<Vec<Reservation>>);

    impl Rooms {
        fn keep(&self, room: Option<Reservation>) {
            self.0.lock().push(room.unwrap());
        }

        fn count(&self) -> usize {
            self.0.lock().len()
        }
    }

    impl Evict for Rooms {
        fn evict_one(&self, _: Minute) -> bool {
            let mut rooms = self.0.lock();
            if rooms.is_empty() {
                return false;
            }
            let _evicted = rooms.remove(0);
            true
        }
    }

    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(100, Arc::new(Stats::default()))
    }

    fn register(budget: &MemoryBudget, priority: Priority) -> Arc<Rooms> {
        let rooms = Arc::new(Rooms::default());
        let weak: Weak<Rooms> = Arc::downgrade(&rooms);
        budget.register(priority, weak);
        rooms
    }

    #[test]
    fn what_was_fetched_ahead_is_evicted_first() {
        let budget = budget();
        let part = budget.part(50);
        let (used, ahead) = (
            register(&budget, Priority::Used),
            register(&part, Priority::Speculative),
        );
        used.keep(budget.try_reserve(60));
        ahead.keep(part.try_reserve(30));
        let _room = budget.reserve(20, Instant::now()).unwrap();
        assert_eq!((used.count(), ahead.count()), (1, 0));
        assert_eq!((budget.held(), part.held()), (80, 0));
    }

    #[test]
    fn a_part_takes_its_share_before_it_evicts_its_own() {
        let budget = budget();
        let part = budget.part(50);
        let used = register(&budget, Priority::Used);
        let ahead = register(&part, Priority::Speculative);
        (0..4).for_each(|_| used.keep(budget.try_reserve(25)));
        for (kept, fetched) in [(3, 1), (2, 2), (2, 2)] {
            ahead.keep(part.try_reserve(25));
            assert_eq!((used.count(), ahead.count()), (kept, fetched));
        }
    }

    #[test]
    fn a_part_stays_within_its_limit_and_counts_in_the_whole() {
        let budget = budget();
        let part = budget.part(50);
        let ahead = register(&part, Priority::Speculative);
        for _ in 0..3 {
            ahead.keep(part.try_reserve(30));
            assert_eq!((part.held(), budget.held(), ahead.count()), (30, 30, 1));
        }
        assert!(part.try_reserve(51).is_none());
        let mut room = part.try_reserve(50).unwrap();
        room.shrink(10);
        assert_eq!((part.held(), budget.held()), (10, 10));
        drop(room);
        assert_eq!((part.held(), budget.held()), (0, 0));
    }

    /// Has nothing to drop, and counts how often it is asked.
    #[derive(Default)]
    struct Nothing(AtomicU64);

    impl Evict for Nothing {
        fn evict_one(&self, _: Minute) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn a_part_waits_for_room_in_the_whole() {
        let budget = budget();
        let part = budget.part(50);
        let nothing = Arc::new(Nothing::default());
        let weak: Weak<Nothing> = Arc::downgrade(&nothing);
        budget.register(Priority::Used, weak);
        let held = budget.try_reserve(80).unwrap();
        let wait = Duration::from_millis(300);
        let refused = part.reserve(30, Instant::now() + wait).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        let asked = nothing.0.load(Ordering::Relaxed);
        assert!(asked <= 20, "asked {asked} times within {wait:?}");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| part.reserve(30, Instant::now() + 100 * wait));
            drop(held);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn no_room_in_the_whole_takes_none_of_the_part() {
        let budget = budget();
        let part = budget.part(50);
        let _held = budget.try_reserve(80).unwrap();
        assert!(part.try_reserve(30).is_none());
        assert_eq!((part.held(), budget.held()), (0, 80));
    }
}
