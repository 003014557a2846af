//! Tests that hostile stores do not make a check panic, hang or exceed its memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zarr_check::{Finding, Severity};
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{plain_array, put, raw, sharding, v2, v3};
use crate::dialects::hierarchies::key;

const DATA: How = How {
    data: true,
    is_remote: false,
};

/// Checks a store within a time limit. Returns the codes of the findings.
fn codes(store: MemoryStore) -> Vec<&'static str> {
    findings(store).iter().map(|finding| finding.code).collect()
}

fn findings(store: MemoryStore) -> Vec<Finding> {
    let began = Instant::now();
    let found = run(Arc::new(store), DATA).0;
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    found
}

fn array(shape: Value, chunk: Value, codecs: Value) -> MemoryStore {
    let store = raw();
    put(&store, "zarr.json", plain_array(shape, chunk, codecs));
    store
}

/// Each store has two chunks, `c/0` and `c/1`, of 4 bytes. A check that visited every chunk of the grid would exceed
/// the time limit.
#[test]
fn grids_of_any_size_are_checked_in_the_time_of_the_stored_chunks() {
    let bytes = || json!([{"name": "bytes"}]);
    let huge = u64::MAX;
    let is_too_large = "the array is too large";
    let is_stray = "belongs to no array";
    let is_outside = "is outside the grid of [1] chunks";
    let cases = [
        (
            array(json!([1_000_000_000_000_000_u64]), json!([1]), bytes()),
            vec![
                "1000000000000000 chunks of only 1 bytes",
                "c/0: the chunk has 4 bytes, but must have 1",
                "c/1: the chunk has 4 bytes, but must have 1",
            ],
        ),
        (
            array(json!([huge, huge, huge]), json!([1, 1, 1]), bytes()),
            vec![is_too_large, is_stray, is_stray],
        ),
        (
            array(json!([huge]), json!([huge]), bytes()),
            vec![is_too_large, "more than 2^63 bytes", is_outside],
        ),
        (
            array(json!(vec![1; 64]), json!(vec![1; 64]), bytes()),
            vec!["the only chunk is not stored", is_stray, is_stray],
        ),
        (
            array(json!(vec![1; 65]), json!(vec![1; 65]), bytes()),
            vec!["65 dimensions exceed the limit of 64"],
        ),
        (
            array(json!([huge]), json!([1_u64 << 50]), sharding(1)),
            vec!["the chunks are too large", "1125899906842624 bytes"],
        ),
        (
            array(json!([1 << 20]), json!([1 << 20]), sharding(1)),
            vec!["4 bytes are too short for an index", is_outside],
        ),
    ];
    for (store, expected) in cases {
        let found: Vec<String> = findings(store).iter().map(Finding::to_text).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (text, part) in found.iter().zip(expected) {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn an_index_larger_than_memory_is_reported_and_not_read() {
    let count = 1_u64 << 19;
    let store = array(json!([count]), json!([count]), sharding(1));
    let entries = vec![0xff; 16 << 19];
    let index = [&entries[..], &crc32c::crc32c(&entries).to_le_bytes()].concat();
    store.set(key("c/0"), index);
    store.erase(&key("c/1"));
    let found = run(Arc::new(store), How::default()).0;
    let [finding] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(
        (finding.code, finding.severity),
        ("chunk-unreadable", Severity::Warning)
    );
    assert!(finding.to_text().contains("bytes at once, but --memory"));
}

#[test]
fn deeply_nested_groups_are_reported() {
    let store = v3();
    let mut path = String::new();
    for _ in 0..1050 {
        path.push_str("g/");
        put(
            &store,
            &format!("{path}zarr.json"),
            json!({"zarr_format": 3, "node_type": "group"}),
        );
    }
    let found = codes(store);
    assert!(found.contains(&"too-deep"), "{found:?}");
}

#[test]
fn many_faults_of_one_kind_are_bounded() {
    let store = v2();
    for number in 0..5000 {
        store.set(key(&format!("a/b/{number}.{number}.{number}")), vec![1]);
    }
    let (found, summary) = run(Arc::new(store), DATA);
    assert!(found.len() < 200, "{}", found.len());
    assert_eq!(summary.count(Severity::Warning), 5000);
}

#[test]
fn documents_of_any_content_are_reported() {
    let deep = "[".repeat(100_000);
    let texts = [
        deep.as_str(),
        "",
        "null",
        "[]",
        "3",
        "\"\u{0}\"",
        "{\"attributes\": {\"a\": {}}}",
    ];
    for text in texts {
        for path in ["a/zarr.json", "a/b/zarr.json", "zarr.json"] {
            check_is_reported(path, text);
        }
    }
    let many = "1,".repeat(3 << 20);
    let long = format!("{{\"zarr_format\": 3, \"node_type\": \"array\", \"shape\": [{many}1]}}");
    check_is_reported("a/b/zarr.json", &long);
}

/// Fails unless a check reports an error or a warning about a document with the given text.
fn check_is_reported(path: &str, text: &str) {
    let store = v3();
    store.set(key(path), text.as_bytes().to_vec());
    let (found, _) = run(Arc::new(store), DATA);
    let is_told = found
        .iter()
        .any(|finding| finding.severity <= Severity::Warning);
    assert!(is_told, "{path}: {text:.40}");
}

#[test]
fn a_document_with_any_changed_byte_is_checked() {
    let text = run_text();
    for place in (0..text.len()).step_by(3) {
        let store = v3();
        let mut changed = text.clone();
        changed[place] ^= 0x15;
        store.set(key("a/b/zarr.json"), changed);
        run(Arc::new(store), DATA);
    }
}

fn run_text() -> Vec<u8> {
    crate::checks::stores::bytes(&v3(), "a/b/zarr.json")
}

#[test]
fn names_of_any_bytes_are_shown_escaped() {
    let store = v3();
    store.set(key("a/\u{1b}[2Jx"), vec![1]);
    let found = run(Arc::new(store), DATA).0;
    assert_eq!(found.len(), 1);
    assert!(!found[0].to_text().contains('\u{1b}'));
}
