//! Watches the signals and the standard input that end a mount.
//!
//! With `--until-eof` a mount ends with the program that has the other end of the pipe or socket, however the program
//! ends. Before `hand_over` nothing is mounted, and the end of the input ends the process at once. After `hand_over` it
//! stops the server, which unmounts first. Input is discarded.

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

/// The effect of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hangup {
    /// The terminal is gone: the mount ends.
    EndsMount,
    /// The log file is reopened, as logrotate(8) requests. A daemon has no terminal that could go.
    OpensLog,
    /// SIGHUP has no effect: it was ignored when the process was started, for example by nohup(1).
    IsIgnored,
}

impl Hangup {
    /// Returns the effect for this process; a daemon must call it after it has left its caller's terminal.
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

/// Returns the signals that were ignored when this process started, as by nohup(1) and shells; the lowest bit is signal
/// 1.
pub(super) fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

/// A thread that waits for the end of standard input.
pub(super) struct InputWatch {
    /// The server to stop; `None` before the process mounts.
    stop: Arc<Mutex<Option<StopHandle>>>,
}

impl InputWatch {
    /// Starts to wait, on its own copy of the descriptor: a background process closes its standard input. Calls
    /// `give_up` if the input ends before anything can be mounted.
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
                // The descriptor stays open until the process ends, so that the program at the other end of a socket
                // sees when everything is stored.
                let _ = input.into_raw_fd();
                match &*stop.lock() {
                    Some(stop) => stop.stop(),
                    // The lock is held until the process ends, so that nothing can be mounted any more.
                    None => {
                        give_up();
                        std::process::exit(i32::from(report::FAILED));
                    }
                }
            })
            .map_err(failed)?;
        Ok(watch)
    }

    /// From here on the end of the input calls `stop.stop()`; does not return if the input has already ended.
    pub(super) fn hand_over(&self, stop: StopHandle) {
        *self.stop.lock() = Some(stop);
    }
}

/// Reads until the end; a read error counts as the end. The other end may have made the input non-blocking.
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

    /// Returns whether the end of the input was seen after `used` was called.
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
