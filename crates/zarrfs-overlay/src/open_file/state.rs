//! The content of an open file: where its bytes are, and how they get the file's key.
//!
//! The first write makes a pending file, a copy of what was there. Publishing it gives it the key in one step, so
//! that a crash before leaves the old content. A file that was just created lies under its key at once, marked as
//! incomplete in the journal. Very large files are changed in place.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::OpenedAs;
use super::failed_writes::FailedWrites;
use super::spare::{SpareFile, WrittenRanges};
use crate::content::StoredContent;
use crate::derived::{DerivedDocument, has_program_copies};
use crate::journal_line::{ContentDigest, JournalRecord, Mark};
use crate::keys_dir::{inode_of, os_error};
use crate::name_change::NameChange;
use crate::{OverlayCore, content};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::would_wait;
use zarrfs_store::{Key, Reader};

/// The state of an open file.
pub(crate) struct FileState {
    /// `None` once the file has no name any more.
    pub(crate) key: Option<Key>,
    pub(crate) source: ContentSource,
    /// The file's name in `pending/`, if its content is not under its key yet.
    pub(crate) pending: Option<String>,
    /// The file was created and is not marked as complete.
    pub(crate) is_incomplete: bool,
    /// Something was written since the last flush.
    pub(super) is_dirty: bool,
    /// How many changes of the content have begun.
    pub(super) changes: u64,
    /// The mark of the content after this many changes.
    pub(super) mark: Option<(u64, Mark)>,
    /// The key got another content by something else than a program at work on names: writes are refused.
    pub(crate) is_revoked: bool,
    /// Where the pending file differs from the one that it was copied from.
    pub(super) written: WrittenRanges,
    /// The layer's file that the pending one was copied from.
    pub(super) previous: Option<Arc<File>>,
    pub(super) spare: Option<SpareFile>,
    /// A thread is copying the content from the store.
    pub(super) is_copying: bool,
    /// The store did not take the content when it was written through: the next flush tries again.
    pub(super) needs_write_through: bool,
    pub(super) failed_writes: Option<FailedWrites>,
    pub(crate) opened_as: OpenedAs,
    /// The document that the content was when the file was opened, if its copies are derived.
    pub(super) derived: Option<Arc<DerivedDocument>>,
    /// Length and digest of the content that the file was opened on, if they are known.
    pub(crate) opened_content: Option<ContentDigest>,
}

/// Where the content of an open file is.
#[derive(Clone)]
pub(crate) enum ContentSource {
    /// In the store.
    Lower(Arc<dyn Reader>),
    /// In a frozen layer, with the number of its last write; it does not change any more.
    Frozen(Arc<File>, u64),
    /// In the layer on top, or in `pending/`.
    Upper(Arc<File>),
}

/// Files that take more bytes than this on disk are changed in place.
const MAX_COPIED_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 256 << 20 };

impl FileState {
    /// Returns the key for messages; the root's once the file has no name.
    pub(super) fn key_or_root(&self) -> Key {
        self.key.clone().unwrap_or_default()
    }

    /// Returns what is missing of a content that has no key yet. Files that are changed in place have theirs.
    pub(super) fn missing(&self) -> Option<&FailedWrites> {
        let is_unpublished = self.pending.is_some() || self.is_incomplete;
        self.failed_writes.as_ref().filter(|_| is_unpublished)
    }

    /// Whether the upper folder has dropped the content, because the store has it since a commit.
    pub(super) fn is_committed(&self) -> Result<bool> {
        match &self.source {
            ContentSource::Upper(file) if self.key.is_some() => {
                let stat = rustix::fs::fstat(file).map_err(|error| Error::os("", error))?;
                Ok(stat.st_nlink == 0)
            }
            _ => Ok(false),
        }
    }

    /// `Changed` once the file has lost its key to another content.
    pub(super) fn check_revoked(&self) -> Result<()> {
        if self.is_revoked && self.is_dirty {
            let why = "what was written is not kept: the file was replaced or discarded meanwhile";
            return Err(Error::new(Kind::Changed, "file", why));
        }
        Ok(())
    }

    /// Makes a pending file with a copy of the content, or an empty one, unless writes go to the file itself. What the
    /// store has was copied before.
    fn start_pending(&mut self, core: &OverlayCore, empty: bool) -> Result<()> {
        if self.pending.is_some() || self.is_incomplete {
            return Ok(());
        }
        let is_in_place = self.is_changed_in_place(empty)?;
        if let Some(spare) = self.spare.take() {
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
            .create_pending(&key)
            .map_err(|error| os_error(&key, error))?;
        let kept = core.top().layer.kept_attributes(&key)?;
        let filled = core.with_room(|| self.fill(&file, empty)).and_then(|()| {
            let given = kept.map_or(Ok(()), |kept| kept.give_to(&file));
            given.map_err(|error| Error::os("", error))
        });
        if let Err(error) = filled {
            core.upper.discard_pending(&name);
            return Err(error.about(&key));
        }
        self.set_copy(name, Arc::new(file));
        if empty {
            self.written = WrittenRanges::all();
        }
        Ok(())
    }

    /// Has the next write go to the spare file; returns whether that has a name of a pending file and the content.
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
        let name = core.upper.rename_pending(&spare.name, &key);
        let name = name.map_err(|error| os_error(&key, error))?;
        self.set_copy(name, spare.file.clone());
        Ok(true)
    }

    /// Takes a pending file of this name for the content from now on.
    pub(super) fn set_copy(&mut self, name: String, file: Arc<File>) {
        self.previous = match &self.source {
            ContentSource::Upper(previous) => Some(previous.clone()),
            _ => None,
        };
        self.source = ContentSource::Upper(file);
        self.pending = Some(name);
        self.written = WrittenRanges::default();
        self.mark = None;
    }

    /// Notes which content the store had when it was copied, unless the file was opened on another one.
    pub(super) fn note_opened_content(&mut self, copied: Option<StoredContent>) {
        let OpenedAs::Stored(_, opened) = self.opened_as else {
            return;
        };
        let copied = copied.filter(|(version, _)| version.may_be(opened.into()));
        self.opened_content = copied.map(|(_, content)| content);
    }

    /// Notes that a file that was replaced has this name in `pending/`, until the disk has the one that took its place.
    fn note_replaced(&mut self, name: String, inode: u64) {
        let stale = std::mem::take(&mut self.written);
        let file = self.previous.take();
        let is_it =
            |file: &Arc<File>| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_ino == inode);
        self.spare = file.filter(is_it).map(|file| SpareFile {
            name,
            file,
            stale,
            is_free: false,
        });
    }

    /// Whether writes go to the file itself: it has no name, or is too large to be copied.
    fn is_changed_in_place(&self, empty: bool) -> Result<bool> {
        let ContentSource::Upper(file) = &self.source else {
            return Ok(false);
        };
        let stat = rustix::fs::fstat(file).map_err(|error| Error::os("", error))?;
        let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        // Without a link but with a key it was committed: it is not in the upper folder any more.
        let is_linked = stat.st_nlink > 0;
        let is_large = is_linked && !empty && size > MAX_COPIED_BYTES;
        Ok(self.key.is_none() || is_large)
    }

    /// Copies attributes, and the content unless `empty`, to a pending file.
    fn fill(&self, to: &File, empty: bool) -> Result<()> {
        let from = match &self.source {
            ContentSource::Upper(from) | ContentSource::Frozen(from, _) => from,
            // `lock_copied` has copied it.
            ContentSource::Lower(_) => return Err(Error::read_only(self.key_or_root())),
        };
        if !empty {
            content::copy_data(from, to).map_err(|error| Error::os("", error))?;
        }
        content::copy_attributes(from, to).map_err(|error| Error::os("", error))
    }

    /// Gives the content its key, if the file has one; `id` is the file's number.
    ///
    /// Fails like the write that failed if something is missing of the content.
    pub(super) fn publish(&mut self, change: &NameChange<'_>, id: u64) -> Result<()> {
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
            let shape = change.top.layer.reshape();
            let replaced = change.top.layer.publish(&change.upper, name, &key)?;
            drop(shape);
            if let Some((name, inode)) = replaced {
                self.note_replaced(name, inode);
            }
            self.pending = None;
            change.note_write(&key);
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Returns the record of the content's mark, unless the file is changed in place: then the journal has that already.
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

    /// Returns the record of copies of documents that a program has written.
    fn copies_record(&self, key: &Key) -> Result<Option<JournalRecord>> {
        let is_written = self.is_dirty || self.derived.is_some();
        match &self.source {
            ContentSource::Upper(file) if is_written && has_program_copies(key, file)? => {
                Ok(Some(JournalRecord::CopiesWritten(key.clone())))
            }
            _ => Ok(None),
        }
    }

    /// Gives the layer's file the number of this one.
    fn set_id(&self, change: &NameChange<'_>, key: &Key, id: u64) -> Result<()> {
        if let ContentSource::Upper(file) = &self.source {
            let inode = inode_of(key, file)?;
            change.open.lock().ids.set(key, id, inode);
        }
        Ok(())
    }

    /// Returns the records of the store's versions that the content replaces, unless they were recorded before.
    fn base_records(&self, change: &NameChange<'_>, key: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let mut opened_version = None;
        match &self.opened_as {
            OpenedAs::Stored(from, version) if from == key => opened_version = Some(*version),
            // Renamed in the store: for the new key the content is another one, and the old key goes.
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
            (None, Some(version)) if !change.is_frozen(key)? => Some(JournalRecord::Base {
                key: key.clone(),
                version: Some(version),
                is_frozen: false,
                content: self.opened_content,
            }),
            _ => change.base_record(key, content::MAX_REPLACED)?,
        };
        records.extend(found);
        Ok(records)
    }

    /// Returns the file to write to, and marks the content as written. `empty` if all of it will be replaced.
    pub(super) fn writable(&mut self, core: &OverlayCore, empty: bool) -> Result<Arc<File>> {
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
        self.note_write(core);
        match &self.source {
            ContentSource::Upper(file) => Ok(file.clone()),
            _ => Err(Error::read_only(self.key_or_root())),
        }
    }

    /// Records that the content under a key is about to change in place. Such a file has a base, by which the store may have
    /// the content that it had. Its inode alone tells from now on that the key has it; the disk knows
    /// that before it has a part of the change.
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

    /// Notes a write of the content: before it is made, so that a reader does not take a part of it for the
    /// whole, and again after it, since a reader may have come in between.
    pub(super) fn note_write(&self, core: &OverlayCore) {
        if let Some(key) = &self.key {
            core.note_write(key);
        }
    }

    /// Writes to the file that `writable` returned, and notes which bytes are missing if that fails. On a full disk it waits
    /// for room if there may be some.
    pub(super) fn write(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let mut done = self.write_once(core, file, offset, bytes);
        if is_full(&done) && core.has_made_room() {
            done = self.write_once(core, file, offset, bytes);
        }
        self.note_outcome(core, offset, bytes, done)
    }

    /// The same without waiting; `WouldWait` if there may be room after a wait.
    pub(super) fn write_in_memory(
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
        self.note_outcome(core, offset, bytes, done)
    }

    fn write_once(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        self.note_range(file, offset..offset.saturating_add(bytes.len() as u64))?;
        let done = file.write_all_at(bytes, offset);
        self.note_write(core);
        done.map_err(|error| self.os_error(error))
    }

    /// Notes which bytes of the content are missing after a write.
    fn note_outcome(
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

    /// Notes that a range is about to be written; what lies between the end of the file and the range becomes zeros.
    pub(super) fn note_range(&mut self, file: &File, range: Range<u64>) -> Result<()> {
        let length = file.metadata().map_err(|error| self.os_error(error))?.len();
        self.written.add(length.min(range.start)..range.end);
        Ok(())
    }

    fn add_failed(&mut self, core: &OverlayCore, range: Range<u64>, error: &Error) {
        let before = self.failed_writes.take();
        self.failed_writes = FailedWrites::with_failure(before, range, error.kind());
        self.share_failed(core);
    }

    /// Reduces what is missing of the content after a change that succeeded.
    pub(super) fn clear_failed(
        &mut self,
        core: &OverlayCore,
        reduce: impl FnOnce(FailedWrites) -> Option<FailedWrites>,
    ) {
        if let Some(failed) = self.failed_writes.take() {
            self.failed_writes = reduce(failed);
            self.share_failed(core);
        }
    }

    /// Keeps what is missing of a file under its key, for the next time that it is opened.
    fn share_failed(&self, core: &OverlayCore) {
        if let Some(key) = self.key.as_ref().filter(|_| self.is_incomplete) {
            let mut open = core.open.lock();
            open.failed_writes.set(key, self.failed_writes.as_ref());
        }
    }

    /// Returns an error of the kernel about the file.
    pub(super) fn os_error(&self, error: impl Into<std::io::Error>) -> Error {
        Error::os(self.key_or_root(), error.into())
    }
}

/// Whether a write has failed since the disk is full.
fn is_full(done: &Result<()>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::NoSpace)
}
