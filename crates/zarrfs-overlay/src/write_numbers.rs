//! Numbers the writes of each key, to tell its contents apart.
//!
//! Two writes within one tick of the file system's clock leave size, inode and time unchanged.
//!
//! Only keys that were written since the overlay was opened, and that the upper folder still has, have a number.

use std::collections::BTreeMap;

use super::key_ranges::below;
use zarrfs_store::Key;

/// The number of the last write of each key. No number is used twice, so a key that was forgotten and written again
/// gets a new number.
#[derive(Default)]
pub(super) struct WriteNumbers {
    last: u64,
    by_key: BTreeMap<Key, u64>,
}

impl WriteNumbers {
    /// Returns numbers for a new layer, which continue after this layer's. Keys that move to the new layer keep their
    /// numbers.
    pub(super) fn following<'a>(&self, moved: impl Iterator<Item = &'a Key>) -> WriteNumbers {
        let numbered = moved.map(|key| (key.clone(), self.get(key)));
        WriteNumbers {
            last: self.last,
            by_key: numbered.filter(|(_, number)| *number > 0).collect(),
        }
    }

    /// Returns the number of a key; 0 if it has none.
    pub(super) fn get(&self, key: &Key) -> u64 {
        self.by_key.get(key).copied().unwrap_or(0)
    }

    /// Gives a key a new number.
    pub(super) fn advance(&mut self, key: &Key) {
        self.last += 1;
        self.by_key.insert(key.clone(), self.last);
    }

    /// Forgets the number of a key.
    pub(super) fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
    }

    /// Forgets the numbers of all keys at and below a prefix.
    pub(super) fn forget_below(&mut self, prefix: &Key) {
        let keys: Vec<Key> = below(&self.by_key, prefix)
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter().for_each(|key| self.forget(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_does_not_come_back() {
        let key = |text: &str| Key::new(text).unwrap();
        let mut numbers = WriteNumbers::default();
        numbers.advance(&key("a/b"));
        let first = numbers.get(&key("a/b"));
        numbers.forget_below(&key("a"));
        assert_eq!((numbers.get(&key("a/b")), numbers.by_key.len()), (0, 0));
        numbers.advance(&key("a/b"));
        assert!(![0, first].contains(&numbers.get(&key("a/b"))));
    }
}
