//! Tests whole messages for damage whose cause differs from where it shows.

use std::sync::Arc;

use serde_json::json;
use zarrfs_store::Key;
use zarrfs_store::backend::memory::MemoryStore;

use crate::checks::fixture::{How, run};
use crate::checks::stores::{
    Damage, both, draft2020, erases, holds, moves, n5, plain, plain_array, put, set, v2, v3,
};

/// Returns the lines of all findings about a damaged store.
fn lines(store: fn() -> MemoryStore, damage: &Damage) -> Vec<String> {
    let store = store();
    damage(&store);
    let (findings, _) = run(Arc::new(store), How::default());
    findings.iter().map(zarr_check::Finding::to_line).collect()
}

#[test]
fn a_draft_without_its_entry_point_is_named() {
    let found = lines(draft2020, &erases("zarr.json"));
    let expected = "error: /: the folder has no document of Zarr or N5, and has the folders meta and data, as of a draft of v3 \
        that has lost its zarr.json";
    assert!(found.iter().any(|line| line == expected), "{found:#?}");
}

#[test]
fn keys_with_another_separator_are_those_of_chunks() {
    let moved = both(
        moves("a/b/c/0/0", "a/b/c.0.0"),
        moves("a/b/c/1/1", "a/b/c.1.1"),
    );
    let expected = "error: a/b: 2 keys, such as a/b/c.0.0, are those of chunks with \".\" between the indices, and the metadata \
        state \"/\", so that no reader finds them; correct the metadata, or rename the chunks \
        [Zarr v3 core 3.1, \"Chunk encoding\"]";
    assert_eq!(lines(v3, &moved), [expected]);
    let stated = set("a/b/.zarray", "dimension_separator", json!("."));
    let expected = "error: a/b: the key a/b/1/1 is that of a chunk with \"/\" between the indices, and the metadata state \".\", \
        so that no reader finds them; correct the metadata, or rename the chunks [Zarr v2, \"Chunks\"]";
    assert_eq!(
        lines(v2, &both(stated, moves("a/b/1.1", "a/b/1/1"))),
        [expected]
    );
}

#[test]
fn keys_in_another_encoding_are_those_of_chunks() {
    let moved = both(moves("a/b/c/0/0", "a/b/0/0"), moves("a/b/c/1/1", "a/b/1/1"));
    let expected = "error: a/b: 2 keys, such as a/b/0/0, are those of chunks with the encoding v2 with \"/\", and the metadata \
        state the encoding default with \"/\", so that no reader finds them; correct the metadata, or rename the chunks \
        [Zarr v3 core 3.1, \"Chunk encoding\"]";
    assert_eq!(lines(v3, &moved), [expected]);
    let stated = set("a/b/.zarray", "dimension_separator", json!("."));
    let expected = "error: a/b: the key a/b/c.1.1 is that of a chunk with the encoding default with \".\", and the metadata state \
        the encoding v2 with \".\", so that no reader finds them; correct the metadata, or rename the chunks \
        [Zarr v2, \"Chunks\"]";
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
fn chunks_of_an_array_that_no_document_describes_are_one_finding() {
    let null = "error: a/b/zarr.json: the document must be a JSON object and is JSON, but not an object: null \
        [Zarr v3 core 3.1, \"Metadata\"]";
    // The consequences of an unreadable document are not reported as well.
    assert_eq!(lines(v3, &holds("a/b/zarr.json", b"null")), [null]);
    let folder = both(erases("a/b/zarr.json"), holds("a/b/zarr.json/x", b"x"));
    let told = "error: a/b/zarr.json: a folder has the name of a document, so that readers find no document \
        [Zarr v3 core 3.1, \"Metadata\"]";
    assert_eq!(lines(v3, &folder), [told]);
    let chunks = "error: a/b: the name a/b/c looks like a chunk, and no document describes an array here, so that no \
        reader finds it; put the zarr.json of the array back, from another copy of the store";
    assert_eq!(lines(v3, &erases("a/b/zarr.json")), [chunks]);
    let names = "look like chunks, and no document describes an array here, so that no reader finds it; put the \
        .zarray of the array back, from another copy of the store";
    let found = lines(v2, &erases("a/b/.zarray"));
    assert!(found.len() == 1 && found[0].ends_with(names), "{found:#?}");
    let case = "error: a/b/ZARR.json: the name differs from zarr.json in case alone, so that readers find no document; \
        rename it to zarr.json";
    assert_eq!(lines(v3, &moves("a/b/zarr.json", "a/b/ZARR.json")), [case]);
    // A missing document of a group must not be reported as a missing array.
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
fn a_node_below_a_broken_one_is_looked_at_whatever_its_name() {
    let broken = both(
        holds("a/zarr.json", b"null"),
        moves("a/b/zarr.json", "a/0/zarr.json"),
    );
    let found = lines(
        v3,
        &both(broken, set("a/0/zarr.json", "zarr_format", json!(4))),
    );
    let told = "error: a/0/zarr.json: zarr_format is 4; it must be 3";
    assert!(
        found.iter().any(|line| line.starts_with(told)),
        "{found:#?}"
    );
}

#[test]
fn attributes_that_are_no_object_are_shown() {
    let found = lines(v3, &set("a/zarr.json", "attributes", json!([1])));
    let expected = "error: a/zarr.json: attributes is [1]; it must be an object [Zarr v3 core 3.1, \"Group metadata\"]";
    assert_eq!(found, [expected]);
    let many = vec![1; 4096];
    let found = lines(v3, &set("a/zarr.json", "attributes", json!(many)));
    assert!(
        found[0].contains("attributes is [\"...\"]; it must be an object"),
        "{found:#?}"
    );
}

#[test]
fn what_is_not_numbered_or_not_known_is_said() {
    let shape = json!([1_u64 << 63, 1_u64 << 63]);
    let found = lines(v3, &set("a/b/zarr.json", "shape", shape));
    let expected = "warning: a/b: the array is too large, with 2^64 chunks or more, or 2^63 bytes of elements: chunk_grid: a grid of [4611686018427387904, 4611686018427387904] has more than 2^64 chunks [Zarr v3 core 3.1, \"Codecs\"]";
    assert!(found.iter().any(|line| line == expected), "{found:#?}");
    let found = lines(
        v3,
        &holds(
            "a/b/zarr.json",
            br#"{"zarr_format": 3, "node_type": "array", "shape": [18446744073709551616]}"#,
        ),
    );
    let expected = "it must be a list of whole numbers, none negative and each below 2^64";
    assert!(
        found.iter().any(|line| line.contains(expected)),
        "{found:#?}"
    );
    let found = lines(n5, &holds("attributes.json", br#"{"n5": "99.0.0"}"#));
    let expected = "error: attributes.json: n5 is \"99.0.0\"; it must be a version from 1 to 4, which are known, such as \"2.0.0\" \
        [N5 file system format, \"Containers\"]";
    assert_eq!(found, [expected]);
}
