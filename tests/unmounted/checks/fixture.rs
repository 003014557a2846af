//! Helps tests to check a store in the process of the test.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use zarr_check::{CheckContext, CheckSummary, Finding, check};
use zarrfs_array::array::{Arrays, Engine, EngineDisk, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::request_context::UNLIMITED;
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{Key, Store, StoreConfig};

/// The options of a check that differ between tests.
#[derive(Clone, Copy, Default)]
pub(crate) struct How {
    pub(crate) data: bool,
    pub(crate) is_remote: bool,
}

/// The memory budget in bytes of a check in the tests.
pub(crate) const MEMORY: u64 = 64 << 20;

pub(crate) fn context(store: Arc<dyn Store>, how: How) -> CheckContext {
    context_of(Hierarchy::new(store), how)
}

fn context_of(hierarchy: Hierarchy, how: How) -> CheckContext {
    let stats = Arc::new(Stats::default());
    let memory = MemoryBudget::new(MEMORY, stats.clone());
    let limits = Limits {
        memory: MEMORY,
        max_chunk: 16 << 20,
        timeout: Duration::from_secs(20),
        fetches: 0,
        lossy: false,
    };
    let hierarchy = Arc::new(hierarchy.within(&memory));
    let engine = Engine::within(memory.clone(), limits, stats, EngineDisk::default());
    CheckContext {
        arrays: Arc::new(Arrays::new(hierarchy.clone(), engine)),
        hierarchy,
        memory,
        data: how.data,
        is_remote: how.is_remote,
        threads: 2,
        notes: |_, _| Vec::new(),
        progress: Arc::default(),
    }
}

/// Checks a store. Returns all findings, and the numbers of nodes and findings.
pub(crate) fn run(store: Arc<dyn Store>, how: How) -> (Vec<Finding>, CheckSummary) {
    run_in(&context(store, how))
}

/// Checks a store with a metadata cache above it, as it is done for a remote store.
pub(crate) fn run_cached(store: Arc<dyn Store>, data: bool) -> (Vec<Finding>, CheckSummary) {
    let cache = Arc::new(MetadataCache::new(store, &MetadataCacheConfig::default()));
    cache.list_root(&UNLIMITED);
    let hierarchy = Hierarchy::new(cache.clone()).with_hints(cache);
    let is_remote = true;
    run_in(&context_of(hierarchy, How { data, is_remote }))
}

fn run_in(context: &CheckContext) -> (Vec<Finding>, CheckSummary) {
    let mut findings = Vec::new();
    let start = context
        .hierarchy
        .node(&UNLIMITED, &Key::root())
        .unwrap()
        .unwrap();
    let summary = check(context, &start, &mut |finding| {
        findings.push(finding.clone())
    });
    (findings, summary)
}

pub(crate) fn open(path: &Path) -> Arc<dyn Store> {
    let stats = Arc::new(Stats::default());
    zarrfs_store::open(
        &UNLIMITED,
        path.to_str().unwrap(),
        &StoreConfig::default(),
        &stats,
    )
    .unwrap()
}
