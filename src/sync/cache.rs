//! Decoded chunks in memory: one budget, the least recently used goes first, one flight per chunk.
//!
//! Bytes are counted from the moment they are asked for until the last holder drops them, so that the sum
//! never exceeds the budget; who needs room waits for it. No lock is held while anything is loaded, and the
//! waiters of a flight get its value, not a second look.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::{Error, Kind, Result};
use crate::stats::Stats;

/// The memory that may be held, in bytes.
pub struct MemoryBudget {
    limit: u64,
    held: Mutex<u64>,
    freed: Condvar,
    stats: Arc<Stats>,
}

/// Room in the budget; given back when dropped.
pub struct Reservation {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl MemoryBudget {
    /// Builds a budget of `limit` bytes.
    pub fn new(limit: u64, stats: Arc<Stats>) -> Arc<MemoryBudget> {
        stats.memory_budget_bytes.set(limit);
        Arc::new(MemoryBudget {
            limit,
            held: Mutex::new(0),
            freed: Condvar::new(),
            stats,
        })
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes held now.
    pub fn held(&self) -> u64 {
        *self.held.lock()
    }

    /// Takes room if there is some.
    fn take(self: &Arc<MemoryBudget>, bytes: u64) -> Option<Reservation> {
        let mut held = self.held.lock();
        *held = held.checked_add(bytes).filter(|&sum| sum <= self.limit)?;
        self.count(*held);
        Some(Reservation {
            budget: self.clone(),
            bytes,
        })
    }

    /// Waits a moment for somebody to give room back.
    fn wait(&self, bytes: u64, most: Duration) {
        let mut held = self.held.lock();
        if held.saturating_add(bytes) > self.limit {
            self.freed.wait_for(&mut held, most);
        }
    }

    fn give(&self, bytes: u64) {
        let mut held = self.held.lock();
        *held = held.saturating_sub(bytes);
        self.count(*held);
        drop(held);
        self.freed.notify_all();
    }

    fn count(&self, held: u64) {
        self.stats.memory_held_bytes.set(held);
        if held > self.stats.memory_peak_bytes.get() {
            self.stats.memory_peak_bytes.set(held);
        }
    }
}

impl Reservation {
    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: u64) {
        if let Some(spare) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.give(spare);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

/// What is done with a value that makes room for others.
type EvictionListener<K, V> = Box<dyn Fn(&K, &V) + Send + Sync>;

/// Values by key, as many as the budget allows.
pub struct Cache<K, V> {
    budget: Arc<MemoryBudget>,
    stats: Arc<Stats>,
    state: Mutex<CacheState<K, V>>,
    farewell: Option<EvictionListener<K, V>>,
    /// Signals that a value has left.
    left: Condvar,
}

struct CacheState<K, V> {
    values: LruCache<K, V>,
    flights: HashMap<K, Arc<InFlight<V>>>,
    /// Keys whose values are on their way out.
    leaving: HashSet<K>,
}

/// A value on its way, and those who wait for it.
struct InFlight<V> {
    landed: Mutex<Option<Result<V>>>,
    signal: Condvar,
}

impl<V: Clone> InFlight<V> {
    fn new() -> InFlight<V> {
        InFlight {
            landed: Mutex::new(None),
            signal: Condvar::new(),
        }
    }

    fn land(&self, value: Result<V>) {
        *self.landed.lock() = Some(value);
        self.signal.notify_all();
    }

    fn wait(&self, deadline: Instant) -> Result<V> {
        let mut landed = self.landed.lock();
        loop {
            if let Some(value) = &*landed {
                return value.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    Kind::Unavailable,
                    "",
                    "no answer within the time limit",
                ));
            }
            self.signal.wait_for(&mut landed, left);
        }
    }
}

/// Lands a flight whatever happens to its loader.
struct LoadGuard<'a, K: Hash + Eq + Clone, V: Clone> {
    cache: &'a Cache<K, V>,
    key: K,
    flight: Arc<InFlight<V>>,
}

impl<K: Hash + Eq + Clone, V: Clone> LoadGuard<'_, K, V> {
    /// Keeps the value and lets nobody join the flight any more: who asks from now on may know more than it did.
    fn keep(&self, loaded: &Result<V>) {
        let mut state = self.end();
        let replaced = match loaded {
            Ok(value) => state.values.put(self.key.clone(), value.clone()),
            Err(_) => None,
        };
        drop(state);
        drop(replaced);
    }

    fn end(&self) -> MutexGuard<'_, CacheState<K, V>> {
        let mut state = self.cache.state.lock();
        let is_this = |flight: &Arc<InFlight<V>>| Arc::ptr_eq(flight, &self.flight);
        if state.flights.get(&self.key).is_some_and(is_this) {
            state.flights.remove(&self.key);
        }
        state
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for LoadGuard<'_, K, V> {
    fn drop(&mut self) {
        drop(self.end());
        let mut landed = self.flight.landed.lock();
        if landed.is_none() {
            *landed = Some(Err(Error::new(
                Kind::Unavailable,
                "",
                "loading ended without an answer",
            )));
        }
        self.flight.signal.notify_all();
    }
}

/// Notes that a value has left, whatever happened on its way out.
struct EvictionGuard<'a, K: Hash + Eq + Clone, V: Clone> {
    cache: &'a Cache<K, V>,
    key: K,
}

impl<K: Hash + Eq + Clone, V: Clone> Drop for EvictionGuard<'_, K, V> {
    fn drop(&mut self) {
        self.cache.state.lock().leaving.remove(&self.key);
        self.cache.left.notify_all();
    }
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// Builds an empty cache.
    pub fn new(budget: Arc<MemoryBudget>, stats: Arc<Stats>) -> Cache<K, V> {
        let state = CacheState {
            values: LruCache::unbounded(),
            flights: HashMap::new(),
            leaving: HashSet::new(),
        };
        Cache {
            budget,
            stats,
            state: Mutex::new(state),
            farewell: None,
            left: Condvar::new(),
        }
    }

    /// Has `farewell` called with each value that makes room for others, without any lock; nobody loads the
    /// value anew before it returns.
    pub fn when_leaving(
        mut self,
        farewell: impl Fn(&K, &V) + Send + Sync + 'static,
    ) -> Cache<K, V> {
        self.farewell = Some(Box::new(farewell));
        self
    }

    /// Returns the budget that values are counted in.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Returns a value that is there and moves it to the front.
    pub fn get(&self, key: &K) -> Option<V> {
        self.state.lock().values.get(key).cloned()
    }

    /// Whether a value is there or on its way, in or out.
    pub fn has(&self, key: &K) -> bool {
        let state = self.state.lock();
        state.values.contains(key) || state.flights.contains_key(key) || state.leaving.contains(key)
    }

    /// Forgets a value.
    pub fn forget(&self, key: &K) {
        let value = self.state.lock().values.pop(key);
        drop(value);
    }

    /// Returns the value under `key`, loading it if nobody did; those who ask meanwhile wait for the same
    /// value until `deadline`.
    pub fn load(
        &self,
        key: &K,
        deadline: Instant,
        loader: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        let mut state = self.settled(key, deadline);
        if let Some(value) = state.values.get(key) {
            return Ok(value.clone());
        }
        if let Some(flight) = state.flights.get(key).cloned() {
            drop(state);
            return flight.wait(deadline);
        }
        let flight = Arc::new(InFlight::new());
        state.flights.insert(key.clone(), flight.clone());
        drop(state);
        let landing = LoadGuard {
            cache: self,
            key: key.clone(),
            flight,
        };
        let loaded = loader();
        landing.keep(&loaded);
        landing.flight.land(loaded.clone());
        loaded
    }

    /// Waits until the value under `key` is not on its way out, at most until `deadline`.
    fn settled(&self, key: &K, deadline: Instant) -> MutexGuard<'_, CacheState<K, V>> {
        let mut state = self.state.lock();
        while state.leaving.contains(key) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.left.wait_for(&mut state, left);
        }
        state
    }

    /// Takes room in the budget: what was used least goes, and if that is not enough, waits for those who
    /// hold memory. `TooLarge` if it can never fit, `Unavailable` at the deadline.
    pub fn reserve(&self, bytes: u64, deadline: Instant) -> Result<Reservation> {
        if bytes > self.budget.limit {
            let limit = self.budget.limit;
            return Err(Error::too_large(
                "",
                format!("needs {bytes} bytes at once, --memory allows {limit}"),
            ));
        }
        loop {
            if let Some(permit) = self.budget.take(bytes) {
                return Ok(permit);
            }
            if self.evict() {
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::new(
                    Kind::Unavailable,
                    "",
                    "no memory became free within the time limit",
                ));
            }
            self.budget.wait(bytes, left.min(Duration::from_millis(50)));
        }
    }

    /// Drops the value that was used least; false if there is none.
    fn evict(&self) -> bool {
        let mut state = self.state.lock();
        let Some((key, value)) = state.values.pop_lru() else {
            return false;
        };
        self.stats.cache_evicted_chunks.add(1);
        if let Some(farewell) = &self.farewell {
            state.leaving.insert(key.clone());
            drop(state);
            let leaving = EvictionGuard { cache: self, key };
            farewell(&leaving.key, &value);
        } else {
            drop(state);
        }
        // Gives room back to the budget, without the lock.
        drop(value);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    type Held = Arc<(u32, Reservation)>;

    fn cache(limit: u64) -> Cache<u32, Held> {
        let stats = Arc::new(Stats::default());
        Cache::new(MemoryBudget::new(limit, stats.clone()), stats)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn load(cache: &Cache<u32, Held>, key: u32) -> Result<Held> {
        cache.load(&key, soon(), || {
            Ok(Arc::new((key, cache.reserve(10, soon())?)))
        })
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = cache(30);
        for key in [1, 2, 3, 1, 4] {
            assert_eq!(load(&cache, key).unwrap().0, key);
        }
        assert!(cache.get(&1).is_some() && cache.get(&2).is_none() && cache.get(&4).is_some());
        assert_eq!(cache.budget().held(), 30);
    }

    #[test]
    fn memory_is_counted_until_its_last_holder_is_gone() {
        let cache = cache(20);
        let kept = load(&cache, 1).unwrap();
        load(&cache, 2).unwrap();
        let waited = cache.reserve(20, Instant::now() + Duration::from_millis(20));
        assert_eq!(
            waited.err().map(|error| error.kind()),
            Some(Kind::Unavailable)
        );
        assert_eq!(cache.budget().held(), 10);
        drop(kept);
        assert!(cache.reserve(20, soon()).is_ok());
        assert_eq!(
            cache.reserve(21, soon()).err().map(|error| error.kind()),
            Some(Kind::TooLarge)
        );
    }

    #[test]
    fn nobody_loads_what_is_on_its_way_out() {
        let (said, heard) = std::sync::mpsc::channel();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeper = kept.clone();
        let cache = cache(20).when_leaving(move |key, _| {
            said.send(*key).unwrap();
            thread::sleep(Duration::from_millis(50));
            keeper.lock().push(*key);
        });
        load(&cache, 1).unwrap();
        load(&cache, 2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| load(&cache, 3).unwrap());
            assert_eq!(heard.recv(), Ok(1));
            assert!(cache.has(&1));
            let again = cache.load(&1, soon(), || {
                assert_eq!(*kept.lock(), [1], "loaded before it had left");
                Ok(Arc::new((1, cache.reserve(10, soon())?)))
            });
            assert_eq!(again.unwrap().0, 1);
        });
    }

    #[test]
    fn many_readers_make_one_flight() {
        let (cache, loads, start) = (cache(100), AtomicUsize::new(0), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value = cache.load(&7, soon(), || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(30));
                        Ok(Arc::new((7, cache.reserve(10, soon())?)))
                    });
                    assert_eq!(value.unwrap().0, 7);
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_loader_that_panics_leaves_no_flight_behind() {
        let cache = cache(100);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = cache.load(&1, soon(), || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(load(&cache, 1).unwrap().0, 1);
    }
}
