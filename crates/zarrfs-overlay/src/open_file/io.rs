//! Reads, writes, flushes and syncs an open file, and gets its attributes.

use std::io::IoSliceMut;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};

use super::spare::WrittenRanges;
use super::state::ContentSource;
use super::{OpenFile, OpenedAs};
use crate::encodings::{MAX_DOCUMENT, NewContent, may_describe_array};
use crate::keys_dir::os_error;
use crate::layered_store::stat_of_stored;
use crate::{attributes, content};
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::{RequestContext, would_wait};
use zarrfs_store::tree::{AttrChange, Stat};
use zarrfs_store::{Key, Meta, Reader};

impl OpenFile {
    fn resize(&self, context: &RequestContext, size: u64) -> Result<()> {
        let mut state = self.lock_copied(context, size == 0)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, size == 0)?;
        let length = file
            .metadata()
            .map_err(|error| state.os_error(error))?
            .len();
        state.written.add(length.min(size)..length.max(size));
        let done = file.set_len(size);
        state.note_write(&self.core);
        done.map_err(|error| state.os_error(error))?;
        state.clear_failed(&self.core, |failed| failed.truncated(size));
        Ok(())
    }

    /// Writes all of `bytes` at `offset`.
    pub(super) fn write_at(
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
    pub(super) fn append(&self, context: &RequestContext, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock_copied(context, false)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, false)?;
        let end = file
            .metadata()
            .map_err(|error| state.os_error(error))?
            .len();
        state.write(&self.core, &file, end, bytes)
    }

    /// Writes only if the write needs no wait except for memory.
    fn write_in_memory(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.try_lock().ok_or_else(would_wait)?;
        // The first write may have to copy the content.
        let is_ready = state.is_dirty && (state.pending.is_some() || state.is_incomplete);
        if !is_ready {
            return Err(would_wait());
        }
        let file = state.writable(&self.core, false)?;
        state.write_in_memory(&self.core, &file, offset, bytes)
    }

    /// Allocates or changes a range like fallocate(2) with `mode`.
    pub(super) fn allocate(
        &self,
        context: &RequestContext,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let mut state = self.lock_copied(context, false)?;
        let _permit = context.permit_change()?;
        let file = state.writable(&self.core, false)?;
        // Some modes move the data behind the range.
        state.written = WrittenRanges::all();
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = fallocate(&*file, flags, offset, length);
        state.note_write(&self.core);
        done.map_err(|error| state.os_error(error))
    }

    /// Publishes the writes, and brings them into the store if the overlay uses write-through.
    pub(crate) fn flush(&self, context: &RequestContext) -> Result<()> {
        loop {
            let state = self.lock();
            state.check_revoked()?;
            // A copy for a write that was then refused is not a change.
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

    /// Computes the mark of the content before `flush` locks the names, because it takes long.
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
        // The mark is not used if the content changed in between.
        if matches!(&state.source, ContentSource::Upper(now) if Arc::ptr_eq(now, &file)) {
            state.mark = Some((changes, mark));
        }
        Ok(())
    }

    /// Flushes a file that has this key; returns whether it still had the key.
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
                change.note_document(key, content)?;
            }
            Ok(true)
        })?;
        if is_flushed {
            self.lock().needs_write_through = false;
        }
        Ok(is_flushed)
    }

    /// Returns the new content of a document, or `None` for any other file.
    fn new_content(&self, context: &RequestContext, key: &Key) -> Result<Option<NewContent>> {
        match self.source() {
            ContentSource::Upper(file) if may_describe_array(key) => {
                let length = usize::try_from(MAX_DOCUMENT).unwrap_or(usize::MAX);
                let bytes = content::read_file(&file, 0, length);
                let bytes = bytes.map_err(|error| self.lock().os_error(error))?;
                self.core.new_content(context, key, &bytes).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Syncs the file, so that its content survives a power loss.
    pub(super) fn sync(&self, context: &RequestContext) -> Result<()> {
        self.lock().check_revoked()?;
        self.flush(context)?;
        let file = match self.source() {
            // The store has the content.
            ContentSource::Lower(_) => return self.sync_kept_attributes(),
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
        self.core.sync_name(&top, &key)?;
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::os("", error))?;
        match mark {
            // It was written in between: the mark belongs to another file, and this file has the key.
            Some(mark) if mark.inode != stat.st_ino => self.core.sync_all(),
            Some(mark) => {
                top.layer.note_synced(&key, &mark)?;
                self.drop_replaced(top.layer.take_replaced(&key))
            }
            None => top.layer.sync_journal(),
        }
    }

    /// Removes replaced files from `pending/`, except for the file that the next write will reuse.
    fn drop_replaced(&self, names: Vec<String>) -> Result<()> {
        let upper = &self.core.upper;
        let mut state = self.lock();
        for name in names {
            match &mut state.spare {
                Some(spare) if spare.name == name && self.is_open_for_writing() => {
                    spare.name = upper
                        .set_spare(&name)
                        .map_err(|error| Error::os("", error))?;
                    spare.is_free = true;
                }
                _ => upper.discard_pending(&name),
            }
        }
        Ok(())
    }

    /// Returns the current `stat` of the file, even if it has no name any more.
    pub(crate) fn stat(&self, context: &RequestContext) -> Result<Stat> {
        let stat = self.stat_of_content(context)?;
        let kept = self.kept_attributes()?;
        Ok(kept.map_or(stat, |kept| kept.over(stat)))
    }

    /// Returns the `stat` without the kept attributes, which were set without the content.
    pub(super) fn stat_of_content(&self, context: &RequestContext) -> Result<Stat> {
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

    /// Returns the `stat` of a file that was copied up.
    fn stat_of_copy(&self, context: &RequestContext) -> Result<Stat> {
        let state = self.lock();
        let (stat, number) = match &state.source {
            // It is being copied up right now.
            ContentSource::Lower(reader) => return Ok(stat_of_stored(reader.meta(context)?)),
            ContentSource::Frozen(file, number) => (rustix::fs::fstat(file), *number),
            ContentSource::Upper(file) => {
                let key = state.key.as_ref();
                let number = key.map_or(0, |key| self.core.top().layer.write_number(key));
                (rustix::fs::fstat(file), number)
            }
        };
        let stat = stat.map_err(|error| Error::os("", error))?;
        let mut posix = attributes::posix_of(&stat);
        let is_frozen = matches!(state.source, ContentSource::Frozen(..));
        if !is_frozen && state.key.is_none() && state.pending.is_some() {
            posix.links = 0;
        }
        // A committed file shows the same attributes as all objects of the store.
        let is_committed = stat.st_nlink == 0 && (is_frozen || state.key.is_some());
        let mut meta = attributes::meta_of(&stat, number);
        if let OpenedAs::Stored(key, version) = &state.opened_as
            && state.key.as_ref() == Some(key)
            && (is_frozen || is_committed)
        {
            // The store has the content since a commit: reads of this handle have the store's version.
            meta.version = (*version).into();
        }
        Ok(Stat {
            meta,
            posix: (!is_committed).then_some(posix),
            content: self.id,
        })
    }

    /// Sets attributes.
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
        self.core.note_change(&self.lock().key_or_root());
        Ok(())
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
