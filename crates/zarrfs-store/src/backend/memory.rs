//! Stores objects in memory, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::backend::{is_a_directory, not_a_directory, slice, too_long};
use crate::listing::NameList;
use crate::request_context::RequestContext;
use crate::sync::locks::{Mutex, MutexGuard};
use crate::{
    ByteRange, Condition, ETag, EntryKind, Key, Listing, Meta, Object, PutBody, Reader, Store,
    StoreInfo, Version,
};
use zarr_format::error::{Error, Result};

/// A store in memory, for tests. Clones share their objects.
#[derive(Clone)]
pub struct MemoryStore {
    objects: Arc<Mutex<ObjectMap>>,
    info: StoreInfo,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore {
            objects: Arc::default(),
            info: StoreInfo::new(Duration::ZERO),
        }
    }
}

#[derive(Default)]
struct ObjectMap {
    by_key: BTreeMap<Key, (Arc<Vec<u8>>, Version)>,
    changes: u64,
}

impl ObjectMap {
    fn insert(&mut self, key: Key, bytes: Vec<u8>) -> Version {
        self.changes += 1;
        let version = Version::numbered(self.changes);
        self.by_key.insert(key, (Arc::new(bytes), version));
        version
    }

    /// Returns the keys under a prefix, relative to it. Only those keys are visited, since tests have thousands of
    /// others.
    fn below<'a>(&'a self, prefix: &'a Key) -> impl Iterator<Item = Key> + 'a {
        self.by_key
            .range(prefix..)
            .map(|(key, _)| key)
            .take_while(|key| key.as_bytes().starts_with(prefix.as_bytes()))
            .filter_map(|key| key.below(prefix))
            .filter(|rest| !rest.is_root())
    }

    fn check(&self, key: &Key, condition: &Condition) -> Result<()> {
        let current = self.by_key.get(key).map(|(_, version)| etag_of(*version));
        condition.check(key, current.as_ref())
    }
}

impl MemoryStore {
    /// Stores an object.
    pub fn set(&self, key: Key, bytes: Vec<u8>) {
        self.lock().insert(key, bytes);
    }

    /// Removes an object.
    pub fn erase(&self, key: &Key) {
        self.lock().by_key.remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, ObjectMap> {
        self.objects.lock()
    }

    fn find(&self, key: &Key) -> Option<(Arc<Vec<u8>>, Version)> {
        self.lock().by_key.get(key).cloned()
    }

    fn names(&self, prefix: &Key) -> Vec<(Vec<u8>, EntryKind)> {
        let mut names: BTreeMap<Vec<u8>, EntryKind> = BTreeMap::new();
        for rest in self.lock().below(prefix) {
            let mut parts = rest.names();
            let Some(name) = parts.next() else { continue };
            if parts.next().is_some() {
                names.insert(name.to_vec(), EntryKind::Directory);
            } else {
                names.entry(name.to_vec()).or_insert(EntryKind::File);
            }
        }
        names.into_iter().collect()
    }
}

fn describe(kind: EntryKind, size: u64, version: Version) -> Meta {
    Meta {
        kind,
        size,
        stored: size,
        modified: UNIX_EPOCH,
        version,
    }
}

impl Store for MemoryStore {
    fn get(&self, _context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let Some((bytes, version)) = self.find(key) else {
            return Ok(None);
        };
        let size = bytes.len() as u64;
        if size > limit {
            return Err(too_long(key, size, limit));
        }
        Ok(Some(Object {
            bytes: bytes.to_vec(),
            size,
            version,
            modified: Some(UNIX_EPOCH),
        }))
    }

    fn get_range(
        &self,
        _context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let Some((bytes, version)) = self.find(key) else {
            return Ok(None);
        };
        let size = bytes.len() as u64;
        let span = range.within(size);
        Ok(Some(Object {
            bytes: slice(&bytes, span.start, span.end),
            size,
            version,
            modified: Some(UNIX_EPOCH),
        }))
    }

    fn head(&self, _context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let object = self.find(key);
        let is_prefix = key.is_root() || self.lock().below(key).next().is_some();
        if object.is_none() && !is_prefix {
            return Ok(None);
        }
        let kind = if is_prefix {
            EntryKind::Directory
        } else {
            EntryKind::File
        };
        let (size, version) = object.map_or((0, Version::NONE), |(bytes, version)| {
            (bytes.len() as u64, version)
        });
        Ok(Some(describe(kind, size, version)))
    }

    fn version(&self, _context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        Ok(self.find(key).map(|(_, version)| version))
    }

    fn open(
        &self,
        _context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let (bytes, version) = self.find(key).ok_or_else(|| Error::not_found(key))?;
        Ok(Arc::new(OpenObject { bytes, version }))
    }

    fn list(&self, _context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let names = self.names(prefix);
        if names.is_empty() && self.find(prefix).is_some() {
            return Err(not_a_directory(prefix));
        }
        if names.is_empty() && !prefix.is_root() {
            return Err(Error::not_found(prefix));
        }
        Ok(Box::new(NameList::new(names)))
    }

    fn etag(&self, _context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        Ok(self.find(key).map(|(_, version)| etag_of(version)))
    }

    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        if key.is_root() {
            return Err(is_a_directory(key));
        }
        let bytes = body.read().map_err(|error| error.about(key))?;
        let mut objects = self.lock();
        objects.check(key, condition)?;
        let etag = etag_of(objects.insert(key.clone(), bytes));
        self.info.changes.record(key);
        Ok(etag)
    }

    fn erase(&self, _context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let mut objects = self.lock();
        objects.check(key, condition)?;
        objects.by_key.remove(key);
        self.info.changes.record(key);
        Ok(())
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

fn etag_of(version: Version) -> ETag {
    ETag {
        text: format!("change {}", version.number()),
        version,
    }
}

struct OpenObject {
    bytes: Arc<Vec<u8>>,
    version: Version,
}

impl Reader for OpenObject {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        Ok(slice(
            &self.bytes,
            offset,
            offset.saturating_add(len as u64),
        ))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(describe(
            EntryKind::File,
            self.bytes.len() as u64,
            self.version,
        ))
    }
}
