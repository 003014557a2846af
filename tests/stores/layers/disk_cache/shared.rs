//! A folder with other users: other formats, machines, groups, and unexpected files.

use std::fs;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FlockOperation;
use zarrfs_store::backend::memory::MemoryStore;

use super::fixture::{Mounted, bytes_of, du, entries, key, mounted};

const SIZE: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(3600);

fn mount(folder: &Path) -> Mounted {
    let memory = MemoryStore::default();
    for number in 0..100 {
        memory.set(key(number.to_string()), bytes_of(number, 50_000));
    }
    mounted(&memory, folder, SIZE, LONG)
}

fn read(mount: &Mounted, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert!(mount.get(&number.to_string()) == bytes_of(number, 50_000));
    }
}

#[test]
fn entries_of_another_format_count_and_are_evicted_first() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("store-0123456789abcdef");
    fs::create_dir(&other).unwrap();
    let old = SystemTime::now() - LONG;
    for number in 0..18 {
        let path = other.join(format!("{number:032x}"));
        fs::write(&path, vec![7; 50_000]).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(old).unwrap();
    }
    let mount = mount(folder.path());
    read(&mount, 0..10);
    assert!(du(folder.path()) <= SIZE);
    let left = fs::read_dir(&other).unwrap().count();
    assert!((1..18).contains(&left), "{left} of 18 are left");
    assert_eq!(
        entries(folder.path()).len() - left,
        10,
        "ours are all there"
    );
}

/// Whether a full cache evicts entries when new objects are read.
fn makes_room(mount: &Mounted) -> bool {
    // Wait, because the cache writes nothing for a second if it could not evict entries.
    thread::sleep(Duration::from_millis(1100));
    let before = mount.stats.disk_evicted_entries.get();
    read(mount, 0..60);
    mount.stats.disk_evicted_entries.get() > before
}

/// Invariant of `a_killed_process_leaves_an_intact_cache`.
#[test]
fn a_scan_of_another_machine_blocks_eviction_only_while_fresh() {
    let folder = tempfile::tempdir().unwrap();
    let mount = mount(folder.path());
    read(&mount, 0..10);
    let now = SystemTime::now();
    for (time, is_at_work) in [
        (now, true),
        (now - Duration::from_secs(90), false),
        (now - LONG, false),
        (now + LONG, false),
    ] {
        let scan = File::create(folder.path().join("scan")).unwrap();
        rustix::fs::flock(&scan, FlockOperation::LockExclusive).unwrap();
        scan.set_modified(time).unwrap();
        assert_eq!(makes_room(&mount), !is_at_work, "{time:?}");
        assert!(du(folder.path()) <= SIZE);
    }
}

#[test]
fn an_invalid_usage_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "",
        "zarrfs-cache 3 0 0\n",
        "\0\0\0\0\0\0",
        "zarrfs-cache 2 -5 0\n",
    ] {
        read(&mount(folder.path()), 0..19);
        fs::write(folder.path().join("usage"), text).unwrap();
        let mount = mount(folder.path());
        read(&mount, 20..60);
        assert!(du(folder.path()) <= SIZE, "{text:?}");
        assert!(entries(folder.path()).len() > 12, "{text:?}");
    }
}

/// Invariant of `a_killed_process_leaves_an_intact_cache`.
#[test]
fn uncounted_entries_are_counted_by_a_rescan() {
    let folder = tempfile::tempdir().unwrap();
    let first = mount(folder.path());
    read(&first, 0..15);
    // The recorded usage is too small, as if another machine had overwritten a part of the file.
    fs::write(folder.path().join("usage"), "zarrfs-cache 2 0 1000\n").unwrap();
    let mount = mount(folder.path());
    read(&mount, 20..21);
    let deadline = Instant::now() + Duration::from_secs(30);
    while mount.stats.disk_held_bytes.get() < 15 * 50_000 {
        assert!(Instant::now() < deadline, "nothing was counted");
        thread::sleep(Duration::from_millis(10));
    }
    for number in 21..60 {
        read(&mount, number..number + 1);
        assert!(du(folder.path()) <= SIZE, "{number}");
    }
}

#[test]
fn a_group_may_share_a_folder_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o2770)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(folder.path(), Some(12345), None).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o2770)).unwrap();
    }
    read(&mount(folder.path()), 0..3);
    assert_eq!(entries(folder.path()).len(), 3);
    for path in entries(folder.path()) {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o660);
        let store = path.parent().unwrap();
        assert_eq!(fs::metadata(store).unwrap().mode() & 0o7777, 0o2770);
    }
}
