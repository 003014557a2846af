//! Holds the content of an open file, and publishes it under its key.
//!
//! The first write creates a pending file with a copy of the content. A flush publishes it: it moves the pending file
//! to the key atomically, so a crash before leaves the old content. A newly created file is under its key at once, and
//! the journal records that it is incomplete. Very large files are changed in place.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::content;
use crate::content::StoredContent;
use crate::derived::DerivedDocument;
use crate::derived::has_program_copies;
use crate::journal_record::{ContentDigest, JournalRecord, Mark};
use crate::layer_dir::{inode_of, os_error, with_room_hint};
use crate::name_change::NameChange;
use crate::open_file::pending_copy::{FileReuse, SpareFile, WrittenRanges};
use crate::open_file::table::FailedWrites;
use crate::overlay_core::OverlayCore;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::would_wait;
use zarrfs_store::{Key, Reader, StoreVersion};

/// The state of an open file: its key, its content and its unpublished writes.
pub(crate) struct FileState {
    /// The file's key; `None` if the file was removed or replaced.
    pub(crate) key: Option<Key>,
    pub(crate) source: ContentSource,
    /// The file's name in `pending/`; `None` if the content is published under the key.
    pub(crate) pending: Option<String>,
    /// Whether the file is new, and the journal does not have it as complete yet.
    pub(crate) is_incomplete: bool,
    /// Whether programs have written to the file since the last flush.
    pub(crate) is_dirty: bool,
    /// Number of changes of the content so far, including a change that is in progress.
    pub(crate) changes: u64,
    /// Inode, length and digest of the content, with the value of `changes` at that time.
    pub(crate) mark: Option<(u64, Mark)>,
    /// Whether the key got another content (not by a rename or removal), so that the file lost the key and later writes
    /// fail.
    pub(crate) is_revoked: bool,
    pub(crate) reuse: FileReuse,
    /// Whether a thread is copying the content from the store to the upper folder.
    pub(crate) is_copying: bool,
    /// Whether the content is not in the store because write-through has failed. The next flush retries it.
    pub(crate) needs_write_through: bool,
    pub(crate) failed_writes: Option<FailedWrites>,
    pub(crate) opened_as: OpenedAs,
    /// The consolidated metadata that the file was opened on, if its copies differ from the stored text.
    pub(crate) derived: Option<Arc<DerivedDocument>>,
    /// Length and digest of the store's object that the file was opened on, if they are known.
    pub(crate) opened_content: Option<ContentDigest>,
}

pub(crate) struct StoredVersion {
    pub(crate) key: Key,
    pub(crate) version: StoreVersion,
}

/// The content that a file had when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenedAs {
    /// A file of the upper folder, or a file that was created by the open.
    Upper,
    /// An object of the store, with its key and version.
    Stored(Key, StoreVersion),
    /// A file of the frozen layer. The unfinished commit determines its version in the store.
    Frozen,
}

/// Where the content of an open file is now.
#[derive(Clone)]
pub(crate) enum ContentSource {
    /// In the store.
    Lower(Arc<dyn Reader>),
    /// In the frozen layer, whose files do not change. The number is the generation of the key.
    Frozen(Arc<File>, u64),
    /// In the top layer, or in `pending/`.
    Upper(Arc<File>),
}

/// Maximum disk space in bytes of a file that is copied before a write; larger files are changed in place.
const MAX_COPIED_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 256 << 20 };

impl FileState {
    /// Returns the file's key for an error message, or the root if the file has no key.
    pub(crate) fn key_or_root(&self) -> Key {
        self.key.clone().unwrap_or_default()
    }

    /// Returns the failed writes that make an unpublished content incomplete. A file that is changed in place has none,
    /// since it is already published.
    pub(crate) fn missing(&self) -> Option<&FailedWrites> {
        let is_unpublished = self.pending.is_some() || self.is_incomplete;
        self.failed_writes.as_ref().filter(|_| is_unpublished)
    }

    /// Whether the file is gone from the upper folder, because its content was committed.
    pub(crate) fn is_committed(&self) -> Result<bool> {
        match &self.source {
            ContentSource::Upper(file) if self.key.is_some() => {
                let stat = rustix::fs::fstat(file).map_err(|error| Error::os("", error))?;
                Ok(stat.st_nlink == 0)
            }
            _ => Ok(false),
        }
    }

    /// Fails with `Changed` if the file has unpublished writes that are lost, because its key got another content.
    pub(crate) fn check_revoked(&self) -> Result<()> {
        if self.is_revoked && self.is_dirty {
            let why = "the changes are lost: the file was replaced or discarded while it was open";
            return Err(Error::new(Kind::Changed, "file", why));
        }
        Ok(())
    }

    /// Creates a pending file for the next write, with a copy of the content or empty (`empty`). Nothing is done if the
    /// file is changed in place. A content in the store must have been copied before.
    fn start_pending(&mut self, core: &OverlayCore, empty: bool) -> Result<()> {
        if self.pending.is_some() || self.is_incomplete {
            return Ok(());
        }
        let is_in_place = self.is_changed_in_place(empty)?;
        if let Some(spare) = self.reuse.spare.take() {
            if !empty && !is_in_place && self.write_spare(core, &spare)? {
                return Ok(());
            }
            spare.discard(&core.upper);
        }
        if is_in_place {
            return Ok(());
        }
        let key = self.key_or_root();
        let (name, file) = core
            .upper
            .pending
            .create(&key)
            .map_err(|error| os_error(&key, error))?;
        let overrides = core.top().layer.attribute_override(&key)?;
        let filled = core.with_room(|| self.fill(&file, empty)).and_then(|()| {
            let applied = overrides.map_or(Ok(()), |overrides| overrides.apply_to(&file));
            applied.map_err(|error| Error::os("", error))
        });
        if let Err(error) = filled {
            core.upper.pending.discard(&name);
            return Err(error.about(&key));
        }
        self.set_copy(name, Arc::new(file));
        if empty {
            self.reuse.written = WrittenRanges::all();
        }
        Ok(())
    }

    /// Makes the spare file the pending file, and copies what differs to it. Returns `false` if the spare file cannot
    /// be used.
    fn write_spare(&mut self, core: &OverlayCore, spare: &SpareFile) -> Result<bool> {
        let ContentSource::Upper(current) = &self.source else {
            return Ok(false);
        };
        if !spare.is_free || self.is_committed()? {
            return Ok(false);
        }
        let caught_up = spare.catch_up(current);
        caught_up.map_err(|error| self.os_error(error))?;
        let key = self.key_or_root();
        let name = core.upper.pending.rename(&spare.name, &key);
        let name = name.map_err(|error| os_error(&key, error))?;
        self.set_copy(name, spare.file.clone());
        Ok(true)
    }

    /// Makes a pending file, whose name is given, the content of this open file.
    pub(crate) fn set_copy(&mut self, name: String, file: Arc<File>) {
        let previous = match &self.source {
            ContentSource::Upper(previous) => Some(previous.clone()),
            _ => None,
        };
        self.reuse.start(previous);
        self.source = ContentSource::Upper(file);
        self.pending = Some(name);
        self.mark = None;
    }

    /// Remembers length and digest of the object that was copied from the store, if it is the version that the file was
    /// opened on.
    pub(crate) fn set_opened_content(&mut self, copied: Option<StoredContent>) {
        let OpenedAs::Stored(_, opened) = self.opened_as else {
            return;
        };
        let copied = copied.filter(|copied| copied.version.may_be(opened.into()));
        self.opened_content = copied.map(|copied| copied.content);
    }

    /// Whether the file is changed in place, because it has no name or is too large to be copied.
    fn is_changed_in_place(&self, empty: bool) -> Result<bool> {
        let ContentSource::Upper(file) = &self.source else {
            return Ok(false);
        };
        let stat = rustix::fs::fstat(file).map_err(|error| Error::os("", error))?;
        let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        // Copy a file that has a key but no link, because it was committed and is not in the upper folder any more.
        let is_linked = stat.st_nlink > 0;
        let is_large = is_linked && !empty && size > MAX_COPIED_BYTES;
        Ok(self.key.is_none() || is_large)
    }

    /// Copies the attributes of the content to a pending file, and also its bytes unless `empty`.
    fn fill(&self, to: &File, empty: bool) -> Result<()> {
        let from = match &self.source {
            ContentSource::Upper(from) | ContentSource::Frozen(from, _) => from,
            // This does not happen, because `lock_copied` copies a content from the store before.
            ContentSource::Lower(_) => return Err(Error::read_only(self.key_or_root())),
        };
        if !empty {
            content::copy_data(from, to).map_err(|error| Error::os("", error))?;
        }
        content::copy_attributes(from, to).map_err(|error| Error::os("", error))
    }

    /// Publishes the pending content under the file's key, if the file has a key. `id` is the file's ID.
    ///
    /// Fails with the error of a failed write if it makes the content incomplete.
    pub(crate) fn publish(&mut self, change: &NameChange<'_>, id: u64) -> Result<()> {
        let Some(key) = self.key.clone() else {
            return Ok(());
        };
        if let Some(missing) = self.missing() {
            return Err(missing.error(&key));
        }
        let mut records = Vec::new();
        if self.is_dirty || self.pending.is_some() {
            records.extend(self.base_records(change, &key)?);
        }
        if self.is_incomplete {
            records.push(JournalRecord::Completed(key.clone()));
        }
        records.extend(self.mark_record(&key)?);
        records.extend(self.copies_record(&key)?);
        change.make_parents(&key)?;
        change.record(records)?;
        self.is_incomplete = false;
        self.set_id(change, &key, id)?;
        if let Some(name) = &self.pending {
            let layout = change.top.layer.write_layout();
            let replaced = change.top.layer.publish(&change.upper, name, &key)?;
            drop(layout);
            if let Some((name, inode)) = replaced {
                self.reuse.keep_replaced(name, inode);
            }
            self.pending = None;
            change.mark_written(&key);
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Returns a record of the content's inode, length and digest. Returns `None` if the file is changed in place,
    /// because it was recorded before the first change.
    fn mark_record(&mut self, key: &Key) -> Result<Option<JournalRecord>> {
        let is_in_place = self.pending.is_none() && !self.is_incomplete;
        let ContentSource::Upper(file) = &self.source else {
            return Ok(None);
        };
        if is_in_place {
            return Ok(None);
        }
        let known = self.mark.filter(|(changes, _)| *changes == self.changes);
        let mark = match known {
            Some((_, mark)) => mark,
            None => content::mark_of(file).map_err(|error| Error::os(key, error))?,
        };
        self.mark = Some((self.changes, mark));
        let key = key.clone();
        Ok(Some(JournalRecord::Written { key, mark }))
    }

    /// Returns a record that consolidated metadata was written by a program, together with its copies; `None` for other
    /// files.
    fn copies_record(&self, key: &Key) -> Result<Option<JournalRecord>> {
        let is_written = self.is_dirty || self.derived.is_some();
        match &self.source {
            ContentSource::Upper(file) if is_written && has_program_copies(key, file)? => {
                Ok(Some(JournalRecord::CopiesWritten(key.clone())))
            }
            _ => Ok(None),
        }
    }

    /// Gives the file of the upper folder the ID of this open file.
    fn set_id(&self, change: &NameChange<'_>, key: &Key, id: u64) -> Result<()> {
        if let ContentSource::Upper(file) = &self.source {
            let inode = inode_of(key, file)?;
            change.open.lock().ids.set(key, id, inode);
        }
        Ok(())
    }

    /// Returns records of the store's versions that the new content replaces, if they are not recorded yet.
    fn base_records(&self, change: &NameChange<'_>, key: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let mut opened_version = None;
        match &self.opened_as {
            OpenedAs::Stored(from, version) if from == key => opened_version = Some(*version),
            // The object was renamed on the mount: the content goes to its new key, and its old key will be removed.
            OpenedAs::Stored(from, version) => {
                let content = self.opened_content;
                records.extend(change.moved_base_record(from, (*version).into(), content)?);
            }
            OpenedAs::Upper | OpenedAs::Frozen => {}
        }
        let base = change.top.layer.base(key);
        if base.is_some_and(|base| !base.is_committed) {
            return Ok(records);
        }
        let found = match (base, opened_version) {
            (None, Some(version)) if !change.is_frozen(key)? => {
                Some(JournalRecord::base(key, Some(version), self.opened_content))
            }
            _ => change.base_record(key, content::MAX_REPLACED)?,
        };
        records.extend(found);
        Ok(records)
    }

    /// Returns the file to write to, and marks the open file as written. `empty` tells that the whole content will be
    /// replaced.
    pub(crate) fn writable(&mut self, core: &OverlayCore, empty: bool) -> Result<Arc<File>> {
        if self.is_revoked {
            let why = "was replaced or discarded while it was open";
            return Err(Error::new(Kind::Changed, "file", why));
        }
        self.start_pending(core, empty)?;
        self.changes += 1;
        if !self.is_dirty {
            self.is_dirty = true;
            self.record_change_in_place(core)?;
        }
        self.mark_written(core);
        match &self.source {
            ContentSource::Upper(file) => Ok(file.clone()),
            _ => Err(Error::read_only(self.key_or_root())),
        }
    }

    /// Records and syncs that a file is about to change in place, before any change can be on disk. From now on only
    /// the inode identifies the content, because the digest changes. The recorded version of the store stays, since it
    /// tells whether the store may have the previous content.
    fn record_change_in_place(&self, core: &OverlayCore) -> Result<()> {
        let is_in_place = self.pending.is_none() && !self.is_incomplete;
        let Some(key) = self.key.as_ref().filter(|_| is_in_place) else {
            return Ok(());
        };
        let ContentSource::Upper(file) = &self.source else {
            return Ok(());
        };
        let layer = &core.top().layer;
        let base = layer.base(key).filter(|base| base.is_committed);
        let base = base.map(|base| JournalRecord::Base {
            key: key.clone(),
            version: base.version,
            is_frozen: base.is_frozen,
            content: None,
        });
        let mark = content::mark_with(file, None).map_err(|error| Error::os(key, error))?;
        let key = key.clone();
        let written = JournalRecord::Written { key, mark };
        layer.record(base.into_iter().chain([written]).collect())?;
        layer.sync_journal()
    }

    /// Invalidates cached answers about the file after a write. It is also called before the write, so that no reader
    /// takes a half-written content for the old one.
    pub(crate) fn mark_written(&self, core: &OverlayCore) {
        if let Some(key) = &self.key {
            core.mark_written(key);
        }
    }

    /// Writes to a file, which must come from `writable`, and records the missing bytes if the write fails. If the disk
    /// is full, waits for a sync that frees space.
    pub(crate) fn write(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let mut done = self.write_once(core, file, offset, bytes);
        if is_full(&done) && core.make_room() {
            done = self.write_once(core, file, offset, bytes);
        }
        self.record_outcome(core, offset, bytes, done)
    }

    /// Writes to a file without waiting. Fails with `WouldWait` if the disk is full and a sync may free space.
    pub(crate) fn write_in_memory(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let done = self.write_once(core, file, offset, bytes);
        if is_full(&done) && core.has_retained() {
            return Err(would_wait());
        }
        self.record_outcome(core, offset, bytes, done)
    }

    fn write_once(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.mark_range(file, offset..offset.saturating_add(bytes.len() as u64))?;
        let done = file.write_all_at(bytes, offset);
        self.mark_written(core);
        done.map_err(|error| self.os_error(error))
    }

    /// Updates the record of bytes that failed writes have left out, after a write.
    fn record_outcome(
        &mut self,
        core: &OverlayCore,
        offset: u64,
        bytes: &[u8],
        done: Result<()>,
    ) -> Result<()> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        match &done {
            Ok(()) => self.clear_failed(core, |failed| failed.without(range)),
            Err(error) => self.add_failed(core, range, error),
        }
        done
    }

    /// Records that a range of the pending file is about to be written. The gap between the end of the file and the
    /// range is included, because it becomes zeros.
    pub(crate) fn mark_range(&mut self, file: &File, range: Range<u64>) -> Result<()> {
        let length = file.metadata().map_err(|error| self.os_error(error))?.len();
        self.reuse.written.add(length.min(range.start)..range.end);
        Ok(())
    }

    fn add_failed(&mut self, core: &OverlayCore, range: Range<u64>, error: &Error) {
        let before = self.failed_writes.take();
        self.failed_writes = FailedWrites::with_failure(before, range, error.kind());
        self.share_failed(core);
    }

    /// Updates the ranges that failed writes have left out, after a change that fills or cuts some of them.
    pub(crate) fn clear_failed(
        &mut self,
        core: &OverlayCore,
        reduce: impl FnOnce(FailedWrites) -> Option<FailedWrites>,
    ) {
        if let Some(failed) = self.failed_writes.take() {
            self.failed_writes = reduce(failed);
            self.share_failed(core);
        }
    }

    /// Saves the ranges that failed writes have left out under the file's key, because the file may be closed and
    /// opened again.
    fn share_failed(&self, core: &OverlayCore) {
        if let Some(key) = self.key.as_ref().filter(|_| self.is_incomplete) {
            let mut open = core.open.lock();
            open.failed_writes.set(key, self.failed_writes.as_ref());
        }
    }

    pub(crate) fn os_error(&self, error: impl Into<std::io::Error>) -> Error {
        with_room_hint(Error::os(self.key_or_root(), error.into()))
    }
}

/// Whether a write has failed because the disk is full.
fn is_full(done: &Result<()>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::NoSpace)
}
