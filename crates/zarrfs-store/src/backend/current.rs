//! Reads the content of a read-only store again after it has changed.
//!
//! Such a store is made from an object that describes all its keys: the directory of a zip archive, a reference file,
//! the tip of a branch. The first lookup after the TTL checks whether that object has changed, and concurrent lookups
//! wait for the check. Open readers continue to read the version that they were opened with.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{ArchiveGeneration, StoreInfo};
use zarr_format::error::{Kind, Result};

/// Reads the object that describes all keys of a read-only store, such as the directory of a zip archive.
pub(super) trait Source: Send + Sync {
    /// The store's keys, as read from one version of the object that describes them.
    type Content: Send + Sync;

    /// Returns the clock, TTL and other properties of the store that contains the object with the keys.
    fn info(&self) -> &StoreInfo;

    /// Reads the store's keys again if they have changed since `old` was read, else returns `old`.
    fn refresh(
        &self,
        context: &RequestContext,
        old: &Arc<Self::Content>,
    ) -> Result<Arc<Self::Content>>;
}

/// The current keys of a read-only store, checked again after each TTL.
pub(super) struct Current<S: Source> {
    source: S,
    replacements: Arc<ArchiveGeneration>,
    last: Mutex<Checked<S::Content>>,
    checks: SingleFlight<(), Checked<S::Content>>,
}

/// The keys of a read-only store, and the time of the last check that found them current.
pub(super) struct Checked<C> {
    pub(super) content: Arc<C>,
    /// When it was last checked whether the keys have changed.
    pub(super) checked_at: Instant,
    /// Whether a read after the last check has found that the keys have changed.
    is_outdated: bool,
}

impl<C> Checked<C> {
    pub(super) fn new(content: Arc<C>, checked_at: Instant) -> Checked<C> {
        Checked {
            content,
            checked_at,
            is_outdated: false,
        }
    }
}

impl<C> Clone for Checked<C> {
    fn clone(&self) -> Checked<C> {
        Checked {
            content: self.content.clone(),
            ..*self
        }
    }
}

impl<S: Source> Current<S> {
    /// Creates the record of a store's current keys, first `first`. `replacements` counts how often they are replaced.
    pub(super) fn new(
        source: S,
        first: Checked<S::Content>,
        replacements: Arc<ArchiveGeneration>,
    ) -> Current<S> {
        Current {
            source,
            replacements,
            last: Mutex::new(first),
            checks: SingleFlight::default(),
        }
    }

    /// Runs a query on the current keys. If the query fails with `Changed`, it runs again on the new keys.
    pub(super) fn query<T>(
        &self,
        context: &RequestContext,
        run: impl Fn(&Arc<S::Content>) -> Result<T>,
    ) -> Result<T> {
        match run(&self.get(context)?) {
            Err(error) if error.kind() == Kind::Changed => {
                self.last.lock().is_outdated = true;
                run(&self.get(context)?)
            }
            result => result,
        }
    }

    /// Returns the current keys of the store, after a check if the TTL has passed.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<S::Content>> {
        let info = self.source.info();
        let (begun, deadline) = (info.clock.now(), Instant::now() + JOIN_TIMEOUT);
        let checked = match self.fresh() {
            Some(fresh) => fresh,
            None => {
                // The result of another caller's check is used if the check is within the TTL or began after this call.
                let counts = |checked: &Checked<S::Content>| {
                    checked.checked_at >= begun || info.is_fresh(checked.checked_at)
                };
                let work = || self.fresh().map_or_else(|| self.check(context), Ok);
                let checks = &self.checks;
                checks.run_accepting(context, &(), deadline, counts, work)?
            }
        };
        context.record_age(checked.checked_at);
        Ok(checked.content)
    }

    /// Returns the result of the last check, or `None` once the TTL has passed.
    fn fresh(&self) -> Option<Checked<S::Content>> {
        let last = self.last.lock().clone();
        let is_fresh = !last.is_outdated && self.source.info().is_fresh(last.checked_at);
        is_fresh.then_some(last)
    }

    /// Checks whether the keys have changed, and reads them again if so.
    fn check(&self, context: &RequestContext) -> Result<Checked<S::Content>> {
        let old = self.last.lock().content.clone();
        let info = self.source.info();
        let (new, stamp) = info.ask(context, |context| self.source.refresh(context, &old));
        let new = new?;
        // The replacement is counted before any caller can see the new keys, so that no cache mixes old and new keys.
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.advance();
        }
        let checked = Checked::new(new, stamp.request_time);
        *self.last.lock() = checked.clone();
        Ok(checked)
    }
}
