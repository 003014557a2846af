//! A store with a hook at each call: to make a call fail, or to write to the store just before it.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;

use zarrfs::error::{Error, Kind, Result};
use zarrfs::store::layer::Layer;
use zarrfs::store::{
    ByteRange, Condition, ETag, Key, Listing, Meta, Name, Object, PutBody, Reader, Store,
    StoreInfo, Version,
};

/// What happens before a call, and after it was done.
pub(crate) trait Hook: Send + Sync {
    fn before(&self, call: &str, key: &Key) -> Result<()>;
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

    /// The same store, which takes so many requests at a time.
    pub(crate) fn with_concurrency(mut self, concurrency: usize) -> Hooked {
        self.info.concurrency = concurrency;
        self
    }

    fn call<T>(&self, call: &str, key: &Key, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.hook.before(call, key)?;
        let done = work()?;
        self.hook.after()?;
        Ok(done)
    }
}

impl Layer for Hooked {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.call("get", key, || self.inner.get(key, limit))
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.call("get_range", key, || self.inner.get_range(key, range))
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.call("head", key, || self.inner.head(key))
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.call("version", key, || self.inner.version(key))
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        let inner = self.call("open", key, || self.inner.open(key, known))?;
        let (hook, key) = (self.hook.clone(), key.clone());
        Ok(Arc::new(Open { inner, hook, key }))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let inner = self.call("list", prefix, || self.inner.list(prefix))?;
        let (hook, key) = (self.hook.clone(), prefix.clone());
        Ok(Box::new(Names { inner, hook, key }))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        self.call("etag", key, || self.inner.etag(key))
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        self.call("put", key, || self.inner.put(key, body, condition))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        self.call("erase", key, || self.inner.erase(key, condition))
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.call("erase_folder", prefix, || self.inner.erase_folder(prefix))
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
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.hook.before("read_at", &self.key)?;
        self.inner.read_at(offset, len)
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.hook.before("read_scattered", &self.key)?;
        self.inner.read_scattered(offset, parts)
    }

    fn meta(&self) -> Result<Meta> {
        self.hook.before("meta", &self.key)?;
        self.inner.meta()
    }
}

struct Names {
    inner: Box<dyn Listing>,
    hook: Arc<dyn Hook>,
    key: Key,
}

impl Listing for Names {
    fn next(&mut self) -> Result<Option<Name>> {
        self.hook.before("next", &self.key)?;
        self.inner.next()
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.hook.before("seek", &self.key)?;
        self.inner.seek(cursor)
    }
}

/// Fails one call: the n-th after it was set, before it is done or after.
#[derive(Default)]
pub(crate) struct Trap {
    left: AtomicI64,
    is_late: bool,
}

impl Trap {
    /// Returns a trap for calls that are not done, or for those that are done and whose answer is lost.
    pub(crate) fn new(is_late: bool) -> Trap {
        let left = AtomicI64::new(i64::MAX);
        Trap { left, is_late }
    }

    /// Has the n-th call from now on fail, counted from 1.
    pub(crate) fn set(&self, calls: i64) {
        self.left.store(calls, SeqCst);
    }

    /// Whether the call that was to fail has come.
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
    fn before(&self, _call: &str, _key: &Key) -> Result<()> {
        if self.is_late { Ok(()) } else { self.count() }
    }

    fn after(&self) -> Result<()> {
        if self.is_late { self.count() } else { Ok(()) }
    }
}
