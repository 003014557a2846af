//! Keeps stored chunks of all arrays open.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::array::open_chunk::OpenChunk;
use zarrfs_store::LogPosition;
use zarrfs_store::sync::file_limits::ClosesFiles;

/// The maximum number of stored chunks that are kept open.
const MAX_OPEN_CHUNKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// The numbers of an array and of a stored chunk in its grid, and the last change of that chunk before the request.
pub(super) type OpenQuestion = (u64, u64, LogPosition);

/// The open stored chunks, by array number and number in the grid of stored chunks.
pub(super) struct ReaderCache(Mutex<LruCache<(u64, u64), Arc<OpenChunk>>>);

impl Default for ReaderCache {
    fn default() -> ReaderCache {
        ReaderCache(Mutex::new(LruCache::new(MAX_OPEN_CHUNKS)))
    }
}

impl ReaderCache {
    pub(super) fn get(&self, chunk: (u64, u64)) -> Option<Arc<OpenChunk>> {
        let mut open = self.0.lock();
        open.get(&chunk).cloned()
    }

    pub(super) fn forget(&self, chunk: (u64, u64)) {
        let closed = self.0.lock().pop(&chunk);
        drop(closed);
    }

    pub(super) fn put(&self, chunk: (u64, u64), stored: Arc<OpenChunk>) {
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
