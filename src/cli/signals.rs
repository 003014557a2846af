//! Watches the signals and the standard input that end a mount.
//!
//! With `--until-eof` a mount ends with the program at the other end of standard input, a pipe or socket, however that
//! program ends. Before `hand_over` nothing is mounted, and the end of the input ends the process at once; after
//! `hand_over` it stops the server, which unmounts first. Input is discarded.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::Arc;
use std::{fs, io, thread};

use parking_lot::Mutex;
use rustix::event;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

use crate::cli::report;
use crate::fuse::serve::StopHandle;
use zarr_format::error::{Error, Result};

/// What SIGHUP does to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hangup {
    /// The mount ends, because its terminal was closed.
    EndsMount,
    /// The log file is reopened, as logrotate(8) requests: a daemon has no terminal, so SIGHUP cannot mean a closed
    /// one.
    OpensLog,
    /// SIGHUP has no effect, because it was ignored when the process was started, for example by nohup(1).
    IsIgnored,
}

impl Hangup {
    /// Returns what SIGHUP does in this process. A daemon must be detached from its caller's terminal before this call.
    pub(super) fn of_process() -> Hangup {
        let has_terminal = File::open("/dev/tty").is_ok();
        match ignored_signals() & (1 << (SIGHUP - 1)) {
            _ if !has_terminal => Hangup::OpensLog,
            0 => Hangup::EndsMount,
            _ => Hangup::IsIgnored,
        }
    }
}

/// Starts a thread that calls `hung_up` at each SIGHUP, which no longer ends the process.
pub(super) fn at_hangup(hung_up: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let listen = move || signals.forever().for_each(|_| hung_up());
    let thread = thread::Builder::new().name("zarrfs-hangup".to_string());
    thread.spawn(listen).map(drop)
}

/// Returns the set of signals that this process ignores, for example because nohup(1) started it; the lowest bit is
/// signal 1.
pub(super) fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

/// Watches standard input in a thread, and ends the mount when the input ends.
pub(super) struct InputWatch {
    /// Handle that stops the server; `None` as long as nothing is mounted.
    stop: Arc<Mutex<Option<StopHandle>>>,
}

impl InputWatch {
    /// Starts to watch a duplicate of standard input, since a background process closes its standard input. Calls
    /// `give_up` and ends the process if the input ends before `hand_over`.
    pub(super) fn start(give_up: impl FnOnce() + Send + 'static) -> Result<InputWatch> {
        let failed = |error: io::Error| Error::os("standard input", error);
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        let watch = InputWatch {
            stop: Arc::default(),
        };
        let stop = watch.stop.clone();
        thread::Builder::new()
            .name("zarrfs-input".to_string())
            .spawn(move || {
                let input = File::from(input);
                wait_for_end(&input);
                // The descriptor stays open until the process ends: its closing tells the program at the other end of a
                // socket that everything is stored.
                let _ = input.into_raw_fd();
                match &*stop.lock() {
                    Some(stop) => stop.stop(),
                    // The lock on `stop` is held until the process ends, so that `hand_over` blocks and nothing is
                    // mounted any more.
                    None => {
                        give_up();
                        std::process::exit(i32::from(report::FAILED));
                    }
                }
            })
            .map_err(failed)?;
        Ok(watch)
    }

    /// From now on the end of standard input calls `stop.stop()`. If the input has already ended, blocks until the
    /// process ends.
    pub(super) fn hand_over(&self, stop: StopHandle) {
        *self.stop.lock() = Some(stop);
    }
}

/// Reads and discards input until its end or an error. Polls, because the other end may have made the input
/// non-blocking.
fn wait_for_end(mut input: &File) {
    let mut thrown_away = [0; 512];
    loop {
        match event::poll(&mut [PollFd::new(input, PollFlags::IN)], None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        match input.read(&mut thrown_away) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Watches `input` and calls `used`; returns whether the end of the input is noticed.
    fn ends(input: impl Into<OwnedFd>, used: impl FnOnce()) -> bool {
        let (sender, end) = mpsc::channel();
        let input = File::from(input.into());
        thread::spawn(move || {
            wait_for_end(&input);
            sender.send(())
        });
        used();
        end.recv_timeout(Duration::from_millis(200)).is_ok()
    }

    #[test]
    fn a_pipe_ends_with_its_last_writer() {
        let (reader, mut writer) = io::pipe().unwrap();
        let copy = writer.try_clone().unwrap();
        assert!(!ends(reader.try_clone().unwrap(), || writer
            .write_all(b"x")
            .unwrap()));
        assert!(!ends(reader.try_clone().unwrap(), || drop(writer)));
        assert!(ends(reader, || drop(copy)));
    }

    #[test]
    fn a_socket_ends_when_it_is_shut_down_or_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        assert!(!ends(theirs.try_clone().unwrap(), || ()));
        assert!(ends(theirs, || ours
            .shutdown(std::net::Shutdown::Write)
            .unwrap()));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"unread").unwrap();
        assert!(ends(theirs, || drop(ours)));
    }
}
