//! Keeps decoded chunks that do not fit in memory in an unnamed file.
//!
//! The file has no name, so nothing is left of it however the process ends. It grows up to the configured limit and up
//! to 1/2 of the free space of its disk; on a tmpfs also up to the memory budget. Once all chunks are removed it is
//! truncated. A disk error is never returned to a reader: the chunk is decoded again.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::{fstatfs, fstatvfs};

use zarr_format::buffer;
use zarr_format::buffer::Buffer;
use zarr_format::grid::Runs;
use zarrfs_store::Version;

/// The magic numbers of tmpfs and ramfs (`statfs(2)`).
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Where decoded chunks are spilled that do not fit in memory; by default nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillConfig {
    /// The folders to try, in order; empty to spill nothing.
    pub folders: Vec<PathBuf>,
    /// The maximum length of the file in bytes.
    pub limit: u64,
}

/// The number of an array, and the number of a chunk in it.
pub(super) type SpilledChunk = (u64, u64);

/// The spill file.
pub(super) struct SpillFile {
    file: File,
    limit: u64,
    state: Mutex<SpillState>,
    /// The number of chunks written so far.
    written: AtomicU64,
}

#[derive(Default)]
struct SpillState {
    /// By the order in which they were written.
    slots: Option<LruCache<SpilledChunk, SpillSlot>>,
    /// The offsets of free slots, by length.
    free: HashMap<usize, Vec<u64>>,
    end: u64,
    /// Whether the disk is full or has failed.
    is_full: bool,
    /// The number of chunks that are being written.
    writers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SpillSlot {
    offset: u64,
    length: usize,
    version: Version,
    /// Distinguishes this write from a later one to the same offset.
    number: u64,
}

/// Creates the file in the first folder that allows it.
pub(super) fn open(config: &SpillConfig, memory: u64) -> Option<SpillFile> {
    let mut folders = config.folders.iter();
    let found = folders.find_map(|folder| {
        let opened = tempfile::tempfile_in(folder);
        let failed = |error| log::debug!("nothing is spilled to {}: {error}", folder.display());
        opened.map_err(failed).ok().zip(Some(folder.as_path()))
    });
    let (file, folder): (File, &Path) = found?;
    let limit = if is_in_memory(&file) {
        config.limit.min(memory)
    } else {
        config.limit
    };
    log::debug!("up to {limit} bytes are spilled to {}", folder.display());
    Some(SpillFile {
        file,
        limit,
        state: Mutex::default(),
        written: AtomicU64::new(0),
    })
}

fn is_in_memory(file: &File) -> bool {
    // An unknown file system counts as a disk.
    let kind = fstatfs(file)
        .ok()
        .and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| MEMORY_FILE_SYSTEMS.contains(&kind))
}

impl SpillState {
    fn slots(&mut self) -> &mut LruCache<SpilledChunk, SpillSlot> {
        self.slots.get_or_insert_with(LruCache::unbounded)
    }

    fn free(&mut self, slot: SpillSlot) {
        self.free.entry(slot.length).or_default().push(slot.offset);
    }
}

impl SpillFile {
    /// Whether the file has no chunks.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().slots().is_empty()
    }

    /// Whether the file has a chunk.
    pub(super) fn has(&self, chunk: &SpilledChunk) -> bool {
        self.state.lock().slots().contains(chunk)
    }

    /// Whether the empty file would have room for `bytes` bytes.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        let more = bytes.saturating_sub(state.end);
        bytes <= self.limit && !state.is_full && (more == 0 || self.has_room(state.end, more))
    }

    /// Writes a chunk; returns false if there is no room for it.
    pub(super) fn write(&self, chunk: SpilledChunk, version: Version, bytes: &[u8]) -> bool {
        self.remove(&chunk);
        let Some(offset) = self.take_place(bytes.len()) else {
            return false;
        };
        let slot = SpillSlot {
            offset,
            length: bytes.len(),
            version,
            number: self.written.fetch_add(1, Ordering::Relaxed),
        };
        let written = self.file.write_all_at(bytes, offset);
        let mut state = self.state.lock();
        state.writers -= 1;
        if let Err(error) = written {
            log::warn!("decoded chunks are not kept on disk any more: {error}");
            state.is_full = true;
            state.free(slot);
            return false;
        }
        if let Some((_, replaced)) = state.slots().push(chunk, slot) {
            state.free(replaced);
        }
        true
    }

    /// Returns the `length` bytes of a chunk of this version, or `None` if they are not in the file.
    pub(super) fn read(
        &self,
        chunk: &SpilledChunk,
        version: Version,
        length: usize,
    ) -> Option<Vec<u8>> {
        let mut bytes = buffer::of_length(length);
        let found = self.read_by(chunk, version, length, |file, offset| {
            file.read_exact_at(&mut bytes, offset)
        });
        if found {
            return Some(bytes);
        }
        buffer::recycle(bytes);
        None
    }

    /// Reads runs of such a chunk into their places in `out`; returns false if the chunk is not in the file.
    pub(super) fn read_runs(
        &self,
        chunk: &SpilledChunk,
        version: Version,
        length: usize,
        runs: &Runs,
        out: &mut [u8],
    ) -> bool {
        let span = runs.span();
        let mut bytes = Buffer::of_length(span.len());
        let found = self.read_by(chunk, version, length, |file, start| {
            file.read_exact_at(&mut bytes, start + span.start as u64)
        });
        if found {
            runs.copy_part(&bytes, span.start, out);
        }
        found
    }

    /// Reads a chunk with `read`, which is passed its offset; returns false if the chunk is not in the file.
    fn read_by(
        &self,
        chunk: &SpilledChunk,
        version: Version,
        length: usize,
        read: impl FnOnce(&File, u64) -> io::Result<()>,
    ) -> bool {
        let slot = self.state.lock().slots().peek(chunk).copied();
        let fits = |slot: &SpillSlot| slot.version == version && slot.length == length;
        let Some(slot) = slot.filter(fits) else {
            return false;
        };
        let is_read = read(&self.file, slot.offset).is_ok();
        // The slot may have been reused for another chunk during the read.
        let is_same = self.state.lock().slots().peek(chunk) == Some(&slot);
        if !is_read {
            self.remove(chunk);
        }
        is_read && is_same
    }

    /// Drops the oldest chunks as long as they are `unwanted`, at most `most` of them.
    pub(super) fn drop_unwanted(&self, most: usize, unwanted: impl Fn(&SpilledChunk) -> bool) {
        for _ in 0..most {
            let oldest = self
                .state
                .lock()
                .slots()
                .peek_lru()
                .map(|(chunk, _)| *chunk);
            let Some(chunk) = oldest.filter(&unwanted) else {
                return;
            };
            self.remove(&chunk);
        }
    }

    fn remove(&self, chunk: &SpilledChunk) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots().pop(chunk) else {
            return;
        };
        state.free(slot);
        if state.slots().is_empty() && state.writers == 0 {
            // If this fails, the space stays allocated until the process ends.
            let _ = self.file.set_len(0);
            *state = SpillState::default();
        }
    }

    /// Returns the offset of a free slot of `length` bytes, or `None` if there is no room.
    fn take_place(&self, length: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if let Some(offset) = state.free.get_mut(&length).and_then(Vec::pop) {
            state.writers += 1;
            return Some(offset);
        }
        let offset = state.end;
        let end = offset.checked_add(length as u64)?;
        if end > self.limit || state.is_full || !self.has_room(offset, length as u64) {
            return None;
        }
        state.end = end;
        state.writers += 1;
        Some(offset)
    }

    /// Whether the file, of `held` bytes, may grow by `more`: it may be at most as long as the space left free on its
    /// disk.
    fn has_room(&self, held: u64, more: u64) -> bool {
        let Ok(found) = fstatvfs(&self.file) else {
            return false;
        };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        held.saturating_add(more) <= free.saturating_sub(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zarr_format::grid::{Layout, Region};

    fn file(limit: u64) -> SpillFile {
        let folder = tempfile::tempdir().unwrap();
        let config = SpillConfig {
            folders: vec!["/nowhere/at/all".into(), folder.path().to_path_buf()],
            limit,
        };
        let file = open(&config, limit).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        file
    }

    #[test]
    fn chunks_are_read_as_they_were_written() {
        let (file, version) = (file(1000), Version::of(b"1"));
        assert!(file.write((1, 2), version, &[7; 100]));
        assert!(file.write((1, 3), version, &[8; 100]));
        assert_eq!(file.read(&(1, 2), version, 100), Some(vec![7; 100]));
        assert_eq!(file.read(&(1, 3), Version::of(b"2"), 100), None);
        assert_eq!(file.read(&(1, 3), version, 99), None);
        assert_eq!(file.read(&(2, 2), version, 100), None);
        assert!(file.write((1, 2), version, &[9; 100]));
        assert_eq!(file.read(&(1, 2), version, 100), Some(vec![9; 100]));
    }

    #[test]
    fn a_chunk_that_cannot_be_read_is_none() {
        let (file, version) = (file(1000), Version::of(b"1"));
        assert!(file.write((1, 2), version, &[7; 100]));
        file.file.set_len(50).unwrap();
        assert_eq!(file.read(&(1, 2), version, 100), None);
        assert!(!file.has(&(1, 2)));
    }

    #[test]
    fn runs_of_a_chunk_are_read_into_their_places() {
        let (file, version) = (file(1000), Version::of(b"1"));
        let bytes: Vec<u8> = (0..16).collect();
        assert!(file.write((0, 0), version, &[1; 20]));
        assert!(file.write((1, 2), version, &bytes));
        let part = Region {
            start: [1, 1].as_slice().into(),
            shape: [2, 3].as_slice().into(),
        };
        let from = Layout {
            start: &[0, 0],
            shape: &[4, 4],
            skipped: 0,
        };
        let to = Layout {
            start: &[1, 1],
            shape: &[2, 3],
            skipped: 0,
        };
        let runs = Runs::new(&part, from, to, 1);
        let mut out = [0; 6];
        assert!(file.read_runs(&(1, 2), version, 16, &runs, &mut out));
        assert_eq!(out, [5, 6, 7, 9, 10, 11]);
        assert!(!file.read_runs(&(1, 3), version, 16, &runs, &mut out));
    }

    #[test]
    fn the_file_is_bounded_and_gives_its_room_back() {
        let (file, version) = (file(300), Version::of(b"1"));
        for chunk in 0..3 {
            assert!(file.write((1, chunk), version, &[7; 100]));
        }
        assert!(!file.write((1, 3), version, &[7; 100]));
        file.drop_unwanted(2, |chunk| chunk.1 != 2);
        assert!(!file.has(&(1, 0)) && !file.has(&(1, 1)) && file.has(&(1, 2)));
        assert!(file.write((1, 4), version, &[7; 100]));
        file.drop_unwanted(9, |_| true);
        assert_eq!(file.file.metadata().unwrap().len(), 0);
        assert!(file.write((1, 5), version, &[7; 300]));
    }

    #[test]
    fn a_full_disk_is_no_error() {
        let config = SpillConfig {
            folders: vec!["/nowhere".into()],
            limit: 1,
        };
        assert!(open(&config, 1).is_none());
        assert!(open(&SpillConfig::default(), 1).is_none());
    }
}
