//! `--cache-dir`: a store whose bytes are kept on disk, for this process and others.
//!
//! Objects and ranges are kept as they were asked for, never more: who reads shards and archives asks for the
//! same ranges again, and a block around each would fetch and hold what nobody reads. A kept range is given out
//! only under the version that the store says the key has, or said no longer ago than its answers stay true;
//! who does not know it asks for the version, not for the bytes; what was asked for before a change through this
//! store says nothing after it. `shelf` holds the size, `entry` the checksums.

use parking_lot::{Mutex, MutexGuard};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::Result;
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, RemoteConfig, Store, Tree, Version,
};
use reader::DiskCacheReader;

mod accounting;
mod cache_dir;
mod entry;
mod folder;
mod reader;

pub use cache_dir::{CacheDir, CacheNamespace};
pub use entry::{EntryHeader, EntryKey};

/// Of how many keys the version is remembered that the store said last.
const SAID: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// A store over a store.
pub struct DiskCache {
    inner: Arc<dyn Store>,
    drawer: Arc<CacheNamespace>,
    said: Mutex<ReportedVersion>,
}

/// What the store said.
struct ReportedVersion {
    /// Versions, and until when they are true.
    versions: LruCache<Key, (Option<Version>, Instant)>,
    /// Changes made through this store, and when the last was made, in seconds since 1970.
    changes: u64,
    changed: u64,
}

/// When a question was asked: after how many changes, and in seconds since 1970.
#[derive(Clone, Copy)]
struct DiskQueryStamp {
    changes: u64,
    at: u64,
}

impl DiskCache {
    /// Wraps a store whose bytes are kept in `drawer`.
    pub fn new(inner: Arc<dyn Store>, drawer: CacheNamespace) -> DiskCache {
        DiskCache {
            inner,
            drawer: Arc::new(drawer),
            said: Mutex::new(ReportedVersion {
                versions: LruCache::new(SAID),
                changes: 0,
                changed: 0,
            }),
        }
    }

    fn said(&self) -> MutexGuard<'_, ReportedVersion> {
        self.said.lock()
    }

    fn asked(&self) -> DiskQueryStamp {
        DiskQueryStamp {
            changes: self.said().changes,
            at: entry::seconds(),
        }
    }

    /// Notes an answer, unless something was changed since it was asked for; returns whether it did.
    fn note(&self, key: &Key, version: Option<Version>, asked: DiskQueryStamp) -> bool {
        let until = Instant::now().checked_add(self.inner.freshness());
        let mut said = self.said();
        if said.changes != asked.changes {
            return false;
        }
        if let Some(until) = until {
            said.versions.put(key.clone(), (version, until));
        }
        true
    }

    /// Makes a change; what was said before is no longer true, whether it succeeds or not. `version` says which
    /// content the key has then.
    fn change<T>(
        &self,
        key: &Key,
        change: impl FnOnce() -> Result<T>,
        version: impl FnOnce(&T) -> Option<Version>,
    ) -> Result<T> {
        let done = change();
        let now = Instant::now();
        // Where that is not known, the next one asks.
        let (version, until) = match &done {
            Ok(done) => (
                version(done),
                now.checked_add(self.inner.freshness()).unwrap_or(now),
            ),
            Err(_) => (None, now),
        };
        let mut said = self.said();
        said.changes += 1;
        said.changed = entry::seconds();
        said.versions.put(key.clone(), (version, until));
        drop(said);
        self.drawer.forget(&EntryKey::whole(key));
        done
    }

    /// Returns the version that the key has, of which bytes with these facts are kept.
    fn current(&self, key: &Key, facts: &EntryHeader) -> Result<Option<Version>> {
        let (said, changed) = {
            let mut said = self.said();
            (said.versions.get(key).copied(), said.changed)
        };
        let is_true = facts.asked > changed && facts.is_fresh(self.inner.freshness());
        match said {
            Some((version, until)) if Instant::now() < until => return Ok(version),
            None if is_true => return Ok(Some(facts.version)),
            _ => {}
        }
        self.version(key)
    }

    /// Returns a part of an object that is kept and current.
    fn kept(&self, key: &Key, label: &EntryKey, cut: Cut) -> Result<Option<Object>> {
        let Some(entry) = self.drawer.find(label) else {
            return Ok(None);
        };
        let facts = *entry.header();
        let (part, limit) = match cut {
            Cut::All(limit) => (0..entry.len(), limit),
            Cut::Part(range) => (range.within(entry.len()), u64::MAX),
        };
        if facts.size > limit || self.current(key, &facts)? != Some(facts.version) {
            return Ok(None);
        }
        let object = self.drawer.read(label, &entry, part).map(|bytes| Object {
            bytes,
            size: facts.size,
            version: facts.version,
            modified: None,
        });
        if let Some(object) = &object {
            let stats = self.drawer.stats();
            stats.disk_hit_requests.add(1);
            stats.disk_hit_bytes.add(object.bytes.len() as u64);
        }
        Ok(object)
    }

    /// Keeps what the store answered.
    fn keep(&self, key: &Key, label: &EntryKey, answer: Option<&Object>, asked: DiskQueryStamp) {
        self.drawer.stats().disk_miss_requests.add(1);
        let is_true = self.note(key, answer.map(|object| object.version), asked);
        match answer {
            Some(object) if is_true && !object.bytes.is_empty() => {
                let facts = EntryHeader {
                    version: object.version,
                    size: object.size,
                    asked: asked.at,
                };
                self.drawer.put(label, &facts, &object.bytes);
            }
            _ => {}
        }
    }
}

/// Which bytes of a kept file are wanted.
enum Cut<'a> {
    /// All, unless the object is longer than so many bytes.
    All(u64),
    /// A range of the object that the file holds.
    Part(&'a ByteRange),
}

#[deny(clippy::missing_trait_methods)]
impl Store for DiskCache {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        let label = EntryKey::whole(key);
        if let Some(object) = self.kept(key, &label, Cut::All(limit))? {
            return Ok(Some(object));
        }
        let asked = self.asked();
        let answer = self.inner.get(key, limit)?;
        self.keep(key, &label, answer.as_ref(), asked);
        Ok(answer)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        let label = EntryKey::range(key, &range);
        if let Some(object) = self.kept(key, &label, Cut::All(u64::MAX))? {
            return Ok(Some(object));
        }
        if let Some(object) = self.kept(key, &EntryKey::whole(key), Cut::Part(&range))? {
            return Ok(Some(object));
        }
        let asked = self.asked();
        let answer = self.inner.get_range(key, range)?;
        self.keep(key, &label, answer.as_ref(), asked);
        Ok(answer)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let asked = self.asked();
        let meta = self.inner.head(key)?;
        if let Some(meta) = meta.filter(|meta| meta.kind == EntryKind::File) {
            self.note(key, Some(meta.version), asked);
        }
        Ok(meta)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        let asked = self.asked();
        let version = self.inner.version(key)?;
        self.note(key, version, asked);
        Ok(version)
    }

    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>> {
        Ok(self.reader(key, self.inner.open(key)?))
    }

    fn open_known(&self, key: &Key, meta: &Meta) -> Result<Arc<dyn Reader>> {
        Ok(self.reader(key, self.inner.open_known(key, meta)?))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        self.inner.list(prefix)
    }

    fn walk(&self, prefix: &Key, from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        self.inner.walk(prefix, from)
    }

    fn head_now(&self, key: &Key) -> Option<Option<Meta>> {
        self.inner.head_now(key)
    }

    fn ask_ahead(&self, keys: &[Key]) {
        self.inner.ask_ahead(keys);
    }

    fn lists(&self) -> bool {
        self.inner.lists()
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        self.inner.read_link(key)
    }

    fn freshness(&self) -> Duration {
        self.inner.freshness()
    }

    fn epoch(&self) -> u64 {
        // A change is counted here once it is noted, below as soon as it is made.
        let below = self.inner.epoch();
        below.wrapping_add(self.said().changes)
    }

    fn stamp(&self, key: &Key) -> Result<Option<ETag>> {
        let asked = self.asked();
        let stamp = self.inner.stamp(key)?;
        self.note(key, stamp.as_ref().map(|stamp| stamp.version), asked);
        Ok(stamp)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = || self.inner.put(key, body, condition);
        self.change(key, put, |stamp| Some(stamp.version))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.inner.erase(key, condition);
        self.change(key, erase, |_| None)
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        self.inner.erase_folder(prefix)
    }

    fn honours_conditions(&self) -> Result<bool> {
        self.inner.honours_conditions()
    }

    fn tree(&self) -> Option<Arc<dyn Tree>> {
        self.inner.tree()
    }

    fn folder(&self) -> Option<&Path> {
        self.inner.folder()
    }
}

impl DiskCache {
    fn reader(&self, key: &Key, inner: Arc<dyn Reader>) -> Arc<dyn Reader> {
        Arc::new(DiskCacheReader {
            inner,
            drawer: self.drawer.clone(),
            key: key.clone(),
        })
    }
}

/// Returns what tells a store from others: its name as it may be shown, and what says at which server it is.
pub fn identity(shown: &str, remote: &RemoteConfig) -> String {
    let is_place = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.contains("endpoint") || name.contains("account_name") || name.contains("emulator")
    };
    let mut parts = vec![shown.trim_end_matches('/').to_string()];
    parts.extend(remote.endpoint.clone());
    let options = remote.options.iter().cloned();
    let clouds = ["AWS_", "AZURE_", "GOOGLE_"];
    let from_outside = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_ours = clouds.iter().any(|cloud| name.starts_with(cloud));
        is_ours.then(|| (name, value.to_string_lossy().into_owned()))
    });
    let mut places: Vec<String> = options
        .chain(from_outside)
        .filter(|(name, _)| is_place(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    places.sort_unstable();
    parts.extend(places);
    parts.join("\n")
}
