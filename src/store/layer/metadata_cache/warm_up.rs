//! What a store is asked before anybody asks: its top, and a directory that is alone there.

use std::sync::Arc;
use std::thread;

use super::MetadataCache;
use crate::store::{EntryKind, Key, Store};

/// How many names of a directory are looked at before anybody asks.
const AROUND: usize = 1000;

impl MetadataCache {
    /// Lists the top of the store once, so far as a page goes: it tells which documents are there, and what is not.
    /// A directory that is alone there is listed meanwhile, since all who look further come by it.
    pub fn look_around(&self) {
        if self.shared.ttl.is_zero() {
            return;
        }
        if let Some([only]) = self.folders(&Key::root()).as_deref() {
            self.look_into(only.clone());
        }
    }

    /// Returns the directories in one that has few names; what is wrong is said to those who ask for it.
    fn folders(&self, prefix: &Key) -> Option<Vec<Key>> {
        let mut listing = self.list(prefix).ok()?;
        let mut folders = Vec::new();
        for _ in 0..AROUND {
            match listing.next().ok()? {
                Some(name) if name.kind == EntryKind::Directory => {
                    folders.push(prefix.child(&name.name).ok()?);
                }
                Some(_) => {}
                None => return Some(folders),
            }
        }
        None
    }

    /// Lists a directory while others go on.
    fn look_into(&self, folder: Key) {
        let memo = MetadataCache {
            shared: Arc::clone(&self.shared),
        };
        let thread = thread::Builder::new().name("zarrfs-around".to_string());
        let started = thread.spawn(move || memo.folders(&folder));
        if let Err(error) = started {
            log::debug!("nothing is listed ahead: {error}");
        }
    }
}
