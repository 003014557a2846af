//! Tests that a rebuild stops reading documents when their copies exceed the maximum document length.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zarr_format::dialect::consolidated::ConsolidatedDocument;
use zarr_format::error::{Kind, Result};
use zarrfs_array::hierarchy::Hierarchy;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::{Key, Object, Store};

use crate::dialects::hierarchies::key;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

struct CountingStore {
    memory: MemoryStore,
    read: AtomicU64,
}

impl Layer for CountingStore {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let found = self.memory.get(context, key, limit)?;
        let length = found.as_ref().map_or(0, |object| object.bytes.len());
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(found)
    }
}

#[test]
fn consolidation_stops_reading_at_the_longest_document() {
    const LENGTH: usize = 4 << 20;
    const LONGEST: u64 = 64 << 20;
    const THREADS: usize = 2;
    let memory = MemoryStore::default();
    let text = [br#"{"a":""#, "x".repeat(LENGTH).as_bytes(), br#""}"#].concat();
    let names: Vec<String> = (0..24).map(|number| format!("{number}/.zattrs")).collect();
    for name in &names {
        memory.set(key(name), text.clone());
    }
    let store = Arc::new(CountingStore {
        memory,
        read: AtomicU64::new(0),
    });
    let hierarchy = Hierarchy::new(store.clone());
    let holder = ConsolidatedDocument::of_v2(&Key::root()).unwrap();
    let documents = names.iter().map(|name| (name.clone(), key(name)));
    let refused = hierarchy.reconsolidate(&UNLIMITED, &holder, documents, THREADS);
    assert_eq!(refused.unwrap_err().kind(), Kind::TooLarge);
    let read = store.read.load(Ordering::Relaxed);
    let most = LONGEST + (THREADS + 1) as u64 * (LENGTH as u64 + 100);
    assert!(read <= most, "{read} bytes");
}
