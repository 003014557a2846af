//! Holds chosen store calls until the test releases them, for exact interleavings.
//!
//! A gate that the test does not open opens itself after a timeout, and the test fails: a part of it has waited for the
//! held call.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use zarr_format::error::Result;
use zarrfs_store::layer::Layer;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{
    ByteRange, Condition, ETag, Key, Listing, Meta, Object, PutBody, Reader, Store, StoreInfo,
    Version,
};

/// The time after which a test counts as hanging, much longer than it should take.
pub(crate) const HANGS: Duration = Duration::from_secs(20);

/// Decides by the name of a call and its key whether the call is held.
type Holds = dyn Fn(&str, &str) -> bool + Send + Sync;

#[derive(Default)]
struct GateState {
    holds: Option<Arc<Holds>>,
    /// The number of calls that were held since the gate was closed, including those that were released.
    arrived: usize,
    has_expired: bool,
}

/// Holds store calls; all clones of a gate hold and release together.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

impl Gate {
    /// From now on, holds the calls for which `holds` returns true.
    pub(crate) fn close(&self, holds: impl Fn(&str, &str) -> bool + Send + Sync + 'static) {
        let mut state = self.0.0.lock().unwrap();
        state.holds = Some(Arc::new(holds));
        state.arrived = 0;
    }

    pub(crate) fn wait_for(&self, calls: usize) {
        let state = self.0.0.lock().unwrap();
        let is_missing = |state: &mut GateState| state.arrived < calls;
        let (state, waited) = self
            .0
            .1
            .wait_timeout_while(state, HANGS, is_missing)
            .unwrap();
        let arrived = state.arrived;
        drop(state);
        assert!(
            !waited.timed_out(),
            "{arrived} of {calls} calls have come to the store"
        );
    }

    /// Waits until a store call is held, or `is_so` returns true.
    pub(crate) fn wait_until(&self, is_so: impl Fn() -> bool) {
        while self.0.0.lock().unwrap().arrived == 0 && !is_so() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Releases all held calls. Fails if a call timed out, because then the test itself has waited for the held call.
    pub(crate) fn open(&self) {
        let has_expired = self.let_go();
        assert!(
            !has_expired,
            "something waited for a call of the store that was held"
        );
    }

    fn let_go(&self) -> bool {
        let mut state = self.0.0.lock().unwrap();
        state.holds = None;
        self.0.1.notify_all();
        state.has_expired
    }

    fn pass(&self, call: &str, key: &Key) {
        let mut state = self.0.0.lock().unwrap();
        let key = String::from_utf8_lossy(key.as_bytes());
        let is_held = |holds: &Arc<Holds>| holds(call, &key);
        if !state.holds.as_ref().is_some_and(is_held) {
            return;
        }
        state.arrived += 1;
        self.0.1.notify_all();
        let is_closed = |state: &mut GateState| state.holds.is_some();
        let (mut state, waited) = self
            .0
            .1
            .wait_timeout_while(state, HANGS, is_closed)
            .unwrap();
        if waited.timed_out() {
            (state.has_expired, state.holds) = (true, None);
            self.0.1.notify_all();
        }
    }
}

/// Opens the gate when dropped, so that the threads of a failing test end.
pub(crate) struct Opening(pub(crate) Gate);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// A store whose calls pass a gate, which can hold them.
pub(crate) struct Gated {
    inner: Arc<dyn Store>,
    gate: Gate,
    info: StoreInfo,
}

impl Gated {
    pub(crate) fn new(inner: Arc<dyn Store>, gate: Gate) -> Gated {
        // Without a folder, the overlay cannot read the local files directly and bypass the gate.
        let info = StoreInfo {
            folder: None,
            ..inner.info().clone()
        };
        Gated { inner, gate, info }
    }
}

impl Layer for Gated {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.gate.pass("get", key);
        self.inner.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.gate.pass("get_range", key);
        self.inner.get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.gate.pass("head", key);
        self.inner.head(context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.gate.pass("version", key);
        self.inner.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.gate.pass("open", key);
        self.inner.open(context, key, known)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.gate.pass("list", prefix);
        self.inner.list(context, prefix)
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        self.gate.pass("etag", key);
        self.inner.etag(context, key)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.gate.pass("put", key);
        self.inner.put(context, key, body, condition)
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.gate.pass("erase", key);
        self.inner.erase(context, key, condition)
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        self.gate.pass("erase_folder", prefix);
        self.inner.erase_folder(context, prefix)
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
