//! Unmounts, lazily and only our own mounts.
//!
//! A mount is identified by its device number, never by its path alone: a mount of another file system is left alone.
//! Unmounting is lazy, so a program that still uses the mount cannot keep it in the tree. `MountedDir` unmounts when it
//! is dropped, however the program ends.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::mount::UnmountFlags;
use rustix::process;

use super::mountinfo::{Device, Mounted};
use super::{fusermount, mountinfo};
use zarr_format::error::{Error, Result};

/// A mount of this process; it is unmounted on drop.
#[derive(Debug)]
pub struct MountedDir {
    device: Device,
    is_gone: AtomicBool,
}

/// Detaches the mount of a line in the mount table.
pub fn unmount_at(mounted: &Mounted) -> Result<()> {
    if !process::geteuid().is_root() {
        return fusermount::unmount(&mounted.path);
    }
    rustix::mount::unmount(&mounted.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
        .map_err(|error| Error::os(mounted.path.display(), error))
}

impl MountedDir {
    pub(super) fn new(device: Device) -> MountedDir {
        MountedDir {
            device,
            is_gone: AtomicBool::new(false),
        }
    }

    /// Returns the device number of the mount.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Records that the kernel has ended the mount: its number may be reused by a mount that is not ours.
    pub fn set_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Detaches the mount, wherever it was moved; does nothing if it is already gone.
    pub fn unmount(&self) -> Result<()> {
        if self.is_gone.swap(true, Relaxed) {
            return Ok(());
        }
        for mounted in mountinfo::read()? {
            if mounted.device != self.device || !mounted.is_ours() {
                continue;
            }
            // A mount over this one is not ours to remove; our end of the connection closes anyway.
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
