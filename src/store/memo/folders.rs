//! The folders that are remembered, bounded by the names that all of them hold.
//!
//! What was listed least recently goes first. A folder may take half of the room; one that grows beyond is
//! abandoned, so that a directory of millions costs no more memory than one of thousands. Names that somebody
//! still reads count until he has ended.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

use lru::LruCache;

use super::facts::Told;
use super::folder::Folder;
use super::folder::Place;
use super::lock;
use crate::store::EntryKind;
use crate::store::Key;

/// Folders by key.
pub(super) struct Folders {
    by_key: Mutex<LruCache<Key, Arc<Folder>>>,
    /// Names held now, and at most.
    total: Arc<AtomicUsize>,
    most: usize,
}

impl Folders {
    /// Builds room for so many names.
    pub(super) fn new(most: usize) -> Folders {
        Folders {
            by_key: Mutex::new(LruCache::unbounded()),
            total: Arc::default(),
            most,
        }
    }

    /// Returns the counter of names.
    pub(super) fn total(&self) -> &Arc<AtomicUsize> {
        &self.total
    }

    /// Returns a folder that is remembered.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Folder>> {
        let mut folders = lock(&self.by_key);
        let folder = folders.get(key)?.clone();
        folder.is_fresh().then_some(folder)
    }

    /// Remembers a folder.
    pub(super) fn put(&self, folder: Arc<Folder>) {
        // What falls out is dropped after the lock.
        let _replaced = lock(&self.by_key).push(folder.prefix.clone(), folder.clone());
        self.trim(&folder);
    }

    /// Forgets a folder.
    pub(super) fn forget(&self, key: &Key) {
        let _forgotten = lock(&self.by_key).pop(key);
    }

    /// Whether the folder that holds this one is remembered with it.
    pub(super) fn knows_folder(&self, key: &Key) -> bool {
        let above = key.parent().and_then(|parent| self.get(&parent));
        let place = above.and_then(|folder| folder.look(key.name()));
        matches!(place, Some(Place::Entry(entry)) if entry.kind == EntryKind::Directory)
    }

    /// Makes room after `grown` has got a name.
    pub(super) fn trim(&self, grown: &Arc<Folder>) {
        if self.total.load(Ordering::Relaxed) <= self.most {
            return;
        }
        if grown.len() > self.most / 2 {
            self.forget(&grown.prefix);
            grown.abandon();
        }
        while self.total.load(Ordering::Relaxed) > self.most {
            let Some((_, oldest)) = lock(&self.by_key).pop_lru() else {
                grown.abandon();
                return;
            };
            oldest.abandon();
        }
    }

    /// Returns what the folders say of a key: its entry, or that it, or what it would lie in, is missing.
    pub(super) fn look(&self, key: &Key) -> Option<Told<Place>> {
        let mut asked = key.clone();
        loop {
            let parent = asked.parent()?;
            let folder = self.get(&parent);
            let place = folder.and_then(|folder| {
                let what = folder.look(asked.name())?;
                let until = folder.until;
                Some(Told { what, until })
            });
            match place {
                Some(place) if asked == *key => return Some(place),
                Some(Told { what, until }) => {
                    // Nothing lies in what is not there, and nothing in an object.
                    let is_empty = match what {
                        Place::Missing => true,
                        Place::Entry(entry) => entry.kind == EntryKind::File,
                    };
                    let what = Place::Missing;
                    return is_empty.then_some(Told { what, until });
                }
                None => asked = parent,
            }
        }
    }
}
