//! Attributes, written through the files view into the documents that the dialect has for them.

use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::error::{Error, Kind};
use zarrfs::hierarchy::HierarchyConfig;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::tree::{OpenMode, RenameMode};
use zarrfs::store::{Store, Tree};
use zarrfs::view::View;

use crate::common;
use crate::files::sized;
use crate::fixture::{Fixture, MAKER, tree};
use crate::hierarchies;
use crate::hierarchies::{documents, key};
use crate::written;

/// Returns every store that has an array at `a/b`.
pub fn stores() -> Vec<(String, MemoryStore)> {
    let named = written::STORES.iter();
    let named = named.map(|(dialect, variant, store)| (format!("{dialect} {variant}"), store()));
    named
        .chain([
            ("sharded2020".to_string(), written::sharded2020()),
            ("n5".to_string(), written::n5()),
        ])
        .collect()
}

/// Replaces a file as `open(path, "w")` does.
pub fn write(tree: &Arc<dyn Tree>, path: &str, text: &str) -> Result<(), Error> {
    let file = tree.open(&key(path), OpenMode::Truncate)?;
    // In two parts, as programs do.
    let (head, tail) = text.as_bytes().split_at(text.len() / 2);
    file.write_at(0, head)?;
    file.write_at(head.len() as u64, tail)?;
    assert_eq!(file.stat()?.meta.size, text.len() as u64);
    file.flush()
}

pub fn read_json(view: &Arc<dyn View>, path: &str) -> Value {
    serde_json::from_slice(&common::read(view, path).unwrap()).unwrap()
}

fn stored(memory: &MemoryStore, name: &str) -> Value {
    let object = memory.get(&key(name), 1 << 20).unwrap().unwrap();
    serde_json::from_slice(&object.bytes).unwrap()
}

#[test]
fn attributes_go_where_the_dialect_has_them() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let content = common::read(&view, "a/b/b.raw").unwrap();
        let attributes = json!({"z": [1, 2.5], "a": {"deep": "\u{e4}"}, "foo": null});
        write(&tree, "a/b/attributes.json", &attributes.to_string()).unwrap();
        let (fresh, _) = self::tree(Arc::new(memory));
        for view in [&view, &fresh] {
            assert_eq!(read_json(view, "a/b/attributes.json"), attributes, "{name}");
            assert_eq!(common::read(view, "a/b/b.raw").unwrap(), content, "{name}");
        }
    }
}

#[test]
fn what_is_no_object_changes_nothing() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let before = common::read(&view, "a/b/attributes.json").unwrap();
        for wrong in ["", "{", "[1]", "7", "{\"a\": }", "\u{0}"] {
            let error = write(&tree, "a/b/attributes.json", wrong).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{name}: {error}");
        }
        assert_eq!(
            common::read(&view, "a/b/attributes.json").unwrap(),
            before,
            "{name}"
        );
    }
}

/// No document describes the group `a`, and none is made here.
#[test]
fn a_group_without_a_document_is_not_edited() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory));
        let path = key("a/attributes.json");
        assert!(view.lookup(&path).unwrap().unwrap().is_read_only, "{name}");
        let error = write(&tree, "a/attributes.json", r#"{"of": "a group"}"#).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{name}: {error}");
        let attributes = view.lookup(&key("a/b/attributes.json")).unwrap().unwrap();
        assert!(!attributes.is_read_only, "{name}");
    }
}

/// Of metadata, `attributes.json` alone is edited here; nodes are made, moved and removed in the store view.
#[test]
fn all_else_is_left_to_the_store_view() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory));
        let before = common::read(&view, "a/b/zarr.json").unwrap();
        let refused = |done: Result<(), Error>, kind| {
            let error = done.unwrap_err();
            assert_eq!(error.kind(), kind, "{name}: {error}");
            assert!(error.to_string().contains("DIR/.zarrfs/store"), "{error}");
        };
        let metadata = key("a/b/zarr.json");
        assert!(view.lookup(&metadata).unwrap().unwrap().is_read_only);
        refused(write(&tree, "a/b/zarr.json", "{}"), Kind::Denied);
        refused(tree.change(&metadata, &sized(0)), Kind::Denied);
        for file in ["attributes.json", "zarr.json", "b.npy", "chunks/0.0.npy"] {
            let file = key(&format!("a/b/{file}"));
            refused(tree.unlink(&file), Kind::NotPermitted);
            let renamed = tree.rename(&file, &key("a/b/other"), RenameMode::NoReplace);
            refused(renamed, Kind::NotPermitted);
        }
        refused(tree.make_folder(&key("a/new"), &MAKER), Kind::NotPermitted);
        for folder in ["a", "a/b", "a/b/chunks"] {
            refused(tree.remove_folder(&key(folder)), Kind::NotPermitted);
            let renamed = tree.rename(&key(folder), &key("c"), RenameMode::NoReplace);
            refused(renamed, Kind::NotPermitted);
        }
        let error = tree.make_folder(&key("a/b"), &MAKER).unwrap_err();
        assert_eq!(error.kind(), Kind::Exists);
        assert_eq!(common::read(&view, "a/b/zarr.json").unwrap(), before);
    }
}

#[test]
fn every_other_member_stays() {
    let memory = written::v3();
    let before = stored(&memory, "a/b/zarr.json");
    let (_, tree) = tree(Arc::new(memory.clone()));
    write(&tree, "a/b/attributes.json", "{}").unwrap();
    let after = stored(&memory, "a/b/zarr.json");
    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    for (name, value) in after.as_object().unwrap() {
        let expected = if name == "attributes" {
            &json!({})
        } else {
            &before[name]
        };
        assert_eq!(value, expected);
    }
}

#[test]
fn attributes_that_are_metadata_cannot_spoil_chunks() {
    // zarr-python keeps filters of drafts among the attributes, and N5 all of its own members.
    let (_, n5) = tree(Arc::new(written::n5()));
    for wrong in [r#"{"dimensions": [1, 1]}"#, r#"{"n5": "4.0.0"}"#] {
        let error = write(&n5, "a/b/attributes.json", wrong).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
    let (view, drafts) = tree(Arc::new(written::october2020()));
    let content = common::read(&view, "a/b/b.raw").unwrap();
    let filters = r#"{"filters": [{"id": "delta", "dtype": "<i2"}]}"#;
    let error = write(&drafts, "a/b/attributes.json", filters).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert_eq!(common::read(&view, "a/b/b.raw").unwrap(), content);
}

#[test]
fn programs_that_write_beside_and_rename_just_work() {
    let memory = written::v2();
    let (view, tree) = tree(Arc::new(memory.clone()));
    let attributes = key("a/b/attributes.json");
    for (number, name) in ["sedX1yZ2", ".attributes.json.Q3x8", "4913"]
        .iter()
        .enumerate()
    {
        let beside = key(&format!("a/b/{name}"));
        let file = tree.create(&beside, &MAKER).unwrap();
        file.write_at(0, format!("{{\"n\": {number}}}").as_bytes())
            .unwrap();
        file.flush().unwrap();
        assert_eq!(view.lookup(&beside).unwrap().unwrap().size, 8);
        assert_eq!(
            common::read(&view, beside.to_string().as_str())
                .unwrap()
                .len(),
            8
        );
        assert!(tree.create(&beside, &MAKER).is_err());
        tree.rename(&beside, &attributes, RenameMode::Replace)
            .unwrap();
        assert!(view.lookup(&beside).unwrap().is_none());
        assert_eq!(
            read_json(&view, "a/b/attributes.json"),
            json!({"n": number})
        );
    }
    // vim puts the old one aside, and writes a new one.
    tree.rename(
        &attributes,
        &key("a/b/attributes.json~"),
        RenameMode::Replace,
    )
    .unwrap();
    assert_eq!(read_json(&view, "a/b/attributes.json~"), json!({"n": 2}));
    write(&tree, "a/b/attributes.json", r#"{"n": 3}"#).unwrap();
    tree.unlink(&key("a/b/attributes.json~")).unwrap();
    assert!(view.lookup(&key("a/b/attributes.json~")).unwrap().is_none());
    // What does not parse is not taken over, and is not lost.
    let beside = key("a/b/attributes.json.tmp");
    tree.create(&beside, &MAKER)
        .unwrap()
        .write_at(0, b"{")
        .unwrap();
    let error = tree
        .rename(&beside, &attributes, RenameMode::Replace)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(view.lookup(&beside).unwrap().is_some());
    assert_eq!(read_json(&view, "a/b/attributes.json"), json!({"n": 3}));
    let error = tree
        .rename(&beside, &key("a/b/b.npy"), RenameMode::Replace)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::NotPermitted);
}

#[test]
fn a_document_is_read_back_as_it_is_written() {
    let (_, tree) = tree(Arc::new(written::v2()));
    let path = key("a/b/attributes.json");
    let file = tree.open(&path, OpenMode::Write).unwrap();
    let before = file.read_at(0, 1000).unwrap();
    assert!(before.starts_with(b"{"));
    // Nothing written, nothing stored.
    file.flush().unwrap();
    let change = |size| zarrfs::store::tree::AttrChange {
        size: Some(size),
        ..Default::default()
    };
    // Truncated by its name, as open(2) of old kernels does it.
    tree.change(&path, &change(0)).unwrap();
    let file = tree.open(&path, OpenMode::Write).unwrap();
    assert_eq!(file.stat().unwrap().meta.size, 0);
    file.write_at(0, b"{\"a\":1}xx").unwrap();
    assert_eq!(file.flush().unwrap_err().kind(), Kind::Invalid);
    file.change(&change(7)).unwrap();
    file.flush().unwrap();
    let error = file.write_at(1 << 30, b" ").unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
}

/// Returns a store with consolidated metadata, read as they say.
fn consolidated(store: &MemoryStore) -> Arc<zarrfs::hierarchy::Hierarchy> {
    let config = HierarchyConfig {
        consolidated: true,
        ..HierarchyConfig::default()
    };
    hierarchies::configured(Arc::new(store.clone()), config)
}

#[test]
fn consolidated_metadata_say_what_the_documents_say() {
    let zarray = stored(&written::v2(), "a/b/.zarray");
    let v2 = written::v2();
    v2.set(key(".zgroup"), br#"{"zarr_format": 2}"#.to_vec());
    let copies = json!({"zarr_consolidated_format": 1, "metadata": {
        ".zgroup": {"zarr_format": 2}, "a/b/.zarray": zarray, "a/b/.zattrs": {"old": 1},
    }});
    v2.set(key(".zmetadata"), copies.to_string().into_bytes());
    let v3 = written::v3();
    let copies = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {
        "kind": "inline", "must_understand": false, "metadata": {"a/b": stored(&v3, "a/b/zarr.json")},
    }});
    v3.set(key("zarr.json"), copies.to_string().into_bytes());
    let draft = written::october2020();
    let copies = json!({"zarr_consolidated_format": 1, "metadata": {
        "meta/root/a/b.array.json": stored(&draft, "meta/root/a/b.array.json"),
    }});
    draft.set(
        key("meta/root/consolidated/.zmetadata"),
        copies.to_string().into_bytes(),
    );
    for memory in [v2, v3, draft] {
        let (_, tree) = tree(Arc::new(memory.clone()));
        write(&tree, "a/b/attributes.json", r#"{"new": 2}"#).unwrap();
        let array = hierarchies::array(&consolidated(&memory), "a/b");
        assert_eq!(Value::Object(array.attributes.to_map()), json!({"new": 2}));
    }
}

#[test]
fn a_broken_document_of_others_is_left_alone() {
    let memory = documents(&[("zarr.json", json!({"zarr_format": 3, "node_type": "group"}))]);
    memory.set(key(".zmetadata"), b"{ broken".to_vec());
    let (_, tree) = tree(Arc::new(memory.clone()));
    write(&tree, "attributes.json", r#"{"x": 1}"#).unwrap();
    let object = memory.get(&key(".zmetadata"), 100).unwrap().unwrap();
    assert_eq!(object.bytes, b"{ broken");
    assert!(
        Fixture::of(&memory)
            .hierarchy
            .root()
            .unwrap()
            .unwrap()
            .node()
            .is_ok()
    );
}
