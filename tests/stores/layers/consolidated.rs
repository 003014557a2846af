//! Caches consolidated metadata of a store that cannot list, for one TTL.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use zarr_format::error::Result;
use zarrfs::view::View;
use zarrfs::view::files::FilesView;
use zarrfs::view::store_without_listing::StoreWithoutListing;
use zarrfs_array::array::{Arrays, Engine, Limits};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::clock::Clock;
use zarrfs_store::{EntryKind, Key, Meta, Object, Store, StoreInfo};

/// The TTL of an answer. Only the test moves the clock.
const FRESHNESS: Duration = Duration::from_secs(1000);

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A store that cannot list and has no folders, and logs its requests.
struct Unlisted {
    memory: MemoryStore,
    info: StoreInfo,
    asked: Mutex<Vec<String>>,
}

impl Unlisted {
    fn note(&self, key: &Key) {
        self.asked.lock().unwrap().push(key.to_string());
    }
}

impl Layer for Unlisted {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.note(key);
        self.memory.get(context, key, limit)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.note(key);
        let meta = self.memory.head(context, key)?;
        Ok(meta.filter(|meta| meta.kind == EntryKind::File))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// Returns the key and the text of consolidated metadata with the given arrays.
fn consolidated(version: u8, names: &[&str]) -> (Key, Vec<u8>) {
    let mut copies = serde_json::Map::new();
    for name in names {
        let (document, copy) = match version {
            2 => (
                format!("{name}/.zarray"),
                json!({"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": "|u1",
                    "compressor": null, "fill_value": 0, "order": "C", "filters": null}),
            ),
            _ => (
                name.to_string(),
                json!({"zarr_format": 3, "node_type": "array", "shape": [2], "data_type": "uint8",
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
                    "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": ["bytes"]}),
            ),
        };
        copies.insert(document, copy);
    }
    let (name, text) = if version == 2 {
        copies.insert(".zgroup".to_string(), json!({"zarr_format": 2}));
        (
            ".zmetadata",
            json!({"zarr_consolidated_format": 1, "metadata": copies}),
        )
    } else {
        let member = json!({"kind": "inline", "must_understand": false, "metadata": copies});
        (
            "zarr.json",
            json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": member}),
        )
    };
    (key(name), text.to_string().into_bytes())
}

fn folders(view: &dyn View) -> Vec<String> {
    let mut listing = view.list(&UNLIMITED, &Key::root()).unwrap();
    let mut names = Vec::new();
    while let Some(name) = listing.next(&UNLIMITED).unwrap() {
        if name.kind == EntryKind::Directory {
            names.push(String::from_utf8(name.name).unwrap());
        }
    }
    names
}

fn views(store: &Arc<Unlisted>) -> [Box<dyn View>; 2] {
    let config = MetadataCacheConfig {
        ttl: FRESHNESS,
        ..MetadataCacheConfig::default()
    };
    let cache = Arc::new(MetadataCache::new(store.clone(), &config));
    let limits = Limits {
        memory: 64 << 20,
        max_chunk: 16 << 20,
        timeout: Duration::from_secs(20),
        fetches: 4,
        lossy: false,
    };
    let hierarchy = Arc::new(Hierarchy::new(cache.clone()).with_hints(cache.clone()));
    let arrays = Arrays::new(
        hierarchy.clone(),
        Engine::new(limits, Arc::new(Stats::default())),
    );
    let stored = StoreWithoutListing::new(cache, None, hierarchy.clone());
    let files = FilesView::new(hierarchy, arrays, "sample", &[]);
    [Box::new(stored), Box::new(files)]
}

#[test]
fn changed_consolidated_metadata_are_seen_within_one_ttl() {
    for version in [2, 3] {
        let info = StoreInfo {
            lists: false,
            clock: Clock::stopped(),
            ..StoreInfo::new(FRESHNESS)
        };
        let store = Arc::new(Unlisted {
            memory: MemoryStore::default(),
            info,
            asked: Mutex::default(),
        });
        let put = |names: &[&str]| {
            let (key, text) = consolidated(version, names);
            store.memory.set(key, text);
        };
        put(&["a"]);
        let views = views(&store);
        let shown = || views.each_ref().map(|view| folders(&**view));
        assert_eq!(shown(), [["a"]; 2]);
        put(&["a", "b"]);
        store.asked.lock().unwrap().clear();
        store.info.clock.advance(FRESHNESS - Duration::from_secs(1));
        assert_eq!(shown(), [["a"]; 2], "remembered");
        assert_eq!(*store.asked.lock().unwrap(), [] as [String; 0]);
        store.info.clock.advance(Duration::from_secs(1));
        assert_eq!(shown(), [["a", "b"]; 2]);
        assert!(views[0].lookup(&UNLIMITED, &key("b")).unwrap().is_some());
        let asked = match version {
            2 => vec!["zarr.json", ".zmetadata"],
            _ => vec!["zarr.json"],
        };
        assert_eq!(*store.asked.lock().unwrap(), asked);
    }
}
