//! The current version of the archive: its directory is read again when the store below reports a change.
//!
//! The first caller after the freshness time checks for a change, and concurrent callers wait for its result; answers
//! count from that check. Open readers keep the version that they were opened with.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Kind, Result, printable};
use crate::store::{EntryKind, Key, NotShown, Replacements, Store, note_memory};

use super::archive;
use super::archive::Archive;
use super::directory::LeftOut;

/// An object of a store that is an archive.
pub(super) struct Current {
    base: Arc<dyn Store>,
    key: Key,
    shown: String,
    /// How often another archive took the place of one.
    replacements: Arc<Replacements>,
    state: Mutex<CurrentArchive>,
    checked: Condvar,
}

struct CurrentArchive {
    archive: Arc<Archive>,
    /// When the store below was asked whether it changed; nothing if it has to be asked again.
    asked: Option<Instant>,
    /// Whether a caller is checking for a change.
    checking: bool,
}

impl Current {
    /// Opens the archive under a key; `shown` is what messages call it. Counts those that take its place. Returns as well
    /// the entries that are not shown.
    pub(super) fn open(
        (base, key): (Arc<dyn Store>, Key),
        shown: &str,
        replacements: Arc<Replacements>,
    ) -> Result<(Current, Vec<NotShown>)> {
        let (archive, stamp) = base.info().ask(|| read(&*base, &key, shown));
        let (archive, left_out) = archive?;
        let current = Current {
            base,
            key,
            shown: shown.to_string(),
            replacements,
            state: Mutex::new(CurrentArchive {
                archive,
                asked: Some(stamp.asked),
                checking: false,
            }),
            checked: Condvar::new(),
        };
        Ok((current, left_out.listed))
    }

    /// Runs a query on the current archive, and again on the next one if it changed meanwhile.
    pub(super) fn query<T>(&self, run: impl Fn(&Arc<Archive>) -> Result<T>) -> Result<T> {
        match run(&self.get()?) {
            Err(error) if error.kind() == Kind::Changed => {
                self.lock().asked = None;
                run(&self.get()?)
            }
            result => result,
        }
    }

    /// Returns the archive in its current version.
    pub(super) fn get(&self) -> Result<Arc<Archive>> {
        let mut state = self.lock();
        while state.checking {
            self.checked.wait(&mut state);
        }
        let asked = state.asked;
        if let Some(asked) = asked.filter(|&asked| self.base.info().is_fresh(asked)) {
            note_memory(asked);
            return Ok(state.archive.clone());
        }
        state.checking = true;
        let old = state.archive.clone();
        drop(state);
        let _guard = ReloadGuard(self);
        let (new, stamp) = self.base.info().ask(|| self.check(old.clone()));
        let new = new?;
        if !Arc::ptr_eq(&new, &old) {
            self.replacements.note();
        }
        let mut state = self.lock();
        state.archive = new.clone();
        state.asked = Some(stamp.asked);
        Ok(new)
    }

    /// Returns the old archive if it has not changed, else reads the new one's directory.
    fn check(&self, old: Arc<Archive>) -> Result<Arc<Archive>> {
        let meta = self.base.head(&self.key);
        match meta.map_err(|error| archive::failed(error).about(&self.shown))? {
            Some(meta) if meta.version == old.meta.version => Ok(old),
            Some(meta) if meta.kind == EntryKind::File => {
                let new = read(&*self.base, &self.key, &self.shown);
                // An archive that is being written is not a corrupt entry.
                new.map(|(new, _)| new)
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

    fn lock(&self) -> MutexGuard<'_, CurrentArchive> {
        self.state.lock()
    }
}

/// Ends the check when dropped, also after an error, and wakes the callers that wait for it.
struct ReloadGuard<'a>(&'a Current);

impl Drop for ReloadGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().checking = false;
        self.0.checked.notify_all();
    }
}

/// Reads the directory and logs a warning about entries that are left out.
fn read(base: &dyn Store, key: &Key, shown: &str) -> Result<(Arc<Archive>, LeftOut)> {
    let (archive, left_out) = Archive::open(base, key).map_err(|error| error.about(shown))?;
    if left_out != LeftOut::default() {
        log::warn!("{}: not shown: {left_out}", printable(shown));
    }
    Ok((Arc::new(archive), left_out))
}
