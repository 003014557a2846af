//! What a check asks of a store: listings and documents, and of chunks nothing unless the data are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use zarrfs::check::Finding;
use zarrfs::error::Result;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::layer::Layer;
use zarrfs::store::{ByteRange, FlatListing, Key, Listing, Meta, Object, Reader, Store, Version};

use crate::fixture::{How, run};
use crate::stores::{
    draft2020, draft2022, n5, plain, plain_array, put, sharded, v2_consolidated, v3,
};

/// A store that notes how often each key was asked about by itself.
struct NotingStore {
    memory: MemoryStore,
    asked: Mutex<BTreeMap<Key, u32>>,
    /// How often for its metadata.
    headed: Mutex<BTreeMap<Key, u32>>,
    /// Whether all names below a prefix come in one listing, with their metadata, as from a bucket.
    is_flat: bool,
}

/// A flat listing of one page.
struct OnePage(Option<Vec<(Key, Meta)>>);

impl FlatListing for OnePage {
    fn next(&mut self) -> Result<Option<Vec<(Key, Meta)>>> {
        Ok(self.0.take())
    }

    fn has_ended(&self) -> bool {
        self.0.is_none()
    }
}

impl NotingStore {
    fn new(memory: &MemoryStore, is_flat: bool) -> Arc<NotingStore> {
        Arc::new(NotingStore {
            memory: memory.clone(),
            asked: Mutex::default(),
            headed: Mutex::default(),
            is_flat,
        })
    }

    fn note(&self, key: &Key) {
        *self.asked.lock().entry(key.clone()).or_default() += 1;
    }
}

impl Layer for NotingStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.note(key);
        self.memory.get(key, limit)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        self.note(key);
        self.memory.get_range(key, range)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        self.note(key);
        *self.headed.lock().entry(key.clone()).or_default() += 1;
        self.memory.head(key)
    }

    fn list_all(&self, prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        if !self.is_flat {
            return Ok(None);
        }
        let mut keys = Vec::new();
        keys_below(&self.memory, prefix, &mut keys);
        let with_meta = |key: Key| (self.memory.head(&key).unwrap().unwrap(), key);
        let page = keys
            .into_iter()
            .map(with_meta)
            .map(|(meta, key)| (key, meta));
        Ok(Some(Box::new(OnePage(Some(page.collect())))))
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        self.note(key);
        self.memory.version(key)
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        self.note(key);
        self.memory.open(key, known)
    }
}

/// Finds all keys of a store below a folder.
fn keys_below(store: &MemoryStore, folder: &Key, found: &mut Vec<Key>) {
    let mut listing = store.list(folder).unwrap();
    while let Some(name) = next(&mut *listing) {
        let key = folder.child(&name).unwrap();
        if store.get(&key, u64::MAX).unwrap().is_none() {
            keys_below(store, &key, found);
        } else {
            found.push(key);
        }
    }
}

fn next(listing: &mut dyn Listing) -> Option<Vec<u8>> {
    listing.next().unwrap().map(|name| name.name)
}

#[test]
fn chunks_are_asked_about_only_where_data_are_checked() {
    let stores: [fn() -> MemoryStore; 6] = [v3, v2_consolidated, draft2020, draft2022, n5, sharded];
    for (number, store) in stores.into_iter().enumerate() {
        let memory = store();
        let mut keys = Vec::new();
        keys_below(&memory, &Key::root(), &mut keys);
        keys.retain(|key| !zarrfs::model::document::is_document(key.name()));
        assert!(!keys.is_empty(), "{number}");
        for data in [false, true] {
            let noting = NotingStore::new(&memory, false);
            let is_remote = true;
            let how = How { data, is_remote };
            run(noting.clone(), how);
            let asked = noting.asked.lock();
            for key in &keys {
                assert_eq!(asked.contains_key(key), data, "{number}: {key}");
            }
        }
    }
}

#[test]
fn a_document_whose_length_was_listed_is_asked_for_once_more_and_not_twice() {
    for (store, path) in [
        (v3 as fn() -> MemoryStore, "a/b/zarr.json"),
        (n5, "a/b/attributes.json"),
    ] {
        let noting = NotingStore::new(&store(), true);
        let is_remote = true;
        run(
            noting.clone(),
            How {
                data: false,
                is_remote,
            },
        );
        let key = Key::new(path).unwrap();
        assert_eq!(noting.headed.lock().get(&key), None, "{path}");
    }
}

/// Codecs of shards within shards, down to chunks of one byte; each level has two inner chunks.
fn nested_sharding(levels: u32) -> Value {
    (0..levels).fold(json!([{"name": "bytes"}]), |codecs, level| {
        json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1_u64 << level], "codecs": codecs, "index_location": "end",
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }}])
    })
}

#[test]
fn entries_that_name_the_same_bytes_do_not_multiply() {
    const LEVELS: u32 = 7;
    // Both entries of an index name what lies before it, which is a shard with such an index.
    let mut shard = vec![7];
    for _ in 0..LEVELS {
        let entry = [0, shard.len() as u64];
        shard.extend(
            [entry, entry]
                .iter()
                .flatten()
                .flat_map(|number| number.to_le_bytes()),
        );
    }
    let length = 1_u64 << LEVELS;
    for data in [false, true] {
        let memory = plain(nested_sharding(LEVELS), &[]);
        let document = plain_array(json!([length]), json!([length]), nested_sharding(LEVELS));
        put(&memory, "zarr.json", document);
        memory.set(Key::new("c/0").unwrap(), shard.clone());
        let noting = NotingStore::new(&memory, false);
        let is_remote = false;
        let (found, _) = run(noting.clone(), How { data, is_remote });
        let asked = noting.asked.lock();
        let reads = asked[&Key::new("c/0").unwrap()];
        assert!(reads <= 2 * LEVELS, "{reads}");
        let told = found
            .iter()
            .filter(|finding| finding.code == "shard-overlap");
        let told: Vec<&Finding> = told.collect();
        assert_eq!(told.len(), LEVELS as usize, "{found:#?}");
        let expected =
            "inner chunk 0 and inner chunk 1 in the same bytes; inner chunk 1 is not read";
        assert!(
            told.iter().all(|finding| finding.found == expected),
            "{told:#?}"
        );
    }
}
