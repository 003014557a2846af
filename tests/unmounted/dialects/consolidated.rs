//! Tests consolidated metadata if listing is impossible or the user requests them.
//!
//! A metadata document that was read separately takes precedence.

use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig};
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;

use crate::dialects::hierarchies::{
    CORE_2020, Mute, array, children, configured, documents, found, group, hierarchy, key,
};
use zarrfs_store::request_context::UNLIMITED;

fn zarray(length: u64) -> Value {
    json!({
        "zarr_format": 2, "shape": [length], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    })
}

fn v3_array(length: u64) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [length], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"],
    })
}

fn draft_array(length: u64) -> Value {
    json!({
        "shape": [length], "data_type": "u1", "chunk_grid": {"type": "regular", "chunk_shape": [1]},
        "chunk_memory_layout": "C", "fill_value": 0, "attributes": {},
    })
}

/// Returns a store whose consolidated metadata differ from its documents: length 7 instead of 5, an additional node
/// `gone`, no node `new`.
fn v2() -> MemoryStore {
    documents(&[
        (".zgroup", json!({"zarr_format": 2})),
        (".zattrs", json!({"is": "stored"})),
        (
            ".zmetadata",
            json!({"zarr_consolidated_format": 1, "metadata": {
                ".zgroup": {"zarr_format": 2}, ".zattrs": {"is": "consolidated"},
                "g/a/.zarray": zarray(7), "g/a/.zattrs": {"n": 1}, "gone/.zarray": zarray(7),
            }}),
        ),
        ("g/a/.zarray", zarray(5)),
        ("new/.zarray", zarray(5)),
    ])
}

fn v3() -> MemoryStore {
    documents(&[
        (
            "zarr.json",
            json!({
                "zarr_format": 3, "node_type": "group", "attributes": {"is": "stored"},
                "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {
                    "g/a": v3_array(7), "gone": v3_array(7),
                }},
            }),
        ),
        ("g/a/zarr.json", v3_array(5)),
        ("new/zarr.json", v3_array(5)),
    ])
}

fn draft2020() -> MemoryStore {
    documents(&[
        (
            "zarr.json",
            json!({
                "zarr_format": CORE_2020, "metadata_encoding": CORE_2020, "metadata_key_suffix": ".json",
            }),
        ),
        (
            "meta/root.group.json",
            json!({"attributes": {"is": "stored"}}),
        ),
        (
            "meta/root/consolidated.group.json",
            json!({"attributes": {}}),
        ),
        (
            "meta/root/consolidated/.zmetadata",
            json!({"zarr_consolidated_format": 1, "metadata": {
                "zarr.json": {}, "meta/root.group.json": {"attributes": {"is": "consolidated"}},
                "meta/root/g/a.array.json": draft_array(7), "meta/root/gone.array.json": draft_array(7),
            }}),
        ),
        ("meta/root/g/a.array.json", draft_array(5)),
        ("meta/root/new.array.json", draft_array(5)),
    ])
}

fn wanted(store: &MemoryStore) -> Arc<Hierarchy> {
    let config = HierarchyConfig {
        consolidated: true,
        ..HierarchyConfig::default()
    };
    configured(Arc::new(store.clone()), config)
}

fn mute(store: &MemoryStore) -> Arc<Hierarchy> {
    configured(
        Arc::new(Mute::new(store.clone())),
        HierarchyConfig::default(),
    )
}

/// Checks which nodes of a store with wrong consolidated metadata are found. `root` is the expected attribute of the
/// root group.
fn shown(store: &MemoryStore, root: &str) {
    for hierarchy in [wanted(store), mute(store)] {
        assert_eq!(children(&hierarchy, ""), ["g", "gone"]);
        assert_eq!(children(&hierarchy, "g"), ["a"]);
        assert_eq!(array(&hierarchy, "g/a").shape, [7]);
        assert_eq!(group(&hierarchy, "g"), json!({}));
        assert_eq!(group(&hierarchy, ""), json!({"is": root}));
        // Nodes that are missing from the consolidated metadata are looked up in the store.
        assert_eq!(array(&hierarchy, "new").shape, [5]);
        assert!(hierarchy.node(&UNLIMITED, &key("none")).unwrap().is_none());
    }
}

/// Invariant (metadata): A document that was read takes precedence over its copy in consolidated metadata.
#[test]
fn all_three_forms_are_used_without_listing_or_on_request() {
    // If the consolidated metadata include the group's own documents, the stored ones are not read. If the group's own
    // document was read, it takes precedence.
    shown(&v2(), "consolidated");
    for store in [v3(), draft2020()] {
        shown(&store, "stored");
    }
    let store = v2();
    let metadata = json!({"zarr_consolidated_format": 1, "metadata": {
        "g/a/.zarray": zarray(7), "gone/.zarray": zarray(7),
    }});
    store.set(key(".zmetadata"), metadata.to_string().into_bytes());
    shown(&store, "stored");
}

#[test]
fn stores_that_list_need_no_consolidated_metadata() {
    for (store, names) in [
        (v2(), vec!["g", "new"]),
        (v3(), vec!["g", "new"]),
        (draft2020(), vec!["consolidated", "g", "new"]),
    ] {
        let hierarchy = hierarchy(&store);
        assert_eq!(children(&hierarchy, ""), names);
        assert_eq!(array(&hierarchy, "g/a").shape, [5]);
    }
}

#[test]
fn a_store_that_neither_lists_nor_consolidates_is_an_error() {
    let store = v2();
    store.erase(&key(".zmetadata"));
    let hierarchy = mute(&store);
    let error = hierarchy
        .children(&UNLIMITED, &found(&hierarchy, ""))
        .err()
        .unwrap();
    assert!(error.to_string().contains("does not list names"), "{error}");
    // Without listings, the implicit group `g` cannot be found, but a node with a metadata document can.
    assert_eq!(array(&hierarchy, "new").shape, [5]);
}

#[test]
fn broken_consolidated_metadata_are_ignored() {
    for text in [
        "{",
        "[]",
        r#"{"zarr_consolidated_format": 2, "metadata": {}}"#,
    ] {
        let store = v2();
        store.set(key(".zmetadata"), text.as_bytes().to_vec());
        assert_eq!(array(&wanted(&store), "g/a").shape, [5], "{text}");
    }
}

#[test]
fn changed_consolidated_metadata_are_read_again() {
    let store = v2();
    let hierarchy = wanted(&store);
    assert_eq!(array(&hierarchy, "g/a").shape, [7]);
    let first = found(&hierarchy, "");
    assert!(Arc::ptr_eq(&first, &found(&hierarchy, "")));
    let metadata = json!({"zarr_consolidated_format": 1, "metadata": {"g/a/.zarray": zarray(9)}});
    store.set(key(".zmetadata"), metadata.to_string().into_bytes());
    assert_eq!(array(&hierarchy, "g/a").shape, [9]);
    assert_eq!(children(&hierarchy, ""), ["g"]);
}

#[test]
fn a_store_in_a_folder_has_its_own_consolidated_metadata() {
    let store = MemoryStore::default();
    for name in [".zgroup", ".zmetadata", "g/a/.zarray", "new/.zarray"] {
        let bytes = v2()
            .get(&UNLIMITED, &key(name), 1 << 20)
            .unwrap()
            .unwrap()
            .bytes;
        store.set(key(&format!("x/y/{name}")), bytes);
    }
    let hierarchy = wanted(&store);
    assert_eq!(children(&hierarchy, "x"), ["y"]);
    assert_eq!(children(&hierarchy, "x/y"), ["g", "gone"]);
    assert_eq!(
        array(&hierarchy, "x/y/g/a").keys.candidates(&[3])[0],
        b"x/y/g/a/3"
    );
}
