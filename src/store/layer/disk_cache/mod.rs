//! `--cache-dir`: a store whose bytes are kept on disk, for this process and others.
//!
//! Objects and ranges are kept as they were asked for, never more: who reads shards and archives asks for the
//! same ranges again, and a block around each would fetch and hold what nobody reads. A kept range is given out
//! only under the version that the store says the key has, or said no longer ago than its answers stay true;
//! who does not know it asks for the version, not for the bytes; what was asked for before a change through this
//! store says nothing after it. `shelf` holds the size, `entry` the checksums.

use parking_lot::{Mutex, MutexGuard};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::Result;
use crate::store::layer::Layer;
use crate::store::{
    ByteRange, ChangeLog, Condition, ETag, EntryKind, Key, LogPosition, Meta, Object, PutBody,
    Reader, RemoteConfig, Store, Version,
};
use reader::DiskCacheReader;

mod accounting;
mod cache_dir;
mod entry;
mod folder;
mod reader;
mod usage_file;

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
    /// When the last change was made through this store, in seconds since 1970.
    changed: u64,
}

/// When a question was asked: after which changes, and in seconds since 1970.
#[derive(Clone, Copy)]
struct DiskQueryStamp {
    position: LogPosition,
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
                changed: 0,
            }),
        }
    }

    fn said(&self) -> MutexGuard<'_, ReportedVersion> {
        self.said.lock()
    }

    fn log(&self) -> &ChangeLog {
        &self.inner.info().changes
    }

    fn freshness(&self) -> Duration {
        self.inner.info().freshness
    }

    fn asked(&self) -> DiskQueryStamp {
        DiskQueryStamp {
            position: self.log().position(),
            at: entry::seconds(),
        }
    }

    /// Notes an answer, unless the key was changed since it was asked for; returns whether it did.
    fn note(&self, key: &Key, version: Option<Version>, asked: DiskQueryStamp) -> bool {
        let until = Instant::now().checked_add(self.freshness());
        let mut said = self.said();
        if self.log().changed_since(asked.position, key) {
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
                now.checked_add(self.freshness()).unwrap_or(now),
            ),
            Err(_) => (None, now),
        };
        let mut said = self.said();
        said.changed = entry::seconds();
        said.versions.put(key.clone(), (version, until));
        // What was answered here since the store below noted the change may be of before.
        self.log().note(key);
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
        let was_changed = self.log().last_change(key) != LogPosition::default();
        let is_true = (!was_changed || facts.asked > changed) && facts.is_fresh(self.freshness());
        match said {
            Some((version, until)) if Instant::now() < until => return Ok(version),
            None if is_true => return Ok(Some(facts.version)),
            _ => {}
        }
        Layer::version(self, key)
    }

    /// Returns a part of an object that is kept and current.
    fn kept(&self, key: &Key, label: &EntryKey, cut: Cut) -> Result<Option<Object>> {
        let Some(entry) = self.drawer.find(label) else {
            return Ok(None);
        };
        let facts = *entry.facts();
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

impl Layer for DiskCache {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

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

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        Ok(Arc::new(DiskCacheReader {
            inner: self.inner.open(key, known)?,
            drawer: self.drawer.clone(),
            key: key.clone(),
        }))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        let asked = self.asked();
        let etag = self.inner.etag(key)?;
        self.note(key, etag.as_ref().map(|etag| etag.version), asked);
        Ok(etag)
    }

    fn put(&self, key: &Key, body: PutBody<'_>, condition: &Condition) -> Result<ETag> {
        let put = || self.inner.put(key, body, condition);
        self.change(key, put, |etag| Some(etag.version))
    }

    fn erase(&self, key: &Key, condition: &Condition) -> Result<()> {
        let erase = || self.inner.erase(key, condition);
        self.change(key, erase, |()| None)
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
