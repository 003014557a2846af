//! Mounts and unmounts: as root with system calls, otherwise with fusermount3 (`fusermount`).
//!
//! `mountpoint` checks mountpoints, `liveness` checks whether a mount answers, and `mountinfo` reads the kernel's mount
//! table.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process;

use mountinfo::{Device, Mounted};
use zarr_format::error::{Error, Kind, Result};

mod fusermount;
pub mod liveness;
pub mod mountinfo;
pub mod mountpoint;

/// Hint in errors of a process that may not mount.
const HINT: &str =
    "for containers, Slurm and WSL see 'man 7 zarrfs'; 'zarrfs cp', 'cat' and 'info' need no mount";

pub(super) const DEVICE: &str = "/dev/fuse";

/// The parameters of a mount. `nosuid` and `nodev` are always set.
#[derive(Clone, Debug, Default)]
pub struct MountRequest {
    /// The source of the mount, as the mount table shows it.
    pub source: String,
    /// The mountpoint: absolute, without symbolic links.
    pub path: PathBuf,
    /// Whether other users may use the mount.
    pub allow_other: bool,
    /// The mount flags.
    pub flags: Flags,
}

/// Flags of a mount that the kernel enforces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether files cannot be executed.
    pub noexec: bool,
    /// Whether reads leave access times unchanged.
    pub noatime: bool,
    /// Whether writes are synchronous.
    pub sync: bool,
    /// Whether changes of directories are synchronous.
    pub dirsync: bool,
}

/// An open FUSE device, and the mount that it belongs to.
pub struct Connection {
    /// The FUSE device: reads return the kernel's requests.
    pub device: OwnedFd,
    /// The mount; `None` if another program mounted the device, and unmounts it.
    pub dir: Option<MountedDir>,
}

/// Mounts a FUSE file system. Fails with `Denied` if this user may not mount, and with `NotFound` if /dev/fuse or
/// fusermount3 is missing.
pub fn mount(request: &MountRequest) -> Result<Connection> {
    let device = if process::geteuid().is_root() {
        mount_as_root(request)?
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

/// Mounts with mount(2) as root, and returns the FUSE device; fails with `Denied` if root may not mount here.
fn mount_as_root(request: &MountRequest) -> Result<OwnedFd> {
    let device = open_device()?;
    let options = kernel_options(&device, request);
    let mounted = rustix::mount::mount(
        request.source.as_str(),
        &request.path,
        mountinfo::TYPE,
        kernel_flags(request.flags),
        options.as_deref(),
    );
    match mounted {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => {
            let detail = format!(
                "root may not mount here; start the container with --cap-add SYS_ADMIN; {HINT}"
            );
            Err(Error::new(Kind::Denied, request.path.display(), detail))
        }
        Err(error) => Err(Error::os(
            format!("cannot mount at {}", request.path.display()),
            error,
        )),
    }
}

/// Returns the options for mount(2) as text, without the source, which is a separate argument.
fn kernel_options(device: &OwnedFd, request: &MountRequest) -> Option<CString> {
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

fn kernel_flags(request: Flags) -> MountFlags {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, request.read_only);
    flags.set(MountFlags::NOEXEC, request.noexec);
    flags.set(MountFlags::NOATIME, request.noatime);
    flags.set(MountFlags::SYNCHRONOUS, request.sync);
    flags.set(MountFlags::DIRSYNC, request.dirsync);
    flags
}

/// Takes over the FUSE device that a privileged program has mounted and passed to this process as descriptor `number`.
pub fn take_over(number: i32) -> Result<Connection> {
    let taken = process::pidfd_open(process::getpid(), process::PidfdFlags::empty())
        .and_then(|own| process::pidfd_getfd(own, number, process::PidfdGetfdFlags::empty()));
    let device = taken.map_err(|error| Error::os(format!("/dev/fd/{number}"), error))?;
    Ok(Connection { device, dir: None })
}

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

fn missing_device() -> Error {
    Error::new(
        Kind::NotFound,
        DEVICE,
        format!(
            "not found; run 'modprobe fuse' as root, or start the container with --device /dev/fuse; {HINT}"
        ),
    )
}

/// A mount of this process, which is unmounted when this value is dropped.
///
/// The mount is identified by its device number, not by its path, so that a mount of another file system is never
/// unmounted. Unmounting is lazy: it works even if a program still uses the mount.
#[derive(Debug)]
pub struct MountedDir {
    device: Device,
    is_gone: AtomicBool,
}

/// Detaches a mount.
pub fn unmount_at(mounted: &Mounted) -> Result<()> {
    if !process::geteuid().is_root() {
        return fusermount::unmount(&mounted.path);
    }
    rustix::mount::unmount(&mounted.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|error| Error::os(mounted.path.display(), error))
}

impl MountedDir {
    fn new(device: Device) -> MountedDir {
        MountedDir {
            device,
            is_gone: AtomicBool::new(false),
        }
    }

    /// Returns the device number of the mount.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Records that the kernel has ended the mount, so that it is not unmounted: its device number may be reused.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Detaches the mount, even if it was moved to another path; does nothing if the mount has already ended.
    pub fn unmount(&self) -> Result<()> {
        if self.is_gone.swap(true, Relaxed) {
            return Ok(());
        }
        for mounted in mountinfo::read()? {
            if mounted.device != self.device || !mounted.is_ours() {
                continue;
            }
            // Another file system over this mount cannot be removed, so the mount stays in the tree; the connection
            // closes anyway.
            match mountinfo::top_at(&mounted.path)? {
                Some(top) if top.device == self.device => unmount_at(&mounted)?,
                _ => log::warn!(
                    "{}: not unmounted, since another file system is mounted over the mount",
                    mounted.path.display()
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
