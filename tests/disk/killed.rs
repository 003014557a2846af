//! Processes that share a cache, and that are killed while they write.

use std::env;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use zarrfs::store::memory::Memory;

use crate::place::Mounted;
use crate::place::bytes_of;
use crate::place::du;
use crate::place::entries;
use crate::place::key;
use crate::place::mounted;

const SIZE: u64 = 2 << 20;
const OBJECTS: u64 = 60;
const FOLDER: &str = "ZARRFS_TEST_CACHE";

fn length(number: u64) -> usize {
    1000 + (number * 7919 % 200_000) as usize
}

fn mount(folder: &Path) -> Mounted {
    let memory = Memory::default();
    for number in 0..OBJECTS {
        memory.set(key(number.to_string()), bytes_of(number, length(number)));
    }
    mounted(&memory, folder, SIZE, Duration::from_secs(3600))
}

fn read(mount: &Mounted, number: u64) {
    let number = number % OBJECTS;
    let read = mount.get(&number.to_string());
    assert!(read == bytes_of(number, length(number)), "object {number}");
}

/// What a child process does: not a test of its own.
#[test]
fn child_that_reads_and_writes() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let (mount, rounds) = (mount(&folder), env::var("ROUNDS").unwrap());
    let step = 1 + u64::from(std::process::id()) % 7;
    for round in 0..rounds.parse().unwrap() {
        read(&mount, round * step);
    }
}

fn child(folder: &Path, rounds: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "killed::child_that_reads_and_writes"])
        .env(FOLDER, folder)
        .env("ROUNDS", rounds.to_string())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_killed_process_leaves_a_whole_cache() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40u64 {
        let account = || std::fs::read(folder.path().join("lock")).unwrap_or_default();
        let before = account();
        let mut child = child(folder.path(), u64::MAX);
        // Not before it has begun, and then at any moment.
        while account() == before {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(du(folder.path()) <= SIZE, "round {round}");
        let mount = mount(folder.path());
        (0..OBJECTS).for_each(|number| read(&mount, number));
        assert_eq!(mount.stats.disk_corrupt_entries.get(), 0, "round {round}");
        assert!(!folder.path().join("arriving").exists(), "round {round}");
        let found = du(folder.path());
        assert!(found <= mount.stats.disk_held_bytes.get() + SIZE / 32 && found <= SIZE);
    }
}

#[test]
fn several_processes_hold_one_size() {
    let folder = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..3).map(|_| child(folder.path(), 3000)).collect();
    let (mut looks, mut most) = (0, 0);
    while children
        .iter_mut()
        .any(|child| child.try_wait().unwrap().is_none())
    {
        most = most.max(du(folder.path()));
        looks += 1;
        assert!(most <= SIZE, "{most} bytes");
    }
    for mut child in children {
        assert!(child.wait().unwrap().success(), "a read was wrong");
    }
    assert!(
        looks > 10 && most > SIZE / 2,
        "{most} bytes in {looks} looks"
    );
    let held = entries(folder.path()).len();
    let mount = mount(folder.path());
    (0..OBJECTS).for_each(|number| read(&mount, number));
    assert!(
        mount.stats.disk_hit_requests.get() > 0,
        "{held} files, no hit"
    );
}
