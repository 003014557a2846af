//! Mounting: mount(2) as root (`root`), fusermount3 as any other user (`fusermount`).
//!
//! `mountpoint` checks mountpoints, `mounted_dir` unmounts, `liveness` checks whether a mount answers, and `mountinfo`
//! reads the kernel's mount table.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process;

use mountinfo::Mounted;
use zarr_format::error::{Error, Kind, Result};

mod fusermount;
pub mod liveness;
mod mounted_dir;
pub mod mountinfo;
pub mod mountpoint;
mod root;

pub use mounted_dir::{MountedDir, unmount_at};

/// The hint that follows the error if this process may not mount.
const HINT: &str =
    "for containers, Slurm and WSL see 'man 7 zarrfs'; 'zarrfs cp', 'cat' and 'info' need no mount";

/// The FUSE device of the kernel.
pub(super) const DEVICE: &str = "/dev/fuse";

/// The parameters of a mount; `nosuid` and `nodev` are always in force.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The source in the mount table.
    pub source: String,
    /// The mountpoint: absolute, without symbolic links.
    pub path: PathBuf,
    /// Whether other users may use it.
    pub allow_other: bool,
    /// Other mount flags.
    pub flags: Flags,
}

/// Mount flags that the kernel keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// The mount is read-only.
    pub read_only: bool,
    /// Files cannot be executed.
    pub noexec: bool,
    /// Reads do not change access times.
    pub noatime: bool,
    /// Writes are synchronous.
    pub sync: bool,
    /// Changes of directories are synchronous.
    pub dirsync: bool,
}

/// A connection to the kernel, and its mountpoint.
pub struct Connection {
    /// The open device; reads return requests.
    pub device: OwnedFd,
    /// The mount; `None` if another program mounted it.
    pub dir: Option<MountedDir>,
}

/// Mounts; `Denied` if this user may not mount, `NotFound` if /dev/fuse or fusermount3 is missing.
pub fn mount(request: &MountRequest) -> Result<Connection> {
    let device = if process::geteuid().is_root() {
        root::mount(request)?
    } else {
        fusermount::mount(request)?
    };
    let mounted = mountinfo::top_at(&request.path)?.filter(Mounted::is_ours);
    let gone = || {
        Error::unavailable(
            request.path.display(),
            "the mount disappeared right after mounting",
        )
    };
    let dir = MountedDir::new(mounted.ok_or_else(gone)?.device);
    Ok(Connection {
        device,
        dir: Some(dir),
    })
}

/// Takes over file descriptor `number` of this process, which a privileged program has mounted.
pub fn take_over(number: i32) -> Result<Connection> {
    let taken = process::pidfd_open(process::getpid(), process::PidfdFlags::empty())
        .and_then(|own| process::pidfd_getfd(own, number, process::PidfdGetfdFlags::empty()));
    let device = taken.map_err(|error| Error::os(format!("/dev/fd/{number}"), error))?;
    Ok(Connection { device, dir: None })
}

/// Opens the device.
fn open_device() -> Result<OwnedFd> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) if is_missing(&error) => Err(missing_device()),
        Err(error) => {
            let error = Error::os(DEVICE, error);
            let detail = format!(
                "{}; run 'chmod 666 {DEVICE}' as root; {HINT}",
                error.detail()
            );
            Err(Error::new(error.kind(), DEVICE, detail))
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Returns the error of a missing device.
fn missing_device() -> Error {
    Error::new(
        Kind::NotFound,
        DEVICE,
        format!(
            "not found; run 'modprobe fuse' as root, or start the container with --device /dev/fuse; {HINT}"
        ),
    )
}
