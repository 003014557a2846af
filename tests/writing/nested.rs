//! Nodes that lie in the folder of an array, which no view of nodes shows.

use std::sync::Arc;

use zarrfs::error::Kind;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::{EntryKind, Tree};
use zarrfs::view::View;

use crate::fixture::tree;
use crate::hierarchies::key;
use crate::nodes::everything;
use crate::shared::{Mode, Shared};
use crate::written;

/// Removes as `rm -r` does, going on after an error.
fn remove_all(view: &Arc<dyn View>, tree: &Arc<dyn Tree>, path: &str) -> Option<Kind> {
    let mut listing = view.list(&key(path)).unwrap();
    while let Some(name) = listing.next().unwrap() {
        let inner = format!("{path}/{}", String::from_utf8(name.name).unwrap());
        match name.kind {
            EntryKind::Directory => assert_eq!(remove_all(view, tree, &inner), None),
            _ => tree.unlink(&key(&inner)).unwrap(),
        }
    }
    tree.remove_folder(&key(path)).err().map(|error| {
        assert!(
            error.to_string().contains("the store view shows it"),
            "{error}"
        );
        error.kind()
    })
}

/// Returns stores with the array `a/b`: its document, and that of a node in its folder.
fn stores() -> Vec<(MemoryStore, &'static str, &'static str)> {
    vec![
        (written::v2(), "a/b/.zarray", "a/b/in/ner/.zarray"),
        (written::v2(), "a/b/.zarray", "a/b/inner/.zattrs"),
        (written::v3(), "a/b/zarr.json", "a/b/inner/zarr.json"),
        (
            written::n5(),
            "a/b/attributes.json",
            "a/b/inner/attributes.json",
        ),
        (
            written::draft2019(),
            "meta/a/b.array.json",
            "meta/a/b/c.array.json",
        ),
        (
            written::october2020(),
            "meta/root/a/b.array.json",
            "meta/root/a/b/c.group.json",
        ),
        (
            written::draft2022(),
            "meta/a/b.array.json",
            "meta/a/b/c.array.json",
        ),
    ]
}

#[test]
fn d07_an_array_with_a_node_in_its_folder_cannot_be_removed() {
    for (memory, own, inner) in stores() {
        let (view, tree) = tree(Arc::new(memory.clone()));
        let document = everything(&memory)[own].clone();
        memory.set(key(inner), b"{}".to_vec());
        let refused = remove_all(&view, &tree, "a/b");
        assert_eq!(refused, Some(Kind::NotEmpty), "{inner}");
        let after = everything(&memory);
        assert!(after.contains_key(inner), "{inner}");
        assert_eq!(after[own], document, "{inner}");
        // Once the other node is gone, the array can be removed.
        memory.erase(&key(inner));
        tree.remove_folder(&key("a/b")).unwrap();
        let left = everything(&memory).into_keys();
        assert_eq!(left.filter(|key| key.contains("a/b")).count(), 0, "{inner}");
    }
}

#[test]
fn d07_with_write_through_the_node_stays_in_the_store() {
    let memory = written::v3();
    let group = br#"{"zarr_format": 3, "node_type": "group"}"#;
    memory.set(key("a/b/inner/zarr.json"), group.to_vec());
    let mount = Shared::over(Mode::WriteThrough, "local", &memory);
    assert_eq!(
        remove_all(&mount.view, &mount.tree, "a/b"),
        Some(Kind::NotEmpty)
    );
    assert_eq!(mount.stored("a/b/inner/zarr.json"), group);
    assert!(!mount.stored("a/b/zarr.json").is_empty());
}
