//! Tracks the file by which an array is open for writing, and its pages.
//!
//! The kernel has pages of each file, and writes a page back whole once a program has changed a byte of it by way of a
//! map. So one file of an array is open for writing at a time, by any number of handles: the pages of another one would
//! undo what was written here, as would those of the key of a chunk (`written_keys`). Other programs may change chunks
//! meanwhile. The chunks that were shown are therefore remembered by their digests: a page that is written back over
//! another content is refused. A digest and no version, since a commit gives a chunk another version and leaves its
//! content, as a change of another inner chunk does with a shard.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::array::chunk::DecodedChunk;
use crate::array::dirty_chunk::{DirtyChunk, ReadDigest};
use zarr_format::codec::Pipeline;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::Coordinates;
use zarrfs_store::Key;

/// The most chunks that are remembered; the one that was noted first is forgotten first.
const MAX_CHUNKS: usize = 1 << 16;

/// How long is waited for the last close of another file, of which the kernel tells after the program has gone on.
pub(super) const CLOSE_WAIT: Duration = Duration::from_millis(500);

/// The handles by which an array is open for writing.
#[derive(Default)]
pub(super) struct Writers {
    /// Whether there are some; readers look here before they take the lock.
    are_some: AtomicBool,
    open: Mutex<Option<OpenWriters>>,
    closed: Condvar,
    /// How many pages were written. The kernel writes a page back by any handle by which a program has mapped the file.
    pub(super) page_writes: AtomicU64,
}

/// The handles of one file.
struct OpenWriters {
    /// The path of the file in the mount.
    file: String,
    handles: usize,
    /// The chunks that the file has shown, by their indices among all chunks of the array.
    shown: LruCache<Coordinates, ShownChunk>,
}

impl OpenWriters {
    fn add(&mut self, chunk: Coordinates, digest: Option<u64>) {
        self.shown.put(chunk, ShownChunk::of(digest));
        if self.shown.len() > MAX_CHUNKS {
            self.shown.pop_lru();
        }
    }
}

/// A chunk of which the kernel has pages.
struct ShownChunk {
    /// The digest of the content that the pages are of; `None` for a chunk that was not stored.
    digest: Option<u64>,
    /// Whether what was written to the chunk was dropped: its pages are refused until the kernel has dropped them.
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

    /// Whether a read of the chunk has to be noted.
    fn is_new_to_reader(&self) -> bool {
        self.is_refused && self.read_since.is_none()
    }
}

impl Writers {
    /// Whether the array is open for writing.
    pub(super) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Acquire)
    }

    /// Waits until no file but `own` is open for writing; fails with the name of one that stays open.
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

    /// Adds a handle of a file; fails with the name of another one that stays open for writing.
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

    /// Waits until no file is open for writing; fails with `Busy` for the key of a chunk if one stays open.
    pub(super) fn wait_for_none(&self, key: &Key) -> Result<()> {
        match self.wait_for_others(None) {
            Ok(_) => Ok(()),
            Err(file) => Err(busy(key, &file)),
        }
    }

    /// Fails with `Busy` for the key of a chunk if a file is open for writing.
    pub(super) fn check_none(&self, key: &Key) -> Result<()> {
        match &*self.open.lock() {
            None => Ok(()),
            Some(writers) => Err(busy(key, &writers.file)),
        }
    }

    /// Removes a handle; with the last one, what was shown is forgotten.
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

    /// Whether a read of a chunk has to be noted.
    pub(super) fn must_note(&self, chunk: &Coordinates) -> bool {
        let open = self.open.lock();
        let shown = open.as_ref().map(|writers| writers.shown.peek(chunk));
        shown.is_some_and(|shown| shown.is_none_or(ShownChunk::is_new_to_reader))
    }

    /// Whether the pages of a chunk may be of another content.
    pub(super) fn has_shown_other(&self, chunk: &Coordinates, digest: Option<u64>) -> bool {
        let open = self.open.lock();
        let shown = open.as_ref().and_then(|writers| writers.shown.peek(chunk));
        shown.is_some_and(|shown| shown.is_refused || shown.digest != digest)
    }

    /// Notes the content with which a chunk is shown, unless it was shown before: pages may still hold the old one.
    pub(super) fn note(&self, chunk: Coordinates, digest: Option<u64>) {
        let mut open = self.open.lock();
        let Some(writers) = &mut *open else { return };
        match writers.shown.peek_mut(&chunk) {
            Some(shown) if shown.is_new_to_reader() => shown.read_since = Some(ReadDigest(digest)),
            Some(_) => {}
            None => writers.add(chunk, digest),
        }
    }

    /// Notes that a chunk was stored: pages of its chunks hold what was written, also if the file has shown none of
    /// them. One that was shown with another content than was read to write it stays as it was shown.
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

    /// Refuses the pages of a chunk from now on: what was written to it was dropped.
    pub(super) fn refuse(&self, chunk: &Coordinates) {
        if let Some(writers) = &mut *self.open.lock()
            && let Some(shown) = writers.shown.peek_mut(chunk)
        {
            shown.is_refused = true;
        }
    }

    /// Notes that the kernel has dropped the pages of the file: those of refused chunks are what was read since.
    pub(super) fn note_pages_dropped(&self) {
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

/// Returns the error of something that is not changed while a file of its array is open for writing.
pub(super) fn busy(subject: impl std::fmt::Display, file: &str) -> Error {
    let why = format!("{file} is open for writing, and one file of an array is at a time");
    Error::new(Kind::Busy, subject, why)
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
            writers.note_pages_dropped();
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
