//! A file that is open: all its handles have the same content, also after the name was removed or given to another
//! file.
//!
//! `state` holds the content and gives it its key, `io` is what programs do with the file, `table` finds or opens
//! the one `OpenFile` of a key.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::OverlayCore;
use super::name_change::NameChange;
use handle::OpenFileHandle;
use spare::WrittenRanges;
use state::{ContentSource, FileState};
use zarr_format::error::{Error, Result};
use zarrfs_store::sync::descriptors::Permit;
use zarrfs_store::sync::locks::{Condvar, Mutex, MutexGuard};
use zarrfs_store::tree::{OpenMode, Posix};
use zarrfs_store::{Key, StoreVersion, Version};

mod attributes;
mod copy_up;
pub(super) mod failed_writes;
mod handle;
mod io;
mod spare;
pub(super) mod state;
pub(super) mod table;

/// A file of the overlay that is open.
pub(super) struct OpenFile {
    core: Arc<OverlayCore>,
    /// Which file it is, whatever it is called and holds.
    id: u64,
    /// How many handles are open for writing.
    writers: AtomicUsize,
    state: Mutex<FileState>,
    /// Signalled when a copy from the store has ended.
    copied: Condvar,
    _permit: Permit,
}

/// What an open file was opened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenedAs {
    /// A file of the upper folder, or a new one.
    Upper,
    /// What the store had of this key, in this version.
    Stored(Key, StoreVersion),
    /// What a frozen layer had of the key: its commit tells the store's version.
    Frozen,
}

impl OpenFile {
    fn new(
        core: &Arc<OverlayCore>,
        key: &Key,
        id: u64,
        source: ContentSource,
        opened_as: OpenedAs,
        permit: Permit,
    ) -> OpenFile {
        OpenFile {
            _permit: permit,
            core: core.clone(),
            id,
            writers: AtomicUsize::new(0),
            copied: Condvar::new(),
            state: Mutex::new(FileState {
                key: Some(key.clone()),
                source,
                pending: None,
                is_incomplete: false,
                is_dirty: false,
                changes: 0,
                mark: None,
                written: WrittenRanges::default(),
                previous: None,
                spare: None,
                is_copying: false,
                is_revoked: false,
                needs_write_through: false,
                failed_writes: None,
                opened_as,
                derived: None,
                opened_content: None,
            }),
        }
    }

    /// Returns which file it is.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns a handle of the file.
    pub(super) fn open_as(self: &Arc<Self>, mode: OpenMode) -> Arc<OpenFileHandle> {
        Arc::new(OpenFileHandle::new(self.clone(), mode != OpenMode::Read))
    }

    /// Whether a program has the file open for writing.
    pub(super) fn is_open_for_writing(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock()
    }

    fn source(&self) -> ContentSource {
        self.lock().source.clone()
    }

    /// Whether the content is not under the file's key yet.
    pub(super) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// Whether something was written that no flush has published.
    pub(super) fn is_dirty(&self) -> bool {
        self.lock().is_dirty
    }

    /// Whether a program has written something of the layer's file, or may do so.
    pub(super) fn is_being_written(&self) -> bool {
        let state = self.lock();
        let is_upper = matches!(state.source, ContentSource::Upper(_));
        state.pending.is_some() || is_upper && (state.is_dirty || self.is_open_for_writing())
    }

    /// Returns the version of the document that the content is, if its copies are derived and it was not written.
    pub(super) fn derived_version(&self) -> Option<Version> {
        let state = self.lock();
        let derived = state.derived.as_ref();
        derived
            .filter(|_| matches!(state.source, ContentSource::Lower(_)))
            .map(|derived| derived.meta.version)
    }

    /// Returns owner and mode of the layer's file of a document whose copies are derived.
    fn derived_posix(&self) -> Option<Posix> {
        let state = self.lock();
        let is_lower = matches!(state.source, ContentSource::Lower(_));
        state.derived.as_ref().filter(|_| is_lower)?.posix
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

    /// The same, and what is written from now on is refused.
    pub(super) fn revoke(&self) {
        let mut state = self.lock();
        (state.key, state.is_revoked) = (None, true);
    }

    /// Returns the version of what the store has, if the file was opened on that and was not written since.
    pub(super) fn unwritten_version(&self) -> Option<(Key, StoreVersion)> {
        let state = self.lock();
        match (&state.source, &state.opened_as) {
            (ContentSource::Upper(_), _) => None,
            (_, OpenedAs::Stored(key, version)) => Some((key.clone(), *version)),
            _ => None,
        }
    }

    /// Notes that the store has the content that the file was opened on, under the file's key, with this version.
    pub(super) fn set_committed(&self, version: StoreVersion) {
        let mut state = self.lock();
        if let Some(key) = state.key.clone() {
            state.opened_as = OpenedAs::Stored(key, version);
            state.opened_content = None;
        }
    }

    /// Publishes what was written, if nothing of it is missing.
    pub(super) fn publish_if_complete(&self, change: &NameChange<'_>) -> Result<()> {
        let mut state = self.lock();
        if state.is_dirty && state.missing().is_none() {
            state.publish(change, self.id)
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

    /// Fails if something was written that is not under the file's key: says where it is after the end of this process.
    pub(super) fn check_published(&self) -> Result<()> {
        let state = self.lock();
        let is_apart = state.pending.is_some() || state.is_incomplete;
        match &state.key {
            Some(key) if state.is_dirty && is_apart => {
                let rescued = self.core.upper.rescued();
                let why = format!(
                    "a program has not closed it; the next mount moves it to {}",
                    rescued.display()
                );
                Err(Error::unavailable(key, why))
            }
            _ => Ok(()),
        }
    }

    /// Returns the file itself, if the upper folder has the content.
    pub(super) fn upper_file(&self) -> Option<Arc<File>> {
        match self.source() {
            ContentSource::Upper(file) => Some(file),
            ContentSource::Lower(_) | ContentSource::Frozen(..) => None,
        }
    }

    /// Returns the inode number of the file, if the upper folder has the content.
    pub(super) fn inode(&self) -> Option<u64> {
        let stat = rustix::fs::fstat(&*self.upper_file()?).ok()?;
        Some(stat.st_ino)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(spare) = state.spare.take() {
            spare.discard(&self.core.upper);
        }
        if let Some(name) = &state.pending {
            let upper = &self.core.upper;
            match (&state.key, &state.failed_writes) {
                (Some(key), Some(failed)) => {
                    log::warn!("{}; its content is as before", failed.error(key));
                    upper.discard_pending(name);
                    match self.core.top().layer.keys.stat(key) {
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
            self.core.open.lock().files.unregister(&key, self);
        }
    }
}
