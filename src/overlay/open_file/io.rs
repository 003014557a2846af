//! What programs do with a file that is open: read, write, flush, sync, and look at its attributes.

use std::io::IoSliceMut;

use rustix::fs::{FallocateFlags, fallocate};

use super::OpenFile;
use super::state::ContentSource;
use crate::error::{Error, Result};
use crate::overlay::upper::os_error;
use crate::overlay::{attributes, content};
use crate::store::tree::{AttrChange, Stat, TreeFile};
use crate::store::{Meta, Reader};

impl OpenFile {
    /// Commits the file, if the overlay writes through. After a failure each flush tries again.
    fn write_through(&self) -> Result<()> {
        let Some(key) = self.key() else { return Ok(()) };
        self.lock().needs_write_through = true;
        self.core.write_through(&[key])?;
        self.lock().needs_write_through = false;
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        let mut state = self.lock();
        let file = state.writable(&self.core, size == 0)?;
        let done = file.set_len(size);
        state.note_write(&self.core);
        done.map_err(|error| state.os_error(error))?;
        state.clear_failed(&self.core, |failed| failed.truncated(size));
        Ok(())
    }
}

impl Reader for OpenFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        match self.source() {
            ContentSource::Lower(reader) => reader.read_at(offset, len),
            ContentSource::Upper(file) => {
                content::read_file(&file, offset, len).map_err(|error| self.lock().os_error(error))
            }
        }
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        if let ContentSource::Lower(reader) = self.source() {
            return reader.read_scattered(offset, parts);
        }
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = Reader::read_at(self, offset, wanted)?;
        crate::store::deal_out(&bytes, parts);
        Ok(bytes.len())
    }

    fn meta(&self) -> Result<Meta> {
        Ok(TreeFile::stat(self)?.meta)
    }
}

impl TreeFile for OpenFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        Reader::read_at(self, offset, len)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let file = state.writable(&self.core, false)?;
        state.write(&self.core, &file, offset, bytes)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        let mut state = self.state.try_lock()?;
        // The first write may have to copy the content.
        let is_ready = state.is_dirty && (state.pending.is_some() || state.is_incomplete);
        if !is_ready {
            return None;
        }
        let file = match state.writable(&self.core, false) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        Some(state.write(&self.core, &file, offset, bytes))
    }

    fn allocate(&self, mode: i32, range: (u64, u64)) -> Result<()> {
        let mut state = self.lock();
        let file = state.writable(&self.core, false)?;
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = fallocate(&*file, flags, range.0, range.1);
        state.note_write(&self.core);
        done.map_err(|error| state.os_error(error))
    }

    fn flush(&self) -> Result<()> {
        let state = self.lock();
        if !state.is_dirty && state.pending.is_none() && !state.needs_write_through {
            return Ok(());
        }
        drop(state);
        self.check_complete()?;
        let names = self.core.names.lock();
        self.publish_if_complete()?;
        drop(names);
        self.write_through()
    }

    fn sync(&self) -> Result<()> {
        let ContentSource::Upper(file) = self.source() else {
            return Ok(());
        };
        let synced = file.sync_all();
        synced.map_err(|error| self.lock().os_error(error))?;
        TreeFile::flush(self)?;
        match self.key().and_then(|key| key.parent()) {
            Some(folder) => self.core.sync_folder(&folder),
            None => Ok(()),
        }
    }

    fn stat(&self) -> Result<Stat> {
        let state = self.lock();
        match &state.source {
            ContentSource::Lower(reader) => Ok(Stat {
                meta: reader.meta()?,
                posix: None,
                content: self.content(),
            }),
            ContentSource::Upper(file) => {
                let stat = rustix::fs::fstat(file).map_err(Error::from)?;
                let key = state.key.as_ref();
                let number = key.map_or(0, |key| self.core.write_number(key));
                let mut posix = attributes::posix_of(&stat);
                if key.is_none() && state.pending.is_some() {
                    posix.links = 0;
                }
                // A committed file shows the attributes that all objects of the store have.
                let is_committed = key.is_some() && stat.st_nlink == 0;
                Ok(Stat {
                    meta: attributes::meta_of(&stat, number),
                    posix: (!is_committed).then_some(posix),
                    content: self.content(),
                })
            }
        }
    }

    fn change(&self, change: &AttrChange) -> Result<()> {
        if let Some(size) = change.size {
            self.resize(size)?;
        }
        let rest = AttrChange {
            size: None,
            ..*change
        };
        if rest == AttrChange::default() {
            return Ok(());
        }
        let file = self.upper_file_for_change()?;
        let key = self.lock().key_or_root();
        let file = file.ok_or_else(|| Error::read_only(&key))?;
        attributes::set_open(&*file, &rest).map_err(|error| os_error(&key, error))?;
        self.core.note_change(&key);
        Ok(())
    }
}
