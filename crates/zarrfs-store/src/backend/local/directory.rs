//! The root directory of a local store: resolves keys to open files and their status.
//!
//! The store's path is resolved again and again, since the directory may be recreated or moved away, or a link on the
//! path may be changed. While the directory is missing, every request fails (see `root`).
//!
//! The kernel resolves every key beneath the directory (`openat2`, RESOLVE_BENEATH), so neither a key nor a link leads
//! outside, unless links may be followed. No open for reading can block (`SAFE`). outside unless links may be followed,
//! and nothing is opened in a way that could block.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::backend::local::circle::is_symlink_cycle;
use crate::backend::local::root::{GONE, OpenRoot, PresentRoot};
use crate::backend::local::stat::{link_meta, meta_of};
use crate::sync::clock::Clock;
use crate::sync::file_limits;
use crate::{ChangeLog, Key, Meta};
use zarr_format::error::{Error, Kind, Result};

/// Flags of all files that are opened for reading: never block, never become a controlling terminal.
const SAFE: OFlags = OFlags::CLOEXEC
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Adds the flags `SAFE`. With O_PATH the kernel accepts only O_CLOEXEC of them.
fn safe(flags: OFlags) -> OFlags {
    if flags.contains(OFlags::PATH) {
        flags | OFlags::CLOEXEC
    } else {
        flags | SAFE
    }
}

/// The root directory of a store.
pub(super) struct StoreRoot {
    root: PresentRoot,
    follow_symlinks: bool,
}

impl StoreRoot {
    /// Opens the directory at `path`. If the path names another directory later, `changes` records it.
    pub(super) fn new(
        path: &Path,
        follow_symlinks: bool,
        changes: Arc<ChangeLog>,
        clock: Clock,
    ) -> Result<StoreRoot> {
        Ok(StoreRoot {
            root: PresentRoot::open(path, changes, clock)?,
            follow_symlinks,
        })
    }

    /// Returns the path of the directory, with links unresolved.
    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Whether the directory is inside a zarrfs mount.
    pub(super) fn is_in_our_mount(&self) -> bool {
        self.root.is_in_our_mount()
    }

    /// Opens a key, following all links that may be followed.
    pub(super) fn open(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.open_once(key, flags) {
            Err(Errno::MFILE | Errno::NFILE) => {
                file_limits::close_some();
                self.open_once(key, flags)
            }
            opened => opened,
        }
    }

    fn open_once(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        if self.follow_symlinks {
            let root = self.root.get()?;
            return rustix::fs::openat(&root.fd, relative(key), safe(flags), Mode::empty());
        }
        self.open_inside(key, flags)
    }

    /// Opens a key, following only links that end inside the store.
    pub(super) fn open_inside(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let root = self.root.get()?;
        match open_beneath(&root.fd, relative(key), flags) {
            Err(Errno::XDEV) => open_absolute_link(&root, key, flags),
            result => result,
        }
    }

    /// Opens a key with the flags `resolve`, or returns `None` if the root must be resolved first or is not on a local
    /// file system.
    pub(super) fn open_in_memory(
        &self,
        key: &Key,
        flags: OFlags,
        resolve: ResolveFlags,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        let root = self.root.cached()?;
        let (path, mode) = (relative(key), Mode::empty());
        Some(rustix::fs::openat2(
            &root.fd,
            path,
            safe(flags),
            mode,
            resolve,
        ))
    }

    /// Opens a regular file, or returns `None` for a directory or a missing key. Other kinds of files are `Corrupt`. So
    /// is a dangling link: its content was not fetched, which is not the same as a chunk that was never stored.
    pub(super) fn open_file(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        let fd = match self.open(key, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(error) if is_missing(error) => {
                return match self.dangling_target(key) {
                    Some(target) => Err(Error::corrupt(key, dangling(&target))),
                    None => Ok(None),
                };
            }
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

    /// Returns the target of a key if it is a dangling link, or `None` otherwise.
    fn dangling_target(&self, key: &Key) -> Option<Vec<u8>> {
        let link = self.open_once(key, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let stat = rustix::fs::fstat(&link).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return None;
        }
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        Some(target.into_bytes())
    }

    /// Returns the status of a key's file, or of the link if it cannot be followed; `None` for a directory or a missing
    /// key.
    pub(super) fn content(&self, key: &Key) -> Result<Option<Stat>> {
        let found = match self.open(key, OFlags::PATH) {
            Ok(fd) => Some(rustix::fs::fstat(fd).map_err(|error| failed(key, error))?),
            Err(error) if is_missing(error) || matches!(error, Errno::XDEV | Errno::LOOP) => {
                self.stat_link(key)?
            }
            Err(error) => return Err(failed(key, error)),
        };
        let Some(stat) = found else { return Ok(None) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Ok(Some(stat)),
            FileType::Directory => Ok(None),
            _ => Err(Error::corrupt(
                key,
                "neither a regular file nor a directory",
            )),
        }
    }

    /// Returns the status of a key, or `None` if it is missing. Links are not followed.
    pub(super) fn stat_link(&self, key: &Key) -> Result<Option<Stat>> {
        let Some(parent) = key.parent() else {
            let root = self.root.get();
            let stat = root.and_then(|root| rustix::fs::fstat(&root.fd));
            return stat.map(Some).map_err(|error| failed(key, error));
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

    /// Whether a link is shown as a link, which the kernel then resolves inside the mount. A link that is absolute or
    /// leaves the store is shown as its target, if it may be followed.
    pub(super) fn shows_as_link(&self, key: &Key, target: &[u8]) -> bool {
        let Ok(root) = self.root.get() else {
            return false;
        };
        let opened = open_beneath(&root.fd, relative(key), OFlags::PATH);
        !target.starts_with(b"/")
            && !matches!(opened, Err(Errno::XDEV))
            && (stays_inside(key, target) || opened.is_ok())
    }

    /// Returns the target of a link.
    pub(super) fn link_target(&self, key: &Key) -> Result<Vec<u8>> {
        let parent = key.parent().unwrap_or_default();
        let parent = self
            .open(&parent, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|error| failed(key, error))?;
        let target = rustix::fs::readlinkat(&parent, OsStr::from_bytes(key.name()), Vec::new());
        Ok(target.map_err(|error| failed(key, error))?.into_bytes())
    }

    /// Returns the metadata of a key, or `None` if it is missing. A link is not followed if it is shown as a link or
    /// leads to one of its ancestors.
    pub(super) fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let Some(stat) = self.stat_link(key)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(meta_of(&stat));
        }
        if self.shows_as_link(key, &self.link_target(key)?) || is_symlink_cycle(self.path(), key) {
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

fn open_beneath(root: &OwnedFd, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // The kernel returns EAGAIN when a concurrent rename disturbs the resolution of a `..`.
    for _ in 0..16 {
        match rustix::fs::openat2(root, path, safe(flags), Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a key through an absolute link that ends inside the store. RESOLVE_BENEATH refuses every absolute link.
fn open_absolute_link(root: &OpenRoot, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let target = root.path.join(relative(key)).canonicalize();
    let target = target.map_err(|_| Errno::XDEV)?;
    let inside = target.strip_prefix(&root.path).map_err(|_| Errno::XDEV)?;
    let inside = if inside.as_os_str().is_empty() {
        OsStr::new(".")
    } else {
        inside.as_os_str()
    };
    open_beneath(&root.fd, inside, flags)
}

fn relative(key: &Key) -> &OsStr {
    if key.is_root() {
        OsStr::new(".")
    } else {
        OsStr::from_bytes(key.as_bytes())
    }
}

/// Whether an error means that a key is missing, including a path with a file in place of a folder.
fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}

/// Describes a dangling link.
fn dangling(target: &[u8]) -> String {
    let target = String::from_utf8_lossy(target);
    format!("a symbolic link to {target}, which is not there")
}

/// Converts an errno about a key to an error of the store.
pub(super) fn failed(key: &Key, error: Errno) -> Error {
    match error {
        Errno::XDEV => Error::new(
            Kind::Denied,
            key,
            "a symbolic link leaves the store (see --follow-symlinks)",
        ),
        GONE => {
            let why = "the store is gone: no directory is at its path any more";
            Error::new(Kind::Gone, key, why)
        }
        Errno::LOOP => Error::corrupt(key, "symbolic links that lead in a circle"),
        // A socket, or a pipe without a writer.
        Errno::NXIO => Error::corrupt(key, "neither a regular file nor a directory"),
        error => Error::os(key, error),
    }
}

/// Whether the target of a link is inside the store, judged by its text alone.
fn stays_inside(key: &Key, target: &[u8]) -> bool {
    let Some(mut depth) = key.names().count().checked_sub(1) else {
        return false;
    };
    for name in target.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." if depth == 0 => return false,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}
