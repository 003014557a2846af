//! An LRU map that records the minute of each last use.
//!
//! One counter of minutes serves the whole process, so that a use does not read a clock; `idle_memory` advances it.

use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};

use lru::LruCache;

static NOW: AtomicU32 = AtomicU32::new(0);

/// A minute, counted from the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(u32);

impl Minute {
    /// A minute that is later than every use of a value.
    pub const NEVER: Minute = Minute(u32::MAX);

    /// Returns the present minute, counted from the start of the process.
    pub fn now() -> Minute {
        Minute(NOW.load(Ordering::Relaxed))
    }

    /// Advances the counter of minutes, and returns the new minute.
    pub fn begin() -> Minute {
        Minute(NOW.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the minute that was `minutes` minutes earlier.
    #[must_use]
    pub fn before(self, minutes: u32) -> Minute {
        Minute(self.0.saturating_sub(minutes))
    }
}

/// A map of values in the order of their last use, with the minute of that use.
pub struct AgedMap<K, V> {
    values: LruCache<K, Aged<V>>,
}

struct Aged<V> {
    value: V,
    used: Minute,
}

impl<V> Aged<V> {
    fn new(value: V) -> Aged<V> {
        Aged {
            value,
            used: Minute::now(),
        }
    }

    fn used(&mut self) -> &mut V {
        self.used = Minute::now();
        &mut self.value
    }
}

impl<K: Hash + Eq, V> Default for AgedMap<K, V> {
    fn default() -> AgedMap<K, V> {
        AgedMap {
            values: LruCache::unbounded(),
        }
    }
}

impl<K: Hash + Eq, V> AgedMap<K, V> {
    /// Returns the number of values in the map.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether the map has no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether the map has a value for the key. Does not count as a use of the value.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains(key)
    }

    /// Returns the value of a key, and counts this as a use.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key).map(Aged::used)
    }

    /// Returns the value of a key without counting this as a use.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.values.peek(key).map(|aged| &aged.value)
    }

    /// Returns the value of a key, or inserts a new value. Counts as a use of the value.
    pub fn get_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let aged = self.values.get_or_insert_mut(key, || Aged::new(make()));
        aged.used()
    }

    /// Inserts a value, and returns the value that it replaces.
    pub fn put(&mut self, key: K, value: V) -> Option<V> {
        let replaced = self.values.put(key, Aged::new(value));
        replaced.map(|aged| aged.value)
    }

    /// Removes the value of a key.
    pub fn pop(&mut self, key: &K) -> Option<V> {
        self.values.pop(key).map(|aged| aged.value)
    }

    /// Removes the least recently used value of the map if its last use was before the given minute.
    pub fn pop_unused(&mut self, before: Minute) -> Option<(K, V)> {
        let (_, oldest) = self.values.peek_lru()?;
        if oldest.used >= before {
            return None;
        }
        let (key, aged) = self.values.pop_lru()?;
        if self.values.is_empty() && before != Minute::NEVER {
            // The hash table never shrinks by itself, so an empty map frees it.
            self.values = LruCache::unbounded();
        }
        Some((key, aged.value))
    }

    /// Returns all keys and values, the most recently used first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, aged)| (key, &aged.value))
    }
}

/// Locked by tests that advance the counter of minutes, which the whole process shares.
#[cfg(test)]
pub(super) static ONE_CLOCK: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_as_old_as_its_last_use() {
        let _clock = ONE_CLOCK.lock();
        let mut map = AgedMap::default();
        for number in 0..3 {
            map.put(number, number);
        }
        let begun = Minute::begin();
        assert_eq!(map.get(&0), Some(&mut 0));
        assert_eq!(map.peek(&1), Some(&1));
        map.get_or_insert(2, || 7);
        map.get_or_insert(3, || 3);
        assert_eq!(map.pop_unused(begun.before(5)), None);
        assert_eq!(map.pop_unused(begun), Some((1, 1)));
        assert_eq!(map.pop_unused(begun), None);
        let left: Vec<_> = std::iter::from_fn(|| map.pop_unused(Minute::NEVER)).collect();
        assert_eq!(left, [(0, 0), (2, 2), (3, 3)]);
        assert!(map.is_empty() && map.pop_unused(Minute::NEVER).is_none());
    }
}
