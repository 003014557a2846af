//! Counts the disk cache's requests to the store below it.

use std::time::Duration;

use zarrfs_store::ByteRange;
use zarrfs_store::backend::memory::MemoryStore;

use super::fixture::{Mounted, bytes_of, key, mounted};
use zarrfs_store::request_context::UNLIMITED;

const SIZE: u64 = 64 << 20;
const LONG: Duration = Duration::from_secs(3600);

fn memory() -> MemoryStore {
    let memory = MemoryStore::default();
    memory.set(key("a/b"), bytes_of(1, 300_000));
    memory
}

/// Reads an object as a whole and in ranges, and compares the bytes.
fn read_all(mount: &Mounted) {
    let whole = bytes_of(1, 300_000);
    assert_eq!(mount.get("a/b"), whole);
    let ranges = [
        (ByteRange::Span(7..100_000), &whole[7..100_000]),
        (ByteRange::Suffix(20), &whole[299_980..]),
    ];
    for (range, expected) in ranges {
        let part = mount
            .store
            .get_range(&UNLIMITED, &key("a/b"), range)
            .unwrap()
            .unwrap();
        assert_eq!((part.bytes.as_slice(), part.size), (expected, 300_000));
    }
}

#[test]
fn a_cached_object_costs_a_version_request_without_a_ttl() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let first = mounted(&memory, folder.path(), SIZE, Duration::ZERO);
    read_all(&first);
    // Only the first read requests bytes. The others request the object's version, because answers have no TTL.
    assert_eq!(first.asked(), (1, 2));
    let second = mounted(&memory, folder.path(), SIZE, Duration::ZERO);
    read_all(&second);
    assert_eq!(second.asked(), (0, 3));
    assert_eq!(second.stats.disk_hit_requests.get(), 3);
    assert_eq!(second.stats.disk_hit_bytes.get(), 300_000 + 99_993 + 20);
}

#[test]
fn a_cached_object_costs_no_request_within_the_ttl() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let first = mounted(&memory, folder.path(), SIZE, LONG);
    read_all(&first);
    assert_eq!(first.asked(), (1, 0));
    let second = mounted(&memory, folder.path(), SIZE, LONG);
    read_all(&second);
    assert_eq!(second.asked(), (0, 0));
}

#[test]
fn the_latest_version_of_the_store_is_read() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let mount = mounted(&memory, folder.path(), SIZE, LONG);
    read_all(&mount);
    let new = bytes_of(2, 5000);
    memory.set(key("a/b"), new.clone());
    mount.store.version(&UNLIMITED, &key("a/b")).unwrap();
    assert_eq!(mount.get("a/b"), new);
    let part = mount
        .store
        .get_range(&UNLIMITED, &key("a/b"), ByteRange::Span(0..10));
    assert_eq!(part.unwrap().unwrap().bytes, new[..10]);
    memory.erase(&key("a/b"));
    assert_eq!(mount.store.version(&UNLIMITED, &key("a/b")).unwrap(), None);
    assert!(
        mount
            .store
            .get(&UNLIMITED, &key("a/b"), SIZE)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_known_object_is_opened_and_read_from_disk() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let whole = bytes_of(1, 300_000);
    for (round, requests) in [(0, (2, 1)), (1, (0, 1))] {
        let mount = mounted(&memory, folder.path(), SIZE, Duration::ZERO);
        let meta = mount.store.head(&UNLIMITED, &key("a/b")).unwrap().unwrap();
        let reader = mount
            .store
            .open(&UNLIMITED, &key("a/b"), Some(&meta))
            .unwrap();
        for offset in [0, 200_000] {
            let read = reader.read_at(&UNLIMITED, offset, 150_000).unwrap();
            assert_eq!(read, whole[offset as usize..][..read.len()]);
            assert_eq!(read.len(), 150_000.min(300_000 - offset as usize));
        }
        assert_eq!(mount.asked(), requests, "round {round}");
    }
}

#[test]
fn only_the_requested_range_is_cached() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let mount = mounted(&memory, folder.path(), SIZE, LONG);
    let range = ByteRange::Span(100..1100);
    mount
        .store
        .get_range(&UNLIMITED, &key("a/b"), range)
        .unwrap();
    let written = mount.stats.disk_written_bytes.get();
    assert!((1000..1200).contains(&written), "{written}");
    assert!(
        mount.store.get(&UNLIMITED, &key("a/b"), 1000).is_err(),
        "too large"
    );
    assert_eq!(mount.stats.disk_written_bytes.get(), written);
}

#[test]
fn ranges_of_one_read_are_cached_separately() {
    let (memory, folder) = (memory(), tempfile::tempdir().unwrap());
    let whole = bytes_of(1, 300_000);
    let mount = mounted(&memory, folder.path(), SIZE, LONG);
    let meta = mount.store.head(&UNLIMITED, &key("a/b")).unwrap().unwrap();
    let reader = mount
        .store
        .open(&UNLIMITED, &key("a/b"), Some(&meta))
        .unwrap();
    let ranges = [100..300, 300..1000, 5000..6000, 299_000..299_500];
    let parts = ranges.clone().map(|range| whole[range].to_vec());
    let read = |chosen: &[usize]| {
        let ranges: Vec<_> = chosen
            .iter()
            .map(|&number| ranges[number].clone())
            .collect();
        let ranges = ranges
            .iter()
            .map(|range| range.start as u64..range.end as u64);
        let found = reader
            .read_ranges(&UNLIMITED, &ranges.collect::<Vec<_>>())
            .unwrap();
        let expected: Vec<_> = chosen.iter().map(|&number| parts[number].clone()).collect();
        assert!(found == expected, "{chosen:?}");
        mount.stats.disk_hit_requests.get()
    };
    assert_eq!(read(&[1]), 0);
    // Cached ranges come from disk, even if the ranges next to them must be requested.
    assert_eq!(read(&[0, 1, 2]), 1);
    assert_eq!(read(&[0, 2]), 3);
    assert_eq!(reader.read_at(&UNLIMITED, 5000, 1000).unwrap(), parts[2]);
    assert_eq!(mount.stats.disk_hit_requests.get(), 4);
    assert_eq!(read(&[0, 1, 2, 3]), 7);
}
