//! Decoded pieces that left the memory although somebody will read them again, on disk.
//!
//! A file read in order passes over a row of chunks many times. What of it lies ahead of a reader is kept when
//! the cache lets it go, and comes back from there instead of being decoded again; only for the content and
//! the metadata that it was decoded with. What nobody will read again is dropped.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::array::chunk::Cached;
use crate::grid::{ChunkIndex, Grid, Region};
use crate::store::layer::disk_cache::{CacheNamespace, EntryHeader, EntryKey};
use crate::store::{Key, Version};

/// A reader that has not read for so long is no longer reading.
const READING: Duration = Duration::from_secs(60);

/// The place on disk for the pieces of one store's arrays.
pub(super) struct Spill(pub(super) CacheNamespace);

/// One array, as far as its pieces on disk are concerned.
pub(super) struct SpillKey {
    path: Key,
    /// Version of the metadata.
    metadata: u64,
    element: u64,
    pieces: Grid,
    readers: Mutex<HashMap<usize, ReaderProgress>>,
}

/// How far somebody came who reads a box in order.
struct ReaderProgress {
    region: Region,
    /// Where the bytes begin that are still to be read.
    rest: u64,
    since: Instant,
}

impl SpillKey {
    pub(super) fn new(path: Key, metadata: u64, element: usize, pieces: Grid) -> Arc<SpillKey> {
        Arc::new(SpillKey {
            path,
            metadata,
            element: element as u64,
            pieces,
            readers: Mutex::default(),
        })
    }

    fn readers(&self) -> MutexGuard<'_, HashMap<usize, ReaderProgress>> {
        self.readers.lock()
    }

    /// Notes that of the box `region` the bytes from `rest` on are still to be read; nothing if its reader
    /// (`number` tells it from others) does not read in order.
    pub(super) fn note(&self, number: usize, region: &Region, rest: Option<u64>) {
        let mut readers = self.readers();
        match (rest, readers.get_mut(&number)) {
            (None, _) => drop(readers.remove(&number)),
            (Some(rest), Some(progress)) => {
                progress.rest = rest;
                progress.since = Instant::now();
            }
            (Some(rest), None) => {
                let progress = ReaderProgress {
                    region: region.clone(),
                    rest,
                    since: Instant::now(),
                };
                readers.insert(number, progress);
            }
        }
    }

    /// Whether somebody will read the piece again.
    fn is_wanted(&self, piece: ChunkIndex) -> bool {
        self.has_reader(piece, |end, rest| end > rest)
    }

    /// Whether somebody who reads in order has read the piece, and nobody of them will read it again.
    pub(super) fn is_passed(&self, piece: ChunkIndex) -> bool {
        self.has_reader(piece, |end, rest| end <= rest) && !self.is_wanted(piece)
    }

    /// Whether there is a reader of the piece for whom `is_so` of where the piece ends in the file, and where
    /// the bytes begin that are still to be read.
    fn has_reader(&self, piece: ChunkIndex, is_so: impl Fn(u64, u64) -> bool) -> bool {
        let region = self.pieces.region(&self.pieces.indices(piece));
        let readers = self.readers();
        readers.values().any(|progress| {
            let end = last_byte(&progress.region, &region, self.element);
            let is_reading = progress.since.elapsed() < READING;
            is_reading && end.is_some_and(|end| is_so(end, progress.rest))
        })
    }

    fn label(&self, piece: u64) -> EntryKey {
        EntryKey::decoded(&self.path, piece, self.metadata)
    }
}

/// Returns where the bytes of a piece end in the flat file of a box; nothing if they share none.
fn last_byte(of: &Region, piece: &Region, element: u64) -> Option<u64> {
    let mut place: u64 = 0;
    for (axis, (&start, &length)) in of.start.iter().zip(&of.shape).enumerate() {
        let (first, count) = (*piece.start.get(axis)?, *piece.shape.get(axis)?);
        let end = start.checked_add(length)?.min(first.checked_add(count)?);
        let last = end.checked_sub(1)?;
        if last < start.max(first) {
            return None;
        }
        place = place.checked_mul(length)?.checked_add(last - start)?;
    }
    place.checked_add(1)?.checked_mul(element)
}

impl Spill {
    /// Keeps a piece that leaves the memory, if somebody will read it again.
    pub(super) fn keep(&self, piece: u64, value: &Cached) {
        let Cached::Chunk(decoded) = value else {
            return;
        };
        let Some(origin) = &decoded.origin else {
            return;
        };
        let label = origin.label(piece);
        // What came from there may have made room for others since.
        let is_there = decoded.is_on_disk && self.0.has(&label);
        if is_there || !origin.is_wanted(ChunkIndex(piece)) {
            return;
        }
        let bytes = decoded.bytes();
        let facts = EntryHeader::now(decoded.version(), bytes.len() as u64);
        if self.0.put(&label, &facts, bytes) {
            self.0.stats().spill_written_chunks.add(1);
        }
    }

    /// Whether there is something of a piece here.
    pub(super) fn has(&self, origin: &SpillKey, piece: u64) -> bool {
        self.0.has(&origin.label(piece))
    }

    /// Returns the bytes of a piece of this content, if they are here and `length` many.
    pub(super) fn find(
        &self,
        origin: &SpillKey,
        piece: u64,
        (version, length): (Version, usize),
    ) -> Option<Vec<u8>> {
        let label = origin.label(piece);
        let entry = self.0.find(&label)?;
        if entry.header().version != version || entry.len() != length as u64 {
            return None;
        }
        let bytes = self.0.read(&label, &entry, 0..entry.len())?;
        self.0.stats().spill_hit_chunks.add(1);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &[u64], shape: &[u64]) -> Region {
        Region {
            start: start.into(),
            shape: shape.into(),
        }
    }

    #[test]
    fn the_last_byte_of_a_piece_in_a_box() {
        let whole = region(&[0, 0], &[10, 10]);
        assert_eq!(last_byte(&whole, &region(&[0, 0], &[5, 5]), 2), Some(90));
        assert_eq!(last_byte(&whole, &region(&[5, 5], &[5, 5]), 2), Some(200));
        let part = region(&[4, 4], &[2, 2]);
        assert_eq!(last_byte(&part, &region(&[0, 0], &[5, 5]), 1), Some(1));
        assert_eq!(last_byte(&part, &region(&[6, 6], &[4, 4]), 1), None);
        assert_eq!(last_byte(&part, &region(&[0, 0], &[4, 9]), 1), None);
        assert_eq!(last_byte(&region(&[], &[]), &region(&[], &[]), 8), Some(8));
    }

    #[test]
    fn what_lies_behind_a_reader_is_not_wanted() {
        let pieces = Grid::new(&[8, 8], &[4, 4]).unwrap();
        let origin = SpillKey::new(Key::root(), 1, 1, pieces);
        let whole = region(&[0, 0], &[8, 8]);
        assert!(!origin.is_wanted(ChunkIndex(0)), "nobody reads");
        origin.note(1, &whole, Some(28));
        assert!(!origin.is_wanted(ChunkIndex(0)) && origin.is_wanted(ChunkIndex(1)));
        assert!(origin.is_wanted(ChunkIndex(3)));
        assert!(origin.is_passed(ChunkIndex(0)) && !origin.is_passed(ChunkIndex(1)));
        origin.note(1, &whole, None);
        assert!(!origin.is_wanted(ChunkIndex(3)) && !origin.is_passed(ChunkIndex(0)));
    }
}
