//! A file that is open: all its handles have the same content, also after the name was removed or given to another
//! file.
//!
//! `state` holds the content and gives it its key, `io` is what programs do with the file, `table` finds or opens
//! the one `OpenFile` of a key.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::Stat;

use super::OverlayCore;
use crate::error::{Error, Result};
use crate::store::{Key, Version};
use state::{ContentSource, FileState};

pub(super) mod failed_writes;
mod io;
mod state;
pub(super) mod table;

/// The number of files that were opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// Set in the numbers of open files, which inode numbers of the upper folder have not.
const FIRST_CONTENT: u64 = 1 << 63;

/// A file of the overlay that is open.
pub(super) struct OpenFile {
    core: Arc<OverlayCore>,
    /// The number of the file; the same also when its content is copied to the upper folder.
    content: u64,
    state: Mutex<FileState>,
}

impl OpenFile {
    fn new(
        core: &Arc<OverlayCore>,
        key: &Key,
        source: ContentSource,
        opened_as: Option<(Key, Version)>,
    ) -> OpenFile {
        OpenFile {
            core: core.clone(),
            content: FIRST_CONTENT | OPENED.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(FileState {
                key: Some(key.clone()),
                source,
                pending: None,
                is_incomplete: false,
                is_dirty: false,
                needs_write_through: false,
                failed_writes: None,
                opened_as,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock()
    }

    fn source(&self) -> ContentSource {
        self.lock().source.clone()
    }

    /// Returns the number that tells this file from others.
    pub(super) fn content(&self) -> u64 {
        self.content
    }

    /// Whether the content is not under the file's key yet.
    pub(super) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// Whether what lies in the upper folder is this file.
    pub(super) fn is_at(&self, stat: &Stat) -> Result<bool> {
        let ContentSource::Upper(file) = self.source() else {
            return Ok(false);
        };
        let own = rustix::fs::fstat(&*file).map_err(Error::from)?;
        Ok((own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino))
    }

    /// Returns the key; `None` once the file has no name.
    pub(super) fn key(&self) -> Option<Key> {
        self.lock().key.clone()
    }

    /// Gives the file another key.
    pub(super) fn set_key(&self, key: Key) {
        self.lock().key = Some(key);
    }

    /// Takes the key away: the content stays readable until the file is closed, and is dropped then.
    pub(super) fn detach(&self) {
        self.lock().key = None;
    }

    /// Returns the version that `from`, a key of the store, had when it was opened as this file.
    pub(super) fn opened_version(&self, from: &Key) -> Option<Version> {
        let state = self.lock();
        let opened = state.opened_as.as_ref().filter(|(key, _)| key == from);
        opened.map(|(_, version)| *version)
    }

    /// Notes that the store has the content under the file's key, with this version.
    pub(super) fn set_committed(&self, version: Option<Version>) {
        let mut state = self.lock();
        state.opened_as = state.key.clone().zip(version);
    }

    /// Publishes what was written, if nothing of it is missing. The names must be locked.
    pub(super) fn publish_if_complete(&self) -> Result<()> {
        let mut state = self.lock();
        let is_changed = state.is_dirty || state.pending.is_some();
        if is_changed && state.missing().is_none() {
            state.publish(&self.core)
        } else {
            Ok(())
        }
    }

    /// Fails like the write that failed if something is missing that keeps the file from its key.
    pub(super) fn check_complete(&self) -> Result<()> {
        let state = self.lock();
        match state.missing() {
            Some(missing) => Err(missing.error(&state.key_or_root())),
            None => Ok(()),
        }
    }

    /// Copies the content of a file of the store to a pending file, which `publish_copy` gives its key.
    pub(super) fn copy_up(&self) -> Result<()> {
        self.lock().copy_up(&self.core)
    }

    /// Brings the file into the upper folder under its key. The names must be locked.
    pub(super) fn publish_copy(&self) -> Result<()> {
        let mut state = self.lock();
        state.copy_up(&self.core)?;
        state.publish(&self.core)
    }

    /// Returns the upper folder's file for a change of attributes; the content is copied up first.
    pub(super) fn upper_file_for_change(&self) -> Result<Option<Arc<File>>> {
        let mut state = self.lock();
        state.copy_up(&self.core)?;
        let is_copy = state.pending.is_some() && !state.is_dirty;
        drop(state);
        if is_copy {
            let _names = self.core.names.lock();
            let mut state = self.lock();
            // It may have been written since, and is published by a flush then, or committed: it is copied again.
            if !state.is_dirty {
                state.copy_up(&self.core)?;
                state.publish(&self.core)?;
            }
        }
        Ok(self.upper_file())
    }

    /// Returns the file itself, if the upper folder has the content.
    pub(super) fn upper_file(&self) -> Option<Arc<File>> {
        match self.source() {
            ContentSource::Upper(file) => Some(file),
            ContentSource::Lower(_) => None,
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(name) = &state.pending {
            let upper = &self.core.upper;
            match (&state.key, &state.failed_writes) {
                (Some(key), Some(failed)) => {
                    log::warn!("{}; its content is as before", failed.error(key));
                    upper.discard_pending(name);
                    match upper.stat(key) {
                        Ok(Some(_)) => self.core.note_write(key),
                        _ => self.core.note_removal(key),
                    }
                }
                (Some(_), None) if state.is_dirty => {
                    log::error!("pending/{name}: could not be given its key, and stays there");
                }
                _ => upper.discard_pending(name),
            }
        }
        if let Some(key) = self.state.get_mut().key.take() {
            self.core.state.lock().open_files.unregister(&key, self);
        }
    }
}
