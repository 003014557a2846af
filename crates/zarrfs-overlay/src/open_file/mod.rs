//! An open file: all its handles share one content, even without a name.
//!
//! `state` holds the content and publishes it under its key, `io` has the operations of programs, `table` finds or
//! opens the one `OpenFile` of a key.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::OverlayCore;
use super::name_change::NameChange;
use handle::OpenFileHandle;
use spare::WrittenRanges;
use state::{ContentSource, FileState};
use zarr_format::error::{Error, Result};
use zarrfs_store::sync::file_limits::Permit;
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

/// An open file of the overlay.
pub(super) struct OpenFile {
    core: Arc<OverlayCore>,
    /// Identifies the file; renames and writes do not change it.
    id: u64,
    /// Number of handles that are open for writing.
    writers: AtomicUsize,
    state: Mutex<FileState>,
    /// Signalled when a copy from the store has ended.
    copied: Condvar,
    _permit: Permit,
}

/// The content that a file was opened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenedAs {
    /// A file of the upper folder, or a new file.
    Upper,
    /// The store's object of this key, in this version.
    Stored(Key, StoreVersion),
    /// The content of a frozen layer: its commit determines the store's version.
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

    /// Returns the ID of the file.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Opens a handle of the file.
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

    /// Whether the content has not been published under the file's key yet.
    pub(super) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// Whether there are writes that no flush has published.
    pub(super) fn is_dirty(&self) -> bool {
        self.lock().is_dirty
    }

    /// Whether a program has written to the layer's file, or can still do so.
    pub(super) fn is_being_written(&self) -> bool {
        let state = self.lock();
        let is_upper = matches!(state.source, ContentSource::Upper(_));
        state.pending.is_some() || is_upper && (state.is_dirty || self.is_open_for_writing())
    }

    /// Returns the version of the document, if its copies are derived and the file was not written.
    pub(super) fn derived_version(&self) -> Option<Version> {
        let state = self.lock();
        let derived = state.derived.as_ref();
        derived
            .filter(|_| matches!(state.source, ContentSource::Lower(_)))
            .map(|derived| derived.meta.version)
    }

    /// Returns owner and mode of the layer's file of a document with derived copies.
    fn derived_posix(&self) -> Option<Posix> {
        let state = self.lock();
        let is_lower = matches!(state.source, ContentSource::Lower(_));
        state.derived.as_ref().filter(|_| is_lower)?.posix
    }

    /// Returns the key, or `None` if the file has no name any more.
    pub(super) fn key(&self) -> Option<Key> {
        self.lock().key.clone()
    }

    /// Gives the file another key.
    pub(super) fn set_key(&self, key: Key) {
        self.lock().key = Some(key);
    }

    /// Removes the key: the content stays readable until the file is closed, and is dropped then.
    pub(super) fn detach(&self) {
        self.lock().key = None;
    }

    /// Removes the key like `detach`, and refuses later writes.
    pub(super) fn revoke(&self) {
        let mut state = self.lock();
        (state.key, state.is_revoked) = (None, true);
    }

    /// Returns key and version of the store's object, if the file was opened on it and not written since.
    pub(super) fn unwritten_version(&self) -> Option<(Key, StoreVersion)> {
        let state = self.lock();
        match (&state.source, &state.opened_as) {
            (ContentSource::Upper(_), _) => None,
            (_, OpenedAs::Stored(key, version)) => Some((key.clone(), *version)),
            _ => None,
        }
    }

    /// Records that the store now has the opened content under the file's key, in this version.
    pub(super) fn set_committed(&self, version: StoreVersion) {
        let mut state = self.lock();
        if let Some(key) = state.key.clone() {
            state.opened_as = OpenedAs::Stored(key, version);
            state.opened_content = None;
        }
    }

    /// Publishes the writes, if none of them is missing.
    pub(super) fn publish_if_complete(&self, change: &NameChange<'_>) -> Result<()> {
        let mut state = self.lock();
        if state.is_dirty && state.missing().is_none() {
            state.publish(change, self.id)
        } else {
            Ok(())
        }
    }

    /// Fails with the error of a failed write if the file is incomplete because of it and cannot be published.
    pub(super) fn check_complete(&self) -> Result<()> {
        let state = self.lock();
        match state.missing() {
            Some(missing) => Err(missing.error(&state.key_or_root())),
            None => Ok(()),
        }
    }

    /// Fails if there are unpublished writes. The error says where they will be after the process ends.
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

    /// Returns the upper folder's file, or `None` if the upper folder does not have the content.
    pub(super) fn upper_file(&self) -> Option<Arc<File>> {
        match self.source() {
            ContentSource::Upper(file) => Some(file),
            ContentSource::Lower(_) | ContentSource::Frozen(..) => None,
        }
    }

    /// Returns the inode number of the file, or `None` if the upper folder does not have the content.
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
