//! The current version of the archive: its directory is read again when the store below reports a change.
//!
//! The first lookup after the freshness time checks for a change, and concurrent ones wait for its result; answers count
//! from that check. Open readers keep the version that they were opened with.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

use crate::sync::single_flight::{JOIN_TIMEOUT, SingleFlight};
use crate::{EntryKind, Key, NotShown, Replacements, Store};
use zarr_format::error::{Error, Kind, Result, printable};

use super::archive;
use super::archive::Archive;
use super::directory::LeftOut;
use crate::request_context::RequestContext;

/// An object of a store that is an archive.
pub(super) struct Current {
    base: Arc<dyn Store>,
    key: Key,
    shown: String,
    /// How often another archive took the place of one.
    replacements: Arc<Replacements>,
    checked: Mutex<CheckedArchive>,
    checks: SingleFlight<(), (Arc<Archive>, Instant)>,
}

#[derive(Clone)]
struct CheckedArchive {
    archive: Arc<Archive>,
    /// When the store below was asked whether it changed; nothing if it has to be asked again.
    asked: Option<Instant>,
}

impl Current {
    /// Opens the archive under a key; `shown` is what messages call it. Counts those that take its place. Returns as well
    /// the entries of `folder` that are not shown.
    pub(super) fn open(
        context: &RequestContext,
        base: Arc<dyn Store>,
        key: Key,
        shown: &str,
        folder: &Key,
        replacements: Arc<Replacements>,
    ) -> Result<(Current, Vec<NotShown>)> {
        let (archive, stamp) = base.info().ask(context, |context| {
            read(context, &*base, &key, shown, folder)
        });
        let (archive, left_out) = archive?;
        let current = Current {
            base,
            key,
            shown: shown.to_string(),
            replacements,
            checked: Mutex::new(CheckedArchive {
                archive,
                asked: Some(stamp.asked),
            }),
            checks: SingleFlight::default(),
        };
        Ok((current, left_out.listed.into_entries()))
    }

    /// Runs a query on the current archive, and again on the next one if it changed meanwhile.
    pub(super) fn query<T>(
        &self,
        context: &RequestContext,
        run: impl Fn(&Arc<Archive>) -> Result<T>,
    ) -> Result<T> {
        match run(&self.get(context)?) {
            Err(error) if error.kind() == Kind::Changed => {
                self.checked.lock().asked = None;
                run(&self.get(context)?)
            }
            result => result,
        }
    }

    /// Returns the archive in its current version.
    pub(super) fn get(&self, context: &RequestContext) -> Result<Arc<Archive>> {
        let info = self.base.info();
        let (begun, deadline) = (info.clock.now(), Instant::now() + JOIN_TIMEOUT);
        let (archive, asked) = match self.fresh() {
            Some(fresh) => fresh,
            None => {
                // A check that another caller began counts as one of memory does.
                let counts = |&(_, asked): &(_, Instant)| asked >= begun || info.is_fresh(asked);
                let work = || self.fresh().map_or_else(|| self.check(context), Ok);
                let checks = &self.checks;
                checks.run_counting(context, &(), deadline, counts, work)?
            }
        };
        context.note_memory(asked);
        Ok(archive)
    }

    /// Returns the archive, and when it was checked, if that is within the freshness time.
    fn fresh(&self) -> Option<(Arc<Archive>, Instant)> {
        let CheckedArchive { archive, asked } = self.checked.lock().clone();
        let asked = asked.filter(|&asked| self.base.info().is_fresh(asked))?;
        Some((archive, asked))
    }

    /// Checks for a change; returns the archive that is there now, and when the store was asked.
    fn check(&self, context: &RequestContext) -> Result<(Arc<Archive>, Instant)> {
        let old = self.checked.lock().archive.clone();
        let (new, stamp) = self
            .base
            .info()
            .ask(context, |context| self.same_or_new(context, &old));
        let new = new?;
        // Counted before the first answer out of the new one.
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.note();
        }
        *self.checked.lock() = CheckedArchive {
            archive: new.clone(),
            asked: Some(stamp.asked),
        };
        Ok((new, stamp.asked))
    }

    /// Returns the old archive if it has not changed, else reads the new one's directory.
    fn same_or_new(&self, context: &RequestContext, old: &Arc<Archive>) -> Result<Arc<Archive>> {
        let meta = self.base.head(context, &self.key);
        match meta.map_err(|error| archive::failed(error).about(&self.shown))? {
            Some(meta) if meta.version == old.meta.version => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => {
                let new = read(context, &*self.base, &self.key, &self.shown, &Key::root());
                // An archive that is being written is not a corrupt entry.
                let same_or_new = |new: Arc<Archive>| {
                    if new.has_content_of(old) {
                        return old.clone();
                    }
                    new
                };
                new.map(|(new, _)| same_or_new(new))
                    .map_err(|error| match archive::failed(error) {
                        error if error.kind() == Kind::Corrupt => {
                            Error::new(Kind::Unavailable, &self.shown, error.detail())
                        }
                        error => error,
                    })
            }
            _ => Err(Error::new(
                Kind::Unavailable,
                &self.shown,
                "the zip archive is gone",
            )),
        }
    }
}

/// Reads the directory and logs a warning about entries that are left out.
fn read(
    context: &RequestContext,
    base: &dyn Store,
    key: &Key,
    shown: &str,
    folder: &Key,
) -> Result<(Arc<Archive>, LeftOut)> {
    let (archive, left_out) =
        Archive::open(context, base, key, folder).map_err(|error| error.about(shown))?;
    let said = left_out.to_string();
    if !said.is_empty() {
        log::warn!("{}: not shown: {said}", printable(shown));
    }
    Ok((Arc::new(archive), left_out))
}
