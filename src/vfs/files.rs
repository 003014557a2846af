//! Open files: reading and closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::vfs::pages::{Opening, PageUse};
use crate::vfs::{Fh, Ino, Invalidation, OpenReply, Vfs};
use crate::view::{Attr, File, ReadBytes};
use zarr_format::error::{Error, Result};
use zarrfs_array::array::WrittenKey;
use zarrfs_store::Key;
use zarrfs_store::request_context::{RequestContext, is_answer};
use zarrfs_store::tree::TreeFile;

/// An open file.
pub(super) struct Handle {
    pub(super) ino: Ino,
    pub(super) path: Key,
    pub(super) file: Arc<dyn File>,
    /// The number of the content; the same for all handles of the inode.
    pub(super) content: Option<u64>,
    /// The version of the bytes at open.
    pub(super) version: Option<u64>,
    /// Whether reads must bypass the page cache.
    pub(super) direct: bool,
    /// The writable form of the file, if it belongs to a tree.
    pub(super) tree_file: Option<Arc<dyn TreeFile>>,
    /// Whether it was opened for writing.
    pub(super) writes: bool,
    /// Keeps other files of the array from being opened for writing.
    pub(super) written: Option<Arc<WrittenKey>>,
    /// Whether the open is complete: the kernel's pages fit the handle, and a program may write to them.
    pub(super) is_open: AtomicBool,
    /// Whether writes are appended, since the kernel does not know the end of the file.
    pub(super) appends: bool,
}

impl Handle {
    /// Returns another handle of the same content, for reading.
    pub(super) fn shared(&self) -> Handle {
        Handle {
            ino: self.ino,
            path: self.path.clone(),
            file: self.file.clone(),
            content: self.content,
            version: self.version,
            direct: self.direct,
            tree_file: self.tree_file.clone(),
            writes: false,
            written: None,
            is_open: AtomicBool::new(false),
            appends: false,
        }
    }

    /// Returns the file for writing; `Invalid` if the handle is not open for writing.
    pub(super) fn writer(&self) -> Result<&Arc<dyn TreeFile>> {
        let writer = self.tree_file.as_ref().filter(|_| self.writes);
        writer.ok_or_else(|| Error::invalid(&self.path, "is not open for writing"))
    }
}

impl Vfs {
    /// Returns an open file whose bytes are a local file, or `None` if it can be written or changed.
    pub fn shown_as_stored(&self, fh: Fh) -> Option<Arc<dyn File>> {
        let open = self.file(fh).ok()?;
        let is_fixed = open.tree_file.is_none() && open.file.descriptor().is_some();
        is_fixed.then(|| open.file.clone())
    }

    pub(super) fn add_file(&self, fh: Fh, file: Handle) -> Arc<Handle> {
        let file = Arc::new(file);
        self.files.write().insert(fh, file.clone());
        file
    }

    /// Returns the reply to an open, after the kernel's pages fit the handle.
    pub(super) fn open_reply(&self, fh: Fh) -> Result<OpenReply> {
        let open = self.file(fh)?;
        let page_use = self.fit_pages(&open);
        Ok(OpenReply {
            fh,
            keep_cache: page_use != PageUse::Drop,
            direct: open.direct || page_use == PageUse::Bypass,
            writes: open.writes,
            reads_on: open.file.is_read_on(),
        })
    }

    /// Makes the kernel's pages fit a new handle.
    fn fit_pages(&self, open: &Arc<Handle>) -> PageUse {
        let opening = Opening {
            ino: open.ino,
            version: open.version,
            is_mixed: self.inodes.is_mixed(open.ino),
            writes: open.writes,
        };
        // Of two concurrent opens, the first one drops the pages.
        let is_written = || self.is_written(open.ino);
        let note_open = || open.is_open.store(true, Ordering::Release);
        self.pages.open(&opening, is_written, note_open)
    }

    /// Whether an inode is open for writing.
    fn is_written(&self, ino: Ino) -> bool {
        let is_written = |open: &Arc<Handle>| open.writes && open.is_open.load(Ordering::Acquire);
        self.open_file(ino, is_written).is_some()
    }

    /// Calls `drop_pages`, which drops the kernel's pages of an inode, unless it is open for writing.
    pub fn drop_unwritten(&self, ino: Ino, drop_pages: impl FnOnce()) {
        self.pages
            .drop_unless(ino, || self.is_written(ino), drop_pages);
    }

    /// Records that the kernel has dropped its pages of an inode, which may be open for writing.
    pub fn mark_pages_dropped(&self, ino: Ino) {
        let open = self.open_file(ino, |open| open.writer().is_ok());
        if let Some(Ok(file)) = open.as_ref().map(|open| open.writer()) {
            file.mark_pages_dropped();
        }
    }

    pub(super) fn file(&self, fh: Fh) -> Result<Arc<Handle>> {
        let files = self.files.read();
        let open = files.get(&fh).cloned();
        open.ok_or_else(|| Error::invalid("handle", "is not open"))
    }

    /// Returns an open file of an inode that fits.
    pub(super) fn open_file(
        &self,
        ino: Ino,
        fits: impl Fn(&Arc<Handle>) -> bool,
    ) -> Option<Arc<Handle>> {
        let handles = self.inodes.handles(ino);
        let files = self.files.read();
        let mut open = handles.iter().filter_map(|fh| files.get(fh));
        open.find(|open| fits(open)).cloned()
    }

    /// Returns the attributes of an open inode.
    pub(super) fn open_attr(&self, context: &RequestContext, ino: Ino) -> Option<Attr> {
        match self.open_file(ino, |_| true) {
            Some(open) => open.file.attr(context),
            None => self.open_dir_attr(ino),
        }
    }

    /// Reads from an open file, fewer than `len` bytes only at its end. `Changed` if its content cannot be read any
    /// more, `WouldWait` if the request must not wait and the bytes are not in memory.
    pub fn read(
        &self,
        context: &RequestContext,
        fh: Fh,
        offset: u64,
        len: usize,
    ) -> Result<ReadBytes> {
        let open = self.file(fh)?;
        let bytes = open.file.read_at(context, offset, len);
        if context.may_wait() {
            self.invalidate_if_changed(&open);
        } else if is_answer(&bytes) {
            self.stats.read_immediate_requests.add(1);
        }
        let bytes = bytes.map_err(|error| error.about(&open.path))?;
        self.count_read(&bytes);
        Ok(bytes)
    }

    fn count_read(&self, bytes: &ReadBytes) {
        self.stats.read_requests.add(1);
        self.stats.read_bytes.add(bytes.len() as u64);
    }

    /// Invalidates the kernel's pages once the bytes differ from the ones that were opened.
    fn invalidate_if_changed(&self, open: &Handle) {
        let (Some(_), Some(now)) = (open.version, open.file.version()) else {
            return;
        };
        if Some(now) == open.version {
            return;
        }
        self.pages.change(open.ino, now);
    }

    /// Invalidates the kernel's pages of files open for reading whose sources a change through this mount may have
    /// modified.
    pub(super) fn invalidate_open_files(&self) {
        let files = self.files.read();
        let open = files.values();
        let made = open.filter(|open| open.version.is_some() && open.file.version().is_some());
        let changed = made.filter(|open| open.file.may_have_changed());
        let inodes: Vec<Ino> = changed.map(|open| open.ino).collect();
        drop(files);
        for ino in inodes {
            self.pages.invalidate(ino, Invalidation::Content);
        }
    }

    /// Flushes all open files, after an unmount: programs cannot close them any more.
    pub fn flush_all(&self, context: &RequestContext) {
        for open in self.all_files() {
            self.flush_unheard(context, &open);
        }
    }

    /// Flushes the files that are still open at the end of this process, and logs the files whose writes are lost.
    pub fn end_all(&self, context: &RequestContext) {
        for open in self.all_files() {
            if let Ok(file) = open.writer() {
                self.report_unstored(&open, file.end(context));
            }
        }
    }

    fn all_files(&self) -> Vec<Arc<Handle>> {
        self.files.read().values().cloned().collect()
    }

    /// Closes a file; its dirty data is flushed now, or when the last handle open for writing closes.
    pub fn release(&self, context: &RequestContext, fh: Fh) {
        let Ok(open) = self.file(fh) else {
            return;
        };
        // The inode's handles must always be in `files`.
        self.inodes.release(open.ino, fh);
        self.files.write().remove(&fh);
        // RELEASE comes some time after the close, which has flushed the handle. A program that has opened the file
        // since may have truncated it, and its writes are no content before it closes the file.
        if self.open_file(open.ino, |other| other.writes).is_none() {
            self.flush_unheard(context, &open);
        }
        if open.writes && self.open_file(open.ino, |_| true).is_some() {
            // While it was open for writing, invalidations were skipped.
            self.pages.invalidate(open.ino, Invalidation::Content);
        }
    }

    /// Flushes a file; no program can get the error.
    fn flush_unheard(&self, context: &RequestContext, open: &Handle) {
        if let Ok(file) = open.writer() {
            self.report_unstored(open, file.flush(context));
        }
    }

    /// Reports that the writes of a file are lost.
    fn report_unstored(&self, open: &Handle, stored: Result<()>) {
        if let Err(error) = stored {
            let path = format!("/{}", open.path);
            let why = format!("what was written is not stored: {}", error.detail());
            let failed = Error::new(error.kind(), error.subject(), why);
            self.stats.failures.report("close", &path, &failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Caller, VfsConfig};
    use crate::view::store::StoreView;
    use zarr_format::error::Kind;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

    /// A read after the release, or with a handle of an earlier mount, must not return bytes of another file.
    #[test]
    fn a_handle_that_was_released_is_nobodys_and_its_number_does_not_come_again() {
        let store = MemoryStore::default();
        for name in ["a", "b"] {
            store.set(Key::new(name).unwrap(), name.as_bytes().to_vec());
        }
        let mounted = || {
            let view = Arc::new(StoreView::new(Arc::new(store.clone())));
            let config = VfsConfig {
                uid: 0,
                gid: 0,
                umask: 0,
                writable: false,
            };
            Vfs::new(view, config, Arc::default())
        };
        let open = |vfs: &Vfs, name: &[u8]| {
            let entry = vfs
                .lookup(&UNLIMITED, Ino::ROOT, name, Caller(1))
                .unwrap()
                .unwrap();
            vfs.open(&UNLIMITED, entry.ino, Caller(1)).unwrap().fh
        };
        let is_refused = |vfs: &Vfs, fh: Fh| {
            for context in [&WITHOUT_WAITING, &UNLIMITED] {
                let read = vfs.read(context, fh, 0, 10);
                assert_eq!(read.err().map(|error| error.kind()), Some(Kind::Invalid));
            }
        };
        let vfs = mounted();
        let old = open(&vfs, b"a");
        assert_eq!(&vfs.read(&UNLIMITED, old, 0, 10).unwrap()[..], b"a");
        vfs.release(&UNLIMITED, old);
        let new = open(&vfs, b"b");
        let directory = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        assert!(new != old && directory != old && directory != new);
        is_refused(&vfs, old);
        is_refused(&vfs, directory);
        // A double release, which the kernel does not send.
        vfs.release(&UNLIMITED, old);
        assert_eq!(&vfs.read(&UNLIMITED, new, 0, 10).unwrap()[..], b"b");
        is_refused(&mounted(), new);
    }
}
