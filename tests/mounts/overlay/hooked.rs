//! A store with a hook at each call, for failures or writes before it.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::{
    ByteRange, Condition, ETag, Key, Listing, Meta, Name, Object, PutBody, Reader, Store,
    StoreInfo, Version,
};

/// Something to do before and after each call of a store; it may fail, wait or change the store.
pub(crate) trait Hook: Send + Sync {
    fn before(&self, context: &RequestContext, call: &str, key: &Key) -> Result<()>;
    fn after(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Hooked {
    inner: Arc<dyn Store>,
    hook: Arc<dyn Hook>,
    info: StoreInfo,
}

impl Hooked {
    pub(crate) fn new(inner: Arc<dyn Store>, hook: Arc<dyn Hook>) -> Hooked {
        let info = StoreInfo {
            folder: None,
            ..inner.info().clone()
        };
        Hooked { inner, hook, info }
    }

    pub(crate) fn with_concurrency(mut self, concurrency: usize) -> Hooked {
        self.info.concurrency = concurrency;
        self
    }

    fn call<T>(&self, call: &str, key: &Key, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.hook.before(&UNLIMITED, call, key)?;
        let done = work()?;
        self.hook.after()?;
        Ok(done)
    }
}

impl Layer for Hooked {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.call("get", key, || self.inner.get(context, key, limit))
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.call("get_range", key, || {
            self.inner.get_range(context, key, range)
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.call("head", key, || self.inner.head(context, key))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.call("version", key, || self.inner.version(context, key))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let inner = self.call("open", key, || self.inner.open(context, key, known))?;
        let (hook, key) = (self.hook.clone(), key.clone());
        Ok(Arc::new(Open { inner, hook, key }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let inner = self.call("list", prefix, || self.inner.list(context, prefix))?;
        let (hook, key) = (self.hook.clone(), prefix.clone());
        Ok(Box::new(Names { inner, hook, key }))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.call("etag", key, || self.inner.etag(context, key))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.call("put", key, || self.inner.put(context, key, body, condition))
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.call("erase", key, || self.inner.erase(context, key, condition))
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        self.call("erase_folder", prefix, || {
            self.inner.erase_folder(context, prefix)
        })
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

struct Open {
    inner: Arc<dyn Reader>,
    hook: Arc<dyn Hook>,
    key: Key,
}

impl Reader for Open {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.hook.before(context, "read_at", &self.key)?;
        self.inner.read_at(context, offset, len)
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        self.hook.before(context, "read_vectored", &self.key)?;
        self.inner.read_vectored(context, offset, parts)
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.hook.before(context, "meta", &self.key)?;
        self.inner.meta(context)
    }
}

struct Names {
    inner: Box<dyn Listing>,
    hook: Arc<dyn Hook>,
    key: Key,
}

impl Listing for Names {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        self.hook.before(context, "next", &self.key)?;
        self.inner.next(context)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.hook.before(context, "seek", &self.key)?;
        self.inner.seek(context, cursor)
    }
}

/// A hook that makes one call of a store fail, either before the call is made or after it.
#[derive(Default)]
pub(crate) struct Trap {
    left: AtomicI64,
    is_late: bool,
}

impl Trap {
    /// Returns a trap. If `is_late`, the store makes the call and its answer is lost; otherwise the call is not made.
    pub(crate) fn new(is_late: bool) -> Trap {
        let left = AtomicI64::new(i64::MAX);
        Trap { left, is_late }
    }

    /// Makes the call number `calls` from now on fail, counted from 1.
    pub(crate) fn set(&self, calls: i64) {
        self.left.store(calls, SeqCst);
    }

    pub(crate) fn has_sprung(&self) -> bool {
        self.left.load(SeqCst) <= 0
    }

    fn count(&self) -> Result<()> {
        match self.left.fetch_sub(1, SeqCst) {
            1 => Err(Error::new(Kind::Unavailable, "a call", "made to fail")),
            _ => Ok(()),
        }
    }
}

impl Hook for Trap {
    fn before(&self, _context: &RequestContext, _call: &str, _key: &Key) -> Result<()> {
        if self.is_late { Ok(()) } else { self.count() }
    }

    fn after(&self) -> Result<()> {
        if self.is_late { self.count() } else { Ok(()) }
    }
}
