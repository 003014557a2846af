//! What programs do with a file that is open: read, write, flush, sync, and look at its attributes.
//!
//! A write that fails is remembered, and the file is not given its key before that is mended.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::FallocateFlags;

use super::failed_writes::FailedWrites;
use super::{ContentSource, FileState, OpenFile};
use crate::error::{Error, Result};
use crate::overlay::upper::failed;
use crate::overlay::{attributes, content};
use crate::store::tree::{AttrChange, Stat, TreeFile};
use crate::store::{Key, Meta, Reader};

impl OpenFile {
    /// Brings it into the store, if that is to be at once; until that is done each flush tries again.
    fn pass_on(&self) -> Result<()> {
        let Some(key) = self.key() else { return Ok(()) };
        self.body().is_unsent = true;
        self.shared.pass_on(&[key])?;
        self.body().is_unsent = false;
        Ok(())
    }

    fn resize(&self, size: u64) -> Result<()> {
        let mut body = self.body();
        let file = self.writable(&mut body, size == 0)?;
        let cut = file.set_len(size);
        self.count_write(&body);
        cut.map_err(|error| self.about(&body, error))?;
        self.mend(&mut body, |torn| torn.cut(size));
        Ok(())
    }

    /// Returns the file to write to, marked as written.
    fn writable(&self, body: &mut FileState, empty: bool) -> Result<Arc<File>> {
        self.begin(body, empty)?;
        if !body.is_dirty {
            body.is_dirty = true;
            if body.pending.is_none() && !body.is_born {
                // It is changed in place: that has to be known before.
                if let Some(key) = body.key.clone() {
                    let held = self.held(&key, body)?;
                    self.shared.note(held)?;
                }
            }
        }
        self.count_write(body);
        match &body.source {
            ContentSource::Upper(file) => Ok(file.clone()),
            ContentSource::Lower(_) => Err(Error::read_only(body.key.clone().unwrap_or_default())),
        }
    }

    /// Counts a write before it is made and once more after that: a reader may have come in between.
    fn count_write(&self, body: &FileState) {
        if let Some(key) = &body.key {
            self.shared.written(key);
        }
        if let ContentSource::Upper(file) = &body.source
            && rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 1)
        {
            // The file has other names, which are not known here.
            self.shared.tree_changed(&Key::root());
        }
    }

    fn write(&self, body: &mut FileState, file: &File, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = offset..offset.saturating_add(bytes.len() as u64);
        let done = file.write_all_at(bytes, offset);
        self.count_write(body);
        match done {
            Ok(()) => {
                self.mend(body, |torn| torn.written(written));
                Ok(())
            }
            Err(error) => {
                let error = self.about(body, error);
                body.torn = FailedWrites::failed(body.torn.take(), written, error.kind());
                self.remember(body);
                Err(error)
            }
        }
    }

    /// Takes note that something was written that was missing.
    fn mend(&self, body: &mut FileState, with: impl FnOnce(FailedWrites) -> Option<FailedWrites>) {
        if let Some(torn) = body.torn.take() {
            body.torn = with(torn);
            self.remember(body);
        }
    }

    /// Has the next who opens a file that was made know what is missing of it.
    fn remember(&self, body: &FileState) {
        let Some(key) = body.key.clone().filter(|_| body.is_born) else {
            return;
        };
        let torn = &mut self.shared.state.lock().torn;
        match &body.torn {
            Some(missing) => torn.insert(key, missing.clone()),
            None => torn.remove(&key),
        };
    }

    fn about(&self, body: &FileState, error: std::io::Error) -> Error {
        Error::os(body.key.clone().unwrap_or_default(), error)
    }
}

impl Reader for OpenFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        match self.source() {
            ContentSource::Lower(reader) => reader.read_at(offset, len),
            ContentSource::Upper(file) => content::read_native(&file, offset, len)
                .map_err(|error| self.about(&self.body(), error)),
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
        let mut body = self.body();
        let file = self.writable(&mut body, false)?;
        self.write(&mut body, &file, offset, bytes)
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        let mut body = self.body.try_lock()?;
        // The first write may have to copy what was there.
        let is_ready = body.is_dirty && (body.pending.is_some() || body.is_born);
        if !is_ready {
            return None;
        }
        let file = match self.writable(&mut body, false) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        Some(self.write(&mut body, &file, offset, bytes))
    }

    fn allocate(&self, mode: i32, range: (u64, u64)) -> Result<()> {
        let mut body = self.body();
        let file = self.writable(&mut body, false)?;
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let done = rustix::fs::fallocate(&*file, flags, range.0, range.1);
        self.count_write(&body);
        done.map_err(|error| self.about(&body, error.into()))
    }

    fn flush(&self) -> Result<()> {
        let body = self.body();
        if !body.is_dirty && body.pending.is_none() && !body.is_unsent {
            return Ok(());
        }
        drop(body);
        self.check_whole()?;
        let names = self.shared.names.lock();
        self.settle()?;
        drop(names);
        self.pass_on()
    }

    fn sync(&self) -> Result<()> {
        let ContentSource::Upper(file) = self.source() else {
            return Ok(());
        };
        let synced = file.sync_all();
        synced.map_err(|error| self.about(&self.body(), error))?;
        TreeFile::flush(self)?;
        let key = self.body().key.clone();
        match key.and_then(|key| key.parent()) {
            Some(folder) => self.shared.sync_folder(&folder),
            None => Ok(()),
        }
    }

    fn stat(&self) -> Result<Stat> {
        let body = self.body();
        match &body.source {
            ContentSource::Lower(reader) => Ok(Stat {
                meta: reader.meta()?,
                posix: None,
            }),
            ContentSource::Upper(file) => {
                let stat = rustix::fs::fstat(file).map_err(Error::from)?;
                let writes = body.key.as_ref().map_or(0, |key| self.shared.writes(key));
                let mut posix = attributes::posix_of(&stat);
                if body.key.is_none() && body.pending.is_some() {
                    posix.links = 0;
                }
                // One that was committed has the attributes that all of the store's have.
                let is_committed = body.key.is_some() && stat.st_nlink == 0;
                Ok(Stat {
                    meta: attributes::meta_of(&stat, writes),
                    posix: (!is_committed).then_some(posix),
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
        let Some(file) = self.native(true)? else {
            return Err(Error::read_only(
                self.body().key.clone().unwrap_or_default(),
            ));
        };
        let key = self.body().key.clone().unwrap_or_default();
        attributes::set_open(&*file, &rest).map_err(|error| failed(&key, error))?;
        self.shared.changed(&key);
        Ok(())
    }
}
