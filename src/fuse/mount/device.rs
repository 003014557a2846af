//! The device /dev/fuse, and what to do where it cannot be opened.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// The kernel's side of FUSE.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// What a container needs for mounting.
pub(super) const CONTAINER_HINT: &str = "a container needs --device /dev/fuse --cap-add SYS_ADMIN";

/// Opens the device; the error says what a container or a small kernel lacks.
pub(super) fn open() -> Result<OwnedFd> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) if is_missing(&error) => Err(missing()),
        Err(error) => {
            let hint = format!("{error}; {CONTAINER_HINT}");
            Err(Error::new(Error::os(DEVICE, error).kind(), DEVICE, hint))
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// The error where there is no device.
pub(super) fn missing() -> Error {
    let hint = format!("not there; load the kernel module with 'modprobe fuse' ({CONTAINER_HINT})");
    Error::new(Kind::NotFound, DEVICE, hint)
}
