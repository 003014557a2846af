//! Resolves the path of a local store to its root directory again and again.
//!
//! The directory may be replaced by another one or moved away, or a symbolic link on the path may be changed. So a
//! request that needs the root resolves the path again, at most ten times a second. Files that are already open are not
//! affected.
//!
//! While no directory is at the path, requests fail. A store that is gone must not look like an empty one, nor its
//! chunks like chunks that were never written.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sync::clock::Clock;
use crate::{ChangeLog, Key};
use zarr_format::error::{Error, Kind, Result};

/// The errno if the root directory is gone. No system call of a local store returns ENOLINK.
pub(super) const GONE: Errno = Errno::NOLINK;

/// How long a resolved root path is fresh: a tenth of the second for which metadata of local files is cached.
const PATH_TTL: Duration = Duration::from_millis(100);

/// The root directory of a local store. Its path is resolved again after each TTL.
pub(super) struct CurrentRoot {
    path: PathBuf,
    current: RwLock<Option<Arc<OpenRoot>>>,
    /// When the path was last resolved. While another request resolves it, requests use the previous root.
    resolved: Mutex<Instant>,
    changes: Arc<ChangeLog>,
    clock: Clock,
}

pub(super) struct OpenRoot {
    pub(super) fd: OwnedFd,
    /// The path of the directory, with symbolic links resolved.
    pub(super) path: PathBuf,
    /// Device and inode number of the directory.
    identity: (u64, u64),
    /// Whether the directory is on a local file system, not on a network file system.
    is_on_disk: bool,
}

/// Returns the magic number that tells the type of a file's file system.
fn file_system(fd: &OwnedFd) -> Option<u64> {
    u64::try_from(rustix::fs::fstatfs(fd).ok()?.f_type).ok()
}

/// Whether a file is on a local file system: ext, XFS, Btrfs, F2FS or tmpfs. overlayfs does not count, since its layers
/// may be remote.
fn is_on_disk(fd: &OwnedFd) -> bool {
    matches!(
        file_system(fd),
        Some(0xef53 | 0x5846_5342 | 0x9123_683e | 0xf2f5_2010 | 0x0102_1994)
    )
}

fn is_fuse(fd: &OwnedFd) -> bool {
    file_system(fd) == Some(0x6573_5546)
}

impl OpenRoot {
    fn open(path: &Path) -> rustix::io::Result<OpenRoot> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let resolved = path.canonicalize();
        let resolved = resolved.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO));
        Ok(OpenRoot {
            is_on_disk: is_on_disk(&fd),
            fd,
            path: resolved?,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    fn exists(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink > 0)
    }
}

impl CurrentRoot {
    /// Opens the root directory at `path`. If another directory is at the path later, `changes` records that.
    pub(super) fn open(path: &Path, changes: Arc<ChangeLog>, clock: Clock) -> Result<CurrentRoot> {
        let failed = |error| Error::os(path.display(), error);
        let root = OpenRoot::open(path).map_err(|error| match error {
            Errno::NOENT => {
                let why = "No such file or directory; check the path of the store";
                Error::new(Kind::NotFound, path.display(), why)
            }
            error => failed(error.into()),
        })?;
        Ok(CurrentRoot {
            // The path is made absolute, since the daemon changes its working directory later.
            path: std::path::absolute(path).map_err(failed)?,
            current: RwLock::new(Some(Arc::new(root))),
            resolved: Mutex::new(clock.now()),
            changes,
            clock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory that is at the root's path now. Fails with `GONE` while there is none.
    pub(super) fn get(&self) -> rustix::io::Result<Arc<OpenRoot>> {
        if let Some(mut resolved) = self.resolved.try_lock() {
            let now = self.clock.now();
            let is_old = now.saturating_duration_since(*resolved) >= PATH_TTL;
            if is_old || self.existing().is_none() {
                self.resolve();
                *resolved = now;
            }
        }
        self.existing().ok_or(GONE)
    }

    pub(super) fn is_in_our_mount(&self) -> bool {
        let root = self.existing();
        root.is_some_and(|root| is_fuse(&root.fd) && is_our_mount(&root))
    }

    /// Returns the root directory if that needs no request to a server: its path is fresh and its file system is local.
    pub(super) fn cached(&self) -> Option<Arc<OpenRoot>> {
        let resolved = *self.resolved.try_lock()?;
        if self.clock.now().saturating_duration_since(resolved) >= PATH_TTL {
            return None;
        }
        // On a network file system, the check whether the root exists would need a request to the server.
        let root = self.current.read().clone();
        root.filter(|root| root.is_on_disk && root.exists())
    }

    /// Returns the root directory that was opened last, or `None` if it was removed since.
    fn existing(&self) -> Option<Arc<OpenRoot>> {
        self.current.read().clone().filter(|root| root.exists())
    }

    fn resolve(&self) {
        let before = self.current.read().clone();
        let opened = match OpenRoot::open(&self.path) {
            Ok(opened) => {
                let is_same = |before: &Arc<OpenRoot>| before.identity == opened.identity;
                if before.as_ref().is_some_and(is_same) {
                    return;
                }
                if is_our_mount(&opened) {
                    None
                } else {
                    Some(Arc::new(opened))
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            // Such an error, for example EMFILE or EACCES, does not mean that the root directory is gone.
            Err(error) => {
                log::debug!("{}: {error}", self.path.display());
                return;
            }
        };
        let path = self.path.display();
        match (&before, &opened) {
            (Some(_), None) => log::error!(
                "{path}: the store is gone; reads fail until the directory exists again"
            ),
            (Some(_), Some(_)) => log::warn!("{path}: the store was replaced by another directory"),
            (None, Some(_)) => log::warn!("{path}: the store exists again"),
            (None, None) => return,
        }
        *self.current.write() = opened;
        self.changes.record_tree(&Key::root());
    }
}

/// Whether the root directory is inside a mount of zarrfs. A store that is mounted over its own path would send its
/// requests to itself.
fn is_our_mount(opened: &OpenRoot) -> bool {
    let (major, minor) = (
        rustix::fs::major(opened.identity.0),
        rustix::fs::minor(opened.identity.0),
    );
    let device = format!("{major}:{minor}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        let is_on_device = line.split(' ').nth(2) == Some(&device);
        is_on_device && line.contains(" - fuse.zarrfs ")
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        clock: Clock,
        root: CurrentRoot,
    }

    /// Creates a directory `store` and opens it as the root of a local store, by that name or by `latest`, a link to
    /// it.
    fn fixture(name: &str) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        symlink("store", folder.path().join("latest")).unwrap();
        let clock = Clock::stopped();
        let path = folder.path().join(name);
        let root = CurrentRoot::open(&path, Arc::default(), clock.clone()).unwrap();
        Fixture {
            folder,
            clock,
            root,
        }
    }

    impl Fixture {
        fn shows(&self, name: &str) -> bool {
            let now = fs::metadata(self.folder.path().join(name)).unwrap();
            let found = self.root.get().unwrap();
            found.identity
                == (
                    std::os::unix::fs::MetadataExt::dev(&now),
                    std::os::unix::fs::MetadataExt::ino(&now),
                )
        }
    }

    #[test]
    fn a_replaced_root_is_found_after_its_ttl() {
        let fixture = fixture("store");
        let old = fixture.root.get().unwrap();
        let path = fixture.folder.path().join("store");
        let position = fixture.root.changes.position();
        fs::rename(&path, fixture.folder.path().join("old")).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(fixture.root.get().unwrap().identity, old.identity);
        fixture.clock.advance(PATH_TTL);
        assert!(fixture.shows("store"));
        assert!(
            fixture
                .root
                .changes
                .changed_since(position, &Key::new("a/b").unwrap())
        );
    }

    #[test]
    fn a_root_that_is_gone_is_an_error_until_it_is_back() {
        let fixture = fixture("store");
        let (path, away) = (
            fixture.folder.path().join("store"),
            fixture.folder.path().join("away"),
        );
        fs::rename(&path, &away).unwrap();
        fixture.clock.advance(PATH_TTL);
        assert_eq!(fixture.root.get().err(), Some(GONE));
        fs::rename(&away, &path).unwrap();
        assert!(fixture.shows("store"), "it is looked for each time");
    }

    /// Invariant (stores): A local store is the one that its path names now; a store that was removed is an error.
    #[test]
    fn a_removed_root_is_an_error_at_once() {
        let fixture = fixture("store");
        let path = fixture.folder.path().join("store");
        fs::remove_dir(&path).unwrap();
        assert_eq!(fixture.root.get().err(), Some(GONE));
        fs::create_dir(&path).unwrap();
        assert!(fixture.shows("store"));
    }

    #[test]
    fn a_changed_link_to_the_root_is_followed() {
        let fixture = fixture("latest");
        let (link, next) = (
            fixture.folder.path().join("latest"),
            fixture.folder.path().join("next"),
        );
        fs::create_dir(&next).unwrap();
        fs::remove_file(&link).unwrap();
        symlink("next", &link).unwrap();
        fixture.clock.advance(PATH_TTL);
        assert!(fixture.shows("next"));
    }
}
