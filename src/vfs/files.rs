//! Opens, reads, writes, flushes and closes files.
//!
//! An open opens the file that now has the inode's name. If the inode is already open with another file, its name was
//! replaced, and the kernel has to walk the path again to find the new inode. If the kernel has just done so, the name
//! was still the inode's at that moment, and the new handle shares the open file. So even a name that is replaced all
//! the time can be opened.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::param::page_size;

use crate::vfs::handles::Handle;
use crate::vfs::inode::Binding;
use crate::vfs::pages::{Opening, PageUse};
use crate::vfs::{Caller, Fh, Ino, Invalidation, OpenReply, Vfs};
use crate::view::{Attr, File, OpenedFile, ReadBytes};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::{RequestContext, WITHOUT_WAITING, is_answer};
use zarrfs_store::tree::{OpenMode, TreeFile};

/// Maximum length of a file whose bytes the kernel gets together with the open: the kernel's default read-ahead. For a
/// larger file the copy costs more than the request that it saves.
const MAX_WITH_OPEN: usize = 128 << 10;

/// The flags of open(2) that zarrfs uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether the file is opened for writing.
    pub writes: bool,
    /// Whether all writes go to the end of the file, whatever offset the kernel sends (O_APPEND).
    pub appends: bool,
    /// Whether all bytes of the file are removed at the open (O_TRUNC).
    pub truncates: bool,
    /// Whether creating the file fails if it exists (O_EXCL).
    pub is_new: bool,
}

impl Vfs {
    /// Opens a file for reading.
    pub fn open(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        self.open_inode(context, ino, caller, OpenOptions::default(), |path| {
            let opened = self.open_in_view(context, path)?;
            Ok(Handle::for_reading(ino, path, opened))
        })
    }

    /// Opens a generated file. If the sources changed while its bytes were generated, opens it again, since reads of
    /// the old bytes would fail with `Changed`.
    fn open_in_view(&self, context: &RequestContext, path: &Key) -> Result<OpenedFile> {
        let mut opened = self.view.open(context, path)?;
        for _ in 0..3 {
            if !opened.file.is_snapshot() || opened.file.version() == opened.version {
                break;
            }
            opened = self.view.open(context, path)?;
        }
        Ok(opened)
    }

    /// Opens a file for writing, and removes all its bytes first if `mode.truncates`.
    pub fn open_for_writing(
        &self,
        context: &RequestContext,
        ino: Ino,
        mode: OpenOptions,
        caller: Caller,
    ) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let reply = self.open_inode(context, ino, caller, mode, |path| {
            let opened = self.tree(context, path)?;
            let file = opened.tree.open(context, &opened.at, OpenMode::Write)?;
            self.writer(context, ino, path, file)
        })?;
        // Truncates only after the open, when it is certain that the file is that of the inode.
        if mode.truncates
            && let Err(error) = self.handles.get(reply.fh)?.truncate(context)
        {
            self.release(context, reply.fh);
            return Err(error);
        }
        Ok(reply)
    }

    /// Returns a handle for writing a file. Fails with `Busy` if another file of the same array is open for writing.
    pub(super) fn writer(
        &self,
        context: &RequestContext,
        ino: Ino,
        path: &Key,
        file: Arc<dyn TreeFile>,
    ) -> Result<Handle> {
        let written = self.view.begin_writing(path)?.map(Arc::new);
        Handle::for_writing(context, ino, path, file, written)
    }

    /// Opens an inode: calls `open` with its path, and adds the handle to the inode.
    fn open_inode(
        &self,
        context: &RequestContext,
        ino: Ino,
        caller: Caller,
        mode: OpenOptions,
        open: impl Fn(&Key) -> Result<Handle>,
    ) -> Result<OpenReply> {
        let fh = self.handles.new_number();
        let mut shared = None;
        // Tries again if another program replaces the file at the same time.
        for _ in 0..64 {
            let handle = match shared.take() {
                Some(handle) => handle,
                None => {
                    let path = || self.path_for(ino, caller, || self.inodes.last_path(ino));
                    let opened = self.renames.retry_query(path, &open);
                    opened
                        .map_err(|error| self.estale.error_of_path(error, ino, caller))?
                        .0
                }
            };
            match self.bind(fh, handle, mode, caller) {
                Binding::Added => {
                    self.estale.end(caller);
                    return self.open_reply(fh);
                }
                Binding::Different => shared = self.share(context, ino, caller, mode)?,
                Binding::Replaced | Binding::Elsewhere => {
                    return Err(self.estale.walk_again(ino, caller));
                }
            }
        }
        Err(self.estale.walk_again(ino, caller))
    }

    /// Adds a handle to its inode. After the kernel's second walk of the path, the opened file may be another one than
    /// the lookup found, or be open as another inode. Then the handle bypasses the kernel's pages, since the kernel has
    /// the length of the other file, and writes with O_APPEND go to the end of the file as the daemon knows it.
    fn bind(&self, fh: Fh, handle: Handle, mode: OpenOptions, caller: Caller) -> Binding {
        let (ino, content) = (handle.ino, handle.content);
        // Each handle of an inode must be in the table, so it is added there first.
        let handle = self.handles.insert(fh, handle);
        let mut binding = self.inodes.bind(ino, fh, content);
        let is_refused = matches!(binding, Binding::Replaced | Binding::Elsewhere);
        if is_refused && self.estale.is_retry(caller) {
            binding = self.inodes.bind_mixed(ino, fh, content);
        }
        if binding != Binding::Added {
            self.handles.remove(fh);
        } else if self.inodes.is_mixed(ino) {
            let past_pages = Handle {
                direct: true,
                writes: handle.writes,
                written: handle.written.clone(),
                appends: mode.appends,
                ..handle.shared()
            };
            self.handles.insert(fh, past_pages);
        }
        binding
    }

    /// Returns another handle of the file that an inode is open with, after its name was replaced; `None` if the inode
    /// is not open any more. Fails unless the mount is writable or the kernel has just walked the path again.
    fn share(
        &self,
        context: &RequestContext,
        ino: Ino,
        caller: Caller,
        mode: OpenOptions,
    ) -> Result<Option<Handle>> {
        if !self.config.writable && !self.estale.is_retry(caller) {
            return Err(self.estale.walk_again(ino, caller));
        }
        let fits = |open: &Arc<Handle>| !mode.writes || open.tree_file.is_some();
        match self.open_file(ino, fits) {
            Some(open) if mode.writes => {
                let file = open.tree_file.clone();
                let file = file.ok_or_else(|| self.estale.walk_again(ino, caller))?;
                self.writer(context, ino, &open.path, file).map(Some)
            }
            Some(open) => Ok(Some(open.shared())),
            None if mode.writes && self.open_file(ino, |_| true).is_some() => {
                Err(self.estale.walk_again(ino, caller))
            }
            None => Ok(None),
        }
    }

    /// Returns the file of a handle if it is a local file with exactly the bytes of the open file, and the mount cannot
    /// write it; otherwise `None`.
    pub fn unchanging_local_file(&self, fh: Fh) -> Option<Arc<dyn File>> {
        let open = self.handles.get(fh).ok()?;
        let is_fixed = open.tree_file.is_none() && open.file.descriptor().is_some();
        is_fixed.then(|| open.file.clone())
    }

    /// Makes sure that a new handle reads no stale pages of the kernel, and returns the reply to its open.
    pub(super) fn open_reply(&self, fh: Fh) -> Result<OpenReply> {
        let open = self.handles.get(fh)?;
        let page_use = self.fit_pages(&open);
        Ok(OpenReply {
            fh,
            keep_cache: page_use != PageUse::Drop,
            direct: open.direct || page_use == PageUse::Bypass,
            writes: open.writes,
            expects_sequential: open.file.expects_sequential(),
        })
    }

    /// Decides whether a new handle may use the kernel's pages, or the kernel drops or bypasses them.
    fn fit_pages(&self, open: &Arc<Handle>) -> PageUse {
        let opening = Opening {
            ino: open.ino,
            version: open.version,
            is_mixed: self.inodes.is_mixed(open.ino),
            writes: open.writes,
            has_length: &|| self.kernel_has_length(open),
            small_content: &|| self.small_content(open),
        };
        // A handle for writing counts as open after `mark_open`: of two opens at the same time, the first drops the
        // pages.
        let is_written = || self.is_written(open.ino);
        let mark_open = || open.is_open.store(true, Ordering::Release);
        self.pages.open(&opening, is_written, mark_open)
    }

    /// Whether the kernel knows the exact length of a file, so that the open can rely on it. On a writable mount the
    /// kernel asks for the length anyway, since attributes are not cached.
    fn kernel_has_length(&self, open: &Handle) -> bool {
        if self.config.writable {
            return false;
        }
        let attr = open.file.attr(&WITHOUT_WAITING);
        attr.is_some_and(|attr| attr.is_exact && self.inodes.keep_length(open.ino, attr.size))
    }

    /// Returns the bytes of a small file, to be put into the kernel's pages at the open, or `None` if they are not in
    /// memory in the version of the open. Only whole pages are possible, since older kernels leave the rest of a page
    /// as it was. A snapshot is excluded, since its reads must fail once its sources have changed.
    fn small_content(&self, open: &Handle) -> Option<ReadBytes> {
        // Bytes without a version must not stay in the kernel's pages, since they may change unnoticed.
        let version = open.version?;
        let length = open.file.attr(&WITHOUT_WAITING)?.size;
        let length = usize::try_from(length).ok()?;
        let fits = (1..=MAX_WITH_OPEN).contains(&length) && length.is_multiple_of(page_size());
        if !fits || open.direct || open.file.is_snapshot() {
            return None;
        }
        let bytes = open.file.read_at(&WITHOUT_WAITING, 0, length).ok()?;
        if bytes.len() != length || open.file.version() != Some(version) {
            return None;
        }
        self.stats.read_requests.add(1);
        self.stats.read_bytes.add(length as u64);
        Some(bytes)
    }

    /// Whether an inode is open for writing.
    fn is_written(&self, ino: Ino) -> bool {
        let is_written = |open: &Arc<Handle>| open.writes && open.is_open.load(Ordering::Acquire);
        self.open_file(ino, is_written).is_some()
    }

    /// Calls `drop_pages`, which drops the kernel's pages of an inode, unless the inode is open for writing.
    pub fn drop_unwritten(&self, ino: Ino, drop_pages: impl FnOnce()) {
        self.pages
            .drop_unless(ino, || self.is_written(ino), drop_pages);
    }

    /// Records that the kernel has dropped its pages of an inode, which may be open for writing.
    pub fn record_lost_pages(&self, ino: Ino) {
        let open = self.open_file(ino, |open| open.writer().is_ok());
        if let Some(Ok(file)) = open.as_ref().map(|open| open.writer()) {
            file.mark_pages_dropped();
        }
    }

    /// Returns the first handle of an inode for which `fits` returns true.
    pub(super) fn open_file(
        &self,
        ino: Ino,
        fits: impl Fn(&Arc<Handle>) -> bool,
    ) -> Option<Arc<Handle>> {
        self.handles.find(&self.inodes.handles(ino), fits)
    }

    /// Returns the attributes of an open file or directory.
    pub(super) fn open_attr(&self, context: &RequestContext, ino: Ino) -> Option<Attr> {
        match self.open_file(ino, |_| true) {
            Some(open) => open.file.attr(context),
            None => self.directories.attr(ino),
        }
    }

    /// Reads from an open file, fewer than `len` bytes only at its end. Fails with `Changed` if the opened version
    /// cannot be read any more, and with `WouldWait` if the request must not wait and the bytes are not in memory.
    pub fn read(
        &self,
        context: &RequestContext,
        fh: Fh,
        offset: u64,
        len: usize,
    ) -> Result<ReadBytes> {
        let open = self.handles.get(fh)?;
        let bytes = match self.check_snapshot(&open) {
            Ok(()) => open.file.read_at(context, offset, len),
            Err(error) => Err(error),
        };
        match &bytes {
            _ if context.may_wait() => self.invalidate_if_changed(&open),
            Err(error) if error.kind() == Kind::WouldWait => {}
            _ => self.stats.read_immediate_requests.add(1),
        }
        let bytes = bytes.map_err(|error| error.about(&open.path))?;
        self.stats.read_requests.add(1);
        self.stats.read_bytes.add(bytes.len() as u64);
        Ok(bytes)
    }

    /// Fails with `Changed` if a file still returns the bytes of its open (`is_snapshot`), but its sources have changed
    /// since: the kernel would cache the old bytes as pages of the new version.
    fn check_snapshot(&self, open: &Handle) -> Result<()> {
        let has_pages = open.version.is_some() && !open.direct;
        if has_pages && open.file.is_snapshot() && open.file.version() != open.version {
            let why = "was changed since it was opened; open the file again";
            return Err(Error::new(Kind::Changed, &open.path, why));
        }
        Ok(())
    }

    /// Invalidates the kernel's pages of an open file if the file has another version than at the open.
    fn invalidate_if_changed(&self, open: &Handle) {
        if let (Some(opened), Some(now)) = (open.version, open.file.version())
            && opened != now
        {
            self.pages.change(open.ino, now);
        }
    }

    /// Writes all of `bytes` to an open file. If the write has to wait and the request must not, writes nothing and
    /// returns `WouldWait`.
    pub fn write(&self, context: &RequestContext, fh: Fh, offset: u64, bytes: &[u8]) -> Result<()> {
        let open = self.handles.get(fh)?;
        let writer = open.writer()?;
        let done = if open.appends {
            context.check_may_wait()?;
            writer.append(context, bytes)
        } else {
            writer.write_at(context, offset, bytes)
        };
        if is_answer(&done) {
            self.record_write(&open, bytes);
        }
        done.map_err(|error| error.about(&open.path))
    }

    /// Writes pages that a program has changed through mmap.
    pub fn write_pages(
        &self,
        context: &RequestContext,
        fh: Fh,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let open = self.handles.get(fh)?;
        let done = open.writer()?.write_pages(context, offset, bytes);
        if is_answer(&done) {
            self.record_write(&open, bytes);
        }
        done.map_err(|error| error.about(&open.path))
    }

    /// Counts a write. A write through a handle that bypasses the kernel's pages also invalidates the pages of other
    /// inodes of the same file.
    fn record_write(&self, open: &Handle, bytes: &[u8]) {
        self.stats.write_requests.add(1);
        self.stats.write_bytes.add(bytes.len() as u64);
        if open.direct {
            for ino in self.inodes.open_with_same_content(open.ino) {
                self.pages.invalidate(ino, Invalidation::LostContent);
            }
        }
    }

    /// Flushes the writes of an open file, so that they survive the end of this process.
    pub fn flush(&self, context: &RequestContext, fh: Fh) -> Result<()> {
        let open = self.handles.get(fh)?;
        let Ok(file) = open.writer() else {
            return Ok(());
        };
        file.flush(context)
            .map_err(|error| self.error_of_flush(&open, error))?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Writes a file to disk, so that writes through any of its handles survive a power loss.
    pub fn sync(&self, context: &RequestContext, fh: Fh) -> Result<()> {
        let open = self.handles.get(fh)?;
        match (open.writer(), &open.tree_file) {
            (Ok(file), _) | (Err(_), Some(file)) => file
                .sync(context)
                .map_err(|error| self.error_of_flush(&open, error)),
            (Err(_), None) => self.sync_path(context, &open.path),
        }
    }

    /// Returns the error of a failed flush. After a conflict, invalidates the kernel's pages, which are stale and must
    /// not be written back.
    fn error_of_flush(&self, open: &Handle, error: Error) -> Error {
        if error.kind() == Kind::Changed {
            self.pages.invalidate(open.ino, Invalidation::LostContent);
        }
        error.about(&open.path)
    }

    /// Reserves space for a byte range of an open file.
    pub fn allocate(
        &self,
        context: &RequestContext,
        fh: Fh,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.handles
            .get(fh)?
            .writer()?
            .allocate(context, mode, offset, length)
    }

    /// Closes a handle. The writes of the file are flushed now or, if other handles are open for writing, at their
    /// close.
    pub fn release(&self, context: &RequestContext, fh: Fh) {
        let Ok(open) = self.handles.get(fh) else {
            return;
        };
        // Each handle of an inode must be in the table, so it is removed there last.
        self.inodes.release(open.ino, fh);
        self.handles.remove(fh);
        // RELEASE arrives some time after the close, which has already flushed the handle. Meanwhile another program
        // may have opened and truncated the file, and its writes must not be stored before it closes the file.
        if self.open_file(open.ino, |other| other.writes).is_none() {
            self.flush_unanswered(context, &open);
        }
        if open.writes && self.open_file(open.ino, |_| true).is_some() {
            // While the file was open for writing, invalidations of its pages were skipped, so they are repeated now.
            self.pages.invalidate(open.ino, Invalidation::Content);
        }
    }

    /// Invalidates the kernel's pages of generated files, open for reading, whose sources may have been changed through
    /// this mount.
    pub(super) fn invalidate_open_files(&self) {
        let is_made = |open: &Handle| open.version.is_some() && open.file.version().is_some();
        let changed = self
            .handles
            .inodes(|open| is_made(open) && open.file.may_have_changed());
        for ino in changed {
            self.pages.invalidate(ino, Invalidation::Content);
        }
    }

    /// Flushes all open files after an unmount, when programs cannot close them any more.
    pub fn flush_all(&self, context: &RequestContext) {
        for open in self.handles.all() {
            self.flush_unanswered(context, &open);
        }
    }

    /// Flushes the files that are still open at the end of this process, and reports the files whose writes are lost.
    pub fn end_all(&self, context: &RequestContext) {
        for open in self.handles.all() {
            if let Ok(file) = open.writer() {
                self.report_lost_writes(&open, file.end(context));
            }
        }
    }

    /// Flushes a file when no program can get an error, and reports lost writes.
    fn flush_unanswered(&self, context: &RequestContext, open: &Handle) {
        if let Ok(file) = open.writer() {
            self.report_lost_writes(open, file.flush(context));
        }
    }

    /// Records and logs that the writes of a file are lost, unless they were stored.
    fn report_lost_writes(&self, open: &Handle, stored: Result<()>) {
        if let Err(error) = stored {
            let path = format!("/{}", open.path);
            let why = format!("writes are lost: {}", error.detail());
            let failed = Error::new(error.kind(), error.subject(), why);
            self.stats.failures.report("close", &path, &failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs;
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

    /// Reads with a released handle, or with a handle of an earlier mount, must not return bytes of another file.
    #[test]
    fn a_released_handle_is_refused_and_its_number_is_not_reused() {
        let store = MemoryStore::default();
        for name in ["a", "b"] {
            store.set(Key::new(name).unwrap(), name.as_bytes().to_vec());
        }
        let mounted = || vfs::mounted(store.clone(), false);
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
        // Releases the handle a second time, which the kernel does not do.
        vfs.release(&UNLIMITED, old);
        assert_eq!(&vfs.read(&UNLIMITED, new, 0, 10).unwrap()[..], b"b");
        is_refused(&mounted(), new);
    }
}
