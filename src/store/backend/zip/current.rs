//! The archive as it is now: its directory is read again when the store below says that it changed.
//!
//! Whoever finds the last look too old looks anew; all others wait for that one look. Readers that are open
//! keep the state that they were opened with.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Kind, Result, printable};
use crate::store::{EntryKind, Key, Store};

use super::archive;
use super::archive::Archive;
use super::directory::LeftOut;

/// An object of a store that is an archive.
pub(super) struct Current {
    base: Arc<dyn Store>,
    key: Key,
    shown: String,
    state: Mutex<CurrentArchive>,
    looked: Condvar,
}

struct CurrentArchive {
    archive: Arc<Archive>,
    /// Until when that is taken for the current one.
    until: Instant,
    /// Whether somebody looks right now.
    looking: bool,
}

impl Current {
    /// Opens the archive under a key; `shown` is what messages call it.
    pub(super) fn open(base: Arc<dyn Store>, key: Key, shown: &str) -> Result<Current> {
        let until = Instant::now() + base.info().freshness;
        let archive = read(&*base, &key, shown)?;
        Ok(Current {
            base,
            key,
            shown: shown.to_string(),
            state: Mutex::new(CurrentArchive {
                archive,
                until,
                looking: false,
            }),
            looked: Condvar::new(),
        })
    }

    /// Answers from the current state, from the next one if the archive changed meanwhile.
    pub(super) fn ask<T>(&self, question: impl Fn(&Arc<Archive>) -> Result<T>) -> Result<T> {
        match question(&self.get()?) {
            Err(error) if error.kind() == Kind::Changed => {
                self.lock().until = Instant::now();
                question(&self.get()?)
            }
            answer => answer,
        }
    }

    /// Returns the current state.
    pub(super) fn get(&self) -> Result<Arc<Archive>> {
        let mut state = self.lock();
        while state.looking {
            self.looked.wait(&mut state);
        }
        if Instant::now() < state.until {
            return Ok(state.archive.clone());
        }
        state.looking = true;
        let old = state.archive.clone();
        drop(state);
        let _turn = ReloadGuard(self);
        let until = Instant::now() + self.base.info().freshness;
        let new = self.look(old)?;
        let mut state = self.lock();
        state.archive = new.clone();
        state.until = until;
        Ok(new)
    }

    /// Returns the old state if it still holds, else reads the directory.
    fn look(&self, old: Arc<Archive>) -> Result<Arc<Archive>> {
        let meta = self.base.head(&self.key);
        match meta.map_err(|error| archive::failed(error).about(&self.shown))? {
            Some(meta) if meta.version == old.meta.version => Ok(old),
            Some(meta) if meta.kind == EntryKind::File => {
                let new = read(&*self.base, &self.key, &self.shown);
                // An archive that is being written is no fault of the entry that is asked for.
                new.map_err(|error| match archive::failed(error) {
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

/// The turn of the one who looks; the next may look when it ends, however it ends.
struct ReloadGuard<'a>(&'a Current);

impl Drop for ReloadGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().looking = false;
        self.0.looked.notify_all();
    }
}

/// Reads the directory and tells the log, once, what is not shown.
fn read(base: &dyn Store, key: &Key, shown: &str) -> Result<Arc<Archive>> {
    let (archive, left_out) = Archive::open(base, key).map_err(|error| error.about(shown))?;
    if left_out != LeftOut::default() {
        log::warn!("{}: not shown: {left_out}", printable(shown));
    }
    Ok(Arc::new(archive))
}
