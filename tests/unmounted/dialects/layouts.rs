//! Tests how nodes are found in every layout: entry points, suffixes, implicit groups, lookalikes.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::model::DataType;
use zarrfs_array::hierarchy::HierarchyConfig;

use crate::dialects::hierarchies::{
    CORE_2019, CORE_2020, CORE_2022, array, children, configured, documents, fault, found, group,
    hierarchy, key,
};
use zarrfs_store::request_context::UNLIMITED;

fn entry2020() -> Value {
    json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020, "metadata_key_suffix": ".json"})
}

fn entry2022() -> Value {
    let encoding = json!({"type": "json", "metadata_key_suffix": ".json"});
    json!({"zarr_format": CORE_2022, "metadata_encoding": encoding, "extensions": []})
}

fn array2020() -> Value {
    let grid = json!({"type": "regular", "chunk_shape": [2], "separator": "/"});
    json!({
        "shape": [5], "data_type": "<i2", "chunk_grid": grid, "chunk_memory_layout": "C",
        "fill_value": 0, "extensions": [], "attributes": {},
    })
}

#[test]
fn numbers_written_as_text_are_fill_values_of_drafts_too() {
    for (entry, key) in [
        (entry2020(), "meta/root/a.array.json"),
        (entry2022(), "meta/a.array.json"),
    ] {
        let mut document = array2020();
        document["fill_value"] = json!("-7");
        let store = documents(&[("zarr.json", entry), (key, document)]);
        let read = array(&hierarchy(&store), "a");
        assert_eq!(read.fill_value.json, json!(-7));
    }
}

fn scalar(grid_separator: &str) -> Value {
    let mut array = array2020();
    array["shape"] = json!([]);
    array["chunk_grid"] =
        json!({"type": "regular", "chunk_shape": [], "separator": grid_separator});
    array
}

fn attributes(name: &str) -> Value {
    json!({"attributes": {"name": name}})
}

#[test]
fn names_of_documents_and_folders_are_merged() {
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/both.group.json", attributes("both")),
        ("meta/root/both/inner.array.json", array2020()),
        ("meta/root/only/deep/er.array.json", array2020()),
        ("meta/root/leaf.group.json", attributes("leaf")),
        ("meta/root/a.array.json", array2020()),
        ("meta/root/a.group.json", attributes("hidden")),
        ("meta/root/a/below.array.json", array2020()),
        ("meta/root/a.array.json.array.json", array2020()),
        ("meta/root/g.group.array.json", array2020()),
        ("meta/root/strange.txt", json!(1)),
        ("meta/root/...array.json", array2020()),
        ("meta/acquire.json", json!({})),
        ("data/root/a/c0", json!(1)),
    ]);
    let hierarchy = hierarchy(&store);
    assert_eq!(
        children(&hierarchy, ""),
        ["a", "a.array.json", "both", "g.group", "leaf", "only"]
    );
    assert_eq!(children(&hierarchy, "both"), ["inner"]);
    assert_eq!(children(&hierarchy, "only"), ["deep"]);
    assert_eq!(children(&hierarchy, "leaf"), [] as [&str; 0]);
    assert_eq!(group(&hierarchy, "both"), json!({"name": "both"}));
    assert_eq!(group(&hierarchy, "only/deep"), json!({}));
    assert_eq!(group(&hierarchy, ""), json!({}));
    assert_eq!(
        array(&hierarchy, "a").keys.candidates(&[2]),
        [b"data/root/a/c2"]
    );
    assert!(
        hierarchy
            .node(&UNLIMITED, &key("a/below"))
            .unwrap()
            .is_none()
    );
    assert!(hierarchy.node(&UNLIMITED, &key("meta")).unwrap().is_none());
    assert!(hierarchy.node(&UNLIMITED, &key("none")).unwrap().is_none());
}

#[test]
fn documents_with_and_without_a_suffix_are_merged() {
    let store = documents(&[
        (
            "zarr.json",
            json!({"zarr_format": CORE_2020, "metadata_encoding": CORE_2020}),
        ),
        ("meta/root/a.array", array2020()),
        ("meta/root/b.array.json", array2020()),
        ("meta/root/b.array", array2020()),
        ("meta/root/c.group", attributes("c")),
        ("meta/root/c.group.json", attributes("c")),
        ("meta/root/c/d.array", array2020()),
    ]);
    assert_eq!(children(&hierarchy(&store), ""), ["a", "b", "c"]);
}

#[test]
fn root_nodes_have_keys_of_their_own() {
    for (path, entry) in [
        ("meta/root.array.json", entry2020()),
        ("meta/root/.array.json", entry2020()),
        ("meta/array.json", entry2022()),
    ] {
        let store = documents(&[("zarr.json", entry), (path, array2020())]);
        assert_eq!(array(&hierarchy(&store), "").shape, [5], "{path}");
    }
    for (path, entry) in [
        ("meta/root.group.json", entry2020()),
        ("meta/root/.group.json", entry2020()),
        ("meta/group.json", entry2022()),
    ] {
        let store = documents(&[("zarr.json", entry), (path, attributes("root"))]);
        let hierarchy = hierarchy(&store);
        assert_eq!(group(&hierarchy, ""), json!({"name": "root"}), "{path}");
        assert_eq!(children(&hierarchy, ""), [] as [&str; 0], "{path}");
    }
    let mut old = array2020();
    old["zarr_format"] = json!(CORE_2019);
    let store = documents(&[("root.array.json", old)]);
    assert_eq!(
        array(&hierarchy(&store), "").keys.candidates(&[1]),
        [b"data/1"]
    );
}

#[test]
fn an_empty_hierarchy_is_an_empty_group() {
    for entry in [entry2020(), entry2022()] {
        let hierarchy = hierarchy(&documents(&[("zarr.json", entry)]));
        assert_eq!(children(&hierarchy, ""), [] as [&str; 0]);
        assert_ne!(found(&hierarchy, "").version, 0);
    }
}

/// Invariant (metadata): An entry point applies to all nodes below it, and key names alone do not make a draft.
#[test]
fn several_stores_lie_in_one_folder() {
    let mut old = array2020();
    old["zarr_format"] = json!(CORE_2019);
    let zarray = json!({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    let store = documents(&[
        ("x/y2020/zarr.json", entry2020()),
        ("x/y2020/meta/root/a.array.json", array2020()),
        ("x/y2022/zarr.json", entry2022()),
        ("x/y2022/meta/a.array.json", array2020()),
        ("x/y2019/meta/a.array.json", old),
        ("x/v2/a/.zarray", zarray),
    ]);
    let hierarchy = hierarchy(&store);
    assert_eq!(children(&hierarchy, "x"), ["v2", "y2019", "y2020", "y2022"]);
    for (path, dialect, chunk) in [
        ("x/y2020/a", "draft2020", "x/y2020/data/root/a/c1"),
        ("x/y2022/a", "draft2022", "x/y2022/data/a/c1"),
        ("x/y2019/a", "draft2019", "x/y2019/data/a/1"),
        ("x/v2/a", "v2", "x/v2/a/1"),
    ] {
        let array = array(&hierarchy, path);
        assert_eq!(array.dialect, dialect);
        assert_eq!(array.keys.candidates(&[1]), [chunk.as_bytes()]);
    }
}

/// Invariant of `several_stores_lie_in_one_folder`.
#[test]
fn folder_names_alone_do_not_make_a_draft_store() {
    let zarray = json!({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    let v3 = json!({"zarr_format": 3, "node_type": "group"});
    for root in [
        Some((".zgroup", json!({"zarr_format": 2}))),
        Some(("zarr.json", v3)),
        None,
    ] {
        let mut keys = vec![
            ("meta/root/.zarray", zarray.clone()),
            ("data/.zarray", zarray.clone()),
            ("root/x/.zarray", zarray.clone()),
            ("meta/a.array.json", json!({"title": "no Zarr document"})),
        ];
        keys.extend(root);
        let hierarchy = hierarchy(&documents(&keys));
        assert_eq!(children(&hierarchy, ""), ["data", "meta", "root"]);
        assert_eq!(children(&hierarchy, "meta"), ["root"]);
        assert_eq!(array(&hierarchy, "meta/root").dialect, "v2");
    }
}

#[test]
fn scalars_have_two_keys() {
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/s.array.json", scalar("/")),
    ]);
    assert_eq!(
        array(&hierarchy(&store), "s").keys.candidates(&[]),
        [b"data/root/s/c".to_vec(), b"data/root/s/c0".to_vec()]
    );
}

#[test]
fn a_separator_may_be_stated_in_either_of_two_places() {
    let mut dotted = array2020();
    dotted["shape"] = json!([5, 5]);
    dotted["chunk_grid"] = json!({"type": "regular", "chunk_shape": [2, 2]});
    dotted["dimension_separator"] = json!(".");
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/d.array.json", dotted.clone()),
    ]);
    let keys = array(&hierarchy(&store), "d").keys;
    assert_eq!(keys.candidates(&[1, 2]), [b"data/root/d/c1.2"]);
    dotted["chunk_grid"]["separator"] = json!("-");
    store.set(
        key("meta/root/d.array.json"),
        dotted.to_string().into_bytes(),
    );
    assert!(fault(&hierarchy(&store), "d").contains("separator"));
}

#[test]
fn a_required_extension_is_an_error_with_its_uri() {
    let uri = "http://example.org/extension/foo";
    let must = json!([{"extension": uri, "must_understand": true}]);
    let may =
        json!([{"extension": uri, "must_understand": false, "configuration": {"foo": "bar"}}]);
    let (mut strict, mut free) = (array2020(), array2020());
    strict["extensions"] = must.clone();
    free["extensions"] = may.clone();
    for (root, meta) in [(entry2020(), "meta/root"), (entry2022(), "meta")] {
        let mut entry = root.clone();
        entry["extensions"] = may.clone();
        let store = documents(&[
            ("zarr.json", entry),
            (&format!("{meta}/strict.array.json"), strict.clone()),
            (&format!("{meta}/free.array.json"), free.clone()),
        ]);
        assert!(fault(&hierarchy(&store), "strict").contains(uri));
        assert_eq!(array(&hierarchy(&store), "free").undecodable, None);
        let mut entry = root;
        entry["extensions"] = must.clone();
        store.set(key("zarr.json"), entry.to_string().into_bytes());
        let hierarchy = hierarchy(&store);
        assert!(fault(&hierarchy, "").contains(uri));
        assert!(hierarchy.node(&UNLIMITED, &key("free")).unwrap().is_none());
    }
}

#[test]
fn errors_of_other_extension_points_name_their_uri() {
    let uri = "http://example.org/extension/foo";
    let extension = json!({"extension": uri, "type": "x"});
    for (member, value) in [
        ("chunk_grid", extension.clone()),
        ("chunk_memory_layout", extension.clone()),
        ("storage_transformers", json!([extension])),
        ("data_type", extension.clone()),
    ] {
        let mut document = array2020();
        document[member] = value;
        let store = documents(&[("zarr.json", entry2022()), ("meta/a.array.json", document)]);
        let hierarchy = hierarchy(&store);
        let why = match found(&hierarchy, "a").node() {
            Err(error) => error.to_string(),
            Ok(_) => array(&hierarchy, "a").undecodable.unwrap(),
        };
        assert!(why.contains(uri) && why.contains(member), "{why}");
    }
}

#[test]
fn unknown_members_are_refused_in_2022_and_ignored_in_2020() {
    let mut document = array2020();
    document["novel"] = json!(1);
    let store = documents(&[
        ("zarr.json", entry2022()),
        ("meta/a.array.json", document.clone()),
        ("meta/g.group.json", json!({"attributes": {}, "novel": 1})),
        ("old/zarr.json", entry2020()),
        ("old/meta/root/a.array.json", document.clone()),
    ]);
    assert!(fault(&hierarchy(&store), "a").contains("novel"));
    assert!(fault(&hierarchy(&store), "g").contains("novel"));
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/a.array.json", document),
        (
            "meta/root/g.group.json",
            json!({"attributes": {}, "novel": 1}),
        ),
    ]);
    assert_eq!(array(&hierarchy(&store), "a").shape, [5]);
    assert_eq!(group(&hierarchy(&store), "g"), json!({}));
}

#[test]
fn the_fallback_of_an_extension_data_type_is_used() {
    let mut document = array2020();
    document["data_type"] =
        json!({"extension": "http://example.org/t", "type": "ipv4", "fallback": ["ip", "r32"]});
    let store = documents(&[("zarr.json", entry2022()), ("meta/a.array.json", document)]);
    assert_eq!(array(&hierarchy(&store), "a").data_type, DataType::Raw(4));
}

#[test]
fn a_dialect_can_be_chosen() {
    let zarray = json!({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/a.array.json", array2020()),
        ("b/.zarray", zarray),
    ]);
    let chosen = |name: &str| {
        let config = HierarchyConfig {
            dialect: Some(name.parse().unwrap()),
            ..HierarchyConfig::default()
        };
        configured(Arc::new(store.clone()), config)
    };
    assert_eq!(children(&chosen("v2"), ""), ["b", "meta"]);
    assert_eq!(array(&chosen("v2"), "b").dialect, "v2");
    assert!(fault(&chosen("v3"), "").contains("expected 3"));
    assert_eq!(children(&chosen("draft2020"), ""), ["a"]);
    store.erase(&key("zarr.json"));
    assert_eq!(array(&chosen("draft2020"), "a").dialect, "draft2020");
    assert_eq!(children(&hierarchy(&store), ""), ["b", "meta"]);
    store.set(
        key("meta/c.array.json"),
        array2020().to_string().into_bytes(),
    );
    assert_eq!(array(&chosen("draft2022"), "c").dialect, "draft2022");
    assert!(fault(&chosen("draft2019"), "c").contains("zarr_format"));
}

#[test]
fn folders_of_an_n5_container_are_groups_with_attributes() {
    let store = documents(&[
        ("attributes.json", json!({"n5": "2.0.0", "by": "me"})),
        ("g/attributes.json", json!({"colour": 1})),
        (
            "g/plain/d/attributes.json",
            json!({
                "dimensions": [4], "blockSize": [2], "dataType": "uint8", "compression": {"type": "raw"},
            }),
        ),
    ]);
    let hierarchy = hierarchy(&store);
    assert_eq!(group(&hierarchy, ""), json!({"by": "me"}));
    assert_eq!(group(&hierarchy, "g"), json!({"colour": 1}));
    assert_eq!(children(&hierarchy, "g/plain"), ["d"]);
    assert_eq!(array(&hierarchy, "g/plain/d").dialect, "n5");
    store.erase(&key("attributes.json"));
    assert_eq!(
        group(&crate::dialects::hierarchies::hierarchy(&store), "g"),
        json!({})
    );
}

#[test]
fn a_change_of_the_entry_point_changes_the_nodes_below() {
    let store = documents(&[
        ("zarr.json", entry2020()),
        ("meta/root/a.array.json", array2020()),
    ]);
    let hierarchy = hierarchy(&store);
    let first = found(&hierarchy, "a");
    assert!(Arc::ptr_eq(&first, &found(&hierarchy, "a")));
    let mut entry = entry2020();
    entry["extensions"] = json!([]);
    store.set(key("zarr.json"), entry.to_string().into_bytes());
    assert_ne!(found(&hierarchy, "a").version, first.version);
    store.erase(&key("zarr.json"));
    assert!(hierarchy.node(&UNLIMITED, &key("a")).unwrap().is_none());
}
