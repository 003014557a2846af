//! Resolves the keys of a local store to open files and their status.
//!
//! The kernel resolves every key beneath the root directory (`openat2`, RESOLVE_BENEATH), so neither a key nor a
//! symbolic link leads outside, unless the user permits that. No open for reading can block. While the root directory
//! is missing, every request fails.
//!
//! The version of a file is made of inode, size, mtime and ctime. It changes with every write that the file system's
//! clock can distinguish from the one before. The text of the ETag leaves out ctime, which a change of mode alters. If
//! the version differs from the recorded one, the overlay compares length and digest.

use std::ffi::OsStr;
use std::fs;
use std::iter::successors;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::backend::local::root::{CurrentRoot, GONE, OpenRoot};
use crate::sync::clock::Clock;
use crate::sync::file_limits;
use crate::{ChangeLog, ETag, EntryKind, Key, Meta, Presence, Version};
use zarr_format::error::{Error, Kind, Result};

/// Adds flags to an open for reading: it must not block, nor make a terminal the controlling one. With O_PATH the
/// kernel accepts only O_CLOEXEC.
fn safe(flags: OFlags) -> OFlags {
    if flags.contains(OFlags::PATH) {
        flags | OFlags::CLOEXEC
    } else {
        flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
    }
}

pub(super) struct StoreDirectory {
    root: CurrentRoot,
    follow_symlinks: bool,
}

impl StoreDirectory {
    /// Opens the root directory at `path`. If another directory is at the path later, `changes` records that.
    pub(super) fn new(
        path: &Path,
        follow_symlinks: bool,
        changes: Arc<ChangeLog>,
        clock: Clock,
    ) -> Result<StoreDirectory> {
        Ok(StoreDirectory {
            root: CurrentRoot::open(path, changes, clock)?,
            follow_symlinks,
        })
    }

    /// Returns the path of the root directory, as an absolute path whose symbolic links are not resolved.
    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(super) fn is_in_our_mount(&self) -> bool {
        self.root.is_in_our_mount()
    }

    /// Opens the file or directory of a key. Symbolic links that leave the store are followed only if the user permits
    /// it.
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

    /// Opens the file or directory of a key, following only symbolic links that end inside the store.
    pub(super) fn open_inside(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let root = self.root.get()?;
        match open_beneath(&root.fd, relative(key), flags) {
            Err(Errno::XDEV) => open_absolute_link(&root, key, flags),
            result => result,
        }
    }

    /// Opens the regular file of a key, or returns `None` for a directory or a missing key. A special file is the error
    /// `Corrupt`. So is a dangling link: its content was not fetched yet, and it must not read as a chunk that was
    /// never stored.
    pub(super) fn open_file(&self, key: &Key) -> Result<Option<(OwnedFd, Stat)>> {
        let fd = match self.open(key, OFlags::RDONLY) {
            Ok(fd) => fd,
            Err(error) if is_missing(error) => {
                let Some(target) = self.dangling_target(key) else {
                    return Ok(None);
                };
                let target = String::from_utf8_lossy(&target);
                let why = format!("a symbolic link to {target}, which does not exist");
                return Err(Error::corrupt(key, why));
            }
            Err(error) => return Err(failed(key, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| failed(key, error))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some((fd, stat))),
            FileType::Directory => Ok(None),
            _ => Err(Error::corrupt(key, "not a regular file or directory")),
        }
    }

    /// Returns the target of a key's symbolic link if the link is dangling, or `None` otherwise.
    fn dangling_target(&self, key: &Key) -> Option<Vec<u8>> {
        let link = self.open_once(key, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        let stat = rustix::fs::fstat(&link).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return None;
        }
        let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        Some(target.into_bytes())
    }

    /// Returns the file status of a key's file, or of the symbolic link if it cannot be followed. Returns `None` for a
    /// directory or a missing key.
    pub(super) fn content(&self, key: &Key) -> Result<Option<Stat>> {
        let status = match self.open(key, OFlags::PATH) {
            Ok(fd) => Some(rustix::fs::fstat(fd).map_err(|error| failed(key, error))?),
            Err(error) if is_missing(error) || matches!(error, Errno::XDEV | Errno::LOOP) => {
                self.stat_link(key)?
            }
            Err(error) => return Err(failed(key, error)),
        };
        let Some(stat) = status else { return Ok(None) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Symlink => Ok(Some(stat)),
            FileType::Directory => Ok(None),
            _ => Err(Error::corrupt(key, "not a regular file or directory")),
        }
    }

    /// Returns the file status of a key, or `None` if the key is missing. A symbolic link at the key is not followed.
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

    /// Whether the mount shows a symbolic link as a link, which the kernel then resolves inside the mount. A link that
    /// is absolute or leaves the store is shown as its target instead, if the user permits following it.
    pub(super) fn shows_as_link(&self, key: &Key, target: &[u8]) -> bool {
        let Ok(root) = self.root.get() else {
            return false;
        };
        let opened = open_beneath(&root.fd, relative(key), OFlags::PATH);
        !target.starts_with(b"/")
            && !matches!(opened, Err(Errno::XDEV))
            && (stays_inside(key, target) || opened.is_ok())
    }

    pub(super) fn link_target(&self, key: &Key) -> Result<Vec<u8>> {
        let parent = key.parent().unwrap_or_default();
        let parent = self
            .open(&parent, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|error| failed(key, error))?;
        let target = rustix::fs::readlinkat(&parent, OsStr::from_bytes(key.name()), Vec::new());
        Ok(target.map_err(|error| failed(key, error))?.into_bytes())
    }

    /// Returns the metadata of a key, or `None` if the key is missing. A symbolic link is not followed if the mount
    /// shows it as a link or if it leads to a directory above itself.
    pub(super) fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let Some(stat) = self.stat_link(key)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(meta_of(&stat));
        }
        if self.shows_as_link(key, &self.link_target(key)?) || self.is_symlink_cycle(key) {
            return Ok(Some(link_meta(&stat)));
        }
        match self.open(key, OFlags::PATH) {
            Ok(fd) => Ok(meta_of(
                &rustix::fs::fstat(fd).map_err(|error| failed(key, error))?,
            )),
            Err(_) => Ok(Some(link_meta(&stat))),
        }
    }

    /// Returns the metadata of a key from the kernel's dentry and inode caches, without disk access.
    ///
    /// RESOLVE_CACHED resolves a path without I/O. Only local file systems qualify: on a network file system, the
    /// status of a cached file may need a request to the server. All other cases, such as links, are `Unknown`.
    pub(super) fn cached_head(&self, key: &Key) -> Presence<Meta> {
        let Some(root) = self.root.cached() else {
            return Presence::Unknown;
        };
        let flags = safe(OFlags::PATH | OFlags::NOFOLLOW);
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        match rustix::fs::openat2(&root.fd, relative(key), flags, Mode::empty(), resolve) {
            Ok(fd) => {
                rustix::fs::fstat(fd).map_or(
                    Presence::Unknown,
                    |stat| match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Symlink => Presence::Unknown,
                        _ => meta_of(&stat).into(),
                    },
                )
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Presence::Missing,
            Err(_) => Presence::Unknown,
        }
    }

    /// Whether a key is a symbolic link to a directory above the link or above the store.
    ///
    /// Such a link makes a recursive walk endless. The kernel follows at most 40 links in a path, so a walk through one
    /// such link ends after 40 rounds, but a walk through two of them in each directory takes 2^40 steps.
    pub(super) fn is_symlink_cycle(&self, key: &Key) -> bool {
        let place = |key: &Key| self.path().join(OsStr::from_bytes(key.as_bytes()));
        let is_link = fs::symlink_metadata(place(key)).is_ok_and(|meta| meta.is_symlink());
        if !is_link {
            return false;
        }
        let real = |key: &Key| fs::canonicalize(place(key)).ok();
        let Some(target) = real(key) else {
            return false;
        };
        let mut ancestors = successors(key.parent(), Key::parent);
        ancestors.any(|above| real(&above).is_some_and(|above| above.starts_with(&target)))
    }
}

fn open_beneath(root: &OwnedFd, path: &OsStr, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // A concurrent rename can disturb the resolution of `..`, and the kernel then returns EAGAIN.
    for _ in 0..16 {
        match rustix::fs::openat2(root, path, safe(flags), Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a key whose symbolic link is absolute but ends inside the store. RESOLVE_BENEATH refuses every absolute link.
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

/// Whether an errno means that the key is missing. ENOTDIR does too: a file is in place of a directory on the path.
fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}

/// Converts an errno into the store's error about a key.
pub(super) fn failed(key: &Key, error: Errno) -> Error {
    match error {
        Errno::XDEV => Error::new(
            Kind::Denied,
            key,
            "a symbolic link leads out of the store: use --follow-symlinks to follow the link",
        ),
        GONE => {
            let why = "the store is gone: the directory no longer exists";
            Error::new(Kind::Gone, key, why)
        }
        Errno::LOOP => Error::corrupt(key, "symbolic links lead in a circle"),
        // ENXIO comes from opening a socket, or a pipe without a reader or writer.
        Errno::NXIO => Error::corrupt(key, "not a regular file or directory"),
        error => Error::os(key, error),
    }
}

/// Whether a symbolic link's target is inside the store, judged by its text alone.
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

pub(super) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(super) fn version_of(stat: &Stat) -> Version {
    let words = [
        stat.st_ino.to_le_bytes(),
        stat.st_size.to_le_bytes(),
        stat.st_mtime.to_le_bytes(),
        stat.st_mtime_nsec.to_le_bytes(),
        stat.st_ctime.to_le_bytes(),
        stat.st_ctime_nsec.to_le_bytes(),
    ];
    Version::of(&words.concat())
}

/// Returns the ETag of a file: a text of size, mtime and inode.
pub(super) fn etag_of(stat: &Stat) -> ETag {
    let (size, inode) = (size_of(stat), stat.st_ino);
    let (seconds, nanoseconds) = (stat.st_mtime, stat.st_mtime_nsec);
    ETag {
        text: format!("size {size}, mtime {seconds}.{nanoseconds:09}, inode {inode}"),
        version: version_of(stat),
    }
}

pub(super) fn meta_of(stat: &Stat) -> Option<Meta> {
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (EntryKind::File, size_of(stat)),
        FileType::Directory => (EntryKind::Directory, 0),
        _ => return None,
    };
    Some(describe(stat, kind, size))
}

pub(super) fn link_meta(stat: &Stat) -> Meta {
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

pub(super) fn modified(stat: &Stat) -> SystemTime {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::backend::local::LocalStore;
    use crate::request_context::{UNLIMITED, WITHOUT_WAITING, is_answer};
    use crate::{Store, StoreConfig};
    use zarr_format::error::Result;

    /// Looks up a key in the kernel's caches alone, after a first lookup has cached it there.
    fn known(store: &LocalStore, key: &str) -> Result<Option<Meta>> {
        let key = Key::new(key).unwrap();
        let _ = store.head(&UNLIMITED, &key);
        store.head(&WITHOUT_WAITING, &key)
    }

    #[test]
    fn a_lookup_without_waiting_agrees_or_gives_no_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        fs::create_dir_all(path.join("a")).unwrap();
        fs::write(path.join("a/b"), "text").unwrap();
        symlink("b", path.join("a/link")).unwrap();
        symlink("a", path.join("there")).unwrap();
        let store = LocalStore::open(&path, &StoreConfig::default()).unwrap();
        for key in ["", "a", "a/b"] {
            let found = store.head(&UNLIMITED, &Key::new(key).unwrap()).unwrap();
            assert_eq!(known(&store, key).unwrap(), found, "{key}");
        }
        assert_eq!(known(&store, "a/none").unwrap(), None);
        for key in ["a/link", "there/b", "a/b/none"] {
            assert!(!is_answer(&known(&store, key)), "{key}");
        }
        fs::rename(&path, folder.path().join("away")).unwrap();
        fs::remove_dir_all(folder.path().join("away")).unwrap();
        let again = store.head(&WITHOUT_WAITING, &Key::new("a").unwrap());
        assert!(!is_answer(&again));
    }

    #[test]
    fn only_a_link_to_a_directory_on_its_path_is_a_cycle() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("store");
        for name in ["a/b", "c"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        let links = [
            ("a/up", ".."),
            ("a/self", "."),
            ("a/b/above", "../../.."),
            ("a/b/beside", "../../c"),
            ("c/back", "../a"),
            ("c/none", "none"),
        ];
        for (name, target) in links {
            symlink(target, top.join(name)).unwrap();
        }
        symlink(&top, top.join("a/root")).unwrap();
        let directory = StoreDirectory::new(&top, false, Arc::default(), Clock::stopped());
        let directory = directory.unwrap();
        let leads = |name: &str| directory.is_symlink_cycle(&Key::new(name).unwrap());
        for name in [
            "a/up",
            "a/self",
            "a/b/above",
            "a/root",
            "a/b/beside/back",
            "c/back/b/beside",
        ] {
            assert!(leads(name), "{name}");
        }
        for name in [
            "",
            "a",
            "a/b",
            "a/b/beside",
            "c/back",
            "c/none",
            "a/up/c",
            "none",
        ] {
            assert!(!leads(name), "{name}");
        }
    }
}
