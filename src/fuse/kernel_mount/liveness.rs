//! Checks whether the daemon of a mount answers; aborts the connection if not.
//!
//! A daemon answers statfs at once, without its store; if the daemon is gone, the kernel returns an error. But a daemon
//! that was stopped, or was killed and cannot end, does neither: its connection stays open, and each access to the
//! mount blocks forever. So each query runs in its own thread, which may be abandoned. The daemon may be stopped
//! between two queries, so each query has its own time limit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process;

use super::mountinfo::{Device, Mounted};

/// Time limit for a daemon's answer to a query, for which it needs no request to the store.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the daemon of a mount answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The daemon answers, or the query failed for a reason other than a missing daemon.
    Answers,
    /// The daemon has ended.
    Gone,
    /// The daemon has not answered within the time limit.
    Silent,
}

/// Runs a query in its own thread; the returned receiver gets the answer, however late.
pub fn run_query<T: Send + 'static>(
    query: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (sender, answer) = mpsc::channel();
    thread::Builder::new()
        .name("zarrfs-question".to_string())
        .spawn(move || {
            // The result is ignored: nobody receives an answer that is too late.
            let _ = sender.send(query());
        })?;
    Ok(answer)
}

/// Asks the daemon of the mount at `path` for an answer, for at most `limit`.
pub fn query(path: &Path, limit: Duration) -> Liveness {
    let path = path.to_path_buf();
    let Ok(answer) = run_query(move || rustix::fs::statfs(&path).map_err(io::Error::from)) else {
        return Liveness::Answers;
    };
    match answer.recv_timeout(limit) {
        Ok(Err(error)) if is_gone(&error) => Liveness::Gone,
        Ok(_) => Liveness::Answers,
        Err(_) => Liveness::Silent,
    }
}

/// Whether an error of the kernel means that the daemon of a mount has ended.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted
    )
}

/// Returns the directory of a FUSE connection in /sys; it does not exist in some containers.
pub fn connection(device: Device) -> PathBuf {
    Path::new("/sys/fs/fuse/connections").join(device.minor.to_string())
}

/// Aborts the connection of a mount: the kernel fails all its requests, also pending ones. Without root this needs
/// /sys/fs/fuse/connections, which some containers do not have.
pub fn abort(mounted: &Mounted) -> io::Result<()> {
    if process::geteuid().is_root() {
        return end_by_force(&mounted.path);
    }
    fs::write(connection(mounted.device).join("abort"), "1")
}

/// Aborts a connection by unmounting with MNT_FORCE; if programs still use the mount, it stays mounted.
fn end_by_force(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_folder_answers() {
        let folder = tempfile::tempdir().unwrap();
        let limit = Duration::from_secs(60);
        assert_eq!(query(folder.path(), limit), Liveness::Answers);
        assert_eq!(query(&folder.path().join("none"), limit), Liveness::Answers);
    }
}
