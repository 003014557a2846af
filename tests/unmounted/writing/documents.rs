//! Tests writes of attributes through the files view into the documents of each dialect.

use std::sync::Arc;

use serde_json::{Value, json};
use zarr_format::error::{Error, Kind};
use zarrfs::view::View;
use zarrfs_array::hierarchy::HierarchyConfig;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::tree::{OpenMode, RenameMode};
use zarrfs_store::{Key, Store, Tree};

use crate::common;
use crate::dialects::hierarchies;
use crate::dialects::hierarchies::{documents, key};
use crate::dialects::written;
use crate::writing::broken_nodes::names;
use crate::writing::files::sized;
use crate::writing::fixture::{Fixture, MAKER, tree};
use crate::writing::shared::{Mode, Shared};
use zarrfs_store::request_context::UNLIMITED;

/// Returns a store for each dialect, with an array at `a/b`.
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

/// Replaces the text of a file as `open(path, "w")` does.
pub fn write(tree: &Arc<dyn Tree>, path: &str, text: &str) -> Result<(), Error> {
    let file = tree.open(&UNLIMITED, &key(path), OpenMode::Truncate)?;
    // Programs may write the text of a file in several parts.
    let (head, tail) = text.as_bytes().split_at(text.len() / 2);
    file.write_at(&UNLIMITED, 0, head)?;
    file.write_at(&UNLIMITED, head.len() as u64, tail)?;
    assert_eq!(file.stat(&UNLIMITED)?.meta.size, text.len() as u64);
    file.flush(&UNLIMITED)
}

pub fn read_json(view: &Arc<dyn View>, path: &str) -> Value {
    serde_json::from_slice(&common::read(view, path).unwrap()).unwrap()
}

fn stored(memory: &MemoryStore, name: &str) -> Value {
    let object = memory
        .get(&UNLIMITED, &key(name), 1 << 20)
        .unwrap()
        .unwrap();
    serde_json::from_slice(&object.bytes).unwrap()
}

#[test]
fn edited_attributes_are_read_back_in_every_dialect() {
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

/// Invariant (writing): A document that cannot be parsed, or that would make chunks unreadable, changes nothing.
#[test]
fn an_edit_that_is_not_a_json_object_changes_nothing() {
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

/// The group `a` has no metadata document, and an edit in the files view must not create one.
#[test]
fn a_group_without_a_document_is_not_edited() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory));
        let path = key("a/attributes.json");
        assert!(
            view.lookup(&UNLIMITED, &path)
                .unwrap()
                .unwrap()
                .is_read_only,
            "{name}"
        );
        let error = write(&tree, "a/attributes.json", r#"{"of": "a group"}"#).unwrap_err();
        assert_eq!(error.kind(), Kind::Denied, "{name}: {error}");
        let attributes = view
            .lookup(&UNLIMITED, &key("a/b/attributes.json"))
            .unwrap()
            .unwrap();
        assert!(!attributes.is_read_only, "{name}");
    }
}

/// Invariant (writing): The files view changes only elements and attributes.
///
/// Of the metadata, only `attributes.json` can be edited in the files view. Nodes are created, moved and removed in the
/// store view.
#[test]
fn the_files_view_refuses_all_edits_except_attributes() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory));
        let before = common::read(&view, "a/b/metadata.json").unwrap();
        let refused = |done: Result<(), Error>, kind| {
            let error = done.unwrap_err();
            assert_eq!(error.kind(), kind, "{name}: {error}");
            assert!(error.to_string().contains("DIR/.zarrfs/store"), "{error}");
        };
        let metadata = key("a/b/metadata.json");
        assert!(
            view.lookup(&UNLIMITED, &metadata)
                .unwrap()
                .unwrap()
                .is_read_only
        );
        refused(write(&tree, "a/b/metadata.json", "{}"), Kind::Denied);
        refused(tree.change(&UNLIMITED, &metadata, &sized(0)), Kind::Denied);
        for file in ["a/x", "a/b/.zattrs", "a/b/chunks/x"] {
            let made = tree.create(&UNLIMITED, &key(file), &MAKER).map(drop);
            refused(made, Kind::NotPermitted);
        }
        for file in ["metadata.json", "b.npy", "chunks/0.0.npy"] {
            let file = key(&format!("a/b/{file}"));
            refused(tree.unlink(&UNLIMITED, &file), Kind::NotPermitted);
            let renamed = tree.rename(&UNLIMITED, &file, &key("a/b/other"), RenameMode::NoReplace);
            refused(renamed, Kind::NotPermitted);
        }
        refused(
            tree.make_folder(&UNLIMITED, &key("a/new"), &MAKER),
            Kind::NotPermitted,
        );
        for folder in ["a", "a/b", "a/b/chunks"] {
            refused(
                tree.remove_folder(&UNLIMITED, &key(folder)),
                Kind::NotPermitted,
            );
            let renamed = tree.rename(&UNLIMITED, &key(folder), &key("c"), RenameMode::NoReplace);
            refused(renamed, Kind::NotPermitted);
        }
        let error = tree
            .make_folder(&UNLIMITED, &key("a/b"), &MAKER)
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Exists);
        assert_eq!(common::read(&view, "a/b/metadata.json").unwrap(), before);
    }
}

#[test]
fn an_edit_of_attributes_keeps_all_other_members() {
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

/// Invariant of `an_edit_that_is_not_a_json_object_changes_nothing`.
#[test]
fn attributes_that_are_array_metadata_cannot_be_edited() {
    // zarr-python stores the filters of draft arrays as attributes, and N5 stores all array metadata as attributes.
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

/// Creates a file with the given text as `open(path, O_CREAT | O_EXCL)` does.
fn make(tree: &Arc<dyn Tree>, path: &str, text: &str) -> Result<(), Error> {
    let file = tree.create(&UNLIMITED, &key(path), &MAKER)?;
    file.write_at(&UNLIMITED, 0, text.as_bytes())?;
    file.flush(&UNLIMITED)
}

const DOCUMENT: &str = "a/b/attributes.json";

/// Invariant (writing): `attributes.json` can be saved in all ways that programs use; text that is not a JSON object
/// leaves the old attributes.
#[test]
fn a_file_that_is_renamed_onto_a_document_is_an_edit() {
    let (view, tree) = tree(Arc::new(written::v2()));
    let attributes = key(DOCUMENT);
    let temporary = ["sedX1yZ2", ".attributes.json.Q3x8", "4913", "new", "x.txt"];
    for (number, name) in temporary.iter().enumerate() {
        let (path, text) = (format!("a/b/{name}"), format!("{{\"n\": {number}}}"));
        let beside = key(&path);
        make(&tree, &path, &text).unwrap();
        assert_eq!(view.lookup(&UNLIMITED, &beside).unwrap().unwrap().size, 8);
        assert_eq!(common::read(&view, &path).unwrap(), text.into_bytes());
        let listed = names(&view, "a/b");
        assert!(listed.iter().any(|listed| listed == name), "{listed:?}");
        let error = tree.create(&UNLIMITED, &beside, &MAKER).err().unwrap();
        assert_eq!(error.kind(), Kind::Exists);
        tree.rename(&UNLIMITED, &beside, &attributes, RenameMode::Replace)
            .unwrap();
        assert!(view.lookup(&UNLIMITED, &beside).unwrap().is_none());
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": number}));
    }
    // A text that cannot be parsed is refused, and its file keeps its name.
    make(&tree, "a/b/new", "{").unwrap();
    let rename = |to: &str| tree.rename(&UNLIMITED, &key("a/b/new"), &key(to), RenameMode::Replace);
    assert_eq!(rename(DOCUMENT).unwrap_err().kind(), Kind::Invalid);
    assert_eq!(common::read(&view, "a/b/new").unwrap(), b"{");
    assert_eq!(read_json(&view, DOCUMENT), json!({"n": 4}));
    assert_eq!(rename("a/b/b.npy").unwrap_err().kind(), Kind::NotPermitted);
    let onto = tree.rename(
        &UNLIMITED,
        &key("a/b/new"),
        &attributes,
        RenameMode::NoReplace,
    );
    assert_eq!(onto.unwrap_err().kind(), Kind::Exists);
}

#[test]
fn a_document_can_be_renamed_to_a_backup() {
    let (view, tree) = tree(Arc::new(written::v2()));
    let [attributes, backup] = [DOCUMENT, "a/b/attributes.json~"].map(key);
    write(&tree, DOCUMENT, r#"{"n": 2}"#).unwrap();
    let rename = |from: &Key, to: &Key| tree.rename(&UNLIMITED, from, to, RenameMode::Replace);
    // vim renames the old file to a backup, and creates a new file.
    rename(&attributes, &backup).unwrap();
    assert!(view.lookup(&UNLIMITED, &attributes).unwrap().is_none());
    let listed = names(&view, "a/b");
    assert!(
        listed.contains(&"attributes.json~".to_string())
            && !listed.contains(&"attributes.json".to_string())
    );
    assert_eq!(read_json(&view, "a/b/attributes.json~"), json!({"n": 2}));
    make(&tree, DOCUMENT, r#"{"n": 3}"#).unwrap();
    assert_eq!(read_json(&view, DOCUMENT), json!({"n": 3}));
    tree.unlink(&UNLIMITED, &backup).unwrap();
    assert!(view.lookup(&UNLIMITED, &backup).unwrap().is_none());
    // A hard link has the bytes that the document had when the link was created.
    tree.link(&UNLIMITED, &attributes, &backup).unwrap();
    make(&tree, "a/b/new", r#"{"n": 4}"#).unwrap();
    rename(&key("a/b/new"), &attributes).unwrap();
    assert_eq!(read_json(&view, "a/b/attributes.json~"), json!({"n": 3}));
    assert_eq!(
        tree.link(&UNLIMITED, &attributes, &backup)
            .unwrap_err()
            .kind(),
        Kind::Exists
    );
    // After a failed save, vim renames its backup to the old name.
    rename(&attributes, &key("a/b/aside")).unwrap();
    let error = make(&tree, DOCUMENT, "{").unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    rename(&key("a/b/aside"), &attributes).unwrap();
    assert_eq!(read_json(&view, DOCUMENT), json!({"n": 4}));
    // The attributes cannot be renamed to `metadata.json`.
    let error = rename(&attributes, &key("a/b/metadata.json")).unwrap_err();
    assert_eq!(error.kind(), Kind::NotPermitted);
}

/// Invariant of `a_file_that_is_renamed_onto_a_document_is_an_edit`.
#[test]
fn a_removed_document_can_be_created_again() {
    for (name, memory) in stores() {
        let (view, tree) = tree(Arc::new(memory));
        let attributes = key(DOCUMENT);
        let make = |text| make(&tree, DOCUMENT, text);
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        assert!(
            view.lookup(&UNLIMITED, &attributes).unwrap().is_none(),
            "{name}"
        );
        assert_eq!(
            tree.unlink(&UNLIMITED, &attributes).unwrap_err().kind(),
            Kind::NotFound
        );
        make(r#"{"n": 1}"#).unwrap();
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": 1}), "{name}");
        assert_eq!(make("{}").unwrap_err().kind(), Kind::Exists);
        // The new file exists as soon as it is created, but its bytes are only stored when it is closed.
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        let file = tree.create(&UNLIMITED, &attributes, &MAKER).unwrap();
        file.write_at(&UNLIMITED, 0, b"{\"n\"").unwrap();
        let shown = view.lookup(&UNLIMITED, &attributes).unwrap().unwrap();
        assert_eq!((shown.size, shown.is_read_only), (4, false));
        assert_eq!(file.flush(&UNLIMITED).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(file.sync(&UNLIMITED).unwrap_err().kind(), Kind::Invalid);
        // If the text of the new file never parses, the attributes are unchanged.
        drop(file);
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": 1}), "{name}");
        // A file that was unlinked while it was open stores nothing.
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        let lost = tree.create(&UNLIMITED, &attributes, &MAKER).unwrap();
        lost.write_at(&UNLIMITED, 0, br#"{"n": 2}"#).unwrap();
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        make(r#"{"n": 3}"#).unwrap();
        lost.flush(&UNLIMITED).unwrap();
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": 3}), "{name}");
        // A file that is renamed to the name of an unlinked document replaces the attributes.
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        self::make(&tree, "a/b/new", r#"{"n": 4}"#).unwrap();
        tree.rename(
            &UNLIMITED,
            &key("a/b/new"),
            &attributes,
            RenameMode::NoReplace,
        )
        .unwrap();
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": 4}), "{name}");
        // An empty file is no valid document, so the attributes are unchanged.
        tree.unlink(&UNLIMITED, &attributes).unwrap();
        assert_eq!(make("").unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read_json(&view, DOCUMENT), json!({"n": 4}), "{name}");
    }
}

#[test]
fn a_removed_document_reappears_if_it_is_not_created() {
    let (view, tree) = tree(Arc::new(written::v3()));
    let before = read_json(&view, DOCUMENT);
    let attributes = key(DOCUMENT);
    tree.unlink(&UNLIMITED, &attributes).unwrap();
    let started = std::time::Instant::now();
    while view.lookup(&UNLIMITED, &attributes).unwrap().is_none() {
        assert!(started.elapsed().as_secs() < 20);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(started.elapsed().as_secs() >= 4);
    assert_eq!(read_json(&view, DOCUMENT), before);
}

#[test]
fn scratch_files_are_limited_in_number_and_size() {
    let (view, tree) = tree(Arc::new(written::v3()));
    let path = |number: usize| key(&format!("a/b/x{number}"));
    let file = tree.create(&UNLIMITED, &path(0), &MAKER).unwrap();
    let error = file.write_at(&UNLIMITED, 16 << 20, b"x").unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    let full =
        (0..1000).find_map(|number| tree.create(&UNLIMITED, &path(number + 1), &MAKER).err());
    assert_eq!(full.unwrap().kind(), Kind::NoSpace);
    assert!(names(&view, "a/b").len() < 300);
    tree.unlink(&UNLIMITED, &path(0)).unwrap();
    tree.create(&UNLIMITED, &path(0), &MAKER).unwrap();
}

#[test]
fn a_document_is_read_back_as_it_is_written() {
    let (_, tree) = tree(Arc::new(written::v2()));
    let path = key("a/b/attributes.json");
    let file = tree.open(&UNLIMITED, &path, OpenMode::Write).unwrap();
    let before = file.read_at(&UNLIMITED, 0, 1000).unwrap();
    assert!(before.starts_with(b"{"));
    // A flush stores nothing if the program has not written.
    file.flush(&UNLIMITED).unwrap();
    let change = |size| zarrfs_store::tree::AttrChange {
        size: Some(size),
        ..Default::default()
    };
    // On old kernels, open(2) with O_TRUNC truncates the file by its path before the open.
    tree.change(&UNLIMITED, &path, &change(0)).unwrap();
    let file = tree.open(&UNLIMITED, &path, OpenMode::Write).unwrap();
    assert_eq!(file.stat(&UNLIMITED).unwrap().meta.size, 0);
    file.write_at(&UNLIMITED, 0, b"{\"a\":1}xx").unwrap();
    assert_eq!(file.flush(&UNLIMITED).unwrap_err().kind(), Kind::Invalid);
    file.change(&UNLIMITED, &change(7)).unwrap();
    file.flush(&UNLIMITED).unwrap();
    let error = file.write_at(&UNLIMITED, 1 << 30, b" ").unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
}

fn consolidated(store: Arc<dyn Store>) -> Arc<zarrfs_array::hierarchy::Hierarchy> {
    let config = HierarchyConfig {
        consolidated: true,
        ..HierarchyConfig::default()
    };
    hierarchies::configured(store, config)
}

#[test]
fn consolidated_metadata_follow_an_edit() {
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
        let mount = Shared::over(Mode::Cow, "memory", &memory);
        write(&mount.tree, "a/b/attributes.json", r#"{"new": 2}"#).unwrap();
        let store: Arc<dyn Store> = Arc::new(mount.overlay.clone());
        let shown = hierarchies::array(&consolidated(store), "a/b");
        assert_eq!(mount.conflicts(), [""; 0]);
        let stored = hierarchies::array(&consolidated(mount.lower.clone()), "a/b");
        for array in [shown, stored] {
            assert_eq!(Value::Object(array.attributes.to_map()), json!({"new": 2}));
        }
    }
}

#[test]
fn broken_consolidated_metadata_are_left_unchanged() {
    let memory = documents(&[("zarr.json", json!({"zarr_format": 3, "node_type": "group"}))]);
    memory.set(key(".zmetadata"), b"{ broken".to_vec());
    let mount = Shared::over(Mode::Cow, "memory", &memory);
    write(&mount.tree, "attributes.json", r#"{"x": 1}"#).unwrap();
    assert_eq!(mount.conflicts(), [""; 0]);
    let object = memory
        .get(&UNLIMITED, &key(".zmetadata"), 100)
        .unwrap()
        .unwrap();
    assert_eq!(object.bytes, b"{ broken");
    assert!(
        Fixture::of(&memory)
            .hierarchy
            .root(&UNLIMITED)
            .unwrap()
            .unwrap()
            .node()
            .is_ok()
    );
}
