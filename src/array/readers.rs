//! Stored chunks kept open: the shards and uncompressed chunks of all arrays, read piece by piece.
//!
//! An open chunk is one content of a key: its index and its bytes belong together even if the key is replaced
//! meanwhile. One that is overwritten in place is noticed and opened again. `versions` says whether the content is
//! still the current one.

use parking_lot::Mutex;
use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lru::LruCache;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::version_table::VersionState;
use crate::codec::ShardLevel;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Runs};
use crate::request_context::RequestContext;
use crate::store::{ByteRange, EntryKind, Key, LogPosition, Meta, Reader, Store, Version};
use crate::sync::descriptors::ClosesFiles;

/// Number of stored chunks that are kept open.
const MAX_OPEN_CHUNKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// A stored chunk kept open.
pub(super) struct StoredChunk {
    pub(super) key: Key,
    pub(super) meta: Meta,
    pub(super) reader: Arc<dyn Reader>,
}

/// The numbers of an array and of a stored chunk in its grid, and the last change of that chunk before it is opened.
pub(super) type OpenQuestion = (u64, u64, LogPosition);

/// The stored chunks that are open, by the number of their array and theirs in its grid.
pub(super) struct ReaderCache(Mutex<LruCache<(u64, u64), Arc<StoredChunk>>>);

impl Default for ReaderCache {
    fn default() -> ReaderCache {
        ReaderCache(Mutex::new(LruCache::new(MAX_OPEN_CHUNKS)))
    }
}

impl ReaderCache {
    fn get(&self, chunk: (u64, u64)) -> Option<Arc<StoredChunk>> {
        let mut open = self.0.lock();
        open.get(&chunk).cloned()
    }

    fn forget(&self, chunk: (u64, u64)) {
        let closed = self.0.lock().pop(&chunk);
        drop(closed);
    }

    fn put(&self, chunk: (u64, u64), stored: Arc<StoredChunk>) {
        let mut open = self.0.lock();
        let replaced = open.push(chunk, stored);
        drop(open);
        drop(replaced);
    }
}

impl ClosesFiles for ReaderCache {
    fn close_some(&self) {
        let mut open = self.0.lock();
        let closed = open.len().div_ceil(2);
        let closed: Vec<_> = (0..closed).filter_map(|_| open.pop_lru()).collect();
        drop(open);
        drop(closed);
    }
}

impl OpenArray {
    /// Closes a stored chunk that was replaced.
    pub(super) fn forget_reader(&self, number: u64) {
        self.engine.readers.forget((self.id, number));
    }

    /// Closes a stored chunk that does not read, and forgets its indexes: a proxy may have cut the answer short by which it
    /// was opened, and its true length comes with the next one.
    fn forget_doubtful(&self, decoder: &Decoder, (number, key): (u64, &Key), error: &Error) {
        if !matches!(error.kind(), Kind::Corrupt | Kind::Unavailable) {
            return;
        }
        self.forget_reader(number);
        let pipeline = decoder.pipeline_of(ChunkIndex(number));
        if error.kind() == Kind::Corrupt {
            let level = pipeline.as_ref().ok().and_then(|it| it.shards().first());
            let range = level.map(index_range);
            self.hierarchy.store().doubt(key, range.as_ref());
        }
        let cache = &self.engine.cache;
        cache.forget(&(self.id, 1, number));
        if pipeline.is_ok_and(|pipeline| pipeline.shards().len() > 1) {
            cache.forget_all(|&(array, depth, _)| array == self.id && depth > 1);
        }
    }

    /// Returns a stored chunk, open and current; nothing if it is missing.
    fn stored(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: u64,
    ) -> Result<Option<Arc<StoredChunk>>> {
        let version = match self.versions.state(number) {
            VersionState::Known(version) => version,
            VersionState::Stale => self.versions.fetch(context, number)?,
            VersionState::Unknown => return self.open_stored(context, decoder, number),
        };
        let Some(version) = version else {
            return Ok(None);
        };
        if let Some(open) = self.opened(number, version) {
            return Ok(Some(open));
        }
        self.forget_reader(number);
        self.open_stored(context, decoder, number)
    }

    /// Calls `read` with a stored chunk; again with the chunk opened anew when `read` returns `Changed`, at most
    /// `MAX_REOPENS` times. Returns nothing if the chunk is missing.
    pub(super) fn read_stored<T>(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: u64,
        mut read: impl FnMut(&StoredChunk) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut stored = self.stored(context, decoder, number)?;
        for _ in 0..MAX_REOPENS {
            let Some(open) = &stored else { return Ok(None) };
            match read(open) {
                Err(error) if error.kind() == Kind::Changed => {}
                Err(error) => {
                    self.forget_doubtful(decoder, (number, &open.key), &error);
                    return Err(error);
                }
                answer => return answer.map(Some),
            }
            self.forget_reader(number);
            stored = self.open_stored(context, decoder, number)?;
        }
        stored.map(|open| read(&open)).transpose()
    }

    /// Opens a stored chunk; threads that want the same one at the same time open it once.
    fn open_stored(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: u64,
    ) -> Result<Option<Arc<StoredChunk>>> {
        let keys = self.stored_keys(number)?;
        let changes = &self.hierarchy.store().info().changes;
        let changed = keys.iter().map(|key| changes.last_change(key)).max();
        // Who comes after a change of the chunk must not be given what was opened before it.
        let question = (self.id, number, changed.unwrap_or_default());
        let opening = &self.engine.opening;
        opening.run(context, &question, self.engine.deadline(), || {
            // Another thread may have opened it since this one looked.
            if let VersionState::Known(Some(version)) = self.versions.state(number)
                && let Some(open) = self.opened(number, version)
            {
                return Ok(Some(open));
            }
            self.open_first(context, decoder, number, &keys)
        })
    }

    /// Returns a stored chunk that is open in this version.
    fn opened(&self, number: u64, version: Version) -> Option<Arc<StoredChunk>> {
        let open = self.engine.readers.get((self.id, number));
        open.filter(|stored| stored.meta.version == version)
    }

    /// Opens a stored chunk under the first of its keys that exists, and notes its version.
    fn open_first(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: u64,
        keys: &[Key],
    ) -> Result<Option<Arc<StoredChunk>>> {
        let pipeline = decoder.pipeline_of(ChunkIndex(number))?;
        // Over a network the request for the index of a shard tells what else there is to know of it. One that brings all of
        // the shard would be made again for its inner chunks.
        let sends_parts = &self.hierarchy.store().info().sends_parts;
        let is_enough = self.engine.limits.fetches > 0 && sends_parts.load(Ordering::Relaxed);
        let level = pipeline.shards().first().filter(|_| is_enough);
        let (opened, stamp) = self.ask(context, |context, store| {
            let mut opened = keys.iter().map(|key| match level {
                Some(level) => self.open_by_index(context, store, key, level),
                None => Ok(open(context, store, key, None)?.map(|stored| (stored, Vec::new()))),
            });
            opened.find_map(Result::transpose).transpose()
        });
        let (stored, index) = match opened? {
            Some((stored, index)) => (Some(Arc::new(stored)), index),
            None => (None, Vec::new()),
        };
        let version = stored.as_ref().map(|stored| stored.meta.version);
        self.versions.note(number, version, stamp);
        if let Some(stored) = &stored {
            if let Some(level) = level {
                self.keep_index(level, number, stored, &index);
            }
            self.engine.readers.put((self.id, number), stored.clone());
        }
        Ok(stored)
    }

    /// Opens a shard by a read of its index; returns the bytes of the index as well.
    fn open_by_index(
        &self,
        context: &RequestContext,
        store: &dyn Store,
        key: &Key,
        level: &ShardLevel,
    ) -> Result<Option<(StoredChunk, Vec<u8>)>> {
        let Some(found) = store.get_range(context, key, index_range(level))? else {
            return Ok(None);
        };
        let meta = Meta {
            kind: EntryKind::File,
            size: found.size,
            stored: found.size,
            modified: found.modified.unwrap_or(self.modified),
            version: found.version,
        };
        let Some(stored) = open(context, store, key, Some(&meta))? else {
            return Ok(None);
        };
        // The store may have opened a later version.
        let is_same = stored.meta.version == found.version;
        let index = if is_same { found.bytes } else { Vec::new() };
        Ok(Some((stored, index)))
    }
}

/// Returns the part of a shard that is its index.
fn index_range(level: &ShardLevel) -> ByteRange {
    let length = level.index_bytes() as u64;
    if level.index_at_end() {
        ByteRange::Suffix(length)
    } else {
        ByteRange::Span(0..length)
    }
}

/// Opens an object; `known` is what the store said of it just now.
fn open(
    context: &RequestContext,
    store: &dyn Store,
    key: &Key,
    known: Option<&Meta>,
) -> Result<Option<StoredChunk>> {
    let reader = match store.open(context, key, known) {
        Ok(reader) => reader,
        Err(error) if error.kind() == Kind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (key, meta) = (key.clone(), reader.meta(context)?);
    Ok(Some(StoredChunk { key, meta, reader }))
}

/// How often a chunk that changes while it is read is opened again.
const MAX_REOPENS: usize = 3;

/// The most buffers that one system call fills (IOV_MAX).
const MAX_BUFFERS: usize = 1024;

impl StoredChunk {
    /// Fails with `Changed` if the object may hold something else than when it was opened.
    pub(super) fn check_unchanged(&self, context: &RequestContext) -> Result<()> {
        if self.reader.meta(context)?.version != self.meta.version {
            return Err(self.changed());
        }
        Ok(())
    }

    /// Returns the error of a chunk that changed while it was read.
    pub(super) fn changed(&self) -> Error {
        Error::new(Kind::Changed, &self.key, "was written while it was read")
    }

    /// Reads runs of an uncompressed chunk of `length` bytes directly into their places in `out`.
    pub(super) fn scatter(
        &self,
        context: &RequestContext,
        runs: &Runs,
        length: usize,
        out: &mut [u8],
    ) -> Result<()> {
        if self.meta.size != length as u64 {
            self.check_unchanged(context)?;
            let found = format!("expected {length} bytes, found {}", self.meta.size);
            return Err(Error::corrupt(&self.key, found));
        }
        let places = runs.places();
        let size = runs.run_length();
        let mut rest = out;
        let mut consumed = 0;
        let joined = |a: &(usize, usize), b: &(usize, usize)| a.0 + size == b.0;
        for row in places.chunk_by(joined) {
            for group in row.chunks(MAX_BUFFERS) {
                let mut parts = Vec::with_capacity(group.len());
                for &(_, to) in group {
                    let (_, after) = rest.split_at_mut(to - consumed);
                    let (part, after) = after.split_at_mut(size);
                    parts.push(IoSliceMut::new(part));
                    (rest, consumed) = (after, to + size);
                }
                self.fill(context, group[0].0 as u64, group.len() * size, &mut parts)?;
            }
        }
        Ok(())
    }

    fn fill(
        &self,
        context: &RequestContext,
        offset: u64,
        length: usize,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<()> {
        let read = self.reader.read_scattered(context, offset, parts)?;
        if read == length {
            return Ok(());
        }
        self.check_unchanged(context)?;
        let found = format!("expected {length} bytes at {offset}, found {read}");
        Err(Error::corrupt(&self.key, found))
    }
}
