//! Lengths of variable-length files: computed once, kept on disk, never used when stale.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zarr_format::error::Kind;
use zarrfs::view::View;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Store};

use super::fixture::files_view;
use crate::common;
use zarrfs_store::request_context::UNLIMITED;

const MEMORY: u64 = 8 << 20;
const CHUNK: u64 = 1000;
const CHUNKS: u64 = 80;

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

/// Returns a chunk of strings in the vlen-utf8 encoding. The length of each string is its index modulo `longest`.
fn chunk(longest: u64) -> Vec<u8> {
    let mut bytes = u32::try_from(CHUNK).unwrap().to_le_bytes().to_vec();
    for number in 0..CHUNK {
        let text = "x".repeat(usize::try_from(number % longest).unwrap());
        bytes.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        bytes.extend(text.bytes());
    }
    bytes
}

/// Returns a store with an array of strings whose last chunk is missing.
fn strings() -> MemoryStore {
    let memory = MemoryStore::default();
    memory.set(key(".zgroup"), br#"{"zarr_format": 2}"#.to_vec());
    let document = json!({
        "zarr_format": 2, "shape": [CHUNK * CHUNKS], "chunks": [CHUNK], "dtype": "|O", "compressor": null,
        "fill_value": "none", "order": "C", "filters": [{"id": "vlen-utf8"}],
    });
    memory.set(key("s/.zarray"), document.to_string().into_bytes());
    for number in 0..CHUNKS - 1 {
        memory.set(key(&format!("s/{number}")), chunk(7));
    }
    memory
}

fn view(memory: &MemoryStore, folder: Option<&Path>) -> (Arc<dyn View>, Arc<Stats>) {
    files_view(memory, folder, (MEMORY, 1 << 20))
}

/// Returns the size of a file as `stat` shows it, and the number of chunks that were decoded to compute it.
fn size(view: &(Arc<dyn View>, Arc<Stats>), path: &str) -> (u64, u64) {
    let before = view.1.decoded_chunks.get();
    let attr = view.0.lookup(&UNLIMITED, &key(path)).unwrap().unwrap();
    assert!(attr.is_exact);
    (attr.size, view.1.decoded_chunks.get() - before)
}

const FILES: [&str; 4] = ["s/s.txt", "s/s.raw", "s/chunks/3.txt", "s/chunks/79.raw"];

#[test]
fn the_length_of_a_file_that_was_read_decodes_nothing() {
    let memory = strings();
    for path in FILES {
        let view = view(&memory, None);
        let read = common::read(&view.0, path).unwrap();
        assert_eq!(size(&view, path), (read.len() as u64, 0), "{path}");
    }
}

#[test]
fn a_length_is_kept_on_disk_for_the_next_mount() {
    let (memory, folder) = (strings(), tempfile::tempdir().unwrap());
    for path in FILES {
        let shown = size(&view(&memory, Some(folder.path())), path);
        assert!(
            shown.1 > 0 || path == "s/chunks/79.raw",
            "{path}: nothing was decoded"
        );
        let again = view(&memory, Some(folder.path()));
        assert_eq!(size(&again, path), (shown.0, 0), "{path}");
        let read = common::read(&again.0, path).unwrap();
        assert_eq!(read.len() as u64, shown.0, "{path}");
    }
}

/// Invariant (reading): A length that depends on chunks is that of the current chunks; if it cannot be computed, that
/// is an error, never 0.
#[test]
fn a_cached_length_of_changed_chunks_or_metadata_is_not_used() {
    let (memory, folder) = (strings(), tempfile::tempdir().unwrap());
    let open = || view(&memory, Some(folder.path()));
    let one_view = open();
    let mut before = size(&one_view, "s/s.txt").0;
    let document = memory
        .get(&UNLIMITED, &key("s/.zarray"), 1 << 20)
        .unwrap()
        .unwrap();
    let document = String::from_utf8(document.bytes).unwrap();
    let changes: [(&str, Vec<u8>); 3] = [
        ("s/5", chunk(9)),
        ("s/79", chunk(3)),
        ("s/.zarray", document.replace("80000", "79999").into_bytes()),
    ];
    for (path, bytes) in changes {
        memory.set(key(path), bytes);
        let fresh = open();
        let (now, _) = size(&fresh, "s/s.txt");
        assert_ne!(now, before, "{path}");
        let read = common::read(&fresh.0, "s/s.txt").unwrap();
        assert_eq!(read.len() as u64, now, "{path}");
        before = now;
    }
    memory.erase(&key("s/6"));
    assert_ne!(size(&open(), "s/s.txt").0, before);
    // A mount that has read the file has its new length too.
    let read = common::read(&one_view.0, "s/s.txt").unwrap();
    assert_eq!(size(&one_view, "s/s.txt").0, read.len() as u64);
}

#[test]
fn a_damaged_cached_length_is_not_used() {
    let (memory, folder) = (strings(), tempfile::tempdir().unwrap());
    let shown = size(&view(&memory, Some(folder.path())), "s/s.txt");
    let mut damaged = 0;
    for path in super::fixture::entries(folder.path()) {
        let mut content = std::fs::read(&path).unwrap();
        content[0] ^= 1;
        std::fs::write(&path, content).unwrap();
        damaged += 1;
    }
    assert!(damaged > 0, "nothing is on disk");
    let again = view(&memory, Some(folder.path()));
    let (length, decoded) = size(&again, "s/s.txt");
    assert_eq!(length, shown.0);
    assert!(decoded > 0, "the damaged length was taken");
    assert!(again.1.disk_corrupt_entries.get() > 0);
}

#[test]
fn a_file_too_large_to_measure_is_measured_once() {
    let memory = strings();
    for number in 0..CHUNKS {
        memory.set(key(&format!("s/{number}")), chunk(200));
    }
    let (view, stats) = view(&memory, None);
    let measure = || {
        view.measure(&UNLIMITED, &key("s/s.txt"))
            .unwrap_err()
            .kind()
    };
    assert_eq!(measure(), Kind::TooLarge);
    // Wait for the prefetch, which decodes chunks after the answer.
    let mut once = 0;
    while once != stats.decoded_chunks.get() {
        once = stats.decoded_chunks.get();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(once > 0, "nothing was read");
    assert_eq!(measure(), Kind::TooLarge);
    assert_eq!(stats.decoded_chunks.get(), once);
}

/// Invariant of `a_cached_length_of_changed_chunks_or_metadata_is_not_used`.
#[test]
fn an_unknown_length_is_an_error_and_never_zero() {
    let memory = strings();
    memory.set(key("s/7"), b"no chunk".to_vec());
    let (view, _) = view(&memory, None);
    for (path, kind) in [
        ("s/s.txt", Kind::Corrupt),
        ("s/s.raw", Kind::Corrupt),
        ("s/chunks/7.txt", Kind::Corrupt),
    ] {
        let attr = view.lookup(&UNLIMITED, &key(path)).unwrap().unwrap();
        assert!(!attr.is_exact, "{path}: there, but of no length");
        let error = view.measure(&UNLIMITED, &key(path)).unwrap_err();
        assert_eq!(error.kind(), kind, "{path}: {error}");
        assert!(view.open(&UNLIMITED, &key(path)).is_err(), "{path}");
    }
    let whole = view
        .lookup(&UNLIMITED, &key("s/chunks/8.txt"))
        .unwrap()
        .unwrap();
    assert!(whole.is_exact && whole.size > 0);
}
