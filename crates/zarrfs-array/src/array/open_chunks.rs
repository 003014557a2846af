//! Opens the stored chunks of an array and reads each as one content.
//!
//! An open chunk is one content of a key: its shard index and its bytes belong together even if the key is replaced. If
//! the object is overwritten in place, the change is detected and the chunk is opened again. `ChunkVersions` decides
//! whether the content is current. The chunks that were read last stay open, up to a limit for all arrays.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::array::chunk_versions::{ChunkVersions, VersionState};
use crate::array::decoder::Decoder;
use crate::array::open_chunk::{OpenChunk, OpenRequest, StoredChunkKey};
use crate::array::shard::ShardIndexes;
use crate::array::stored_array::StoredArray;
use zarr_format::codec::ShardLevel;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{ByteRange, EntryKind, Key, Meta, Store, Version};

/// Opens the stored chunks of an array, which are given by their numbers in the grid of stored chunks.
pub(super) struct OpenChunks {
    array: Arc<StoredArray>,
    decoder: Arc<Decoder>,
    versions: Arc<ChunkVersions>,
    indexes: Arc<ShardIndexes>,
}

impl OpenChunks {
    pub(super) fn new(
        array: Arc<StoredArray>,
        decoder: Arc<Decoder>,
        versions: Arc<ChunkVersions>,
        indexes: Arc<ShardIndexes>,
    ) -> Arc<OpenChunks> {
        Arc::new(OpenChunks {
            array,
            decoder,
            versions,
            indexes,
        })
    }

    fn key(&self, number: u64) -> StoredChunkKey {
        StoredChunkKey {
            array: self.array.id,
            number,
        }
    }

    /// Closes a stored chunk that was replaced, so that the next read opens the new object.
    pub(super) fn forget(&self, number: u64) {
        self.array.engine.open_chunks.forget(self.key(number));
    }

    /// Closes a stored chunk that could not be read, and drops its shard indexes: a proxy may have truncated the
    /// response that the chunk was opened with, and the next response has the true length.
    fn forget_doubtful(&self, number: u64, key: &Key, error: &Error) {
        if !matches!(error.kind(), Kind::Corrupt | Kind::Unavailable) {
            return;
        }
        self.forget(number);
        let pipeline = self.decoder.pipeline_of(ChunkIndex(number));
        if error.kind() == Kind::Corrupt {
            let level = pipeline.as_ref().ok().and_then(|it| it.shards().first());
            let range = level.map(index_range);
            self.array.store().drop_cached(key, range.as_ref());
        }
        let holds_shards = pipeline.is_ok_and(|pipeline| pipeline.shards().len() > 1);
        self.indexes.forget(number, holds_shards);
    }

    /// Returns the open stored chunk if its version is current, and otherwise opens it; `None` if the chunk is missing.
    fn current(&self, context: &RequestContext, number: u64) -> Result<Option<Arc<OpenChunk>>> {
        let version = match self.versions.state(number) {
            VersionState::Known(version) => version,
            VersionState::Stale => self.versions.fetch(context, number)?,
            VersionState::Unknown => return self.open(context, number),
        };
        let Some(version) = version else {
            return Ok(None);
        };
        if let Some(open) = self.opened(number, version) {
            return Ok(Some(open));
        }
        self.forget(number);
        self.open(context, number)
    }

    /// Calls `read` with an open stored chunk. If `read` returns `Changed`, opens the chunk again and retries, at most
    /// three times. Returns `None` if the chunk is missing.
    pub(super) fn read<T>(
        &self,
        context: &RequestContext,
        number: u64,
        mut read: impl FnMut(&OpenChunk) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut stored = self.current(context, number)?;
        for _ in 0..3 {
            let Some(open) = &stored else { return Ok(None) };
            match read(open) {
                Err(error) if error.kind() == Kind::Changed => {}
                Err(error) => {
                    self.forget_doubtful(number, &open.key, &error);
                    return Err(error);
                }
                answer => return answer.map(Some),
            }
            self.forget(number);
            stored = self.open(context, number)?;
        }
        stored.map(|open| read(&open)).transpose()
    }

    /// Opens a stored chunk; concurrent callers share one request.
    fn open(&self, context: &RequestContext, number: u64) -> Result<Option<Arc<OpenChunk>>> {
        let keys = self.array.stored_keys(number)?;
        let changes = &self.array.info.changes;
        let changed = keys.iter().map(|key| changes.last_change(key)).max();
        // A caller that comes after a change of the chunk must not share a request from before the change.
        let request = OpenRequest {
            chunk: self.key(number),
            changed: changed.unwrap_or_default(),
        };
        let opening = &self.array.engine.opening;
        opening.run(context, &request, self.array.engine.deadline(), || {
            // Another thread may have opened the chunk while this thread waited.
            if let VersionState::Known(Some(version)) = self.versions.state(number)
                && let Some(open) = self.opened(number, version)
            {
                return Ok(Some(open));
            }
            self.open_first(context, number, &keys)
        })
    }

    /// Returns a stored chunk if it is open in the given version.
    fn opened(&self, number: u64, version: Version) -> Option<Arc<OpenChunk>> {
        let open = self.array.engine.open_chunks.get(self.key(number));
        open.filter(|stored| stored.meta.version == version)
    }

    /// Opens a stored chunk under the first of its keys that exists, and records its version.
    fn open_first(
        &self,
        context: &RequestContext,
        number: u64,
        keys: &[Key],
    ) -> Result<Option<Arc<OpenChunk>>> {
        let pipeline = self.decoder.pipeline_of(ChunkIndex(number))?;
        // Over a network the request for the index of a shard also returns the shard's version and length, so opening
        // the shard takes no other request. But a server that ignores ranges would send the whole shard for its index,
        // and once more for its inner chunks.
        let sends_parts = &self.array.info.sends_parts;
        let is_enough = self.array.engine.limits.fetches > 0 && sends_parts.load(Ordering::Relaxed);
        let level = pipeline.shards().first().filter(|_| is_enough);
        let (opened, stamp) = self.array.ask(context, |context, store| {
            let mut opened =
                keys.iter().map(|key| match level {
                    Some(level) => self.open_by_index(context, store, key, level),
                    None => Ok(OpenChunk::open(context, store, key, None)?
                        .map(|stored| (stored, Vec::new()))),
                });
            opened.find_map(Result::transpose).transpose()
        });
        let (stored, index) = match opened? {
            Some((stored, index)) => (Some(Arc::new(stored)), index),
            None => (None, Vec::new()),
        };
        let version = stored.as_ref().map(|stored| stored.meta.version);
        self.versions.record(number, version, stamp);
        if let Some(stored) = &stored {
            if let Some(level) = level {
                self.indexes.keep(level, number, stored, &index);
            }
            self.array
                .engine
                .open_chunks
                .put(self.key(number), stored.clone());
        }
        Ok(stored)
    }

    /// Opens a shard by reading its index; returns the open shard and the bytes of its index.
    fn open_by_index(
        &self,
        context: &RequestContext,
        store: &dyn Store,
        key: &Key,
        level: &ShardLevel,
    ) -> Result<Option<(OpenChunk, Vec<u8>)>> {
        let Some(found) = store.get_range(context, key, index_range(level))? else {
            return Ok(None);
        };
        let meta = Meta {
            kind: EntryKind::File,
            size: found.size,
            stored: found.size,
            modified: found.modified.unwrap_or(self.array.modified),
            version: found.version,
        };
        let Some(stored) = OpenChunk::open(context, store, key, Some(&meta))? else {
            return Ok(None);
        };
        // The store may have replaced the object between the read of the index and the open.
        let is_same = stored.meta.version == found.version;
        let index = if is_same { found.bytes } else { Vec::new() };
        Ok(Some((stored, index)))
    }
}

fn index_range(level: &ShardLevel) -> ByteRange {
    let length = level.index_bytes() as u64;
    if level.index_at_end() {
        ByteRange::Suffix(length)
    } else {
        ByteRange::Span(0..length)
    }
}
