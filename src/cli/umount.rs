//! `zarrfs umount`: detaches a mount of ours, also one whose daemon is gone.
//!
//! Any other file system that is mounted there is left alone. The mount itself is not accessed, so a daemon that hangs
//! cannot hang this command. After unmounting it waits for the daemon to end, for a limited time.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fuse::mount;
use crate::fuse::mount::mountinfo::Device;
use crate::fuse::mount::{mountinfo, mountpoint};

/// How long to wait for the mount and its daemon to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// How often that is looked at.
const END_PAUSE: Duration = Duration::from_millis(10);

/// Unmounts `dir`; `Invalid` if no mount of ours is there, `Denied` if it is another user's.
pub(super) fn umount(dir: &Path) -> Result<()> {
    let path = mountpoint::resolve(dir)?;
    let top = mountinfo::top_at(&path)?;
    let ours = match top {
        Some(mounted) if mounted.is_ours() => mounted,
        Some(other) => {
            let detail = format!("is not a mount of zarrfs: {} is mounted there", other.kind);
            return Err(Error::invalid(dir.display(), detail));
        }
        None => return Err(Error::invalid(dir.display(), "nothing is mounted there")),
    };
    mount::unmount_at(&ours)?;
    let end = Instant::now() + END_TIMEOUT;
    while mountinfo::top_at(&path)?.is_some_and(|mounted| mounted.device == ours.device) {
        if Instant::now() > end {
            return Err(Error::unavailable(dir.display(), "is still mounted"));
        }
        thread::sleep(END_PAUSE);
    }
    wait_for_daemon(ours.device, end);
    Ok(())
}

/// Waits until the kernel has closed the connection, where that is visible; a program that still uses the
/// mount keeps it open.
fn wait_for_daemon(device: Device, end: Instant) {
    let connection = Path::new("/sys/fs/fuse/connections").join(device.minor.to_string());
    while connection.exists() && Instant::now() < end {
        thread::sleep(END_PAUSE);
    }
}
