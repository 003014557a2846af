//! Tests daemons with a file size limit: only the change that is too long fails.

use std::fs;
use std::io;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, prlimit};

use crate::common::scripted::{Answer, Request, Scripted, answer, answer_of};
use crate::mounting::fixture::{Fixture, PROGRAM, soon, stderr};

const LIMIT: u64 = 64 << 10;

/// Sets the file size limit of the daemon, as `ulimit -f` before the mount would.
fn limit(fixture: &Fixture, bytes: Option<u64>) {
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(Some(fixture.daemon()), Resource::Fsize, limit).unwrap();
}

fn errno<T: std::fmt::Debug>(done: io::Result<T>) -> Option<i32> {
    done.unwrap_err().raw_os_error()
}

fn commit(fixture: &Fixture) {
    let output = Command::new(PROGRAM)
        .arg("commit")
        .arg(&fixture.dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn counter(fixture: &Fixture, name: &str) -> u64 {
    let stats = fs::read(fixture.dir.join(".zarrfs/stats.json")).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
    stats[name].as_u64().unwrap()
}

/// Invariant (mount): The limit for file sizes (RLIMIT_FSIZE) does not kill the daemon: the write fails.
#[test]
fn a_write_beyond_the_file_size_limit_fails_alone() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    limit(&fixture, Some(LIMIT));
    let (long, short) = (fixture.dir.join("long"), fixture.dir.join("short"));
    for length in [LIMIT + 1, 8 * LIMIT] {
        let bytes = vec![1; length as usize];
        assert_eq!(errno(fs::write(&long, &bytes)), Some(libc::EFBIG));
    }
    // No commit stores a part of the content whose write failed.
    fs::write(&short, "1").unwrap();
    commit(&fixture);
    assert!(!fixture.store.join("long").exists() && fixture.store.join("short").exists());
    let file = fs::File::create(fixture.dir.join("cut")).unwrap();
    assert_eq!(errno(file.set_len(LIMIT + 1)), Some(libc::EFBIG));
    fs::write(&short, vec![2; LIMIT as usize]).unwrap();
    assert_eq!(fs::read(&short).unwrap(), vec![2; LIMIT as usize]);
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    let errors = fs::read_to_string(fixture.dir.join(".zarrfs/errors")).unwrap();
    let why = "see 'ulimit -f' for the limit on the size of files";
    assert!(errors.contains(why), "{errors}");
    limit(&fixture, None);
    fs::write(&long, vec![1; 8 * LIMIT as usize]).unwrap();
    commit(&fixture);
    let committed = fs::metadata(fixture.store.join("long")).unwrap();
    assert_eq!(committed.len(), 8 * LIMIT);
    assert!(fixture.umount(&fixture.dir).status.success());
}

/// Invariant of `a_write_beyond_the_file_size_limit_fails_alone`.
#[test]
fn a_journal_at_the_file_size_limit_refuses_changes() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let upper = fixture.path("upper");
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    fs::write(fixture.dir.join("first"), "1").unwrap();
    limit(&fixture, Some(2));
    let second = fixture.dir.join("second");
    assert_eq!(errno(fs::write(&second, "2")), Some(libc::ENOSPC));
    assert_eq!(
        errno(fs::remove_file(fixture.dir.join("first"))),
        Some(libc::ENOSPC)
    );
    assert_eq!(fs::read(fixture.dir.join("first")).unwrap(), b"1");
    limit(&fixture, None);
    fs::write(&second, "2").unwrap();
    assert!(fixture.umount(&fixture.dir).status.success());
    fixture.mount(&["--cow", upper.to_str().unwrap()]);
    assert_eq!(fs::read(fixture.dir.join("first")).unwrap(), b"1");
    assert_eq!(fs::read(&second).unwrap(), b"2");
}

/// Puts an array whose rows of chunks take twice the memory of the mount, with a checksum at the end of each chunk.
fn put_long_rows(store: &Path) {
    const ARRAY: &str = r#"{"zarr_format": 3, "node_type": "array", "shape": [64, 256, 256], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32, 64, 64]}}, "fill_value": 0,
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "bytes"}, {"name": "crc32c"}]}"#;
    fs::create_dir(store.join("rows")).unwrap();
    fs::write(store.join("rows/zarr.json"), ARRAY).unwrap();
    let mut chunk = vec![7; 32 * 64 * 64];
    chunk.extend(crc32c::crc32c(&chunk).to_le_bytes());
    for (first, second, third) in (0..32).map(|number| (number / 16, number / 4 % 4, number % 4)) {
        let folder = store.join(format!("rows/c/{first}/{second}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(third.to_string()), &chunk).unwrap();
    }
}

/// Invariant of `a_write_beyond_the_file_size_limit_fails_alone`.
#[test]
fn a_spill_file_at_the_file_size_limit_is_not_used() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_long_rows(&fixture.store);
    let spill = fixture.path("spill");
    fs::create_dir(&spill).unwrap();
    for bytes in [None, Some(LIMIT)] {
        fixture.mount(&["--memory", "1M", "--spill", spill.to_str().unwrap()]);
        limit(&fixture, bytes);
        let mut file = fs::File::open(fixture.dir.join(".zarrfs/files/rows/rows.raw")).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == vec![7; 64 * 256 * 256], "{bytes:?}");
        let spilled = counter(&fixture, "spill_written_chunks");
        assert_eq!(spilled > 0, bytes.is_none(), "{spilled} chunks");
        drop(file);
        assert!(fixture.umount(&fixture.dir).status.success());
    }
}

#[test]
fn only_objects_below_the_file_size_limit_are_cached() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.store.join("a/long"), vec![1; 2 * LIMIT as usize]).unwrap();
    let store = fixture.store.clone();
    let server = Scripted::start(move |_, request: &Request| -> Answer {
        match fs::read(store.join(request.target.trim_start_matches('/'))) {
            Ok(bytes) => answer_of(request, &bytes, vec![("etag", "\"1\"".to_string())]),
            Err(_) => answer(404, b""),
        }
    });
    fixture.store = server.url("").into();
    let cache = fixture.path("cache");
    fixture.mount(&["--cache-dir", cache.to_str().unwrap(), "--spill", "none"]);
    limit(&fixture, Some(LIMIT));
    let long = fs::read(fixture.dir.join("a/long")).unwrap();
    assert!(long == vec![1; 2 * LIMIT as usize]);
    let written = counter(&fixture, "disk_written_bytes");
    assert!(written < LIMIT, "{written}");
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    assert!(soon(|| counter(&fixture, "disk_written_bytes") > written));
    assert!(fixture.umount(&fixture.dir).status.success());
}

/// Invariant of `a_write_beyond_the_file_size_limit_fails_alone`.
#[test]
fn a_log_at_the_file_size_limit_does_not_end_the_mount() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let log = fixture.path("log");
    fixture.mount(&["-vvv", "--log", log.to_str().unwrap()]);
    limit(&fixture, Some(1));
    assert_eq!(fs::read(fixture.dir.join("a/c/0")).unwrap(), [7; 16]);
    let before = fs::metadata(&log).unwrap().len();
    limit(&fixture, None);
    assert!(fs::metadata(fixture.dir.join("missing")).is_err());
    assert!(soon(|| fs::metadata(&log).unwrap().len() > before));
    assert!(fixture.umount(&fixture.dir).status.success());
}

#[test]
fn cp_reports_a_file_beyond_the_file_size_limit() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    put_long_rows(&fixture.store);
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$@\"", "sh", PROGRAM, "cp"])
        .args([fixture.store.join("rows"), fixture.path("rows.npy")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("see 'ulimit -f'"), "{said}");
    assert!(!fixture.path("rows.npy").exists());
}
