//! Which directory is read after another: chunks with a number a directory lie in many small ones.
//!
//! The guess goes by names alone. A wrong one costs no more than what is fetched ahead.

use super::dir_scan::{DirNames, NameOrder};
use crate::store::{EntryKind, Key, Store};

/// Returns the directory that a program comes to which reads all directories of one depth: the one beside `directory`
/// or, after the last of them, the first in the one beside that above. Only names that are numbers go on there: they
/// are chunks of one array.
pub(super) fn directory_after(store: &dyn Store, directory: &Key, order: NameOrder) -> Option<Key> {
    let (mut last, mut depth) = (directory.clone(), 0);
    let mut next = loop {
        if let Some(next) = sibling(store, &last, order) {
            break next;
        }
        if !last.name().iter().all(u8::is_ascii_digit) {
            return None;
        }
        last = last.parent()?;
        depth += 1;
    };
    for _ in 0..depth {
        let names = DirNames::list(store, &next, EntryKind::Directory).ok()?;
        let (name, _) = names.at(order, 0)?;
        next = next.child(name).ok()?;
    }
    Some(next)
}

/// Returns the directory beside another that comes after it in an order.
fn sibling(store: &dyn Store, directory: &Key, order: NameOrder) -> Option<Key> {
    let parent = directory.parent()?;
    let names = DirNames::list(store, &parent, EntryKind::Directory).ok()?;
    let place = names.place(order, directory.name())?;
    let (name, _) = names.at(order, place + 1)?;
    parent.child(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::backend::memory::MemoryStore;

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    #[test]
    fn the_last_chunk_of_an_array_is_the_end() {
        let memory = MemoryStore::default();
        for name in ["a/c/0", "a/c/1", "a/c/2", "a/d/0", "b/c/0"] {
            memory.set(key(name), vec![7; 10]);
        }
        let after = |name: &str| directory_after(&memory, &key(name), NameOrder::Lexical);
        assert_eq!(after("a/c"), Some(key("a/d")));
        assert_eq!(after("a/d"), None);
        assert_eq!(after("b/c"), None);
    }
}
