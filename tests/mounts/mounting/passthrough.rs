//! Tests `--passthrough`: the kernel reads stored local files itself, with the right content.

use std::fs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use crate::common::mapped::Mapping;
use crate::mounting::fixture::Fixture;

/// Returns how many bytes the daemon, and not the kernel, has read from the store.
fn read_by_the_daemon(fixture: &Fixture) -> u64 {
    let text = fs::read_to_string(fixture.dir.join(".zarrfs/stats.json")).unwrap();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
    stats["store_get_bytes"].as_u64().unwrap()
}

/// Whether the kernel is new enough for FUSE passthrough.
fn kernel_reads() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next().unwrap().unwrap();
    (next(), next()) >= (6, 9)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

/// Invariant (mount): The kernel reads all handles of an inode directly (passthrough), or none of them.
#[test]
fn the_kernel_reads_stored_files_itself() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::write(fixture.store.join("big"), &bytes).unwrap();
    fixture.mount(&["--passthrough"]);
    let before = read_by_the_daemon(&fixture);
    let big = fixture.dir.join("big");
    let open = File::open(&big).unwrap();
    let readers = [big.clone(), big.clone(), big.clone()];
    thread::scope(|scope| {
        for path in &readers {
            scope.spawn(|| (0..50).for_each(|_| assert!(read(path) == bytes)));
        }
    });
    let mut part = [0; 5000];
    assert_eq!(open.read_at(&mut part, 2_997_000).unwrap(), 3000);
    assert!(part[..3000] == bytes[2_997_000..]);
    let map = Mapping::of(&open, bytes.len()).unwrap();
    for place in (0..bytes.len()).step_by(4001) {
        assert_eq!(map.byte(place), bytes[place]);
    }
    if kernel_reads() {
        assert_eq!(read_by_the_daemon(&fixture), before);
    }
    // Decoded files are computed by the daemon, so they cannot be passed through.
    let decoded = read(&fixture.dir.join(".zarrfs/files/a/a.npy"));
    assert!(decoded.ends_with(&[7; 16]));
}

#[test]
fn open_handles_keep_the_content_of_a_replaced_file() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.mount(&["--passthrough"]);
    let (stored, shown) = (fixture.store.join("a/c/0"), fixture.dir.join("a/c/0"));
    let mut before = File::open(&shown).unwrap();
    for turn in 8..40 {
        let fresh = fixture.store.join("fresh");
        fs::write(&fresh, [turn; 16]).unwrap();
        fs::rename(&fresh, &stored).unwrap();
        let mut old = [0; 16];
        before.read_exact_at(&mut old, 0).unwrap();
        assert_eq!(old, [turn - 1; 16]);
        before = File::open(&shown).unwrap();
        let mut new = [0; 16];
        before.read_exact_at(&mut new, 0).unwrap();
        assert_eq!(new, [turn; 16]);
    }
    fs::remove_file(&stored).unwrap();
    let mut last = [0; 16];
    before.read_exact_at(&mut last, 0).unwrap();
    assert_eq!(last, [39; 16]);
}

#[test]
fn passthrough_is_refused_with_cow_or_write_through() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for options in [
        ["--passthrough", "-o", "cow=upper"],
        ["--passthrough", "-o", "write_through"],
    ] {
        let output = fixture.try_mount(&options);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {text}");
        assert!(
            text.contains("--passthrough: cannot be used with"),
            "{text}"
        );
    }
}
