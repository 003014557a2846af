//! The disk cache (`--cache-dir`), shared by processes and mounts.
//!
//! Objects and ranges are cached exactly as requested: readers of shards and archives repeat the same ranges, and
//! blocks around them would only add traffic. A cached range is returned only if its version equals the key's version,
//! reported by the store within the TTL, and is as old as that report; without such a report the version is requested
//! instead of the bytes. A change of the key through this store invalidates earlier entries. Contents with transient
//! versions are not cached. `cache_dir` limits the size, `entry` has the checksums.

use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;

use crate::layer::Layer;
use crate::{
    ByteRange, ChangeLog, Condition, ETag, EntryKind, Key, LogPosition, Meta, Object, PutBody,
    QueryStamp, Reader, Store, Version,
};
use zarr_format::error::Result;

mod accounting;
mod cache_dir;
mod entry;
mod folder;
mod identity;
mod reader;
mod usage;

use crate::request_context::RequestContext;
pub use cache_dir::{CacheDir, CacheNamespace};
pub use entry::{EntryHeader, EntryKey};
pub use identity::identity;
use reader::DiskCacheReader;

/// Maximum number of keys whose version is kept in memory.
const MAX_VERSIONS: NonZeroUsize = NonZeroUsize::new(1 << 14).unwrap();

/// A store that caches bytes on disk.
pub struct DiskCache {
    inner: Arc<dyn Store>,
    entries: Arc<CacheNamespace>,
    versions: Mutex<VersionTable>,
}

/// The latest version of each key that the store reported.
struct VersionTable {
    by_key: LruCache<Key, ReportedVersion>,
    /// Time of the last change through this store, in seconds since 1970.
    changed: u64,
}

/// The state of a key as the store reported it.
#[derive(Clone, Copy)]
struct ReportedVersion {
    /// The version; `None` if the key is missing.
    version: Option<Version>,
    /// The length of that version, if reported.
    size: Option<u64>,
    /// Time of the request; `None` if the version is unknown.
    asked: Option<Instant>,
}

impl DiskCache {
    /// Wraps a store; `entries` holds the cached bytes.
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

    /// Queries the store below; returns the answer and its age.
    fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        self.inner
            .info()
            .ask(context, |context| question(context, &*self.inner))
    }

    /// Returns the present time in seconds since 1970, by the clock that all users of the cache share.
    fn seconds(&self) -> u64 {
        entry::seconds(self.entries.date(&self.inner.info().clock))
    }

    /// Records the reported version of a key, and its length from answers without bytes (`None` otherwise), unless the
    /// key was changed since the request; returns whether it did.
    fn note(
        &self,
        key: &Key,
        version: Option<Version>,
        size: Option<u64>,
        stamp: QueryStamp,
    ) -> bool {
        let mut versions = self.versions.lock();
        if self.changes().changed_since(stamp.position, key) {
            return false;
        }
        let before = versions.by_key.peek(key);
        let before = before.filter(|before| before.version == version);
        let size_before = before.and_then(|before| before.size);
        let reported = ReportedVersion {
            version,
            size: size.or(size_before),
            asked: Some(stamp.asked),
        };
        versions.by_key.put(key.clone(), reported);
        true
    }

    /// Whether the store reported another length for the version of a cached entry.
    fn is_cut(&self, key: &Key, kept: &EntryHeader) -> bool {
        let versions = self.versions.lock();
        let reported = versions.by_key.peek(key);
        let same = reported.filter(|reported| reported.version == Some(kept.version));
        let size = same.and_then(|same| same.size);
        size.is_some_and(|size| size != kept.size)
    }

    /// Makes a change; `version_of` extracts the key's new version from the result. After an error the version is
    /// unknown.
    fn change<T>(
        &self,
        context: &RequestContext,
        key: &Key,
        change: impl FnOnce(&RequestContext, &dyn Store) -> Result<T>,
        version_of: impl FnOnce(&T) -> Option<Version>,
    ) -> Result<T> {
        let (done, stamp) = self.ask(context, change);
        let reported = ReportedVersion {
            version: done.as_ref().ok().and_then(version_of),
            size: None,
            asked: done.is_ok().then_some(stamp.asked),
        };
        let mut versions = self.versions.lock();
        versions.changed = self.seconds();
        versions.by_key.put(key.clone(), reported);
        // An answer returned by this layer after the store below recorded the change may be older than the change.
        self.changes().note(key);
        drop(versions);
        self.entries.forget(&EntryKey::whole(key));
        done
    }

    /// Returns the present version of a key with a cached entry, and the time of its request.
    fn current_version(
        &self,
        context: &RequestContext,
        key: &Key,
        kept: &EntryHeader,
    ) -> Result<(Option<Version>, Instant)> {
        let mut versions = self.versions.lock();
        let (reported, changed) = (versions.by_key.get(key).copied(), versions.changed);
        drop(versions);
        let was_changed = self.changes().last_change(key) != LogPosition::default();
        let is_after_changes = !was_changed || kept.asked > changed;
        let (version, asked) = match reported {
            Some(reported) => (reported.version, reported.asked),
            None if is_after_changes => (Some(kept.version), self.time_of(kept)),
            None => (None, None),
        };
        if let Some(asked) = asked.filter(|&asked| self.inner.info().is_fresh(asked)) {
            return Ok((version, asked));
        }
        let (version, stamp) = self
            .inner
            .info()
            .ask(context, |context| Layer::version(self, context, key));
        Ok((version?, stamp.asked))
    }

    /// Returns the time at which the store sent the cached bytes, by this process's clock.
    fn time_of(&self, kept: &EntryHeader) -> Option<Instant> {
        let clock = &self.inner.info().clock;
        clock.now().checked_sub(kept.age(self.entries.date(clock))?)
    }

    /// Returns a cached object or range if it is current.
    fn find(
        &self,
        context: &RequestContext,
        key: &Key,
        name: &EntryKey,
        wanted: WantedRange,
    ) -> Result<Option<Object>> {
        let Some(entry) = self.entries.find(name) else {
            return Ok(None);
        };
        let header = *entry.header();
        let (range, limit) = match wanted {
            WantedRange::All(limit) => (0..entry.len(), limit),
            WantedRange::Part(range) => (range.within(entry.len()), u64::MAX),
        };
        if header.size > limit {
            return Ok(None);
        }
        let (version, asked) = self.current_version(context, key, &header)?;
        if version != Some(header.version) || self.is_cut(key, &header) {
            return Ok(None);
        }
        let object = self.entries.read(name, &entry, range).map(|bytes| Object {
            bytes,
            size: header.size,
            version: header.version,
            modified: None,
        });
        if let Some(object) = &object {
            context.note_memory(asked);
            self.entries.count_hit(&object.bytes);
        }
        Ok(object)
    }

    /// Caches an answer of the store.
    fn keep(
        &self,
        key: &Key,
        name: &EntryKey,
        answer: Option<&Object>,
        stamp: QueryStamp,
        seconds: u64,
    ) {
        self.entries.stats().disk_miss_requests.add(1);
        let version = answer.map(|object| object.version);
        let is_true = self.note(key, version, None, stamp);
        if let Some(object) = answer
            && is_true
            && !object.bytes.is_empty()
            && object.version.is_lasting()
        {
            let header = EntryHeader {
                version: object.version,
                size: object.size,
                asked: seconds,
            };
            if !self.is_cut(key, &header) {
                self.entries.put(name, &header, &object.bytes);
            }
        }
    }
}

/// The part of an entry to read.
enum WantedRange<'a> {
    /// The whole entry, unless the object exceeds this many bytes.
    All(u64),
    /// A range of the object, from an entry with the whole object.
    Part(&'a ByteRange),
}

impl Layer for DiskCache {
    fn below(&self) -> &dyn Store {
        &*self.inner
    }

    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let name = EntryKey::whole(key);
        if let Some(object) = self.find(context, key, &name, WantedRange::All(limit))? {
            return Ok(Some(object));
        }
        let seconds = self.seconds();
        let (answer, stamp) = self.ask(context, |context, inner| inner.get(context, key, limit));
        let answer = answer?;
        self.keep(key, &name, answer.as_ref(), stamp, seconds);
        Ok(answer)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let name = EntryKey::range(key, &range);
        if let Some(object) = self.find(context, key, &name, WantedRange::All(u64::MAX))? {
            return Ok(Some(object));
        }
        if let Some(object) = self.find(
            context,
            key,
            &EntryKey::whole(key),
            WantedRange::Part(&range),
        )? {
            return Ok(Some(object));
        }
        let seconds = self.seconds();
        let (answer, stamp) = self.ask(context, |context, inner| {
            inner.get_range(context, key, range)
        });
        let answer = answer?;
        self.keep(key, &name, answer.as_ref(), stamp, seconds);
        Ok(answer)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let (meta, stamp) = self.ask(context, |context, inner| inner.head(context, key));
        let meta = meta?;
        if let Some(meta) = meta.filter(|meta| meta.kind == EntryKind::File) {
            self.note(key, Some(meta.version), Some(meta.size), stamp);
        }
        Ok(meta)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let (version, stamp) = self.ask(context, |context, inner| inner.version(context, key));
        let version = version?;
        self.note(key, version, None, stamp);
        Ok(version)
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        Ok(Arc::new(DiskCacheReader {
            inner: self.inner.open(context, key, known)?,
            clock: self.inner.info().clock.clone(),
            entries: self.entries.clone(),
            key: key.clone(),
        }))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let (etag, stamp) = self.ask(context, |context, inner| inner.etag(context, key));
        let etag = etag?;
        let version = etag.as_ref().map(|etag| etag.version);
        self.note(key, version, None, stamp);
        Ok(etag)
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        let put =
            |context: &RequestContext, inner: &dyn Store| inner.put(context, key, body, condition);
        self.change(context, key, put, |etag| Some(etag.version))
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let erase =
            |context: &RequestContext, inner: &dyn Store| inner.erase(context, key, condition);
        self.change(context, key, erase, |()| None)
    }

    /// Removes the entries, which would return the damaged bytes again, in the next mount too.
    fn doubt(&self, key: &Key, range: Option<&ByteRange>) {
        self.entries.forget(&EntryKey::whole(key));
        if let Some(range) = range {
            self.entries.forget(&EntryKey::range(key, range));
        }
        self.inner.doubt(key, range);
    }
}
