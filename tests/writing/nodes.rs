//! Groups and arrays made, removed and renamed through the files view, in every dialect.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use zarrfs::error::Kind;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::tree::{OpenMode, RenameMode};
use zarrfs::store::{EntryKind, Key, Store, Tree};
use zarrfs::view::View;

use crate::common;
use crate::common::sample::{Form, Sample};
use crate::documents::{read_json, stores, write};
use crate::fixture::{MAKER, tree};
use crate::hierarchies::key;
use crate::written;

/// Returns all keys and what is under them.
pub fn everything(memory: &MemoryStore) -> BTreeMap<String, Vec<u8>> {
    fn walk(memory: &MemoryStore, prefix: &Key, found: &mut BTreeMap<String, Vec<u8>>) {
        let mut listing = memory.list(prefix).unwrap();
        while let Some(name) = listing.next().unwrap() {
            let key = prefix.child(&name.name).unwrap();
            if name.kind == EntryKind::Directory {
                walk(memory, &key, found);
            } else {
                let object = memory.get(&key, 1 << 30).unwrap().unwrap();
                found.insert(key.to_string(), object.bytes);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(memory, &Key::root(), &mut found);
    found
}

fn names(view: &Arc<dyn View>, path: &str) -> Vec<(String, EntryKind)> {
    let mut listing = view.list(&key(path)).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next().unwrap() {
        names.push((String::from_utf8(name.name).unwrap(), name.kind));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}

fn nodes(view: &Arc<dyn View>, path: &str) -> Vec<String> {
    let names = names(view, path).into_iter();
    names
        .filter(|(_, kind)| *kind == EntryKind::Directory)
        .map(|(name, _)| name)
        .collect()
}

/// Removes as `rm -r` does: what the listing shows, then the directory.
fn remove_all(view: &Arc<dyn View>, tree: &Arc<dyn Tree>, path: &str) {
    for (name, kind) in names(view, path) {
        let inner = format!("{path}/{name}");
        match kind {
            EntryKind::Directory => remove_all(view, tree, &inner),
            _ => tree.unlink(&key(&inner)).unwrap(),
        }
    }
    tree.remove_folder(&key(path)).unwrap();
}

fn is(outcome: zarrfs::error::Result<()>, kind: Kind) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn a_folder_is_a_group_in_the_dialects_own_form() {
    for (name, memory) in stores() {
        let before = everything(&memory);
        let (view, tree) = tree(Arc::new(memory.clone()));
        for path in ["a/new", "a/new/er"] {
            tree.make_folder(&key(path), &MAKER).unwrap();
        }
        is(tree.make_folder(&key("a/new"), &MAKER), Kind::Exists);
        is(tree.make_folder(&key("a/b"), &MAKER), Kind::Exists);
        is(tree.make_folder(&key("a/b/c"), &MAKER), Kind::NotADirectory);
        is(tree.make_folder(&key("a/none/c"), &MAKER), Kind::NotFound);
        let (fresh, _) = self::tree(Arc::new(memory.clone()));
        let document = match name.split(' ').next().unwrap() {
            "v2" => "a/new/.zgroup",
            "v3" => "a/new/zarr.json",
            "n5" => "a/new/attributes.json",
            _ => "a/new.group",
        };
        let keys = everything(&memory).into_keys().collect::<Vec<_>>();
        assert!(
            keys.iter().any(|key| key.contains(document)),
            "{name}: {keys:?}"
        );
        assert_eq!(nodes(&view, "a"), ["b", "new"], "{name}");
        assert_eq!(nodes(&fresh, "a"), ["b", "new"], "{name}");
        assert_eq!(nodes(&fresh, "a/new"), ["er"], "{name}");
        // An empty group goes as it came.
        tree.remove_folder(&key("a/new/er")).unwrap();
        tree.remove_folder(&key("a/new")).unwrap();
        let mut after = everything(&memory);
        after.retain(|key, _| before.contains_key(key) || key.contains("new"));
        assert_eq!(after, before, "{name}");
    }
}

#[test]
fn the_dialect_demands_its_ancestors() {
    let memory = written::v2();
    memory.set(key(".zgroup"), br#"{"zarr_format": 2}"#.to_vec());
    let (_, tree) = tree(Arc::new(memory.clone()));
    tree.make_folder(&key("a/g"), &MAKER).unwrap();
    let keys: Vec<String> = everything(&memory).into_keys().collect();
    assert!(keys.contains(&"a/.zgroup".to_string()) && keys.contains(&"a/g/.zgroup".to_string()));
    // Where nothing above is of Zarr, nothing above is made to be.
    let memory = written::v3();
    let (_, tree) = self::tree(Arc::new(memory.clone()));
    tree.make_folder(&key("g"), &MAKER).unwrap();
    let keys: Vec<String> = everything(&memory).into_keys().collect();
    assert!(keys.contains(&"g/zarr.json".to_string()) && !keys.contains(&"zarr.json".to_string()));
}

#[test]
fn rm_r_removes_the_node_and_nothing_else() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        tree.make_folder(&key("a/g"), &MAKER).unwrap();
        let with: Vec<String> = everything(&memory).into_keys().collect();
        is(tree.remove_folder(&key("a/b")), Kind::NotEmpty);
        is(tree.remove_folder(&key("a/b/chunks")), Kind::NotEmpty);
        is(tree.remove_folder(&key("a")), Kind::NotEmpty);
        is(tree.unlink(&key("a/b")), Kind::IsADirectory);
        is(tree.remove_folder(&Key::root()), Kind::NotPermitted);
        // A chunk that was written and is not stored goes as well.
        let raw = tree.open(&key("a/b/b.raw"), OpenMode::Write).unwrap();
        raw.write_at(0, &[1, 2]).unwrap();
        remove_all(&view, &tree, "a/b");
        raw.flush().unwrap();
        let left: Vec<String> = everything(&memory).into_keys().collect();
        let gone: Vec<&String> = with.iter().filter(|key| !left.contains(key)).collect();
        assert!(
            left.iter().all(|key| with.contains(key)),
            "{name}: {left:?}"
        );
        assert!(
            !gone.is_empty() && gone.iter().all(|key| key.contains("a/b")),
            "{name}: {gone:?}"
        );
        assert!(
            !left.iter().any(|key| key.contains("a/b")),
            "{name}: {left:?}"
        );
        let (fresh, _) = self::tree(Arc::new(memory));
        assert_eq!(nodes(&fresh, "a"), ["g"], "{name}");
        assert_eq!(nodes(&view, "a"), ["g"], "{name}");
    }
}

#[test]
fn removing_a_file_alone_loses_no_more_than_a_chunk() {
    let memory = MemoryStore::default();
    let sample = Sample::new(&[4], &[2], Form::Packed);
    sample.put(&memory, "a");
    let (view, tree) = tree(Arc::new(memory));
    for name in ["zarr.json", "attributes.json", "a.raw", "a.npy"] {
        tree.unlink(&key(&format!("a/{name}"))).unwrap();
    }
    assert_eq!(common::read(&view, "a/a.raw").unwrap(), sample.whole());
    tree.unlink(&key("a/chunks/1.npy")).unwrap();
    tree.unlink(&key("a/chunks/1.raw")).unwrap();
    let read = common::read(&view, "a/a.raw").unwrap();
    assert_eq!(
        (&read[..4], &read[4..]),
        (&sample.whole()[..4], &[0xff; 4][..])
    );
    is(tree.remove_folder(&key("a/chunks")), Kind::NotEmpty);
    tree.unlink(&key("a/chunks/0.raw")).unwrap();
    tree.remove_folder(&key("a/chunks")).unwrap();
    // Who uses it again wants to keep it.
    tree.open(&key("a/a.raw"), OpenMode::Write).unwrap();
    is(tree.remove_folder(&key("a")), Kind::NotEmpty);
}

#[test]
fn what_the_view_does_not_show_is_not_lost() {
    let memory = MemoryStore::default();
    memory.set(key("g/zarr.json"), common::sample::GROUP.into());
    memory.set(key("g/notes.txt"), b"mine".to_vec());
    let (_, tree) = tree(Arc::new(memory.clone()));
    is(tree.remove_folder(&key("g")), Kind::NotEmpty);
    tree.unlink(&key("g/zarr.json")).unwrap();
    tree.unlink(&key("g/attributes.json")).unwrap();
    let error = tree.remove_folder(&key("g")).unwrap_err();
    assert_eq!(error.kind(), Kind::NotEmpty);
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert!(memory.head(&key("g/zarr.json")).unwrap().is_some());
}

#[test]
fn a_node_moves_with_all_that_is_below() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let before = everything(&memory);
        let raw = tree.open(&key("a/b/b.raw"), OpenMode::Write).unwrap();
        raw.write_at(2, &[9, 9]).unwrap();
        let content = common::read(&view, "a/b/b.raw").unwrap();
        let metadata = read_json(&view, "a/b/zarr.json");
        tree.make_folder(&key("a/g"), &MAKER).unwrap();
        tree.rename(&key("a/b"), &key("a/g/c"), RenameMode::NoReplace)
            .unwrap();
        is(
            tree.rename(&key("a/g/c"), &key("a/g"), RenameMode::NoReplace),
            Kind::Exists,
        );
        is(
            tree.rename(&key("a/g"), &key("a/g/c/d"), RenameMode::Replace),
            Kind::Invalid,
        );
        tree.rename(&key("a/g"), &key("a/h"), RenameMode::Replace)
            .unwrap();
        let (fresh, _) = self::tree(Arc::new(memory.clone()));
        for view in [&view, &fresh] {
            assert_eq!(nodes(view, "a"), ["h"], "{name}");
            assert_eq!(
                common::read(view, "a/h/c/c.raw").unwrap(),
                content,
                "{name}"
            );
            assert_eq!(read_json(view, "a/h/c/zarr.json"), metadata, "{name}");
        }
        let left: Vec<String> = everything(&memory).into_keys().collect();
        assert!(
            !left
                .iter()
                .any(|key| key.contains("a/b") || key.contains("a/g")),
            "{left:?}"
        );
        // And back: the same bytes under the same keys.
        tree.rename(&key("a/h/c"), &key("a/b"), RenameMode::Replace)
            .unwrap();
        let back = everything(&memory);
        let mut differ = before
            .keys()
            .filter(|key| before.get(*key) != back.get(*key));
        assert!(differ.by_ref().count() <= 1, "{name}");
    }
}

#[test]
fn a_rename_never_replaces_what_holds_something() {
    let memory = MemoryStore::default();
    memory.set(
        key("zarr.json"),
        br#"{"zarr_format": 3, "node_type": "group"}"#.to_vec(),
    );
    for name in ["a", "b", "g/c"] {
        Sample::new(&[4], &[2], Form::Packed).put(&memory, name);
    }
    let (_, tree) = tree(Arc::new(memory.clone()));
    let before = everything(&memory);
    is(
        tree.rename(&key("a"), &key("b"), RenameMode::Replace),
        Kind::NotEmpty,
    );
    is(
        tree.rename(&key("a"), &key("g"), RenameMode::Replace),
        Kind::NotEmpty,
    );
    is(
        tree.rename(&key("a"), &key("b"), RenameMode::Exchange),
        Kind::Invalid,
    );
    is(
        tree.rename(&key("a/a.npy"), &key("a/x.npy"), RenameMode::Replace),
        Kind::NotPermitted,
    );
    is(
        tree.rename(&key("a/chunks"), &key("a/x"), RenameMode::Replace),
        Kind::NotPermitted,
    );
    is(
        tree.rename(&key("a"), &key("b/chunks"), RenameMode::Replace),
        Kind::NotADirectory,
    );
    assert_eq!(everything(&memory), before);
    tree.make_folder(&key("e"), &MAKER).unwrap();
    tree.rename(&key("a"), &key("e"), RenameMode::Replace)
        .unwrap();
}

/// Metadata that all dialects but N5 can express alike.
fn metadata(codecs: Value) -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [5, 4], "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0, "codecs": codecs, "attributes": {"unit": "m"},
    })
}

fn gzipped(endian: &str) -> Value {
    json!([
        {"name": "bytes", "configuration": {"endian": endian}},
        {"name": "gzip", "configuration": {"level": 3}},
    ])
}

#[test]
fn metadata_of_v3_make_an_array_in_every_dialect() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let plain = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
        let transposed = json!([
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            {"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}},
        ]);
        for (number, codecs) in [gzipped("little"), gzipped("big"), plain, transposed]
            .iter()
            .enumerate()
        {
            let path = format!("a/n{number}");
            tree.make_folder(&key(&path), &MAKER).unwrap();
            write(
                &tree,
                &format!("{path}/zarr.json"),
                &metadata(codecs.clone()).to_string(),
            )
            .unwrap_or_else(|error| panic!("{name}: {error}"));
            let file = tree
                .open(&key(&format!("{path}/n{number}.raw")), OpenMode::Write)
                .unwrap();
            let bytes: Vec<u8> = (0..80).collect();
            file.write_at(0, &bytes).unwrap();
            file.flush().unwrap();
            let (fresh, _) = self::tree(Arc::new(memory.clone()));
            for view in [&view, &fresh] {
                let read = common::read(view, &format!("{path}/n{number}.raw")).unwrap();
                assert_eq!(read, bytes, "{name}");
                let shown = read_json(view, &format!("{path}/zarr.json"));
                assert_eq!(shown["attributes"], json!({"unit": "m"}), "{name}");
                if name != "n5" {
                    assert_eq!(shown["codecs"], *codecs, "{name}");
                }
            }
        }
    }
}

#[test]
fn what_a_dialect_cannot_express_is_said() {
    let sharded = json!([{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [1, 3], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
    }}]);
    let filled = {
        let mut filled = metadata(gzipped("little"));
        filled["fill_value"] = json!(7);
        filled
    };
    let small = {
        let mut small = metadata(gzipped("little"));
        small["data_type"] = json!("bfloat16");
        small
    };
    let cases = [
        (written::v2(), metadata(sharded.clone()), "sharding_indexed"),
        (
            written::draft2022(),
            metadata(sharded.clone()),
            "sharding_indexed",
        ),
        (written::v2(), small.clone(), "bfloat16"),
        (written::october2020(), small, "bfloat16"),
        (written::n5(), filled, "fill value"),
        (written::n5(), metadata(sharded.clone()), "sharding_indexed"),
    ];
    for (memory, wanted, word) in cases {
        let (_, tree) = tree(Arc::new(memory.clone()));
        tree.make_folder(&key("a/n"), &MAKER).unwrap();
        let before = everything(&memory);
        let outcome = write(&tree, "a/n/zarr.json", &wanted.to_string());
        let error = outcome
            .err()
            .unwrap_or_else(|| panic!("{wanted} was taken"));
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(everything(&memory), before);
    }
    let (_, v3) = tree(Arc::new(written::v3()));
    v3.make_folder(&key("a/n"), &MAKER).unwrap();
    write(&v3, "a/n/zarr.json", &metadata(sharded).to_string()).unwrap();
}

#[test]
fn groups_that_hold_something_do_not_become_arrays() {
    let (_, tree) = tree(Arc::new(written::v3()));
    let error = write(
        &tree,
        "a/zarr.json",
        &metadata(gzipped("little")).to_string(),
    );
    assert_eq!(error.unwrap_err().kind(), Kind::Invalid);
}
