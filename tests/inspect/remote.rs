//! A tree on a store on which each request takes long.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use zarrfs::array::{Arrays, Engine, EngineDisk, Limits};
use zarrfs::error::Result;
use zarrfs::hierarchy::Hierarchy;
use zarrfs::inspect::access::OpenedStore;
use zarrfs::inspect::tree::{NodeFacts, TreeConfig, tree};
use zarrfs::stats::Stats;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::layer::Layer;
use zarrfs::store::{Key, Listing, Meta, NoHints, Object, Store, StoreStack};
use zarrfs::sync::budget::MemoryBudget;

use crate::program::{GROUP, array};

/// How long a request takes.
const LATENCY: Duration = Duration::from_millis(10);

/// A store that takes long for everything a tree asks.
struct FarStore(MemoryStore);

impl Layer for FarStore {
    fn below(&self) -> &dyn Store {
        &self.0
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        thread::sleep(LATENCY);
        self.0.get(key, limit)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        thread::sleep(LATENCY);
        self.0.head(key)
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        thread::sleep(LATENCY);
        self.0.list(prefix)
    }
}

/// Opens a store with 10 groups of 100 arrays.
fn opened() -> OpenedStore {
    let memory = MemoryStore::default();
    let set = |key: &str, text: &[u8]| memory.set(Key::new(key).unwrap(), text.to_vec());
    set("zarr.json", GROUP);
    let document = array(&[4], &[2]);
    for group in 0..10 {
        set(&format!("g{group}/zarr.json"), GROUP);
        for number in 0..100 {
            set(
                &format!("g{group}/a{number}/zarr.json"),
                document.as_bytes(),
            );
        }
    }
    let store: Arc<dyn Store> = Arc::new(FarStore(memory));
    let stats = Arc::new(Stats::default());
    let hierarchy = Arc::new(Hierarchy::new(store.clone()));
    let limits = Limits {
        memory: 64 << 20,
        max_chunk: 1 << 20,
        timeout: Duration::from_secs(20),
        fetches: 32,
        lossy: false,
    };
    let budget = MemoryBudget::new(limits.memory, stats.clone());
    let engine = Engine::within(budget.clone(), limits, stats, EngineDisk::default());
    OpenedStore {
        arrays: Arc::new(Arrays::new(hierarchy.clone(), engine)),
        stack: StoreStack {
            store,
            hints: Arc::new(NoHints),
            tree: None,
        },
        hierarchy,
        memory: budget,
    }
}

#[test]
fn a_thousand_nodes_take_a_few_round_trips() {
    let config = TreeConfig {
        depth: usize::MAX,
        chunks: 0,
        threads: 32,
    };
    let started = Instant::now();
    let nodes = tree(&opened(), (&Key::root(), "s"), &config).unwrap();
    let took = started.elapsed();
    let arrays = nodes
        .iter()
        .filter(|node| matches!(node.facts, NodeFacts::Array(_)));
    assert_eq!((nodes.len(), arrays.count()), (1011, 1000));
    let paths: Vec<String> = nodes
        .iter()
        .take(4)
        .map(|node| node.path.to_string())
        .collect();
    assert_eq!(paths, ["/", "g0", "g0/a0", "g0/a1"]);
    // One after the other, one request for each node alone would take longer than twice this.
    assert!(took < LATENCY * 500, "{took:?}");
}
