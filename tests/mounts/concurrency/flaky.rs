//! Makes a store in this process slow, and makes some of its calls fail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::layer::Layer;
use zarrfs_store::{Condition, ETag, Key, Listing, Meta, Object, PutBody, Reader, Store, Version};

use crate::concurrency::plan::Random;
use zarrfs_store::request_context::RequestContext;

/// The percentage of calls that fail: half of them are not made, the others are made but return an error.
const LOST_PERCENT: usize = 5;

pub(crate) struct Flaky {
    inner: Arc<dyn Store>,
    latency: Duration,
    random: Mutex<Random>,
    is_calm: Arc<AtomicBool>,
}

impl Flaky {
    /// Wraps a store; once `is_calm` is set, no call fails any more.
    pub(crate) fn new(
        inner: Arc<dyn Store>,
        latency: Duration,
        seed: u64,
        is_calm: Arc<AtomicBool>,
    ) -> Flaky {
        Flaky {
            is_calm,
            inner,
            latency,
            random: Mutex::new(Random::new(seed)),
        }
    }

    fn call<T>(&self, key: &Key, work: impl FnOnce() -> Result<T>) -> Result<T> {
        thread::sleep(self.latency);
        let (is_lost, is_late) = {
            let mut random = self.random.lock().unwrap();
            (random.percent(LOST_PERCENT), random.percent(50))
        };
        let is_lost = is_lost && !self.is_calm.load(Ordering::Relaxed);
        let lost = || Error::new(Kind::Unavailable, key, "nothing was answered");
        if is_lost && !is_late {
            return Err(lost());
        }
        let done = work();
        if is_lost { Err(lost()) } else { done }
    }
}

impl Layer for Flaky {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.call(key, || self.inner.get(context, key, limit))
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.call(key, || self.inner.head(context, key))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.call(key, || self.inner.version(context, key))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.call(key, || self.inner.open(context, key, known))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.call(prefix, || self.inner.list(context, prefix))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.call(key, || self.inner.etag(context, key))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.call(key, || self.inner.put(context, key, body, condition))
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.call(key, || self.inner.erase(context, key, condition))
    }
}
