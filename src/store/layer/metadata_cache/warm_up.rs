//! What is listed before the first client asks: the root, and a directory that is alone there.

use std::sync::Arc;
use std::thread;

use super::MetadataCache;
use crate::store::{EntryKind, Key, Store};

/// How many names of a directory are read ahead.
const WARM_UP_LIMIT: usize = 1000;

impl MetadataCache {
    /// Warms the cache: lists the root, so that it is known which documents exist, and if it has exactly one directory,
    /// that one meanwhile.
    pub fn warm_up(&self) {
        if !self.shared.remembers() {
            return;
        }
        if let Some([only]) = self.directories(&Key::root()).as_deref() {
            self.list_ahead(only.clone());
        }
    }

    /// Returns the directories in one that has few names. Errors are left to later listings.
    fn directories(&self, prefix: &Key) -> Option<Vec<Key>> {
        let mut listing = self.list(prefix).ok()?;
        let mut directories = Vec::new();
        for _ in 0..WARM_UP_LIMIT {
            match listing.next().ok()? {
                Some(name) if name.kind == EntryKind::Directory => {
                    directories.push(prefix.child(&name.name).ok()?);
                }
                Some(_) => {}
                None => return Some(directories),
            }
        }
        None
    }

    /// Lists a directory in another thread.
    fn list_ahead(&self, dir: Key) {
        let cache = MetadataCache {
            shared: Arc::clone(&self.shared),
        };
        let thread = thread::Builder::new().name("zarrfs-around".to_string());
        let started = thread.spawn(move || cache.directories(&dir));
        if let Err(error) = started {
            log::debug!("nothing is listed ahead: {error}");
        }
    }
}
