//! Pieces that were written and are not stored yet, by the stored chunk that they belong to.
//!
//! They are the current content for every reader of the array. Whoever changes or stores a chunk has its turn
//! until that is done, so no change is lost; a piece is changed in place only while nobody reads it. The table's
//! own lock is held for a look at it, or while the bytes of one write are copied.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lru::LruCache;

use crate::array::chunk::Decoded;
use crate::grid::Coordinates;
use crate::model::Array;

/// Decoded pieces by their place in the stored chunk: with sharding, on each level the number of the inner chunk.
pub(super) type Pieces = BTreeMap<Vec<usize>, Arc<Decoded>>;

/// How many chunks of an array are changed or stored at a time.
const TURNS: usize = 64;

/// What all arrays together have pending.
#[derive(Default)]
pub(super) struct DirtyBytes {
    /// Bytes of pieces.
    bytes: AtomicU64,
    /// Counts writes, so that it is known which came first.
    clock: AtomicU64,
}

impl DirtyBytes {
    /// Returns the bytes of all pieces.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A stored chunk that has to be stored anew.
#[derive(Default)]
struct DirtyChunk {
    pieces: Pieces,
    /// When it was last written.
    touched: u64,
    /// Whether it could not be stored when that was tried last.
    failed: bool,
}

/// The pending pieces of an array.
pub(super) struct DirtyChunks {
    /// The array that they belong to; its shape and attributes may be others by now.
    array: Array,
    /// By the indices of the stored chunk, which stay the same when an array grows.
    chunks: Mutex<LruCache<Coordinates, DirtyChunk>>,
    /// How many chunks there are: readers look here first.
    count: AtomicUsize,
    /// How often a content changed.
    changes: AtomicU64,
    turns: [Mutex<()>; TURNS],
    backlog: Arc<DirtyBytes>,
}

/// The turn of somebody who changes or stores a chunk.
pub(super) type ChunkLock<'a> = MutexGuard<'a, ()>;

impl DirtyChunks {
    pub(super) fn new(array: &Array, backlog: Arc<DirtyBytes>) -> DirtyChunks {
        DirtyChunks {
            array: array.clone(),
            chunks: Mutex::new(LruCache::unbounded()),
            count: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            turns: [const { Mutex::new(()) }; TURNS],
            backlog,
        }
    }

    /// Whether the pieces mean the same in an array of these metadata.
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

    /// Returns how often a content changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Waits until nobody else changes or stores a chunk.
    pub(super) fn turn(&self, chunk: &[u64]) -> ChunkLock<'_> {
        let mut hasher = DefaultHasher::new();
        chunk.hash(&mut hasher);
        let turn = &self.turns[hasher.finish() as usize % TURNS];
        turn.lock()
    }

    /// Returns a piece if it is pending.
    pub(super) fn find(&self, chunk: &Coordinates, inner: &[usize]) -> Option<Arc<Decoded>> {
        self.lock().peek(chunk)?.pieces.get(inner).cloned()
    }

    /// Changes a piece in place; false if it is not pending, or somebody reads it. Needs the chunk's turn.
    pub(super) fn edit(
        &self,
        chunk: &Coordinates,
        inner: &[usize],
        edit: &dyn Fn(&mut [u8]),
    ) -> bool {
        let mut chunks = self.lock();
        let Some(found) = chunks.get_mut(chunk) else {
            return false;
        };
        let piece = found.pieces.get_mut(inner).and_then(Arc::get_mut);
        let Some(piece) = piece else { return false };
        edit(piece.bytes_mut());
        self.touch(found);
        true
    }

    /// Puts a piece in the place of what readers have seen so far. Needs the chunk's turn.
    pub(super) fn put(&self, chunk: &Coordinates, inner: Vec<usize>, piece: Arc<Decoded>) {
        let length = piece.bytes().len() as u64;
        let mut chunks = self.lock();
        let found = chunks.get_or_insert_mut(chunk.clone(), DirtyChunk::default);
        let replaced = found.pieces.insert(inner, piece);
        if replaced.is_none() {
            self.backlog.bytes.fetch_add(length, Ordering::Relaxed);
        }
        self.touch(found);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        drop(replaced);
    }

    fn touch(&self, chunk: &mut DirtyChunk) {
        chunk.touched = self.backlog.clock.fetch_add(1, Ordering::Relaxed);
        chunk.failed = false;
        self.note_change();
    }

    /// Notes that readers see another content now.
    pub(super) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the pieces of a chunk.
    pub(super) fn pieces(&self, chunk: &Coordinates) -> Option<Pieces> {
        Some(self.lock().peek(chunk)?.pieces.clone())
    }

    /// Returns all chunks, the one that was written first first.
    pub(super) fn chunks(&self) -> Vec<Coordinates> {
        let chunks = self.lock();
        chunks
            .iter()
            .rev()
            .map(|(chunk, _)| chunk.clone())
            .collect()
    }

    /// Returns the chunk that nobody has written for the longest time, and when that was; `kept` is left out, and
    /// those that could not be stored unless they are asked for.
    pub(super) fn oldest(
        &self,
        kept: Option<&Coordinates>,
        with_failed: bool,
    ) -> Option<(u64, Coordinates)> {
        let chunks = self.lock();
        let mut waiting = chunks.iter().rev();
        let (place, chunk) = waiting
            .find(|(place, chunk)| (with_failed || !chunk.failed) && Some(*place) != kept)?;
        Some((chunk.touched, place.clone()))
    }

    /// Notes that a chunk could not be stored.
    pub(super) fn note_failure(&self, chunk: &Coordinates) {
        if let Some(chunk) = self.lock().peek_mut(chunk) {
            chunk.failed = true;
        }
    }

    /// Lets a chunk go: it is stored, or nobody wants it. Needs the chunk's turn.
    pub(super) fn remove(&self, chunk: &Coordinates) {
        let mut chunks = self.lock();
        let removed = chunks.pop(chunk);
        self.count.store(chunks.len(), Ordering::Release);
        drop(chunks);
        if let Some(removed) = removed {
            self.give_back(&removed);
        }
    }

    fn give_back(&self, chunk: &DirtyChunk) {
        let pieces = chunk.pieces.values();
        let bytes: usize = pieces.map(|piece| piece.bytes().len()).sum();
        self.backlog
            .bytes
            .fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for DirtyChunks {
    fn drop(&mut self) {
        let chunks = std::mem::replace(&mut *self.lock(), LruCache::unbounded());
        chunks.iter().for_each(|(_, chunk)| self.give_back(chunk));
    }
}
