//! Queries a mount for its facts: extended attributes of its root, served from memory.
//!
//! The files in `.zarrfs` would not be safe: a store may contain a folder `.zarrfs`, which hides the control directory,
//! and the author of the store could choose the changes directory that a commit uses. A store cannot contain these
//! attributes. A stopped daemon does not answer, so the command fails after a time limit.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::values;
use crate::fuse::kernel_mount::liveness::ANSWER_TIMEOUT;
use crate::fuse::kernel_mount::mountinfo::Mounted;
use crate::fuse::kernel_mount::{liveness, mountinfo, mountpoint};
use crate::mount::open::ViewKind;
use crate::view::control;
use zarr_format::error::{Error, Kind, Result};

/// Returns the path of the control directory `.zarrfs` of a mount.
pub(super) fn control_dir(mountpoint: &Path) -> PathBuf {
    mountpoint.join(OsStr::from_bytes(control::CONTROL))
}

/// The answer of a mount to a query for its source and options.
pub(super) struct MountFacts {
    dir: PathBuf,
    /// The members of `mount.json`: the source and the options in force.
    members: Value,
    hides_control: bool,
}

/// A path in a zarrfs mount, with the mountpoint.
pub(super) struct PathInMount {
    pub(super) mountpoint: PathBuf,
    /// The absolute path, without symbolic links.
    pub(super) path: PathBuf,
}

/// Finds the zarrfs mount that contains a path; returns `None` if the path is in no zarrfs mount.
pub(super) fn containing_mount(path: &Path) -> Result<Option<PathInMount>> {
    let table = mountinfo::read().unwrap_or_default();
    let ours: Vec<Mounted> = table.into_iter().filter(Mounted::is_ours).collect();
    if ours.is_empty() {
        return Ok(None);
    }
    let absolute = values::absolute(path)?;
    let path = mountpoint::resolve(&absolute).unwrap_or(absolute);
    let above = ours
        .into_iter()
        .filter(|mounted| path.starts_with(&mounted.path));
    let nearest = above.max_by_key(|mounted| mounted.path.as_os_str().len());
    Ok(nearest.map(|mounted| PathInMount {
        mountpoint: mounted.path,
        path,
    }))
}

/// Returns the mountpoint if the path is the mountpoint of a zarrfs mount, otherwise `None`.
pub(super) fn mountpoint_at(path: &Path) -> Result<Option<PathBuf>> {
    let mount = containing_mount(path)?.filter(|mount| mount.mountpoint == mount.path);
    Ok(mount.map(|mount| mount.mountpoint))
}

/// Returns an extended attribute of a mount's root; `Unavailable` if the mount does not answer in time.
pub(super) fn attribute(dir: &Path, name: &'static [u8]) -> Result<Vec<u8>> {
    with_timeout(dir, move |dir| read_attribute(dir, name))
}

/// Runs a query of the mount at `dir` in its own thread; fails with `Unavailable` if no answer comes in time.
fn with_timeout<T: Send + 'static>(
    dir: &Path,
    query: impl FnOnce(&Path) -> Result<T> + Send + 'static,
) -> Result<T> {
    let queried = dir.to_path_buf();
    let answer = liveness::run_query(move || query(&queried));
    let answer = answer.map_err(|error| Error::os(dir.display(), error))?;
    answer.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|_| {
        let why = format!(
            "the mount does not respond; run 'zarrfs umount {}' to remove the mount",
            dir.display()
        );
        Err(Error::unavailable(dir.display(), why))
    })
}

/// Reads an extended attribute of a mount's root, without a time limit.
fn read_attribute(dir: &Path, name: &[u8]) -> Result<Vec<u8>> {
    // Linux limits the value of an extended attribute to 64 KiB.
    let mut value = vec![0; 1 << 16];
    let read = rustix::fs::getxattr(dir, OsStr::from_bytes(name), value.as_mut_slice());
    let length = read.map_err(|error| unanswered(dir, error.into()))?;
    value.truncate(length);
    Ok(value)
}

/// Returns the error for a mount that cannot be queried.
fn unanswered(dir: &Path, error: io::Error) -> Error {
    if liveness::is_gone(&error) {
        let why = format!(
            "the process of the mount is gone; run 'zarrfs umount {}' to remove the mount",
            dir.display()
        );
        return Error::unavailable(dir.display(), why);
    }
    let error = Error::os(dir.display(), error);
    if error.kind() == Kind::NoAttribute {
        let why = "unknown mount: a bind mount of a directory in a mount, or a mount of another version of zarrfs";
        return Error::invalid(dir.display(), why);
    }
    error
}

impl MountFacts {
    /// Queries the facts of the mount at `dir`; fails with `Unavailable` if it does not answer in time.
    pub(super) fn ask(dir: &Path) -> Result<MountFacts> {
        with_timeout(dir, MountFacts::wait)
    }

    /// Queries the facts of the mount at `dir`, without a time limit.
    pub(super) fn wait(dir: &Path) -> Result<MountFacts> {
        let text = read_attribute(dir, control::MOUNT_ATTRIBUTE)?;
        let members =
            serde_json::from_slice(&text).map_err(|error| Error::corrupt(dir.display(), error))?;
        let hides_control = read_attribute(dir, control::CONTROL_ATTRIBUTE)? == control::HIDDEN;
        Ok(MountFacts {
            dir: dir.to_path_buf(),
            members,
            hides_control,
        })
    }

    /// Returns the path or URL of the mounted store, without secrets.
    pub(super) fn source(&self) -> &str {
        self.members["source"].as_str().unwrap_or_default()
    }

    /// Returns the value of a mount option, or "" if the option is not set.
    pub(super) fn option(&self, name: &str) -> &str {
        self.members["options"][name].as_str().unwrap_or_default()
    }

    /// Returns the changes directory, or `None` if the mount has none.
    pub(super) fn upper(&self) -> Option<PathBuf> {
        let upper = self.option("cow");
        (!matches!(upper, "none" | "")).then(|| PathBuf::from(upper))
    }

    /// Whether the mounted store can list its keys.
    pub(super) fn lists(&self) -> bool {
        self.members["listings"].is_null()
    }

    /// Whether the store has a key `.zarrfs`, which hides the control directory of the mount.
    pub(super) fn hides_control(&self) -> bool {
        self.hides_control
    }

    /// Whether the files below the mountpoint belong to groups and arrays. In the store view they are the stored keys.
    pub(super) fn shows_nodes(&self) -> bool {
        self.option("view") != ViewKind::Store.name()
    }

    /// Returns the folder of the mount in which all keys of the store are files.
    ///
    /// Fails with `Unsupported` if the mount has no such folder.
    pub(super) fn keys(&self) -> Result<PathBuf> {
        match (self.hides_control, self.shows_nodes()) {
            (false, _) => Ok(control_dir(&self.dir).join("store")),
            (true, false) => Ok(self.dir.clone()),
            (true, true) => {
                let why = "the mount shows no keys, since the store has a key .zarrfs; use the store itself";
                Err(Error::unsupported(self.dir.display(), why))
            }
        }
    }
}
