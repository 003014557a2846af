//! A simulated remote store: logs its requests, lists kinds and sizes, supports flat listings.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::backend::memory::MemoryStore;
use zarrfs_store::layer::Layer;
use zarrfs_store::layer::metadata_cache::{MetadataCache, MetadataCacheConfig};
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::{
    ByteRange, EntryKind, FlatListing, Key, Listing, Meta, Name, Object, Reader, Store, StoreInfo,
    Version,
};

/// The order of the keys in a flat listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Bytes,
    Names,
    Neither,
    /// The store supports no flat listings.
    None,
}

/// A simulated remote store, whose clones share their state.
#[derive(Clone)]
pub struct Fake {
    pub memory: MemoryStore,
    keys: Arc<Mutex<Vec<Key>>>,
    log: Arc<Mutex<Vec<String>>>,
    pub order: Order,
    /// Whether the store withholds its answers. `held` counts the requests that wait.
    pub holds: Arc<AtomicBool>,
    pub held: Arc<AtomicUsize>,
    /// Whether the store fails all requests.
    pub fails: Arc<AtomicBool>,
    /// The key of an object that changes during the next request for a page of a flat listing.
    changed: Arc<Mutex<Option<Key>>>,
    info: StoreInfo,
}

pub const PAGE: usize = 150;

pub const LONG: Duration = Duration::from_secs(1000);

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

impl Fake {
    pub fn holding(names: &[&str], order: Order) -> Fake {
        let fake = Fake {
            memory: MemoryStore::default(),
            keys: Arc::default(),
            log: Arc::default(),
            order,
            holds: Arc::default(),
            held: Arc::default(),
            fails: Arc::default(),
            changed: Arc::default(),
            info: StoreInfo::new(LONG),
        };
        for name in names {
            fake.set(name, name.as_bytes());
        }
        fake
    }

    pub fn set(&self, name: &str, bytes: &[u8]) {
        self.memory.set(key(name), bytes.to_vec());
        let mut keys = self.keys.lock().unwrap();
        keys.retain(|other| *other != key(name));
        keys.push(key(name));
    }

    /// Returns a metadata cache over the simulated store.
    pub fn memo(&self, ttl: Duration) -> MetadataCache {
        self.memo_of(MetadataCacheConfig {
            ttl,
            ..MetadataCacheConfig::default()
        })
    }

    pub fn memo_of(&self, config: MetadataCacheConfig) -> MetadataCache {
        MetadataCache::new(Arc::new(self.clone()), &config)
    }

    /// Changes an object during the next request for a page of a flat listing.
    pub fn change_at_page(&self, name: &str) {
        *self.changed.lock().unwrap() = Some(key(name));
    }

    /// Returns the requests to the store since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// Returns the number of requests to the store since the log was taken.
    pub fn count(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    fn note(&self, what: &str, key: &Key) -> Result<()> {
        self.log.lock().unwrap().push(format!("{what} {key}"));
        self.held.fetch_add(1, Ordering::SeqCst);
        while self.holds.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            Err(Error::unavailable(key, "on purpose"))
        } else {
            Ok(())
        }
    }

    fn ordered(&self, prefix: &Key) -> Vec<(Key, Meta)> {
        let mut keys = self.keys.lock().unwrap().clone();
        keys.retain(|key| key.below(prefix).is_some_and(|rest| !rest.is_root()));
        match self.order {
            Order::Bytes | Order::None => keys.sort(),
            Order::Names => keys.sort_by(|one, other| one.names().cmp(other.names())),
            Order::Neither => {
                keys.sort_by_key(|key| key.as_bytes().iter().rev().copied().collect::<Vec<_>>())
            }
        }
        let meta = |key: &Key| {
            let object = self.memory.get(&UNLIMITED, key, u64::MAX).unwrap().unwrap();
            Meta {
                kind: EntryKind::File,
                size: object.size,
                stored: object.size,
                version: object.version,
                ..Meta::prefix()
            }
        };
        keys.into_iter()
            .map(|key| {
                let meta = meta(&key);
                (key, meta)
            })
            .collect()
    }
}

impl Layer for Fake {
    fn below(&self) -> &dyn Store {
        &self.memory
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.note("get", key)?;
        self.memory.get(context, key, limit)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.note("range", key)?;
        self.memory.get_range(context, key, range)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        context.check_may_wait()?;
        self.note("head", key)?;
        self.memory.head(context, key)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        self.note("head", key)?;
        self.memory.version(context, key)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let meta = match known {
            Some(meta) => *meta,
            None => {
                self.note("open", key)?;
                self.memory.open(context, key, None)?.meta(context)?
            }
        };
        let (fake, key) = (self.clone(), key.clone());
        Ok(Arc::new(Open { fake, key, meta }))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.note("list", prefix)?;
        let (fake, prefix) = (self.clone(), prefix.clone());
        let inner = fake.memory.list(context, &prefix)?;
        Ok(Box::new(Told {
            inner,
            fake,
            prefix,
        }))
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        if self.order == Order::None {
            return Ok(None);
        }
        let mut keys = self.ordered(prefix);
        match self.order {
            Order::Bytes => keys.retain(|(key, _)| key >= from),
            Order::Names => keys.retain(|(key, _)| key.names().ge(from.names())),
            Order::Neither | Order::None => {}
        }
        let fake = self.clone();
        Ok(Some(Box::new(Steps { keys, fake })))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// A reader that reads only the version of the object that it was opened with, as readers of buckets do.
struct Open {
    fake: Fake,
    key: Key,
    meta: Meta,
}

impl Reader for Open {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.fake.note("read", &self.key)?;
        let reader = self.fake.memory.open(context, &self.key, None)?;
        if reader.meta(context)?.version != self.meta.version {
            return Err(Error::new(Kind::Changed, &self.key, "changed"));
        }
        reader.read_at(context, offset, len)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}

/// A listing whose entries have the metadata that `head` returns.
struct Told {
    inner: Box<dyn Listing>,
    fake: Fake,
    prefix: Key,
}

impl Listing for Told {
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if self.fake.fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable(&self.prefix, "on purpose"));
        }
        let Some(mut name) = self.inner.next(context)? else {
            return Ok(None);
        };
        name.meta = self
            .fake
            .memory
            .head(context, &self.prefix.child(&name.name)?)?;
        Ok(Some(name))
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        self.inner.seek(context, cursor)
    }
}

struct Steps {
    keys: Vec<(Key, Meta)>,
    fake: Fake,
}

impl FlatListing for Steps {
    fn next(&mut self, _context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        self.fake.note("page", &self.keys[0].0)?;
        if let Some(changed) = self.fake.changed.lock().unwrap().take() {
            self.fake.info.changes.record(&changed);
        }
        let rest = self.keys.split_off(self.keys.len().min(PAGE));
        Ok(Some(std::mem::replace(&mut self.keys, rest)))
    }

    fn has_ended(&self) -> bool {
        self.keys.is_empty()
    }
}
