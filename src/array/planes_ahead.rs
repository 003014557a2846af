//! Planes of a row of small pieces that are put together at a time for a reader in order.
//!
//! Each plane has a short part of every piece of its row. To look a piece up, and to wait for the memory where its part
//! begins, takes as long as to copy the part. So where parts are short, several planes are put together, and the reads
//! that follow are ranges of these. They count only for the content that they were made of: nothing was written since,
//! and the stored chunks have the same versions. They are a value of the cache of decoded data, which the budget counts
//! and which may leave at any time. What the pieces are, and whether they are in memory, is up to `flat_file`.

use std::ops::Range;
use std::sync::Arc;

use crate::array::asked_row::PieceRows;
use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::parts::Part;
use crate::array::piece::{CacheKey, Cached, CachedPlanes};
use crate::array::touched;
use crate::array::versions::VersionState;
use crate::store::Version;
use crate::sync::read_bytes::ReadBytes;

/// The longest part of a piece in a plane, in bytes: what is longer is worth its own lookup.
const MAX_PART: u64 = 4 << 10;

/// The most bytes that are put together, which takes some milliseconds.
const MAX_BYTES: u64 = 8 << 20;

/// The most pieces of a row.
const MAX_PIECES: u64 = 1 << 13;

/// How many times the bytes the memory budget must have free: nothing leaves it for them.
const FREE_TIMES: u64 = 4;

/// The depth of these values among the keys of the cache, which no index of shards has.
const DEPTH: u8 = u8::MAX;

impl FlatFile {
    /// Returns the bytes of a range out of planes that were put together, or are now; nothing if that is not worth it, or
    /// a piece is not in memory.
    pub(super) fn read_planes(&self, decoder: &Decoder, range: &Range<u64>) -> Option<ReadBytes> {
        let rows = self.rows_of_short_parts(decoder)?;
        // The reads that the kernel sends side by side are of the same planes.
        let _turn = self.planes_turn.lock();
        let planes = match self.planes_now(decoder) {
            Some(planes) if planes.has(range) => planes,
            // The planes that follow were put together already.
            Some(planes) if planes.range.contains(&range.end) => return None,
            _ => {
                let planes = Arc::new(self.put_together(decoder, rows, range)?);
                let (cache, key) = (&self.array.engine.cache, self.planes_key());
                cache.put(key, Cached::Planes(planes.clone()));
                planes
            }
        };
        self.array.engine.stats.cache_hit_chunks.add(planes.pieces);
        touched::note(planes.pieces, planes.pieces);
        let first = planes.range.start;
        let found = in_buffer(range.start - first)..in_buffer(range.end - first);
        Some(ReadBytes::Shared(planes, found))
    }

    /// Has the planes leave memory.
    pub(super) fn forget_planes(&self) {
        self.array.engine.cache.forget(&self.planes_key());
    }

    fn planes_key(&self) -> CacheKey {
        (self.array.id, DEPTH, self.number as u64)
    }

    /// Returns the rows of pieces of a file that is read in order, if pieces have short parts of each plane.
    fn rows_of_short_parts(&self, decoder: &Decoder) -> Option<PieceRows> {
        let piece = decoder.pipeline.chunk_bytes() as u64;
        let rows = self.piece_rows(decoder)?;
        let is_short = piece / rows.planes.max(1) <= MAX_PART;
        let has_room = rows.plane.saturating_mul(2) <= MAX_BYTES
            && self.row_bytes(decoder) / piece.max(1) <= MAX_PIECES;
        let is_in_order = || self.pattern.has_read(rows.plane.saturating_mul(2));
        (is_short && has_room && self.array.dirty.is_empty() && is_in_order()).then_some(rows)
    }

    /// Returns the planes that were put together last, if they are of the present content.
    fn planes_now(&self, decoder: &Decoder) -> Option<Arc<CachedPlanes>> {
        let Cached::Planes(planes) = self.array.engine.cache.get(&self.planes_key())? else {
            return None;
        };
        let (now, versions) = (self.array.versions.now(), self.array.versions.lock());
        let is_current = |&(stored, version): &(u64, Option<Version>)| {
            let state = self.array.version_in(&versions, decoder, stored, now);
            state == VersionState::Known(version)
        };
        let holds = planes.content == self.array.content_now()
            && planes.versions.iter().all(is_current)
            && self.array.dirty.is_empty();
        holds.then_some(planes)
    }

    /// Puts a range and what follows it of its row together, as far as there is room; nothing if that is not more than
    /// another plane.
    fn put_together(
        &self,
        decoder: &Decoder,
        rows: PieceRows,
        range: &Range<u64>,
    ) -> Option<CachedPlanes> {
        let wanted = rows.planes_from(range, MAX_BYTES, self.length);
        let length = wanted.end - wanted.start;
        let budget = self.array.engine.cache.budget();
        let is_free = budget.held().saturating_add(length * FREE_TIMES) <= budget.limit();
        if length < rows.plane.saturating_mul(2) || !is_free {
            return None;
        }
        let content = self.array.content_now();
        let parts = self.parts(decoder, &wanted);
        let pieces = self.pieces_now(decoder, &parts)?;
        let count = pieces.len() as u64;
        let room = budget.try_reserve(length)?;
        let versions = self.versions_of(decoder, &parts)?;
        let bytes = self.gather_pieces(decoder, &wanted, &parts, pieces).ok()?;
        Some(CachedPlanes {
            range: wanted,
            bytes,
            pieces: count,
            content,
            versions,
            _room: room,
        })
    }

    /// Returns the versions of the stored chunks under some parts.
    fn versions_of(
        &self,
        decoder: &Decoder,
        parts: &[Part],
    ) -> Option<Vec<(u64, Option<Version>)>> {
        let number = |part: &Part| decoder.stored_number_at(part.piece, &part.start);
        let mut numbers: Vec<u64> = parts.iter().map(number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let (now, versions) = (self.array.versions.now(), self.array.versions.lock());
        let version = |stored| match self.array.version_in(&versions, decoder, stored, now) {
            VersionState::Known(version) => Some((stored, version)),
            VersionState::Unknown | VersionState::Stale => None,
        };
        numbers.into_iter().map(version).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::WriteSource;
    use crate::array::sample_array::{SampleArray, read, values};
    use crate::grid::Region;
    use crate::store::Key;

    const SHAPE: [u64; 3] = [16, 256, 256];
    const PLANE: u64 = 256 * 256;

    fn expected(range: Range<u64>) -> Vec<u8> {
        values(range, 0)
    }

    /// Opens an array of two rows of 256 chunks.
    fn file() -> FlatFile {
        let array = SampleArray::new(&SHAPE, &[8, 16, 16]).open(64 << 20);
        FlatFile::new(array, Region::whole(&SHAPE)).unwrap()
    }

    fn planes(file: &FlatFile) -> Option<Range<u64>> {
        let planes = file.planes_now(file.array.decoder().unwrap())?;
        Some(planes.range.clone())
    }

    /// Reads the planes of a range in order.
    fn read_in_order(file: &FlatFile, range: Range<u64>) {
        for plane in range {
            let range = plane * PLANE..(plane + 1) * PLANE;
            assert_eq!(read(file, range.clone()), expected(range), "plane {plane}");
        }
    }

    #[test]
    fn a_reader_in_order_is_given_ranges_of_several_planes() {
        let file = file();
        read_in_order(&file, 0..4);
        assert_eq!(planes(&file), None, "too little was read");
        read_in_order(&file, 4..6);
        let put_together = planes(&file).unwrap();
        assert_eq!(put_together.end, 8 * PLANE);
        let copied = file.array.engine.stats.copied_bytes.get();
        read_in_order(&file, 6..8);
        assert_eq!(file.array.engine.stats.copied_bytes.get(), copied);
        read_in_order(&file, 8..16);
        // Behind what was put together, and across its end.
        for start in [0, 3 * PLANE + 5, 7 * PLANE + 100, 8 * PLANE - 7] {
            let range = start..start + PLANE;
            assert_eq!(read(&file, range.clone()), expected(range));
        }
    }

    #[test]
    fn ranges_that_no_plane_ends_with_are_the_same_bytes() {
        for length in [1000, PLANE - 128, PLANE + 1, 3 * PLANE] {
            let file = file();
            let mut start = 0;
            while start < file.len() {
                let range = start..(start + length).min(file.len());
                start = range.end;
                assert_eq!(read(&file, range.clone()), expected(range), "{length}");
            }
        }
    }

    #[test]
    fn what_is_written_and_discarded_is_seen_at_once() {
        let file = file();
        read_in_order(&file, 0..6);
        let last = 7 * PLANE..7 * PLANE + 4;
        assert!(planes(&file).is_some_and(|planes| planes.contains(&last.start)));
        file.write(last.start, b"zarr", WriteSource::Program)
            .unwrap();
        assert_eq!(planes(&file), None);
        assert_eq!(read(&file, last.clone()), b"zarr");
        // They would be made of what is written.
        read_in_order(&file, 5..7);
        assert_eq!(planes(&file), None);
        file.array.dirty.discard();
        assert_eq!(read(&file, last.clone()), expected(last));
        assert_eq!(planes(&file), None, "of the content before");
    }

    #[test]
    fn a_version_that_changes_ends_them() {
        let file = file();
        read_in_order(&file, 0..6);
        assert!(planes(&file).is_some());
        let store = file.array.hierarchy.store();
        let key = Key::new("c/0/15/15").unwrap();
        store.info().changes.note(&key);
        assert_eq!(planes(&file), None);
    }

    #[test]
    fn no_planes_stay_of_a_file_that_is_closed() {
        let file = file();
        read_in_order(&file, 0..6);
        let (array, key) = (file.array.clone(), file.planes_key());
        assert!(array.engine.cache.has(&key));
        drop(file);
        assert!(!array.engine.cache.has(&key));
    }
}
