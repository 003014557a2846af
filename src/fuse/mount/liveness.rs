//! Whether the daemon of a mount answers, and the end of a connection whose daemon does not.
//!
//! A daemon answers statfs at once, without its store; a daemon that is gone is an error of the kernel. Neither comes
//! where a daemon was stopped, or killed and cannot end, which then holds its connection: each access to such a mount
//! waits for ever. So a question is put from a thread of its own, which may be left behind. An answer says nothing of
//! the next question: the daemon may be stopped in between, and each has a time limit of its own.

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

/// What the kernel or the daemon says of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The daemon answers, or the kernel refuses for a reason of its own.
    Answers,
    /// The daemon is gone.
    Gone,
    /// Nothing came in time.
    Silent,
}

/// Puts a question from a thread of its own; what it answers is received, however late.
pub fn put<T: Send + 'static>(
    question: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (sender, answer) = mpsc::channel();
    thread::Builder::new()
        .name("zarrfs-question".to_string())
        .spawn(move || {
            // The receiver is gone if the answer comes late.
            let _ = sender.send(question());
        })?;
    Ok(answer)
}

/// Asks the mount at `path`, for at most `limit`.
pub fn ask(path: &Path, limit: Duration) -> Liveness {
    let path = path.to_path_buf();
    let Ok(answer) = put(move || rustix::fs::statfs(&path).map_err(io::Error::from)) else {
        return Liveness::Answers;
    };
    match answer.recv_timeout(limit) {
        Ok(Err(error)) if is_gone(&error) => Liveness::Gone,
        Ok(_) => Liveness::Answers,
        Err(_) => Liveness::Silent,
    }
}

/// Whether the error says that the daemon of a mount is gone.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotConnected | io::ErrorKind::ConnectionAborted
    )
}

/// Returns the kernel's folder of a connection, where it shows one.
pub fn connection(device: Device) -> PathBuf {
    Path::new("/sys/fs/fuse/connections").join(device.minor.to_string())
}

/// Has the kernel refuse all requests of a mount, those that wait included. An ordinary user needs the kernel's folder of
/// connections for that, which a container may lack.
pub fn abort(mounted: &Mounted) -> io::Result<()> {
    if process::geteuid().is_root() {
        return end_by_force(&mounted.path);
    }
    fs::write(connection(mounted.device).join("abort"), "1")
}

/// Unmounts in the way that ends the connection first; the mount stays where programs use it.
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
        assert_eq!(ask(folder.path(), limit), Liveness::Answers);
        assert_eq!(ask(&folder.path().join("none"), limit), Liveness::Answers);
    }
}
