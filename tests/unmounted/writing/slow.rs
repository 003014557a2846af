//! A store with a long TTL, as remote stores have, that counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zarr_format::error::Result;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{ByteRange, Key, Meta, Object, Reader, Store, StoreInfo, Version};

/// A remote store for tests. Writes through it are recorded in its change log, but writes by `memory.set` are not.
pub struct Slow {
    pub memory: MemoryStore,
    info: StoreInfo,
    /// The number of requests for versions, metadata or objects.
    pub asked: AtomicU64,
}

impl Default for Slow {
    fn default() -> Slow {
        let memory = MemoryStore::default();
        Slow {
            info: StoreInfo {
                freshness: Duration::from_secs(3600),
                ..memory.info().clone()
            },
            memory,
            asked: AtomicU64::new(0),
        }
    }
}

impl Slow {
    fn ask(&self) -> &MemoryStore {
        self.asked.fetch_add(1, Ordering::SeqCst);
        &self.memory
    }
}

impl Layer for Slow {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.ask().get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.ask().get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.ask().head(context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.ask().version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.ask().open(context, key, known)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
