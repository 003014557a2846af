//! `--cache-dir`: a store whose bytes are kept on disk, for this process and others.
//!
//! Objects and ranges are kept as they were asked for, never more: readers of shards and archives ask for the same
//! ranges again, and a block around each would be fetched and held for nothing. A kept range is returned only under the
//! version that the store reported for the key no longer ago than its answers stay true; where that is not known, the
//! version is asked for rather than the bytes. What was asked for before a change of the key through this store counts
//! no more after it. `cache_dir` keeps the size, `entry` the checksums.

use parking_lot::Mutex;
use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::error::Result;
use crate::store::layer::Layer;
use crate::store::{
    ByteRange, ChangeLog, Condition, ETag, EntryKind, Key, LogPosition, Meta, Object, PutBody,
    Reader, RemoteConfig, Store, Version, deal_out,
};

mod accounting;
mod cache_dir;
mod entry;
mod folder;

pub use cache_dir::{CacheDir, CacheNamespace};
pub use entry::{EntryHeader, EntryKey};

/// Number of keys whose last reported version is remembered.
const MAX_VERSIONS: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// A store over a store that keeps bytes on disk.
pub struct DiskCache {
    inner: Arc<dyn Store>,
    entries: Arc<CacheNamespace>,
    versions: Mutex<VersionTable>,
}

/// The versions that the store reported last.
struct VersionTable {
    /// The version, or nothing for a missing key, and until when that counts.
    by_key: LruCache<Key, (Option<Version>, Instant)>,
    /// When the last change was made through this store, in seconds since 1970.
    changed: u64,
}

/// When the store was asked.
#[derive(Clone, Copy)]
struct RequestStamp {
    /// The position of the change log then.
    position: LogPosition,
    /// Seconds since 1970.
    asked: u64,
}

impl DiskCache {
    /// Wraps a store whose bytes are kept in `entries`.
    pub fn new(inner: Arc<dyn Store>, entries: CacheNamespace) -> DiskCache {
        DiskCache {
            inner,
            entries: Arc::new(entries),
            versions: Mutex::new(VersionTable {
                by_key: LruCache::new(MAX_VERSIONS),
                changed: 0,
            }),
        }
    }

    fn changes(&self) -> &ChangeLog {
        &self.inner.info().changes
    }

    fn freshness(&self) -> Duration {
        self.inner.info().freshness
    }

    /// Returns the stamp of a request that is made now.
    fn stamp(&self) -> RequestStamp {
        RequestStamp {
            position: self.changes().position(),
            asked: entry::seconds(),
        }
    }

    /// Notes the version that the store reported, unless the key was changed since it was asked; returns whether it did.
    fn note(&self, key: &Key, version: Option<Version>, stamp: RequestStamp) -> bool {
        let until = Instant::now().checked_add(self.freshness());
        let mut versions = self.versions.lock();
        if self.changes().changed_since(stamp.position, key) {
            return false;
        }
        if let Some(until) = until {
            versions.by_key.put(key.clone(), (version, until));
        }
        true
    }

    /// Makes a change, after which `version_of` its result is the key's version. After an error the version is not
    /// known.
    fn change<T>(
        &self,
        key: &Key,
        change: impl FnOnce() -> Result<T>,
        version_of: impl FnOnce(&T) -> Option<Version>,
    ) -> Result<T> {
        let done = change();
        let now = Instant::now();
        let (version, until) = match &done {
            Ok(done) => (version_of(done), now.checked_add(self.freshness())),
            Err(_) => (None, None),
        };
        let mut versions = self.versions.lock();
        versions.changed = entry::seconds();
        let until = until.unwrap_or(now);
        versions.by_key.put(key.clone(), (version, until));
        // An answer given here since the store below noted the change may be from before it.
        self.changes().note(key);
        drop(versions);
        self.entries.forget(&EntryKey::whole(key));
        done
    }

    /// Returns the version that a key has of which bytes are kept.
    fn current_version(&self, key: &Key, kept: &EntryHeader) -> Result<Option<Version>> {
        let mut versions = self.versions.lock();
        let (reported, changed) = (versions.by_key.get(key).copied(), versions.changed);
        drop(versions);
        let was_changed = self.changes().last_change(key) != LogPosition::default();
        let is_after_changes = !was_changed || kept.asked > changed;
        match reported {
            Some((version, until)) if Instant::now() < until => Ok(version),
            None if is_after_changes && kept.is_fresh(self.freshness()) => Ok(Some(kept.version)),
            _ => Layer::version(self, key),
        }
    }

    /// Returns an object, or a part of one, that is kept and current.
    fn find(&self, key: &Key, name: &EntryKey, wanted: WantedRange) -> Result<Option<Object>> {
        let Some(entry) = self.entries.find(name) else {
            return Ok(None);
        };
        let header = *entry.header();
        let (range, limit) = match wanted {
            WantedRange::All(limit) => (0..entry.len(), limit),
            WantedRange::Part(range) => (range.within(entry.len()), u64::MAX),
        };
        if header.size > limit || self.current_version(key, &header)? != Some(header.version) {
            return Ok(None);
        }
        let object = self.entries.read(name, &entry, range).map(|bytes| Object {
            bytes,
            size: header.size,
            version: header.version,
            modified: None,
        });
        if let Some(object) = &object {
            count_hit(&self.entries, &object.bytes);
        }
        Ok(object)
    }

    /// Keeps what the store answered.
    fn keep(&self, key: &Key, name: &EntryKey, answer: Option<&Object>, stamp: RequestStamp) {
        self.entries.stats().disk_miss_requests.add(1);
        let is_true = self.note(key, answer.map(|object| object.version), stamp);
        if let Some(object) = answer
            && is_true
            && !object.bytes.is_empty()
        {
            let header = EntryHeader {
                version: object.version,
                size: object.size,
                asked: stamp.asked,
            };
            self.entries.put(name, &header, &object.bytes);
        }
    }
}

fn count_hit(entries: &CacheNamespace, bytes: &[u8]) {
    let stats = entries.stats();
    stats.disk_hit_requests.add(1);
    stats.disk_hit_bytes.add(bytes.len() as u64);
}

/// Which bytes of an entry are wanted.
enum WantedRange<'a> {
    /// All, unless the object is longer than so many bytes.
    All(u64),
    /// A range of the object, where the entry is the whole object.
    Part(&'a ByteRange),
}

impl Layer for DiskCache {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        let name = EntryKey::whole(key);
        if let Some(object) = self.find(key, &name, WantedRange::All(limit))? {
            return Ok(Some(object));
        }
        let stamp = self.stamp();
        let answer = self.inner.get(key, limit)?;
        self.keep(key, &name, answer.as_ref(), stamp);
        Ok(answer)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        let name = EntryKey::range(key, &range);
        if let Some(object) = self.find(key, &name, WantedRange::All(u64::MAX))? {
            return Ok(Some(object));
        }
        if let Some(object) = self.find(key, &EntryKey::whole(key), WantedRange::Part(&range))? {
            return Ok(Some(object));
        }
        let stamp = self.stamp();
        let answer = self.inner.get_range(key, range)?;
        self.keep(key, &name, answer.as_ref(), stamp);
        Ok(answer)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        let stamp = self.stamp();
        let meta = self.inner.head(key)?;
        if let Some(meta) = meta.filter(|meta| meta.kind == EntryKind::File) {
            self.note(key, Some(meta.version), stamp);
        }
        Ok(meta)
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        let stamp = self.stamp();
        let version = self.inner.version(key)?;
        self.note(key, version, stamp);
        Ok(version)
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        Ok(Arc::new(DiskCacheReader {
            inner: self.inner.open(key, known)?,
            entries: self.entries.clone(),
            key: key.clone(),
        }))
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        let stamp = self.stamp();
        let etag = self.inner.etag(key)?;
        self.note(key, etag.as_ref().map(|etag| etag.version), stamp);
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

/// An open object whose ranges are looked for on disk first. The reader below tells the version; only bytes of that
/// version are taken.
struct DiskCacheReader {
    inner: Arc<dyn Reader>,
    entries: Arc<CacheNamespace>,
    key: Key,
}

impl DiskCacheReader {
    /// Returns a range that is kept, by itself or as a part of the whole object.
    fn find(&self, range: &ByteRange, version: Version) -> Option<Vec<u8>> {
        let read = |name: &EntryKey, is_whole: bool| {
            let entry = self.entries.find(name)?;
            if entry.header().version != version {
                return None;
            }
            let part = if is_whole {
                range.within(entry.len())
            } else {
                0..entry.len()
            };
            self.entries.read(name, &entry, part)
        };
        read(&EntryKey::range(&self.key, range), false)
            .or_else(|| read(&EntryKey::whole(&self.key), true))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for DiskCacheReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let meta = self.inner.meta()?;
        let end = offset.saturating_add(len as u64).min(meta.size);
        if offset >= end {
            return self.inner.read_at(offset, len);
        }
        let range = ByteRange::Span(offset..end);
        if let Some(bytes) = self.find(&range, meta.version) {
            count_hit(&self.entries, &bytes);
            return Ok(bytes);
        }
        self.entries.stats().disk_miss_requests.add(1);
        let header = EntryHeader::now(meta.version, meta.size);
        let bytes = self.inner.read_at(offset, len)?;
        let is_complete = bytes.len() as u64 == end - offset;
        // The bytes may be of a version that came in between.
        if is_complete && self.inner.meta()?.version == meta.version {
            let name = EntryKey::range(&self.key, &range);
            self.entries.put(&name, &header, &bytes);
        }
        Ok(bytes)
    }

    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(offset, wanted)?;
        deal_out(&bytes, parts);
        Ok(bytes.len())
    }

    fn meta(&self) -> Result<Meta> {
        self.inner.meta()
    }
}

/// Returns what tells a store from others: its name as it may be shown, and the options that say at which server it is.
pub fn identity(shown: &str, remote: &RemoteConfig) -> String {
    let names_server = |name: &str| {
        let name = name.to_ascii_lowercase();
        name.contains("endpoint") || name.contains("account_name") || name.contains("emulator")
    };
    let mut parts = vec![shown.trim_end_matches('/').to_string()];
    parts.extend(remote.endpoint.clone());
    let options = remote.options.iter().cloned();
    let clouds = ["AWS_", "AZURE_", "GOOGLE_"];
    let from_environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let is_of_cloud = clouds.iter().any(|cloud| name.starts_with(cloud));
        is_of_cloud.then(|| (name, value.to_string_lossy().into_owned()))
    });
    let mut servers: Vec<String> = options
        .chain(from_environment)
        .filter(|(name, _)| names_server(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    servers.sort_unstable();
    parts.extend(servers);
    parts.join("\n")
}
