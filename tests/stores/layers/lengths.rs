//! Tests that a truncated answer of a server is an error, never the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use zarr_format::error::{Kind, Result};
use zarrfs::view::View;
use zarrfs::view::store::StoreView;
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::disk_cache::{CacheDir, CacheNamespace, DiskCache};
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::layer::readahead::{ReadaheadConfig, ReadaheadStore};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::stats::Stats;
use zarrfs_store::sync::budget::MemoryBudget;
use zarrfs_store::{
    ByteRange, EntryKind, Key, Listing, Meta, Name, Object, Reader, Store, StoreInfo,
};

const LENGTH: u64 = 1000;

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// A server behind a proxy that truncates each body to half while `cuts` is set. Heads and listings are correct, but an
/// answer with a body states the truncated length.
#[derive(Clone)]
struct Proxied {
    memory: MemoryStore,
    cuts: Arc<AtomicBool>,
    info: StoreInfo,
}

impl Proxied {
    fn new() -> Proxied {
        let memory = MemoryStore::default();
        for name in ["a/zarr.json", "a/0", "a/1"] {
            memory.set(key(name), vec![7; LENGTH as usize]);
        }
        Proxied {
            memory,
            cuts: Arc::new(AtomicBool::new(true)),
            info: StoreInfo::new(Duration::from_secs(1000)),
        }
    }

    fn cut(&self, object: Option<Object>) -> Option<Object> {
        let mut object = object?;
        if self.cuts.load(Ordering::SeqCst) {
            object.size /= 2;
            object.bytes.truncate((LENGTH / 2) as usize);
        }
        Some(object)
    }
}

impl Layer for Proxied {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        Ok(self.cut(self.memory.get(context, key, limit)?))
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        Ok(self.cut(self.memory.get_range(context, key, range)?))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        self.memory.open(context, key, known)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let (inner, store) = (self.memory.list(context, prefix)?, self.memory.clone());
        let prefix = prefix.clone();
        Ok(Box::new(Told {
            inner,
            store,
            prefix,
        }))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// A listing that contains the sizes of objects.
struct Told {
    inner: Box<dyn Listing>,
    store: MemoryStore,
    prefix: Key,
}

impl Listing for Told {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        let Some(mut name) = self.inner.next(context)? else {
            return Ok(None);
        };
        let meta = self.store.head(context, &self.prefix.child(&name.name)?)?;
        name.meta = meta.filter(|meta| meta.kind == EntryKind::File);
        Ok(Some(name))
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.inner.seek(context, cursor)
    }
}

fn list(store: &dyn Store, prefix: &str) {
    let mut listing = store.list(&UNLIMITED, &key(prefix)).unwrap();
    while listing.next(&UNLIMITED).unwrap().is_some() {}
}

fn memo(store: impl Store + 'static) -> MetadataCache {
    MetadataCache::new(Arc::new(store), &MetadataCacheConfig::default())
}

fn is_refused<T>(answer: Result<T>) {
    let error = answer.err().unwrap();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert_eq!(error.errno(), Kind::Corrupt.errno(), "{error}");
    assert!(error.to_string().contains("has 500 bytes, but"), "{error}");
}

/// Invariant (stores): All bytes of an object are of one version: an answer of another length is an error.
#[test]
fn a_body_shorter_than_the_listed_length_is_an_error() {
    let store = Proxied::new();
    for learn in [
        (|memo: &MetadataCache| list(memo, "a")) as fn(&MetadataCache),
        |memo| {
            assert!(
                Store::head(memo, &UNLIMITED, &key("a/0"))
                    .unwrap()
                    .is_some()
            )
        },
    ] {
        let memo = memo(store.clone());
        learn(&memo);
        for _ in 0..3 {
            is_refused(Store::get(&memo, &UNLIMITED, &key("a/0"), LENGTH));
            is_refused(Store::get_range(
                &memo,
                &UNLIMITED,
                &key("a/0"),
                ByteRange::Span(0..100),
            ));
        }
    }
    let memo = memo(store.clone());
    list(&memo, "a");
    is_refused(Store::get(&memo, &UNLIMITED, &key("a/zarr.json"), LENGTH));
    store.cuts.store(false, Ordering::SeqCst);
    let whole = Store::get(&memo, &UNLIMITED, &key("a/zarr.json"), LENGTH).unwrap();
    assert_eq!(whole.unwrap().bytes.len() as u64, LENGTH);
}

#[test]
fn a_truncated_document_is_requested_again_once_its_length_is_known() {
    let store = Proxied::new();
    let memo = memo(store.clone());
    let name = key("a/zarr.json");
    // The cache accepts a truncated answer, because it does not know the true length yet.
    let half = Store::get(&memo, &UNLIMITED, &name, LENGTH)
        .unwrap()
        .unwrap();
    assert_eq!(half.size, LENGTH / 2);
    list(&memo, "a");
    is_refused(Store::get(&memo, &UNLIMITED, &name, LENGTH));
}

#[test]
fn a_truncated_body_is_never_returned_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache_dir = CacheDir::open(folder.path(), 64 << 20, &Arc::new(Stats::default())).unwrap();
    let store = Proxied::new();
    let open = || {
        let entries = CacheNamespace::open(&cache_dir, "memory:");
        DiskCache::new(Arc::new(store.clone()), entries)
    };
    let disk = open();
    Store::head(&disk, &UNLIMITED, &key("a/0")).unwrap();
    let half = Store::get(&disk, &UNLIMITED, &key("a/0"), LENGTH)
        .unwrap()
        .unwrap();
    assert_eq!(half.bytes.len() as u64, LENGTH / 2);
    // The truncated answer is cached, because the true length of the object is unknown.
    Store::get(&disk, &UNLIMITED, &key("a/1"), LENGTH).unwrap();
    store.cuts.store(false, Ordering::SeqCst);
    for disk in [disk, open()] {
        for name in ["a/0", "a/1"] {
            Store::head(&disk, &UNLIMITED, &key(name)).unwrap();
            let whole = Store::get(&disk, &UNLIMITED, &key(name), LENGTH)
                .unwrap()
                .unwrap();
            assert_eq!(whole.bytes.len() as u64, LENGTH, "{name}");
            let reader = Store::open(&disk, &UNLIMITED, &key(name), None).unwrap();
            assert_eq!(
                reader.read_at(&UNLIMITED, 0, 2000).unwrap().len() as u64,
                LENGTH,
                "{name}"
            );
        }
    }
}

#[test]
fn a_prefetched_file_is_complete_or_unused() {
    let store = Proxied::new();
    let config = ReadaheadConfig {
        memory: MemoryBudget::new(4 << 20, Arc::new(Stats::default())),
        concurrency: 4,
        timeout: Duration::from_secs(5),
    };
    let ahead = ReadaheadStore::new(Arc::new(memo(store)), &config);
    let view = StoreView::new(Arc::new(ahead));
    for name in ["a/0", "a/1"] {
        let size = view.lookup(&UNLIMITED, &key(name)).unwrap().unwrap().size;
        let file = view.open(&UNLIMITED, &key(name)).unwrap().file;
        let mut read = 0;
        while read < size {
            let bytes = file.read_at(&UNLIMITED, read, 300).unwrap();
            assert!(
                !bytes.is_empty() && bytes.iter().all(|&byte| byte == 7),
                "{name} ends at {read}"
            );
            read += bytes.len() as u64;
        }
    }
}
