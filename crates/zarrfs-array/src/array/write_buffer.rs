//! Holds the dirty chunks of an array until they are stored.
//!
//! Of a shard, only the written inner chunks are in the buffer. In this module a chunk is the object under one key, and
//! a subchunk is the smallest part that decodes alone: an inner chunk of a shard, or a chunk that is no shard. Every
//! reader of the array gets the dirty subchunks instead of the stored ones. A chunk is locked while it is edited or
//! stored, so no change is lost; a subchunk is edited in place only if no reader shares it. The table of dirty chunks
//! is locked for a lookup, or while the bytes of one write are copied.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::array::chunk::DecodedChunk;
use crate::array::chunk_versions::PageVersion;
use crate::array::dirty_chunk::{Basis, DirtyChunk, ReadDigest, WrittenSubchunk};
use crate::array::writers::Writers;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarr_format::model::Array;
use zarrfs_store::Presence;
use zarrfs_store::{Key, Version};

#[derive(Default)]
pub(super) struct DirtyBytes {
    pub(super) bytes: AtomicU64,
    /// The number of writes so far. Each write gets the next number, so that chunks can be ordered by their last write.
    writes: AtomicU64,
    /// Whether writes are refused, because the dirty chunks are being stored for the last time before the process ends.
    is_closed: AtomicBool,
}

impl DirtyBytes {
    /// Refuses all writes from now on. Writes that were accepted before are in a write buffer by then.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

/// The number of locks that the chunks of an array share.
const CHUNK_LOCKS: usize = 64;

pub(super) struct WriteBuffer {
    /// The metadata of the array without attributes; the shape may have changed since.
    array: Arc<Array>,
    /// The dirty chunks, by the indices of the stored chunk, which stay the same when an array grows.
    chunks: Mutex<LruCache<Coordinates, DirtyChunk>>,
    /// The number of dirty chunks; readers check it before they take the lock of `chunks`.
    count: AtomicUsize,
    /// The version of the kernel's pages, which changes with each write.
    pub(super) page_version: PageVersion,
    /// The number of dirty chunks that were dropped because of a conflict, and the last error.
    lost: Mutex<(u64, Option<Error>)>,
    /// The open files through which the array may be written.
    pub(super) writers: Writers,
    locks: [Mutex<()>; CHUNK_LOCKS],
    all: Arc<DirtyBytes>,
}

/// The right to edit or store a chunk, until the lock is dropped.
pub(super) type ChunkLock<'a> = MutexGuard<'a, ()>;

impl WriteBuffer {
    pub(super) fn new(array: &Arc<Array>, all: Arc<DirtyBytes>) -> WriteBuffer {
        WriteBuffer {
            array: array.clone(),
            chunks: Mutex::new(LruCache::unbounded()),
            count: AtomicUsize::new(0),
            page_version: PageVersion::new(),
            lost: Mutex::default(),
            writers: Writers::default(),
            locks: [const { Mutex::new(()) }; CHUNK_LOCKS],
            all,
        }
    }

    /// Whether the dirty chunks still have the same meaning if the array has these metadata.
    pub(super) fn fits(&self, array: &Array) -> bool {
        self.array.is_stored_like(array)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Coordinates, DirtyChunk>> {
        self.chunks.lock()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Locks a chunk for editing or storing; blocks while another thread edits or stores it.
    pub(super) fn lock_chunk(&self, chunk: &[u64]) -> ChunkLock<'_> {
        let mut hasher = DefaultHasher::new();
        chunk.hash(&mut hasher);
        let slot = hasher.finish() % CHUNK_LOCKS as u64;
        self.locks[usize::try_from(slot).unwrap_or(0)].lock()
    }

    pub(super) fn find(&self, chunk: &Coordinates, inner: &[usize]) -> Option<Arc<DecodedChunk>> {
        self.lock().peek(chunk)?.subchunks.get(inner).cloned()
    }

    /// Returns the digest that a dirty subchunk had when it was read for an edit; `None` if the subchunk is not dirty.
    pub(super) fn read_digest(&self, chunk: &Coordinates, inner: &[usize]) -> Option<ReadDigest> {
        let chunks = self.lock();
        let found = chunks.peek(chunk)?;
        let is_here = found.subchunks.contains_key(inner);
        is_here.then(|| ReadDigest(found.read.get(inner).copied().flatten()))
    }

    /// Returns the digest of the stored subchunk from which the unwritten elements of a dirty subchunk come; `None` if
    /// the subchunk is not dirty, or was written whole.
    pub(super) fn rest_digest(&self, chunk: &Coordinates, inner: &[usize]) -> Option<ReadDigest> {
        let chunks = self.lock();
        let read = chunks.peek(chunk)?.read.get(inner);
        read.copied().map(ReadDigest)
    }

    /// Returns a subchunk if it is dirty. Returns `Unknown`, without waiting, if another thread has the table locked,
    /// because a write copies its bytes under the lock.
    pub(super) fn try_find(
        &self,
        chunk: &Coordinates,
        inner: &[usize],
    ) -> Presence<Arc<DecodedChunk>> {
        let Some(chunks) = self.chunks.try_lock() else {
            return Presence::Unknown;
        };
        let found = chunks.peek(chunk);
        found
            .and_then(|found| found.subchunks.get(inner).cloned())
            .into()
    }

    /// Fails once writes are refused. The caller has the table of dirty chunks locked, so that a later listing of dirty
    /// chunks includes every write that was accepted.
    fn check_taken(&self) -> Result<()> {
        if self.all.is_closed.load(Ordering::SeqCst) {
            let why = "the mount is being unmounted: nothing can be written";
            return Err(Error::unavailable("", why));
        }
        Ok(())
    }

    /// Edits a dirty subchunk in place; returns false if the subchunk is not dirty, or a reader shares it. The caller
    /// has locked the chunk.
    ///
    /// `Unavailable` once writes are refused.
    pub(super) fn edit(
        &self,
        chunk: &Coordinates,
        inner: &[usize],
        is_whole: bool,
        edit: &dyn Fn(&mut [u8]),
    ) -> Result<bool> {
        let mut chunks = self.lock();
        self.check_taken()?;
        let Some(found) = chunks.get_mut(chunk) else {
            return Ok(false);
        };
        let subchunk = found.subchunks.get_mut(inner).and_then(Arc::get_mut);
        let Some(subchunk) = subchunk else {
            return Ok(false);
        };
        edit(&mut subchunk.bytes);
        if is_whole {
            found.depend(inner, Basis::Nothing);
        }
        self.touch(found);
        Ok(true)
    }

    /// Inserts or replaces a dirty subchunk. The caller has locked the chunk.
    ///
    /// `Unavailable` once writes are refused.
    pub(super) fn put(&self, chunk: &Coordinates, written: WrittenSubchunk) -> Result<()> {
        let WrittenSubchunk {
            place,
            indices,
            decoded,
            basis,
        } = written;
        let length = decoded.bytes().len() as u64;
        let mut chunks = self.lock();
        self.check_taken()?;
        let found = chunks.get_or_insert_mut(chunk.clone(), DirtyChunk::default);
        found.depend(&place, basis);
        found.indices.insert(place.clone(), indices);
        let replaced = found.subchunks.insert(place, decoded);
        if replaced.is_none() {
            self.all.bytes.fetch_add(length, Ordering::Relaxed);
        }
        self.touch(found);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        drop(replaced);
        Ok(())
    }

    /// Numbers a write to a chunk, and renews the version of the kernel's pages.
    fn touch(&self, chunk: &mut DirtyChunk) {
        let touched = self.all.writes.fetch_add(1, Ordering::Relaxed);
        chunk.mark_written(touched);
        self.page_version.renew();
    }

    pub(super) fn get(&self, chunk: &Coordinates) -> Option<DirtyChunk> {
        self.lock().peek(chunk).cloned()
    }

    /// Returns the indices of all dirty chunks, least recently written first.
    pub(super) fn chunks(&self) -> Vec<Coordinates> {
        let chunks = self.lock();
        chunks
            .iter()
            .rev()
            .map(|(chunk, _)| chunk.clone())
            .collect()
    }

    /// Returns the least recently written chunk, but not `excluded`, and the number of its last write. Chunks that
    /// could not be stored are included only if `with_failed` is true.
    pub(super) fn oldest(
        &self,
        excluded: Option<&Coordinates>,
        with_failed: bool,
    ) -> Option<(u64, Coordinates)> {
        let chunks = self.lock();
        let mut oldest_first = chunks.iter().rev();
        let (indices, chunk) = oldest_first.find(|(indices, chunk)| {
            (with_failed || !chunk.failed) && Some(*indices) != excluded
        })?;
        Some((chunk.touched, indices.clone()))
    }

    pub(super) fn mark_failed(&self, chunk: &Coordinates) {
        if let Some(chunk) = self.lock().peek_mut(chunk) {
            chunk.failed = true;
        }
    }

    /// Records that the key has the content of the dirty chunk in this version, although the put returned an error. The
    /// caller has locked the chunk.
    pub(super) fn confirm(&self, chunk: &Coordinates, version: Version) {
        if let Some(chunk) = self.lock().peek_mut(chunk) {
            chunk.confirm(version);
        }
    }

    /// Drops a dirty chunk that can no longer be stored; each writer of the array gets the error. The caller has locked
    /// the chunk.
    pub(super) fn abandon(&self, chunk: &Coordinates, error: &Error) {
        self.refuse_pages(chunk);
        self.remove(chunk);
        self.record_loss(error);
    }

    /// Refuses write-back of the kernel's pages of a dropped chunk from now on, since they have the dropped content.
    fn refuse_pages(&self, chunk: &Coordinates) {
        let subchunks = self.get(chunk).into_iter().flat_map(|lost| lost.indices);
        subchunks.for_each(|(_, subchunk)| self.writers.refuse(&subchunk));
    }

    /// Records that a write was dropped; each writer of the array gets the error.
    pub(super) fn record_loss(&self, error: &Error) {
        let mut lost = self.lost.lock();
        *lost = (lost.0 + 1, Some(error.clone()));
        drop(lost);
        self.page_version.renew();
    }

    pub(super) fn has_key(&self, key: &Key) -> bool {
        let rank = self.array.shape.len();
        self.array.keys.chunk_of(key.as_bytes(), rank).is_some()
    }

    /// Returns how many dirty chunks were dropped so far because of a conflict, and the last error.
    pub(super) fn lost(&self) -> (u64, Option<Error>) {
        self.lost.lock().clone()
    }

    /// Removes a chunk that was stored or discarded from the buffer. The caller has locked the chunk.
    pub(super) fn remove(&self, chunk: &Coordinates) {
        let mut chunks = self.lock();
        let removed = chunks.pop(chunk);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        if let Some(removed) = removed {
            self.uncount(&removed);
        }
    }

    /// Drops the dirty chunks with keys at a path or below it, and returns their number. Each writer of the array gets
    /// an error.
    pub(super) fn discard(&self, path: &Key) -> u64 {
        let is_below = |key: Vec<u8>| Key::new(key).is_ok_and(|key| key.below(path).is_some());
        let keys = |chunk: &Coordinates| self.array.keys.candidates(chunk).into_iter();
        let mut chunks = self.chunks();
        chunks.retain(|chunk| keys(chunk).any(is_below));
        let mut dropped = 0;
        for chunk in &chunks {
            let _lock = self.lock_chunk(chunk);
            // A flush may have stored the chunk since the chunks were listed.
            dropped += u64::from(self.lock().contains(chunk));
            self.refuse_pages(chunk);
            self.remove(chunk);
        }
        if dropped > 0 {
            let why = "the changes were discarded";
            self.record_loss(&Error::new(Kind::Changed, path, why));
        }
        dropped
    }

    /// Subtracts the bytes of a chunk from the number of dirty bytes of all arrays.
    fn uncount(&self, chunk: &DirtyChunk) {
        let subchunks = chunk.subchunks.values();
        let bytes: usize = subchunks.map(|subchunk| subchunk.bytes().len()).sum();
        self.all.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let chunks = std::mem::replace(&mut *self.lock(), LruCache::unbounded());
        chunks.iter().for_each(|(_, chunk)| self.uncount(chunk));
    }
}
