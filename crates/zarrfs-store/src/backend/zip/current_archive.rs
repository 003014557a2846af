//! Keeps the archive current: reads its directory again after a change.
//!
//! The first lookup after the TTL asks the store below for a change, and concurrent lookups wait for its result. The
//! age of an answer counts from that check. Open readers keep the version that they were opened with.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{ArchiveGeneration, EntryKind, HiddenEntry, Key, Store};
use zarr_format::error::{Error, Kind, Result, printable};

use super::archive;
use super::archive::Archive;
use super::directory::OmittedEntries;
use crate::request_context::RequestContext;

/// An archive, stored as an object of another store.
pub(super) struct CurrentArchive {
    base: Arc<dyn Store>,
    key: Key,
    display_name: String,
    /// Counts how often the archive was replaced.
    replacements: Arc<ArchiveGeneration>,
    checked: Mutex<CheckedArchive>,
    checks: SingleFlight<(), (Arc<Archive>, Instant)>,
}

#[derive(Clone)]
struct CheckedArchive {
    archive: Arc<Archive>,
    /// When the store below was asked for a change; `None` if the answer was invalidated.
    checked_at: Option<Instant>,
}

impl CurrentArchive {
    /// Opens the archive under a key, called `display_name` in messages. `replacements` counts its later replacements.
    /// Also returns the entries of `folder` that are left out.
    pub(super) fn open(
        context: &RequestContext,
        base: Arc<dyn Store>,
        key: Key,
        display_name: &str,
        folder: &Key,
        replacements: Arc<ArchiveGeneration>,
    ) -> Result<(CurrentArchive, Vec<HiddenEntry>)> {
        let (archive, stamp) = base.info().ask(context, |context| {
            read(context, &*base, &key, display_name, folder)
        });
        let (archive, omitted) = archive?;
        let current = CurrentArchive {
            base,
            key,
            display_name: display_name.to_string(),
            replacements,
            checked: Mutex::new(CheckedArchive {
                archive,
                checked_at: Some(stamp.request_time),
            }),
            checks: SingleFlight::default(),
        };
        Ok((current, omitted.list.into_entries()))
    }

    /// Runs a query on the current archive. If the archive was changed, the query runs again on the new one.
    pub(super) fn query<T>(
        &self,
        context: &RequestContext,
        run: impl Fn(&Arc<Archive>) -> Result<T>,
    ) -> Result<T> {
        match run(&self.get(context)?) {
            Err(error) if error.kind() == Kind::Changed => {
                self.checked.lock().checked_at = None;
                run(&self.get(context)?)
            }
            result => result,
        }
    }

    /// Returns the current version of the archive.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<Archive>> {
        let info = self.base.info();
        let (begun, deadline) = (info.clock.now(), Instant::now() + JOIN_TIMEOUT);
        let (archive, checked_at) = match self.fresh() {
            Some(fresh) => fresh,
            None => {
                // A check by another caller has the same TTL as a cached answer.
                let counts = |&(_, checked_at): &(_, Instant)| {
                    checked_at >= begun || info.is_fresh(checked_at)
                };
                let work = || self.fresh().map_or_else(|| self.check(context), Ok);
                let checks = &self.checks;
                checks.run_accepting(context, &(), deadline, counts, work)?
            }
        };
        context.record_age(checked_at);
        Ok(archive)
    }

    /// Returns the archive and the time of its last check, if that is within the TTL.
    fn fresh(&self) -> Option<(Arc<Archive>, Instant)> {
        let CheckedArchive {
            archive,
            checked_at,
        } = self.checked.lock().clone();
        let checked_at = checked_at.filter(|&checked_at| self.base.info().is_fresh(checked_at))?;
        Some((archive, checked_at))
    }

    /// Checks for a change. Returns the current archive and the time of the check.
    fn check(&self, context: &RequestContext) -> Result<(Arc<Archive>, Instant)> {
        let old = self.checked.lock().archive.clone();
        let (new, stamp) = self
            .base
            .info()
            .ask(context, |context| self.same_or_new(context, &old));
        let new = new?;
        // Counted before the first answer from the new archive.
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.advance();
        }
        *self.checked.lock() = CheckedArchive {
            archive: new.clone(),
            checked_at: Some(stamp.request_time),
        };
        Ok((new, stamp.request_time))
    }

    /// Returns the old archive if it has not changed, or else reads the new one's directory.
    fn same_or_new(&self, context: &RequestContext, old: &Arc<Archive>) -> Result<Arc<Archive>> {
        let meta = self.base.head(context, &self.key);
        match meta.map_err(|error| archive::failed(error).about(&self.display_name))? {
            Some(meta) if meta.version == old.meta.version => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => {
                let new = read(
                    context,
                    &*self.base,
                    &self.key,
                    &self.display_name,
                    &Key::root(),
                );
                // An archive that is still being written does not make its entries corrupt.
                let same_or_new = |new: Arc<Archive>| {
                    if new.has_content_of(old) {
                        return old.clone();
                    }
                    new
                };
                new.map(|(new, _)| same_or_new(new))
                    .map_err(|error| match archive::failed(error) {
                        error if error.kind() == Kind::Corrupt => {
                            Error::new(Kind::Unavailable, &self.display_name, error.detail())
                        }
                        error => error,
                    })
            }
            _ => Err(Error::new(
                Kind::Unavailable,
                &self.display_name,
                "the zip archive is gone",
            )),
        }
    }
}

/// Reads the directory, and logs a warning if entries are left out.
fn read(
    context: &RequestContext,
    base: &dyn Store,
    key: &Key,
    display_name: &str,
    folder: &Key,
) -> Result<(Arc<Archive>, OmittedEntries)> {
    let (archive, omitted) =
        Archive::open(context, base, key, folder).map_err(|error| error.about(display_name))?;
    let said = omitted.to_string();
    if !said.is_empty() {
        log::warn!("{}: not display_name: {said}", printable(display_name));
    }
    Ok((Arc::new(archive), omitted))
}
