//! Open files: opening, reading, closing, and which content the kernel's pages are of.
//!
//! A handle holds what it was opened on and the number of that content. The kernel's pages of an inode belong to all
//! of its handles, so a handle whose content was replaced is refused rather than read, and the kernel is told to drop
//! its pages.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::store::tree::TreeFile;
use crate::vfs::{Fh, FileHandle, Ino, Invalidation, OpenReply, Vfs};
use crate::view::{Attr, ReadBytes};

/// The most inodes of which the content of the kernel's pages is remembered.
const MAX_CACHED: usize = 1 << 16;

impl FileHandle {
    /// Returns the file to be written; `Invalid` if it was not opened for that.
    pub(super) fn writer(&self) -> Result<&Arc<dyn TreeFile>> {
        let writer = self.writer.as_ref();
        writer.ok_or_else(|| Error::invalid(&self.path, "is not open for writing"))
    }
}

impl Vfs {
    /// Opens a file for reading.
    pub fn open(&self, ino: Ino) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let path = self.inodes.path(ino)?;
        let opened = self.view.open(&path)?;
        let keep_cache = self.keep_cache(ino, opened.version);
        if !keep_cache {
            // The kernel cuts the content off at the length that it has.
            self.invalidate(ino, Invalidation::Length);
        }
        let fh = self.add_file(FileHandle {
            ino,
            path,
            file: opened.file,
            version: opened.version,
            writer: None,
        });
        Ok(OpenReply {
            fh,
            keep_cache,
            direct: opened.direct,
            writes: false,
        })
    }

    pub(super) fn add_file(&self, file: FileHandle) -> Fh {
        let fh = self.new_handle();
        self.files.write().insert(fh, Arc::new(file));
        fh
    }

    /// Notes the content that the kernel's pages of an inode are of from now on; returns whether they were before.
    pub(super) fn keep_cache(&self, ino: Ino, version: Option<u64>) -> bool {
        let mut cached = self.cached.lock();
        let Some(version) = version else {
            cached.remove(&ino);
            return false;
        };
        if cached.len() >= MAX_CACHED {
            cached.clear();
        }
        cached.insert(ino, version) == Some(version)
    }

    pub(super) fn file(&self, fh: Fh) -> Result<Arc<FileHandle>> {
        let files = self.files.read();
        let open = files.get(&fh).cloned();
        open.ok_or_else(|| Error::invalid("handle", "is not open"))
    }

    /// Returns an open file of an inode.
    pub(super) fn open_file(
        &self,
        ino: Ino,
        fits: impl Fn(&FileHandle) -> bool,
    ) -> Option<Arc<FileHandle>> {
        let files = self.files.read();
        let open = files.values().find(|open| open.ino == ino && fits(open));
        open.cloned()
    }

    /// Returns what `stat` shows of an inode that is open.
    pub(super) fn open_attr(&self, ino: Ino) -> Option<Attr> {
        self.open_file(ino, |_| true)?.file.attr()
    }

    /// Returns bytes of an open file if they are in memory.
    pub fn read_now(&self, fh: Fh, offset: u64, len: usize) -> Option<Result<ReadBytes>> {
        let open = match self.file(fh) {
            Ok(open) => open,
            Err(error) => return Some(Err(error)),
        };
        let bytes = open.file.read_now(offset, len)?;
        if let Err(error) = self.check_current(&open) {
            return Some(Err(error));
        }
        self.stats.read_immediate_requests.add(1);
        self.count_read(&bytes);
        Some(Ok(bytes))
    }

    /// Returns bytes of an open file, fewer than `len` only at its end. `Changed` if its content was replaced.
    pub fn read(&self, fh: Fh, offset: u64, len: usize) -> Result<ReadBytes> {
        let open = self.file(fh)?;
        let bytes = open.file.read_at(offset, len);
        self.invalidate_if_changed(&open);
        let bytes = bytes.map_err(|error| error.about(&open.path))?;
        self.check_current(&open)?;
        self.count_read(&bytes);
        Ok(bytes)
    }

    fn count_read(&self, bytes: &ReadBytes) {
        self.stats.read_requests.add(1);
        self.stats.read_bytes.add(bytes.len() as u64);
    }

    /// Has the kernel drop its pages once the content is no longer the one that was opened.
    fn invalidate_if_changed(&self, open: &FileHandle) {
        let (Some(_), Some(now)) = (open.version, open.file.version()) else {
            return;
        };
        if Some(now) == open.version || self.cached.lock().get(&open.ino) == Some(&now) {
            return;
        }
        self.cached.lock().insert(open.ino, now);
        self.invalidate(open.ino, Invalidation::Content);
    }

    /// Has the kernel drop its pages of files that are open for reading, if a change made through this mount may have
    /// changed what they are made of.
    pub(super) fn invalidate_open_files(&self) {
        let files = self.files.read();
        let open = files.values();
        let made = open.filter(|open| open.version.is_some() && open.file.version().is_some());
        let changed = made.filter(|open| open.file.may_have_changed());
        let inodes: Vec<Ino> = changed.map(|open| open.ino).collect();
        drop(files);
        for ino in inodes {
            self.invalidate(ino, Invalidation::Content);
        }
    }

    /// Fails with `Changed` if another handle has seen the content of this one replaced: the kernel's pages of an inode
    /// belong to all handles, so old bytes must not get into them again.
    fn check_current(&self, open: &FileHandle) -> Result<()> {
        let (Some(version), Some(&cached)) = (open.version, self.cached.lock().get(&open.ino))
        else {
            return Ok(());
        };
        if version == cached || open.file.version() != open.version {
            return Ok(());
        }
        let why = "was replaced while it was open";
        Err(Error::new(Kind::Changed, &open.path, why))
    }

    /// Flushes all files that are open; for a mount that is gone, on which no program closes them any more.
    pub fn flush_all(&self) {
        let files = self.files.read();
        let open: Vec<_> = files.values().cloned().collect();
        drop(files);
        for open in open {
            if let Some(Err(error)) = open.writer.as_ref().map(|file| file.flush()) {
                log::error!("{}: what was written is not kept: {error}", open.path);
            }
        }
    }

    /// Closes a file; what was written to it and not flushed is flushed now.
    pub fn release(&self, fh: Fh) {
        let file = self.files.write().remove(&fh);
        let writer = file.as_ref().and_then(|open| open.writer.as_ref());
        if let Some(Err(error)) = writer.map(|file| file.flush()) {
            log::error!("what was written is not kept: {error}");
        }
    }
}
