//! Spills evicted chunks that a sequential reader still needs to an unnamed file.
//!
//! A spilled chunk is read back instead of decoded again, and is valid only for the version that was spilled.
//! `read_tracker` decides which chunks readers need. The file has no name, so nothing is left of it however the process
//! ends. It grows up to the configured limit and up to 1/2 of the free space of its disk; on a tmpfs also up to the
//! memory budget. Once all chunks are removed it is truncated. A disk error is never returned to a reader: the chunk is
//! decoded again.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use lru::LruCache;
use parking_lot::Mutex;
use rustix::fs::{fstatfs, fstatvfs};

use crate::array::chunk::{CacheKey, Cached};
use crate::array::read_tracker::ReadTrackers;
use zarr_format::buffer;
use zarr_format::buffer::Buffer;
use zarr_format::grid::{ChunkIndex, Runs};
use zarrfs_store::Version;
use zarrfs_store::stats::Stats;

/// Where evicted chunks are spilled to disk, and how much. By default no chunk is spilled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpillConfig {
    /// The folders in which to create the spill file; the first that works is used. Empty to spill nothing.
    pub folders: Vec<PathBuf>,
    /// The maximum length of the spill file in bytes.
    pub limit: u64,
}

/// The chunks of a mount's arrays in the spill file.
pub(super) struct Spill {
    file: File,
    limit: u64,
    state: Mutex<SpillState>,
    /// The number of chunks written to the spill file so far.
    written: AtomicU64,
    /// The trackers of the arrays that may have spilled chunks, by array number.
    arrays: Mutex<HashMap<u64, Weak<ReadTrackers>>>,
    stats: Arc<Stats>,
}

#[derive(Default)]
struct SpillState {
    /// The spilled chunks, in the order in which they were written.
    slots: Option<LruCache<CacheKey, SpillSlot>>,
    /// The offsets of free slots in the spill file, by the length of the slot.
    free: HashMap<usize, Vec<u64>>,
    end: u64,
    /// Whether the disk of the spill file is full or has failed.
    is_full: bool,
    /// The number of chunks that are just being written to the spill file.
    writers: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SpillSlot {
    offset: u64,
    length: usize,
    version: Version,
    /// Distinguishes a write to the spill file from a later write at the same offset.
    number: u64,
}

impl SpillState {
    fn slots(&mut self) -> &mut LruCache<CacheKey, SpillSlot> {
        self.slots.get_or_insert_with(LruCache::unbounded)
    }

    fn free(&mut self, slot: SpillSlot) {
        self.free.entry(slot.length).or_default().push(slot.offset);
    }
}

impl Spill {
    /// Creates the spill file in the first folder that allows it, or returns `None` if no folder does. `memory` is the
    /// memory budget in bytes.
    pub(super) fn open(config: &SpillConfig, memory: u64, stats: Arc<Stats>) -> Option<Spill> {
        let (folder, file) = config.folders.iter().find_map(|folder| {
            let file = tempfile::tempfile_in(folder).inspect_err(|error| {
                log::debug!("cannot spill to {}: {error}", folder.display());
            });
            Some((folder, file.ok()?))
        })?;
        // If `statfs` fails, the file system counts as a disk, not as memory.
        let kind = fstatfs(&file).ok();
        let is_in_memory = kind.is_some_and(|found| {
            // The magic numbers of tmpfs and ramfs, from `statfs(2)`.
            u64::try_from(found.f_type).is_ok_and(|kind| matches!(kind, 0x0102_1994 | 0x8584_58f6))
        });
        let limit = if is_in_memory {
            config.limit.min(memory)
        } else {
            config.limit
        };
        log::debug!("spilling up to {limit} bytes to {}", folder.display());
        Some(Spill {
            file,
            limit,
            state: Mutex::default(),
            written: AtomicU64::new(0),
            arrays: Mutex::default(),
            stats,
        })
    }

    /// Registers the readers of an array that may spill chunks.
    pub(super) fn add(&self, array: u64, trackers: &Arc<ReadTrackers>) {
        let mut arrays = self.arrays.lock();
        arrays.retain(|_, trackers| trackers.strong_count() > 0);
        arrays.insert(array, Arc::downgrade(trackers));
    }

    /// Writes an evicted chunk to the spill file if a sequential reader still needs it.
    pub(super) fn write_evicted(&self, chunk: CacheKey, value: &Cached) {
        let Cached::Chunk(decoded) = value else {
            return;
        };
        // A chunk that was read from the spill file is written again only if the file has dropped it since.
        let is_there = decoded.is_on_disk && self.has(&chunk);
        if is_there || !decoded.version.is_lasting() || !self.is_needed(&chunk) {
            return;
        }
        // Each write drops a few chunks that no reader needs, so that the spill file does not grow.
        self.drop_unneeded(4);
        if self.write(chunk, decoded.version, decoded.bytes()) {
            self.stats.spill_written_chunks.add(1);
        }
    }

    fn is_needed(&self, chunk: &CacheKey) -> bool {
        let trackers = self.arrays.lock().get(&chunk.array).and_then(Weak::upgrade);
        trackers.is_some_and(|trackers| trackers.is_needed(ChunkIndex(chunk.number)))
    }

    /// Drops the oldest spilled chunks that no reader needs, at most `most` of them.
    pub(super) fn drop_unneeded(&self, most: usize) {
        for _ in 0..most {
            let oldest = self
                .state
                .lock()
                .slots()
                .peek_lru()
                .map(|(chunk, _)| *chunk);
            let Some(chunk) = oldest.filter(|chunk| !self.is_needed(chunk)) else {
                return;
            };
            self.remove(&chunk);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().slots().is_empty()
    }

    pub(super) fn has(&self, chunk: &CacheKey) -> bool {
        self.state.lock().slots().contains(chunk)
    }

    /// Whether the spill file, if it were empty, would have room for `bytes` bytes.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        let more = bytes.saturating_sub(state.end);
        bytes <= self.limit && !state.is_full && (more == 0 || self.can_grow(state.end, more))
    }

    /// Writes a chunk to the spill file; returns false if there is no room for it.
    fn write(&self, chunk: CacheKey, version: Version, bytes: &[u8]) -> bool {
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
            log::warn!("cannot write to --spill, so chunks are decoded again when needed: {error}");
            state.is_full = true;
            state.free(slot);
            return false;
        }
        if let Some((_, replaced)) = state.slots().push(chunk, slot) {
            state.free(replaced);
        }
        true
    }

    /// Reads the `length` bytes of a chunk from the spill file; `None` if the file does not have this version of the
    /// chunk.
    pub(super) fn read(
        &self,
        chunk: &CacheKey,
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

    /// Reads byte runs of a chunk from the spill file to their positions in `out`; returns false if the file does not
    /// have this version of the chunk.
    pub(super) fn read_runs(
        &self,
        chunk: &CacheKey,
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

    /// Calls `read` with the offset of a chunk in the spill file; returns false if the file does not have this version
    /// of the chunk.
    fn read_by(
        &self,
        chunk: &CacheKey,
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
        // During the read, the chunk may have been dropped and its slot reused for another chunk.
        let is_same = self.state.lock().slots().peek(chunk) == Some(&slot);
        if !is_read {
            self.remove(chunk);
        }
        self.stats
            .spill_hit_chunks
            .add(u64::from(is_read && is_same));
        is_read && is_same
    }

    fn remove(&self, chunk: &CacheKey) {
        let mut state = self.state.lock();
        let Some(slot) = state.slots().pop(chunk) else {
            return;
        };
        state.free(slot);
        if state.slots().is_empty() && state.writers == 0 {
            // If truncating fails, the disk space stays allocated until the process ends.
            let _ = self.file.set_len(0);
            *state = SpillState::default();
        }
    }

    /// Returns the offset of a free slot of `length` bytes in the spill file, or `None` if the file has no room.
    fn take_place(&self, length: usize) -> Option<u64> {
        let mut state = self.state.lock();
        if let Some(offset) = state.free.get_mut(&length).and_then(Vec::pop) {
            state.writers += 1;
            return Some(offset);
        }
        let offset = state.end;
        let end = offset.checked_add(length as u64)?;
        if end > self.limit || state.is_full || !self.can_grow(offset, length as u64) {
            return None;
        }
        state.end = end;
        state.writers += 1;
        Some(offset)
    }

    /// Whether a spill file of `held` bytes may grow by `more` bytes: it may take at most half of the disk space that
    /// is free or its own.
    fn can_grow(&self, held: u64, more: u64) -> bool {
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

    fn chunk(array: u64, number: u64) -> CacheKey {
        CacheKey::of_chunk(array, ChunkIndex(number))
    }

    fn file(limit: u64) -> Spill {
        let folder = tempfile::tempdir().unwrap();
        let config = SpillConfig {
            folders: vec!["/nowhere/at/all".into(), folder.path().to_path_buf()],
            limit,
        };
        let file = Spill::open(&config, limit, Arc::default()).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        file
    }

    #[test]
    fn spilled_chunks_are_read_back_by_version_and_length() {
        let (file, version) = (file(1000), Version::of(b"1"));
        assert!(file.write(chunk(1, 2), version, &[7; 100]));
        assert!(file.write(chunk(1, 3), version, &[8; 100]));
        assert_eq!(file.read(&chunk(1, 2), version, 100), Some(vec![7; 100]));
        assert_eq!(file.read(&chunk(1, 3), Version::of(b"2"), 100), None);
        assert_eq!(file.read(&chunk(1, 3), version, 99), None);
        assert_eq!(file.read(&chunk(2, 2), version, 100), None);
        assert!(file.write(chunk(1, 2), version, &[9; 100]));
        assert_eq!(file.read(&chunk(1, 2), version, 100), Some(vec![9; 100]));
    }

    #[test]
    fn a_spilled_chunk_that_fails_to_read_is_dropped() {
        let (file, version) = (file(1000), Version::of(b"1"));
        assert!(file.write(chunk(1, 2), version, &[7; 100]));
        file.file.set_len(50).unwrap();
        assert_eq!(file.read(&chunk(1, 2), version, 100), None);
        assert!(!file.has(&chunk(1, 2)));
    }

    #[test]
    fn a_part_of_a_spilled_chunk_is_read_into_place() {
        let (file, version) = (file(1000), Version::of(b"1"));
        let bytes: Vec<u8> = (0..16).collect();
        assert!(file.write(chunk(0, 0), version, &[1; 20]));
        assert!(file.write(chunk(1, 2), version, &bytes));
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
        assert!(file.read_runs(&chunk(1, 2), version, 16, &runs, &mut out));
        assert_eq!(out, [5, 6, 7, 9, 10, 11]);
        assert!(!file.read_runs(&chunk(1, 3), version, 16, &runs, &mut out));
    }

    #[test]
    fn the_spill_file_is_bounded_and_frees_unneeded_chunks() {
        let (file, version) = (file(300), Version::of(b"1"));
        for number in 0..3 {
            assert!(file.write(chunk(1, number), version, &[7; 100]));
        }
        assert!(!file.write(chunk(1, 3), version, &[7; 100]));
        file.drop_unneeded(2);
        assert!(!file.has(&chunk(1, 0)) && !file.has(&chunk(1, 1)) && file.has(&chunk(1, 2)));
        assert!(file.write(chunk(1, 4), version, &[7; 100]));
        file.drop_unneeded(9);
        assert_eq!(file.file.metadata().unwrap().len(), 0);
        assert!(file.write(chunk(1, 5), version, &[7; 300]));
    }

    #[test]
    fn a_full_disk_is_no_error_and_is_not_tried_again() {
        let full = File::options().read(true).write(true).open("/dev/full");
        let (version, mut file) = (Version::of(b"1"), file(1000));
        assert!(file.write(chunk(1, 1), version, &[6; 100]));
        let disk = std::mem::replace(&mut file.file, full.unwrap());
        assert!(!file.write(chunk(1, 2), version, &[7; 100]));
        assert!(!file.has(&chunk(1, 2)) && file.read(&chunk(1, 2), version, 100).is_none());
        file.file = disk;
        // Chunks that were written before the failure stay; no chunk is added until the spill file is empty.
        assert_eq!(file.read(&chunk(1, 1), version, 100), Some(vec![6; 100]));
        assert!(!file.has_room_for(1) && !file.write(chunk(1, 3), version, &[8; 200]));
        file.remove(&chunk(1, 1));
        assert!(file.write(chunk(1, 3), version, &[8; 200]));
    }

    #[test]
    fn a_spill_folder_that_is_missing_is_no_error() {
        let config = SpillConfig {
            folders: vec!["/nowhere".into()],
            limit: 1,
        };
        assert!(Spill::open(&config, 1, Arc::default()).is_none());
        assert!(Spill::open(&SpillConfig::default(), 1, Arc::default()).is_none());
    }
}
