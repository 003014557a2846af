//! Tests that a check reads nodes and chunks concurrently and reports findings in hierarchy order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use zarr_check::{Finding, check};
use zarr_format::error::Result;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Key, Object, Store};

use crate::checks::fixture::{How, context, run};
use crate::checks::stores::{plain_array, put};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const GROUP: &[u8] = br#"{"zarr_format": 3, "node_type": "group", "attributes": {}}"#;

/// A store that delays the request for one key until another key is requested.
struct WaitingStore {
    memory: MemoryStore,
    waits: (Key, Key),
    asked: Mutex<BTreeMap<Key, bool>>,
    changed: Condvar,
}

impl WaitingStore {
    fn new(memory: MemoryStore, waiting: &str, awaited: &str) -> Arc<WaitingStore> {
        Arc::new(WaitingStore {
            memory,
            waits: (Key::new(waiting).unwrap(), Key::new(awaited).unwrap()),
            asked: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether the other key was requested while the request was delayed.
    fn was_met(&self) -> bool {
        self.asked.lock().get(&self.waits.0) == Some(&true)
    }
}

impl Layer for WaitingStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let mut asked = self.asked.lock();
        asked.insert(key.clone(), false);
        self.changed.notify_all();
        let (waiting, awaited) = &self.waits;
        let until = Instant::now() + Duration::from_secs(5);
        let is_met = |asked: &BTreeMap<Key, bool>| asked.contains_key(awaited);
        if key == waiting {
            while !is_met(&asked) && !self.changed.wait_until(&mut asked, until).timed_out() {}
            let is_met = is_met(&asked);
            asked.insert(key.clone(), is_met);
        }
        drop(asked);
        self.memory.get(context, key, limit)
    }
}

fn arrays(count: u32) -> MemoryStore {
    let memory = MemoryStore::default();
    memory.set(Key::new("zarr.json").unwrap(), GROUP.to_vec());
    for number in 0..count {
        let codecs = serde_json::json!([{"name": "bytes"}]);
        let document = plain_array(serde_json::json!([1]), serde_json::json!([1]), codecs);
        put(&memory, &format!("x{number:03}/zarr.json"), document);
        memory.set(Key::new(format!("x{number:03}/c/0")).unwrap(), vec![1]);
    }
    memory
}

/// Invariant (checks): A check never waits for one node or chunk while it could check another, and reports in the order
/// of the hierarchy.
#[test]
fn documents_and_chunks_of_different_nodes_are_read_concurrently() {
    let store = WaitingStore::new(arrays(100), "x020/c/0", "x045/zarr.json");
    let how = How {
        data: true,
        is_remote: false,
    };
    let (found, summary) = run(store.clone(), how);
    assert!(found.is_empty(), "{found:#?}");
    assert_eq!(summary.arrays, 100);
    assert!(store.was_met());
}

#[test]
fn chunks_are_decoded_while_their_array_is_being_listed() {
    let memory = MemoryStore::default();
    let codecs = serde_json::json!([{"name": "bytes"}]);
    let document = plain_array(serde_json::json!([200]), serde_json::json!([1]), codecs);
    put(&memory, "zarr.json", document);
    for number in 0..200 {
        memory.set(Key::new(format!("c/{number}")).unwrap(), vec![1]);
    }
    let store = WaitingStore::new(memory, "c/100", "c/199");
    let how = How {
        data: true,
        is_remote: false,
    };
    let (found, _) = run(store.clone(), how);
    assert!(found.is_empty() && store.was_met(), "{found:#?}");
}

/// Writes nested groups, each of which contains a key that belongs to no node.
fn nested(memory: &MemoryStore, path: &str, depth: u32) {
    let key = |name: &str| Key::new(format!("{path}{name}")).unwrap();
    memory.set(key("zarr.json"), GROUP.to_vec());
    memory.set(key("orphan"), vec![1]);
    for number in 0..3 {
        if depth > 0 {
            nested(memory, &format!("{path}g{number}/"), depth - 1);
        }
    }
}

/// Invariant of `documents_and_chunks_of_different_nodes_are_read_concurrently`.
#[test]
fn findings_come_in_hierarchy_order_on_any_number_of_threads() {
    let memory = MemoryStore::default();
    nested(&memory, "", 5);
    for threads in [1, 2, 7] {
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let mut context = context(store, How::default());
        context.threads = threads;
        let start = context
            .hierarchy
            .node(&UNLIMITED, &Key::root())
            .unwrap()
            .unwrap();
        let mut found: Vec<Key> = Vec::new();
        let summary = check(&context, &start, &mut |finding: &Finding| {
            found.push(finding.key.parent().unwrap());
        });
        assert_eq!(found.len(), 1 + 3 + 9 + 27 + 81 + 243);
        assert_eq!(summary.groups as usize, found.len());
        assert!(found.is_sorted_by_key(|key| {
            let names = key.names().map(<[u8]>::to_vec);
            names.collect::<Vec<_>>()
        }));
    }
}

#[test]
fn a_store_with_more_nodes_than_the_queue_is_checked_completely() {
    let store = WaitingStore::new(arrays(700), "x000/zarr.json", "nothing");
    let (_, summary) = run(store, How::default());
    assert_eq!((summary.arrays, summary.groups), (700, 1));
}
