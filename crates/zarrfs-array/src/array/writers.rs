//! Tracks through which file an array is open for writing, and the kernel's pages.
//!
//! The kernel caches pages per file, and writes a whole page back once a program has changed a byte of it through mmap.
//! So only one file of an array is open for writing at a time, any number of times, because write-back of pages of
//! another file would undo its changes. Files of chunk keys (`WrittenKeys`) and decoded files exclude each other for
//! the same reason. Other programs may change chunks concurrently. Therefore the digests of the chunks that the kernel
//! has pages of are recorded, and write-back is refused if the chunk has another digest by then. Versions would not do,
//! because a commit, or a write to another inner chunk of the shard, changes the version of a chunk but not its
//! content.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::array::dirty_chunk::{DirtyChunk, ReadDigest};
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarrfs_store::Key;

/// How long to wait for the last close of another file: the kernel reports the close after the program has gone on, on
/// a busy machine half a second later.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// The open files through which an array may be written.
#[derive(Default)]
pub(super) struct Writers {
    /// Whether a file is open for writing; readers check this before they take the lock.
    is_open: AtomicBool,
    open: Mutex<Option<OpenWriters>>,
    closed: Condvar,
    /// The number of write-backs of pages. The kernel writes a page back through any open handle of the mapped file.
    pub(super) page_writes: AtomicU64,
}

/// The one file through which an array is open for writing, with the number of its handles.
struct OpenWriters {
    file: String,
    handles: usize,
    /// The chunks that the kernel has pages of, by indices in the grid of decoded chunks.
    pages: LruCache<Coordinates, PageDigest>,
}

impl OpenWriters {
    fn add(&mut self, chunk: Coordinates, digest: Option<u64>) {
        self.pages.put(chunk, PageDigest::of(digest));
        // The number of digests is limited, to bound their memory.
        if self.pages.len() > 1 << 16 {
            self.pages.pop_lru();
        }
    }
}

/// What is known of the kernel's pages of a chunk.
struct PageDigest {
    /// The digest of the chunk's content in the pages; `None` for a chunk that was not stored.
    digest: Option<u64>,
    /// Whether a write to the chunk was dropped: write-back of its pages is refused until the kernel has dropped them.
    is_refused: bool,
    /// If the chunk was read after its pages were refused, the digest of the content that was read.
    read_since: Option<ReadDigest>,
}

impl PageDigest {
    fn of(digest: Option<u64>) -> PageDigest {
        PageDigest {
            digest,
            is_refused: false,
            read_since: None,
        }
    }

    /// Whether the next read of the chunk has to be recorded: its pages are refused, and it was not read since.
    fn needs_record(&self) -> bool {
        self.is_refused && self.read_since.is_none()
    }
}

impl Writers {
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Waits until no file but `own` is open for writing; fails with the name of a file that is still open at `end`.
    fn wait_for_others(
        &self,
        own: Option<&str>,
        end: Instant,
    ) -> std::result::Result<MutexGuard<'_, Option<OpenWriters>>, String> {
        let mut open = self.open.lock();
        loop {
            let file = open.as_ref().map(|writers| writers.file.as_str());
            match file.filter(|_| file != own) {
                None => return Ok(open),
                Some(other) if Instant::now() >= end => return Err(other.to_string()),
                Some(_) => {}
            }
            let _ = self.closed.wait_until(&mut open, end);
        }
    }

    /// Registers an open handle of a file; fails with the name of another file that stays open for writing.
    pub(super) fn add(&self, file: &str) -> std::result::Result<(), String> {
        let mut open = self.wait_for_others(Some(file), Instant::now() + CLOSE_WAIT)?;
        let writers = open.get_or_insert_with(|| OpenWriters {
            file: file.to_string(),
            handles: 0,
            pages: LruCache::unbounded(),
        });
        writers.handles += 1;
        self.is_open.store(true, Ordering::Release);
        Ok(())
    }

    /// Waits until no file is open for writing; fails with `Busy` for chunk key `key` if a file is still open at `end`.
    pub(super) fn wait_for_none(&self, key: &Key, end: Instant) -> Result<()> {
        match self.wait_for_others(None, end) {
            Ok(_) => Ok(()),
            Err(file) => Err(busy(key, &file)),
        }
    }

    /// Unregisters a handle of the open file; after the last handle the digests of its pages are dropped.
    pub(super) fn remove(&self) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        writers.handles -= 1;
        if writers.handles == 0 {
            *open = None;
            self.is_open.store(false, Ordering::Release);
            self.closed.notify_all();
        }
    }

    pub(super) fn has_pages(&self, chunk: &Coordinates) -> bool {
        let open = self.open.lock();
        let open = open.as_ref();
        open.is_some_and(|writers| writers.pages.contains(chunk))
    }

    /// Whether a read of a chunk that fills the kernel's pages has to be recorded.
    pub(super) fn needs_record(&self, chunk: &Coordinates) -> bool {
        let open = self.open.lock();
        let pages = open.as_ref().map(|writers| writers.pages.peek(chunk));
        pages.is_some_and(|pages| pages.is_none_or(PageDigest::needs_record))
    }

    /// Whether the kernel's pages of a chunk may have another content than the content with this digest.
    pub(super) fn has_other_pages(&self, chunk: &Coordinates, digest: Option<u64>) -> bool {
        let open = self.open.lock();
        let pages = open.as_ref().and_then(|writers| writers.pages.peek(chunk));
        pages.is_some_and(|pages| pages.is_refused || pages.digest != digest)
    }

    /// Records the content of a chunk that the kernel gets pages of. If the kernel has pages of the chunk already, they
    /// may have the old content, so the old digest stays.
    pub(super) fn record_pages(&self, chunk: Coordinates, digest: Option<u64>) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        match writers.pages.peek_mut(&chunk) {
            Some(pages) if pages.needs_record() => pages.read_since = Some(ReadDigest(digest)),
            Some(_) => {}
            None => writers.add(chunk, digest),
        }
    }

    /// Records that a chunk was stored: the pages of its subchunks now have the stored content, even if the file has
    /// not been read there. If a subchunk was edited from another content than the pages have, the digest of the pages
    /// stays as it was.
    pub(super) fn record_stored(&self, stored: &DirtyChunk, pipeline: &Pipeline) {
        if !self.is_open() {
            return;
        }
        // The digests are computed before the lock is taken, because computing them takes long.
        let mut digests = Vec::new();
        for (place, chunk) in &stored.subchunks {
            if let Some(indices) = stored.indices.get(place) {
                digests.push((place, indices, chunk.digest_as_stored(pipeline)));
            }
        }
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        for (place, indices, digest) in digests {
            match writers.pages.peek_mut(indices) {
                Some(pages) if pages.is_refused => {}
                Some(pages) => {
                    if stored
                        .read
                        .get(place)
                        .is_none_or(|read| *read == pages.digest)
                    {
                        pages.digest = Some(digest);
                    }
                }
                None => writers.add(indices.clone(), Some(digest)),
            }
        }
    }

    /// Refuses write-back of the kernel's pages of a chunk from now on, because a write to the chunk was dropped.
    pub(super) fn refuse(&self, chunk: &Coordinates) {
        if let Some(writers) = &mut *self.open.lock()
            && let Some(pages) = writers.pages.peek_mut(chunk)
        {
            pages.is_refused = true;
        }
    }

    /// Records that the kernel has dropped the pages of the file: its new pages of a refused chunk have the content
    /// that was read since.
    pub(super) fn mark_pages_dropped(&self) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        let refused = writers.pages.iter().filter(|(_, pages)| pages.is_refused);
        let refused: Vec<Coordinates> = refused.map(|(chunk, _)| chunk.clone()).collect();
        for chunk in refused {
            let pages = writers.pages.pop(&chunk);
            if let Some(ReadDigest(digest)) = pages.and_then(|pages| pages.read_since) {
                writers.pages.put(chunk, PageDigest::of(digest));
            }
        }
    }
}

/// Returns the error that a change is refused while `file` is open for writing.
pub(super) fn busy(subject: impl std::fmt::Display, file: &str) -> Error {
    let why = format!("{file} is open for writing; close the file first");
    Error::new(Kind::Busy, subject, why)
}

/// The chunk keys whose own files are open for writing, with the number of open handles.
#[derive(Default)]
pub(super) struct WrittenKeys {
    pub(super) open: Mutex<BTreeMap<Key, usize>>,
    closed: Condvar,
}

/// An open handle through which a chunk key is written; dropped when the file is closed.
pub struct WrittenKey {
    keys: Arc<WrittenKeys>,
    key: Key,
}

impl WrittenKeys {
    pub(super) fn add(self: &Arc<Self>, key: &Key) -> WrittenKey {
        *self.open.lock().entry(key.clone()).or_insert(0) += 1;
        WrittenKey {
            keys: self.clone(),
            key: key.clone(),
        }
    }

    /// Waits until no matching key is open, at most for the time that a close may take; returns a key that is still
    /// open then.
    pub(super) fn wait_for_none(&self, matches: impl Fn(&Key) -> bool) -> Option<Key> {
        let end = Instant::now() + CLOSE_WAIT;
        let mut open = self.open.lock();
        loop {
            let found = open.keys().find(|key| matches(key))?.clone();
            if self.closed.wait_until(&mut open, end).timed_out() {
                return Some(found);
            }
        }
    }
}

impl Drop for WrittenKey {
    fn drop(&mut self) {
        let mut open = self.keys.open.lock();
        if let Some(handles) = open.get_mut(&self.key) {
            *handles -= 1;
            if *handles == 0 {
                open.remove(&self.key);
                self.keys.closed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_open_for_writing_at_a_time() {
        let writers = Writers::default();
        writers.add("a.npy").unwrap();
        writers.add("a.npy").unwrap();
        assert_eq!(writers.add("a.raw").unwrap_err(), "a.npy");
        writers.remove();
        assert!(writers.is_open());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                writers.remove();
            });
            writers.add("a.raw").expect("it waits for a close");
        });
        writers.remove();
        assert!(!writers.is_open());
    }

    #[test]
    fn pages_of_a_chunk_are_refused_until_the_kernel_has_dropped_them() {
        let (writers, chunk) = (Writers::default(), Coordinates::from_slice(&[1, 2]));
        writers.add("a.npy").unwrap();
        writers.record_pages(chunk.clone(), Some(1));
        for read_since in [None, Some(2)] {
            writers.refuse(&chunk);
            assert!(writers.has_other_pages(&chunk, Some(1)) && writers.needs_record(&chunk));
            if read_since.is_some() {
                writers.record_pages(chunk.clone(), read_since);
                writers.record_pages(chunk.clone(), Some(3));
            }
            assert!(
                writers.has_other_pages(&chunk, Some(2)),
                "it may be an old page"
            );
            writers.mark_pages_dropped();
            assert_eq!(writers.has_pages(&chunk), read_since.is_some());
            assert!(!writers.has_other_pages(&chunk, Some(2)));
            writers.record_pages(chunk.clone(), Some(1));
        }
    }

    #[test]
    fn pages_keep_their_first_version_until_the_last_close() {
        let (writers, chunk) = (Writers::default(), Coordinates::from_slice(&[1, 2]));
        writers.record_pages(chunk.clone(), Some(1));
        assert!(!writers.has_pages(&chunk), "it is not open for writing");
        writers.add("a.npy").unwrap();
        writers.record_pages(chunk.clone(), Some(1));
        writers.record_pages(chunk.clone(), Some(2));
        assert!(!writers.has_other_pages(&chunk, Some(1)));
        assert!(writers.has_other_pages(&chunk, Some(2)));
        writers.remove();
        writers.add("a.npy").unwrap();
        assert!(!writers.has_pages(&chunk) && !writers.has_other_pages(&chunk, Some(2)));
    }
}
