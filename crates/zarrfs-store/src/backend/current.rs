//! Keeps the content of a read-only store current: reads it again after a change.
//!
//! Such a store is made from an object that describes all its keys: the directory of a zip archive, a reference file,
//! the tip of a branch. The first lookup after the TTL asks the store below whether that object has changed, and
//! concurrent lookups wait for the result. The age of an answer counts from that check. Open readers keep the version
//! that they were opened with.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

use crate::request_context::RequestContext;
use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{ArchiveGeneration, StoreInfo};
use zarr_format::error::{Kind, Result};

/// Where the content of a store comes from.
pub(super) trait Source: Send + Sync {
    /// One version of the content.
    type Content: Send + Sync;

    /// Returns the properties of the store below: its clock and TTL.
    fn info(&self) -> &StoreInfo;

    /// Returns `old` if the content has not changed, or else the new content.
    fn refresh(
        &self,
        context: &RequestContext,
        old: &Arc<Self::Content>,
    ) -> Result<Arc<Self::Content>>;
}

/// The present content of a store.
pub(super) struct Current<S: Source> {
    source: S,
    /// Counts how often the content was replaced.
    replacements: Arc<ArchiveGeneration>,
    last: Mutex<Checked<S::Content>>,
    checks: SingleFlight<(), Checked<S::Content>>,
}

/// The content of a store, and the time of the last check that found it current.
pub(super) struct Checked<C> {
    pub(super) content: Arc<C>,
    /// When the store below was last asked whether the content has changed.
    pub(super) checked_at: Instant,
    /// Whether a read has found, after that check, that the content has changed.
    is_outdated: bool,
}

impl<C> Checked<C> {
    /// Describes a content that was read at `checked_at`.
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
    /// Keeps the content of a source current, beginning with `first`. `replacements` counts its later replacements.
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

    /// Runs a query on the current content. If the query fails with `Changed`, it runs again on the new content.
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

    /// Returns the current content.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<S::Content>> {
        let info = self.source.info();
        let (begun, deadline) = (info.clock.now(), Instant::now() + JOIN_TIMEOUT);
        let checked = match self.fresh() {
            Some(fresh) => fresh,
            None => {
                // The result of another caller's check is used if it is within the TTL or began after this call.
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

    /// Returns the result of the last check, if that is within the TTL.
    fn fresh(&self) -> Option<Checked<S::Content>> {
        let last = self.last.lock().clone();
        let is_fresh = !last.is_outdated && self.source.info().is_fresh(last.checked_at);
        is_fresh.then_some(last)
    }

    /// Checks for a change.
    fn check(&self, context: &RequestContext) -> Result<Checked<S::Content>> {
        let old = self.last.lock().content.clone();
        let info = self.source.info();
        let (new, stamp) = info.ask(context, |context| self.source.refresh(context, &old));
        let new = new?;
        // The replacement is counted before any answer from the new content.
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.advance();
        }
        let checked = Checked::new(new, stamp.request_time);
        *self.last.lock() = checked.clone();
        Ok(checked)
    }
}
