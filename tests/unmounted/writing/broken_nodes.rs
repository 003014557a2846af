//! Tests the directories of unreadable nodes in every dialect, which are read-only.

use std::sync::Arc;

use serde_json::json;
use zarr_format::error::Kind;
use zarrfs::view::View;
use zarrfs_store::Store;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::tree::{OpenMode, RenameMode};

use crate::common;
use crate::dialects::hierarchies::{documents, key};
use crate::dialects::written;
use crate::writing::fixture::{MAKER, tree};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// The names of metadata files by which Zarr libraries find nodes, which the directory of an unreadable node does not
/// have.
const PROBED: [&str; 5] = ["zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"];

/// Returns stores in which the array `a/b` cannot be read, and the keys of its documents, beginning with the faulty
/// one.
fn stores() -> Vec<(MemoryStore, Vec<&'static str>)> {
    let broken = |store: MemoryStore, keys: &[&'static str]| {
        let object = store
            .get(&UNLIMITED, &key(keys[0]), 1 << 20)
            .unwrap()
            .unwrap();
        let text = String::from_utf8(object.bytes).unwrap();
        let text = text.replace("\"shape\":[3,5]", "\"shape\":[3,-5]");
        let text = text.replace("\"dimensions\":[5,3]", "\"dimensions\":[5,-3]");
        let text = text.replace("\"dimensions\":[3,5]", "\"dimensions\":[3,-5]");
        store.set(key(keys[0]), text.into_bytes());
        (store, keys.to_vec())
    };
    vec![
        broken(written::v2(), &["a/b/.zarray", "a/b/.zattrs"]),
        broken(written::v3(), &["a/b/zarr.json"]),
        broken(written::draft2019(), &["meta/a/b.array.json"]),
        broken(written::october2020(), &["meta/root/a/b.array.json"]),
        broken(written::draft2022(), &["meta/a/b.array.json"]),
        broken(written::n5(), &["a/b/attributes.json"]),
    ]
}

pub fn names(view: &Arc<dyn View>, path: &str) -> Vec<String> {
    let mut listing = view.list(&UNLIMITED, &key(path)).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        names.push(String::from_utf8(name.name).unwrap());
    }
    names.sort();
    names
}

/// Returns the name under which the files view shows a metadata document of a node that cannot be read.
fn name_of(document: &str) -> String {
    let name = document.rsplit('/').next().unwrap();
    format!("stored.{}", name.strip_prefix('.').unwrap_or(name))
}

/// Invariant (metadata): A node that cannot be parsed is a directory that can be listed, with its documents as stored
/// and the reason.
#[test]
fn broken_arrays_of_every_dialect_show_their_documents() {
    for (store, keys) in stores() {
        let (view, _) = tree(Arc::new(store.clone()));
        let mut expected: Vec<String> = keys.iter().map(|key| name_of(key)).collect();
        expected.push("ERROR.txt".to_string());
        expected.sort();
        assert_eq!(names(&view, "a/b"), expected, "{keys:?}");
        for document in &keys {
            let shown = common::read(&view, &format!("a/b/{}", name_of(document))).unwrap();
            let stored = store
                .get(&UNLIMITED, &key(document), 1 << 20)
                .unwrap()
                .unwrap()
                .bytes;
            assert_eq!(shown, stored, "{document}");
        }
        let said = common::read(&view, "a/b/ERROR.txt").unwrap();
        let said = String::from_utf8(said).unwrap();
        for word in [keys[0], "expected a list of integers", "-"] {
            assert!(said.contains(word), "{said}");
        }
        for missing in ["c"].into_iter().chain(PROBED) {
            let path = key(&format!("a/b/{missing}"));
            let found = view.lookup(&UNLIMITED, &path).unwrap();
            assert!(found.is_none(), "{missing}: {said}");
        }
        for name in ["b.npy", "b@0.cf.raw"] {
            let error = view
                .lookup(&UNLIMITED, &key(&format!("a/b/{name}")))
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
        }
    }
}

#[test]
fn files_of_a_broken_node_cannot_be_changed() {
    for (store, keys) in stores() {
        let (view, tree) = tree(Arc::new(store.clone()));
        let is_refused = |done: zarr_format::error::Result<()>| {
            let error = done.unwrap_err();
            let kinds = [Kind::NotPermitted, Kind::Denied];
            assert!(kinds.contains(&error.kind()), "{error}");
            assert!(error.to_string().contains("store view"), "{error}");
        };
        for name in [name_of(keys[0]), "ERROR.txt".to_string()] {
            let path = key(&format!("a/b/{name}"));
            is_refused(tree.open(&UNLIMITED, &path, OpenMode::Truncate).map(drop));
            is_refused(tree.unlink(&UNLIMITED, &path));
            is_refused(tree.rename(&UNLIMITED, &path, &key("a/b/x.tmp"), RenameMode::NoReplace));
            is_refused(tree.create(&UNLIMITED, &key("a/b/x.tmp"), &MAKER).map(drop));
        }
        is_refused(tree.remove_folder(&UNLIMITED, &key("a/b")));
        assert!(
            view.lookup(&UNLIMITED, &key("a/b/ERROR.txt"))
                .unwrap()
                .is_some()
        );
        for document in keys {
            assert!(
                store
                    .get(&UNLIMITED, &key(document), 1 << 20)
                    .unwrap()
                    .is_some()
            );
        }
    }
}

/// Invariant of `broken_arrays_of_every_dialect_show_their_documents`.
#[test]
fn children_of_a_broken_group_are_reached() {
    let group = json!({"zarr_format": 3, "node_type": "group"});
    let store = written::v3();
    store.set(key("a/zarr.json"), b"{\"zarr_format\": 4}".to_vec());
    store.set(key("zarr.json"), group.to_string().into_bytes());
    let (view, _) = tree(Arc::new(store.clone()));
    assert_eq!(names(&view, "a"), ["ERROR.txt", "b", "stored.zarr.json"]);
    assert_eq!(common::read(&view, "a/b/b.raw").unwrap(), written::whole());
    // After its document was repaired, the node is a group again.
    store.set(key("a/zarr.json"), group.to_string().into_bytes());
    assert_eq!(names(&view, "a"), ["attributes.json", "b", "metadata.json"]);
}

#[test]
fn an_unreadable_entry_point_is_shown() {
    let entry = json!({
        "zarr_format": "https://purl.org/zarr/spec/protocol/core/3.0",
        "metadata_encoding": "https://example.org/cbor",
    });
    let store = documents(&[("zarr.json", entry.clone())]);
    let (view, _) = tree(Arc::new(store));
    assert_eq!(names(&view, ""), ["ERROR.txt", "stored.zarr.json"]);
    for hidden in ["a", "a/a.raw", "attributes.json"] {
        let error = view.lookup(&UNLIMITED, &key(hidden)).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    }
    for missing in PROBED {
        let found = view.lookup(&UNLIMITED, &key(missing)).unwrap();
        assert!(found.is_none(), "{missing}");
    }
    let shown = common::read(&view, "stored.zarr.json").unwrap();
    assert_eq!(shown, entry.to_string().into_bytes());
    let said = common::read(&view, "ERROR.txt").unwrap();
    assert!(
        String::from_utf8(said)
            .unwrap()
            .contains("https://example.org/cbor")
    );
}

struct Denying(MemoryStore);

impl Layer for Denying {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn get(
        &self,
        context: &RequestContext,
        key: &zarrfs_store::Key,
        limit: u64,
    ) -> zarr_format::error::Result<Option<zarrfs_store::Object>> {
        if key.as_bytes() == b"a/b/.zarray" {
            let why = "the server refused access (403)";
            return Err(zarr_format::error::Error::new(Kind::Denied, key, why));
        }
        self.0.get(context, key, limit)
    }
}

#[test]
fn a_document_that_the_store_refuses_is_listed() {
    let (view, _) = tree(Arc::new(Denying(written::v2())));
    assert_eq!(names(&view, "a/b"), ["ERROR.txt", "stored.zarray"]);
    let said = common::read(&view, "a/b/ERROR.txt").unwrap();
    assert!(String::from_utf8(said).unwrap().contains("403"));
    let error = view
        .open(&UNLIMITED, &key("a/b/stored.zarray"))
        .err()
        .unwrap();
    assert_eq!(error.kind(), Kind::Denied);
}
