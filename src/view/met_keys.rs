//! The keys that were put into a store that cannot list them: metadata need not name them.
//!
//! They are known for as long as the store is open and as memory has room, and are listed like what metadata name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::{EntryKind, Key};
use crate::sync::budget::{MemoryBudget, Reservation};

/// What a key takes beside its bytes, in bytes.
const KEY_OVERHEAD: u64 = 128;

/// The part of a budget that keys may take: one in so many bytes.
const KEYS_SHARE: u64 = 16;

/// Keys in their order.
pub(super) struct MetKeys {
    keys: Mutex<BTreeMap<Box<[u8]>, Reservation>>,
    memory: Arc<MemoryBudget>,
}

impl MetKeys {
    /// Knows no key yet; those to come count in a budget.
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> MetKeys {
        MetKeys {
            keys: Mutex::default(),
            memory: memory.part(memory.limit() / KEYS_SHARE),
        }
    }

    /// Knows a key from now on, if there is room for it.
    pub(super) fn meet(&self, key: &Key) {
        let bytes = key.as_bytes();
        if self.keys.lock().contains_key(bytes) {
            return;
        }
        // Room may have to be made by others, which is not waited for under the lock.
        let room = self.memory.try_reserve(bytes.len() as u64 + KEY_OVERHEAD);
        if let Some(room) = room {
            self.keys.lock().insert(bytes.into(), room);
        }
    }

    /// Forgets a key that was removed.
    pub(super) fn forget(&self, key: &Key) {
        let forgotten = self.keys.lock().remove(key.as_bytes());
        drop(forgotten);
    }

    /// Whether a key is known below a folder.
    pub(super) fn has_below(&self, folder: &Key) -> bool {
        !self.names_up_to(folder, 1).is_empty()
    }

    /// Returns the names directly in a folder, in their order.
    pub(super) fn names(&self, folder: &Key) -> Vec<(Vec<u8>, EntryKind)> {
        self.names_up_to(folder, usize::MAX)
    }

    /// Returns the first names in a folder. From each the search jumps to the next, so that the time does not depend on
    /// how much lies below them.
    fn names_up_to(&self, folder: &Key, most: usize) -> Vec<(Vec<u8>, EntryKind)> {
        let keys = self.keys.lock();
        let stem = if folder.is_root() {
            Vec::new()
        } else {
            [folder.as_bytes(), b"/"].concat()
        };
        let mut found: BTreeMap<Vec<u8>, EntryKind> = BTreeMap::new();
        let mut start = stem.clone();
        while found.len() < most {
            let from = (Bound::Included(start.as_slice()), Bound::Unbounded);
            let next = keys.range::<[u8], _>(from).next();
            let Some(rest) = next.and_then(|(key, _)| key.strip_prefix(stem.as_slice())) else {
                break;
            };
            let length = rest.iter().position(|&byte| byte == b'/');
            let name = rest.get(..length.unwrap_or(rest.len())).unwrap_or(rest);
            let (kind, behind) = match length {
                Some(_) => (EntryKind::Directory, b"0"),
                None => (EntryKind::File, b"\0"),
            };
            start = [stem.as_slice(), name, behind].concat();
            found.insert(name.to_vec(), kind);
        }
        found.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn keys(limit: u64) -> MetKeys {
        MetKeys::new(&MemoryBudget::new(limit, Arc::default()))
    }

    #[test]
    fn names_are_those_of_one_folder() {
        let met = keys(1 << 20);
        for name in ["a/b/c", "a/b/d", "a/b-", "a/z", "ab", "a/b0"] {
            met.meet(&key(name));
        }
        let listed = |folder: &str| {
            let names = met.names(&key(folder)).into_iter();
            let shown = names.map(|(name, kind)| (String::from_utf8(name).unwrap(), kind));
            shown.collect::<Vec<_>>()
        };
        let (file, folder) = (EntryKind::File, EntryKind::Directory);
        let expected = [("b", folder), ("b-", file), ("b0", file), ("z", file)];
        assert_eq!(
            listed("a"),
            expected.map(|(name, kind)| (name.into(), kind))
        );
        assert_eq!(listed(""), [("a".into(), folder), ("ab".into(), file)]);
        assert!(met.has_below(&key("a/b")) && !met.has_below(&key("a/z")));
        met.forget(&key("a/b/c"));
        assert!(met.has_below(&key("a/b")));
        met.forget(&key("a/b/d"));
        assert!(!met.has_below(&key("a/b")));
    }

    #[test]
    fn b02_keys_stay_within_their_part_of_the_memory() {
        let met = keys(KEYS_SHARE * 10 * KEY_OVERHEAD);
        (0..100).for_each(|number| met.meet(&key(&number.to_string())));
        assert_eq!(met.names(&Key::root()).len(), 9);
        met.forget(&key("0"));
        met.meet(&key("x"));
        assert!(met.has_below(&Key::root()) && met.names(&Key::root()).len() == 9);
    }
}
