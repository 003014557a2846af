//! Memory budgets limit the bytes held, by reservations before each allocation.
//!
//! A reservation is released when its last holder drops it, so that the sum never exceeds the limit. Caches register
//! here; a reservation evicts their unused values in the order of `Priority`. `reserve` may block and is for foreground
//! work; `try_reserve` never blocks and is for prefetch and caches, so that no two of them wait for each other. A part
//! of a budget has its own limit, and its bytes are charged to the whole budget as well. If the whole budget is full, a
//! reservation of a part evicts values of other caches before those of its own. No lock is held while a cache evicts.

use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::stats::Stats;
use crate::sync::aged_map::Minute;
use zarr_format::buffer;
use zarr_format::error::{Error, Kind, Result};

/// The order of eviction, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Prefetched, not used yet.
    Speculative,
    /// Was used, and may be used again.
    Used,
    /// Metadata: small, but each value costs a request to a store.
    Metadata,
    /// State that keeps the kernel's pages of files valid: without it the pages would be read again.
    OpenArrays,
}

/// A cache whose values are charged to a budget.
pub trait Evict: Send + Sync {
    /// Evicts the least recently used value if its last use was before the given minute; returns false if there is no
    /// such value.
    fn evict_one(&self, before: Minute) -> bool;
}

#[derive(Clone)]
struct RegisteredCache {
    priority: Priority,
    /// The budget in which the cache is registered.
    budget: u64,
    cache: Weak<dyn Evict>,
}

/// The identifier of the next budget.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A limit for the bytes in memory. A part of a budget is itself a budget, whose bytes are charged to the whole budget
/// too.
pub struct MemoryBudget {
    id: u64,
    limit: u64,
    held: Mutex<u64>,
    freed: Condvar,
    /// Sorted by priority; includes the caches of the parts.
    caches: Mutex<Vec<RegisteredCache>>,
    /// The counters; `None` if this is a part of a budget.
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

    /// Builds the budget of a mount with `memory` bytes, less the share of the buffer pool.
    pub fn beside_buffers(memory: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        let budget = MemoryBudget::new(buffer::set_aside(memory), stats.clone());
        stats.memory_budget_bytes.set(memory);
        budget
    }

    /// Builds a part of this budget with a limit of at most `limit` bytes.
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

    /// Returns the mount's memory as a value of `--memory`, rounded.
    pub fn option(&self) -> String {
        let whole = self.whole.as_ref().map_or(self.limit, |whole| whole.limit);
        match buffer::memory_for(whole).saturating_add(512) >> 10 {
            // Sizes of at least 16 MiB are in MiB.
            kilobytes if kilobytes >= 16 << 10 || kilobytes % 1024 == 0 => {
                format!("{}M", (kilobytes + 512) >> 10)
            }
            kilobytes => format!("{kilobytes}K"),
        }
    }

    /// Returns the bytes held now.
    pub fn held(&self) -> u64 {
        *self.held.lock()
    }

    /// Registers a cache: reservations may evict its values while it exists.
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

    /// Reserves `bytes`, after evicting values if necessary; never waits. Returns `None` if that is not enough.
    pub fn try_reserve(self: &Arc<MemoryBudget>, bytes: u64) -> Option<Reservation> {
        self.try_reserve_for(self.id, bytes)
    }

    /// Reserves bytes here on behalf of the budget `id`, which is this one or a part of it.
    fn try_reserve_for(self: &Arc<MemoryBudget>, id: u64, bytes: u64) -> Option<Reservation> {
        if bytes > self.limit {
            return None;
        }
        while !self.take(bytes) {
            if !self.evict_one(id) {
                return None;
            }
        }
        let mut reservation = Reservation {
            budget: self.clone(),
            bytes,
            of_whole: None,
        };
        if let Some(whole) = &self.whole {
            reservation.of_whole = Some(Box::new(whole.try_reserve_for(id, bytes)?));
        }
        Some(reservation)
    }

    /// Reserves `bytes`, and waits for room if necessary. `TooLarge` if they exceed the limit, `Unavailable` at
    /// `deadline`.
    pub fn reserve(self: &Arc<MemoryBudget>, bytes: u64, deadline: Instant) -> Result<Reservation> {
        if bytes > self.limit {
            let (limit, option) = (self.limit, self.option());
            return Err(Error::too_large(
                "",
                format!(
                    "needs {bytes} bytes at once, but --memory {option} leaves {limit}: give more --memory"
                ),
            ));
        }
        loop {
            if let Some(reservation) = self.try_reserve(bytes) {
                return Ok(reservation);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = format!(
                    "no room for {bytes} bytes within --memory {}: give more --memory, or read less at a time",
                    self.option()
                );
                return Err(Error::new(Kind::Unavailable, "", why));
            }
            // A value becomes evictable without a signal when its last reader drops it.
            self.wait(bytes, left.min(Duration::from_millis(50)));
        }
    }

    /// Waits for a release in this budget, or if `bytes` fit here, for one in the whole budget. Returns at once if they
    /// fit in both.
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

    /// Evicts one value on behalf of the budget `id`; returns false if no cache has a value to evict.
    fn evict_one(&self, id: u64) -> bool {
        let caches = self.caches.lock().clone();
        let is_of_part = |cache: &&RegisteredCache| cache.budget == id && id != self.id;
        let others = caches.iter().filter(|cache| !is_of_part(cache));
        let mut caches = others
            .chain(caches.iter().filter(is_of_part))
            .filter_map(|cache| cache.cache.upgrade());
        caches.any(|cache| cache.evict_one(Minute::NEVER))
    }

    /// Evicts all values up to a priority that were not used since the given minute; returns whether there were any.
    pub(crate) fn evict_unused(&self, most: Priority, unused_since: Minute) -> bool {
        let mut caches = self.caches.lock().clone();
        caches.retain(|cache| cache.priority <= most);
        let caches = caches.iter().filter_map(|cache| cache.cache.upgrade());
        let evicted = caches
            .map(|cache| iter::from_fn(|| cache.evict_one(unused_since).then_some(())).count());
        evicted.sum::<usize>() > 0
    }

    /// Adds `bytes` to the sum; returns false if they exceed the limit.
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

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    /// The reservation of the same bytes in the whole budget, if `budget` is a part.
    of_whole: Option<Box<Reservation>>,
}

impl Reservation {
    /// Releases all but `bytes`.
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

/// Reserved memory for many small items, reserved a batch at a time.
///
/// No lock is held during a reservation, since it may evict items of the caller.
pub struct BatchedReservation {
    memory: Arc<MemoryBudget>,
    /// Bytes per item.
    item: u64,
    max_items: usize,
    batch: usize,
    batches: Mutex<Vec<Reservation>>,
    /// Number of items with reserved memory, readable without the lock.
    covered: AtomicUsize,
}

impl BatchedReservation {
    /// Reserves nothing yet. The part of the budget is limited to `max_items` items of `item` bytes each.
    pub fn new(memory: &Arc<MemoryBudget>, item: u64, max_items: usize) -> BatchedReservation {
        let batch = (max_items / 8).clamp(1, 1 << 10);
        let limit = item.saturating_mul(max_items.saturating_add(batch) as u64);
        BatchedReservation {
            memory: memory.part(limit),
            item,
            max_items,
            batch,
            batches: Mutex::default(),
            covered: AtomicUsize::new(0),
        }
    }

    /// Returns the part of the budget for the items.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// Whether memory for this many items is reserved already.
    pub fn covers(&self, items: usize) -> bool {
        items <= self.covered.load(Ordering::Relaxed)
    }

    /// Reserves memory until it suffices for all items; returns whether it does. `items` counts the items again after
    /// each reservation, since a reservation may evict some of them.
    pub fn cover(&self, items: impl Fn() -> usize) -> bool {
        loop {
            let items = items();
            if items > self.max_items {
                return false;
            }
            if self.covers(items) {
                return true;
            }
            let Some(reservation) = self.memory.try_reserve(self.item * self.batch as u64) else {
                return false;
            };
            let mut batches = self.batches.lock();
            batches.push(reservation);
            self.set_covered(&batches);
        }
    }

    fn set_covered(&self, batches: &[Reservation]) {
        let covered = (batches.len() * self.batch).min(self.max_items);
        self.covered.store(covered, Ordering::Relaxed);
    }

    /// Releases the reservations that this many items do not need.
    pub fn shrink(&self, items: usize) {
        let needed = items.div_ceil(self.batch);
        let mut batches = self.batches.lock();
        let needed = needed.min(batches.len());
        let spare = batches.split_off(needed);
        self.set_covered(&batches);
        drop(batches);
        drop(spare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds reservations; evicts the oldest first.
    #[derive(Default)]
    struct Reservations(Mutex<Vec<Reservation>>);

    impl Reservations {
        fn add(&self, reservation: Option<Reservation>) {
            self.0.lock().push(reservation.unwrap());
        }

        fn count(&self) -> usize {
            self.0.lock().len()
        }
    }

    impl Evict for Reservations {
        fn evict_one(&self, _: Minute) -> bool {
            let mut reservations = self.0.lock();
            if reservations.is_empty() {
                return false;
            }
            let _evicted = reservations.remove(0);
            true
        }
    }

    fn budget() -> Arc<MemoryBudget> {
        MemoryBudget::new(100, Arc::new(Stats::default()))
    }

    fn register(budget: &MemoryBudget, priority: Priority) -> Arc<Reservations> {
        let reservations = Arc::new(Reservations::default());
        let weak: Weak<Reservations> = Arc::downgrade(&reservations);
        budget.register(priority, weak);
        reservations
    }

    #[test]
    fn prefetched_data_are_evicted_first() {
        let budget = budget();
        let part = budget.part(50);
        let (used, ahead) = (
            register(&budget, Priority::Used),
            register(&part, Priority::Speculative),
        );
        used.add(budget.try_reserve(60));
        ahead.add(part.try_reserve(30));
        let _room = budget.reserve(20, Instant::now()).unwrap();
        assert_eq!((used.count(), ahead.count()), (1, 0));
        assert_eq!((budget.held(), part.held()), (80, 0));
    }

    #[test]
    fn a_part_evicts_others_up_to_its_share_before_its_own() {
        let budget = budget();
        let part = budget.part(50);
        let used = register(&budget, Priority::Used);
        let ahead = register(&part, Priority::Speculative);
        (0..4).for_each(|_| used.add(budget.try_reserve(25)));
        for (used_count, ahead_count) in [(3, 1), (2, 2), (2, 2)] {
            ahead.add(part.try_reserve(25));
            assert_eq!((used.count(), ahead.count()), (used_count, ahead_count));
        }
    }

    #[test]
    fn a_part_stays_within_its_limit_and_counts_in_the_budget() {
        let budget = budget();
        let part = budget.part(50);
        let ahead = register(&part, Priority::Speculative);
        for _ in 0..3 {
            ahead.add(part.try_reserve(30));
            assert_eq!((part.held(), budget.held(), ahead.count()), (30, 30, 1));
        }
        assert!(part.try_reserve(51).is_none());
        let mut reservation = part.try_reserve(50).unwrap();
        reservation.shrink(10);
        assert_eq!((part.held(), budget.held()), (10, 10));
        drop(reservation);
        assert_eq!((part.held(), budget.held()), (0, 0));
    }

    /// A cache without values that counts the calls.
    #[derive(Default)]
    struct Nothing(AtomicU64);

    impl Evict for Nothing {
        fn evict_one(&self, _: Minute) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn a_part_waits_for_room_in_the_whole_budget() {
        let budget = budget();
        let part = budget.part(50);
        let nothing = Arc::new(Nothing::default());
        let weak: Weak<Nothing> = Arc::downgrade(&nothing);
        budget.register(Priority::Used, weak);
        let held = budget.try_reserve(80).unwrap();
        let wait = Duration::from_millis(300);
        let refused = part.reserve(30, Instant::now() + wait).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        let calls = nothing.0.load(Ordering::Relaxed);
        assert!(calls <= 20, "called {calls} times within {wait:?}");
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| part.reserve(30, Instant::now() + 100 * wait));
            drop(held);
            waiting.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_failed_reservation_takes_nothing_from_the_part() {
        let budget = budget();
        let part = budget.part(50);
        let _held = budget.try_reserve(80).unwrap();
        assert!(part.try_reserve(30).is_none());
        assert_eq!((part.held(), budget.held()), (0, 80));
    }

    #[test]
    fn a_batched_reservation_follows_the_item_count() {
        let memory = MemoryBudget::new(100_000, Arc::new(Stats::default()));
        let reservation = BatchedReservation::new(&memory, 10, 80_000);
        assert!(reservation.cover(|| 1500) && reservation.cover(|| 1000));
        assert_eq!(memory.held(), 20 * 1024);
        reservation.shrink(1024);
        assert_eq!(memory.held(), 10 * 1024);
        assert!(!reservation.cover(|| 80_001) && !reservation.cover(|| 20_000));
        reservation.shrink(0);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_batched_reservation_is_small_for_few_items() {
        let memory = MemoryBudget::new(100_000, Arc::new(Stats::default()));
        let reservation = BatchedReservation::new(&memory, 10, 16);
        assert!(reservation.cover(|| 16) && !reservation.cover(|| 17));
        assert_eq!(memory.held(), 160);
    }
}
