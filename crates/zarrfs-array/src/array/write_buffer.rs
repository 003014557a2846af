//! Holds the chunks of an array that were written and are not stored yet.
//!
//! Of a shard these are its inner chunks. Here a chunk is what is stored under one key, and a subchunk is one that decodes
//! alone: an inner chunk, or the chunk itself. Written subchunks are the current content for every reader of the array. A
//! chunk is locked while it is changed or stored, so no change is lost; a subchunk is changed in place only while no reader
//! shares it. The table's own lock is held for a lookup, or while the bytes of one write are copied.

use parking_lot::{Mutex, MutexGuard};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lru::LruCache;

use crate::array::chunk::DecodedChunk;
use crate::array::dirty_chunk::{Basis, DirtyChunk, ReadDigest, WrittenSubchunk};
use crate::array::page_version::PageVersion;
use crate::array::write_budget::WriteBudget;
use crate::array::writers::Writers;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarr_format::model::Array;
use zarrfs_store::known::Known;
use zarrfs_store::{Key, Version};

/// Number of locks that the chunks of an array share.
const CHUNK_LOCKS: usize = 64;

/// The subchunks of an array that are not stored yet.
pub(super) struct WriteBuffer {
    /// The array that they belong to, without attributes; its shape may have changed since.
    array: Arc<Array>,
    /// By the indices of the stored chunk, which stay the same when an array grows.
    chunks: Mutex<LruCache<Coordinates, DirtyChunk>>,
    /// Number of chunks; readers look here before they take the lock.
    count: AtomicUsize,
    content: PageVersion,
    /// How many chunks were dropped because their keys had changed, and the error of the last one.
    lost: Mutex<(u64, Option<Error>)>,
    /// The handles by which the array is open for writing.
    writers: Writers,
    locks: [Mutex<()>; CHUNK_LOCKS],
    budget: Arc<WriteBudget>,
}

/// The right to change or to store a chunk.
pub(super) type ChunkLock<'a> = MutexGuard<'a, ()>;

impl WriteBuffer {
    pub(super) fn new(array: &Arc<Array>, budget: Arc<WriteBudget>) -> WriteBuffer {
        WriteBuffer {
            array: array.clone(),
            chunks: Mutex::new(LruCache::unbounded()),
            count: AtomicUsize::new(0),
            content: PageVersion::new(),
            lost: Mutex::default(),
            writers: Writers::default(),
            locks: [const { Mutex::new(()) }; CHUNK_LOCKS],
            budget,
        }
    }

    /// Whether the subchunks have the same meaning in an array of these metadata.
    pub(super) fn fits(&self, array: &Array) -> bool {
        self.array.is_stored_like(array)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Coordinates, DirtyChunk>> {
        self.chunks.lock()
    }

    /// Whether everything is stored.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the number of the content that was written.
    pub(super) fn content(&self) -> &PageVersion {
        &self.content
    }

    /// Waits until no other thread changes or stores a chunk, and locks it.
    pub(super) fn lock_chunk(&self, chunk: &[u64]) -> ChunkLock<'_> {
        let mut hasher = DefaultHasher::new();
        chunk.hash(&mut hasher);
        let slot = hasher.finish() % CHUNK_LOCKS as u64;
        self.locks[usize::try_from(slot).unwrap_or(0)].lock()
    }

    /// Returns a subchunk if it is here.
    pub(super) fn find(&self, chunk: &Coordinates, inner: &[usize]) -> Option<Arc<DecodedChunk>> {
        self.lock().peek(chunk)?.subchunks.get(inner).cloned()
    }

    /// Returns the digest that a subchunk had when it was read to be written; `None` if the subchunk is not here.
    pub(super) fn read_digest(&self, chunk: &Coordinates, inner: &[usize]) -> Option<ReadDigest> {
        let chunks = self.lock();
        let found = chunks.peek(chunk)?;
        let is_here = found.subchunks.contains_key(inner);
        is_here.then(|| ReadDigest(found.read.get(inner).copied().flatten()))
    }

    /// Returns the digest of what was read of a subchunk to write the rest of it; `None` if the subchunk is not here,
    /// or was written whole.
    pub(super) fn rest_digest(&self, chunk: &Coordinates, inner: &[usize]) -> Option<ReadDigest> {
        let chunks = self.lock();
        let read = chunks.peek(chunk)?.read.get(inner);
        read.copied().map(ReadDigest)
    }

    /// Like `find`, but does not wait while another thread has the table locked: a write copies its bytes under the lock.
    pub(super) fn try_find(
        &self,
        chunk: &Coordinates,
        inner: &[usize],
    ) -> Known<Arc<DecodedChunk>> {
        let Some(chunks) = self.chunks.try_lock() else {
            return Known::Unknown;
        };
        let found = chunks.peek(chunk);
        found
            .and_then(|found| found.subchunks.get(inner).cloned())
            .into()
    }

    /// Fails once writes are refused. The table must be locked: who lists it afterwards has all writes that were taken.
    fn check_taken(&self) -> Result<()> {
        if self.budget.is_closed() {
            let why = "the mount is about to end: nothing is written any more";
            return Err(Error::unavailable("", why));
        }
        Ok(())
    }

    /// Changes bytes of a subchunk in place; false if it is not here, or a reader shares it. Needs the chunk's lock.
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

    /// Puts a subchunk in the place of the content that readers have seen so far. Needs the chunk's lock.
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
            self.budget.add(length);
        }
        self.touch(found);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        drop(replaced);
        Ok(())
    }

    /// Notes that bytes of a chunk were written just now.
    fn touch(&self, chunk: &mut DirtyChunk) {
        let touched = self.budget.tick();
        chunk.note_write(touched);
        self.content.renew();
    }

    /// Returns a chunk as it is written, to be stored.
    pub(super) fn get(&self, chunk: &Coordinates) -> Option<DirtyChunk> {
        self.lock().peek(chunk).cloned()
    }

    /// Returns all chunks, the one that was written longest ago first.
    pub(super) fn chunks(&self) -> Vec<Coordinates> {
        let chunks = self.lock();
        chunks
            .iter()
            .rev()
            .map(|(chunk, _)| chunk.clone())
            .collect()
    }

    /// Returns the chunk that was written longest ago, and the count of writes then. `kept` is left out; chunks that
    /// could not be stored are considered only `with_failed`.
    pub(super) fn oldest(
        &self,
        kept: Option<&Coordinates>,
        with_failed: bool,
    ) -> Option<(u64, Coordinates)> {
        let chunks = self.lock();
        let mut oldest_first = chunks.iter().rev();
        let (indices, chunk) = oldest_first
            .find(|(indices, chunk)| (with_failed || !chunk.failed) && Some(*indices) != kept)?;
        Some((chunk.touched, indices.clone()))
    }

    /// Notes that a chunk could not be stored.
    pub(super) fn note_failure(&self, chunk: &Coordinates) {
        if let Some(chunk) = self.lock().peek_mut(chunk) {
            chunk.failed = true;
        }
    }

    /// Notes that a chunk lies under its key as it was written, in this version, though storing it failed. Needs the
    /// chunk's lock.
    pub(super) fn confirm(&self, chunk: &Coordinates, version: Version) {
        if let Some(chunk) = self.lock().peek_mut(chunk) {
            chunk.confirm(version);
        }
    }

    /// Drops a chunk that cannot be stored any more; each writer of the array gets the error. Needs the chunk's
    /// lock.
    pub(super) fn abandon(&self, chunk: &Coordinates, error: &Error) {
        self.refuse_pages(chunk);
        self.remove(chunk);
        self.note_lost(error);
    }

    /// Refuses pages of a chunk from now on, which have what was written to it.
    fn refuse_pages(&self, chunk: &Coordinates) {
        let subchunks = self.get(chunk).into_iter().flat_map(|lost| lost.indices);
        subchunks.for_each(|(_, subchunk)| self.writers.refuse(&subchunk));
    }

    /// Notes that something which was written is not kept; each writer of the array gets the error.
    pub(super) fn note_lost(&self, error: &Error) {
        let mut lost = self.lost.lock();
        *lost = (lost.0 + 1, Some(error.clone()));
        drop(lost);
        self.content.renew();
    }

    /// Returns the handles by which the array is open for writing.
    pub(super) fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Whether a key is that of a chunk.
    pub(super) fn has_key(&self, key: &Key) -> bool {
        let rank = self.array.shape.len();
        self.array.keys.chunk_of(key.as_bytes(), rank).is_some()
    }

    /// Returns how many chunks were dropped so far, and the error of the last one.
    pub(super) fn lost(&self) -> (u64, Option<Error>) {
        self.lost.lock().clone()
    }

    /// Removes a chunk that is stored or discarded. Needs the chunk's lock.
    pub(super) fn remove(&self, chunk: &Coordinates) {
        let mut chunks = self.lock();
        let removed = chunks.pop(chunk);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        if let Some(removed) = removed {
            self.uncount(&removed);
        }
    }

    /// Drops the chunks whose keys lie at a path and below; returns how many there were. Each writer of the array gets an
    /// error.
    pub(super) fn discard(&self, path: &Key) -> u64 {
        let is_below = |key: Vec<u8>| Key::new(key).is_ok_and(|key| key.below(path).is_some());
        let keys = |chunk: &Coordinates| self.array.keys.candidates(chunk).into_iter();
        let mut chunks = self.chunks();
        chunks.retain(|chunk| keys(chunk).any(is_below));
        let mut dropped = 0;
        for chunk in &chunks {
            let _lock = self.lock_chunk(chunk);
            // A flush may have stored it meanwhile.
            dropped += u64::from(self.lock().contains(chunk));
            self.refuse_pages(chunk);
            self.remove(chunk);
        }
        if dropped > 0 {
            let why = "what was written to it was discarded";
            self.note_lost(&Error::new(Kind::Changed, path, why));
        }
        dropped
    }

    /// Takes the bytes of a chunk off the sum of all arrays.
    fn uncount(&self, chunk: &DirtyChunk) {
        let subchunks = chunk.subchunks.values();
        let bytes: usize = subchunks.map(|subchunk| subchunk.bytes().len()).sum();
        self.budget.subtract(bytes as u64);
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        let chunks = std::mem::replace(&mut *self.lock(), LruCache::unbounded());
        chunks.iter().for_each(|(_, chunk)| self.uncount(chunk));
    }
}
