//! A disk that is full, read-only, removed or owned by another user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use zarr_format::error::Kind;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::disk_cache::CacheDir;
use zarrfs_store::stats::Stats;

use super::fixture::{Mounted, arriving, bytes_of, du, key, mounted};
use crate::common::tmpfs::Tmpfs;

const LONG: Duration = Duration::from_secs(3600);

fn memory() -> MemoryStore {
    let memory = MemoryStore::default();
    for number in 0..40 {
        memory.set(key(number.to_string()), bytes_of(number, 100_000));
    }
    memory
}

fn read_all(mount: &Mounted) {
    for _ in 0..2 {
        for number in 0..40 {
            assert_eq!(mount.get(&number.to_string()), bytes_of(number, 100_000));
        }
    }
}

/// Invariant of `damaged_entries_are_never_returned`.
#[test]
fn a_full_disk_stops_caching_and_fails_no_read() {
    let Some(disk) = Tmpfs::new(1 << 20) else {
        return;
    };
    let mount = mounted(&memory(), disk.path(), 64 << 20, LONG);
    read_all(&mount);
    assert!(mount.stats.disk_written_bytes.get() > 0);
    assert_eq!(arriving(disk.path()), 0);
}

#[test]
fn a_share_of_the_disk_stays_free_for_other_programs() {
    let Some(disk) = Tmpfs::new(8 << 20) else {
        return;
    };
    let memory = MemoryStore::default();
    for number in 0..200 {
        memory.set(key(number.to_string()), bytes_of(number, 100_000));
    }
    let mount = mounted(&memory, disk.path(), 64 << 20, LONG);
    (0..200).for_each(|number| drop(mount.get(&number.to_string())));
    let free = || {
        let disk = rustix::fs::statvfs(disk.path()).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    assert!(free() >= 8 << 15, "{} bytes are free", free());
    assert!(
        mount.stats.disk_evicted_entries.get() > 0,
        "the last ones are kept"
    );
    let (asked, _) = mount.asked();
    mount.get("199");
    assert_eq!(mount.asked().0, asked);
    // Another program uses the free space, so the cache must evict some entries.
    fs::write(
        disk.path().join("other"),
        vec![1; free() as usize - (100 << 10)],
    )
    .unwrap();
    thread::sleep(Duration::from_millis(1100));
    (0..20).for_each(|number| drop(mount.get(&number.to_string())));
    assert!(free() >= 8 << 15, "{} bytes are free", free());
    assert!(du(disk.path()) > 6 << 20, "not all was removed");
}

#[test]
fn a_read_only_cache_folder_fails_no_read() {
    let Some(disk) = Tmpfs::new(16 << 20) else {
        return;
    };
    let before = mounted(&memory(), disk.path(), 64 << 20, LONG);
    before.get("1");
    // Close the cache first, because a file system with files open for writing cannot be remounted read-only.
    drop(before);
    assert!(disk.mount(&["-o", "remount,ro"]));
    let after = mounted(&memory(), disk.path(), 64 << 20, LONG);
    read_all(&after);
    assert_eq!(after.stats.disk_written_bytes.get(), 0);
}

#[test]
fn a_removed_cache_folder_fails_no_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let mount = mounted(&memory(), &path, 64 << 20, LONG);
    mount.get("1");
    fs::remove_dir_all(&path).unwrap();
    read_all(&mount);
    assert!(!path.exists());
    let within = folder.path().join("file/cache");
    fs::write(folder.path().join("file"), "").unwrap();
    read_all(&mounted(&memory(), &within, 64 << 20, LONG));
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path| {
        let opened = CacheDir::open(path, 1 << 20, &Arc::new(Stats::default()));
        opened.err().map(|error| (error.kind(), error.to_string()))
    };
    assert_eq!(refused(folder.path()), None);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (kind, text) = refused(folder.path()).unwrap();
    assert_eq!(kind, Kind::Denied);
    assert!(
        text.contains("other users can write to --cache-dir"),
        "{text}"
    );
    fs::write(folder.path().join("file"), "").unwrap();
    let (kind, text) = refused(&folder.path().join("file")).unwrap();
    assert_eq!(kind, Kind::NotADirectory);
    assert!(text.contains("--cache-dir must be a directory"), "{text}");
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        chown(folder.path(), Some(12345), None).unwrap();
        let (kind, text) = refused(folder.path()).unwrap();
        assert_eq!(kind, Kind::Denied);
        assert!(text.contains("belongs to another user"), "{text}");
    }
}
