//! Tests `tree` on a store with slow requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use zarr_format::error::Result;
use zarrfs_array::array::{Arrays, Engine, EngineDisk, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_export::inspect::opened_store::OpenedStore;
use zarrfs_export::inspect::tree::tree;
use zarrfs_export::inspect::tree::{NodeFacts, TreeConfig};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Key, Listing, Meta, Name, NoHints, Object, Store, StoreStack};

use crate::inspect::program::{GROUP, array};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

const LATENCY: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Asked {
    /// The number of names that listings have returned.
    names: Arc<AtomicUsize>,
    waiting: AtomicUsize,
    /// The maximum number of requests that waited at the same time.
    most: AtomicUsize,
}

impl Asked {
    /// Counts a request and delays its answer.
    fn wait(&self) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(waiting, Ordering::Relaxed);
        thread::sleep(LATENCY);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A store that delays the answer to every request that a tree needs.
struct FarStore {
    memory: MemoryStore,
    asked: Arc<Asked>,
}

struct CountedListing(Box<dyn Listing>, Arc<AtomicUsize>);

impl Listing for CountedListing {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.next(context)
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.0.seek(context, cursor)
    }
}

impl Layer for FarStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.asked.wait();
        self.memory.get(context, key, limit)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.asked.wait();
        self.memory.head(context, key)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.asked.wait();
        let listing = self.memory.list(context, prefix)?;
        Ok(Box::new(CountedListing(listing, self.asked.names.clone())))
    }
}

/// Returns a store with 10 groups of 100 arrays each, and the counters of requests to it.
fn opened() -> (OpenedStore, Arc<Asked>) {
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
    let asked = Arc::new(Asked::default());
    let store: Arc<dyn Store> = Arc::new(FarStore {
        memory,
        asked: asked.clone(),
    });
    (over(store), asked)
}

/// Opens a store as the commands that inspect stores do.
pub(crate) fn over(store: Arc<dyn Store>) -> OpenedStore {
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
            repository: None,
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
    let (opened, asked) = opened();
    let nodes = tree(&UNLIMITED, &opened, &Key::root(), "s", &config).unwrap();
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
    let most = asked.most.load(Ordering::Relaxed);
    assert!(most >= config.threads / 2, "{most} requests at a time");
}

#[test]
fn a_group_at_the_depth_limit_is_listed_for_one_name() {
    let config = TreeConfig {
        depth: 1,
        chunks: 0,
        threads: 4,
    };
    let (opened, asked) = opened();
    let nodes = tree(&UNLIMITED, &opened, &Key::root(), "s", &config).unwrap();
    let cut = nodes.iter().filter(|node| node.is_cut);
    assert_eq!((nodes.len(), cut.count()), (11, 10));
    let given = asked.names.load(Ordering::Relaxed);
    // The 11 names of the root, the end of its listing, and at most 4 names per group have been listed.
    assert!(given < 12 + 10 * 4, "{given}");
}
