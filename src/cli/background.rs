//! Starting in the background: the program runs itself again, and waits until the mount answers.
//!
//! A fork would lose threads, so the child is a new process with the same arguments; it knows its parent by
//! an environment variable that holds the parent's number. Its stdout is a pipe on which it says one line:
//! that it is ready, or what went wrong. Nothing is added to the arguments, which others can read.

use std::env;
use std::fmt;
use std::fs;
use std::fs::File;
use std::io;
use std::io::{PipeReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use rustix::{event, process, stdio};

use super::mount;
use super::plan::MountPlan;
use crate::error::{Error, Kind, Result, printable};
use crate::fuse::mount::mountinfo::Mounted;
use crate::fuse::mount::{mountinfo, mountpoint};

const MARK: &str = "ZARRFS_PARENT";
const READY: &str = "ready";
const FAILED: &str = "failed";

/// What starting and mounting may take beside the store.
const START: Duration = Duration::from_secs(10);

/// How long a child that failed may take to unmount.
const STOP: Duration = Duration::from_secs(5);

/// Why the mount is not there, and the exit status if the child named one.
pub(super) struct Failure {
    pub(super) status: Option<u8>,
    pub(super) error: Error,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            status: None,
            error,
        }
    }
}

/// Starts the daemon; returns when the mount answers.
pub(super) fn start(plan: &MountPlan) -> std::result::Result<(), Failure> {
    let (reader, mut child) = spawn()?;
    let limit = plan.timeout + START;
    let said = match hear(reader, limit) {
        Ok(said) => said,
        Err(error) => {
            stop(&mut child);
            return Err(error.about(plan.shown_source()).into());
        }
    };
    if let Some(failure) = said.strip_prefix(FAILED) {
        return Err(read_failure(failure.trim()));
    }
    if said.trim() != READY {
        let end = child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let detail = format!("the daemon ended before it was ready ({end})");
        return Err(Error::new(Kind::Unavailable, plan.shown_source(), detail).into());
    }
    check_answers(plan).inspect_err(|_| stop(&mut child))?;
    Ok(())
}

fn spawn() -> Result<(PipeReader, Child)> {
    let failed = |error: io::Error| Error::os("starting the daemon", error);
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut args = env::args_os();
    let mut command = Command::new(own_program());
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command.args(args).env(MARK, std::process::id().to_string());
    let child = command
        .stdin(Stdio::null())
        .stdout(writer)
        .spawn()
        .map_err(failed)?;
    Ok((reader, child))
}

/// The file may have been replaced since the program started; the kernel still has it.
pub(super) fn own_program() -> PathBuf {
    env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Returns the line that the child says, or what it said before it ended.
fn hear(mut reader: PipeReader, limit: Duration) -> Result<String> {
    let end = Instant::now() + limit;
    let mut said = Vec::new();
    while !said.contains(&b'\n') {
        if !wait_readable(&reader, end)? {
            let detail = format!("nothing was mounted within {} s", limit.as_secs());
            return Err(Error::new(Kind::Unavailable, "", detail));
        }
        let mut buffer = [0; 512];
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::os("", error)),
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Waits until there is something to read; returns false if `end` comes first.
fn wait_readable(reader: &PipeReader, end: Instant) -> Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left =
            Timespec::try_from(left).map_err(|_| Error::invalid("--timeout", "is too long"))?;
        match event::poll(&mut [PollFd::new(reader, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::os("", error)),
            Ok(count) => return Ok(count > 0),
        }
    }
}

/// Reads `32 text`, what the child says after `failed`.
fn read_failure(said: &str) -> Failure {
    let (status, text) = said.split_once(' ').unwrap_or(("", said));
    Failure {
        status: status.parse().ok(),
        error: Error::new(Kind::Unavailable, "", text),
    }
}

/// Checks that a mount of ours is there and answers.
fn check_answers(plan: &MountPlan) -> Result<()> {
    if mount::descriptor(&plan.dir).is_some() {
        return Ok(());
    }
    let meta = fs::metadata(&plan.dir).map_err(|error| Error::os(plan.dir.display(), error))?;
    let mounted = mountinfo::top_at(&mountpoint::resolve(&plan.dir)?)?.filter(Mounted::is_ours);
    match mounted {
        Some(mounted) if mounted.device.number() == meta.dev() => Ok(()),
        _ => Err(Error::new(
            Kind::Unavailable,
            plan.dir.display(),
            "was mounted, but is gone again",
        )),
    }
}

/// Ends a child that must not stay: kindly, so that it unmounts, then not.
fn stop(child: &mut Child) {
    let signalled = process::kill_process(process::Pid::from_child(child), process::Signal::TERM);
    let end = Instant::now() + STOP;
    while signalled.is_ok() && Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    // It may have ended by itself.
    let _ = child.kill();
}

/// The process that waits for this one to be ready.
pub(super) struct Parent(());

impl Parent {
    /// Returns the parent if this process was started by `start`; leaves its terminal.
    pub(super) fn find() -> Option<Parent> {
        let parent: i32 = env::var(MARK).ok()?.parse().ok()?;
        if process::getppid().map(process::Pid::as_raw_pid) != Some(parent) {
            return None;
        }
        // Fails only for the leader of a group, which a child is not.
        let _ = process::setsid();
        Some(Parent(()))
    }

    /// Says that the mount is there and lets go of the terminal; an error if the parent has gone.
    pub(super) fn ready(&self) -> Result<()> {
        let failed = |error: io::Error| Error::os("telling the starting process", error);
        self.say(format_args!("{READY}")).map_err(failed)?;
        let null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(failed)?;
        let released = stdio::dup2_stdin(&null)
            .and_then(|()| stdio::dup2_stdout(&null))
            .and_then(|()| stdio::dup2_stderr(&null));
        released.map_err(|error| failed(error.into()))
    }

    /// Says what went wrong, and with which exit status.
    pub(super) fn failed(&self, status: u8, error: &Error) {
        if self
            .say(format_args!(
                "{FAILED} {status} {}",
                printable(&error.to_string())
            ))
            .is_err()
        {
            log::error!("{error}");
        }
    }

    fn say(&self, line: fmt::Arguments<'_>) -> io::Result<()> {
        let mut out = io::stdout();
        writeln!(out, "{line}").and_then(|()| out.flush())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_back() {
        let failure = read_failure("32 /mnt: not there");
        assert_eq!(failure.status, Some(32));
        assert_eq!(failure.error.to_string(), "/mnt: not there");
    }

    #[test]
    fn a_silent_child_is_not_waited_for_without_end() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(hear(reader, Duration::from_millis(30)).is_err());
        drop(writer);
    }
}
