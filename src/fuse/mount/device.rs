//! Opens the device /dev/fuse.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::HINT;
use zarr_format::error::{Error, Kind, Result};

/// The FUSE device of the kernel.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Opens the device.
pub(super) fn open() -> Result<OwnedFd> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) if is_missing(&error) => Err(missing()),
        Err(error) => {
            let detail = format!("{error}; {HINT}");
            Err(Error::new(Error::os(DEVICE, error).kind(), DEVICE, detail))
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// Returns the error of a missing device.
pub(super) fn missing() -> Error {
    Error::new(Kind::NotFound, DEVICE, format!("not there; {HINT}"))
}
