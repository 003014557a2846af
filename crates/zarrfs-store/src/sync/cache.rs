//! A cache of values by key, limited by a memory budget.
//!
//! Retired values, which are unlikely to be used again, are evicted first, in the order of their retirement, then the
//! least recently used ones. Concurrent loads of one key are joined (`single_flight`). A value contains the
//! `Reservation` of its bytes, so that they are charged to the budget until the value is dropped everywhere. No lock is
//! held during a load or an eviction listener.

use parking_lot::{Condvar, Mutex};
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::request_context::RequestContext;
use crate::sync::aged_map::{AgedMap, Minute};
use crate::sync::budget::{Evict, MemoryBudget, Priority, Reservation};
use crate::sync::single_flight::SingleFlight;
use zarr_format::error::{Error, Result};

/// Called for each value that is evicted to free memory. The cache is not locked meanwhile, and the key is not loaded
/// again before the listener returns.
pub type EvictionListener<K, V> = Box<dyn Fn(&K, &V) + Send + Sync>;

/// A cache of values by key, whose memory is limited by a budget.
pub struct Cache<K, V> {
    budget: Arc<MemoryBudget>,
    state: Mutex<CacheState<K, V>>,
    loads: SingleFlight<K, Option<V>>,
    on_evict: Option<EvictionListener<K, V>>,
    /// Signals that an eviction listener has returned.
    evicted: Condvar,
}

struct CacheState<K, V> {
    values: AgedMap<K, V>,
    /// Values that are unlikely to be used again, in the order in which they were retired.
    retired: AgedMap<K, V>,
    /// Keys whose evicted values an eviction listener is processing.
    evicting: HashSet<K>,
    /// Number of callers that wait for an eviction listener before they load a value.
    waiting: usize,
}

impl<K, V> Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Builds an empty cache, and registers it in `budget` so that reservations can evict its values.
    pub fn new(
        budget: Arc<MemoryBudget>,
        priority: Priority,
        on_evict: Option<EvictionListener<K, V>>,
    ) -> Arc<Cache<K, V>> {
        let cache = Arc::new(Cache {
            budget,
            state: Mutex::new(CacheState {
                values: AgedMap::default(),
                retired: AgedMap::default(),
                evicting: HashSet::new(),
                waiting: 0,
            }),
            loads: SingleFlight::default(),
            on_evict,
            evicted: Condvar::new(),
        });
        let weak: Weak<Cache<K, V>> = Arc::downgrade(&cache);
        cache.budget.register(priority, weak);
        cache
    }

    /// Returns the budget to which the values are charged.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Reserves bytes in the cache's budget, and waits if necessary, with the errors of `MemoryBudget::reserve`.
    pub fn reserve(&self, bytes: u64, deadline: Instant) -> Result<Reservation> {
        self.budget.reserve(bytes, deadline)
    }

    /// Returns the cached value of a key, and counts this as a use.
    pub fn get(&self, key: &K) -> Option<V> {
        self.state.lock().get(key)
    }

    /// Returns the cached values of several keys, or `None` if any of them is not cached. Counts as a use of the
    /// values.
    pub fn get_all(&self, keys: impl Iterator<Item = K>) -> Option<Vec<V>> {
        // Declared before the lock guard, so that values are dropped after the lock is released.
        let mut values = Vec::with_capacity(keys.size_hint().0);
        let mut state = self.state.lock();
        for key in keys {
            values.push(state.get(&key)?);
        }
        Some(values)
    }

    /// Marks values as unlikely to be used again, so that they are evicted first unless they are used again.
    pub fn retire(&self, keys: &[K]) {
        if keys.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for key in keys {
            if let Some(value) = state.values.pop(key) {
                // A key is never in both maps, so no value is replaced.
                state.retired.put(key.clone(), value);
            }
        }
    }

    /// Drops the value that was retired first, to reuse its memory.
    pub fn reclaim(&self) {
        let value = self.state.lock().retired.pop_unused(Minute::NEVER);
        drop(value);
    }

    /// Whether the key's value is cached, being loaded, or being processed by an eviction listener.
    pub fn has(&self, key: &K) -> bool {
        let state = self.state.lock();
        let is_known = state.contains(key) || state.evicting.contains(key);
        drop(state);
        is_known || self.loads.is_running(key)
    }

    /// Drops the value of a key from the cache.
    pub fn forget(&self, key: &K) {
        let value = self.state.lock().pop(key);
        drop(value);
    }

    /// Drops from the cache the values of all keys that `chosen` selects.
    pub fn forget_all(&self, chosen: impl Fn(&K) -> bool) {
        let mut state = self.state.lock();
        let values = state.values.iter().chain(state.retired.iter());
        let keys = values.map(|(key, _)| key).filter(|key| chosen(key));
        let keys: Vec<K> = keys.cloned().collect();
        let values: Vec<_> = keys.iter().map(|key| state.pop(key)).collect();
        drop(state);
        drop(values);
    }

    /// Returns the value of `key`, loaded by `loader` if it is not cached. Concurrent callers share one load. A caller
    /// that waits for another caller's load gets `Unavailable` at `deadline`.
    pub fn load(
        &self,
        context: &RequestContext,
        key: &K,
        deadline: Instant,
        loader: impl FnOnce() -> Result<V>,
    ) -> Result<V> {
        let loaded = self.load_optional(context, key, deadline, || loader().map(Some))?;
        // Only a caller that shared the load of `load_optional` gets here: no key is loaded in both ways.
        loaded.ok_or_else(|| {
            Error::corrupt("", "a fault in zarrfs: a value that must exist is missing")
        })
    }

    /// Returns the value of `key` like `load`. If the loader finds that there is no value, all callers that share the
    /// load get `None`, and nothing is cached.
    pub fn load_optional(
        &self,
        context: &RequestContext,
        key: &K,
        deadline: Instant,
        loader: impl FnOnce() -> Result<Option<V>>,
    ) -> Result<Option<V>> {
        if let Some(value) = self.get(key) {
            return Ok(Some(value));
        }
        let mut replaced = None;
        let load = || {
            self.wait_for_listener(key, deadline);
            // Another caller's load may have ended after the lookup above.
            self.get(key).map_or_else(loader, |value| Ok(Some(value)))
        };
        let loaded = self
            .loads
            .run_and_publish(context, key, deadline, load, |loaded| {
                if let Ok(Some(value)) = loaded {
                    let mut state = self.state.lock();
                    let retired = state.retired.pop(key);
                    replaced = state.values.put(key.clone(), value.clone()).or(retired);
                }
            });
        drop(replaced);
        loaded
    }

    fn wait_for_listener(&self, key: &K, deadline: Instant) {
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.evicting.contains(key) {
            if self.evicted.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.waiting -= 1;
    }
}

impl<K: Hash + Eq + Clone, V: Clone> CacheState<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.values.get(key) {
            return Some(value.clone());
        }
        let value = self.retired.pop(key)?;
        self.values.put(key.clone(), value.clone());
        Some(value)
    }

    fn contains(&self, key: &K) -> bool {
        self.values.contains(key) || self.retired.contains(key)
    }

    fn pop(&mut self, key: &K) -> Option<V> {
        let retired = || self.retired.pop(key);
        self.values.pop(key).or_else(retired)
    }
}

impl<K, V> Evict for Cache<K, V>
where
    K: Hash + Eq + Clone + Send + Sync,
    V: Clone + Send + Sync,
{
    fn evict_one(&self, before: Minute) -> bool {
        let mut state = self.state.lock();
        let oldest = state.retired.pop_unused(before);
        let Some((key, value)) = oldest.or_else(|| state.values.pop_unused(before)) else {
            return false;
        };
        if let Some(listener) = &self.on_evict {
            state.evicting.insert(key.clone());
            drop(state);
            let evicting = EvictionGuard { cache: self, key };
            listener(&evicting.key, &value);
        } else {
            drop(state);
        }
        // The value is dropped after the lock is released: the drop releases the value's reservation in the budget.
        drop(value);
        true
    }
}

/// Marks the eviction of a value as ended when it is dropped, even if the eviction listener panics.
struct EvictionGuard<'a, K: Hash + Eq, V> {
    cache: &'a Cache<K, V>,
    key: K,
}

impl<K: Hash + Eq, V> Drop for EvictionGuard<'_, K, V> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        state.evicting.remove(&self.key);
        if state.waiting > 0 {
            self.cache.evicted.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Barrier, OnceLock};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::request_context::UNLIMITED;
    use crate::stats::Stats;
    use zarr_format::error::Kind;

    type Held = Arc<(u32, Reservation)>;

    fn cache(limit: u64, on_evict: Option<EvictionListener<u32, Held>>) -> Arc<Cache<u32, Held>> {
        let budget = MemoryBudget::new(limit, Arc::new(Stats::default()));
        Cache::new(budget, Priority::Used, on_evict)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn load(cache: &Cache<u32, Held>, key: u32) -> Result<Held> {
        cache.load(&UNLIMITED, &key, soon(), || {
            Ok(Arc::new((key, cache.reserve(10, soon())?)))
        })
    }

    #[test]
    fn the_least_recently_used_value_is_evicted_first() {
        let cache = cache(30, None);
        for key in [1, 2, 3, 1, 4] {
            assert_eq!(load(&cache, key).unwrap().0, key);
        }
        assert!(cache.get(&1).is_some() && cache.get(&2).is_none() && cache.get(&4).is_some());
        assert_eq!(cache.budget().held(), 30);
    }

    #[test]
    fn retired_values_are_evicted_first_unless_used_again() {
        let cache = cache(40, None);
        for key in [1, 2, 3, 4] {
            load(&cache, key).unwrap();
        }
        cache.retire(&[4, 3]);
        assert!(cache.has(&3) && cache.has(&4));
        assert_eq!(cache.get(&4).unwrap().0, 4);
        load(&cache, 5).unwrap();
        assert!(!cache.has(&3) && cache.has(&4));
        load(&cache, 6).unwrap();
        assert!(!cache.has(&1) && cache.has(&4));
    }

    #[test]
    fn only_retired_values_are_reclaimed() {
        let cache = cache(40, None);
        for key in [1, 2, 3] {
            load(&cache, key).unwrap();
        }
        cache.reclaim();
        cache.retire(&[3, 2]);
        assert_eq!(cache.budget().held(), 30);
        cache.reclaim();
        assert!(!cache.has(&3) && cache.has(&2));
        cache.reclaim();
        cache.reclaim();
        assert!(cache.has(&1));
        assert_eq!(cache.budget().held(), 10);
    }

    /// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
    #[test]
    fn memory_is_counted_until_its_last_holder_is_gone() {
        let cache = cache(20, None);
        let first = load(&cache, 1).unwrap();
        load(&cache, 2).unwrap();
        let waited = cache.reserve(20, Instant::now() + Duration::from_millis(20));
        assert_eq!(
            waited.err().map(|error| error.kind()),
            Some(Kind::Unavailable)
        );
        assert_eq!(cache.budget().held(), 10);
        drop(first);
        assert!(cache.reserve(20, soon()).is_ok());
        assert_eq!(
            cache.reserve(21, soon()).err().map(|error| error.kind()),
            Some(Kind::TooLarge)
        );
    }

    #[test]
    fn a_key_is_not_loaded_while_it_is_evicted() {
        let (sender, evicting) = std::sync::mpsc::channel();
        let (evicted_keys, is_loaded) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let watched: Arc<OnceLock<Weak<Cache<u32, Held>>>> = Arc::default();
        let (recorder, loaded, cached) = (evicted_keys.clone(), is_loaded.clone(), watched.clone());
        let listener = move |key: &u32, _: &Held| {
            sender.send(*key).unwrap();
            let is_waited_for = || {
                let cache = cached.get().and_then(Weak::upgrade);
                cache.is_some_and(|cache| cache.state.lock().waiting > 0)
            };
            while !loaded.load(Ordering::SeqCst) && !is_waited_for() {
                thread::yield_now();
            }
            recorder.lock().push(*key);
        };
        let cache = cache(20, Some(Box::new(listener)));
        watched.get_or_init(|| Arc::downgrade(&cache));
        load(&cache, 1).unwrap();
        load(&cache, 2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| load(&cache, 3).unwrap());
            assert_eq!(evicting.recv(), Ok(1));
            assert!(cache.has(&1));
            let again = cache.load(&UNLIMITED, &1, soon(), || {
                is_loaded.store(true, Ordering::SeqCst);
                assert_eq!(
                    *evicted_keys.lock(),
                    [1],
                    "loaded before the listener had it"
                );
                Ok(Arc::new((1, cache.reserve(10, soon())?)))
            });
            assert_eq!(again.unwrap().0, 1);
        });
    }

    /// Invariant (reading): Concurrent readers of a chunk share one load.
    #[test]
    fn concurrent_readers_of_a_key_share_one_load() {
        let (cache, loads, start) = (cache(100, None), AtomicUsize::new(0), Barrier::new(8));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value = cache.load(&UNLIMITED, &7, soon(), || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        while cache.loads.callers(&7) < 8 {
                            thread::yield_now();
                        }
                        Ok(Arc::new((7, cache.reserve(10, soon())?)))
                    });
                    assert_eq!(value.unwrap().0, 7);
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_key_can_be_loaded_after_a_panic() {
        let cache = cache(100, None);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = cache.load(&UNLIMITED, &1, soon(), || panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(load(&cache, 1).unwrap().0, 1);
    }
}
