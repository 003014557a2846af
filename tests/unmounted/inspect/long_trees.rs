//! Tests that long trees are printed in order, and before all nodes are read.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use zarr_format::error::Result;
use zarrfs_export::inspect::tree::{TreeConfig, TreeNode};
use zarrfs_export::inspect::tree::{tree, walk};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Key, Object, Store};

use crate::inspect::program::{GROUP, array, command, printed, store};
use crate::inspect::remote::over;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const WHOLE: TreeConfig = TreeConfig {
    depth: usize::MAX,
    chunks: 0,
    threads: 4,
};

struct ReadStore {
    memory: MemoryStore,
    reads: Arc<AtomicUsize>,
}

impl Layer for ReadStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let found = self.memory.get(context, key, limit)?;
        self.reads
            .fetch_add(usize::from(found.is_some()), Ordering::Relaxed);
        Ok(found)
    }
}

/// Returns a store with arrays at the given paths and their parent groups, and the number of documents that were read.
fn holding(arrays: &[String]) -> (Arc<dyn Store>, Arc<AtomicUsize>) {
    let memory = MemoryStore::default();
    let document = array(&[4], &[2]);
    for path in arrays {
        let path = Key::new(path.as_str()).unwrap();
        let set = |folder: &Key, text: &[u8]| {
            memory.set(folder.child(b"zarr.json").unwrap(), text.to_vec())
        };
        set(&path, document.as_bytes());
        for group in std::iter::successors(path.parent(), Key::parent) {
            set(&group, GROUP);
        }
    }
    let reads = Arc::new(AtomicUsize::new(0));
    let store = ReadStore {
        memory,
        reads: reads.clone(),
    };
    (Arc::new(store), reads)
}

/// Returns the sorted paths of the arrays and their parent groups, each group before its children.
fn in_order(arrays: &[String]) -> Vec<Key> {
    let arrays = arrays.iter().map(|path| Key::new(path.as_str()).unwrap());
    let mut all: Vec<Key> = arrays
        .flat_map(|path| std::iter::successors(Some(path), Key::parent))
        .collect();
    all.sort_by(|one, other| one.names().cmp(other.names()));
    all.dedup();
    all
}

#[test]
fn a_long_tree_is_in_order_with_one_last_child_per_group() {
    let mut arrays: Vec<String> = (0..5000).map(|number| format!("big/a{number}")).collect();
    arrays.extend((0..2100).map(|number| format!("many/g{number}/x")));
    arrays.extend(["first/a", "first/b", "many/g7/deep/er/y", "last"].map(String::from));
    let (store, _) = holding(&arrays);
    let nodes = tree(&UNLIMITED, &over(store), &Key::root(), "s", &WHOLE).unwrap();
    let paths: Vec<Key> = nodes.iter().map(|node| node.path.clone()).collect();
    assert_eq!(paths, in_order(&arrays));
    let mut last_of = std::collections::HashMap::new();
    for node in &nodes {
        last_of.insert(node.path.parent(), node.path.clone());
        assert_eq!(node.depth, node.path.names().count());
    }
    for node in &nodes {
        let is_last = last_of[&node.path.parent()] == node.path;
        assert_eq!(node.is_last, is_last, "{}", node.path);
    }
}

#[test]
fn the_first_nodes_come_before_all_documents_are_read() {
    let arrays: Vec<String> = (0..20_000).map(|number| format!("a{number:05}")).collect();
    let (store, reads) = holding(&arrays);
    let opened = over(store);
    let mut given = 0;
    let mut take = |_: TreeNode| {
        given += 1;
        if given == 10 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    walk(&UNLIMITED, &opened, &Key::root(), "s", &WHOLE, &mut take).unwrap();
    assert_eq!(given, 10);
    let reads = reads.load(Ordering::Relaxed);
    assert!(reads < arrays.len() / 4, "{reads} documents for ten nodes");
}

#[test]
fn names_without_nodes_do_not_change_the_last_child() {
    let mut arrays: Vec<String> = (0..2048).map(|number| format!("a{number:04}")).collect();
    let (store, _) = holding(&arrays);
    let opened = over(store);
    let nodes = tree(&UNLIMITED, &opened, &Key::root(), "s", &WHOLE).unwrap();
    let last: Vec<&TreeNode> = nodes.iter().filter(|node| node.is_last).collect();
    assert_eq!(last.len(), 2, "the root and one child");
    assert_eq!(last[1].path.to_string(), arrays.pop().unwrap());
}

#[test]
fn a_long_list_is_json_and_a_closed_pipe_is_not_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let document = array(&[4], &[2]);
    let names: Vec<String> = (0..2100)
        .map(|number| format!("a{number}/zarr.json"))
        .collect();
    let mut files: Vec<(&str, &[u8])> = vec![("zarr.json", GROUP)];
    files.extend(
        names
            .iter()
            .map(|name| (name.as_str(), document.as_bytes())),
    );
    store(folder.path(), &files);
    let path = folder.path().to_str().unwrap();
    let list: Value = serde_json::from_str(&printed(&["ls", "--json", path])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2100);
    let tree: Value = serde_json::from_str(&printed(&["tree", "--json", path])).unwrap();
    assert_eq!(tree["nodes"].as_array().unwrap().len(), 2101);
    assert_eq!(printed(&["ls", "-l", path]).lines().count(), 2100);
    let empty: Value =
        serde_json::from_str(&printed(&["ls", "--json", &format!("{path}/a0")])).unwrap();
    assert_eq!(empty.as_array().unwrap().len(), 1, "the array itself");
    let mut child = command(&["ls", path]);
    let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}
