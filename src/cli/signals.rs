//! What signals mean for this process.

use std::fs;
use std::fs::File;
use std::io;
use std::thread;

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// What SIGHUP means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hangup {
    /// The terminal is gone: the mount ends.
    EndsMount,
    /// Files of the log are to be opened anew, as logrotate(8) asks a daemon. A daemon has no terminal that could go.
    OpensLog,
    /// Nothing, since the process was started so, as by nohup(1).
    IsIgnored,
}

impl Hangup {
    /// Returns what it means for this process, which a daemon asks once it has left the terminal of its caller.
    pub(super) fn of_process() -> Hangup {
        let has_terminal = File::open("/dev/tty").is_ok();
        match ignored_signals() & (1 << (SIGHUP - 1)) {
            _ if !has_terminal => Hangup::OpensLog,
            0 => Hangup::EndsMount,
            _ => Hangup::IsIgnored,
        }
    }
}

/// Has a thread call `hung_up` each time that SIGHUP comes, which does not end the process any more.
pub(super) fn at_hangup(hung_up: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP])?;
    let listen = move || signals.forever().for_each(|_| hung_up());
    let thread = thread::Builder::new().name("zarrfs-hangup".to_string());
    thread.spawn(listen).map(drop)
}

/// Returns the signals that this process was started to ignore, as nohup(1) and shells do; the lowest bit is the first.
pub(super) fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
