//! Mounting and unmounting: mount(2) as root, fusermount3 as anybody else.
//!
//! A mount is known by its device number, never by its path alone: what is unmounted is ours or it is left
//! alone. Unmounting is lazy, so a program that still uses the mount cannot keep it in the tree. `MountedDir`
//! unmounts when it is dropped, whatever ended the program.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process;

use crate::error::{Error, Kind, Result};
use mountinfo::{Device, Mounted};

mod fusermount;
pub mod mountinfo;
pub mod mountpoint;

/// The kernel's side of FUSE.
pub(super) const DEVICE: &str = "/dev/fuse";

/// What to mount, and how; `nosuid` and `nodev` are always in force.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// What the table of mounts shows as the source.
    pub source: String,
    /// Where: absolute, without symbolic links.
    pub path: PathBuf,
    /// Other users may look in.
    pub allow_other: bool,
    /// The rest of the mount flags.
    pub flags: Flags,
}

/// Mount flags that the kernel keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// Nothing can be run from the mount.
    pub noexec: bool,
    /// Reading leaves no trace.
    pub noatime: bool,
    /// Writes wait for the daemon.
    pub sync: bool,
    /// Changes of directories wait for the daemon.
    pub dirsync: bool,
}

/// A connection to the kernel, and where it is mounted.
pub struct Connection {
    /// The opened device; reads from it give requests.
    pub device: OwnedFd,
    /// Where it is mounted; nothing if somebody else mounted it.
    pub place: Option<MountedDir>,
}

/// A mount of this process, unmounted when dropped.
#[derive(Debug)]
pub struct MountedDir {
    path: PathBuf,
    device: Device,
    done: AtomicBool,
}

/// Mounts; `Denied` if the system does not let this user, `NotFound` if /dev/fuse or fusermount3 is missing.
pub fn mount(request: &MountRequest) -> Result<Connection> {
    let device = match process::geteuid().is_root() {
        true => mount_as_root(request)?,
        false => fusermount::mount(request)?,
    };
    let mounted = mountinfo::top_at(&request.path)?.filter(Mounted::is_ours);
    let mounted = mounted
        .ok_or_else(|| Error::new(Kind::Unavailable, shown(&request.path), "the mount is gone"))?;
    let place = MountedDir {
        path: request.path.clone(),
        device: mounted.device,
        done: AtomicBool::new(false),
    };
    Ok(Connection {
        device,
        place: Some(place),
    })
}

/// Takes over file descriptor `number` of this process, mounted by somebody privileged.
pub fn take_over(number: i32) -> Result<Connection> {
    let taken = process::pidfd_open(process::getpid(), process::PidfdFlags::empty())
        .and_then(|own| process::pidfd_getfd(own, number, process::PidfdGetfdFlags::empty()));
    let device = taken.map_err(|error| Error::os(format!("/dev/fd/{number}"), error))?;
    Ok(Connection {
        device,
        place: None,
    })
}

/// Detaches the mount of that line of the table.
pub fn unmount_at(mounted: &Mounted) -> Result<()> {
    if !process::geteuid().is_root() {
        return fusermount::unmount(&mounted.path);
    }
    match rustix::mount::unmount(&mounted.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(error) => Err(Error::os(shown(&mounted.path), error)),
    }
}

impl MountedDir {
    /// Returns where it was mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the mount.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Notes that the kernel ended the mount: its number may by now be that of another one, which is not ours.
    pub fn set_gone(&self) {
        self.done.store(true, Relaxed);
    }

    /// Detaches the mount, wherever it was moved; nothing happens if somebody else has done so.
    pub fn unmount(&self) -> Result<()> {
        if self.done.swap(true, Relaxed) {
            return Ok(());
        }
        for mounted in mountinfo::read()? {
            if mounted.device != self.device || !mounted.is_ours() {
                continue;
            }
            // What covers us is not ours to remove; our end of the connection closes all the same.
            match mountinfo::top_at(&mounted.path)? {
                Some(top) if top.device == self.device => unmount_at(&mounted)?,
                _ => log::warn!(
                    "{}: something else is mounted over it; left in place",
                    shown(&mounted.path)
                ),
            }
        }
        Ok(())
    }
}

impl Drop for MountedDir {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            log::error!("cannot unmount: {error}");
        }
    }
}

/// Opens the device; says what a container or a small kernel lacks.
pub(super) fn open_device() -> Result<OwnedFd> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing_device()),
        Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
            Err(missing_device())
        }
        Err(error) => {
            let hint = format!("{error}; {CONTAINER_HINT}");
            Err(Error::new(Error::os(DEVICE, error).kind(), DEVICE, hint))
        }
    }
}

const CONTAINER_HINT: &str = "a container needs --device /dev/fuse --cap-add SYS_ADMIN";

pub(super) fn missing_device() -> Error {
    let hint = format!("not there; load the kernel module with 'modprobe fuse' ({CONTAINER_HINT})");
    Error::new(Kind::NotFound, DEVICE, hint)
}

fn mount_as_root(request: &MountRequest) -> Result<OwnedFd> {
    let device = open_device()?;
    let data = data(&device, request);
    let mounted = rustix::mount::mount(
        request.source.as_str(),
        &request.path,
        mountinfo::TYPE,
        flags(request.flags),
        data.as_deref(),
    );
    match mounted {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => {
            let hint = format!("root here may not mount; {CONTAINER_HINT}");
            Err(Error::new(Kind::Denied, shown(&request.path), hint))
        }
        Err(error) => Err(Error::os(
            format!("mounting at {}", shown(&request.path)),
            error,
        )),
    }
}

/// Returns the options that the kernel's FUSE takes as text; the source is an argument of its own.
fn data(device: &OwnedFd, request: &MountRequest) -> Option<CString> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        process::geteuid().as_raw(),
        process::getegid().as_raw()
    );
    if request.allow_other {
        data.push_str(",allow_other");
    }
    CString::new(data).ok()
}

fn flags(asked: Flags) -> MountFlags {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, asked.read_only);
    flags.set(MountFlags::NOEXEC, asked.noexec);
    flags.set(MountFlags::NOATIME, asked.noatime);
    flags.set(MountFlags::SYNCHRONOUS, asked.sync);
    flags.set(MountFlags::DIRSYNC, asked.dirsync);
    flags
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
