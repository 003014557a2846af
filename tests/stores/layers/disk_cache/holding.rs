//! Entries on disk: total size, order of eviction, permissions, and detection of wrong bytes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use zarrfs_store::backend::memory::MemoryStore;

use super::fixture::{bytes_of, du, entries, key, mounted};

const LONG: Duration = Duration::from_secs(3600);

fn numbered(count: u64, length: usize) -> MemoryStore {
    let memory = MemoryStore::default();
    for number in 0..count {
        memory.set(key(number.to_string()), bytes_of(number, length));
    }
    memory
}

#[test]
fn the_size_is_never_exceeded() {
    let folder = tempfile::tempdir().unwrap();
    let size = 1 << 20;
    for length in [10, 4096, 70_000, 600_000, 2_000_000] {
        let count = 400.min(40_000_000 / length as u64);
        let memory = numbered(count, length);
        let mount = mounted(&memory, folder.path(), size, LONG);
        for number in 0..count {
            assert_eq!(mount.get(&number.to_string()), bytes_of(number, length));
            let found = du(folder.path());
            assert!(found <= size, "{found} bytes after {number} of {length}");
            assert!(found <= mount.stats.disk_held_bytes.get() + size / 32);
        }
    }
}

#[test]
fn a_smaller_size_evicts_entries_when_the_cache_opens() {
    let (memory, folder) = (numbered(50, 100_000), tempfile::tempdir().unwrap());
    let mount = mounted(&memory, folder.path(), 64 << 20, LONG);
    (0..50).for_each(|number| drop(mount.get(&number.to_string())));
    assert!(du(folder.path()) > 5_000_000);
    mounted(&memory, folder.path(), 1 << 20, LONG);
    assert!(du(folder.path()) <= 1 << 20);
}

#[test]
fn the_least_recently_used_entry_is_evicted_first() {
    let (memory, folder) = (numbered(20, 100_000), tempfile::tempdir().unwrap());
    let mount = mounted(&memory, folder.path(), 1 << 20, LONG);
    (0..5).for_each(|number| drop(mount.get(&number.to_string())));
    // Make the entries a minute older, because uses within the same second count as equally old.
    for path in entries(folder.path()) {
        let file = fs::File::options().write(true).open(path).unwrap();
        let used = file.metadata().unwrap().modified().unwrap();
        file.set_modified(used - Duration::from_secs(60)).unwrap();
    }
    mount.get("0");
    (5..12).for_each(|number| drop(mount.get(&number.to_string())));
    let (asked, _) = mount.asked();
    mount.get("0");
    mount.get("11");
    assert_eq!(mount.asked().0, asked, "what was used is there");
    mount.get("1");
    assert_eq!(mount.asked().0, asked + 1, "what was not used has gone");
    assert!(mount.stats.disk_evicted_entries.get() > 0);
}

#[test]
fn only_the_owner_can_read_the_cache_folder() {
    let (memory, folder) = (numbered(3, 1000), tempfile::tempdir().unwrap());
    let path = folder.path().join("new/cache");
    let mount = mounted(&memory, &path, 1 << 20, LONG);
    mount.get("1");
    let mut waiting = vec![path];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let expected = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o7777, expected, "{path:?}");
        seen += 1;
        if meta.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    assert_eq!(seen, 4, "the folder, its usage, a store, an object");
}

/// Invariant (caches): The disk cache never returns wrong bytes, and its failures never fail a read.
#[test]
fn damaged_entries_are_never_returned() {
    let (memory, folder) = (numbered(3, 150_000), tempfile::tempdir().unwrap());
    let mount = mounted(&memory, folder.path(), 8 << 20, LONG);
    (0..3).for_each(|number| drop(mount.get(&number.to_string())));
    let mut corrupt = 0;
    for place in [
        0, 65_535, 65_536, 149_999, 150_003, 150_010, 150_030, 150_060,
    ] {
        for path in entries(folder.path()) {
            let mut content = fs::read(&path).unwrap();
            let place = place.min(content.len() - 1);
            content[place] ^= 0x10;
            fs::write(&path, content).unwrap();
        }
        let (asked, _) = mount.asked();
        for number in 0..3 {
            assert_eq!(mount.get(&number.to_string()), bytes_of(number, 150_000));
        }
        assert_eq!(mount.asked().0, asked + 3);
        corrupt += 3;
        assert_eq!(
            mount.stats.disk_corrupt_entries.get(),
            corrupt,
            "at {place}"
        );
    }
    for path in entries(folder.path()) {
        fs::write(&path, "").unwrap();
    }
    (0..3).for_each(|number| drop(mount.get(&number.to_string())));
    let (asked, _) = mount.asked();
    (0..3).for_each(|number| drop(mount.get(&number.to_string())));
    assert_eq!(mount.asked().0, asked, "fetched again and kept");
}

#[test]
fn links_in_the_cache_folder_are_not_followed() {
    let (memory, folder) = (numbered(1, 1000), tempfile::tempdir().unwrap());
    let outside = tempfile::tempdir().unwrap();
    let mount = mounted(&memory, folder.path(), 8 << 20, LONG);
    mount.get("0");
    let path = entries(folder.path()).remove(0);
    let moved = outside.path().join("moved");
    fs::rename(&path, &moved).unwrap();
    symlink(&moved, &path).unwrap();
    let before = fs::read(&moved).unwrap();
    let (asked, _) = mount.asked();
    assert_eq!(mount.get("0"), bytes_of(0, 1000));
    assert_eq!(mount.asked().0, asked + 1);
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    let store = path.parent().unwrap();
    let elsewhere = outside.path().join("elsewhere");
    fs::rename(store, &elsewhere).unwrap();
    symlink(&elsewhere, store).unwrap();
    let files = fs::read_dir(&elsewhere).unwrap().count();
    let again = mounted(&memory, folder.path(), 8 << 20, LONG);
    memory.set(key("1"), bytes_of(1, 10));
    assert_eq!(again.get("1"), bytes_of(1, 10));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), files);
    assert_eq!(fs::read(&moved).unwrap(), before);
    assert_eq!(fs::metadata(&moved).unwrap().nlink(), 1);
}
