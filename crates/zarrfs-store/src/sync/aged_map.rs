//! Values by key in the order of their last use, each with the minute of it.
//!
//! Minutes are counted once for the whole process, so that a use costs no look at a clock; `idle_memory` counts them.

use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};

use lru::LruCache;

static NOW: AtomicU32 = AtomicU32::new(0);

/// A minute since the process began, or the end of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(u32);

impl Minute {
    /// After every use.
    pub const NEVER: Minute = Minute(u32::MAX);

    /// Returns the present minute.
    pub fn now() -> Minute {
        Minute(NOW.load(Ordering::Relaxed))
    }

    /// Begins the next minute, and returns it.
    pub fn begin() -> Minute {
        Minute(NOW.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the minute so many before this one.
    #[must_use]
    pub fn before(self, minutes: u32) -> Minute {
        Minute(self.0.saturating_sub(minutes))
    }
}

/// Values by key, those that were used longest ago first.
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
    /// Returns how many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether there is a value under a key, which is no use of it.
    pub fn contains(&self, key: &K) -> bool {
        self.values.contains(key)
    }

    /// Returns a value, which counts as a use.
    pub fn get(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key).map(Aged::used)
    }

    /// Returns a value, which counts as none.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.values.peek(key).map(|aged| &aged.value)
    }

    /// Returns the value under a key, one that is made if there is none.
    pub fn get_or_insert(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        let aged = self.values.get_or_insert_mut(key, || Aged::new(make()));
        aged.used()
    }

    /// Puts a value; returns the one that it replaces.
    pub fn put(&mut self, key: K, value: V) -> Option<V> {
        let replaced = self.values.put(key, Aged::new(value));
        replaced.map(|aged| aged.value)
    }

    /// Takes a value out.
    pub fn pop(&mut self, key: &K) -> Option<V> {
        self.values.pop(key).map(|aged| aged.value)
    }

    /// Takes out the value that was used longest ago, if that was before a minute.
    pub fn pop_unused(&mut self, before: Minute) -> Option<(K, V)> {
        let (_, oldest) = self.values.peek_lru()?;
        if oldest.used >= before {
            return None;
        }
        let (key, aged) = self.values.pop_lru()?;
        if self.values.is_empty() && before != Minute::NEVER {
            // The table has room for as many as there ever were.
            self.values = LruCache::unbounded();
        }
        Some((key, aged.value))
    }

    /// Returns keys and values, those that were used last first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, aged)| (key, &aged.value))
    }
}

/// Held by a test that counts minutes.
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
