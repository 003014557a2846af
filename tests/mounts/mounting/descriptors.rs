//! Tests daemons with a low limit of open files, and programs that open many files.

use std::fs;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Resource, Rlimit, prlimit};

use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

const ARRAYS: usize = 100;
const CHUNKS: usize = 8;

/// Puts arrays of 8 uncompressed chunks of 16 bytes; each byte is the array's number plus the chunk's.
fn put_arrays(fixture: &Fixture) {
    let document = fs::read_to_string(fixture.store.join("a/zarr.json")).unwrap();
    let document = document.replace("\"shape\": [4]", "\"shape\": [32]");
    for array in 0..ARRAYS {
        let folder = fixture.store.join(format!("b{array}"));
        fs::create_dir_all(folder.join("c")).unwrap();
        fs::write(folder.join("zarr.json"), &document).unwrap();
        for chunk in 0..CHUNKS {
            fs::write(
                folder.join(format!("c/{chunk}")),
                [(array + chunk) as u8; 16],
            )
            .unwrap();
        }
    }
}

/// Puts arrays of 4 shards, each with two inner chunks of 4 bytes and an index; each byte of an element is the array's
/// number plus the shard's.
fn put_sharded_arrays(fixture: &Fixture) {
    let document = r#"{"zarr_format": 3, "node_type": "array", "shape": [32], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}},
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [4], "codecs": [{"name": "bytes"}],
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}"#;
    let index = [0u64, 4, 4, 4].map(u64::to_le_bytes);
    for array in 0..ARRAYS {
        let folder = fixture.store.join(format!("s{array}"));
        fs::create_dir_all(folder.join("c")).unwrap();
        fs::write(folder.join("zarr.json"), document).unwrap();
        for shard in 0..4 {
            let elements = [(array + shard) as u8; 8];
            let bytes = [&elements[..], index.as_flattened()].concat();
            fs::write(folder.join(format!("c/{shard}")), bytes).unwrap();
        }
    }
}

fn expected_of_shards(array: usize) -> Vec<u8> {
    (0..4)
        .flat_map(|shard| [(array + shard) as u8; 8])
        .collect()
}

fn raw(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.dir.join(format!(".zarrfs/files/{name}/{name}.raw"))
}

/// Reads the decoded files of all arrays; returns how many could not be read. Fails if a content is wrong.
fn failed_reads(fixture: &Fixture) -> usize {
    let read = |array: usize| {
        let plain = fs::read(raw(fixture, &format!("b{array}")));
        let sharded = fs::read(raw(fixture, &format!("s{array}")));
        assert!(
            plain
                .as_ref()
                .ok()
                .is_none_or(|bytes| *bytes == expected(array))
        );
        let right = |bytes: &Vec<u8>| *bytes == expected_of_shards(array);
        assert!(sharded.as_ref().ok().is_none_or(right));
        usize::from(plain.is_err()) + usize::from(sharded.is_err())
    };
    (0..ARRAYS).map(read).sum()
}

fn expected(array: usize) -> Vec<u8> {
    let chunks = 0..CHUNKS;
    chunks
        .flat_map(|chunk| [(array + chunk) as u8; 16])
        .collect()
}

/// Mounts the store in a daemon with a hard and a soft limit of descriptors.
fn mount(fixture: &Fixture, hard: usize, soft: usize, more: &[&str]) {
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, "sh", PROGRAM, "mount"])
        .arg(&fixture.store)
        .arg(&fixture.dir)
        .args(more)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Invariant (caches): Every file that stays open has a permit, and some descriptors are reserved.
#[test]
fn a_hundred_arrays_are_read_with_few_descriptors() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_arrays(&fixture);
    put_sharded_arrays(&fixture);
    mount(&fixture, 256, 256, &[]);
    // All decoded files are open at once, and each is read while the others are open.
    let open = |array: usize| {
        ["b", "s"].map(|kind| File::open(raw(&fixture, &format!("{kind}{array}"))).unwrap())
    };
    let open: Vec<[File; 2]> = (0..ARRAYS).map(open).collect();
    assert_eq!(failed_reads(&fixture), 0);
    drop(open);
    assert!(fixture.umount(&fixture.dir).status.success());
}

/// Invariant of `a_hundred_arrays_are_read_with_few_descriptors`.
#[test]
fn a_mount_survives_a_lack_of_descriptors() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_arrays(&fixture);
    put_sharded_arrays(&fixture);
    mount(&fixture, 256, 256, &[]);
    let daemon = Some(fixture.daemon());
    let limit = |current: u64| Rlimit {
        current: Some(current),
        maximum: Some(256),
    };
    // The limit is below the number of files that the daemon has open already: each further open fails with EMFILE.
    prlimit(daemon, Resource::Nofile, limit(8)).unwrap();
    assert!(failed_reads(&fixture) > 0);
    prlimit(daemon, Resource::Nofile, limit(256)).unwrap();
    assert!(soon(|| failed_reads(&fixture) == 0));
    assert!(fixture.umount(&fixture.dir).status.success());
}

/// Invariant of `a_hundred_arrays_are_read_with_few_descriptors`.
#[test]
fn five_thousand_files_are_held_open_at_a_soft_limit_of_1024() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_arrays(&fixture);
    mount(&fixture, 8192, 1024, &[]);
    zarrfs_store::sync::file_limits::raise_descriptor_limit();
    let keys = (0..5000).map(|number| (number / CHUNKS % ARRAYS, number % CHUNKS));
    let open = |(array, chunk)| {
        let path = fixture.dir.join(format!("b{array}/c/{chunk}"));
        (File::open(path).unwrap(), (array + chunk) as u8)
    };
    let open: Vec<(File, u8)> = keys.map(open).collect();
    for (file, byte) in &open {
        let mut bytes = [0; 17];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 16);
        assert_eq!(bytes[..16], [*byte; 16]);
    }
    assert_eq!(fs::read(raw(&fixture, "b7")).unwrap(), expected(7));
    drop(open);
    assert!(fixture.umount(&fixture.dir).status.success());
}

/// Invariant of `a_hundred_arrays_are_read_with_few_descriptors`.
#[test]
fn a_program_with_too_many_open_files_does_not_block_others() {
    for more in [&[][..], &["--cow", "UPPER"]] {
        let Some(fixture) = Fixture::new() else {
            return;
        };
        put_arrays(&fixture);
        let upper = fixture.path("upper").display().to_string();
        let more: Vec<&str> = more
            .iter()
            .map(|word| if *word == "UPPER" { &upper } else { *word })
            .collect();
        mount(&fixture, 256, 64, &more);
        let keys = (0..ARRAYS).flat_map(|array| (0..CHUNKS).map(move |chunk| (array, chunk)));
        let paths = keys.map(|(array, chunk)| fixture.dir.join(format!("b{array}/c/{chunk}")));
        let mut open = Vec::new();
        let refused = paths.map(File::open).find_map(|opened| match opened {
            Ok(file) => {
                open.push(file);
                None
            }
            Err(error) => Some(error),
        });
        let refused = refused.map(|error| error.raw_os_error());
        assert_eq!(
            refused,
            Some(Some(libc::ENFILE)),
            "{more:?}: {} are open",
            open.len()
        );
        assert!(open.len() > 64, "the soft limit is raised: {}", open.len());
        // Other programs can still use the mount.
        assert!(fs::read_dir(fixture.dir.join("b99/c")).unwrap().count() == CHUNKS);
        assert!(fs::read_to_string(fixture.dir.join(".zarrfs/stats.json")).is_ok());
        assert!(fs::metadata(fixture.dir.join("b99/zarr.json")).is_ok());
        drop(open);
        let read = || fs::read(raw(&fixture, "b7"));
        assert!(
            soon(|| read().is_ok()),
            "{:?}",
            read().err().map(|error| error.kind() == ErrorKind::Other)
        );
        assert_eq!(read().unwrap(), expected(7));
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}
