//! Kills a commit's process at each of its store calls; nothing may be lost.
//!
//! Programs see the same content as before, and the next commit continues.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Signal, getpid, kill_process};
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::StoreConfig;
use zarrfs_store::backend::local::LocalStore;

use crate::concurrency::fixture::{Fixture, Lower, files, open_overlay};
use crate::concurrency::gate::{Gate, Gated};
use zarrfs_store::request_context::UNLIMITED;

const FOLDER: &str = "ZARRFS_CONCURRENCY_KILLED";
const CALLS: &str = "ZARRFS_CONCURRENCY_CALLS";

const HELD: [(&str, &str); 7] = [
    ("zarr.json", "{}"),
    ("a/zarr.json", "{}"),
    ("a/c/0", "old"),
    ("gone/c/0", "1"),
    ("moved/c/0", "2"),
    ("file", "3"),
    ("stays", "4"),
];

const CHANGED: [(&str, &str); 8] = [
    ("zarr.json", "{}"),
    ("a/zarr.json", "{\"new\": 1}"),
    ("a/c/0", "new"),
    ("a/c/1", "more"),
    ("here/c/0", "2"),
    ("here/c/1", "beside"),
    ("file/x", "below"),
    ("stays", "4"),
];

/// Makes one uncommitted change of each kind.
fn change(fixture: &Fixture) {
    fixture.write("a/c/0", "new");
    fixture.write("a/c/1", "more");
    fixture.replace("a/zarr.json", "{\"new\": 1}");
    fixture.unlink("gone/c/0");
    fixture.rename("moved", "here");
    fixture.write("here/c/1", "beside");
    fixture.unlink("file");
    fixture.make_folder("file");
    fixture.write("file/x", "below");
}

#[test]
#[ignore = "the entry point of a child process"]
fn child_that_commits() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let calls: usize = env::var(CALLS).unwrap().parse().unwrap();
    let store = LocalStore::open(&folder.join("store"), &StoreConfig::default()).unwrap();
    let (gate, made) = (Gate::default(), AtomicUsize::new(0));
    let lower = Arc::new(Gated::new(Arc::new(store), gate.clone()));
    let overlay = open_overlay(&folder.join("upper"), lower, false);
    gate.close(move |_, _| {
        if made.fetch_add(1, Ordering::Relaxed) == calls {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
        false
    });
    let outcome = overlay
        .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
        .and_then(zarrfs_overlay::commit::Outcome::or_failed);
    assert_eq!(outcome.unwrap().conflicts, []);
}

/// Commits in a process that is killed at store call number `calls`; returns whether the commit got to that call.
fn is_killed(fixture: &Fixture, calls: usize) -> bool {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact"])
        .arg(crate::common::child_test(
            module_path!(),
            "child_that_commits",
        ))
        .env(FOLDER, fixture.folder.path())
        .env(CALLS, calls.to_string())
        .stdout(Stdio::null());
    let status = command.status().unwrap();
    assert!(status.success() || status.signal() == Some(Signal::KILL.as_raw()));
    !status.success()
}

#[test]
fn a_commit_killed_at_any_store_call_is_continued() {
    for calls in 0.. {
        let mut fixture = Fixture::new(Lower::Local, &HELD);
        change(&fixture);
        fixture.close();
        let is_killed = is_killed(&fixture, calls);
        println!("killed at call {calls}");
        fixture.remount();
        let mut expected = CHANGED.to_vec();
        assert_eq!(fixture.shown(), files(&expected));
        if calls % 2 == 1 {
            // In every second case, programs make changes before the next commit.
            fixture.rename("here/c/0", "here/c/2");
            fixture.unlink("a/c/1");
            fixture.replace("a/c/0", "newer");
            (expected[2].1, expected[4].0) = ("newer", "here/c/2");
            expected.remove(3);
        }
        fixture.ends_as(&expected);
        if !is_killed {
            assert!(calls > 20, "{calls} calls");
            return;
        }
    }
}
