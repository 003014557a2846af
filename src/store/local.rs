//! A directory of this machine as a store.
//!
//! Names are raw bytes. Every path is resolved beneath the store's own directory by the kernel
//! (`openat2`, RESOLVE_BENEATH), so no key and no link leads outside; nothing but regular files and
//! directories is ever read, and nothing is opened in a way that could block. Directories are read as a
//! stream of `getdents` pages whose cursors are the file system's own.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use rustix::buffer::spare_capacity;
use rustix::fs::AtFlags;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::RawDir;
use rustix::fs::ResolveFlags;
use rustix::fs::SeekFrom;
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::buffer;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::store::ByteRange;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::Listing;
use crate::store::Meta;
use crate::store::Name;
use crate::store::Object;
use crate::store::Reader;
use crate::store::Store;
use crate::store::StoreConfig;
use crate::store::Version;
use crate::store::deal_out;

/// For how long an answer about a local file is taken for true.
const FRESH: Duration = Duration::from_secs(1);

/// The flags of everything that is opened for reading: never block, never become a controlling terminal.
const SAFE: OFlags = OFlags::CLOEXEC
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Adds the flags that are safe; the kernel refuses most beside O_PATH, which opens nothing.
fn safe(flags: OFlags) -> OFlags {
    if flags.contains(OFlags::PATH) {
        flags | OFlags::CLOEXEC
    } else {
        flags | SAFE
    }
}

/// A directory as a store.
#[derive(Clone)]
pub struct Local {
    directory: Arc<Directory>,
}

struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    follow_symlinks: bool,
}

impl Local {
    /// Opens the store in the directory at `path`.
    pub fn open(path: &Path, config: &StoreConfig) -> Result<Local> {
        let shown = path.display();
        let path = path
            .canonicalize()
            .map_err(|error| Error::os(shown, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFE;
        let fd = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| Error::os(path.display(), error))?;
        let directory = Directory {
            fd,
            path,
            follow_symlinks: config.follow_symlinks,
        };
        Ok(Local {
            directory: Arc::new(directory),
        })
    }
}

impl Directory {
    /// Opens what lies under a key, following links as far as they may be followed.
    fn open(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        if self.follow_symlinks {
            return rustix::fs::openat(&self.fd, relative(key), safe(flags), Mode::empty());
        }
        match self.open_beneath(relative(key), flags) {
            Err(Errno::XDEV) => self.open_absolute_link(key, flags),
            answer => answer,
        }
    }

    fn open_beneath(&self, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        // The kernel answers EAGAIN when a rename elsewhere disturbs the walk of a `..`.
        for _ in 0..16 {
            match rustix::fs::openat2(&self.fd, path, safe(flags), Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }

    /// RESOLVE_BENEATH refuses every absolute link; one that ends inside the store is followed all the same.
    fn open_absolute_link(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let target = self
            .path
            .join(relative(key))
            .canonicalize()
            .map_err(|_| Errno::XDEV)?;
        let inside = target.strip_prefix(&self.path).map_err(|_| Errno::XDEV)?;
        let inside = if inside.as_os_str().is_empty() {
            OsStr::new(".")
        } else {
            inside.as_os_str()
        };
        self.open_beneath(inside, flags)
    }

    /// Opens a regular file; nothing if there is none, or what is there holds no bytes.
    fn open_file(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        let fd = match self.open(key, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(error) if is_missing(error) => return Ok(None),
            Err(error) => return Err(failed(key, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| failed(key, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some((fd, stat))),
            FileType::Directory => Ok(None),
            _ => Err(Error::corrupt(
                key,
                "neither a regular file nor a directory",
            )),
        }
    }

    /// Returns what a key is, links not followed.
    fn stat_link(&self, key: &Key) -> Result<Option<Stat>> {
        let Some(parent) = key.parent() else {
            return rustix::fs::fstat(&self.fd)
                .map(Some)
                .map_err(|error| failed(key, error));
        };
        let parent = match self.open(&parent, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(error) if is_missing(error) => return Ok(None),
            Err(error) => return Err(failed(key, error)),
        };
        match rustix::fs::statat(
            &parent,
            OsStr::from_bytes(key.name()),
            AtFlags::SYMLINK_NOFOLLOW,
        ) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_missing(error) => Ok(None),
            Err(error) => Err(failed(key, error)),
        }
    }

    /// Returns whether a link is shown as a link: the kernel will follow it inside the mount. One that is
    /// absolute or leaves the store is shown as what it leads to, if it may be followed at all.
    fn shows_as_link(&self, key: &Key, target: &[u8]) -> bool {
        !target.starts_with(b"/")
            && !matches!(
                self.open_beneath(relative(key), OFlags::PATH),
                Err(Errno::XDEV)
            )
            && (stays_inside(key, target) || self.open_beneath(relative(key), OFlags::PATH).is_ok())
    }

    fn link_target(&self, key: &Key) -> Result<Vec<u8>> {
        let parent = key.parent().unwrap_or_default();
        let parent = self
            .open(&parent, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|error| failed(key, error))?;
        let target = rustix::fs::readlinkat(&parent, OsStr::from_bytes(key.name()), Vec::new());
        Ok(target.map_err(|error| failed(key, error))?.into_bytes())
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let Some(stat) = self.stat_link(key)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(meta_of(&stat));
        }
        if self.shows_as_link(key, &self.link_target(key)?) {
            return Ok(Some(link_meta(&stat)));
        }
        match self.open(key, OFlags::PATH) {
            Ok(fd) => Ok(meta_of(
                &rustix::fs::fstat(fd).map_err(|error| failed(key, error))?,
            )),
            Err(_) => Ok(Some(link_meta(&stat))),
        }
    }
}

impl Store for Local {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        let Some((fd, stat)) = self.directory.open_file(key)? else {
            return Ok(None);
        };
        let size = size_of(&stat);
        if size > limit {
            return Err(Error::too_large(
                key,
                format!("{size} bytes, at most {limit} are read"),
            ));
        }
        let bytes = read_span(&fd, 0, size).map_err(|error| failed(key, error))?;
        Ok(Some(Object {
            bytes,
            size,
            version: version_of(&stat),
        }))
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        let Some((fd, stat)) = self.directory.open_file(key)? else {
            return Ok(None);
        };
        let size = size_of(&stat);
        let span = range.within(size);
        let bytes = read_span(&fd, span.start, span.end - span.start)
            .map_err(|error| failed(key, error))?;
        Ok(Some(Object {
            bytes,
            size,
            version: version_of(&stat),
        }))
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.directory.head(key)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        match self.directory.open_file(key)? {
            Some((fd, _)) => Ok(Arc::new(OpenFile {
                fd,
                key: key.clone(),
            })),
            None if self
                .head(key)?
                .is_some_and(|meta| meta.kind == EntryKind::Directory) =>
            {
                Err(Error::new(Kind::IsADirectory, key, "is a directory"))
            }
            None => Err(Error::not_found(key)),
        }
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self
            .directory
            .open(prefix, flags)
            .map_err(|error| failed(prefix, error))?;
        Ok(Box::new(OpenDirectory {
            fd,
            key: prefix.clone(),
            store: self.directory.clone(),
            page: VecDeque::new(),
        }))
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        let target = self.directory.link_target(key)?;
        if !self.directory.shows_as_link(key, &target) {
            let why = "a symbolic link that leaves the store (see --follow-symlinks)";
            return Err(Error::new(Kind::Denied, key, why));
        }
        Ok(target)
    }

    fn freshness(&self) -> Duration {
        FRESH
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.directory.path)
    }
}

/// A file kept open: what replaces it under the same key does not show here.
struct OpenFile {
    fd: OwnedFd,
    key: Key,
}

impl Reader for OpenFile {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        read_span(&self.fd, offset, len as u64).map_err(|error| failed(&self.key, error))
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // The kernel refuses reads that would end beyond what it can count.
        if offset.saturating_add(wanted as u64) > i64::MAX as u64 {
            let bytes = self.read_at(offset, wanted)?;
            deal_out(&bytes, parts);
            return Ok(bytes.len());
        }
        fill_parts(&self.fd, offset, parts).map_err(|error| failed(&self.key, error))
    }

    fn meta(&self) -> Result<Meta> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|error| failed(&self.key, error))?;
        meta_of(&stat).ok_or_else(|| Error::not_found(&self.key))
    }
}

/// A directory kept open.
struct OpenDirectory {
    fd: OwnedFd,
    key: Key,
    store: Arc<Directory>,
    page: VecDeque<Name>,
}

/// Length of one `getdents` page; about a thousand names.
const PAGE: usize = 32 * 1024;

impl OpenDirectory {
    /// Reads one page of names; returns false at the end of the directory.
    fn fill(&mut self) -> Result<bool> {
        let mut buffer = vec![MaybeUninit::uninit(); PAGE];
        let mut entries = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| failed(&self.key, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"."
                && name != b".."
                && let Some(kind) = self.kind_of(name, entry.file_type())
            {
                self.page.push_back(Name {
                    name: name.to_vec(),
                    kind,
                    cursor: entry.next_entry_cookie(),
                });
            }
            if entries.is_buffer_empty() && !self.page.is_empty() {
                return Ok(true);
            }
        }
        Ok(!self.page.is_empty())
    }

    /// Returns what to show a name as; nothing for pipes, sockets and devices.
    fn kind_of(&self, name: &[u8], found: FileType) -> Option<EntryKind> {
        match found {
            FileType::RegularFile => Some(EntryKind::File),
            FileType::Directory => Some(EntryKind::Directory),
            FileType::Symlink | FileType::Unknown => {
                let key = self.key.child(name).ok()?;
                self.store.head(&key).ok()?.map(|meta| meta.kind)
            }
            _ => None,
        }
    }
}

impl Listing for OpenDirectory {
    fn next(&mut self) -> Result<Option<Name>> {
        if self.page.is_empty() && !self.fill()? {
            return Ok(None);
        }
        Ok(self.page.pop_front())
    }

    fn seek(&mut self, cursor: u64) -> Result<()> {
        self.page.clear();
        rustix::fs::seek(&self.fd, SeekFrom::Start(cursor))
            .map_err(|error| failed(&self.key, error))?;
        Ok(())
    }
}

fn relative(key: &Key) -> &OsStr {
    if key.is_root() {
        OsStr::new(".")
    } else {
        OsStr::from_bytes(key.as_bytes())
    }
}

/// Whether a key is simply not there: also when a file stands where a directory would have to be.
fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}

fn failed(key: &Key, error: Errno) -> Error {
    match error {
        Errno::XDEV => Error::new(
            Kind::Denied,
            key,
            "a symbolic link leaves the store (see --follow-symlinks)",
        ),
        Errno::LOOP => Error::corrupt(key, "symbolic links that lead in a circle"),
        // A socket, or a pipe that nobody writes to.
        Errno::NXIO => Error::corrupt(key, "neither a regular file nor a directory"),
        error => Error::os(key, error),
    }
}

/// Whether a link's target names something inside the store, by its text alone.
fn stays_inside(key: &Key, target: &[u8]) -> bool {
    let mut depth = key.names().count() as i64 - 1;
    for name in target.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// Reads `length` bytes, fewer only if the file ends before. No file reaches beyond what the kernel can count.
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

/// Fills pieces of memory; returns how many bytes there were.
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

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn version_of(stat: &Stat) -> Version {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size).hash(&mut hasher);
    (
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec,
    )
        .hash(&mut hasher);
    Version(hasher.finish())
}

/// Returns what is known of a file or directory; nothing for pipes, sockets and devices.
fn meta_of(stat: &Stat) -> Option<Meta> {
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (EntryKind::File, size_of(stat)),
        FileType::Directory => (EntryKind::Directory, 0),
        _ => return None,
    };
    Some(describe(stat, kind, size))
}

fn link_meta(stat: &Stat) -> Meta {
    describe(stat, EntryKind::Link, size_of(stat))
}

fn describe(stat: &Stat, kind: EntryKind, size: u64) -> Meta {
    let stored = u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    Meta {
        kind,
        size,
        stored,
        modified: modified(stat),
        version: version_of(stat),
    }
}

fn modified(stat: &Stat) -> SystemTime {
    let nanoseconds = Duration::from_nanos(stat.st_mtime_nsec);
    let seconds = Duration::from_secs(stat.st_mtime.unsigned_abs());
    let whole = if stat.st_mtime < 0 {
        UNIX_EPOCH.checked_sub(seconds)
    } else {
        UNIX_EPOCH.checked_add(seconds)
    };
    whole
        .and_then(|time| time.checked_add(nanoseconds))
        .unwrap_or(UNIX_EPOCH)
}

/// Returns an error of the kernel as the one that a caller sees.
impl From<Errno> for Error {
    fn from(error: Errno) -> Error {
        Error::os("", io::Error::from(error))
    }
}
