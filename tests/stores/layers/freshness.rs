//! Checks that a change by another program shows within one TTL.
//!
//! This must be true for all caches together: decoded chunks, nodes, the metadata cache and the disk cache, of this
//! mount and of other mounts.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use zarr_format::error::{Kind, Result};
use zarrfs::view::files::FilesView;
use zarrfs::view::store::StoreView;
use zarrfs::view::{OpenedFile, View};
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::disk_cache::{CacheDir, CacheNamespace, DiskCache};
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::request_context::{RequestContext, UNLIMITED, WITHOUT_WAITING};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::clock::Clock;
use zarrfs_store::{Key, Listing, Name, Store, StoreInfo};

/// The TTL of an answer. Only the test moves the clock.
const FRESHNESS: Duration = Duration::from_secs(1000);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A remote store in memory, which another program changes.
struct Outside {
    memory: MemoryStore,
    info: StoreInfo,
}

impl Layer for Outside {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    /// Lists names with their kinds and versions, as a bucket does.
    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let (inner, memory) = (self.memory.list(context, prefix)?, self.memory.clone());
        let prefix = prefix.clone();
        Ok(Box::new(Told {
            inner,
            memory,
            prefix,
        }))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

struct Told {
    inner: Box<dyn Listing>,
    memory: MemoryStore,
    prefix: Key,
}

impl Listing for Told {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        let Some(mut name) = self.inner.next(context)? else {
            return Ok(None);
        };
        name.meta = self.memory.head(context, &self.prefix.child(&name.name)?)?;
        Ok(Some(name))
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.inner.seek(context, cursor)
    }
}

/// The caches and views of a mount.
struct Stack {
    cache: Arc<dyn Store>,
    stored: StoreView,
    files: FilesView,
    /// The array's decoded file, which stays open over changes.
    held: Option<OpenedFile>,
}

impl Stack {
    fn new(outside: &Arc<Outside>, folder: &Path) -> Stack {
        let stats = Arc::new(Stats::default());
        let folder = CacheDir::open(folder, 64 << 20, &stats).unwrap();
        let disk = CacheNamespace::open(&folder, "outside");
        let disk = Arc::new(DiskCache::new(outside.clone(), disk));
        let config = MetadataCacheConfig {
            ttl: FRESHNESS,
            ..MetadataCacheConfig::default()
        };
        let cache = Arc::new(MetadataCache::new(disk, &config));
        let limits = Limits {
            memory: 64 << 20,
            max_chunk: 16 << 20,
            timeout: Duration::from_secs(20),
            fetches: 4,
            lossy: false,
        };
        let hierarchy = Arc::new(Hierarchy::new(cache.clone()).with_hints(cache.clone()));
        let arrays = Arrays::new(hierarchy.clone(), Engine::new(limits, stats));
        Stack {
            stored: StoreView::new(cache.clone()),
            files: FilesView::new(hierarchy, arrays, "sample", &crate::common::every_form()),
            cache,
            held: None,
        }
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let open = self.files.open(&UNLIMITED, &key(path)).unwrap();
        open.file.read_at(&UNLIMITED, 0, 1 << 16).unwrap().to_vec()
    }

    /// Reads the array through its open file: first without waiting for the store, as the kernel does.
    fn read_held(&mut self) -> Vec<u8> {
        let open = || self.files.open(&UNLIMITED, &key("a/a.raw")).unwrap();
        let held = self.held.get_or_insert_with(open);
        match held.file.read_at(&WITHOUT_WAITING, 0, 4) {
            Ok(bytes) => bytes.to_vec(),
            Err(_) => held.file.read_at(&UNLIMITED, 0, 4).unwrap().to_vec(),
        }
    }
}

/// The time and the number of each change of the store.
type History = Vec<(Duration, u8)>;

struct World {
    outside: Arc<Outside>,
    start: Instant,
    history: History,
    folder: tempfile::TempDir,
    stack: Stack,
}

impl World {
    fn new() -> World {
        let memory = MemoryStore::default();
        let info = StoreInfo {
            clock: Clock::stopped(),
            ..StoreInfo::new(FRESHNESS)
        };
        let outside = Arc::new(Outside { memory, info });
        let folder = tempfile::tempdir().unwrap();
        let mut world = World {
            start: outside.info.clock.now(),
            stack: Stack::new(&outside, folder.path()),
            outside,
            history: Vec::new(),
            folder,
        };
        let root = br#"{"zarr_format": 3, "node_type": "group"}"#;
        world.outside.memory.set(key("zarr.json"), root.to_vec());
        world.change();
        world
    }

    fn now(&self) -> Duration {
        self.outside.info.clock.now() - self.start
    }

    /// Changes a document, an object and two chunks, as another program does. One of the chunks and a node are added or
    /// removed.
    fn change(&mut self) {
        let number = self.history.len() as u8 + 1;
        let memory = &self.outside.memory;
        let array = json!({
            "zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "uint8",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0,
            "codecs": ["bytes"], "attributes": {"number": number},
        });
        let documents = ["a/zarr.json", "b/zarr.json"].map(key);
        memory.set(documents[0].clone(), array.to_string().into_bytes());
        memory.set(key("a/c/0"), vec![number; 2]);
        memory.set(key("object"), vec![0; usize::from(number)]);
        if number.is_multiple_of(2) {
            memory.erase(&key("a/c/1"));
            memory.erase(&documents[1]);
        } else {
            memory.set(key("a/c/1"), vec![number; 2]);
            memory.set(documents[1].clone(), array.to_string().into_bytes());
        }
        self.history.push((self.now(), number));
    }

    /// Checks that `fits` is true for the state that the store has, or had at most one TTL before. `fresh` shortens
    /// this TTL.
    fn check(&self, fresh: Duration, what: &str, fits: impl Fn(u8) -> bool) {
        let until = self.now() + fresh;
        let replaced = self.history.iter().skip(1).map(|(time, _)| Some(*time));
        let mut changes = self.history.iter().zip(replaced.chain([None]));
        let counts = |replaced: Option<Duration>| replaced.is_none_or(|at| at + FRESHNESS >= until);
        let is_seen = changes.any(|((_, number), replaced)| fits(*number) && counts(replaced));
        let (now, history) = (self.now(), &self.history);
        assert!(is_seen, "{what} at {now:?} for {fresh:?}: {history:?}");
    }

    fn check_array(&self, read: &[u8], what: &str) {
        self.check(Duration::ZERO, what, |number| read[0] == number);
        // The second chunk is missing after every other change, and is then read as zeros.
        let second = |number: u8| number * (number % 2);
        self.check(Duration::ZERO, what, |number| read[2] == second(number));
    }

    fn look(&mut self, look: Look) {
        match look {
            Look::Array => self.check_array(&self.stack.read("a/a.raw"), "array"),
            Look::Held => {
                let read = self.stack.read_held();
                self.check_array(&read, "held");
            }
            Look::Attributes => {
                let text = self.stack.read("a/attributes.json");
                let document: Value = serde_json::from_slice(&text).unwrap();
                let found = document["number"].as_u64().unwrap();
                self.check(Duration::ZERO, "attributes", |number| {
                    u64::from(number) == found
                });
            }
            Look::Node => {
                let found = self
                    .stack
                    .files
                    .lookup(&UNLIMITED, &key("b/b.npy"))
                    .unwrap();
                let fresh = found.map_or(Duration::ZERO, |attr| attr.ttl);
                let is_there = found.is_some();
                self.check(fresh, "node", |number| (number % 2 == 1) == is_there);
            }
            Look::Object => {
                let attr = self
                    .stack
                    .stored
                    .lookup(&UNLIMITED, &key("object"))
                    .unwrap()
                    .unwrap();
                self.check(attr.ttl, "object", |number| u64::from(number) == attr.size);
                let known = self.stack.stored.lookup(&WITHOUT_WAITING, &key("object"));
                if let Ok(Some(attr)) = known {
                    self.check(attr.ttl, "object now", |number| {
                        u64::from(number) == attr.size
                    });
                }
                let file = self
                    .stack
                    .stored
                    .open(&UNLIMITED, &key("object"))
                    .unwrap()
                    .file;
                match file.read_at(&UNLIMITED, 0, 1000) {
                    Ok(read) => self.check(Duration::ZERO, "opened", |number| {
                        usize::from(number) == read.len()
                    }),
                    Err(error) => assert_eq!(error.kind(), Kind::Changed),
                }
            }
        }
    }

    /// Makes one request through the caches, so that their answers differ in age.
    fn warm(&mut self, warm: Warm) {
        let cache = &self.stack.cache;
        match warm {
            Warm::List(place) => {
                let Ok(mut names) = cache.list(&UNLIMITED, &key(["", "a", "a/c"][place])) else {
                    return;
                };
                while names.next(&UNLIMITED).unwrap().is_some() {}
            }
            Warm::Head(place) => drop(cache.head(&UNLIMITED, &key(KEYS[place])).unwrap()),
            Warm::Version(place) => drop(cache.version(&UNLIMITED, &key(KEYS[place])).unwrap()),
            Warm::Get(place) => drop(cache.get(&UNLIMITED, &key(KEYS[place]), 1 << 20).unwrap()),
            Warm::Mount => self.stack = Stack::new(&self.outside, self.folder.path()),
        }
    }
}

const KEYS: [&str; 6] = [
    "a",
    "a/zarr.json",
    "a/c/0",
    "a/c/1",
    "object",
    "b/zarr.json",
];

#[derive(Clone, Copy, Debug)]
enum Look {
    Array,
    Held,
    Attributes,
    Node,
    Object,
}

#[derive(Clone, Copy, Debug)]
enum Warm {
    List(usize),
    Head(usize),
    Version(usize),
    Get(usize),
    /// Opens a new mount with the same disk cache.
    Mount,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Change,
    /// Moves the clock. The unit is a hundredth of the TTL.
    Wait(u32),
    Look(Look),
    Warm(Warm),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let looks = prop::sample::select(vec![
        Look::Array,
        Look::Held,
        Look::Attributes,
        Look::Node,
        Look::Object,
    ]);
    let warm = prop_oneof![
        2 => (0usize..3).prop_map(Warm::List),
        1 => (0..KEYS.len()).prop_map(Warm::Head),
        1 => (0..KEYS.len()).prop_map(Warm::Version),
        1 => (0..KEYS.len()).prop_map(Warm::Get),
        1 => Just(Warm::Mount),
    ];
    let step = prop_oneof![
        1 => Just(Step::Change),
        3 => (5u32..60).prop_map(Step::Wait),
        3 => looks.prop_map(Step::Look),
        2 => warm.prop_map(Step::Warm),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Invariant (caches): Changes by others are visible after one TTL, whichever cache has the old answer.
    #[test]
    fn a_change_is_seen_within_one_ttl(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Change if world.history.len() < 250 => world.change(),
                Step::Change => {}
                Step::Wait(part) => world.outside.info.clock.advance(FRESHNESS * part / 100),
                Step::Look(look) => world.look(look),
                Step::Warm(warm) => world.warm(warm),
            }
        }
    }
}
