//! Tests the texts of findings for damage that shows at a different place.

use std::sync::Arc;

use serde_json::json;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{
    Damage, both, draft2020, erases, holds, moves, n5, plain, plain_array, put, set, v2, v3,
};

/// Damages a store and checks it. Returns the findings as lines of text.
fn lines(store: fn() -> MemoryStore, damage: &Damage) -> Vec<String> {
    let store = store();
    damage(&store);
    let (findings, _) = run(Arc::new(store), How::default());
    findings.iter().map(zarr_check::Finding::to_text).collect()
}

#[test]
fn a_draft_without_its_entry_point_is_named() {
    let found = lines(draft2020, &erases("zarr.json"));
    let expected = "error: /: zarr.json is missing: the directories meta and data are those of a Zarr v3 draft\n    \
        copy zarr.json from another copy of the store";
    assert!(found.iter().any(|line| line == expected), "{found:#?}");
}

#[test]
fn keys_with_another_separator_are_reported_as_chunks() {
    let moved = both(
        moves("a/b/c/0/0", "a/b/c.0.0"),
        moves("a/b/c/1/1", "a/b/c.1.1"),
    );
    let expected = "error: a/b: 2 chunk keys, such as a/b/c.0.0, use \".\", but the metadata say \"/\"; no reader finds these chunks\n    \
        correct the metadata, or rename the chunks\n    see Zarr v3 core 3.1, \"Chunk encoding\"";
    assert_eq!(lines(v3, &moved), [expected]);
    let stated = set("a/b/.zarray", "dimension_separator", json!("."));
    let expected = "error: a/b: the chunk key a/b/1/1 uses \"/\", but the metadata say \".\"; no reader finds these chunks\n    \
        correct the metadata, or rename the chunks\n    see Zarr v2, \"Chunks\"";
    assert_eq!(
        lines(v2, &both(stated, moves("a/b/1.1", "a/b/1/1"))),
        [expected]
    );
}

#[test]
fn keys_in_another_encoding_are_reported_as_chunks() {
    let moved = both(moves("a/b/c/0/0", "a/b/0/0"), moves("a/b/c/1/1", "a/b/1/1"));
    let expected = "error: a/b: 2 chunk keys, such as a/b/0/0, use the encoding v2 with \"/\", but the metadata say the encoding \
        default with \"/\"; no reader finds these chunks\n    correct the metadata, or rename the chunks\n    \
        see Zarr v3 core 3.1, \"Chunk encoding\"";
    assert_eq!(lines(v3, &moved), [expected]);
    let stated = set("a/b/.zarray", "dimension_separator", json!("."));
    let expected = "error: a/b: the chunk key a/b/c.1.1 uses the encoding default with \".\", but the metadata say the encoding v2 \
        with \".\"; no reader finds these chunks\n    correct the metadata, or rename the chunks\n    see Zarr v2, \"Chunks\"";
    assert_eq!(
        lines(v2, &both(stated, moves("a/b/1.1", "a/b/c.1.1"))),
        [expected]
    );
    let no_dimensions = |keys: &'static str, chunk: &'static str| {
        let store = plain(json!([{"name": "bytes"}]), &[]);
        let mut array = plain_array(json!([]), json!([]), json!([{"name": "bytes"}]));
        array["chunk_key_encoding"] = json!({ "name": keys });
        put(&store, "zarr.json", array);
        store.set(Key::new(chunk).unwrap(), vec![1]);
        let (findings, _) = run(Arc::new(store), How::default());
        findings
            .iter()
            .map(|finding| finding.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(no_dimensions("default", "0"), ["key-encoding-differs"]);
    assert_eq!(no_dimensions("v2", "c"), ["key-encoding-differs"]);
    assert_eq!(no_dimensions("v2", "0"), [""; 0]);
}

#[test]
fn chunks_of_an_array_without_a_document_are_one_finding() {
    let null = "error: a/b/zarr.json: the file is null, but must be a JSON object\n    \
        see Zarr v3 core 3.1, \"Metadata\"";
    // An unreadable document is reported, but not the faults that follow from it.
    assert_eq!(lines(v3, &holds("a/b/zarr.json", b"null")), [null]);
    let folder = both(erases("a/b/zarr.json"), holds("a/b/zarr.json/x", b"x"));
    let told = "error: a/b/zarr.json: a directory has the name of a metadata file; readers find no metadata\n    \
        see Zarr v3 core 3.1, \"Metadata\"";
    assert_eq!(lines(v3, &folder), [told]);
    let chunks = "error: a/b: a/b/c looks like a chunk, but zarr.json is missing; no reader finds the array\n    \
        copy zarr.json from another copy of the store";
    assert_eq!(lines(v3, &erases("a/b/zarr.json")), [chunks]);
    let names = "look like chunks, but .zarray is missing; no reader finds the array\n    \
        copy .zarray from another copy of the store";
    let found = lines(v2, &erases("a/b/.zarray"));
    assert!(found.len() == 1 && found[0].ends_with(names), "{found:#?}");
    let case = "error: a/b/ZARR.json: the name differs from zarr.json only in case; readers do not find it\n    \
        rename it to zarr.json";
    assert_eq!(lines(v3, &moves("a/b/zarr.json", "a/b/ZARR.json")), [case]);
    // The missing document is that of a group, and a check must not report it as that of an array.
    let group = both(
        erases("a/zarr.json"),
        moves("a/b/zarr.json", "a/0/zarr.json"),
    );
    let found = lines(v3, &group);
    assert!(
        found
            .iter()
            .any(|line| line.contains("a: the group has no zarr.json")),
        "{found:#?}"
    );
}

#[test]
fn a_node_below_a_broken_one_is_checked_whatever_its_name() {
    let broken = both(
        holds("a/zarr.json", b"null"),
        moves("a/b/zarr.json", "a/0/zarr.json"),
    );
    let found = lines(
        v3,
        &both(broken, set("a/0/zarr.json", "zarr_format", json!(4))),
    );
    let told = "error: a/0/zarr.json: zarr_format is 4, but must be 3";
    assert!(
        found.iter().any(|line| line.starts_with(told)),
        "{found:#?}"
    );
}

#[test]
fn attributes_that_are_not_an_object_are_quoted() {
    let found = lines(v3, &set("a/zarr.json", "attributes", json!([1])));
    let expected = "error: a/zarr.json: attributes is [1], but must be an object\n    see Zarr v3 core 3.1, \"Group metadata\"";
    assert_eq!(found, [expected]);
    let many = vec![1; 4096];
    let found = lines(v3, &set("a/zarr.json", "attributes", json!(many)));
    assert!(
        found[0].contains("attributes is [\"...\"], but must be an object"),
        "{found:#?}"
    );
}

#[test]
fn sizes_and_versions_out_of_range_are_reported() {
    let shape = json!([1_u64 << 63, 1_u64 << 63]);
    let found = lines(v3, &set("a/b/zarr.json", "shape", shape));
    let expected = "warning: a/b: the array is too large: chunk_grid: a grid of [4611686018427387904, 4611686018427387904] has more than 2^64 chunks\n    see Zarr v3 core 3.1, \"Codecs\"";
    assert!(found.iter().any(|line| line == expected), "{found:#?}");
    let found = lines(
        v3,
        &holds(
            "a/b/zarr.json",
            br#"{"zarr_format": 3, "node_type": "array", "shape": [18446744073709551616]}"#,
        ),
    );
    let expected = "but must be a list of integers from 0 to 2^64 - 1";
    assert!(
        found.iter().any(|line| line.contains(expected)),
        "{found:#?}"
    );
    let found = lines(n5, &holds("attributes.json", br#"{"n5": "99.0.0"}"#));
    let expected = "error: attributes.json: n5 is \"99.0.0\", but must be a version from 1 to 4, such as \"2.0.0\"\n    \
        see N5 file system format, \"Containers\"";
    assert_eq!(found, [expected]);
}
