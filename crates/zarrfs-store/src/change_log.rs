//! Logs changes made through a store, to invalidate earlier answers for the changed keys.
//!
//! A change is logged after it was made, and before the call that made it returns. A reader takes the position of the
//! log *before* its request to the store. The store's answer is valid while no key or prefix that it depends on has
//! changed since that position. The log has a fixed size: keys share slots by their hash, so an unchanged key may seem
//! changed, but a changed key never seems unchanged. The log does not see changes by other programs; the TTLs of the
//! answers cover those (`StoreInfo::freshness`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use twox_hash::XxHash64;

use crate::Key;

/// Number of slots for keys. Keys that share a slot invalidate each other's answers, so there are many.
const KEY_SLOTS: u32 = 1 << 14;

/// Number of slots for prefixes below which any key changed, and also of the slots for prefixes below which everything
/// changed, as after a rename of a folder.
const PREFIX_SLOTS: u32 = 1 << 12;

/// A position in the change log: answers from before a change have a lower position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition(u64);

/// A position in the change log that one thread advances while others read it.
pub struct MovingPosition(AtomicU64);

impl MovingPosition {
    /// Starts at the given position of the change log.
    pub fn new(position: LogPosition) -> MovingPosition {
        MovingPosition(AtomicU64::new(position.0))
    }

    /// Returns the present position in the change log.
    pub fn get(&self) -> LogPosition {
        LogPosition(self.0.load(Ordering::Relaxed))
    }

    /// Sets the position in the change log.
    pub fn set(&self, position: LogPosition) {
        self.0.store(position.0, Ordering::Relaxed);
    }
}

/// The time and the change log's position before an answer's request: the TTL starts then, and later changes invalidate
/// the answer.
#[derive(Clone, Copy, Debug)]
pub struct QueryStamp {
    /// Time of the oldest request to the store that the answer is made from.
    pub request_time: Instant,
    /// Position of the change log before the request to the store.
    pub position: LogPosition,
}

/// The log of changes made through a store.
pub struct ChangeLog {
    /// Position of the last change whose slots are all updated.
    last: AtomicU64,
    /// Locked while a change is logged, so that a reader that sees a position also sees the slots of all changes up to
    /// that position.
    entering: Mutex<()>,
    /// For each slot, the position of the last change of any key or prefix with that slot.
    slots: Box<[AtomicU64]>,
}

impl Default for ChangeLog {
    fn default() -> ChangeLog {
        let slots = 0..KEY_SLOTS + 2 * PREFIX_SLOTS;
        ChangeLog {
            last: AtomicU64::new(0),
            entering: Mutex::default(),
            slots: slots.map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl ChangeLog {
    /// Returns the position of the last change in the log.
    pub fn position(&self) -> LogPosition {
        LogPosition(self.last.load(Ordering::SeqCst))
    }

    /// Logs that the value of a key changed or may have changed.
    pub fn record(&self, key: &Key) {
        self.mark(key, [key_slot(key.as_bytes())]);
    }

    /// Logs that a key and all keys below it changed, as in a rename of a folder.
    pub fn record_tree(&self, prefix: &Key) {
        let bytes = prefix.as_bytes();
        self.mark(prefix, [key_slot(bytes), tree_slot(bytes)]);
    }

    fn mark<const N: usize>(&self, key: &Key, slots: [u32; N]) {
        let _entering = self.entering.lock();
        let position = self.last.load(Ordering::SeqCst) + 1;
        for slot in slots.into_iter().chain(prefixes(key).map(below_slot)) {
            if let Some(last) = self.slots.get(slot as usize) {
                last.store(position, Ordering::SeqCst);
            }
        }
        self.last.store(position, Ordering::SeqCst);
    }

    /// Whether the value of a key may have changed after a position of the log.
    pub fn changed_since(&self, position: LogPosition, key: &Key) -> bool {
        self.position() > position && self.any_since(position, key_slots(key))
    }

    /// Whether a prefix or anything below it may have changed after a position of the log.
    pub fn below_changed_since(&self, position: LogPosition, prefix: &Key) -> bool {
        self.position() > position && self.any_since(position, below_slots(prefix))
    }

    /// Whether anything that an answer was computed from may have changed after a position of the log.
    pub fn any_changed_since(&self, position: LogPosition, answer: &Dependencies) -> bool {
        self.position() > position && self.any_since(position, answer.0.iter().copied())
    }

    /// Returns the log position of the last change of a key.
    pub fn last_change(&self, key: &Key) -> LogPosition {
        self.last_of(key_slots(key))
    }

    /// Returns the log position of the last change of a prefix or of anything below it.
    pub(crate) fn last_change_below(&self, prefix: &Key) -> LogPosition {
        self.last_of(below_slots(prefix))
    }

    fn any_since(&self, position: LogPosition, slots: impl Iterator<Item = u32>) -> bool {
        self.last_of(slots) > position
    }

    fn last_of(&self, slots: impl Iterator<Item = u32>) -> LogPosition {
        let last = slots.filter_map(|slot| self.slots.get(slot as usize));
        let last = last.map(|last| last.load(Ordering::SeqCst)).max();
        LogPosition(last.unwrap_or(0))
    }
}

/// The keys and prefixes that a cached answer was computed from, as slots of the change log.
#[derive(Clone, Debug, Default)]
pub struct Dependencies(Vec<u32>);

impl Dependencies {
    /// Makes the answer depend on the value of a key.
    pub fn add_key(&mut self, key: &Key) {
        self.extend(key_slots(key));
    }

    /// Makes the answer depend on a prefix and everything below it.
    pub fn add_below(&mut self, prefix: &Key) {
        self.extend(below_slots(prefix));
    }

    /// Returns the keys and prefixes that two answers depend on together.
    pub fn with(&self, other: &Dependencies) -> Dependencies {
        let mut both = self.clone();
        both.extend(other.0.iter().copied());
        both
    }

    fn extend(&mut self, slots: impl Iterator<Item = u32>) {
        for slot in slots {
            if !self.0.contains(&slot) {
                self.0.push(slot);
            }
        }
    }
}

/// Returns the slots of the change log that a change of the key's value would update.
fn key_slots(key: &Key) -> impl Iterator<Item = u32> {
    std::iter::once(key_slot(key.as_bytes())).chain(prefixes(key).map(tree_slot))
}

/// Returns the slots of the change log that a change at or below the prefix would update.
fn below_slots(prefix: &Key) -> impl Iterator<Item = u32> {
    std::iter::once(below_slot(prefix.as_bytes())).chain(prefixes(prefix).map(tree_slot))
}

/// Returns a key and all prefixes above it, the root last.
fn prefixes(key: &Key) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(key.as_bytes()), |bytes| {
        let end = bytes.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        (!bytes.is_empty()).then(|| bytes.get(..end).unwrap_or_default())
    })
}

fn key_slot(key: &[u8]) -> u32 {
    hash(key, 0) % KEY_SLOTS
}

fn below_slot(prefix: &[u8]) -> u32 {
    KEY_SLOTS + hash(prefix, 1) % PREFIX_SLOTS
}

fn tree_slot(prefix: &[u8]) -> u32 {
    KEY_SLOTS + PREFIX_SLOTS + hash(prefix, 2) % PREFIX_SLOTS
}

#[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
fn hash(bytes: &[u8], seed: u64) -> u32 {
    XxHash64::oneshot(seed, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn a_change_affects_its_key_and_the_prefixes_above() {
        let log = ChangeLog::default();
        let before = log.position();
        assert!(!log.changed_since(before, &key("a/b")));
        log.record(&key("a/b"));
        assert!(log.changed_since(before, &key("a/b")));
        for prefix in ["", "a", "a/b"] {
            assert!(log.below_changed_since(before, &key(prefix)), "{prefix}");
        }
        for other in ["", "a", "a/c", "b", "a/b/c", "ab"] {
            assert!(!log.changed_since(before, &key(other)), "{other}");
        }
        for other in ["b", "a/c", "a/b/c"] {
            assert!(!log.below_changed_since(before, &key(other)), "{other}");
        }
        assert!(!log.changed_since(log.position(), &key("a/b")));
    }

    #[test]
    fn a_tree_change_affects_all_keys_below() {
        let log = ChangeLog::default();
        let before = log.position();
        log.record_tree(&key("a/b"));
        for changed in ["a/b", "a/b/c", "a/b/c/d"] {
            assert!(log.changed_since(before, &key(changed)), "{changed}");
            assert!(log.below_changed_since(before, &key(changed)), "{changed}");
        }
        assert!(log.below_changed_since(before, &key("a")));
        assert!(!log.changed_since(before, &key("a")));
        assert!(!log.below_changed_since(before, &key("c")));
        log.record_tree(&Key::root());
        assert!(log.changed_since(before, &key("c")));
    }

    #[test]
    fn an_answer_is_stale_if_a_dependency_changed() {
        let log = ChangeLog::default();
        let mut answer = Dependencies::default();
        answer.add_key(&key("a/zarr.json"));
        answer.add_below(&key("b"));
        for (changed, counts) in [("a/c", false), ("a/zarr.json", true), ("b/c/d", true)] {
            let before = log.position();
            log.record(&key(changed));
            assert_eq!(log.any_changed_since(before, &answer), counts, "{changed}");
        }
    }
}
