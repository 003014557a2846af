//! Wraps stores so that one call fails, or calls hang until a gate opens.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{
    ByteRange, Key, Listing, Meta, Name, Object, Reader, Store, StoreInfo, Version,
};

/// Something to do before each call of a store, a reader or a listing; it may fail or wait.
pub(crate) trait Before: Send + Sync {
    fn call(&self, key: &Key) -> Result<()>;
}

/// A store that calls a hook before each call.
#[derive(Clone)]
pub(crate) struct Faulty<B> {
    inner: Arc<dyn Store>,
    before: Arc<B>,
    info: StoreInfo,
}

impl<B> Faulty<B> {
    /// Wraps a store, with `freshness` as the TTL of its answers.
    pub(crate) fn new(inner: Arc<dyn Store>, before: Arc<B>, freshness: Duration) -> Faulty<B> {
        let info = StoreInfo {
            freshness,
            ..inner.info().clone()
        };
        Faulty {
            inner,
            before,
            info,
        }
    }
}

impl<B: Before + 'static> Layer for Faulty<B> {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.before.call(key)?;
        self.inner.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.before.call(key)?;
        self.inner.get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.before.call(key)?;
        self.inner.head(context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.before.call(key)?;
        self.inner.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.before.call(key)?;
        Ok(Arc::new(Open {
            inner: self.inner.open(context, key, known)?,
            before: self.before.clone(),
            key: key.clone(),
        }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.before.call(prefix)?;
        Ok(Box::new(Names {
            inner: self.inner.list(context, prefix)?,
            before: self.before.clone(),
            key: prefix.clone(),
        }))
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        self.before.call(key)?;
        self.inner.read_link(context, key)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

struct Open<B> {
    inner: Arc<dyn Reader>,
    before: Arc<B>,
    key: Key,
}

impl<B: Before> Reader for Open<B> {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.before.call(&self.key)?;
        self.inner.read_at(context, offset, len)
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        self.before.call(&self.key)?;
        self.inner.read_vectored(context, offset, parts)
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.before.call(&self.key)?;
        self.inner.meta(context)
    }
}

struct Names<B> {
    inner: Box<dyn Listing>,
    before: Arc<B>,
    key: Key,
}

impl<B: Before> Listing for Names<B> {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        self.before.call(&self.key)?;
        self.inner.next(context)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.before.call(&self.key)?;
        self.inner.seek(context, cursor)
    }
}

/// A hook that makes one call of a store fail.
#[derive(Default)]
pub(crate) struct Trap {
    left: AtomicI64,
}

impl Trap {
    /// Makes the call number `calls` from now on fail, counted from 1; 0 means no call.
    pub(crate) fn set(&self, calls: i64) {
        self.left.store(calls, SeqCst);
    }

    /// Whether the call that had to fail was made.
    pub(crate) fn has_sprung(&self) -> bool {
        self.left.load(SeqCst) <= 0
    }
}

impl Before for Trap {
    fn call(&self, key: &Key) -> Result<()> {
        match self.left.fetch_sub(1, SeqCst) {
            1 => Err(Error::new(Kind::Unavailable, key, "made to fail")),
            _ => Ok(()),
        }
    }
}

/// A hook that makes calls about some keys wait until the gate is opened.
pub(crate) struct Gate {
    holds: fn(&str) -> bool,
    waiting: AtomicUsize,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(holds: fn(&str) -> bool) -> Gate {
        Gate {
            holds,
            waiting: AtomicUsize::new(0),
            open: Mutex::new(false),
            opened: Condvar::new(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl Before for Gate {
    fn call(&self, key: &Key) -> Result<()> {
        if (self.holds)(&String::from_utf8_lossy(key.as_bytes())) {
            let open = self.open.lock().unwrap();
            self.waiting.fetch_add(1, SeqCst);
            drop(self.opened.wait_while(open, |open| !*open).unwrap());
        }
        Ok(())
    }
}
