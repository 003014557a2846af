//! Tests a server that hangs for one key: commands still answer or time out.
//!
//! A command that times out says why, and a commit that was begun is continued later.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::needs;
use crate::common::scripted::Scripted;
use crate::concurrency::mounted::{Mounted, PROGRAM};
use crate::concurrency::objects::{HUNG, Objects};
use crate::concurrency::world::World;
use zarrfs_store::request_context::UNLIMITED;

/// The time limit of a request in seconds: `SHORT` if a test waits until it has passed, otherwise `LONG`.
const SHORT: &str = "2";
const LONG: &str = "60";

/// The time limit of a command that needs no request to the store; `IN_TIME` is for a few requests that time out soon.
const SOON: Duration = Duration::from_secs(20);
const IN_TIME: Duration = Duration::from_secs(30);

/// A mount of an array with changes in both chunks, on a server that hangs for the second chunk.
struct Hung {
    objects: Arc<Objects>,
    mounted: Mounted,
}

impl Hung {
    fn new(timeout: &str) -> Hung {
        let objects = Objects::new();
        let served = objects.clone();
        let server = Scripted::start(move |_, request| served.answer(request));
        let mounted = Mounted::new(|_| server.url("s.zarr"));
        let mounted = mounted.with(&["--timeout", timeout], &[]);
        mounted.mount();
        for (key, content) in [("c/0", "AAAA"), (HUNG, "BBBB")] {
            fs::write(mounted.point.path(key), content).unwrap();
        }
        objects.hangs.store(true, Ordering::SeqCst);
        Hung { objects, mounted }
    }

    /// Runs a zarrfs command on the mount; fails if the command takes longer than `limit`.
    fn run(&self, command: &str, limit: Duration) -> Output {
        let began = Instant::now();
        let output = self
            .mounted
            .point
            .zarrfs(&[command.as_ref(), self.mounted.point.dir().as_os_str()]);
        let took = began.elapsed();
        assert!(took < limit, "{command} took {took:?}: {output:?}");
        output
    }

    /// Starts a commit in another process; returns once the server got the request that it does not answer.
    fn start_commit(&self) -> std::process::Child {
        // If the tests run in the background, SIGINT is ignored, and child processes inherit that.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT");
        command
            .arg(PROGRAM)
            .arg("commit")
            .arg(self.mounted.point.dir());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let commit = command.spawn().unwrap();
        soon(|| self.objects.is_asked.load(Ordering::SeqCst));
        commit
    }

    /// Checks that operations that need no answer of the server still work.
    fn check_other_operations(&self) {
        let point = &self.mounted.point;
        let began = Instant::now();
        fs::write(point.path("c/0"), "CCCC").unwrap();
        assert_eq!(fs::read(point.path("c/0")).unwrap(), b"CCCC");
        for name in ["stats.json", "mount.json", "errors"] {
            fs::read(point.path(&format!(".zarrfs/{name}"))).unwrap();
        }
        for command in ["status", "diff"] {
            let output = self.run(command, SOON);
            assert!(output.status.code() < Some(2), "{output:?}");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("2 changed") || said.contains(HUNG), "{said}");
            let is_status = command == "status";
            assert_eq!(said.contains("is running"), is_status, "{said}");
        }
        assert!(began.elapsed() < 3 * SOON);
    }

    /// Makes the server answer again, and checks that a commit stores the remaining changes.
    fn ends(&self) {
        self.objects.hangs.store(false, Ordering::SeqCst);
        let output = self.run("commit", IN_TIME);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(self.objects.content("c/0"), "CCCC");
        assert_eq!(self.objects.content(HUNG), "BBBB");
        assert_eq!(self.mounted.point.left_over(&UNLIMITED), [""; 0]);
    }
}

fn soon(is_so: impl Fn() -> bool) {
    let end = Instant::now() + IN_TIME;
    while !is_so() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Invariant of `a_hanging_commit_does_not_block_changes_in_the_upper_folder`.
#[test]
fn a_commit_of_a_hanging_key_times_out_and_names_the_key() {
    if !needs::mounts() {
        return;
    }
    let hung = Hung::new(SHORT);
    let commit = hung.start_commit();
    hung.check_other_operations();
    let output = commit.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains(HUNG) && said.lines().count() == 1, "{said}");
    let status = hung.mounted.point.zarrfs(&[
        "status".as_ref(),
        hung.mounted.point.dir().as_os_str(),
        "--json".as_ref(),
    ]);
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert!(status["pending"].as_u64() > Some(0), "{status}");
    let again = hung.run("commit", IN_TIME);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    hung.ends();
}

#[test]
fn the_mount_continues_the_commit_of_an_interrupted_command() {
    if !needs::mounts() {
        return;
    }
    let hung = Hung::new(LONG);
    let mut commit = hung.start_commit();
    let process = Pid::from_child(&commit);
    kill_process(process, Signal::INT).unwrap();
    let status = commit.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
    hung.check_other_operations();
    hung.ends();
}

/// Invariant of `a_hanging_commit_does_not_block_changes_in_the_upper_folder`.
#[test]
fn unmounting_ends_a_hanging_commit_with_an_error() {
    if !needs::mounts() {
        return;
    }
    let hung = Hung::new(LONG);
    let commit = hung.start_commit();
    hung.check_other_operations();
    let end = hung.run("umount", SOON);
    assert_eq!(end.status.code(), Some(0), "{end:?}");
    let output = commit.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(
        said.contains("the mount ended before the command was finished"),
        "{said}"
    );
    hung.mounted.mount();
    let shown = fs::read(hung.mounted.point.path("c/0")).unwrap();
    assert_eq!(shown, b"CCCC");
    hung.ends();
}
