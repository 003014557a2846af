//! Keeps a stored chunk open, and reads one content of it.

use std::io::IoSliceMut;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Runs;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::file_limits::ClosesFiles;
use zarrfs_store::{Key, LogPosition, Meta, Reader, Store};

pub(super) struct OpenChunk {
    pub(super) key: Key,
    pub(super) meta: Meta,
    pub(super) reader: Arc<dyn Reader>,
}

impl OpenChunk {
    /// Opens the object of a stored chunk, or returns `None` if it is missing. `known` is the object's metadata, if the
    /// store has just returned them.
    pub(super) fn open(
        context: &RequestContext,
        store: &dyn Store,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Option<OpenChunk>> {
        let reader = match store.open(context, key, known) {
            Ok(reader) => reader,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (key, meta) = (key.clone(), reader.meta(context)?);
        Ok(Some(OpenChunk { key, meta, reader }))
    }

    /// Fails with `Changed` if the stored chunk may have changed since it was opened.
    pub(super) fn check_unchanged(&self, context: &RequestContext) -> Result<()> {
        if self.reader.meta(context)?.version != self.meta.version {
            return Err(self.changed());
        }
        Ok(())
    }

    /// Returns the error that the chunk changed while it was being read.
    pub(super) fn changed(&self) -> Error {
        Error::new(
            Kind::Changed,
            &self.key,
            "was changed while it was being read",
        )
    }

    /// Reads byte runs of an uncompressed chunk of `length` bytes directly to their positions in `out`.
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
            // 1024 is IOV_MAX, the maximum number of buffers of one system call.
            for group in row.chunks(1024) {
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
        let read = self.reader.read_vectored(context, offset, parts)?;
        if read == length {
            return Ok(());
        }
        self.check_unchanged(context)?;
        let found = format!("expected {length} bytes at {offset}, found {read}");
        Err(Error::corrupt(&self.key, found))
    }
}

const MAX_OPEN_CHUNKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Identifies a stored chunk among those of all arrays.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StoredChunkKey {
    pub(super) array: u64,
    pub(super) number: u64,
}

/// Identifies a request to open a stored chunk, which concurrent callers can share.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OpenRequest {
    pub(super) chunk: StoredChunkKey,
    /// The position of the chunk's last change, before the request, in the change log.
    pub(super) changed: LogPosition,
}

pub(super) struct OpenChunkCache(Mutex<LruCache<StoredChunkKey, Arc<OpenChunk>>>);

impl Default for OpenChunkCache {
    fn default() -> OpenChunkCache {
        OpenChunkCache(Mutex::new(LruCache::new(MAX_OPEN_CHUNKS)))
    }
}

impl OpenChunkCache {
    pub(super) fn get(&self, chunk: StoredChunkKey) -> Option<Arc<OpenChunk>> {
        let mut open = self.0.lock();
        open.get(&chunk).cloned()
    }

    pub(super) fn forget(&self, chunk: StoredChunkKey) {
        let closed = self.0.lock().pop(&chunk);
        drop(closed);
    }

    pub(super) fn put(&self, chunk: StoredChunkKey, stored: Arc<OpenChunk>) {
        let mut open = self.0.lock();
        let replaced = open.push(chunk, stored);
        drop(open);
        drop(replaced);
    }
}

impl ClosesFiles for OpenChunkCache {
    fn close_some(&self) {
        let mut open = self.0.lock();
        let closed = open.len().div_ceil(2);
        let closed: Vec<_> = (0..closed).filter_map(|_| open.pop_lru()).collect();
        drop(open);
        drop(closed);
    }
}
