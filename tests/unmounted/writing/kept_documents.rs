//! Tests that rewritten documents keep each number and string that an edit does not change.

use std::sync::Arc;

use zarr_format::error::Kind;
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;

use crate::common;
use crate::dialects::hierarchies::{self, key};
use crate::dialects::written;
use crate::writing::documents::{stores, write};
use crate::writing::fixture::tree;
use crate::writing::shared::{Mode, Shared};
use zarrfs_store::request_context::UNLIMITED;

/// A text of attributes that JSON libraries would change when they write it back.
const ODD: &str = r#"{
  "nan": NaN,
  "infinities": [
    Infinity,
    -Infinity
  ],
  "digits": 123456789012345678901234567890,
  "one": 1.0,
  "exponent": 1e5,
  "deep": {
    "z": -0,
    "a": "\u00e4\/",
    "empty": {}
  },
  "text": "NaN"
}
"#;

fn texts(memory: &MemoryStore) -> Vec<(&'static str, String)> {
    const KEYS: [&str; 11] = [
        "zarr.json",
        ".zmetadata",
        "a/b/zarr.json",
        "a/b/.zarray",
        "a/b/.zattrs",
        "a/b/attributes.json",
        "meta/a/b.array.json",
        "meta/root/a/b.array",
        "meta/root/a/b.array.data",
        "meta/root/a/b.array.json",
        "meta/root/consolidated/.zmetadata",
    ];
    let text = |name: &'static str| {
        let object = memory.get(&UNLIMITED, &key(name), 1 << 20).unwrap()?;
        Some((name, String::from_utf8(object.bytes).unwrap()))
    };
    KEYS.into_iter().filter_map(text).collect()
}

/// Returns a text without white space. The strings in the documents of these tests contain none.
fn tight(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Invariant (metadata): An edit keeps every byte that it does not change; numbers and strings in attributes stay as
/// they were written. A document with a duplicate name is not rewritten.
#[test]
fn numbers_and_strings_survive_every_edit() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let read = |path: &str| String::from_utf8(common::read(&view, path).unwrap()).unwrap();
        write(&tree, "a/b/attributes.json", ODD).unwrap();
        assert_eq!(read("a/b/attributes.json"), ODD, "{name}");
        // The text has one more line and is otherwise unchanged, as if edited with sed.
        let more = ODD.replace("  \"one\"", "  \"new\": 7,\n  \"one\"");
        write(&tree, "a/b/attributes.json", &more).unwrap();
        let all: String = texts(&memory).iter().map(|(_, text)| tight(text)).collect();
        for line in more
            .lines()
            .filter(|line| line.contains(": ") && !line.ends_with(['{', '[']))
        {
            let member = tight(line.trim_end_matches(','));
            assert!(all.contains(&member), "{name}: {member} is not in {all}");
        }
        assert!(all.contains("[Infinity,-Infinity]"), "{name}: {all}");
    }
}

/// Invariant of `numbers_and_strings_survive_every_edit`.
#[test]
fn an_edit_changes_its_member_and_no_other_byte() {
    let text = "\u{feff}{\t\"zarr_format\" : 3,\n\t\"extra\": {\"must_understand\": false, \"x\": [1.50, NaN, 1E+2]},\n\
                \t\"node_type\":\"array\",\n\t\"shape\": [ 3, 5 ],\n\t\"data_type\": \"int16\",\n\
                \t\"chunk_grid\": {\"name\": \"regular\", \"configuration\": {\"chunk_shape\": [2, 2]}},\n\
                \t\"chunk_key_encoding\": {\"name\": \"default\"},\n\t\"fill_value\": 0.0,\n\
                \t\"codecs\": [{\"name\": \"bytes\", \"configuration\": {\"endian\": \"big\"}}],\n\t\"attributes\": {\"x\": 1.0}\n}\r\n\n";
    let memory = MemoryStore::default();
    memory.set(key("a/b/zarr.json"), text.into());
    let (view, tree) = tree(Arc::new(memory.clone()));
    // The text has a number beyond the range of floats, and a lone surrogate, which Python writes.
    let odd = r#"{"x": 1.0, "y": 1e400, "z": "\ud800"}"#;
    write(&tree, "a/b/attributes.json", odd).unwrap();
    write(&tree, "a/b/attributes.json", &odd.replace("1e400", "1e401")).unwrap();
    assert!(common::read(&view, "a/b/b.raw").is_ok());
    let attributes = "{\n\t\t\"x\": 1.0,\n\t\t\"y\": 1e401,\n\t\t\"z\": \"\\ud800\"\n\t}";
    let expected = text.replace("{\"x\": 1.0}", attributes);
    assert_eq!(texts(&memory), [("a/b/zarr.json", expected)]);
}

/// Returns a v2 store with consolidated metadata as xarray writes them, and their text.
fn consolidated(odd: &str) -> (MemoryStore, String) {
    let memory = written::v2();
    let text = format!(
        "{{\n    \"metadata\": {{\n        \".zattrs\": {odd},\n        \".zgroup\": {{\n            \
         \"zarr_format\": 2\n        }}\n    }},\n    \"zarr_consolidated_format\": 1\n}}"
    );
    memory.set(key(".zgroup"), b"{\"zarr_format\": 2}".to_vec());
    memory.set(key(".zattrs"), odd.as_bytes().to_vec());
    memory.set(key(".zmetadata"), text.clone().into_bytes());
    (memory, text)
}

/// Invariant of `numbers_and_strings_survive_every_edit`.
#[test]
fn an_edit_keeps_the_text_of_every_other_copy() {
    let odd = r#"{"_FillValue": NaN, "valid_max":Infinity , "id": 123456789012345678901234567890, "n": 1e5}"#;
    let (v2, text) = consolidated(odd);
    let mount = Shared::over(Mode::WriteThrough, "memory", &v2);
    write(&mount.tree, "a/b/attributes.json", r#"{"new": 1}"#).unwrap();
    let new = ",\n        \"a/b/.zattrs\": {\n            \"new\": 1\n        }\n    },\n    \"zarr_consol";
    let expected = text.replace("\n    },\n    \"zarr_consol", new);
    assert!(
        texts(&v2).contains(&(".zmetadata", expected)),
        "{:?}",
        texts(&v2)
    );

    let v3 = written::v3();
    let text = format!(
        r#"{{"zarr_format":3,"node_type":"group","attributes":{odd},"consolidated_metadata":{{"kind":"inline",
           "metadata":{{"x":{{"zarr_format":3,"node_type":"group","attributes":{odd}}}}},"must_understand":false}}}}"#
    );
    v3.set(key("zarr.json"), text.clone().into_bytes());
    let mount = Shared::over(Mode::WriteThrough, "memory", &v3);
    write(&mount.tree, "a/b/attributes.json", r#"{"new": 1}"#).unwrap();
    let texts = texts(&v3);
    let (_, after) = texts.iter().find(|(name, _)| *name == "zarr.json").unwrap();
    let (head, rest) = text.split_at(text.find("},\"must").unwrap());
    let added = after
        .strip_prefix(head)
        .and_then(|added| added.strip_suffix(rest));
    let added = added.unwrap_or_else(|| panic!("{after}"));
    assert!(added.starts_with(r#","a/b":{"#), "{added}");
    assert!(added.contains(r#""attributes":{"new":1}"#), "{added}");
}

#[test]
fn attributes_from_copies_keep_their_text() {
    let odd = tight(ODD);
    let (memory, _) = consolidated(&odd);
    let config = HierarchyConfig {
        consolidated: true,
        ..HierarchyConfig::default()
    };
    let hierarchy = hierarchies::configured(Arc::new(memory), config);
    let root = hierarchies::found(&hierarchy, "");
    assert_eq!(root.node().unwrap().attributes().text(), odd);
}

/// Checks that a document with a duplicate name is not rewritten, but refused with an error message.
fn is_refused(
    memory: &MemoryStore,
    twice: &str,
    change: impl Fn() -> Result<(), zarr_format::error::Error>,
) {
    let before = texts(memory);
    let error = change().unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    let text = error.to_string();
    assert!(text.contains(twice) && text.contains("twice"), "{text}");
    assert_eq!(texts(memory), before);
}

/// Invariant of `numbers_and_strings_survive_every_edit`.
#[test]
fn documents_with_a_duplicate_name_are_not_rewritten() {
    for (name, twice) in [
        ("a/b/zarr.json", r#""attributes":{"x":{"y":1,"y":2},"#),
        ("a/b/zarr.json", r#""attributes":{},"attributes":{"#),
    ] {
        let memory = written::v3();
        let text = &texts(&memory)[0].1;
        let text = text.replace(r#""attributes":{"#, twice);
        memory.set(key(name), text.into_bytes());
        let (view, tree) = tree(Arc::new(memory.clone()));
        is_refused(&memory, name, || write(&tree, "a/b/attributes.json", "{}"));
        assert!(common::read(&view, "a/b/b.raw").is_ok());
    }
    let memory = written::v2();
    memory.set(key("a/b/.zattrs"), br#"{"x": 1, "x": 2}"#.to_vec());
    let (view, v2_tree) = tree(Arc::new(memory.clone()));
    let shown = common::read(&view, "a/b/attributes.json").unwrap();
    assert_eq!(shown, b"{\n  \"x\": 1,\n  \"x\": 2\n}\n");
    is_refused(&memory, ".zattrs", || {
        write(&v2_tree, "a/b/attributes.json", r#"{"x": 3}"#)
    });
    is_refused(&memory, "x", || {
        write(&v2_tree, "a/b/attributes.json", r#"{"x": 1, "x": 1}"#)
    });
    // An entry of consolidated metadata with a duplicate name is unchanged, while another entry is rewritten.
    let (memory, text) = consolidated(r#"{"x": 1, "x": 2}"#);
    let mount = Shared::over(Mode::WriteThrough, "memory", &memory);
    write(&mount.tree, "a/b/attributes.json", r#"{"x": 3}"#).unwrap();
    let new =
        ",\n        \"a/b/.zattrs\": {\n            \"x\": 3\n        }\n    },\n    \"zarr_consol";
    let expected = text.replace("\n    },\n    \"zarr_consol", new);
    assert!(texts(&memory).contains(&(".zmetadata", expected)));
}

#[test]
fn numbers_out_of_range_do_not_hide_filters() {
    let read = |more: &str| {
        let memory = written::october2020();
        let name = "meta/root/a/b.array.json";
        let texts = texts(&memory);
        let (_, text) = texts.iter().find(|(key, _)| *key == name).unwrap();
        let filters =
            format!(r#""attributes":{{"filters":[{{"id":"delta","dtype":"<i2"}}]{more},"#);
        let text = text.replacen(r#""attributes":{"#, &filters, 1);
        memory.set(key(name), text.into_bytes());
        hierarchies::array(&hierarchies::hierarchy(&memory), "a/b")
    };
    let (plain, odd) = (read(""), read(r#","x":1e999"#));
    assert!(
        plain
            .codecs
            .iter()
            .any(|codec| codec.name == "numcodecs.delta")
    );
    assert_eq!(odd.codecs, plain.codecs);
    assert!(odd.attributes.text().contains("1e999"));
}
