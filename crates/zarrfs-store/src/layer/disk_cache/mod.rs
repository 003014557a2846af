//! The disk cache (`--cache-dir`), shared by processes and mounts.
//!
//! Objects and ranges are cached exactly as requested: readers of shards and archives repeat the same ranges, and
//! blocks around them would only add traffic. A cached range is returned only if it has the version that the store
//! reported for the key within the TTL, and the answer is then as old as that report. Without such a report, only the
//! version is requested, not the bytes. A change of the key through this store invalidates earlier entries. Contents
//! with transient versions (valid only while the mount lasts) are not cached. `cache_dir` limits the size, `entry` has
//! the checksums.

use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;

use crate::layer::Layer;
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;
use crate::{
    ByteRange, ChangeLog, Condition, ETag, EntryKind, Key, LogPosition, Meta, Object, PutBody,
    QueryStamp, Reader, Store, Version, scatter,
};
use zarr_format::error::Result;

mod accounting;
mod cache_dir;
mod entry;
mod folder;
mod identity;

pub use cache_dir::{CacheDir, CacheNamespace};
pub use entry::{EntryHeader, EntryKey};
pub use identity::identity;

/// A store that caches bytes on disk.
pub struct DiskCache {
    inner: Arc<dyn Store>,
    entries: Arc<CacheNamespace>,
    versions: Mutex<VersionTable>,
}

/// For each key, the version that the store reported last.
struct VersionTable {
    by_key: LruCache<Key, ReportedVersion>,
    /// Time of the last change through this mount, in seconds since 1970: earlier cached entries may be outdated.
    changed: u64,
}

/// The version of a key that the store reported last, and the time of that report's request.
#[derive(Clone, Copy)]
struct ReportedVersion {
    /// The reported version, or `None` if the key is missing.
    version: Option<Version>,
    /// The object's length, if the store reported it with the version.
    size: Option<u64>,
    /// Time of the request, or `None` if the key's version is unknown.
    request_time: Option<Instant>,
}

impl DiskCache {
    /// Wraps a store, and caches its bytes in `entries`.
    pub fn new(inner: Arc<dyn Store>, entries: CacheNamespace) -> DiskCache {
        DiskCache {
            inner,
            entries: Arc::new(entries),
            versions: Mutex::new(VersionTable {
                by_key: LruCache::new(const { NonZeroUsize::new(1 << 14).unwrap() }),
                changed: 0,
            }),
        }
    }

    fn changes(&self) -> &ChangeLog {
        &self.inner.info().changes
    }

    /// Queries the wrapped store. Returns the answer, with the time of its request.
    fn ask<T>(
        &self,
        context: &RequestContext,
        query: impl FnOnce(&RequestContext, &dyn Store) -> T,
    ) -> (T, QueryStamp) {
        self.inner
            .info()
            .ask(context, |context| query(context, &*self.inner))
    }

    /// Returns the present time in seconds since 1970, by the clock that all users of the cache share.
    fn seconds(&self) -> u64 {
        entry::seconds(self.entries.date(&self.inner.info().clock))
    }

    /// Records the version that the store reported for a key, unless the key was changed since the request. `size` is
    /// the object's length if the answer had no bytes, or else `None`. Returns whether the version was recorded.
    fn record(
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
            request_time: Some(stamp.request_time),
        };
        versions.by_key.put(key.clone(), reported);
        true
    }

    /// Whether the store reported another length for the same version as the cached entry's: then a proxy has truncated
    /// one of the two answers.
    fn is_truncated(&self, key: &Key, header: &EntryHeader) -> bool {
        let versions = self.versions.lock();
        let reported = versions.by_key.peek(key);
        let same = reported.filter(|reported| reported.version == Some(header.version));
        let size = same.and_then(|same| same.size);
        size.is_some_and(|size| size != header.size)
    }

    /// Makes a change of a key, and records the key's new version, which `version_of` extracts from the result. After
    /// an error the version is unknown.
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
            request_time: done.is_ok().then_some(stamp.request_time),
        };
        let mut versions = self.versions.lock();
        versions.changed = self.seconds();
        versions.by_key.put(key.clone(), reported);
        // The wrapped store has logged the change already. It is logged once more, because this cache may have returned
        // an older answer since then.
        self.changes().record(key);
        drop(versions);
        self.entries.forget(&EntryKey::whole(key));
        done
    }

    /// Returns the present version of a key that has a cached entry, and the time of the request that reported the
    /// version.
    fn current_version(
        &self,
        context: &RequestContext,
        key: &Key,
        header: &EntryHeader,
    ) -> Result<(Option<Version>, Instant)> {
        let mut versions = self.versions.lock();
        let (reported, changed) = (versions.by_key.get(key).copied(), versions.changed);
        drop(versions);
        let was_changed = self.changes().last_change(key) != LogPosition::default();
        let is_after_changes = !was_changed || header.request_time > changed;
        let (version, request_time) = match reported {
            Some(reported) => (reported.version, reported.request_time),
            None if is_after_changes => (Some(header.version), self.time_of(header)),
            None => (None, None),
        };
        if let Some(request_time) =
            request_time.filter(|&request_time| self.inner.info().is_fresh(request_time))
        {
            return Ok((version, request_time));
        }
        let (version, stamp) = self
            .inner
            .info()
            .ask(context, |context| Layer::version(self, context, key));
        Ok((version?, stamp.request_time))
    }

    /// Converts the time of the cached bytes' request to this process's clock.
    fn time_of(&self, header: &EntryHeader) -> Option<Instant> {
        let clock = &self.inner.info().clock;
        clock
            .now()
            .checked_sub(header.age(self.entries.date(clock))?)
    }

    /// Returns an object or range from the disk cache if its version is current.
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
        let (version, request_time) = self.current_version(context, key, &header)?;
        if version != Some(header.version) || self.is_truncated(key, &header) {
            return Ok(None);
        }
        let object = self.entries.read(name, &entry, range).map(|bytes| Object {
            bytes,
            size: header.size,
            version: header.version,
            modified: None,
        });
        if let Some(object) = &object {
            context.record_age(request_time);
            self.entries.count_hit(&object.bytes);
        }
        Ok(object)
    }

    fn store(
        &self,
        key: &Key,
        name: &EntryKey,
        answer: Option<&Object>,
        stamp: QueryStamp,
        seconds: u64,
    ) {
        self.entries.stats().disk_miss_requests.add(1);
        let version = answer.map(|object| object.version);
        let is_current = self.record(key, version, None, stamp);
        if let Some(object) = answer
            && is_current
            && !object.bytes.is_empty()
            && object.version.is_lasting()
        {
            let header = EntryHeader {
                version: object.version,
                size: object.size,
                request_time: seconds,
            };
            if !self.is_truncated(key, &header) {
                self.entries.put(name, &header, &object.bytes);
            }
        }
    }
}

/// The bytes to read from a cached entry.
enum WantedRange<'a> {
    /// All bytes, unless the object exceeds the given number of bytes.
    All(u64),
    /// A range of the object; the entry has the whole object.
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
        self.store(key, &name, answer.as_ref(), stamp, seconds);
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
        self.store(key, &name, answer.as_ref(), stamp, seconds);
        Ok(answer)
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        let (meta, stamp) = self.ask(context, |context, inner| inner.head(context, key));
        let meta = meta?;
        if let Some(meta) = meta.filter(|meta| meta.kind == EntryKind::File) {
            self.record(key, Some(meta.version), Some(meta.size), stamp);
        }
        Ok(meta)
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let (version, stamp) = self.ask(context, |context, inner| inner.version(context, key));
        let version = version?;
        self.record(key, version, None, stamp);
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
        self.record(key, version, None, stamp);
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

    /// Removes the cached entries of an object whose bytes are damaged, so that they are not returned again, by this or
    /// a later mount.
    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        self.entries.forget(&EntryKey::whole(key));
        if let Some(range) = range {
            self.entries.forget(&EntryKey::range(key, range));
        }
        self.inner.drop_cached(key, range);
    }
}

/// An open object, whose ranges are cached on disk.
///
/// Only entries of the version that the wrapped reader reports are returned. Bytes are cached only if the version is
/// the same after they were read.
struct DiskCacheReader {
    inner: Arc<dyn Reader>,
    clock: Clock,
    entries: Arc<CacheNamespace>,
    key: Key,
}

impl DiskCacheReader {
    /// Returns a range of the object from the disk cache: from the range's own entry, or from the whole object's entry.
    fn find(&self, range: &ByteRange, meta: &Meta) -> Option<Vec<u8>> {
        let read = |name: &EntryKey, is_whole: bool| {
            let entry = self.entries.find(name)?;
            let header = entry.header();
            if (header.version, header.size) != (meta.version, meta.size) {
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

    /// Caches ranges that were read completely, if the object still has the version from before the read.
    fn store<'a>(
        &self,
        context: &RequestContext,
        meta: &Meta,
        request_time: u64,
        read: impl IntoIterator<Item = (&'a Range<u64>, &'a [u8])>,
    ) -> Result<()> {
        // If the version has changed during the read, the bytes may belong to a version in between.
        if !meta.version.is_lasting() || self.inner.meta(context)?.version != meta.version {
            return Ok(());
        }
        let header = EntryHeader {
            version: meta.version,
            size: meta.size,
            request_time,
        };
        for (range, bytes) in read {
            if bytes.len() as u64 == range.end - range.start {
                let name = EntryKey::range(&self.key, &ByteRange::Span(range.clone()));
                self.entries.put(&name, &header, bytes);
            }
        }
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
impl Reader for DiskCacheReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let meta = self.inner.meta(context)?;
        let end = offset.saturating_add(len as u64).min(meta.size);
        if offset >= end {
            return self.inner.read_at(context, offset, len);
        }
        let range = ByteRange::Span(offset..end);
        if let Some(bytes) = self.find(&range, &meta) {
            self.entries.count_hit(&bytes);
            return Ok(bytes);
        }
        self.entries.stats().disk_miss_requests.add(1);
        let request_time = entry::seconds(self.entries.date(&self.clock));
        let bytes = self.inner.read_at(context, offset, len)?;
        self.store(context, &meta, request_time, [(&(offset..end), &*bytes)])?;
        Ok(bytes)
    }

    fn read_vectored(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(context, offset, wanted)?;
        scatter(&bytes, parts);
        Ok(bytes.len())
    }

    /// Caches each range as an entry of its own, so that it is found again in any other combination of ranges.
    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let meta = self.inner.meta(context)?;
        let mut cached: Vec<Option<Bytes>> = Vec::with_capacity(ranges.len());
        let mut missing: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let bytes = self.find(&ByteRange::Span(range.clone()), &meta);
            match &bytes {
                Some(bytes) => self.entries.count_hit(bytes),
                None => missing.push(range.clone()),
            }
            cached.push(bytes.map(Bytes::from));
        }
        if missing.is_empty() {
            return Ok(cached.into_iter().flatten().collect());
        }
        self.entries.stats().disk_miss_requests.add(1);
        let request_time = entry::seconds(self.entries.date(&self.clock));
        let read = self.inner.read_ranges(context, &missing)?;
        self.store(
            context,
            &meta,
            request_time,
            missing.iter().zip(read.iter().map(AsRef::as_ref)),
        )?;
        let mut read = read.into_iter();
        let whole = cached
            .into_iter()
            .map(|bytes| bytes.or_else(|| read.next()));
        Ok(whole.flatten().collect())
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.inner.meta(context)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
