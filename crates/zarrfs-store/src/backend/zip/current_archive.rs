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

/// The object of another store that is an archive.
pub(super) struct ArchiveObject {
    pub(super) base: Arc<dyn Store>,
    pub(super) key: Key,
    /// The name of the archive in messages.
    pub(super) display_name: String,
}

impl ArchiveObject {
    /// Reads the directory, and logs a warning if entries are left out. Also returns the entries of `folder` among them.
    fn read(
        &self,
        context: &RequestContext,
        folder: &Key,
    ) -> Result<(Arc<Archive>, OmittedEntries)> {
        let opened = Archive::open(context, &*self.base, &self.key, folder);
        let (archive, omitted) = opened.map_err(|error| error.about(&self.display_name))?;
        let text = omitted.to_string();
        if !text.is_empty() {
            log::warn!("{}: hidden entries: {text}", printable(&self.display_name));
        }
        Ok((Arc::new(archive), omitted))
    }
}

/// The present version of an archive.
pub(super) struct CurrentArchive {
    object: ArchiveObject,
    /// Counts how often the archive was replaced.
    replacements: Arc<ArchiveGeneration>,
    last: Mutex<CheckedArchive>,
    checks: SingleFlight<(), CheckedArchive>,
}

/// An archive, as a check for a change has found it.
#[derive(Clone)]
struct CheckedArchive {
    archive: Arc<Archive>,
    /// When the store below was asked for a change.
    checked_at: Instant,
    /// Whether a read has shown since that the archive was changed.
    is_outdated: bool,
}

impl CurrentArchive {
    /// Opens an archive. `replacements` counts its later replacements. Also returns the entries of `folder` that are
    /// left out.
    pub(super) fn open(
        context: &RequestContext,
        object: ArchiveObject,
        folder: &Key,
        replacements: Arc<ArchiveGeneration>,
    ) -> Result<(CurrentArchive, Vec<HiddenEntry>)> {
        let info = object.base.info();
        let (opened, stamp) = info.ask(context, |context| object.read(context, folder));
        let (archive, omitted) = opened?;
        let current = CurrentArchive {
            object,
            replacements,
            last: Mutex::new(CheckedArchive {
                archive,
                checked_at: stamp.request_time,
                is_outdated: false,
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
                self.last.lock().is_outdated = true;
                run(&self.get(context)?)
            }
            result => result,
        }
    }

    /// Returns the current version of the archive.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<Archive>> {
        let info = self.object.base.info();
        let (begun, deadline) = (info.clock.now(), Instant::now() + JOIN_TIMEOUT);
        let checked = match self.fresh() {
            Some(fresh) => fresh,
            None => {
                // A check by another caller has the same TTL as a cached answer.
                let counts = |checked: &CheckedArchive| {
                    checked.checked_at >= begun || info.is_fresh(checked.checked_at)
                };
                let work = || self.fresh().map_or_else(|| self.check(context), Ok);
                let checks = &self.checks;
                checks.run_accepting(context, &(), deadline, counts, work)?
            }
        };
        context.record_age(checked.checked_at);
        Ok(checked.archive)
    }

    /// Returns the result of the last check, if that is within the TTL.
    fn fresh(&self) -> Option<CheckedArchive> {
        let last = self.last.lock().clone();
        let is_fresh = !last.is_outdated && self.object.base.info().is_fresh(last.checked_at);
        is_fresh.then_some(last)
    }

    /// Checks for a change.
    fn check(&self, context: &RequestContext) -> Result<CheckedArchive> {
        let old = self.last.lock().archive.clone();
        let info = self.object.base.info();
        let (new, stamp) = info.ask(context, |context| self.same_or_new(context, &old));
        let new = new?;
        // Counted before the first answer from the new archive.
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.advance();
        }
        let checked = CheckedArchive {
            archive: new,
            checked_at: stamp.request_time,
            is_outdated: false,
        };
        *self.last.lock() = checked.clone();
        Ok(checked)
    }

    /// Returns the old archive if it has not changed, or else reads the new one's directory.
    fn same_or_new(&self, context: &RequestContext, old: &Arc<Archive>) -> Result<Arc<Archive>> {
        let ArchiveObject {
            base,
            key,
            display_name,
        } = &self.object;
        let meta = base.head(context, key);
        match meta.map_err(|error| archive::failed(error).about(display_name))? {
            Some(meta) if meta.version == old.meta.version => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => {
                match self.object.read(context, &Key::root()) {
                    Ok((new, _)) if new.has_content_of(old) => Ok(old.clone()),
                    Ok((new, _)) => Ok(new),
                    // An archive that is still being written does not make its entries corrupt.
                    Err(error) => Err(match archive::failed(error) {
                        error if error.kind() == Kind::Corrupt => {
                            Error::unavailable(display_name, error.detail())
                        }
                        error => error,
                    }),
                }
            }
            _ => Err(Error::unavailable(display_name, "the zip archive is gone")),
        }
    }
}
