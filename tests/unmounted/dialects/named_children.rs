//! Tests that OME-Zarr attributes give the children of groups in stores that cannot list.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs_array::hierarchy::{Hierarchy, HierarchyConfig};
use zarrfs_store::LeftOut;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::request_context::UNLIMITED;

use crate::dialects::hierarchies::{Mute, children, configured, found, key};

fn put(store: &MemoryStore, path: &str, document: &Value) {
    store.set(key(path), document.to_string().into_bytes());
}

fn group(store: &MemoryStore, is_v3: bool, path: &str, ome: &Value) {
    if is_v3 {
        let group = json!({"zarr_format": 3, "node_type": "group", "attributes": {"ome": ome}});
        put(store, &format!("{path}zarr.json"), &group);
    } else {
        put(store, &format!("{path}.zgroup"), &json!({"zarr_format": 2}));
        put(store, &format!("{path}.zattrs"), ome);
    }
}

fn array(store: &MemoryStore, is_v3: bool, path: &str) {
    let v2 = json!({
        "zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "compressor": null,
        "fill_value": 0, "order": "C", "filters": null,
    });
    let v3 = json!({
        "zarr_format": 3, "node_type": "array", "shape": [1], "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"],
    });
    if is_v3 {
        put(store, &format!("{path}/zarr.json"), &v3);
    } else {
        put(store, &format!("{path}/.zarray"), &v2);
    }
}

/// Writes an image with labels and two resolution levels, of which the second one is in a group.
fn image(store: &MemoryStore, is_v3: bool, path: &str) {
    let levels = json!({"multiscales": [{"datasets": [{"path": "0"}, {"path": "down/1"}, {"path": "gone"}]}]});
    group(store, is_v3, path, &levels);
    array(store, is_v3, &format!("{path}0"));
    group(store, is_v3, &format!("{path}down/"), &json!({}));
    array(store, is_v3, &format!("{path}down/1"));
    group(
        store,
        is_v3,
        &format!("{path}labels/"),
        &json!({"labels": ["cells"]}),
    );
    let label = json!({"multiscales": [{"datasets": [{"path": "0"}]}], "image-label": {}});
    group(store, is_v3, &format!("{path}labels/cells/"), &label);
    array(store, is_v3, &format!("{path}labels/cells/0"));
}

fn mute(store: &MemoryStore) -> Arc<Hierarchy> {
    configured(
        Arc::new(Mute::new(store.clone())),
        HierarchyConfig::default(),
    )
}

#[test]
fn an_image_names_its_levels_and_its_labels() {
    for is_v3 in [false, true] {
        let store = MemoryStore::default();
        image(&store, is_v3, "");
        let hierarchy = mute(&store);
        assert_eq!(children(&hierarchy, ""), ["0", "down", "labels"]);
        assert_eq!(children(&hierarchy, "down"), ["1"]);
        assert_eq!(children(&hierarchy, "labels"), ["cells"]);
        assert_eq!(children(&hierarchy, "labels/cells"), ["0"]);
    }
}

/// An operation that needs all children of a group must fail, because the children in attributes may not be all.
#[test]
fn named_children_are_not_a_complete_listing() {
    for is_v3 in [false, true] {
        let store = MemoryStore::default();
        image(&store, is_v3, "");
        array(&store, is_v3, "unnamed");
        let hierarchy = mute(&store);
        for path in ["", "down", "labels"] {
            let group = found(&hierarchy, path);
            let error = hierarchy.children(&UNLIMITED, &group).err().unwrap();
            assert_eq!(error.kind(), Kind::Unsupported, "{path}");
            for listing in [
                hierarchy.children_or_named(&UNLIMITED, &group),
                hierarchy.known_children(&UNLIMITED, &group),
            ] {
                assert_eq!(listing.unwrap().left_out(), LeftOut::Any, "{path}");
            }
        }
        let listing = crate::dialects::hierarchies::hierarchy(&store);
        let whole = listing.children_or_named(&UNLIMITED, &found(&listing, ""));
        assert_eq!(whole.unwrap().left_out(), LeftOut::Nothing);
        assert!(children(&listing, "").contains(&"unnamed".to_string()));
    }
}

#[test]
fn a_plate_names_its_wells_and_a_well_its_images() {
    for is_v3 in [false, true] {
        let store = MemoryStore::default();
        let wells = json!([{"path": "A/1"}, {"path": "A/12"}, {"path": "B/1"}]);
        group(&store, is_v3, "", &json!({"plate": {"wells": wells}}));
        for row in ["A/", "B/"] {
            group(&store, is_v3, row, &json!({}));
        }
        for well in ["A/1/", "A/12/", "B/1/"] {
            let images = json!([{"path": "0"}, {"path": "1"}]);
            group(&store, is_v3, well, &json!({"well": {"images": images}}));
            image(&store, is_v3, &format!("{well}0/"));
            image(&store, is_v3, &format!("{well}1/"));
        }
        let hierarchy = mute(&store);
        assert_eq!(children(&hierarchy, ""), ["A", "B"]);
        assert_eq!(children(&hierarchy, "A"), ["1", "12"]);
        assert_eq!(children(&hierarchy, "A/12"), ["0", "1"]);
        assert_eq!(children(&hierarchy, "A/12/1"), ["0", "down", "labels"]);
    }
}

#[test]
fn images_of_bioformats2raw_are_listed_or_numbered() {
    for is_v3 in [false, true] {
        let store = MemoryStore::default();
        group(&store, is_v3, "", &json!({"bioformats2raw.layout": 3}));
        image(&store, is_v3, "0/");
        image(&store, is_v3, "1/");
        let page = if is_v3 { "2/zarr.json" } else { "2/.zgroup" };
        store.set(key(page), b"<html>".to_vec());
        assert_eq!(children(&mute(&store), ""), ["0", "1"]);
        group(&store, is_v3, "OME/", &json!({"series": ["1"]}));
        assert_eq!(children(&mute(&store), ""), ["1", "OME"]);
    }
}

#[test]
fn invalid_attributes_name_no_children() {
    for attributes in [
        json!({"multiscales": 1, "labels": "x", "plate": [], "well": {"images": {}}}),
        json!({"multiscales": ["x", {"datasets": [{"path": 0}, "y", {"path": "../.."}]}]}),
        json!({"labels": ["", "/", "a//b", 3, null]}),
        json!({"ome": [], "plate": {"wells": [{"path": "/A"}]}}),
    ] {
        let store = MemoryStore::default();
        group(&store, false, "", &attributes);
        let hierarchy = mute(&store);
        let listed = hierarchy.children_or_named(&UNLIMITED, &found(&hierarchy, ""));
        let error = listed.err().unwrap().to_string();
        assert!(error.contains("no consolidated metadata"), "{error}");
    }
}

#[test]
fn unreadable_consolidated_metadata_are_named() {
    for text in ["{\"metadata\": {\"a/.zarray\": {", "[]", "{}"] {
        let store = MemoryStore::default();
        group(&store, false, "", &json!({}));
        group(&store, false, "below/", &json!({}));
        store.set(key(".zmetadata"), text.as_bytes().to_vec());
        let hierarchy = mute(&store);
        for path in ["", "below"] {
            let listed = hierarchy.children_or_named(&UNLIMITED, &found(&hierarchy, path));
            let error = listed.err().unwrap().to_string();
            assert!(error.contains(".zmetadata: "), "{error}");
        }
    }
    let store = MemoryStore::default();
    let document = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": [1]});
    put(&store, "zarr.json", &document);
    let hierarchy = mute(&store);
    let listed = hierarchy.children_or_named(&UNLIMITED, &found(&hierarchy, ""));
    let error = listed.err().unwrap().to_string();
    assert!(
        error.contains("zarr.json: consolidated_metadata"),
        "{error}"
    );
    let cut = &document.to_string().into_bytes()[..40];
    store.set(key("zarr.json"), cut.to_vec());
    let hierarchy = mute(&store);
    let listed = hierarchy.children_or_named(&UNLIMITED, &found(&hierarchy, ""));
    let error = listed.err().unwrap().to_string();
    assert!(error.contains("zarr.json: not JSON"), "{error}");
}

#[test]
fn a_group_has_a_new_version_once_its_copies_are_unreadable() {
    let store = MemoryStore::default();
    group(&store, false, "", &json!({}));
    let hierarchy = mute(&store);
    let before = found(&hierarchy, "");
    store.set(key(".zmetadata"), b"{".to_vec());
    let after = found(&hierarchy, "");
    assert_ne!(before.version, after.version);
}
