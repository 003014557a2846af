//! From the end of a directory to those that come after it: chunks with a number a directory lie in many small ones.
//!
//! Where somebody goes is guessed by names alone, and what is fetched in vain is bounded by what is fetched ahead.
//! Who goes through a store to whatever is there has its directories listed here before he comes to them.

use std::ops::Range;
use std::sync::Arc;

use super::dir_scan::{DirNames, DirScan, NameOrder, Next};
use super::{MOST_NAMES, ReadaheadState};
use crate::store::{EntryKind, Key};

impl ReadaheadState {
    /// Goes on with the directories after one that comes to its end, as far as `beyond` names go.
    pub(super) fn go_on(
        self: &Arc<ReadaheadState>,
        directory: &Key,
        order: NameOrder,
        beyond: usize,
        size: Option<u64>,
    ) {
        let (mut last, mut beyond) = (directory.clone(), beyond);
        while beyond > 0 {
            let Some(next) = self.onward(&last, order) else {
                return;
            };
            let Some((names, places)) = self.enter(&next, beyond) else {
                return;
            };
            let on = Next {
                order,
                places,
                beyond: 0,
            };
            self.fetch_next(&next, &names, &on, size);
            beyond = beyond.saturating_sub(names.len().max(1));
            last = next;
        }
    }

    /// Returns the names of a directory that somebody will come to, and which of the first `wanted` are not on
    /// their way.
    fn enter(&self, directory: &Key, wanted: usize) -> Option<(Arc<DirNames>, Range<usize>)> {
        let names_of = |trail: &DirScan| trail.names.clone();
        let known = self.trails().peek(directory).and_then(names_of);
        let names = match known {
            Some(names) => names,
            None => self.names(directory).ok()?,
        };
        let mut trails = self.trails();
        if trails.peek(directory).and_then(names_of).is_none() {
            trails.put(directory.clone(), DirScan::following(names.clone()));
        }
        let places = trails.get_mut(directory)?.give(wanted.min(names.len()));
        Some((names, places))
    }

    /// Returns the directory that comes after another in an order; looks it up once.
    fn onward(&self, directory: &Key, order: NameOrder) -> Option<Key> {
        let known = self.trails().peek(directory)?.onward.clone();
        if let Some((known, next)) = known
            && known == order
        {
            return next;
        }
        let next = self.directory_after(directory, order);
        if let Some(trail) = self.trails().peek_mut(directory) {
            trail.onward = Some((order, next.clone()));
        }
        next
    }

    /// Returns the directory to which somebody comes who goes through all at a depth: the one beside it or, after
    /// the last of them, the first in the one beside that above. Only numbers go on there: chunks of one array.
    fn directory_after(&self, directory: &Key, order: NameOrder) -> Option<Key> {
        let (mut last, mut depth) = (directory.clone(), 0);
        let mut next = loop {
            if let Some(next) = self.sibling(&last, order) {
                break next;
            }
            if !last.name().iter().all(u8::is_ascii_digit) {
                return None;
            }
            last = last.parent()?;
            depth += 1;
        };
        for _ in 0..depth {
            let names = self.directories(&next)?;
            let (name, _) = names.at(order, 0)?;
            next = next.child(name).ok()?;
        }
        Some(next)
    }

    /// Returns the directory beside another that comes after it in an order.
    fn sibling(&self, directory: &Key, order: NameOrder) -> Option<Key> {
        let parent = directory.parent()?;
        let names = self.directories(&parent)?;
        let place = names.place(order, directory.name())?;
        let (name, _) = names.at(order, place + 1)?;
        parent.child(name).ok()
    }

    fn directories(&self, parent: &Key) -> Option<DirNames> {
        let mut listing = self.inner.list(parent).ok()?;
        let mut names = Vec::new();
        while let Some(name) = listing.next().ok()?
            && names.len() < MOST_NAMES
        {
            if name.kind == EntryKind::Directory {
                names.push((name.name, None));
            }
        }
        Some(DirNames::new(names))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::store::Store;
    use crate::store::backend::memory::MemoryStore;
    use crate::store::layer::readahead::{ReadaheadConfig, ReadaheadStore};

    fn ahead(names: impl IntoIterator<Item = String>) -> ReadaheadStore {
        let memory = MemoryStore::default();
        for name in names {
            memory.set(key(&name), vec![7; 10]);
        }
        let config = ReadaheadConfig {
            memory: 1 << 20,
            concurrency: 8,
            timeout: Duration::from_secs(5),
        };
        ReadaheadStore::new(Arc::new(memory), config)
    }

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    fn read(ahead: &ReadaheadStore, name: &str) {
        let reader = ahead.open(&key(name), None).unwrap();
        assert_eq!(reader.read_at(0, 10).unwrap(), [7; 10]);
    }

    /// Whether a file is fetched within a while.
    fn comes(ahead: &ReadaheadStore, name: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        let has = || ahead.shared.stock.get(&(key(name), None)).is_some();
        while !has() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        has()
    }

    #[test]
    fn small_directories_are_gone_through_one_after_the_other() {
        let places = (0..27).map(|place| (place / 9, place / 3 % 3, place % 3));
        let ahead = ahead(places.map(|(z, y, x)| format!("a/c/{z}/{y}/{x}")));
        for name in ["a/c/0/1/1", "a/c/0/1/2"] {
            read(&ahead, name);
        }
        // The eighth from there on, over the end of a directory and of the one above.
        for name in ["a/c/0/2/0", "a/c/0/2/2", "a/c/1/0/0", "a/c/1/1/1"] {
            assert!(comes(&ahead, name), "{name}");
        }
        let further = (key("a/c/1/1/2"), None);
        assert!(ahead.shared.stock.get(&further).is_none());
    }

    #[test]
    fn the_last_chunk_of_an_array_is_the_end() {
        let names = ["a/c/0", "a/c/1", "a/c/2", "a/d/0", "b/c/0"];
        let ahead = ahead(names.map(str::to_string));
        let shared = &ahead.shared;
        let after = |name: &str| shared.directory_after(&key(name), NameOrder::Plain);
        assert_eq!(after("a/c"), Some(key("a/d")));
        assert_eq!(after("a/d"), None);
        assert_eq!(after("b/c"), None);
    }
}
