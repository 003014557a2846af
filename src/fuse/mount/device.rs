//! The device /dev/fuse, and what to do where it cannot be opened.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::advice::{Obstacle, advice};
use super::host::Host;
use crate::error::{Error, Kind, Result};

/// The kernel's side of FUSE.
pub(crate) const DEVICE: &str = "/dev/fuse";

/// Opens the device; the error says what the host of this process lacks.
pub(super) fn open() -> Result<OwnedFd> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) => Ok(device.into()),
        Err(error) if is_missing(&error) => Err(missing()),
        Err(error) => {
            let advice = advice(Obstacle::DeviceDenied, &Host::probe());
            let detail = format!("{error}; {advice}");
            Err(Error::new(Error::os(DEVICE, error).kind(), DEVICE, detail))
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// The error where there is no device.
pub(super) fn missing() -> Error {
    let advice = advice(Obstacle::NoDevice, &Host::probe());
    Error::new(Kind::NotFound, DEVICE, format!("not there; {advice}"))
}
