//! Tests that hostile hierarchies are refused or bounded and cannot read outside of the store.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;

use crate::common;
use crate::dialects::hierarchies::{
    CORE_2020, CORE_2022, children, documents, fault, hierarchy, key,
};
use zarrfs_store::request_context::UNLIMITED;

fn entry(suffix: &str) -> Value {
    json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020, "metadata_key_suffix": suffix})
}

fn array(changes: &[(&str, Value)]) -> Value {
    let mut array = json!({
        "shape": [5], "data_type": "u1", "chunk_grid": {"type": "regular", "chunk_shape": [2]},
        "chunk_memory_layout": "C", "fill_value": 0, "attributes": {},
    });
    for (name, value) in changes {
        array[name] = value.clone();
    }
    array
}

#[test]
fn metadata_key_suffixes_cannot_leave_the_store() {
    for suffix in ["/../../secret", "/x", "..\u{0}", "\u{1b}[2J", "a b"] {
        let store = documents(&[("zarr.json", entry(suffix))]);
        assert!(
            fault(&hierarchy(&store), "").contains("metadata_key_suffix"),
            "{suffix:?}"
        );
    }
    let store = documents(&[
        ("zarr.json", entry("..")),
        ("meta/root/a.array..", array(&[])),
    ]);
    assert_eq!(children(&hierarchy(&store), ""), ["a"]);
    let store = documents(&[("zarr.json", entry(&"x".repeat(10_000)))]);
    let hierarchy = hierarchy(&store);
    assert!(hierarchy.node(&UNLIMITED, &key("a")).unwrap().is_none());
}

/// Invariant of `several_stores_lie_in_one_folder`.
#[test]
fn entry_points_within_a_draft_store_are_ignored() {
    let encoding = json!({"type": "json", "metadata_key_suffix": ".json"});
    let other = json!({"zarr_format": CORE_2022, "metadata_encoding": encoding, "extensions": []});
    let store = documents(&[
        ("zarr.json", entry(".json")),
        ("meta/root/a/zarr.json", other.clone()),
        ("meta/root/a/meta/root/b.array.json", array(&[])),
        ("meta/root/zarr.json", other),
        ("meta/root/zarr.json.array.json", array(&[])),
    ]);
    let hierarchy = hierarchy(&store);
    assert_eq!(children(&hierarchy, ""), ["a", "zarr.json"]);
    assert_eq!(children(&hierarchy, "a"), ["meta"]);
    assert!(hierarchy.node(&UNLIMITED, &key("a/b")).unwrap().is_none());
}

#[test]
fn circular_links_end() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("meta/root/g")).unwrap();
    fs::write(root.join("zarr.json"), entry(".json").to_string()).unwrap();
    symlink("../../..", root.join("meta/root/g/up")).unwrap();
    symlink("loop.array.json", root.join("meta/root/loop.array.json")).unwrap();
    symlink("../../zarr.json", root.join("meta/root/entry.array.json")).unwrap();
    fs::write(
        root.join("meta/root/real.array.json"),
        array(&[]).to_string(),
    )
    .unwrap();
    symlink("real.array.json", root.join("meta/root/also.array.json")).unwrap();
    let view = common::files(root);
    assert!(view.lookup(&UNLIMITED, &key("g")).unwrap().is_some());
    let names = |path: &str| {
        let mut listing = view.list(&UNLIMITED, &key(path)).unwrap();
        let mut names = Vec::new();
        while let Some(name) = listing.next(&UNLIMITED).unwrap() {
            names.push(String::from_utf8(name.name).unwrap());
        }
        names.sort();
        names
    };
    assert_eq!(names("g"), ["attributes.json", "metadata.json"]);
    assert_eq!(
        names(""),
        [
            "also",
            "attributes.json",
            "entry",
            "g",
            "loop",
            "metadata.json",
            "real"
        ]
    );
    assert_eq!(names("entry"), ["ERROR.txt", "stored.entry.array.json"]);
    assert_eq!(names("loop"), ["ERROR.txt", "stored.loop.array.json"]);
}

#[test]
fn deep_nesting_is_walked_or_refused() {
    let depth = 300;
    let path = vec!["d"; depth].join("/");
    let store = documents(&[
        ("zarr.json", entry(".json")),
        (&format!("meta/root/{path}/a.array.json"), array(&[])),
    ]);
    let hierarchy = hierarchy(&store);
    assert_eq!(children(&hierarchy, &path), ["a"]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("zarr.json"), entry(".json").to_string()).unwrap();
    let view = common::files(folder.path());
    let long = vec!["d"; 3000].join("/");
    assert!(view.lookup(&UNLIMITED, &key(&long)).unwrap().is_none());
}

#[test]
fn a_folder_named_meta_costs_few_requests() {
    let store = documents(&[]);
    for number in 0..5000 {
        store.set(key(&format!("meta/x{number}/y.array.json")), b"{}".to_vec());
    }
    let counted = Arc::new(zarrfs_store::stats::Stats::default());
    let counting =
        zarrfs_store::layer::counting::CountingStore::new(Arc::new(store), counted.clone());
    let hierarchy = Arc::new(zarrfs_array::hierarchy::Hierarchy::new(Arc::new(counting)));
    assert_eq!(children(&hierarchy, ""), ["meta"]);
    let asked: u64 = counted
        .to_json()
        .lines()
        .find(|line| line.contains("store_get_requests"))
        .and_then(|line| {
            line.split(':')
                .nth(1)?
                .trim()
                .trim_end_matches(',')
                .parse()
                .ok()
        })
        .unwrap();
    assert!(asked < 200, "{asked} documents were asked for");
}

#[test]
fn invalid_metadata_are_faults() {
    let transformer = |counts: Value| {
        json!([{
            "extension": "https://purl.org/zarr/spec/storage_transformers/sharding/1.0",
            "type": "indexed", "configuration": {"chunks_per_shard": counts},
        }])
    };
    for (member, value) in [
        ("shape", json!([-1])),
        ("shape", json!(vec![1; 100])),
        ("chunk_grid", json!({"type": "regular", "chunk_shape": [0]})),
        ("chunk_grid", json!({"type": "spiral"})),
        ("chunk_grid", json!(3)),
        ("chunk_memory_layout", json!("K")),
        ("data_type", json!(3)),
        ("data_type", json!({"type": "<i8"})),
        ("fill_value", json!("0x123")),
        ("fill_value", json!(300)),
        ("compressor", json!({"level": 1})),
        ("compressor", json!("gzip")),
        ("storage_transformers", json!({})),
        ("storage_transformers", transformer(json!([0]))),
        ("storage_transformers", transformer(json!([1, 1]))),
        ("storage_transformers", transformer(json!([u64::MAX]))),
        ("extensions", json!("none")),
    ] {
        let store = documents(&[
            ("zarr.json", entry(".json")),
            ("meta/root/a.array.json", array(&[(member, value.clone())])),
        ]);
        let found = hierarchy(&store)
            .node(&UNLIMITED, &key("a"))
            .unwrap()
            .unwrap();
        assert!(found.node().is_err(), "{member}: {value}");
    }
    for text in ["{", "[]", "null", "\u{feff}", "{\"metadata_encoding\": "] {
        let store = documents(&[("zarr.json", entry(".json"))]);
        store.set(key("meta/root/a.array.json"), text.as_bytes().to_vec());
        store.set(key("x/zarr.json"), text.as_bytes().to_vec());
        assert!(
            hierarchy(&store)
                .node(&UNLIMITED, &key("a"))
                .unwrap()
                .unwrap()
                .node()
                .is_err()
        );
    }
}

#[test]
fn huge_documents_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("meta/root")).unwrap();
    fs::write(root.join("zarr.json"), entry(".json").to_string()).unwrap();
    for name in ["meta/root/a.array.json", "meta/root/b.group.json"] {
        let file = fs::File::create(root.join(name)).unwrap();
        file.set_len(1 << 40).unwrap();
    }
    let view = common::files(root);
    for name in ["a", "b"] {
        let said = common::check_node(&view, name).unwrap_err().to_string();
        assert!(said.contains("exceed the limit of 67108864"), "{said}");
    }
    let shown = view.open(&UNLIMITED, &key("a/stored.a.array.json"));
    let shown = shown.err().unwrap();
    assert_eq!(shown.kind(), Kind::TooLarge);
    let huge = tempfile::tempdir().unwrap();
    fs::File::create(huge.path().join("zarr.json"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let said = common::check_node(&common::files(huge.path()), "").unwrap_err();
    assert!(said.to_string().contains("zarr.json: "), "{said}");
}
