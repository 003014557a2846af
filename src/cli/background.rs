//! Starts a mount in the background, waits until it answers, and notifies systemd.
//!
//! A fork would lose threads, so the daemon is a new process with the same arguments; it recognizes its parent by an
//! environment variable with the parent's process number. It writes one line to its stdout, a pipe: `ready` and a
//! description of the mount, or `failed` with the exit status and the error. Nothing is added to the arguments, which
//! other users can read.
//!
//! The daemon closes inherited descriptors: otherwise it would keep a script's locks, and pipes whose reader waits for
//! their end.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fmt, fs, io, thread};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::time::Timespec;
use rustix::{event, process, stdio};

use crate::cli::plan::MountPlan;
use crate::fuse::kernel_mount::mountinfo::Mounted;
use crate::fuse::kernel_mount::{mountinfo, mountpoint};
use zarr_format::error::{Error, Result, printable};

/// The environment variable with the number of the parent process.
const PARENT: &str = "ZARRFS_PARENT";

/// Replaces line breaks in the description of the mount, since the daemon reports it on one line. No description
/// contains a tab.
const LINE_END: &str = "\t";

/// First words of the line in which the daemon reports its start.
const READY: &str = "ready";
const FAILED: &str = "failed";

/// The error of a failed start of the daemon, and the exit status if the daemon reported one.
pub(super) struct StartFailure {
    pub(super) status: Option<u8>,
    pub(super) error: Error,
}

impl From<Error> for StartFailure {
    fn from(error: Error) -> StartFailure {
        StartFailure {
            status: None,
            error,
        }
    }
}

/// Starts the daemon, waits until the mount answers, and returns the daemon's description of the mount.
pub(super) fn start(plan: &MountPlan) -> std::result::Result<String, StartFailure> {
    let (reader, mut child) = spawn(plan)?;
    // `timeout` limits one request to the store: ten more seconds are for starting the process and mounting.
    let line = match read_line(reader, plan.timeout + Duration::from_secs(10)) {
        Ok(line) => line,
        Err(error) => {
            stop(&mut child);
            return Err(error.about(plan.redacted_source()).into());
        }
    };
    if let Some(failure) = line.strip_prefix(FAILED) {
        return Err(parse_failure(failure.trim()));
    }
    let Some(what) = line.strip_prefix(READY) else {
        let end = child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let detail = format!("the daemon ended before the mount was ready ({end})");
        return Err(Error::unavailable(plan.redacted_source(), detail).into());
    };
    check_answers(plan).inspect_err(|_| stop(&mut child))?;
    Ok(what.trim().replace(LINE_END, "\n"))
}

fn spawn(plan: &MountPlan) -> Result<(PipeReader, Child)> {
    let failed = |error: io::Error| Error::os("cannot start the daemon", error);
    let (reader, writer) = io::pipe().map_err(failed)?;
    let mut args = env::args_os();
    let mut command = Command::new(own_program());
    if let Some(name) = args.next() {
        command.arg0(name);
    }
    command
        .args(args)
        .env(PARENT, std::process::id().to_string());
    let input = if plan.until_eof {
        Stdio::inherit()
    } else {
        Stdio::null()
    };
    let child = command
        .stdin(input)
        .stdout(writer)
        .spawn()
        .map_err(failed)?;
    Ok((reader, child))
}

/// Returns the path of this program's executable, or `/proc/self/exe` if the file was replaced since the start.
pub(super) fn own_program() -> PathBuf {
    env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Reads the line in which the daemon reports its start; the line is incomplete if the daemon ends early.
fn read_line(mut reader: PipeReader, limit: Duration) -> Result<String> {
    let end = Instant::now() + limit;
    let mut line = Vec::new();
    while !line.contains(&b'\n') {
        if !wait_readable(&reader, end)? {
            let detail = format!("not mounted within {} s (see --timeout)", limit.as_secs());
            return Err(Error::unavailable("", detail));
        }
        let mut buffer = [0; 512];
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => line.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::os("", error)),
        }
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Waits until a pipe is readable; returns false if the deadline `end` passes first.
fn wait_readable(reader: &PipeReader, end: Instant) -> Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left)
            .map_err(|_| Error::invalid("--timeout", "the value is too large"))?;
        match event::poll(&mut [PollFd::new(reader, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::os("", error)),
            Ok(count) => return Ok(count > 0),
        }
    }
}

/// Parses the report of a failed start, such as `32 text`: the exit status and the error.
fn parse_failure(line: &str) -> StartFailure {
    let (status, text) = line.split_once(' ').unwrap_or(("", line));
    StartFailure {
        status: status.parse().ok(),
        error: Error::unavailable("", text),
    }
}

/// Checks that the zarrfs mount of the plan is at its mountpoint, and that the mount answers stat.
fn check_answers(plan: &MountPlan) -> Result<()> {
    if MountPlan::descriptor(&plan.dir).is_some() {
        return Ok(());
    }
    let meta = fs::metadata(&plan.dir).map_err(|error| Error::os(plan.dir.display(), error))?;
    let mounted = mountinfo::top_at(&mountpoint::resolve(&plan.dir)?)?.filter(Mounted::is_ours);
    match mounted {
        Some(mounted) if mounted.device.number() == meta.dev() => Ok(()),
        _ => {
            let detail = "the mount ended right after the start; see the log (--log FILE)";
            Err(Error::unavailable(plan.dir.display(), detail))
        }
    }
}

/// Ends a daemon with SIGTERM, on which it unmounts, or with SIGKILL if that takes too long.
fn stop(child: &mut Child) {
    let signalled = process::kill_process(process::Pid::from_child(child), process::Signal::TERM);
    let end = Instant::now() + Duration::from_secs(5);
    while signalled.is_ok() && Instant::now() < end {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    // The result is ignored: kill fails only if the daemon has already ended.
    let _ = child.kill();
}

/// The process that started this daemon and waits for it, and the descriptors that the daemon inherited.
pub(super) struct Parent(InheritedDescriptors);

impl Parent {
    /// Returns the parent process if this process is a daemon that `start` started; detaches from the parent's
    /// terminal.
    pub(super) fn find() -> Option<Parent> {
        let parent: i32 = env::var(PARENT).ok()?.parse().ok()?;
        if process::getppid().map(process::Pid::as_raw_pid) != Some(parent) {
            return None;
        }
        // The result is ignored: setsid fails only for a process group leader, and a child process is none.
        let _ = process::setsid();
        Some(Parent(InheritedDescriptors::find()))
    }

    /// Reports to the parent that the mount is ready, with a description of the mount, after closing the inherited
    /// descriptors. Fails if the parent has ended.
    pub(super) fn ready(self, what: &str) -> Result<()> {
        let failed = |error: io::Error| Error::os("cannot report to the parent process", error);
        self.0.close();
        write_line(format_args!("{READY} {}", what.replace('\n', LINE_END))).map_err(failed)?;
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
}

/// Reports the error of a failed start, and the exit status, to the parent process.
pub(super) fn report_failure(status: u8, error: &Error) {
    let text = printable(&error.to_string());
    if write_line(format_args!("{FAILED} {status} {text}")).is_err() {
        log::error!("{error}");
    }
}

fn write_line(line: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

/// Descriptors that the daemon inherited from its parent process.
struct InheritedDescriptors(Vec<RawFd>);

impl InheritedDescriptors {
    /// Finds the open descriptors without close-on-exec, a flag that this process sets on all descriptors that it
    /// opens. Must be called before threads are started.
    pub(super) fn find() -> InheritedDescriptors {
        let entries = fs::read_dir("/proc/self/fd")
            .into_iter()
            .flatten()
            .flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let numbers: Vec<RawFd> = numbers.filter(|&number| number > 2).collect();
        InheritedDescriptors(numbers.into_iter().filter(is_inherited).collect())
    }

    /// Closes the inherited descriptors. A file that was opened through a path such as `/dev/fd/9` stays open.
    #[expect(
        unsafe_code,
        reason = "descriptors that nothing here owns have numbers alone"
    )]
    pub(super) fn close(self) {
        for number in self.0 {
            // SAFETY: the descriptor was open before this process opened anything, and has no owner here. So no other
            // code has closed it, and its number is not reused for another file.
            unsafe { rustix::io::close(number) };
        }
    }
}

/// Whether a descriptor is open without close-on-exec, so that child processes inherit it.
#[expect(
    unsafe_code,
    reason = "descriptors that nothing here owns have numbers alone"
)]
fn is_inherited(number: &RawFd) -> bool {
    // SAFETY: the number is only queried, and the query of a closed descriptor returns an error.
    let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
    fcntl_getfd(descriptor).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Sends READY=1 or STOPPING=1 to the socket in NOTIFY_SOCKET, if systemd set one (sd_notify(3)). A failure is only
/// logged, since the mount works without it.
pub(super) fn notify(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send_to(name.as_bytes(), Path::new(&name), state) {
        log::warn!("NOTIFY_SOCKET: {error}");
    }
}

/// Sends a state to systemd's socket; a name with `@` is in the abstract namespace.
fn send_to(name: &[u8], path: &Path, state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_line_of_the_daemon_is_parsed() {
        let failure = parse_failure("32 /mnt: not there");
        assert_eq!(failure.status, Some(32));
        assert_eq!(failure.error.to_string(), "/mnt: not there");
    }

    #[test]
    fn waiting_for_a_silent_daemon_times_out() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(read_line(reader, Duration::from_millis(30)).is_err());
        drop(writer);
    }
}
