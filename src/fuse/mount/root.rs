//! Mounts as root, with mount(2).

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process;

use super::{Flags, HINT, MountRequest, mountinfo, open_device};
use zarr_format::error::{Error, Kind, Result};

/// Mounts and returns the device; `Denied` if root may not mount here.
pub(super) fn mount(request: &MountRequest) -> Result<OwnedFd> {
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

/// Returns the text options of the kernel's FUSE; the source is a separate argument.
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

fn flags(request: Flags) -> MountFlags {
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, request.read_only);
    flags.set(MountFlags::NOEXEC, request.noexec);
    flags.set(MountFlags::NOATIME, request.noatime);
    flags.set(MountFlags::SYNCHRONOUS, request.sync);
    flags.set(MountFlags::DIRSYNC, request.dirsync);
    flags
}
