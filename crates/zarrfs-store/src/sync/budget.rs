//! Memory budgets limit the bytes in use, by reservations before each allocation.
//!
//! A reservation is released when its last owner drops it, so the sum never exceeds the limit. Caches register here; a
//! reservation evicts their unused values in the order of `Priority`. `reserve` may block and is for foreground work;
//! `try_reserve` never blocks and is for prefetch and caches, so that no two of them wait for each other. A part of a
//! budget has its own limit, and its bytes are charged to the whole budget as well. If the whole budget is used up, a
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

/// The kind of a cache's values: values of an earlier kind are evicted before those of a later kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Values that were prefetched and not used yet.
    Speculative,
    /// Values that were used, and may be used again.
    Used,
    /// Metadata, which are small, but cost a request each to fetch again.
    Metadata,
    /// Open arrays: without them the kernel drops its cached pages of their files, which would have to be read again.
    OpenArrays,
}

/// A cache whose values are charged to a memory budget.
pub trait Evict: Send + Sync {
    /// Evicts the cache's least recently used value if its last use was before the given minute. Returns false if there
    /// is no such value.
    fn evict_one(&self, before: Minute) -> bool;
}

#[derive(Clone)]
struct RegisteredCache {
    priority: Priority,
    /// The identifier of the budget, or part of a budget, in which the cache is registered.
    budget: u64,
    cache: Weak<dyn Evict>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A limit for the bytes in memory. A part of a budget is itself a budget, and its bytes are also charged to the whole
/// budget.
pub struct MemoryBudget {
    id: u64,
    limit: u64,
    held: Mutex<u64>,
    freed: Condvar,
    /// The caches that are registered in this budget or its parts, sorted by priority.
    caches: Mutex<Vec<RegisteredCache>>,
    /// The counters of the mount, or `None` if this is a part of a budget.
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
    /// Builds a memory budget of `limit` bytes.
    pub fn new(limit: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        stats.memory_budget_bytes.set(limit);
        Arc::new(MemoryBudget::build(limit, Some(stats), None))
    }

    /// Builds the budget of a mount from the memory that the user allows, less a share for the pool of free buffers.
    pub fn beside_buffers(memory: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        let budget = MemoryBudget::new(buffer::set_aside(memory), stats.clone());
        stats.memory_budget_bytes.set(memory);
        budget
    }

    /// Builds a budget of at most `limit` bytes that is a part of this budget.
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

    /// Returns the limit of the budget, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the whole budget as a value for `--memory`, rounded, for error messages.
    pub fn option(&self) -> String {
        let whole = self.whole.as_ref().map_or(self.limit, |whole| whole.limit);
        match buffer::memory_for(whole).saturating_add(512) >> 10 {
            // From 16 MiB on, the value is rounded to MiB.
            kilobytes if kilobytes >= 16 << 10 || kilobytes % 1024 == 0 => {
                format!("{}M", (kilobytes + 512) >> 10)
            }
            kilobytes => format!("{kilobytes}K"),
        }
    }

    /// Returns the number of bytes that are reserved now.
    pub fn held(&self) -> u64 {
        *self.held.lock()
    }

    /// Registers a cache, so that reservations may evict its values while it exists.
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

    /// Reserves bytes, after evicting values from caches if necessary. Returns `None` if that does not free enough.
    /// Never waits.
    pub fn try_reserve(self: &Arc<MemoryBudget>, bytes: u64) -> Option<Reservation> {
        self.try_reserve_for(self.id, bytes)
    }

    /// Reserves bytes in this budget on behalf of the budget `id`: this budget or a part of it.
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

    /// Reserves bytes, and waits until enough are released if necessary. The error is `TooLarge` if they exceed the
    /// limit, or `Unavailable` at `deadline`.
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
            // The wait is short: no signal tells that a cached value has lost its last reader and can be evicted.
            self.wait(bytes, left.min(Duration::from_millis(50)));
        }
    }

    /// Waits until bytes are released in this budget, or in the whole budget if only that has too few free bytes.
    /// Returns at once if both have enough.
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

    /// Evicts one value from any cache, on behalf of the budget `id`. Returns false if no cache has a value to evict.
    fn evict_one(&self, id: u64) -> bool {
        let caches = self.caches.lock().clone();
        let is_of_part = |cache: &&RegisteredCache| cache.budget == id && id != self.id;
        let others = caches.iter().filter(|cache| !is_of_part(cache));
        let mut caches = others
            .chain(caches.iter().filter(is_of_part))
            .filter_map(|cache| cache.cache.upgrade());
        caches.any(|cache| cache.evict_one(Minute::NEVER))
    }

    /// Evicts all values up to a priority that were not used since the given minute. Returns whether there were any.
    pub(crate) fn evict_unused(&self, most: Priority, unused_since: Minute) -> bool {
        let mut caches = self.caches.lock().clone();
        caches.retain(|cache| cache.priority <= most);
        let caches = caches.iter().filter_map(|cache| cache.cache.upgrade());
        let evicted = caches
            .map(|cache| iter::from_fn(|| cache.evict_one(unused_since).then_some(())).count());
        evicted.sum::<usize>() > 0
    }

    /// Adds bytes to the sum of reserved bytes. Returns false if the sum would exceed the limit.
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

/// Bytes that are reserved in a memory budget until this struct is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
    /// The same bytes, reserved in the whole budget if `budget` is only a part of it.
    of_whole: Option<Box<Reservation>>,
}

impl Reservation {
    /// Releases all reserved bytes but `bytes`.
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

/// Memory for many small items, such as cached names, that is reserved for a batch of items at a time.
///
/// No lock is held during a reservation, since it may evict items of the caller.
pub struct BatchedReservation {
    memory: Arc<MemoryBudget>,
    item: u64,
    max_items: usize,
    batch: usize,
    batches: Mutex<Vec<Reservation>>,
    /// Number of items for which memory is reserved, readable without the lock.
    covered: AtomicUsize,
}

impl BatchedReservation {
    /// Reserves nothing yet. Limits the memory to that of `max_items` items of `item` bytes each, as a part of the
    /// budget.
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

    /// Returns the part of the budget from which memory for the items is reserved.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.memory
    }

    /// Whether memory for `items` items is already reserved.
    pub fn covers(&self, items: usize) -> bool {
        items <= self.covered.load(Ordering::Relaxed)
    }

    /// Reserves memory until there is enough for all items, and returns whether there is. `items` counts the items
    /// again after each reservation, since a reservation may evict some of them.
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

    /// Releases the memory that `items` items do not need.
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

    /// A test cache whose values are only reservations. It evicts the oldest first.
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

    /// A test cache without values that counts the calls of `evict_one`.
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
