//! An open file: all its handles share one content, even without a name.
//!
//! `state` holds the content and publishes it under its key, `pending_copy` has the file that the next write goes to,
//! and `opener` finds or opens the one `OpenFile` of a key in the `table`.
//!
//! The upper folder's file system decides which attributes are valid. So if the content of a file is not in the top
//! layer, its attributes are set on an empty file there, and the journal records the attributes that this file then
//! has.

use std::fs::File;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FallocateFlags, fallocate};

use crate::attribute_override::AttributeOverride;
use crate::encodings::{NewContent, may_describe_array};
use crate::layer_dir::os_error;
use crate::layered_store::stat_of_stored;
use crate::name_change::NameChange;
use crate::open_file::opener::OpenFileHandle;
use crate::open_file::pending_copy::{FileReuse, PendingCopy, WrittenRanges};
use crate::open_file::state::{ContentSource, FileState, OpenedAs, StoredVersion};
use crate::overlay_core::OverlayCore;
use crate::{attributes, content};
use zarr_format::dialect::consolidated::MAX_DOCUMENT;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::{RequestContext, would_wait};
use zarrfs_store::sync::file_limits::Permit;
use zarrfs_store::sync::locks::{Condvar, Mutex, MutexGuard};
use zarrfs_store::tree::{AttrChange, OpenMode, Posix, Stat};
use zarrfs_store::{Key, Meta, Reader, StoreVersion, Version};

pub(crate) mod opener;
pub(crate) mod pending_copy;
pub(crate) mod state;
pub(crate) mod table;

/// A file of the overlay that programs have open.
pub(crate) struct OpenFile {
    core: Arc<OverlayCore>,
    /// The file's number, which renames and writes do not change.
    id: u64,
    /// Number of open handles that may write to the file.
    writers: AtomicUsize,
    state: Mutex<FileState>,
    /// Signals waiting writers that a copy of the content from the store has ended.
    copied: Condvar,
    _permit: Permit,
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
                reuse: FileReuse::default(),
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

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn open_as(self: &Arc<Self>, mode: OpenMode) -> Arc<OpenFileHandle> {
        Arc::new(OpenFileHandle::new(self.clone(), mode != OpenMode::Read))
    }

    /// Whether a program has the file open for writing.
    pub(crate) fn is_open_for_writing(&self) -> bool {
        self.writers.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock()
    }

    fn source(&self) -> ContentSource {
        self.lock().source.clone()
    }

    /// Whether the file has written content that is not published under its key yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// Whether there are writes that no flush has published yet.
    pub(crate) fn is_dirty(&self) -> bool {
        self.lock().is_dirty
    }

    /// Whether programs have unpublished writes to the layer's file, or have it open for writing.
    pub(crate) fn is_being_written(&self) -> bool {
        let state = self.lock();
        let is_upper = matches!(state.source, ContentSource::Upper(_));
        state.pending.is_some() || is_upper && (state.is_dirty || self.is_open_for_writing())
    }

    /// Returns the version of the consolidated metadata that the file was opened on, if its copies differ from the
    /// stored text and the file was not written.
    pub(crate) fn derived_version(&self) -> Option<Version> {
        let state = self.lock();
        let derived = state.derived.as_ref();
        derived
            .filter(|_| matches!(state.source, ContentSource::Lower(_)))
            .map(|derived| derived.meta.version)
    }

    /// Returns owner and mode of the layer's file of a consolidated document whose text was derived when it was opened.
    fn derived_posix(&self) -> Option<Posix> {
        let state = self.lock();
        let is_lower = matches!(state.source, ContentSource::Lower(_));
        state.derived.as_ref().filter(|_| is_lower)?.posix
    }

    /// Returns the key of the file, or `None` if the file was removed or replaced and has no name any more.
    pub(crate) fn key(&self) -> Option<Key> {
        self.lock().key.clone()
    }

    /// Changes the key of the file after a rename. A file that was removed before stays without a key.
    pub(crate) fn rename(&self, key: Key) {
        let mut state = self.lock();
        if state.key.is_some() {
            state.key = Some(key);
        }
    }

    /// Removes the key of the file, because its name was removed. The content stays readable until the close.
    pub(crate) fn detach(&self) {
        self.lock().key = None;
    }

    /// Removes the key from the file, because its name has another content now, and makes later writes fail.
    pub(crate) fn revoke(&self) {
        let mut state = self.lock();
        (state.key, state.is_revoked) = (None, true);
    }

    /// Returns key and version of the store's object that the file was opened on. Returns `None` if the file was
    /// written, or was opened on a file of the upper folder.
    pub(crate) fn unwritten_version(&self) -> Option<StoredVersion> {
        let state = self.lock();
        match (&state.source, &state.opened_as) {
            (ContentSource::Upper(_), _) => None,
            (_, OpenedAs::Stored(key, version)) => Some(StoredVersion {
                key: key.clone(),
                version: *version,
            }),
            _ => None,
        }
    }

    /// Records that the store has this file's content under the file's key, with the given version.
    pub(crate) fn set_committed(&self, version: StoreVersion) {
        let mut state = self.lock();
        if let Some(key) = state.key.clone() {
            state.opened_as = OpenedAs::Stored(key, version);
            state.opened_content = None;
        }
    }

    /// Publishes the writes to the file, unless a write has failed and the content is therefore incomplete.
    pub(crate) fn publish_if_complete(&self, change: &NameChange<'_>) -> Result<()> {
        let mut state = self.lock();
        if state.is_dirty && state.missing().is_none() {
            state.publish(change, self.id)
        } else {
            Ok(())
        }
    }

    /// Fails with the error of a failed write if it makes the content incomplete, so that the file cannot be published.
    pub(crate) fn check_complete(&self) -> Result<()> {
        let state = self.lock();
        match state.missing() {
            Some(missing) => Err(missing.error(&state.key_or_root())),
            None => Ok(()),
        }
    }

    /// Fails if the file has unpublished writes. The error names the folder to which the next mount moves them.
    pub(crate) fn check_published(&self) -> Result<()> {
        let state = self.lock();
        let is_apart = state.pending.is_some() || state.is_incomplete;
        match &state.key {
            Some(key) if state.is_dirty && is_apart => {
                let rescued = self.core.upper.rescued();
                let why = format!(
                    "still open in a program; the next mount moves the file to {}",
                    rescued.display()
                );
                Err(Error::unavailable(key, why))
            }
            _ => Ok(()),
        }
    }

    /// Returns the upper folder's file with the content, or `None` if the store or a frozen layer has the content.
    pub(crate) fn upper_file(&self) -> Option<Arc<File>> {
        match self.source() {
            ContentSource::Upper(file) => Some(file),
            ContentSource::Lower(_) | ContentSource::Frozen(..) => None,
        }
    }

    /// Returns the inode of the file in the upper folder, or `None` if the content is in the store or a frozen layer.
    pub(crate) fn inode(&self) -> Option<u64> {
        let stat = rustix::fs::fstat(&*self.upper_file()?).ok()?;
        Some(stat.st_ino)
    }

    fn resize(&self, context: &RequestContext, size: u64) -> Result<()> {
        let mut state = self.lock_copied(context, size == 0)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, size == 0)?;
        let length = file
            .metadata()
            .map_err(|error| state.os_error(error))?
            .len();
        state.reuse.written.add(length.min(size)..length.max(size));
        let done = file.set_len(size);
        state.mark_written(&self.core);
        done.map_err(|error| state.os_error(error))?;
        state.clear_failed(&self.core, |failed| failed.truncated(size));
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write_at(
        &self,
        context: &RequestContext,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if !context.may_wait() {
            return self.write_in_memory(offset, bytes);
        }
        let mut state = self.lock_copied(context, false)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, false)?;
        state.write(&self.core, &file, offset, bytes)
    }

    /// Writes all of `bytes` at the end of the file, atomically.
    pub(crate) fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock_copied(context, false)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, false)?;
        let end = file
            .metadata()
            .map_err(|error| state.os_error(error))?
            .len();
        state.write(&self.core, &file, end, bytes)
    }

    /// Writes only if this is possible without waiting for the file's lock, for a copy of the content or for disk
    /// space. Otherwise fails with `WouldWait`.
    fn write_in_memory(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.try_lock().ok_or_else(would_wait)?;
        // The first write after a flush is refused, because it may have to copy the whole content.
        let is_ready = state.is_dirty && (state.pending.is_some() || state.is_incomplete);
        if !is_ready {
            return Err(would_wait());
        }
        let file = state.writable(&self.core, false)?;
        state.write_in_memory(&self.core, &file, offset, bytes)
    }

    /// Allocates or changes a range like fallocate(2) with `mode`.
    pub(crate) fn allocate(
        &self,
        context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let mut state = self.lock_copied(context, false)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, false)?;
        // Some modes of fallocate(2) move the data behind the range, so the whole file may have changed.
        state.reuse.written = WrittenRanges::all();
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = fallocate(&*file, flags, offset, length);
        state.mark_written(&self.core);
        done.map_err(|error| state.os_error(error))
    }

    /// Publishes the writes to the file. With write-through, the content is also put into the store.
    pub(crate) fn flush(&self, context: &RequestContext) -> Result<()> {
        loop {
            let state = self.lock();
            state.check_revoked()?;
            // A copy of the content without a write is no change: the write that the copy was made for has failed.
            let is_changed = state.is_dirty || state.needs_write_through;
            let Some(key) = state.key.clone().filter(|_| is_changed) else {
                return Ok(());
            };
            drop(state);
            self.check_complete()?;
            self.prepare_mark()?;
            if self.flush_as(context, &key)? {
                return Ok(());
            }
        }
    }

    /// Computes the digest of the content before a flush locks the names, because it takes long.
    fn prepare_mark(&self) -> Result<()> {
        let state = self.lock();
        let is_published = state.pending.is_none() && !state.is_incomplete;
        let ContentSource::Upper(file) = &state.source else {
            return Ok(());
        };
        let (file, changes) = (file.clone(), state.changes);
        if is_published || state.mark.is_some_and(|(at, _)| at == changes) {
            return Ok(());
        }
        drop(state);
        let mark = content::mark_of(&file);
        let mut state = self.lock();
        let mark = mark.map_err(|error| state.os_error(error))?;
        // A digest of an older content is stored with its number of changes, so it will not be used.
        if matches!(&state.source, ContentSource::Upper(now) if Arc::ptr_eq(now, &file)) {
            state.mark = Some((changes, mark));
        }
        Ok(())
    }

    /// Flushes the file if its key is still `key`; returns whether it is.
    fn flush_as(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        self.lock().needs_write_through = self.core.config.write_through;
        let paths = std::slice::from_ref(key);
        let content = self.new_content(context, key)?;
        let is_flushed = self.core.change_and_store(context, paths, |change| {
            if self.key().as_ref() != Some(key) {
                return Ok(false);
            }
            self.publish_if_complete(change)?;
            if let Some(content) = &content {
                change.record_document(key, content)?;
            }
            Ok(true)
        })?;
        if is_flushed {
            self.lock().needs_write_through = false;
        }
        Ok(is_flushed)
    }

    /// Returns what a metadata document describes now, or `None` for any other file.
    fn new_content(&self, context: &RequestContext, key: &Key) -> Result<Option<NewContent>> {
        match self.source() {
            ContentSource::Upper(file) if may_describe_array(key) => {
                let length = usize::try_from(MAX_DOCUMENT).unwrap_or(usize::MAX);
                let bytes = content::read_file(&file, 0, length);
                let bytes = bytes.map_err(|error| self.lock().os_error(error))?;
                self.core
                    .encodings(context)
                    .new_content(key, &bytes)
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Syncs the file, so that its content survives a power loss.
    pub(crate) fn sync(&self, context: &RequestContext) -> Result<()> {
        self.lock().check_revoked()?;
        self.flush(context)?;
        let file = match self.source() {
            // The content is already in the store, so only attributes have to be synced.
            ContentSource::Lower(_) => return self.sync_attribute_override(),
            ContentSource::Frozen(..) => return self.core.sync_all(),
            ContentSource::Upper(file) => file,
        };
        let failed = |error| self.lock().os_error(error);
        let top = self.core.top();
        let key = self.key();
        let mark = key.as_ref().and_then(|key| top.layer.last_mark(key));
        file.sync_all().map_err(failed)?;
        let Some(key) = key else {
            return Ok(());
        };
        top.layer.dir.sync_folders_above(&key)?;
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::os("", error))?;
        match mark {
            // A write has replaced the file since it was opened here, and the key may have the older or the newer file.
            // Sync the whole layer.
            Some(mark) if mark.inode != stat.st_ino => self.core.sync_all(),
            Some(mark) => {
                top.layer.record_synced(&key, &mark)?;
                self.drop_replaced(top.layer.take_replaced(&key))
            }
            None => top.layer.sync_journal(),
        }
    }

    /// Removes replaced files from `pending/`, except for the spare file that the next write will reuse.
    fn drop_replaced(&self, names: Vec<String>) -> Result<()> {
        let upper = &self.core.upper;
        let mut state = self.lock();
        for name in names {
            match &mut state.reuse.spare {
                Some(spare) if spare.name == name && self.is_open_for_writing() => {
                    spare.name = upper
                        .pending
                        .mark_spare(&name)
                        .map_err(|error| Error::os("", error))?;
                    spare.is_free = true;
                }
                _ => upper.pending.discard(&name),
            }
        }
        Ok(())
    }

    /// Returns the current `stat` of the file, even if it has no name any more.
    pub(crate) fn stat(&self, context: &RequestContext) -> Result<Stat> {
        let stat = self.stat_of_content(context)?;
        let overrides = self.attribute_override()?;
        Ok(overrides.map_or(stat, |overrides| overrides.applied_to(stat)))
    }

    /// Returns the `stat` of the file's content, without attributes that were set while only the store had the content.
    pub(crate) fn stat_of_content(&self, context: &RequestContext) -> Result<Stat> {
        let stat = match self.source() {
            ContentSource::Lower(reader) => stat_of_stored(reader.meta(context)?),
            _ => self.stat_of_copy(context)?,
        };
        let derived = self.derived_posix();
        Ok(Stat {
            content: self.id,
            posix: stat.posix.or(derived),
            ..stat
        })
    }

    /// Returns the `stat` of a content in the top layer, in the frozen layer or in `pending/`.
    fn stat_of_copy(&self, context: &RequestContext) -> Result<Stat> {
        let state = self.lock();
        let (stat, number) = match &state.source {
            // The file was not copied to the upper folder yet.
            ContentSource::Lower(reader) => return Ok(stat_of_stored(reader.meta(context)?)),
            ContentSource::Frozen(file, number) => (rustix::fs::fstat(file), *number),
            ContentSource::Upper(file) => {
                let key = state.key.as_ref();
                let number = key.map_or(0, |key| self.core.top().layer.generation(key));
                (rustix::fs::fstat(file), number)
            }
        };
        let stat = stat.map_err(|error| Error::os("", error))?;
        let mut posix = attributes::posix_of(&stat);
        let is_frozen = matches!(state.source, ContentSource::Frozen(..));
        if !is_frozen && state.key.is_none() && state.pending.is_some() {
            posix.links = 0;
        }
        // A committed file has no owner and mode of its own, like all objects of the store.
        let is_committed = stat.st_nlink == 0 && (is_frozen || state.key.is_some());
        let mut meta = attributes::meta_of(&stat, number);
        if let OpenedAs::Stored(key, version) = &state.opened_as
            && state.key.as_ref() == Some(key)
            && (is_frozen || is_committed)
        {
            // The content was committed, so the open file must have the version that the store's object has.
            meta.version = (*version).into();
        }
        Ok(Stat {
            meta,
            posix: (!is_committed).then_some(posix),
            content: self.id,
        })
    }

    /// Sets attributes of the file, including its size.
    pub(crate) fn change(&self, context: &RequestContext, change: &AttrChange) -> Result<()> {
        if let Some(size) = change.size {
            self.resize(context, size)?;
        }
        let rest = AttrChange {
            size: None,
            ..*change
        };
        if rest == AttrChange::default() {
            return Ok(());
        }
        let key = self.lock().key_or_root();
        self.change_attributes(context, &|file| {
            attributes::set_open(file, &rest).map_err(|error| os_error(&key, error))
        })?;
        self.core.mark_changed(&self.lock().key_or_root());
        Ok(())
    }

    /// Changes attributes with `set`, which is called with the file that has them. The lock of the names is held, so
    /// that a commit freezes the file before or after the change.
    ///
    /// Fails with `ReadOnly` for a file without a name whose content is not in the top layer.
    pub(crate) fn change_attributes(
        &self,
        context: &RequestContext,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<()> {
        loop {
            let Some(key) = self.key() else {
                let file = self.upper_file();
                return set(&*file.ok_or_else(|| Error::read_only(Key::root()))?);
            };
            // Read the `stat` before the names are locked, because it may need a request to the store.
            let content = self.stat_of_content(context)?;
            let change = |change: &NameChange<'_>| self.set_as_key(&key, change, content, set);
            if self.core.change_own(context, &key, change)? {
                return Ok(());
            }
        }
    }

    /// Changes attributes with `set` if the file's key is still `key`; returns whether it is.
    fn set_as_key(
        &self,
        key: &Key,
        change: &NameChange<'_>,
        content: Stat,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<bool> {
        let state = self.lock();
        if state.key.as_ref() != Some(key) {
            return Ok(false);
        }
        let is_committed = state.is_committed()?;
        // A copy without a write may never be published, so its attributes must be recorded too.
        let is_idle_copy = state.pending.is_some() && !state.is_dirty;
        let (own, frozen) = match &state.source {
            ContentSource::Upper(file) if !is_committed => (Some(file), None),
            ContentSource::Frozen(file, _) => (None, Some(&**file)),
            _ => (None, None),
        };
        let overrides = change.top.layer.attribute_override(key)?;
        // A commit drops a mere copy of the store's object with its attributes. So set them on the copy and record them
        // too.
        let is_of_copy = overrides.is_some_and(|overrides| overrides.is_of_copy);
        if own.is_none() || is_idle_copy || is_of_copy {
            change.override_attributes(key, content, frozen, set)?;
        }
        own.map_or(Ok(()), |file| set(file))?;
        Ok(true)
    }

    /// Returns the recorded attributes, if any, of a file whose content is not in the top layer.
    pub(crate) fn attribute_override(&self) -> Result<Option<Arc<AttributeOverride>>> {
        let state = self.lock();
        let is_in_layer =
            matches!(state.source, ContentSource::Upper(_)) && !state.is_committed()?;
        let key = state.key.as_ref().filter(|_| !is_in_layer);
        match key {
            Some(key) => self.core.top().layer.attribute_override(key),
            None => Ok(None),
        }
    }

    /// Syncs the journal if it has recorded attributes of the file.
    pub(crate) fn sync_attribute_override(&self) -> Result<()> {
        match (self.attribute_override()?, self.key()) {
            (Some(_), Some(key)) => {
                let top = self.core.top();
                top.layer.dir.sync_folders_above(&key)?;
                top.layer.sync_journal()
            }
            _ => Ok(()),
        }
    }

    /// Locks the file, after a copy to the upper folder if the content is still in the store. If the write replaces the
    /// whole content (`empty`), only the attributes are copied.
    fn lock_copied(
        &self,
        context: &RequestContext,
        empty: bool,
    ) -> Result<MutexGuard<'_, FileState>> {
        let mut state = self.lock();
        loop {
            let ContentSource::Lower(reader) = &state.source else {
                return Ok(state);
            };
            if state.is_copying {
                self.copied.wait(&mut state);
                continue;
            }
            let (reader, key) = (reader.clone(), state.key_or_root());
            state.is_copying = true;
            drop(state);
            let copy = PendingCopy::of(&self.core, context, &*reader, &key, empty);
            state = self.lock();
            state.is_copying = false;
            self.copied.notify_all();
            let copy = copy?;
            // Set the recorded attributes on the copy, since they may have changed while the content was copied.
            if let Some(overrides) = self
                .core
                .top()
                .layer
                .attribute_override(&state.key_or_root())?
            {
                overrides
                    .apply_to(&copy.file)
                    .map_err(|error| Error::os("", error))?;
            }
            self.core.open.lock().ids.mark_written(self.id);
            state.set_copy(copy.name, Arc::new(copy.file));
            state.set_opened_content(copy.content);
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(spare) = state.reuse.spare.take() {
            spare.discard(&self.core.upper);
        }
        if let Some(name) = &state.pending {
            let upper = &self.core.upper;
            match (&state.key, &state.failed_writes) {
                (Some(key), Some(failed)) => {
                    log::warn!("{}; the old content stays", failed.error(key));
                    upper.pending.discard(name);
                    match self.core.top().layer.dir.stat(key) {
                        Ok(Some(_)) => self.core.mark_written(key),
                        _ => self.core.mark_removed(key),
                    }
                }
                (Some(_), None) if state.is_dirty => {
                    log::error!("cannot publish pending/{name}; the file stays there");
                }
                _ => upper.pending.discard(name),
            }
        }
        if let Some(key) = self.state.get_mut().key.take() {
            self.core.open.lock().files.unregister(&key, self);
        }
    }
}

impl Reader for OpenFile {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        match self.source() {
            ContentSource::Lower(reader) => reader.read_at(context, offset, len),
            ContentSource::Upper(file) | ContentSource::Frozen(file, _) => {
                content::read_file(&file, offset, len).map_err(|error| self.lock().os_error(error))
            }
        }
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        if let ContentSource::Lower(reader) = self.source() {
            return reader.read_vectored(context, offset, parts);
        }
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = Reader::read_at(self, context, offset, wanted)?;
        zarrfs_store::scatter(&bytes, parts);
        Ok(bytes.len())
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        Ok(self.stat(context)?.meta)
    }
}
