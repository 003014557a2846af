//! Counts the requests of a check, which reads chunks only with `--data`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use zarr_check::Finding;
use zarr_format::error::Result;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{
    ByteRange, FlatListing, Key, Listing, Meta, Name, Object, Reader, Store, Version,
};

use crate::checks::fixture::{How, run, run_cached};
use crate::checks::stores::{
    draft2020, draft2022, n5, plain, plain_array, put, sharded, v2, v2_consolidated, v3,
};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

struct NotingStore {
    memory: MemoryStore,
    asked: Mutex<BTreeMap<Key, u32>>,
    headed: Mutex<BTreeMap<Key, u32>>,
    /// The prefixes that were listed; the flag is true for a recursive listing.
    listed: Mutex<Vec<(Key, bool)>>,
    /// Whether the store lists recursively in one request and returns metadata with the names, as S3 does.
    is_flat: bool,
}

/// A listing that returns the metadata of the objects with their names.
struct WithMeta {
    memory: MemoryStore,
    prefix: Key,
    listing: Box<dyn Listing>,
}

impl Listing for WithMeta {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        let Some(mut name) = self.listing.next(context)? else {
            return Ok(None);
        };
        name.meta = self.memory.head(context, &self.prefix.child(&name.name)?)?;
        Ok(Some(name))
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.listing.seek(context, cursor)
    }
}

/// A recursive listing that returns all keys in a single page.
struct OnePage(Option<Vec<(Key, Meta)>>);

impl FlatListing for OnePage {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
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
            listed: Mutex::default(),
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

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.note(key);
        self.memory.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.note(key);
        self.memory.get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.note(key);
        *self.headed.lock().entry(key.clone()).or_default() += 1;
        self.memory.head(context, key)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.listed.lock().push((prefix.clone(), false));
        let listing = self.memory.list(context, prefix)?;
        if !self.is_flat {
            return Ok(listing);
        }
        let (memory, prefix) = (self.memory.clone(), prefix.clone());
        Ok(Box::new(WithMeta {
            memory,
            prefix,
            listing,
        }))
    }

    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        if !self.is_flat {
            return Ok(None);
        }
        self.listed.lock().push((prefix.clone(), true));
        let mut keys = Vec::new();
        keys_below(&self.memory, prefix, &mut keys);
        keys.sort();
        let with_meta = |key: Key| (self.memory.head(context, &key).unwrap().unwrap(), key);
        let page = keys
            .into_iter()
            .map(with_meta)
            .map(|(meta, key)| (key, meta));
        Ok(Some(Box::new(OnePage(Some(page.collect())))))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.note(key);
        self.memory.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.note(key);
        self.memory.open(context, key, known)
    }
}

fn keys_below(store: &MemoryStore, folder: &Key, found: &mut Vec<Key>) {
    let mut listing = store.list(&UNLIMITED, folder).unwrap();
    while let Some(name) = next(&mut *listing) {
        let key = folder.child(&name).unwrap();
        if store.get(&UNLIMITED, &key, u64::MAX).unwrap().is_none() {
            keys_below(store, &key, found);
        } else {
            found.push(key);
        }
    }
}

fn next(listing: &mut dyn Listing) -> Option<Vec<u8>> {
    listing.next(&UNLIMITED).unwrap().map(|name| name.name)
}

/// Invariant of `each_kind_of_damage_is_found`.
#[test]
fn chunks_are_requested_only_if_data_are_checked() {
    let stores: [fn() -> MemoryStore; 6] = [v3, v2_consolidated, draft2020, draft2022, n5, sharded];
    for (number, store) in stores.into_iter().enumerate() {
        let memory = store();
        let mut keys = Vec::new();
        keys_below(&memory, &Key::root(), &mut keys);
        keys.retain(|key| !zarr_format::model::document::is_document(key.name()));
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
fn a_document_of_listed_length_takes_no_head_request() {
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

/// Returns a store with two groups, each with thirty copies of the array `a/b` of another store, and the keys of all
/// documents.
fn many_arrays(store: &MemoryStore) -> (MemoryStore, Vec<Key>) {
    let memory = MemoryStore::default();
    let mut keys = Vec::new();
    keys_below(store, &Key::root(), &mut keys);
    let array = Key::new("a/b").unwrap();
    for key in keys {
        let bytes = store
            .get(&UNLIMITED, &key, u64::MAX)
            .unwrap()
            .unwrap()
            .bytes;
        let copies: Vec<String> = match key.below(&array) {
            None if key.to_string().starts_with("a/") => {
                let name = String::from_utf8(key.name().to_vec()).unwrap();
                (0..2).map(|group| format!("g{group}/{name}")).collect()
            }
            None => vec![key.to_string()],
            Some(rest) => (0..60)
                .map(|number| format!("g{}/x{number}/{rest}", number % 2))
                .collect(),
        };
        for copy in copies {
            memory.set(Key::new(copy).unwrap(), bytes.clone());
        }
    }
    let mut documents = Vec::new();
    keys_below(&memory, &Key::root(), &mut documents);
    documents.retain(|key| zarr_format::model::document::is_document(key.name()));
    (memory, documents)
}

#[test]
fn a_check_on_a_network_requests_documents_and_two_listings() {
    let stores: [(fn() -> MemoryStore, usize); 3] = [(v3, 63), (v2, 123), (n5, 61)];
    for (store, count) in stores {
        let (memory, documents) = many_arrays(&store());
        assert_eq!(documents.len(), count);
        let noting = NotingStore::new(&memory, true);
        let (found, summary) = run_cached(noting.clone(), false);
        assert_eq!(summary.arrays, 60, "{found:#?}");
        let asked = noting.asked.lock();
        let expected: BTreeMap<Key, u32> = documents.into_iter().map(|key| (key, 1)).collect();
        assert_eq!(*asked, expected);
        let root = Key::root();
        assert_eq!(*noting.listed.lock(), [(root.clone(), false), (root, true)]);
    }
}

#[test]
fn findings_do_not_depend_on_how_the_store_is_listed() {
    for store in [v3, v2, v2_consolidated, draft2020, draft2022, n5, sharded] {
        let memory: MemoryStore = store();
        memory.set(Key::new("a/b/c/99").unwrap(), vec![1]);
        memory.set(Key::new("a/orphan").unwrap(), vec![1]);
        memory.set(Key::new("data/root/a/orphan").unwrap(), vec![1]);
        let is_remote = true;
        let how = How {
            data: false,
            is_remote,
        };
        let lines =
            |found: Vec<Finding>| -> Vec<String> { found.iter().map(Finding::to_text).collect() };
        let (plain, _) = run(NotingStore::new(&memory, true), how);
        let (cached, _) = run_cached(NotingStore::new(&memory, true), false);
        assert!(!plain.is_empty());
        assert_eq!(lines(plain), lines(cached));
    }
}

/// Returns a codec chain of `levels` nested shards, each with two inner chunks. The chunks of the lowest level have one
/// byte.
fn nested_sharding(levels: u32) -> Value {
    (0..levels).fold(json!([{"name": "bytes"}]), |codecs, level| {
        json!([{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1_u64 << level], "codecs": codecs, "index_location": "end",
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }}])
    })
}

/// Invariant of `each_kind_of_damage_is_found`.
#[test]
fn index_entries_with_the_same_bytes_are_read_once() {
    const LEVELS: u32 = 7;
    // Both entries of the index refer to all bytes before it, which are a shard with the same kind of index.
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
        let expected = "inner chunk 0 and inner chunk 1 overlap in ";
        assert!(
            told.iter()
                .all(|finding| finding.message.starts_with(expected)),
            "{told:#?}"
        );
    }
}
