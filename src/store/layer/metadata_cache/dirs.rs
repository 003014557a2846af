//! The folders that are remembered, bounded by the names that all of them hold.
//!
//! What was listed least recently goes first. A folder may take half of the room; one that grows beyond is
//! abandoned, so that a directory of millions costs no more memory than one of thousands. Names that somebody
//! still reads count until he has ended.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lru::LruCache;

use super::dir::{CachedDir, Slot};
use super::keys::Expiring;
use crate::store::{EntryKind, Key};

/// Folders by key.
pub(super) struct DirCache {
    by_key: Mutex<LruCache<Key, Arc<CachedDir>>>,
    /// Names held now, and at most.
    total: Arc<AtomicUsize>,
    most: usize,
}

impl DirCache {
    /// Builds room for so many names.
    pub(super) fn new(most: usize) -> DirCache {
        DirCache {
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
    pub(super) fn get(&self, key: &Key) -> Option<Arc<CachedDir>> {
        let mut folders = self.by_key.lock();
        let folder = folders.get(key)?.clone();
        folder.is_fresh().then_some(folder)
    }

    /// Remembers a folder.
    pub(super) fn put(&self, folder: Arc<CachedDir>) {
        // What falls out is dropped after the lock.
        let _replaced = self
            .by_key
            .lock()
            .push(folder.prefix.clone(), folder.clone());
        self.trim(&folder);
    }

    /// Forgets a folder.
    pub(super) fn forget(&self, key: &Key) {
        let _forgotten = self.by_key.lock().pop(key);
    }

    /// Whether the folder that holds this one is remembered with it.
    pub(super) fn knows_folder(&self, key: &Key) -> bool {
        let above = key.parent().and_then(|parent| self.get(&parent));
        let place = above.and_then(|folder| folder.look(key.name()));
        matches!(place, Some(Slot::Entry(entry)) if entry.kind == EntryKind::Directory)
    }

    /// Makes room after `grown` has got a name.
    pub(super) fn trim(&self, grown: &Arc<CachedDir>) {
        if self.total.load(Ordering::Relaxed) <= self.most {
            return;
        }
        if grown.len() > self.most / 2 {
            self.forget(&grown.prefix);
            grown.abandon();
        }
        while self.total.load(Ordering::Relaxed) > self.most {
            let Some((_, oldest)) = self.by_key.lock().pop_lru() else {
                grown.abandon();
                return;
            };
            oldest.abandon();
        }
    }

    /// Returns what the folders say of a key: its entry, or that it, or what it would lie in, is missing.
    pub(super) fn look(&self, key: &Key) -> Option<Expiring<Slot>> {
        let mut asked = key.clone();
        loop {
            let parent = asked.parent()?;
            let folder = self.get(&parent);
            let place = folder.and_then(|folder| {
                let what = folder.look(asked.name())?;
                let until = folder.until;
                Some(Expiring { what, until })
            });
            match place {
                Some(place) if asked == *key => return Some(place),
                Some(Expiring { what, until }) => {
                    // Nothing lies in what is not there, and nothing in an object.
                    let is_empty = match what {
                        Slot::Missing => true,
                        Slot::Entry(entry) => entry.kind == EntryKind::File,
                    };
                    let what = Slot::Missing;
                    return is_empty.then_some(Expiring { what, until });
                }
                None => asked = parent,
            }
        }
    }
}
