//! Tests what a daemon inherits from its caller, and how it handles SIGHUP.

use std::fs;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process;
use rustix::process::{Pid, Signal};

use crate::mounting::fixture::{Fixture, PROGRAM, end_of, signal, soon, stderr};

/// Runs a shell script whose arguments are the program, the store and the mountpoint.
fn run(fixture: &Fixture, script: &str) {
    let output = Command::new("sh")
        .args(["-euc", script, "sh", PROGRAM])
        .args([&fixture.store, &fixture.dir])
        .current_dir(fixture.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

fn open_files(process: Pid) -> Vec<String> {
    let folder = format!("/proc/{}/fd", process.as_raw_pid());
    let entries = fs::read_dir(folder).unwrap().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.display().to_string()).collect()
}

/// Invariant (mount): The daemon does not inherit descriptors.
#[test]
fn the_daemon_keeps_no_lock_or_descriptor_of_its_caller() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    // The script takes a lock, mounts, and releases its descriptor; the daemon must not keep the lock.
    run(
        &fixture,
        "exec 9>lock 8>other; flock 9; \"$1\" mount \"$2\" \"$3\"; exec 9>&-; flock -n lock true",
    );
    let lock = File::open(fixture.path("lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let open = open_files(fixture.daemon());
    assert!(open.iter().any(|file| file == "/dev/fuse"), "{open:?}");
    let own = fixture.path("").display().to_string();
    let of_caller = |file: &&String| {
        file.starts_with(&own) && !file.starts_with(&*fixture.store.to_string_lossy())
    };
    assert_eq!(open.iter().find(of_caller), None, "{open:?}");
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert!(fixture.umount(&fixture.dir).status.success());
}

#[test]
fn a_store_named_by_a_descriptor_stays_reachable() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    run(&fixture, "exec 8<\"$2\"; \"$1\" mount /dev/fd/8/. \"$3\"");
    // After a second the daemon looks for the store's root again, and must still find it.
    thread::sleep(Duration::from_millis(1200));
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert!(fixture.umount(&fixture.dir).status.success());
}

fn hang_up(fixture: &Fixture) {
    process::kill_process(fixture.daemon(), Signal::HUP).unwrap();
}

/// Looks up a missing name; returns whether the name gets into the log.
fn is_logged(fixture: &Fixture, name: &str, log: &Path) -> bool {
    let look = || {
        assert!(fs::metadata(fixture.dir.join(name)).is_err());
        fs::read_to_string(log).is_ok_and(|text| text.contains(name))
    };
    soon(look)
}

#[test]
fn a_hangup_reopens_the_log() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (log, rotated) = (fixture.path("log"), fixture.path("log.1"));
    let options = ["--log", log.to_str().unwrap()];
    let background = |fixture: &Fixture| {
        let output = Command::new(PROGRAM)
            .arg("mount")
            .args([&fixture.store, &fixture.dir])
            .args(options)
            .env("RUST_LOG", "zarrfs::access=trace")
            .output();
        assert!(output.unwrap().status.success());
        None
    };
    // `setsid` takes the terminal away, as a service has none.
    let foreground = |fixture: &Fixture| -> Option<Child> {
        let mut command = Command::new("setsid");
        command.arg(PROGRAM).args(["mount", "-f"]);
        command.args([&fixture.store, &fixture.dir]).args(options);
        command.env("RUST_LOG", "zarrfs::access=trace");
        Some(fixture.foreground(&mut command))
    };
    for mount in [
        &background as &dyn Fn(&Fixture) -> Option<Child>,
        &foreground,
    ] {
        let child = mount(&fixture);
        assert!(is_logged(&fixture, "missing-1", &log));
        fs::rename(&log, &rotated).unwrap();
        assert!(is_logged(&fixture, "missing-2", &rotated));
        hang_up(&fixture);
        assert!(soon(|| log.exists()));
        assert!(is_logged(&fixture, "missing-3", &log));
        let old = fs::read_to_string(&rotated).unwrap();
        assert!(!old.contains("missing-3"), "{old}");
        // If the log cannot be opened again, the daemon still serves the mount.
        fs::remove_file(&log).unwrap();
        fs::create_dir(&log).unwrap();
        hang_up(&fixture);
        assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
        assert!(fixture.umount(&fixture.dir).status.success());
        if let Some(mut child) = child {
            assert_eq!(end_of(&mut child).code(), Some(0));
        }
        assert!(soon(|| fixture.daemons().is_empty()));
        fs::remove_dir(&log).unwrap();
    }
}

/// After the mount, the descriptor number of the caller's log refers to another file of the daemon.
#[test]
fn a_log_on_a_descriptor_of_the_caller_is_never_reopened() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let log = fixture.path("log");
    let opened = fs::File::options().create(true).append(true).open(&log);
    let mounted = Command::new(PROGRAM)
        .arg("mount")
        .args([&fixture.store, &fixture.dir])
        .args(["--log", "/dev/stderr"])
        .env("RUST_LOG", "zarrfs::access=trace")
        .stderr(opened.unwrap())
        .status();
    assert!(mounted.unwrap().success());
    assert!(is_logged(&fixture, "missing-1", &log));
    hang_up(&fixture);
    assert!(is_logged(&fixture, "missing-2", &log));
    assert!(fixture.umount(&fixture.dir).status.success());
}

#[test]
fn a_hangup_does_not_end_a_daemon_without_a_log_file() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&[]);
    hang_up(&fixture);
    hang_up(&fixture);
    let answers = || fs::read(fixture.dir.join("a/c/0")).is_ok_and(|bytes| bytes == [7; 16]);
    assert!(answers());
    // SIGTERM arrives after the SIGHUPs, so the daemon has handled these when it ends.
    process::kill_process(fixture.daemon(), Signal::TERM).unwrap();
    assert!(soon(|| fixture.daemons().is_empty()));
    assert!(fixture.mounted().is_none());
}

/// Starts a mount in the foreground of a terminal; `before` is a command such as nohup that starts it. The returned
/// child process closes the terminal when it ends.
fn in_terminal(fixture: &Fixture, before: &str) -> Child {
    let script = format!("exec {before} \"$PROGRAM\" mount -f \"$STORE\" \"$DIR\"");
    let mut command = Command::new("script");
    command
        .args(["-qec", &script, "/dev/null"])
        .env("PROGRAM", PROGRAM)
        .env("STORE", &fixture.store)
        .env("DIR", &fixture.dir)
        // nohup(1) leaves its output file in the current directory.
        .current_dir(fixture.path(""))
        .stdin(Stdio::piped());
    fixture.foreground(&mut command)
}

#[test]
fn a_foreground_mount_ends_with_its_terminal() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut terminal = in_terminal(&fixture, "");
    signal(&terminal, Signal::KILL);
    end_of(&mut terminal);
    assert!(soon(|| fixture.mounted().is_none()));
    assert!(soon(|| fixture.daemons().is_empty()));
    let mut terminal = in_terminal(&fixture, "nohup");
    signal(&terminal, Signal::KILL);
    end_of(&mut terminal);
    hang_up(&fixture);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert!(fixture.umount(&fixture.dir).status.success());
}
