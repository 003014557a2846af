//! Detects that the program waiting for a request was interrupted.
//!
//! Once the daemon has read a request, the kernel waits for the reply whatever signal arrives, unless the daemon
//! implements FUSE_INTERRUPT, which fuser answers with ENOSYS. So the pending signals of the waiting thread are read
//! from proc(5). Only signals with which a terminal or a service manager ends a program are considered, and only if the
//! thread would receive them.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, getpid, test_kill_process};

/// The signals that interrupt a request, as a set in proc(5) format: the lowest bit is signal 1.
const ENDING: u64 = mask(libc::SIGHUP)
    | mask(libc::SIGINT)
    | mask(libc::SIGQUIT)
    | mask(libc::SIGKILL)
    | mask(libc::SIGTERM);

const fn mask(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Whether `/proc` is of this process's PID namespace, so that the process numbers in requests can be looked up there.
pub(super) fn can_be_looked_up() -> bool {
    let own = fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str() == Some(&*getpid().as_raw_nonzero().to_string()))
}

/// Whether the thread that sent a request has ended, or has a pending signal that should end its wait. `tid` is 0 for a
/// thread in another PID namespace, which is never interrupted.
pub(super) fn is_interrupted(tid: u32) -> bool {
    let Some(pid) = i32::try_from(tid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    match fs::read_to_string(format!("/proc/{tid}/status")) {
        Ok(status) => has_ended(&status) || pending(&status) & ENDING != 0,
        // With the mount option `hidepid`, `/proc` hides threads of other users, so kill(2) tells whether the thread
        // exists.
        Err(_) => test_kill_process(pid) == Err(Errno::SRCH),
    }
}

/// Returns the signals that the thread would receive: pending for the thread or its process, neither blocked nor
/// ignored.
fn pending(status: &str) -> u64 {
    let pending = signals(status, "SigPnd:") | signals(status, "ShdPnd:");
    pending & !signals(status, "SigBlk:") & !signals(status, "SigIgn:")
}

fn signals(status: &str, field: &str) -> u64 {
    u64::from_str_radix(field_text(status, field), 16).unwrap_or_default()
}

/// Whether the thread is a zombie: it has ended, but its parent has not reaped it.
fn has_ended(status: &str) -> bool {
    field_text(status, "State:").starts_with(['Z', 'X'])
}

fn field_text<'a>(status: &'a str, field: &str) -> &'a str {
    let mut lines = status.lines();
    let text = lines.find_map(|line| line.strip_prefix(field));
    text.unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Signal, kill_process};

    use super::*;

    #[test]
    fn only_signals_that_the_thread_would_receive_count() {
        let (int, term, user) = (mask(libc::SIGINT), mask(libc::SIGTERM), mask(libc::SIGUSR1));
        for (own, shared, blocked, ignored, expected) in [
            (int, 0, 0, 0, int),
            (0, term, 0, 0, term),
            (int, term, 0, 0, int | term),
            (int, int, int, 0, 0),
            (0, term, int, term, 0),
            (user, 0, 0, 0, user),
        ] {
            let status = format!(
                "Name:\tcat\nState:\tD (disk sleep)\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n\
                 SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n"
            );
            assert_eq!(pending(&status), expected);
            assert!(!has_ended(&status));
        }
        assert_eq!(user & ENDING, 0);
        assert!(has_ended("Name:\tcat\nState:\tZ (zombie)\n"));
    }

    /// Starts a shell that runs the command `trap`, then stops itself.
    fn stopped(trap: &str) -> Child {
        let script = format!("{trap}; kill -STOP $$; exec sleep 60");
        let child = Command::new("sh").arg("-c").arg(script).spawn().unwrap();
        while !state(&child).starts_with('T') {
            std::thread::yield_now();
        }
        child
    }

    fn state(child: &Child) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        field_text(&status, "State:").to_string()
    }

    fn send(child: &Child, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    #[test]
    fn a_caller_is_interrupted_by_a_signal_or_its_end() {
        assert!(can_be_looked_up());
        let [mut handles, mut ignores] = ["trap : TERM", "trap '' TERM"].map(stopped);
        for child in [&handles, &ignores] {
            assert!(!is_interrupted(child.id()));
            send(child, Signal::TERM);
        }
        assert!(is_interrupted(handles.id()));
        assert!(!is_interrupted(ignores.id()));
        for child in [&mut handles, &mut ignores] {
            send(child, Signal::KILL);
            while !state(child).starts_with('Z') {
                std::thread::yield_now();
            }
            assert!(is_interrupted(child.id()));
            child.wait().unwrap();
            assert!(is_interrupted(child.id()));
        }
        assert!(!is_interrupted(std::process::id()));
        assert!(!is_interrupted(0));
    }
}
