//! Tests arrays with unreadable attributes, which can be read but not edited.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::Kind;
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common;
use crate::dialects::hierarchies::{documents, key};
use crate::dialects::written;
use crate::writing::documents::{read_json, write};
use crate::writing::fixture::tree;
use zarrfs_store::request_context::UNLIMITED;

/// Returns stores in which the attributes of the array `a/b` cannot be parsed, and the key of the faulty document.
fn stores() -> Vec<(MemoryStore, &'static str)> {
    let mut stores = Vec::new();
    for broken in [
        &b""[..],
        b" \n",
        b"{",
        b"[1]",
        b"null",
        b"{\"a\": 1,}",
        b"\"\xff\"",
        b"{\"a\": \xff}",
    ] {
        let store = written::v2();
        store.set(key("a/b/.zattrs"), broken.to_vec());
        stores.push((store, "a/b/.zattrs"));
    }
    let member = |store: MemoryStore, name: &'static str, broken: &str| {
        let object = store.get(&UNLIMITED, &key(name), 1 << 20).unwrap().unwrap();
        let mut document: Value = serde_json::from_slice(&object.bytes).unwrap();
        document["attributes"] = serde_json::from_str(broken).unwrap();
        store.set(key(name), document.to_string().into_bytes());
        (store, name)
    };
    stores.push(member(written::v3(), "a/b/zarr.json", "3"));
    stores.push(member(written::v3(), "a/b/zarr.json", "[{}]"));
    stores.push(member(written::draft2019(), "meta/a/b.array.json", "\"x\""));
    stores.push(member(
        written::october2020(),
        "meta/root/a/b.array.json",
        "[]",
    ));
    stores.push(member(written::draft2022(), "meta/a/b.array.json", "false"));
    stores
}

fn stored(store: &MemoryStore, name: &str) -> Vec<u8> {
    store
        .get(&UNLIMITED, &key(name), 1 << 20)
        .unwrap()
        .unwrap()
        .bytes
}

/// Invariant (metadata): Attributes that cannot be parsed do not prevent reading data, at any nesting depth, and only
/// complete new attributes replace them.
#[test]
fn unparsable_attributes_do_not_block_data() {
    for (store, name) in stores() {
        let (view, _) = tree(Arc::new(store));
        assert_eq!(common::read(&view, "a/b/b.raw").unwrap(), written::whole());
        let mut listing = view.list(&UNLIMITED, &key("a/b")).unwrap();
        assert!(listing.next(&UNLIMITED).unwrap().is_some());
        let said = read_json(&view, "a/b/attributes.json");
        let said = said["zarrfs_error"].as_str().unwrap();
        let says_why = said.contains("not JSON: ")
            || said.contains("expected")
            || said.contains("the file is empty")
            || said.contains("but not an object");
        assert!(said.contains(name) && says_why, "{said}");
        assert_eq!(
            read_json(&view, "a/b/metadata.json")["attributes"]["zarrfs_error"],
            said
        );
    }
}

#[test]
fn a_group_with_unparsable_attributes_is_a_group() {
    let store = documents(&[(".zgroup", json!({"zarr_format": 2}))]);
    store.set(key(".zattrs"), Vec::new());
    let (view, _) = tree(Arc::new(store));
    let said = read_json(&view, "attributes.json");
    assert!(
        said["zarrfs_error"].as_str().unwrap().contains("is empty"),
        "{said}"
    );
}

/// Invariant of `unparsable_attributes_do_not_block_data`.
#[test]
fn unparsable_attributes_are_replaced_but_not_edited() {
    for (store, name) in stores() {
        let (view, tree) = tree(Arc::new(store.clone()));
        let before = stored(&store, name);
        let shown = common::read(&view, "a/b/attributes.json").unwrap();
        // The attributes are written back unchanged, and with one more member.
        write(
            &tree,
            "a/b/attributes.json",
            &String::from_utf8(shown).unwrap(),
        )
        .unwrap();
        let mut edited = read_json(&view, "a/b/attributes.json");
        edited["new"] = json!(1);
        let error = write(&tree, "a/b/attributes.json", &edited.to_string()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains("cannot be read"), "{error}");
        assert_eq!(stored(&store, name), before, "{name}");
        write(&tree, "a/b/attributes.json", r#"{"new": NaN}"#).unwrap();
        let after = String::from_utf8(stored(&store, name)).unwrap();
        assert!(after.contains("NaN"), "{after}");
        assert_eq!(common::read(&view, "a/b/b.raw").unwrap(), written::whole());
    }
}

/// A write to a metadata document that is too long to be read is refused, because the program cannot have seen its
/// content.
#[test]
fn attributes_that_are_too_long_do_not_block_data() {
    let store = written::v2();
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(64 << 20));
    store.set(key("a/b/.zattrs"), long.clone().into_bytes());
    let (view, tree) = tree(Arc::new(store.clone()));
    assert_eq!(common::read(&view, "a/b/b.raw").unwrap(), written::whole());
    let said = read_json(&view, "a/b/attributes.json");
    let why = format!(
        "a/b/.zattrs: {} bytes exceed the limit of 67108864",
        long.len()
    );
    assert_eq!(said["zarrfs_error"], why);
    let error = write(&tree, "a/b/attributes.json", r#"{"new": 1}"#).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    let kept = store
        .head(&UNLIMITED, &key("a/b/.zattrs"))
        .unwrap()
        .unwrap();
    assert_eq!(kept.size, long.len() as u64);
    store.set(key("a/b/.zattrs"), b"{\"b\": 2}".to_vec());
    let (view, _) = self::tree(Arc::new(store));
    assert_eq!(read_json(&view, "a/b/attributes.json"), json!({"b": 2}));
}

/// Returns stores of each dialect in which the array `a/b` has attributes with `levels` levels of nesting, the key of
/// their document, and their text.
fn deep_stores(levels: usize) -> Vec<(MemoryStore, &'static str, String)> {
    let deep = format!(
        "{{\"deep\": {}1{}}}",
        "[".repeat(levels),
        "]".repeat(levels)
    );
    let v2 = written::v2();
    v2.set(key("a/b/.zattrs"), deep.clone().into_bytes());
    let mut stores = vec![(v2, "a/b/.zattrs", deep.clone())];
    for (store, name) in [
        (written::v3(), "a/b/zarr.json"),
        (written::draft2019(), "meta/a/b.array.json"),
        (written::october2020(), "meta/root/a/b.array.json"),
        (written::draft2022(), "meta/a/b.array.json"),
        (written::n5(), "a/b/attributes.json"),
    ] {
        let mut document: Value = serde_json::from_slice(&stored(&store, name)).unwrap();
        let member = if name == "a/b/attributes.json" {
            "deep"
        } else {
            "attributes"
        };
        document[member] = json!("HERE");
        let value = if member == "deep" {
            &deep[9..deep.len() - 1]
        } else {
            &deep
        };
        let text = document.to_string().replace("\"HERE\"", value);
        store.set(key(name), text.into_bytes());
        stores.push((store, name, value.to_string()));
    }
    stores
}

/// Returns the expected elements of the array whose metadata document is `name`. In N5, the fill value is always 0.
fn whole(name: &str) -> Vec<u8> {
    let is_n5 = name.ends_with("attributes.json");
    let filled = |element: &[u8]| match element {
        [212, 254] if is_n5 => [0; 2],
        element => [element[0], element[1]],
    };
    written::whole().chunks(2).flat_map(filled).collect()
}

/// Invariant of `unparsable_attributes_do_not_block_data`.
#[test]
fn deeply_nested_attributes_do_not_block_data() {
    for (store, name, deep) in [127, 128, 100_000].into_iter().flat_map(deep_stores) {
        let (view, tree) = tree(Arc::new(store.clone()));
        assert_eq!(
            common::read(&view, "a/b/b.raw").unwrap(),
            whole(name),
            "{name}"
        );
        let said = read_json(&view, "a/b/attributes.json");
        let said = said["zarrfs_error"].as_str().unwrap();
        let why = "objects and lists nest deeper than 127 levels at line 1 column";
        assert!(said.starts_with(name) && said.contains(why), "{said}");
        let metadata = read_json(&view, "a/b/metadata.json");
        assert_eq!(metadata["attributes"]["zarrfs_error"], said);
        write(&tree, "a/b/attributes.json", r#"{"new": 1}"#).unwrap();
        assert_eq!(read_json(&view, "a/b/attributes.json"), json!({"new": 1}));
        let after = String::from_utf8(stored(&store, name)).unwrap();
        assert!(!after.contains(&deep), "{name}");
    }
}

#[test]
fn attributes_of_the_greatest_depth_are_read() {
    for (store, name, deep) in deep_stores(126) {
        let (view, _) = tree(Arc::new(store));
        let shown = common::read(&view, "a/b/attributes.json").unwrap();
        let shown = String::from_utf8(shown).unwrap().replace([' ', '\n'], "");
        assert!(
            shown.contains(deep.trim_start_matches("{\"deep\": ").trim_end_matches('}')),
            "{name}"
        );
    }
}
