//! Tracks the file through which an array is open for writing, and its pages.
//!
//! The kernel caches pages per file, and writes a whole page back once a program has changed a byte of it through mmap.
//! So only one file of an array is open for writing at a time, by any number of handles: write-back of another file's
//! pages would undo changes made here, as would write-back to the file of a chunk key (`written_keys`). Other programs
//! may change chunks concurrently. The digests of the chunks that were shown are therefore recorded, and write-back
//! over another content is refused. A digest and not a version, since a commit, or a write to another inner chunk of
//! the shard, changes the version but not the content.
//!
//! Tracks the chunk keys that are open for writing.
//!
//! The decoded files of their arrays cannot be opened for writing at the same time.
//!
//! The kernel caches pages of a chunk file, and mmap write-back writes whole pages: they would undo writes to a decoded
//! file, as pages of a decoded file would undo writes to a chunk file (`writers`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::array::chunk::DecodedChunk;
use crate::array::write_buffer::{DirtyChunk, ReadDigest};
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarrfs_store::Key;

/// How long to wait for the last close of another file: the kernel reports it after the program has gone on.
pub(super) const CLOSE_WAIT: Duration = Duration::from_millis(500);

/// The handles through which an array is open for writing.
#[derive(Default)]
pub(super) struct Writers {
    /// Whether there are handles; readers check this before they take the lock.
    are_some: AtomicBool,
    open: Mutex<Option<OpenWriters>>,
    closed: Condvar,
    /// The number of page writes. The kernel writes a page back through any handle that has the file mapped.
    pub(super) page_writes: AtomicU64,
}

/// The handles of one file.
struct OpenWriters {
    /// The path of the file in the mount.
    file: String,
    handles: usize,
    /// The chunks that the file has shown, by indices in the grid of decoded chunks.
    shown: LruCache<Coordinates, ShownChunk>,
}

impl OpenWriters {
    fn add(&mut self, chunk: Coordinates, digest: Option<u64>) {
        self.shown.put(chunk, ShownChunk::of(digest));
        // Bounds the memory for records.
        if self.shown.len() > 1 << 16 {
            self.shown.pop_lru();
        }
    }
}

/// A chunk that the kernel has pages of.
struct ShownChunk {
    /// The digest of the content of the pages; `None` for a chunk that was not stored.
    digest: Option<u64>,
    /// Whether a write to the chunk was dropped: its pages are refused until the kernel has dropped them.
    is_refused: bool,
    /// The digest of the content that was read since, if the chunk was read.
    read_since: Option<ReadDigest>,
}

impl ShownChunk {
    fn of(digest: Option<u64>) -> ShownChunk {
        ShownChunk {
            digest,
            is_refused: false,
            read_since: None,
        }
    }

    /// Whether a read of the chunk has to be recorded.
    fn is_new_to_reader(&self) -> bool {
        self.is_refused && self.read_since.is_none()
    }
}

impl Writers {
    /// Whether the array is open for writing.
    pub(super) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Acquire)
    }

    /// Waits until no file but `own` is open for writing; fails with the name of a file that stays open.
    fn wait_for_others(
        &self,
        own: Option<&str>,
    ) -> std::result::Result<MutexGuard<'_, Option<OpenWriters>>, String> {
        let end = Instant::now() + CLOSE_WAIT;
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

    /// Adds a handle of a file; fails with the name of another file that stays open for writing.
    pub(super) fn add(&self, file: &str) -> std::result::Result<(), String> {
        let mut open = self.wait_for_others(Some(file))?;
        let writers = open.get_or_insert_with(|| OpenWriters {
            file: file.to_string(),
            handles: 0,
            shown: LruCache::unbounded(),
        });
        writers.handles += 1;
        self.are_some.store(true, Ordering::Release);
        Ok(())
    }

    /// Waits until no file is open for writing; fails with `Busy` for chunk key `key` if one stays open.
    pub(super) fn wait_for_none(&self, key: &Key) -> Result<()> {
        match self.wait_for_others(None) {
            Ok(_) => Ok(()),
            Err(file) => Err(busy(key, &file)),
        }
    }

    /// Fails with `Busy` for chunk key `key` if a file is open for writing.
    pub(super) fn check_none(&self, key: &Key) -> Result<()> {
        match &*self.open.lock() {
            None => Ok(()),
            Some(writers) => Err(busy(key, &writers.file)),
        }
    }

    /// Removes a handle; the last one drops the records of shown chunks.
    pub(super) fn remove(&self) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        writers.handles -= 1;
        if writers.handles == 0 {
            *open = None;
            self.are_some.store(false, Ordering::Release);
            self.closed.notify_all();
        }
    }

    /// Whether a chunk was shown.
    pub(super) fn has_shown(&self, chunk: &Coordinates) -> bool {
        let open = self.open.lock();
        let open = open.as_ref();
        open.is_some_and(|writers| writers.shown.contains(chunk))
    }

    /// Whether a read of a chunk has to be recorded.
    pub(super) fn must_note(&self, chunk: &Coordinates) -> bool {
        let open = self.open.lock();
        let shown = open.as_ref().map(|writers| writers.shown.peek(chunk));
        shown.is_some_and(|shown| shown.is_none_or(ShownChunk::is_new_to_reader))
    }

    /// Whether the pages of a chunk may have another content.
    pub(super) fn has_shown_other(&self, chunk: &Coordinates, digest: Option<u64>) -> bool {
        let open = self.open.lock();
        let shown = open.as_ref().and_then(|writers| writers.shown.peek(chunk));
        shown.is_some_and(|shown| shown.is_refused || shown.digest != digest)
    }

    /// Records the content that a chunk is shown with, unless it was shown before: pages may still hold the old
    /// content.
    pub(super) fn note(&self, chunk: Coordinates, digest: Option<u64>) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        match writers.shown.peek_mut(&chunk) {
            Some(shown) if shown.is_new_to_reader() => shown.read_since = Some(ReadDigest(digest)),
            Some(_) => {}
            None => writers.add(chunk, digest),
        }
    }

    /// Records that a chunk was stored: the pages of its subchunks now hold the stored content, even if the file has
    /// not shown them. A subchunk that was edited from another content than was shown keeps its record.
    pub(super) fn note_stored(&self, stored: &DirtyChunk, pipeline: &Pipeline) {
        if !self.are_some() {
            return;
        }
        let digest = |(place, chunk): (_, &Arc<DecodedChunk>)| {
            let indices = stored.indices.get(place)?;
            Some((place, indices, chunk.digest_as_stored(pipeline)))
        };
        let digests: Vec<_> = stored.subchunks.iter().filter_map(digest).collect();
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        for (place, indices, digest) in digests {
            match writers.shown.peek_mut(indices) {
                Some(shown) if shown.is_refused => {}
                Some(shown) => {
                    if stored
                        .read
                        .get(place)
                        .is_none_or(|read| *read == shown.digest)
                    {
                        shown.digest = Some(digest);
                    }
                }
                None => writers.add(indices.clone(), Some(digest)),
            }
        }
    }

    /// Refuses write-back of a chunk's pages from now on, since a write to the chunk was dropped.
    pub(super) fn refuse(&self, chunk: &Coordinates) {
        if let Some(writers) = &mut *self.open.lock()
            && let Some(shown) = writers.shown.peek_mut(chunk)
        {
            shown.is_refused = true;
        }
    }

    /// Records that the kernel has dropped the pages of the file: refused chunks now have the content that was read
    /// since.
    pub(super) fn mark_pages_dropped(&self) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        let refused = writers.shown.iter().filter(|(_, shown)| shown.is_refused);
        let refused: Vec<Coordinates> = refused.map(|(chunk, _)| chunk.clone()).collect();
        for chunk in refused {
            let shown = writers.shown.pop(&chunk);
            if let Some(ReadDigest(digest)) = shown.and_then(|shown| shown.read_since) {
                writers.shown.put(chunk, ShownChunk::of(digest));
            }
        }
    }
}

/// Returns the error of a change that is refused while a file of the array is open for writing.
pub(super) fn busy(subject: impl std::fmt::Display, file: &str) -> Error {
    let why = format!("{file} is open for writing, and one file of an array is at a time");
    Error::new(Kind::Busy, subject, why)
}

/// The keys that are open for writing, with the number of their handles.
#[derive(Default)]
pub(super) struct WrittenKeys {
    open: Mutex<BTreeMap<Key, usize>>,
    closed: Condvar,
}

/// A handle through which a key is open for writing; dropped when it is closed.
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

    /// Waits until no matching key is open, at most for the time that a close may take; returns a key that stays open.
    pub(super) fn wait_for_none(&self, is_cf_decoded: impl Fn(&Key) -> bool) -> Option<Key> {
        let end = Instant::now() + CLOSE_WAIT;
        let mut open = self.open.lock();
        loop {
            let found = open.keys().find(|key| is_cf_decoded(key))?.clone();
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
        assert!(writers.are_some());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                writers.remove();
            });
            writers.add("a.raw").expect("it waits for a close");
        });
        writers.remove();
        assert!(!writers.are_some());
    }

    #[test]
    fn pages_of_a_chunk_are_refused_until_the_kernel_has_dropped_them() {
        let (writers, chunk) = (Writers::default(), Coordinates::from_slice(&[1, 2]));
        writers.add("a.npy").unwrap();
        writers.note(chunk.clone(), Some(1));
        for read_since in [None, Some(2)] {
            writers.refuse(&chunk);
            assert!(writers.has_shown_other(&chunk, Some(1)) && writers.must_note(&chunk));
            if read_since.is_some() {
                writers.note(chunk.clone(), read_since);
                writers.note(chunk.clone(), Some(3));
            }
            assert!(
                writers.has_shown_other(&chunk, Some(2)),
                "it may be an old page"
            );
            writers.mark_pages_dropped();
            assert_eq!(writers.has_shown(&chunk), read_since.is_some());
            assert!(!writers.has_shown_other(&chunk, Some(2)));
            writers.note(chunk.clone(), Some(1));
        }
    }

    #[test]
    fn the_first_content_that_was_shown_counts_until_the_last_handle_is_gone() {
        let (writers, chunk) = (Writers::default(), Coordinates::from_slice(&[1, 2]));
        writers.note(chunk.clone(), Some(1));
        assert!(!writers.has_shown(&chunk), "it is not open for writing");
        writers.add("a.npy").unwrap();
        writers.note(chunk.clone(), Some(1));
        writers.note(chunk.clone(), Some(2));
        assert!(!writers.has_shown_other(&chunk, Some(1)));
        assert!(writers.has_shown_other(&chunk, Some(2)));
        writers.remove();
        writers.add("a.npy").unwrap();
        assert!(!writers.has_shown(&chunk) && !writers.has_shown_other(&chunk, Some(2)));
    }
}
