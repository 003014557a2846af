//! Tests consolidated metadata under concurrent edits by the mount and by another program.

use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use zarr_format::error::Result;
use zarrfs_overlay::commit::CommitConfig;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Condition, ETag, Key, PutBody, Store, Tree};

use crate::common::sample::{Form, Sample};
use crate::dialects::hierarchies::key;
use crate::writing::documents::write;
use crate::writing::shared::{Mode, Shared, everywhere, folder};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const NODES: usize = 8;
const ROUNDS: usize = 20;

/// A store in one dialect, with `NODES` arrays and consolidated metadata.
struct Dialect {
    memory: MemoryStore,
    /// The key of the document that contains the consolidated metadata.
    document: &'static str,
    /// Returns the attributes of a node from the text of the consolidated metadata.
    attributes: fn(&Value, usize) -> Value,
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn v2() -> Dialect {
    let memory = MemoryStore::default();
    let (group, array) = (
        json!({"zarr_format": 2}),
        json!({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "<u2", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null}),
    );
    let mut copies = json!({".zgroup": group});
    memory.set(key(".zgroup"), text(&group));
    for node in 0..NODES {
        let (zarray, zattrs) = (format!("n{node}/.zarray"), format!("n{node}/.zattrs"));
        memory.set(key(&zarray), text(&array));
        memory.set(key(&zattrs), text(&json!({"round": 0})));
        copies[zarray] = array.clone();
        copies[zattrs] = json!({"round": 0});
    }
    let all = json!({"zarr_consolidated_format": 1, "metadata": copies});
    memory.set(key(".zmetadata"), text(&all));
    Dialect {
        memory,
        document: ".zmetadata",
        attributes: |all, node| all["metadata"][format!("n{node}/.zattrs")].clone(),
    }
}

fn v3() -> Dialect {
    let memory = MemoryStore::default();
    let mut copies = json!({});
    for node in 0..NODES {
        let sample = Sample::new(&[2], &[2], Form::Plain);
        sample.put(&memory, &format!("n{node}"));
        copies[format!("n{node}")] = sample.metadata();
    }
    let all = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {
        "kind": "inline", "must_understand": false, "metadata": copies}});
    memory.set(key("zarr.json"), text(&all));
    Dialect {
        memory,
        document: "zarr.json",
        attributes: |all, node| {
            let copies = &all["consolidated_metadata"]["metadata"];
            copies[format!("n{node}")]["attributes"].clone()
        },
    }
}

impl Dialect {
    /// Returns the attributes of a node from the consolidated metadata in a store.
    fn copied(&self, store: &dyn Store, node: usize) -> Value {
        let object = store
            .get(&UNLIMITED, &key(self.document), 1 << 20)
            .unwrap()
            .unwrap();
        let all = serde_json::from_slice(&object.bytes).unwrap();
        (self.attributes)(&all, node)
    }

    /// Edits the attributes of all nodes in parallel threads. Checks that the consolidated metadata have each edit at
    /// once, and keep it.
    fn edit_all(&self, tree: &Arc<dyn Tree>, store: &dyn Store) {
        let start = Barrier::new(NODES);
        std::thread::scope(|scope| {
            for node in 0..NODES {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for round in 1..=ROUNDS {
                        let attributes = json!({"round": round});
                        let path = format!("n{node}/attributes.json");
                        write(tree, &path, &attributes.to_string()).unwrap();
                        assert_eq!(self.copied(store, node), attributes, "of n{node}");
                    }
                });
            }
        });
        for node in 0..NODES {
            assert_eq!(self.copied(store, node), json!({"round": ROUNDS}));
        }
    }
}

/// Invariant (writing): Consolidated metadata include all of several concurrent edits.
#[test]
fn consolidated_metadata_include_all_concurrent_edits() {
    for (mode, kind) in everywhere() {
        for dialect in [v2(), v3()] {
            let mount = Shared::over(mode, kind, &dialect.memory);
            let written: &dyn Store = match mode {
                Mode::Cow => &mount.overlay,
                Mode::WriteThrough => &*mount.lower,
            };
            dialect.edit_all(&mount.tree, written);
            assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
            for node in 0..NODES {
                let copied = dialect.copied(&*mount.lower, node);
                assert_eq!(copied, json!({"round": ROUNDS}), "{mode:?} {kind}");
            }
        }
    }
}

/// The group with the consolidated metadata is edited at the same time as the nodes below it.
#[test]
fn a_group_and_its_nodes_are_edited_concurrently() {
    for (mode, kind) in everywhere() {
        let dialect = v3();
        let mount = Shared::over(mode, kind, &dialect.memory);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let attributes = json!({"round": round});
                    write(&mount.tree, "attributes.json", &attributes.to_string()).unwrap();
                }
            });
            dialect.edit_all(&mount.tree, &mount.overlay);
        });
        assert_eq!(mount.conflicts(), [""; 0], "{mode:?} {kind}");
        let all: Value = serde_json::from_slice(&mount.stored("zarr.json")).unwrap();
        assert_eq!(all["attributes"], json!({"round": ROUNDS}));
        for node in 0..NODES {
            let copied = dialect.copied(&*mount.lower, node);
            assert_eq!(copied, json!({"round": ROUNDS}), "{mode:?} {kind}");
        }
    }
}

type Change = fn(&mut Value);

/// A store in which another program changes a document just before the mount puts it.
struct Meddled {
    memory: MemoryStore,
    document: Key,
    change: Change,
    /// Whether the other program changes the document before every put.
    always: bool,
    is_done: AtomicBool,
    is_calm: AtomicBool,
}

impl Layer for Meddled {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let is_calm = self.is_calm.load(Ordering::SeqCst);
        if *key == self.document
            && !is_calm
            && (!self.is_done.swap(true, Ordering::SeqCst) || self.always)
        {
            let object = self.memory.get(context, key, 1 << 20).unwrap().unwrap();
            let mut document = serde_json::from_slice(&object.bytes).unwrap();
            (self.change)(&mut document);
            self.memory.set(key.clone(), text(&document));
        }
        self.memory.put(context, key, body, condition)
    }
}

fn meddled(dialect: &Dialect, always: bool, change: Change) -> Arc<Meddled> {
    Arc::new(Meddled {
        memory: dialect.memory.clone(),
        document: key(dialect.document),
        change,
        always,
        is_done: AtomicBool::new(false),
        is_calm: AtomicBool::new(false),
    })
}

/// Invariant of `consolidated_metadata_include_all_concurrent_edits`.
#[test]
fn a_concurrent_consolidation_of_another_program_is_kept() {
    let cases: [(Dialect, Change); 2] = [
        (v2(), |all| {
            all["metadata"]["n1/.zattrs"] = json!({"theirs": 1});
        }),
        (v3(), |all| {
            let copies = &mut all["consolidated_metadata"]["metadata"];
            copies["n1"]["attributes"] = json!({"theirs": 1});
        }),
    ];
    for (dialect, change) in cases {
        for mode in [Mode::Cow, Mode::WriteThrough] {
            let mount = Shared::new(mode, meddled(&dialect, false, change), folder());
            write(&mount.tree, "n0/attributes.json", r#"{"ours": 1}"#).unwrap();
            assert_eq!(mount.conflicts(), [""; 0]);
            assert_eq!(dialect.copied(&dialect.memory, 0), json!({"ours": 1}));
            assert_eq!(dialect.copied(&dialect.memory, 1), json!({"theirs": 1}));
        }
    }
}

/// Consolidated metadata that keep changing are no conflict: the edits themselves are in the store, and the next commit
/// puts their copies.
#[test]
fn copies_that_keep_changing_are_put_by_the_next_commit() {
    let dialect = v2();
    let change: Change = |all| {
        let count = all["metadata"]["n1/.zattrs"]["count"].as_u64().unwrap_or(0);
        all["metadata"]["n1/.zattrs"] = json!({"count": count + 1});
    };
    let meddled = meddled(&dialect, true, change);
    let mount = Shared::new(Mode::Cow, meddled.clone(), folder());
    write(&mount.tree, "n0/attributes.json", r#"{"ours": 1}"#).unwrap();
    let commit = || {
        mount
            .overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .unwrap()
    };
    let outcome = commit();
    let error = outcome.failed.unwrap();
    assert!(error.to_string().contains(".zmetadata"), "{error}");
    assert_eq!((outcome.put, outcome.conflicts), (1, Vec::new()));
    assert_eq!(dialect.copied(&mount.overlay, 0), json!({"ours": 1}));
    meddled.is_calm.store(true, Ordering::SeqCst);
    let outcome = commit();
    assert_eq!(
        (outcome.failed.is_none(), outcome.conflicts),
        (true, Vec::new())
    );
    assert_eq!(dialect.copied(&dialect.memory, 0), json!({"ours": 1}));
}

/// A commit adds its copies to the consolidated metadata that another program has stored in the meantime.
#[test]
fn a_commit_keeps_copies_that_another_program_changed() {
    for kind in ["memory", "local"] {
        let dialect = v2();
        let mount = Shared::over(Mode::Cow, kind, &dialect.memory);
        write(&mount.tree, "n0/attributes.json", r#"{"ours": 1}"#).unwrap();
        let mut all: Value = serde_json::from_slice(&mount.stored(".zmetadata")).unwrap();
        all["metadata"]["n1/.zattrs"] = json!({"theirs": 1});
        mount.put_outside(".zmetadata", &text(&all));
        assert_eq!(mount.conflicts(), [""; 0]);
        assert_eq!(dialect.copied(&*mount.lower, 0), json!({"ours": 1}));
        assert_eq!(dialect.copied(&*mount.lower, 1), json!({"theirs": 1}));
    }
}
