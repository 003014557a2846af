//! A store whose answers stay true for long, as those of stores on a network do, and which counts its changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zarrfs::error::Result;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::{
    ByteRange, Condition, ETag, Key, Listing, Meta, Object, PutBody, Reader, Store,
};

/// Changes made through it are told by its epoch; those made in `memory` itself are not.
#[derive(Default)]
pub struct Slow {
    pub memory: MemoryStore,
    pub changes: AtomicU64,
    /// How often it was asked for a version or an object.
    pub asked: AtomicU64,
}

impl Slow {
    fn ask(&self) -> &MemoryStore {
        self.asked.fetch_add(1, Ordering::SeqCst);
        &self.memory
    }
}

impl Store for Slow {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.ask().get(key, limit)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.ask().get_range(key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.ask().head(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        self.ask().open(key)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.memory.list(prefix)
    }

    fn freshness(&self) -> Duration {
        Duration::from_secs(3600)
    }

    fn epoch(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    fn stamp(&self, key: &Key) -> Result<Option<ETag>> {
        self.memory.stamp(key)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let stamp = self.memory.put(key, body, condition);
        self.changes.fetch_add(1, Ordering::SeqCst);
        stamp
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let erased = Store::erase(&self.memory, key, condition);
        self.changes.fetch_add(1, Ordering::SeqCst);
        erased
    }
}
