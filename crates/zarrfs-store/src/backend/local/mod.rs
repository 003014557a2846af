//! Opens a local directory as a store.
//!
//! Names are raw bytes. Only regular files and directories are ever read. `root` finds the directory that the store's
//! path names now. `directory` resolves keys, ensures that no key leads outside the store, and converts the kernel's
//! file status. `writer` changes objects with `atomic_file`.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use crate::backend::local::directory::{
    StoreDirectory, failed, meta_of, modified, size_of, version_of,
};
use crate::backend::{is_a_directory, too_long};
use crate::request_context::RequestContext;
use crate::sync::file_limits::Permit;
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Name, Object, Presence,
    PutBody, Reader, Store, StoreConfig, StoreInfo, Version, scatter,
};
use zarr_format::buffer::{self, Buffer};
use zarr_format::error::{Error, Kind, Result};

mod atomic_file;
mod directory;
mod root;
mod writer;

/// Whether zarrfs reserves a name for its temporary files.
pub fn is_reserved_name(name: &[u8]) -> bool {
    atomic_file::is_temp_name(name)
}

/// Returns the error `NotPermitted` if a path contains a name that zarrfs reserves for its temporary files.
pub fn check_names(path: &Key) -> Result<()> {
    if path.names().any(is_reserved_name) {
        let why = "zarrfs reserves names of this form for temporary files";
        return Err(Error::new(Kind::NotPermitted, path, why));
    }
    Ok(())
}

/// A Zarr store in a local directory.
#[derive(Clone)]
pub struct LocalStore {
    directory: Arc<StoreDirectory>,
    info: StoreInfo,
}

impl LocalStore {
    /// Opens the store in the directory at `path`.
    pub fn open(path: &Path, config: &StoreConfig) -> Result<LocalStore> {
        // The metadata of a local file may be cached for one second, since other programs may change it unseen.
        let info = StoreInfo::new(Duration::from_secs(1));
        let (changes, clock) = (info.changes.clone(), info.clock.clone());
        let directory = StoreDirectory::new(path, config.follow_symlinks, changes, clock)?;
        let folder = Some(directory.path().to_path_buf());
        // A store inside a zarrfs mount is read-only: changes need temporary names, and a mount refuses these because
        // its own commit could not store them.
        let unchangeable = directory
            .is_in_our_mount()
            .then_some("is inside a zarrfs mount: use the path of the mounted store instead");
        Ok(LocalStore {
            directory: Arc::new(directory),
            info: StoreInfo {
                folder,
                unchangeable,
                ..info
            },
        })
    }

    /// Records that a key has changed. A failed put or removal is recorded too, since it may have had an effect.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.record(key);
        done
    }

    /// Reads the range that `span` returns for the object's size. All bytes are from one version of the object; the
    /// error is `Changed` if the file is overwritten during every attempt.
    fn object(
        &self,
        key: &Key,
        span: impl Fn(u64) -> Result<Range<u64>>,
    ) -> Result<Option<Object>> {
        // A file may be overwritten in place while it is read, so its version is compared afterwards and the read is
        // repeated.
        for _ in 0..4 {
            let Some((fd, stat)) = self.directory.open_file(key)? else {
                return Ok(None);
            };
            let (size, version) = (size_of(&stat), version_of(&stat));
            let span = span(size)?;
            let bytes = read_span(&fd, span.start, span.end - span.start)
                .map_err(|error| failed(key, error))?;
            let after = rustix::fs::fstat(&fd).map_err(|error| failed(key, error))?;
            if version_of(&after) == version {
                return Ok(Some(Object {
                    bytes,
                    size,
                    version,
                    modified: Some(modified(&stat)),
                }));
            }
        }
        let why = "keeps changing while it is being read";
        Err(Error::new(Kind::Changed, key, why))
    }
}

impl Store for LocalStore {
    fn get(&self, _context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.object(key, |size| {
            if size > limit {
                return Err(too_long(key, size, limit));
            }
            Ok(0..size)
        })
    }

    fn get_range(
        &self,
        _context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.object(key, |size| Ok(range.within(size)))
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if context.may_wait() {
            return self.directory.head(key);
        }
        match self.directory.cached_head(key) {
            Presence::Unknown => context.check_may_wait().map(|()| None),
            known => Ok(known.value()),
        }
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let object = self
            .head(context, key)?
            .filter(|meta| meta.kind != EntryKind::Directory);
        Ok(object.map(|meta| meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        match self.directory.open_file(key)? {
            Some((fd, _)) => Ok(Arc::new(LocalReader::new(fd, key)?)),
            None if self
                .head(context, key)?
                .is_some_and(|meta| meta.kind == EntryKind::Directory) =>
            {
                Err(is_a_directory(key))
            }
            None => Err(Error::not_found(key)),
        }
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match self.directory.open(prefix, flags) {
            // A key below a file (not a directory) is missing.
            Err(Errno::NOTDIR) if self.head(context, prefix)?.is_none() => {
                return Err(Error::not_found(prefix));
            }
            opened => opened.map_err(|error| failed(prefix, error))?,
        };
        let store = self.directory.clone();
        Ok(Box::new(LocalListing::new(fd, prefix, store)))
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn is_symlink_cycle(&self, _context: &RequestContext, key: &Key) -> Result<bool> {
        Ok(self.directory.is_symlink_cycle(key))
    }

    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        let target = self.directory.link_target(key)?;
        if self.directory.is_symlink_cycle(key) && target.starts_with(b"/") {
            let why = "a symbolic link to a parent directory";
            return Err(Error::corrupt(key, why));
        }
        if !self.directory.shows_as_link(key, &target) {
            let why =
                "a symbolic link leads out of the store: use --follow-symlinks to follow the link";
            return Err(Error::new(Kind::Denied, key, why));
        }
        Ok(target)
    }

    fn etag(&self, _context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        writer::etag(&self.directory, key)
    }

    /// Puts a file, with the mode of the file that it replaces. The file is on the disk when this returns.
    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.changed(key, writer::put(&self.directory, key, body, condition))
    }

    /// Removes a file. The condition is checked under a lock that only zarrfs processes take. Another program can still
    /// replace the file between the check and the removal, since the kernel has no conditional unlink(2).
    fn erase(&self, _context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.changed(key, writer::erase(&self.directory, key, condition))
    }

    fn erase_folder(&self, _context: &RequestContext, prefix: &Key) -> Result<()> {
        self.changed(prefix, writer::erase_folder(&self.directory, prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Reads an object through its open file. If another file replaces it, the reader still reads the old file.
struct LocalReader {
    fd: OwnedFd,
    key: Key,
    _permit: Permit,
}

impl LocalReader {
    /// Takes a permit from the limit on open files. Fails with `TooManyFiles` if none is left.
    fn new(fd: OwnedFd, key: &Key) -> Result<LocalReader> {
        Ok(LocalReader {
            fd,
            key: key.clone(),
            _permit: Permit::take().map_err(|error| error.about(key))?,
        })
    }
}

impl Reader for LocalReader {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        read_span(&self.fd, offset, len as u64).map_err(|error| failed(&self.key, error))
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // The kernel refuses reads that end beyond the largest signed offset, so such a read is shortened and copied.
        let ends_too_far = offset.saturating_add(wanted as u64) > i64::MAX as u64;
        if ends_too_far || are_short(parts.len(), wanted) {
            let bytes = Buffer::from(self.read_at(context, offset, wanted)?);
            scatter(&bytes, parts);
            return Ok(bytes.len());
        }
        fill_parts(&self.fd, offset, parts).map_err(|error| failed(&self.key, error))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|error| failed(&self.key, error))?;
        meta_of(&stat).ok_or_else(|| Error::not_found(&self.key))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// Whether several buffers of `length` bytes in total are filled faster by one read and a copy than by `preadv`.
fn are_short(parts: usize, length: usize) -> bool {
    // `preadv` is slower for buffers that are shorter than 1 KiB on average. But the bytes must still be in the
    // processor's cache when they are copied, so the total is limited too.
    parts > 1 && length / parts < 1024 && length <= 1 << 20
}

/// Reads `length` bytes, or fewer at the end of the file. The length is limited, because the kernel refuses reads that
/// end beyond the largest signed offset.
fn read_span(fd: &OwnedFd, offset: u64, length: u64) -> rustix::io::Result<Vec<u8>> {
    let length = length.min((i64::MAX as u64).saturating_sub(offset));
    let length = usize::try_from(length).map_err(|_| Errno::FBIG)?;
    let mut bytes = buffer::with_capacity(length);
    if bytes.capacity() < length {
        return Err(Errno::NOMEM);
    }
    while bytes.len() < length {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(fd, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads from a file into the buffers, in order. Returns the number of bytes read.
fn fill_parts(
    fd: &OwnedFd,
    offset: u64,
    mut parts: &mut [IoSliceMut<'_>],
) -> rustix::io::Result<usize> {
    let mut total = 0;
    while !parts.is_empty() {
        match rustix::io::preadv(fd, parts, offset + total as u64) {
            Ok(0) => break,
            Ok(read) => {
                total += read;
                IoSliceMut::advance_slices(&mut parts, read);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Lists an open directory with `getdents`, whose directory offsets are the listing's cursors. Temporary files of
/// zarrfs are left out.
struct LocalListing {
    fd: OwnedFd,
    key: Key,
    store: Arc<StoreDirectory>,
    page: VecDeque<Name>,
}

impl LocalListing {
    fn new(fd: OwnedFd, key: &Key, store: Arc<StoreDirectory>) -> LocalListing {
        LocalListing {
            fd,
            key: key.clone(),
            store,
            page: VecDeque::new(),
        }
    }

    /// Reads the next names of the directory. Returns false at its end.
    fn fill(&mut self) -> Result<bool> {
        // The buffer has room for about a thousand names.
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| failed(&self.key, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"."
                && name != b".."
                && !atomic_file::is_temp_name(name)
                && let Some(kind) = self.kind_of(name, entry.file_type())
            {
                self.page.push_back(Name {
                    name: name.to_vec(),
                    kind,
                    cursor: entry.next_entry_cookie(),
                    meta: None,
                });
            }
            if entries.is_buffer_empty() && !self.page.is_empty() {
                return Ok(true);
            }
        }
        Ok(!self.page.is_empty())
    }

    /// Returns the kind of a directory entry, or `None` for pipes, sockets and devices.
    fn kind_of(&self, name: &[u8], file_type: FileType) -> Option<EntryKind> {
        match file_type {
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Directory => Some(EntryKind::Directory),
            FileType::Symlink | FileType::Unknown => {
                let key = self.key.child(name).ok()?;
                match self.store.head(&key) {
                    Ok(meta) => meta.map(|meta| meta.kind),
                    // A link that leaves the store of a zarrfs mount cannot be resolved inside the mount, so it is
                    // listed as a link.
                    Err(_) => (file_type == FileType::Symlink).then_some(EntryKind::Link),
                }
            }
            _ => None,
        }
    }
}

impl Listing for LocalListing {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Name>> {
        if self.page.is_empty() && !self.fill()? {
            return Ok(None);
        }
        Ok(self.page.pop_front())
    }

    fn seek(&mut self, _context: &RequestContext, cursor: u64) -> Result<()> {
        self.page.clear();
        rustix::fs::seek(&self.fd, SeekFrom::Start(cursor))
            .map_err(|error| failed(&self.key, error))?;
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }
}
