//! Sets up a store and two mountpoints for one test; unmounts everything afterwards.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use zarrfs::fuse::kernel_mount::mountinfo;
use zarrfs::fuse::kernel_mount::mountinfo::Mounted;

use crate::common::needs;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_zarrfs");

const GROUP: &str = r#"{"zarr_format": 3, "node_type": "group"}"#;
const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 0, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}"#;

pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) store: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) second: PathBuf,
}

impl Fixture {
    /// Returns a fixture, or `None` if tests that mount are skipped.
    pub(crate) fn new() -> Option<Fixture> {
        if !needs::mounts() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Other users must be able to reach the mountpoints in the folder.
        fs::set_permissions(
            folder.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let place = |name: &str| folder.path().join(name);
        let (store, dir, second) = (place("s.zarr"), place("mnt, \\1"), place("second"));
        fs::create_dir_all(store.join("a/c")).unwrap();
        fs::write(store.join("zarr.json"), GROUP).unwrap();
        fs::write(store.join("a/zarr.json"), ARRAY).unwrap();
        fs::write(store.join("a/c/0"), [7; 16]).unwrap();
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&second).unwrap();
        Some(Fixture {
            folder,
            store,
            dir,
            second,
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Mounts the store in the background; panics with the program's output if mounting fails.
    pub(crate) fn mount(&self, more: &[&str]) {
        let output = self.try_mount(more);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub(crate) fn try_mount(&self, more: &[&str]) -> Output {
        Command::new(PROGRAM)
            .arg("mount")
            .arg(&self.store)
            .arg(&self.dir)
            .args(more)
            .output()
            .unwrap()
    }

    /// Starts a mount in the foreground and waits until the store is mounted.
    pub(crate) fn foreground(&self, command: &mut Command) -> Child {
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(soon(|| self.mounted().is_some()));
        child
    }

    pub(crate) fn foreground_command(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(["mount", "-f"])
            .arg(&self.store)
            .arg(&self.dir);
        command
    }

    pub(crate) fn umount(&self, dir: &Path) -> Output {
        Command::new(PROGRAM)
            .arg("umount")
            .arg(dir)
            .output()
            .unwrap()
    }

    pub(crate) fn mounted(&self) -> Option<Mounted> {
        mountinfo::top_at(&self.dir).unwrap()
    }

    /// Returns the daemons of this fixture: the processes of zarrfs with its folder among their arguments.
    pub(crate) fn daemons(&self) -> Vec<Pid> {
        let folder = self.folder.path().as_os_str().as_encoded_bytes();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let is_daemon = |place: &Path| {
            let arguments = fs::read(place.join("cmdline")).unwrap_or_default();
            let program = arguments
                .split(|&byte| byte == 0)
                .next()
                .unwrap_or_default();
            let mentions = arguments
                .windows(folder.len())
                .any(|window| window == folder);
            (program.ends_with(b"zarrfs")) && mentions
        };
        let numbers = processes.filter(|entry| is_daemon(&entry.path()));
        numbers
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    /// Returns the daemon of the only mount of this fixture; waits because `umount` may return before an earlier daemon
    /// has ended.
    pub(crate) fn daemon(&self) -> Pid {
        assert!(soon(|| self.daemons().len() == 1), "{:?}", self.daemons());
        self.daemons()[0]
    }

    pub(crate) fn kill_daemon(&self) {
        for daemon in self.daemons() {
            process::kill_process(daemon, Signal::KILL).unwrap();
        }
        assert!(soon(|| self.daemons().is_empty()));
    }

    /// Runs a shell script as root in its own mount namespace; `$1` is the fixture's folder.
    pub(crate) fn in_namespace(&self, script: &str) -> Output {
        let script = format!("set -eu; cd \"$1\"; {script}");
        let args = ["-m", "sh", "-c", &script, "sh"].map(OsStr::new);
        Command::new("unshare")
            .args(args)
            .arg(self.folder.path())
            .env("PROGRAM", PROGRAM)
            .output()
            .unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for daemon in self.daemons() {
            // The daemon may have ended by itself.
            let _ = process::kill_process(daemon, Signal::KILL);
        }
        for dir in [&self.dir, &self.second] {
            while let Ok(Some(_)) = mountinfo::top_at(dir) {
                assert!(
                    Command::new("umount")
                        .arg("-l")
                        .arg(dir)
                        .status()
                        .unwrap()
                        .success()
                );
            }
        }
    }
}

/// Waits up to ten seconds for a condition to become true; returns whether it did.
pub(crate) fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if is_true() {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    is_true()
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    process::kill_process(Pid::from_child(child), signal).unwrap();
}

/// Stops a process and waits until all its threads have stopped, because the signal reaches the other threads only
/// after one thread has taken it.
pub(crate) fn stop(daemon: Pid) {
    process::kill_process(daemon, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", daemon.as_raw_pid());
    let is_stopped = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        status.contains("State:\tT")
    };
    assert!(soon(|| {
        let mut tasks = fs::read_dir(&tasks).unwrap().flatten();
        tasks.all(is_stopped)
    }));
}

pub(crate) fn end_of(child: &mut Child) -> ExitStatus {
    assert!(
        soon(|| child.try_wait().unwrap().is_some()),
        "the daemon does not end"
    );
    child.wait().unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
