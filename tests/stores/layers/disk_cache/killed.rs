//! Processes that share a cache and are killed while they write.

use std::collections::HashMap;
use std::env;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use zarrfs_store::backend::memory::MemoryStore;

use super::fixture::{Mounted, arriving, bytes_of, du, entries, key, mounted};

const SIZE: u64 = 2 << 20;
const OBJECTS: u64 = 60;
/// More bytes than a process can be writing when it is killed, since objects are smaller.
const ARRIVING: u64 = 210 << 10;
const PROCESSES: u64 = 4;
const FOLDER: &str = "ZARRFS_TEST_CACHE";

fn length(number: u64) -> usize {
    1000 + (number * 7919 % 200_000) as usize
}

fn mount(folder: &Path, size: u64) -> Mounted {
    let memory = MemoryStore::default();
    for number in 0..OBJECTS {
        memory.set(key(number.to_string()), bytes_of(number, length(number)));
    }
    mounted(&memory, folder, size, Duration::from_secs(3600))
}

fn read(mount: &Mounted, number: u64) {
    let number = number % OBJECTS;
    let read = mount.get(&number.to_string());
    assert!(read == bytes_of(number, length(number)), "object {number}");
}

/// Runs in a child process, which reads objects through the cache until it is done or killed.
#[test]
#[ignore = "the entry point of a child process"]
fn child_that_reads_and_writes() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let (mount, rounds) = (mount(&folder, SIZE), env::var("ROUNDS").unwrap());
    let step = 1 + u64::from(std::process::id()) % 7;
    for round in 0..rounds.parse().unwrap() {
        read(&mount, round * step);
    }
}

fn child(folder: &Path, rounds: u64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact"])
        .arg(crate::common::child_test(
            module_path!(),
            "child_that_reads_and_writes",
        ))
        .env(FOLDER, folder)
        .env("ROUNDS", rounds.to_string())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Invariant (caches): The disk cache never exceeds its size plus the files being written, even with several writers
/// and after kills.
#[test]
fn a_killed_process_leaves_an_intact_cache() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40u64 {
        let account = || std::fs::read(folder.path().join("usage")).unwrap_or_default();
        let before = account();
        let mut child = child(folder.path(), u64::MAX);
        // Kill the child process at a random moment after it has begun to write.
        while account() == before {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_micros(round * 7919 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(du(folder.path()) <= SIZE, "round {round}");
        let mount = mount(folder.path(), SIZE);
        (0..OBJECTS).for_each(|number| read(&mount, number));
        assert_eq!(mount.stats.disk_corrupt_entries.get(), 0, "round {round}");
        // Each killed process leaves at most one incomplete file, which counts towards the cache's size.
        assert!(arriving(folder.path()) as u64 <= round + 1, "round {round}");
        let found = du(folder.path());
        assert!(found <= mount.stats.disk_held_bytes.get() + SIZE / 32 && found <= SIZE);
    }
}

/// Returns the size of a cache in bytes, or `None` if the cache changed during the scan.
fn look(folder: &Path) -> Option<u64> {
    let account = || std::fs::read(folder.join("usage")).ok();
    let before = account()?;
    // Count incomplete files before the entries. The entries that were evicted for them are then gone, and a file that
    // is renamed in the meantime is counted once.
    let mut files = HashMap::new();
    let mut count = |path: PathBuf| {
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            files.insert(meta.ino(), meta.blocks() * 512);
        }
    };
    count(folder.to_path_buf());
    for store in std::fs::read_dir(folder).ok()?.flatten() {
        count(store.path());
        if store.file_type().ok()?.is_dir() {
            let names = std::fs::read_dir(store.path()).ok()?.flatten();
            names.for_each(|entry| count(entry.path()));
        }
    }
    (account()? == before).then(|| files.values().sum())
}

/// Invariant of `a_killed_process_leaves_an_intact_cache`.
#[test]
fn several_processes_share_one_size_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| child(folder.path(), 3000)).collect();
    let (mut looks, mut most, mut least) = (0, 0, SIZE);
    let mut is_running = |child: &mut Child| child.try_wait().unwrap().is_none();
    while children.iter_mut().any(&mut is_running) {
        let Some(found) = look(folder.path()) else {
            continue;
        };
        assert!(found <= SIZE + PROCESSES * ARRIVING, "{found} bytes");
        (looks, most) = (looks + 1, most.max(found));
        if most > SIZE / 4 * 3 {
            least = least.min(found);
        }
    }
    for mut child in children {
        assert!(child.wait().unwrap().success(), "a read was wrong");
    }
    assert!(looks > 3 && most > SIZE / 2, "{most} bytes in {looks}");
    assert!(least > SIZE / 2, "several that evict left {least} bytes");
    let held = entries(folder.path()).len() as u64;
    // This larger cache has space for all objects, so no entry is evicted.
    let mount = mount(folder.path(), 64 << 20);
    (0..OBJECTS).for_each(|number| read(&mount, number));
    assert_eq!(mount.stats.disk_hit_requests.get(), held);
}
