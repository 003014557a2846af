//! What a check asks of a store: listings and documents, and of chunks nothing unless the data are checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use zarrfs::error::Result;
use zarrfs::store::backend::memory::MemoryStore;
use zarrfs::store::layer::Layer;
use zarrfs::store::{ByteRange, Key, Listing, Meta, Object, Reader, Store, Version};

use crate::fixture::{How, run};
use crate::stores::{draft2020, draft2022, n5, sharded, v2_consolidated, v3};

/// A store that notes how often each key was asked about by itself.
struct NotingStore {
    memory: MemoryStore,
    asked: Mutex<BTreeMap<Key, u32>>,
}

impl NotingStore {
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
        self.memory.head(key)
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

/// Returns all keys of a store that are no documents.
fn chunks(store: &MemoryStore, folder: &Key, found: &mut Vec<Key>) {
    let mut listing = store.list(folder).unwrap();
    while let Some(name) = next(&mut *listing) {
        let key = folder.child(&name).unwrap();
        if store.get(&key, u64::MAX).unwrap().is_none() {
            chunks(store, &key, found);
        } else if !zarrfs::model::document::is_document(&name) {
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
        chunks(&memory, &Key::root(), &mut keys);
        assert!(!keys.is_empty(), "{number}");
        for data in [false, true] {
            let asked = Mutex::default();
            let noting = Arc::new(NotingStore {
                memory: memory.clone(),
                asked,
            });
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
