//! Open objects with ranges from the disk cache.
//!
//! The reader below reports the version. Only entries of that version are used, and bytes are cached only if the
//! version is unchanged after the read.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::Bytes;

use super::cache_dir::CacheNamespace;
use super::entry;
use super::entry::{EntryHeader, EntryKey};
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;
use crate::{ByteRange, Key, Meta, Reader, deal_out};
use zarr_format::error::Result;

/// An open object over the disk cache.
pub(super) struct DiskCacheReader {
    pub(super) inner: Arc<dyn Reader>,
    pub(super) clock: Clock,
    pub(super) entries: Arc<CacheNamespace>,
    pub(super) key: Key,
}

impl DiskCacheReader {
    /// Returns a cached range, from its own entry or from one with the whole object.
    fn find(&self, range: &ByteRange, meta: &Meta) -> Option<Vec<u8>> {
        let read = |name: &EntryKey, is_whole: bool| {
            let entry = self.entries.find(name)?;
            let header = entry.header();
            if (header.version, header.size) != meta.content() {
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

    /// Caches ranges that were read completely, if the object still has its earlier version.
    fn keep<'a>(
        &self,
        context: &RequestContext,
        meta: &Meta,
        asked: u64,
        read: impl IntoIterator<Item = (&'a Range<u64>, &'a [u8])>,
    ) -> Result<()> {
        // The bytes may belong to a version in between.
        if !meta.version.is_lasting() || self.inner.meta(context)?.version != meta.version {
            return Ok(());
        }
        let header = EntryHeader {
            version: meta.version,
            size: meta.size,
            asked,
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
        let asked = entry::seconds(self.entries.date(&self.clock));
        let bytes = self.inner.read_at(context, offset, len)?;
        self.keep(context, &meta, asked, [(&(offset..end), &*bytes)])?;
        Ok(bytes)
    }

    fn read_scattered(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(context, offset, wanted)?;
        deal_out(&bytes, parts);
        Ok(bytes.len())
    }

    /// Each range is a separate entry, so that it is found again in any other combination.
    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let meta = self.inner.meta(context)?;
        let mut found: Vec<Option<Bytes>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            let bytes = self.find(&ByteRange::Span(range.clone()), &meta);
            if let Some(bytes) = &bytes {
                self.entries.count_hit(bytes);
            }
            found.push(bytes.map(Bytes::from));
        }
        let is_missing = |(_, bytes): &(_, &Option<Bytes>)| bytes.is_none();
        let missing = ranges.iter().zip(&found).filter(is_missing);
        let missing: Vec<Range<u64>> = missing.map(|(range, _)| range.clone()).collect();
        if missing.is_empty() {
            return Ok(found.into_iter().flatten().collect());
        }
        self.entries.stats().disk_miss_requests.add(1);
        let asked = entry::seconds(self.entries.date(&self.clock));
        let read = self.inner.read_ranges(context, &missing)?;
        self.keep(
            context,
            &meta,
            asked,
            missing.iter().zip(read.iter().map(AsRef::as_ref)),
        )?;
        let mut read = read.into_iter();
        let whole = found.into_iter().map(|bytes| bytes.or_else(|| read.next()));
        Ok(whole.flatten().collect())
    }

    fn meta(&self, context: &RequestContext) -> Result<Meta> {
        self.inner.meta(context)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}
