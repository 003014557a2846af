//! `zarrfs umount`: detaches a zarrfs mount, even if its daemon is gone.
//!
//! Mounts of other file systems are refused. A daemon that hangs cannot block this command: the mount is queried with a
//! time limit, and if it does not answer, its connection is aborted, so that waiting programs get an error. After
//! unmounting, the command waits for the daemon to end, with a time limit.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::mount_facts::MountFacts;
use crate::cli::report;
use crate::fuse::kernel_mount;
use crate::fuse::kernel_mount::liveness::{ANSWER_TIMEOUT, Liveness};
use crate::fuse::kernel_mount::mountinfo::{Device, Mounted};
use crate::fuse::kernel_mount::{liveness, mountinfo, mountpoint};
use crate::mount::control_socket;
use crate::mount::protocol::{ControlAnswer, ControlRequest};
use zarr_format::error::{Error, Result};

/// Interval between checks whether the daemon has ended.
const END_PAUSE: Duration = Duration::from_millis(10);

/// Unmounts `dir`. Fails with `Invalid` if it is not a zarrfs mount, with `Denied` if it belongs to another user, and
/// with `Unavailable` if a program uses the mount or written chunks cannot be stored.
pub(super) fn umount(dir: &Path) -> Result<()> {
    let path = mountpoint::resolve(dir)?;
    let top = mountinfo::top_at(&path)?;
    let ours = match top {
        Some(mounted) if mounted.is_ours() => mounted,
        Some(other) => {
            let detail = format!("not a zarrfs mount, but a mount of type {}", other.kind);
            return Err(Error::invalid(dir.display(), detail));
        }
        None => return Err(Error::invalid(dir.display(), "nothing is mounted here")),
    };
    match liveness::query(&path, ANSWER_TIMEOUT) {
        Liveness::Silent => end_connection(dir, &ours),
        _ => store_chunks(dir, &path)?,
    }
    if is_mounted(&path, ours.device)? {
        kernel_mount::unmount_at(&ours)?;
    }
    // The mount disappears within milliseconds, unless a program still uses it.
    let end = Instant::now() + Duration::from_secs(3);
    while is_mounted(&path, ours.device)? {
        if Instant::now() > end {
            let why = format!(
                "still mounted, since a program uses the mount; see 'fuser -vm {}'",
                dir.display()
            );
            return Err(Error::unavailable(dir.display(), why));
        }
        thread::sleep(END_PAUSE);
    }
    wait_for_daemon(ours.device, end);
    Ok(())
}

/// Tells the daemon to store the chunks that could not be stored when their files were closed, because the daemon drops
/// them at its end.
fn store_chunks(dir: &Path, mountpoint: &Path) -> Result<()> {
    // The daemon of another user, or of another version of zarrfs, does not answer: its mount is unmounted without
    // storing these chunks.
    let facts = MountFacts::ask(mountpoint).ok();
    let Some(upper) = facts.and_then(|facts| facts.upper()) else {
        return Ok(());
    };
    let flush = move || control_socket::request(&upper, &ControlRequest::Flush, &|_, _| ());
    let Ok(answer) = liveness::run_query(flush) else {
        return Ok(());
    };
    let shown = dir.display();
    // The time limit is for a store that hangs.
    let why = match answer.recv_timeout(Duration::from_secs(30)) {
        Ok(Ok(Some(ControlAnswer::Flush(flush)))) => {
            let Some((array, why)) = flush.failed.first() else {
                return Ok(());
            };
            let what = if array == "/" { "--all" } else { array };
            format!(
                "chunks of {array} cannot be stored: {why}; mend this and unmount again, or drop the \
                 chunks with 'zarrfs discard {shown} {what}'"
            )
        }
        Ok(_) => return Ok(()),
        Err(_) => format!(
            "its written chunks are still being stored; unmount again later, or drop them with \
             'zarrfs discard {shown}'"
        ),
    };
    Err(Error::unavailable(
        shown,
        format!("still mounted, since {why}"),
    ))
}

/// Whether the topmost mount at `path` is the file system with this device number.
fn is_mounted(path: &Path, device: Device) -> Result<bool> {
    Ok(mountinfo::top_at(path)?.is_some_and(|mounted| mounted.device == device))
}

/// Aborts the kernel's connection to a daemon that does not answer, so that waiting programs get an error.
fn end_connection(dir: &Path, mounted: &Mounted) {
    let dir = dir.display();
    report::warn(match liveness::abort(mounted) {
        Ok(()) => format!("{dir}: the mount did not respond; ended the connection"),
        Err(error) => format!(
            "{dir}: the mount does not respond, and the connection cannot be ended: {error}"
        ),
    });
}

/// Waits until the kernel has closed the connection, or until `end`; no wait if the container hides connections.
fn wait_for_daemon(device: Device, end: Instant) {
    let connection = liveness::connection(device);
    while connection.exists() && Instant::now() < end {
        thread::sleep(END_PAUSE);
    }
}
