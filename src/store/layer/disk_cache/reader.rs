//! An open object whose ranges are looked for on disk first.

use std::io::IoSliceMut;
use std::sync::Arc;

use super::cache_dir::CacheNamespace;
use super::entry::{EntryHeader, EntryKey};
use crate::error::Result;
use crate::store::{ByteRange, Key, Meta, Reader, Version, deal_out};

/// A reader over a reader. Which content it is the one below says; only bytes of that content are taken.
pub(super) struct DiskCacheReader {
    pub(super) inner: Arc<dyn Reader>,
    pub(super) drawer: Arc<CacheNamespace>,
    pub(super) key: Key,
}

impl DiskCacheReader {
    /// Returns a range that the cache has, by itself or as a part of the whole object.
    fn find(&self, range: &ByteRange, version: Version) -> Option<Vec<u8>> {
        let labels = [
            EntryKey::range(&self.key, range),
            EntryKey::whole(&self.key),
        ];
        labels.iter().enumerate().find_map(|(place, label)| {
            let entry = self.drawer.find(label)?;
            if entry.header().version != version {
                return None;
            }
            let part = match place {
                0 => 0..entry.len(),
                _ => range.within(entry.len()),
            };
            self.drawer.read(label, &entry, part)
        })
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
        let stats = self.drawer.stats();
        if let Some(bytes) = self.find(&range, meta.version) {
            stats.disk_hit_requests.add(1);
            stats.disk_hit_bytes.add(bytes.len() as u64);
            return Ok(bytes);
        }
        stats.disk_miss_requests.add(1);
        let asked = EntryHeader::now(meta.version, meta.size);
        let bytes = self.inner.read_at(offset, len)?;
        let is_whole = bytes.len() as u64 == end - offset;
        // What was read may be of a content that came in between.
        if is_whole && self.inner.meta()?.version == meta.version {
            self.drawer
                .put(&EntryKey::range(&self.key, &range), &asked, &bytes);
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
