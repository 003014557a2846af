//! Tests concurrent fetches of chunks of texts: their number and their concurrency.
//!
//! The texts must be correct, whatever the lengths of the chunks are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zarr_format::error::Result;
use zarr_format::grid::Region;
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::stats::Stats;
use zarrfs_store::{Key, Meta, Object, Reader, Store, StoreInfo};

use crate::arrays::stored::key;
use crate::arrays::texts::encoded;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// How many concurrent requests the store waits for before it answers any, for at most `PATIENCE`.
const TOGETHER: usize = 8;
const PATIENCE: Duration = Duration::from_millis(500);

type Hook = fn(&MemoryStore);

/// A remote store that delays requests for chunks until `TOGETHER` of them are waiting.
struct Gathering {
    memory: MemoryStore,
    info: StoreInfo,
    /// Number of requests that the store has not answered yet.
    now: Mutex<usize>,
    more: Condvar,
    most: AtomicUsize,
    asked: AtomicUsize,
    /// A function, and the number of the request before which it is called.
    hook: Option<(usize, Hook)>,
}

#[derive(Clone)]
struct GatheringStore(Arc<Gathering>);

impl GatheringStore {
    fn over(memory: MemoryStore) -> GatheringStore {
        GatheringStore(Arc::new(Gathering {
            memory,
            info: StoreInfo::new(Duration::from_secs(60)),
            now: Mutex::default(),
            more: Condvar::new(),
            most: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            hook: None,
        }))
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }
}

impl Gathering {
    /// Counts a request, and delays it until `TOGETHER` requests have been waiting, or for at most `PATIENCE`.
    fn during<T>(&self, request: impl FnOnce() -> T) -> T {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some((_, hook)) = self.hook.filter(|(turn, _)| *turn == asked) {
            hook(&self.memory);
        }
        let mut now = self.now.lock().unwrap();
        *now += 1;
        self.most.fetch_max(*now, Ordering::SeqCst);
        self.more.notify_all();
        let is_alone = |_: &mut usize| self.most.load(Ordering::SeqCst) < TOGETHER;
        let waited = self.more.wait_timeout_while(now, PATIENCE, is_alone);
        drop(waited);
        let answer = request();
        *self.now.lock().unwrap() -= 1;
        answer
    }
}

impl Layer for GatheringStore {
    fn below(&self) -> &dyn Store {
        &self.0.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        // Only metadata documents have a dot in their keys here, and requests for them are not counted.
        if key.to_string().contains('.') {
            return self.0.memory.get(context, key, limit);
        }
        self.0.during(|| self.0.memory.get(context, key, limit))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let (inner, store) = (self.0.memory.open(context, key, known)?, self.0.clone());
        Ok(Arc::new(GatheringReader { inner, store }))
    }

    fn info(&self) -> &StoreInfo {
        &self.0.info
    }
}

struct GatheringReader {
    inner: Arc<dyn Reader>,
    store: Arc<Gathering>,
}

impl Reader for GatheringReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.store
            .during(|| self.inner.read_at(context, offset, len))
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.inner.meta(context)
    }
}

fn texts_of(store: &GatheringStore, memory: u64, stats: &Arc<Stats>) -> Vec<String> {
    let limits = Limits {
        memory,
        max_chunk: 1 << 30,
        timeout: Duration::from_secs(20),
        fetches: 32,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(Arc::new(store.clone())));
    let root = hierarchy.root(&UNLIMITED).unwrap().unwrap();
    let arrays = Arrays::new(hierarchy, Engine::new(limits, stats.clone()));
    let array = arrays.open(&root).unwrap();
    let region = Region::whole(&array.array().shape);
    let records = array.records(&UNLIMITED, &region).unwrap();
    let text = |record: &[u8]| String::from_utf8(record.to_vec()).unwrap();
    records.iter().map(text).collect()
}

fn holding(name: &str, document: &Value) -> MemoryStore {
    let store = MemoryStore::default();
    store.set(key(name), document.to_string().into_bytes());
    store
}

/// Returns a store of `count` chunks with ten texts each, and all texts. The texts of chunk `n` are letters that are
/// repeated `length(n)` times.
fn chunks(count: usize, length: impl Fn(usize) -> usize) -> (MemoryStore, Vec<String>) {
    let document = json!({"zarr_format": 2, "shape": [count * 10], "chunks": [10], "dtype": "|O", "compressor": null,
        "fill_value": "", "order": "C", "filters": [{"id": "vlen-utf8"}]});
    let store = holding(".zarray", &document);
    let mut all = Vec::new();
    for chunk in 0..count {
        let letters = (b'a'..=b'j').map(|letter| char::from(letter).to_string());
        let texts: Vec<String> = letters.map(|letter| letter.repeat(length(chunk))).collect();
        let parts: Vec<&str> = texts.iter().map(String::as_str).collect();
        store.set(key(&chunk.to_string()), encoded(&parts));
        all.extend(texts);
    }
    (store, all)
}

#[test]
fn chunks_of_texts_are_fetched_concurrently() {
    let (memory, expected) = chunks(40, |chunk| chunk % 7);
    let store = GatheringStore::over(memory);
    assert_eq!(texts_of(&store, 64 << 20, &Arc::default()), expected);
    assert_eq!(store.asked(), 40);
    assert!(store.most() >= TOGETHER, "{} at a time", store.most());
}

#[test]
fn a_chunk_longer_than_expected_is_read() {
    let (memory, expected) = chunks(30, |chunk| [1, 20, 9000, 3, 300][chunk % 5] * chunk);
    let store = GatheringStore::over(memory);
    assert_eq!(texts_of(&store, 64 << 20, &Arc::default()), expected);
    // A chunk that is longer than expected is read twice, and a third time if it was evicted before it was used.
    assert!(store.asked() <= 90, "{} requests", store.asked());
}

/// Invariant of `memory_for_leaves_the_requested_memory_after_set_aside`.
#[test]
fn little_memory_fetches_few_chunks_concurrently() {
    let (memory, expected) = chunks(20, |_| 1000);
    let (store, stats) = (GatheringStore::over(memory), Arc::<Stats>::default());
    // Three chunks being decoded fit in a quarter of the memory, and all of the texts in half of it.
    assert_eq!(texts_of(&store, 500_000, &stats), expected);
    let peak = stats.memory_peak_bytes.get();
    assert!(peak <= 500_000, "{peak} bytes");
    assert!((2..=5).contains(&store.most()), "{}", store.most());
}

/// If chunks are replaced during a fetch, the texts of each chunk are all old or all new.
#[test]
fn texts_of_a_chunk_are_never_mixed_with_newer_ones() {
    let (memory, old) = chunks(40, |_| 2);
    let mut store = GatheringStore::over(memory);
    let replace = |memory: &MemoryStore| {
        for chunk in 0..40 {
            memory.set(key(&chunk.to_string()), encoded(&["new"; 10]));
        }
    };
    Arc::get_mut(&mut store.0).unwrap().hook = Some((20, replace));
    let found = texts_of(&store, 64 << 20, &Arc::default());
    let chunks = found.chunks(10).zip(old.chunks(10));
    let is_new: Vec<bool> = chunks
        .map(|(found, old)| {
            let is_new = found == ["new"; 10];
            assert!(is_new || found == old, "{found:?}");
            is_new
        })
        .collect();
    assert!(is_new.contains(&true) && is_new.contains(&false));
}

#[test]
fn inner_chunks_of_a_shard_are_fetched_together() {
    let document = json!({"zarr_format": 3, "node_type": "array", "shape": [400], "data_type": "string",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [40]}}, "fill_value": "",
        "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "sharding_indexed", "configuration":
        {"chunk_shape": [2], "codecs": [{"name": "vlen-utf8"}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]});
    let memory = holding("zarr.json", &document);
    let inner = encoded(&["one", "two"]);
    let entry = |number: u64| [number * inner.len() as u64, inner.len() as u64];
    let index: Vec<u8> = (0..20)
        .flat_map(|number| entry(number).map(u64::to_le_bytes))
        .flatten()
        .collect();
    for shard in 0..10 {
        memory.set(
            key(&format!("c/{shard}")),
            [inner.repeat(20), index.clone()].concat(),
        );
    }
    let store = GatheringStore::over(memory);
    let found = texts_of(&store, 64 << 20, &Arc::default());
    assert_eq!(found, ["one", "two"].repeat(200));
    // Each shard needs two requests (the index and a run of inner chunks). A few more tell the length of the first
    // inner chunk.
    assert!(store.asked() <= 24, "{} requests", store.asked());
    assert!(store.most() >= TOGETHER, "{} at a time", store.most());
}
