//! The meaning of signals for this process.

use std::fs;
use std::fs::File;
use std::io;
use std::thread;

use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;

/// The effect of SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hangup {
    /// The terminal is gone: the mount ends.
    EndsMount,
    /// The log file is reopened, as logrotate(8) requests. A daemon has no terminal that could go.
    OpensLog,
    /// None, since the process was started with SIGHUP ignored, for example by nohup(1).
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
