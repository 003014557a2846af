//! Mounting: mount(2) as root (`root`), fusermount3 as any other user (`fusermount`).
//!
//! `mountpoint` checks mountpoints, `mounted_dir` unmounts, `liveness` checks whether a mount answers, and `mountinfo`
//! reads the kernel's mount table.

use std::os::fd::OwnedFd;

use rustix::process;

use mountinfo::Mounted;
use zarr_format::error::{Error, Result};

pub(super) mod device;
mod fusermount;
pub mod liveness;
mod mounted_dir;
pub mod mountinfo;
pub mod mountpoint;
mod request;
mod root;

pub use mounted_dir::{MountedDir, unmount_at};
pub use request::{Flags, MountRequest};

/// The hint that follows the error if this process may not mount.
const HINT: &str = "zarrfs(7) says what Docker, Slurm, WSL and others need; 'zarrfs cp', 'cat' and 'info' need no mount";

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
    let gone = || Error::unavailable(request.path.display(), "the mount is gone");
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
