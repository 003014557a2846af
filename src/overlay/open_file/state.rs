//! The content of an open file: where its bytes are, and how they get the file's key.
//!
//! The first write makes a pending file, a copy of what was there. Publishing it gives it the key in one step, so
//! that a crash before leaves the old content. A file that was just created lies under its key at once, marked as
//! incomplete in the journal. Files with several names, and very large ones, are changed in place.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::failed_writes::FailedWrites;
use crate::error::{Error, Result};
use crate::overlay::journal::JournalRecord;
use crate::overlay::upper::os_error;
use crate::overlay::{OverlayCore, attributes, content};
use crate::store::{Key, Reader, Version};

/// The state of an open file.
pub(super) struct FileState {
    /// `None` once the file has no name any more.
    pub(super) key: Option<Key>,
    pub(super) source: ContentSource,
    /// The file's name in `pending/`, if its content is not under its key yet.
    pub(super) pending: Option<String>,
    /// The file was created and is not marked as complete.
    pub(super) is_incomplete: bool,
    /// Something was written since the last flush.
    pub(super) is_dirty: bool,
    /// The store did not take the content when it was written through: the next flush tries again.
    pub(super) needs_write_through: bool,
    pub(super) failed_writes: Option<FailedWrites>,
    /// The key of the store that the file showed when it was opened, and its version then.
    pub(super) opened_as: Option<(Key, Version)>,
}

/// Where the content of an open file is.
#[derive(Clone)]
pub(super) enum ContentSource {
    Lower(Arc<dyn Reader>),
    Upper(Arc<File>),
}

/// Files that take more bytes than this on disk are changed in place.
const MAX_COPIED_BYTES: u64 = 256 << 20;

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
                let stat = rustix::fs::fstat(file).map_err(Error::from)?;
                Ok(stat.st_nlink == 0)
            }
            _ => Ok(false),
        }
    }

    /// Makes a pending file with a copy of the content, if the upper folder does not have the content.
    pub(super) fn copy_up(&mut self, core: &OverlayCore) -> Result<()> {
        if matches!(self.source, ContentSource::Lower(_)) || self.is_committed()? {
            self.start_pending(core, false)?;
        }
        Ok(())
    }

    /// Makes a pending file with a copy of the content, or an empty one, unless writes go to the file itself.
    fn start_pending(&mut self, core: &OverlayCore, empty: bool) -> Result<()> {
        if self.pending.is_some() || self.is_incomplete || self.is_changed_in_place(empty)? {
            return Ok(());
        }
        let key = self.key_or_root();
        let (name, file) = core
            .upper
            .create_pending(&key)
            .map_err(|error| os_error(&key, error))?;
        if let Err(error) = self.fill(core, &file, empty) {
            core.upper.discard_pending(&name);
            return Err(error.about(&key));
        }
        self.source = ContentSource::Upper(Arc::new(file));
        self.pending = Some(name);
        Ok(())
    }

    /// Whether writes go to the file itself: it has several names, or none, or is too large to be copied.
    fn is_changed_in_place(&self, empty: bool) -> Result<bool> {
        let ContentSource::Upper(file) = &self.source else {
            return Ok(false);
        };
        let stat = rustix::fs::fstat(file).map_err(Error::from)?;
        let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        // Without a link but with a key it was committed: it is not in the upper folder any more.
        let is_linked = stat.st_nlink > 0;
        let is_large = is_linked && !empty && size > MAX_COPIED_BYTES;
        Ok(stat.st_nlink > 1 || self.key.is_none() || is_large)
    }

    /// Copies attributes, and the content unless `empty`, to a pending file.
    fn fill(&self, core: &OverlayCore, to: &File, empty: bool) -> Result<()> {
        match &self.source {
            ContentSource::Upper(from) => {
                if !empty {
                    content::copy_data(from, to).map_err(|error| Error::os("", error))?;
                }
                content::copy_attributes(from, to).map_err(Error::from)
            }
            ContentSource::Lower(reader) => {
                if !empty {
                    content::copy_stored(&**reader, to)?;
                }
                let modified = reader.meta()?.modified;
                let change = core.initial_attributes(0o644, Some(modified));
                attributes::set_open(to, &change).map_err(Error::from)
            }
        }
    }

    /// Gives the content its key, if the file has one. The names must be locked.
    ///
    /// Fails like the write that failed if something is missing of the content.
    pub(super) fn publish(&mut self, core: &OverlayCore) -> Result<()> {
        let Some(key) = self.key.clone() else {
            return Ok(());
        };
        if let Some(missing) = self.missing() {
            return Err(missing.error(&key));
        }
        let mut records = Vec::new();
        if self.is_dirty || self.pending.is_some() {
            records.extend(self.base_records(core, &key)?);
        }
        if self.is_incomplete {
            records.push(JournalRecord::Completed(key.clone()));
        }
        core.make_parents(&key)?;
        core.record(records)?;
        self.is_incomplete = false;
        if let Some(name) = &self.pending {
            let published = core.upper.publish(name, &key);
            published.map_err(|error| os_error(&key, error))?;
            self.pending = None;
            core.note_write(&key);
        }
        self.is_dirty = false;
        Ok(())
    }

    /// Returns the records of the store's versions that the content replaces, unless they were recorded before.
    fn base_records(&self, core: &OverlayCore, key: &Key) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let mut same_content = !self.is_dirty;
        let mut opened_version = None;
        match &self.opened_as {
            Some((from, version)) if from == key => opened_version = Some(*version),
            // Renamed in the store: for the new key the content is another one, and the old key goes.
            Some((from, version)) => {
                same_content = false;
                records.extend(core.moved_base_record(from, *version));
            }
            None => {}
        }
        let version = match core.base(key) {
            Some(base) if base.same_content == same_content || same_content => return Ok(records),
            Some(base) => base.version,
            None if opened_version.is_some() => opened_version,
            None => core.lower.version(key)?,
        };
        records.push(JournalRecord::Base {
            key: key.clone(),
            version,
            same_content,
        });
        Ok(records)
    }

    /// Returns the file to write to, and marks the content as written. `empty` if all of it will be replaced.
    pub(super) fn writable(&mut self, core: &OverlayCore, empty: bool) -> Result<Arc<File>> {
        self.start_pending(core, empty)?;
        if !self.is_dirty {
            self.is_dirty = true;
            let is_in_place = self.pending.is_none() && !self.is_incomplete;
            // The base has to be in the journal before the content changes under its key.
            if let Some(key) = self.key.as_ref().filter(|_| is_in_place) {
                core.record(self.base_records(core, key)?)?;
            }
        }
        self.note_write(core);
        match &self.source {
            ContentSource::Upper(file) => Ok(file.clone()),
            ContentSource::Lower(_) => Err(Error::read_only(self.key_or_root())),
        }
    }

    /// Notes a write of the content: before it is made, so that a reader does not take a part of it for the
    /// whole, and again after it, since a reader may have come in between.
    pub(super) fn note_write(&self, core: &OverlayCore) {
        if let Some(key) = &self.key {
            core.note_write(key);
        }
        if let ContentSource::Upper(file) = &self.source
            && rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 1)
        {
            // The other names of the file are not known here.
            core.note_tree_change(&Key::root());
        }
    }

    /// Writes to the file that `writable` returned, and notes which bytes are missing if that fails.
    pub(super) fn write(
        &mut self,
        core: &OverlayCore,
        file: &File,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let range = offset..offset.saturating_add(bytes.len() as u64);
        let done = file.write_all_at(bytes, offset);
        self.note_write(core);
        match done {
            Ok(()) => {
                self.clear_failed(core, |failed| failed.without(range));
                Ok(())
            }
            Err(error) => {
                let error = self.os_error(error);
                self.add_failed(core, range, &error);
                Err(error)
            }
        }
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
            let mut state = core.state.lock();
            state.failed_writes.set(key, self.failed_writes.as_ref());
        }
    }

    /// Returns an error of the kernel about the file.
    pub(super) fn os_error(&self, error: impl Into<std::io::Error>) -> Error {
        Error::os(self.key_or_root(), error.into())
    }
}
