//! The planes of pieces that are kept where memory has no room for a row of pieces and the disk has none either.
//!
//! A reader in order comes back to each piece of a row for each of its planes. A piece that was decoded leaves at once, and
//! as many of its planes stay as there is room for of all pieces of the row: it is decoded again when these were read, and
//! not for each plane. Slabs are values of the cache of decoded data, which the budget counts and which may leave at any
//! time. One counts only for the version of the stored chunk that its piece was decoded of. Where their bytes go is up to
//! `gather`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::array::decoder::Decoder;
use crate::array::flat_file::{FlatFile, in_buffer};
use crate::array::loading;
use crate::array::parts::Part;
use crate::array::piece::{CacheKey, Cached, Decoded};
use crate::array::slab::{Slab, SlabMemory, SlabPlanes};
use crate::array::touched;
use crate::array::versions::VersionState;
use crate::error::Result;
use crate::grid::{ChunkIndex, Layout, Region, Runs};
use crate::sync::buffer::Buffer;

/// The depth of these values among the keys of the cache, which no index of shards has.
const DEPTH: u8 = u8::MAX - 1;

/// The fewest bytes of a slab: what is shorter costs as much memory beside them.
const MIN_BYTES: u64 = 1 << 10;

/// The part of the memory that is left to what else is read: one in so many bytes.
const SPARE_SHARE: u64 = 16;

/// How long a read waits for another one of the file that loads pieces.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The memory that a slab takes beside its bytes.
const OVERHEAD: u64 = 512;

impl FlatFile {
    /// Returns how pieces are divided into slabs for a reader in order whose row of pieces memory has no room for; nothing
    /// if they go to disk, or if memory has no room for two planes.
    pub(super) fn slab_planes(&self, decoder: &Decoder) -> Option<SlabPlanes> {
        let array = &self.array;
        let unread = array.unread.as_ref()?;
        if self.direct || array.spills(self.row_bytes(decoder)) {
            return None;
        }
        let axis = self.first_axis();
        let chunk = *decoder.pieces.chunk_shape().get(axis)?;
        let planes = chunk.min(*self.region.shape.get(axis)?);
        let (limit, piece) = (
            array.engine.limits.memory,
            decoder.pipeline.chunk_bytes() as u64,
        );
        let memory = SlabMemory {
            all: (limit - limit / SPARE_SHARE) / unread.reader_count().max(1),
            plane: self.plane_bytes(),
            piece,
            load: piece.saturating_add(loading::usual_length(piece)),
            batch: array.pieces_of_batch(decoder) as u64,
        };
        let slabs = SlabPlanes::new((axis, planes), memory, array.engine.encoders)?;
        (piece / slabs.loads() >= MIN_BYTES).then_some(slabs)
    }

    /// Waits until no other read of the file loads pieces: more of them at a time would drive out slabs. Nothing if the other
    /// read takes long, which must not cost this one its time limit.
    pub(super) fn loading_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.loading.try_lock_for(MAX_WAIT)
    }

    /// Whether the piece of some parts has to be loaded, as far as that is known without asking.
    pub(super) fn has_to_load(&self, decoder: &Decoder, parts: &[Part]) -> bool {
        let Some(first) = parts.first() else {
            return false;
        };
        let array = &self.array;
        let is_there =
            array.has_piece(first.piece) || array.written(decoder, first.piece).is_some();
        let stored = decoder.stored_number_at(first.piece, &first.start);
        !is_there && array.version_state(decoder, stored) != VersionState::Known(None)
    }

    /// Returns the slab with all of some parts of one piece, if the stored chunk has its version now. Fails as the store
    /// does that is asked for the version.
    pub(super) fn slab(
        &self,
        decoder: &Decoder,
        slabs: SlabPlanes,
        parts: &[Part],
    ) -> Result<Option<Arc<Slab>>> {
        let key = self.last_slab_key(decoder, slabs, parts);
        let found = key.and_then(|key| self.cached_slab(&key));
        let Some((first, slab)) = parts.first().zip(found) else {
            return Ok(None);
        };
        if self.array.written(decoder, first.piece).is_some() {
            return Ok(None);
        }
        let stored = decoder.stored_number_at(first.piece, &first.start);
        let version = match self.array.version_state(decoder, stored) {
            VersionState::Known(version) => version,
            // To load the piece would cost more.
            VersionState::Stale | VersionState::Unknown => {
                self.array.fetch_version(decoder, stored)?
            }
        };
        let is_of = |version| parts.iter().all(|part| slab.is_of(&part.region, version));
        if !version.is_some_and(is_of) {
            return Ok(None);
        }
        self.array.engine.stats.cache_hit_chunks.add(1);
        touched::note(1, 1);
        Ok(Some(slab))
    }

    /// Returns a slab in memory, of whatever version.
    fn cached_slab(&self, key: &CacheKey) -> Option<Arc<Slab>> {
        match self.array.engine.cache.get(key)? {
            Cached::Slab(slab) => Some(slab),
            _ => None,
        }
    }

    /// Returns the key of the slab that has the last plane of some parts of one piece.
    pub(super) fn last_slab_key(
        &self,
        decoder: &Decoder,
        slabs: SlabPlanes,
        parts: &[Part],
    ) -> Option<CacheKey> {
        let (piece, last) = (parts.first()?.piece, slabs.last(parts)?);
        Some(self.slab_key(slabs, (piece, &self.area(decoder, piece)), last))
    }

    /// Returns what the file has of a piece.
    fn area(&self, decoder: &Decoder, piece: ChunkIndex) -> Region {
        let pieces = &decoder.pieces;
        pieces.region(&pieces.indices(piece)).overlap(&self.region)
    }

    /// Two slabs may have one key: a slab is known by its elements.
    fn slab_key(
        &self,
        slabs: SlabPlanes,
        (piece, area): (ChunkIndex, &Region),
        at: u64,
    ) -> CacheKey {
        (self.array.id, DEPTH, slabs.number(piece, area, at))
    }

    /// Keeps the planes of a decoded piece that a reader in order will want after some parts of it, as far as the budget has
    /// room for them.
    pub(super) fn keep_slab(
        &self,
        decoder: &Decoder,
        slabs: SlabPlanes,
        parts: &[Part],
        decoded: &Decoded,
    ) {
        // What was written is kept as it is.
        let Some(part) = parts.first().filter(|_| decoded.usage.is_some()) else {
            return;
        };
        let area = self.area(decoder, part.piece);
        let next = slabs.next(&area, parts);
        if !slabs.ends_after(&area, next) {
            return;
        }
        let key = self.slab_key(slabs, (part.piece, &area), next);
        let region = slabs.region(area, next);
        let known = self.cached_slab(&key);
        if known.is_some_and(|slab| slab.is_of(&region, decoded.version)) {
            return;
        }
        if let Some(slab) = self.cut_slab(decoder, region, part, decoded) {
            self.array
                .engine
                .cache
                .put(key, Cached::Slab(Arc::new(slab)));
        }
    }

    /// Returns a box of the piece that a part is of, if the budget has room for it.
    fn cut_slab(
        &self,
        decoder: &Decoder,
        region: Region,
        part: &Part,
        decoded: &Decoded,
    ) -> Option<Slab> {
        let (size, budget) = (self.array.element, self.array.engine.cache.budget());
        let length = region.shape.iter().product::<u64>() * size as u64;
        let room = budget.try_reserve(length + OVERHEAD)?;
        let mut bytes = Buffer::exact(in_buffer(length));
        let from = Layout {
            start: &part.start,
            shape: &decoder.pieces.shape_of(part.piece),
            skipped: 0,
        };
        let to = Layout {
            start: &region.start,
            shape: &region.shape,
            skipped: 0,
        };
        Runs::new(&region, from, to, size).copy(decoded.bytes(), &mut bytes);
        Some(Slab::new(region, bytes, decoded.version, room))
    }

    /// Has a slab leave first of which a reader in order was given the last plane.
    pub(super) fn note_slab_given(
        &self,
        decoder: &Decoder,
        slabs: SlabPlanes,
        parts: &[Part],
        slab: &Slab,
    ) {
        let Some(part) = parts.first() else { return };
        let next = slabs.next(&self.area(decoder, part.piece), parts);
        // Reads that the kernel sends side by side come in any order, and a use makes it the last to leave again.
        if slab.note_next(slabs, next)
            && let Some(key) = self.last_slab_key(decoder, slabs, parts)
        {
            self.array.engine.cache.retire(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;
    use crate::array::sample_array::{SampleArray, read, values};
    use crate::array::{OpenArray, WriteSource};

    /// Four rows of 64 pieces, each of 512 KiB.
    const SHAPE: [u64; 3] = [32, 256, 256];
    const CHUNK: [u64; 3] = [8, 32, 32];
    const PLANE: u64 = 256 * 256;
    /// Room for five planes.
    const MEMORY: u64 = 512 << 10;

    fn sample() -> (SampleArray, Arc<OpenArray>) {
        let sample = SampleArray::new(&SHAPE, &CHUNK);
        let array = sample.open(MEMORY);
        (sample, array)
    }

    fn file(array: &Arc<OpenArray>) -> FlatFile {
        FlatFile::new(array.clone(), Region::whole(&SHAPE)).unwrap()
    }

    /// Reads a range in reads of a length.
    fn read_in_order(file: &FlatFile, range: Range<u64>, length: u64) -> Vec<u8> {
        let (mut start, mut bytes) = (range.start, Vec::new());
        while start < range.end {
            let end = range.end.min(start + length);
            bytes.extend(read(file, start..end));
            start = end;
        }
        bytes
    }

    #[test]
    fn each_piece_is_loaded_once_for_a_slab_and_not_for_a_plane() {
        for length in [PLANE, PLANE / 4, PLANE - 100, 2 * PLANE + 33] {
            let (_, array) = sample();
            let file = file(&array);
            let bytes = read_in_order(&file, 0..file.len(), length);
            assert!(bytes == values(0..file.len(), 0), "{length}");
            let stats = &array.engine.stats;
            let loaded = stats.decoded_chunks.get();
            // 256 pieces have two slabs each.
            assert!(loaded <= 512, "{length}: {loaded}");
            assert!(stats.memory_peak_bytes.get() <= MEMORY);
        }
    }

    #[test]
    fn any_range_of_any_box_is_that_of_the_array() {
        let (sample, array) = sample();
        let boxes = [
            [0, 0, 0, 32, 256, 256],
            [3, 5, 7, 27, 201, 248],
            [9, 0, 0, 20, 256, 256],
        ];
        for [z, y, x, depth, height, width] in boxes {
            let region = Region {
                start: [z, y, x].as_slice().into(),
                shape: [depth, height, width].as_slice().into(),
            };
            let expected = sample.elements(&region, 0);
            let file = FlatFile::new(array.clone(), region).unwrap();
            let lengths = [70_001, PLANE, 31, 2 * PLANE, 40_000];
            let (mut start, mut number) = (0, 0);
            while start < file.len() {
                number += 1;
                let end = file.len().min(start + lengths[number % lengths.len()]);
                let found = read(&file, start..end);
                assert!(
                    found == expected[in_buffer(start)..in_buffer(end)],
                    "{start}..{end}"
                );
                // Every seventh read is asked for again, late.
                start = if number % 7 == 0 {
                    end.saturating_sub(PLANE)
                } else {
                    end
                };
            }
        }
    }

    #[test]
    fn planes_of_another_order_are_kept_as_well() {
        let (_, array) = sample();
        let order = [1, 0, 2];
        let file = FlatFile::permuted(array.clone(), Region::whole(&SHAPE), &order).unwrap();
        let bytes = read_in_order(&file, 0..file.len(), PLANE);
        let row = |(y, z): (u64, u64)| {
            let start = z * PLANE + y * 256;
            values(start..start + 256, 0)
        };
        let places = (0..256).flat_map(|y| (0..32).map(move |z| (y, z)));
        assert!(bytes == places.flat_map(row).collect::<Vec<u8>>());
        let loaded = array.engine.stats.decoded_chunks.get();
        assert!(loaded < 32 * 64 * 4 / 2, "{loaded}");
    }

    #[test]
    fn what_is_written_stored_or_discarded_is_seen_at_once() {
        let (sample, array) = sample();
        let file = file(&array);
        let slab = |file: &FlatFile| {
            let decoder = array.decoder().unwrap();
            let parts = file.parts(decoder, &(PLANE..PLANE + 32));
            let slabs = file.slab_planes(decoder).unwrap();
            file.slab(decoder, slabs, &parts).unwrap().is_some()
        };
        assert!(read_in_order(&file, 0..PLANE, PLANE) == values(0..PLANE, 0));
        assert!(slab(&file));
        file.write(PLANE, b"zarr", WriteSource::Program).unwrap();
        assert!(!slab(&file));
        assert_eq!(read(&file, PLANE..PLANE + 4), b"zarr");
        array.dirty.discard();
        assert_eq!(read(&file, PLANE..PLANE + 4), values(PLANE..PLANE + 4, 0));
        let key = sample.put(0, 1);
        array.hierarchy.store().info().changes.note(&key);
        assert!(!slab(&file));
        assert_eq!(read(&file, PLANE..PLANE + 32), values(PLANE..PLANE + 32, 1));
    }

    #[test]
    fn a_read_whose_turn_does_not_come_goes_on_without() {
        let (sample, array) = sample();
        sample.erase(1);
        let file = file(&array);
        let turn = file.loading.lock();
        assert!(read_in_order(&file, 0..32, 32) == values(0..32, 0));
        let decoder = array.decoder().unwrap();
        let has_to_load =
            |start: u64| file.has_to_load(decoder, &file.parts(decoder, &(start..start + 32)));
        // The first piece is in memory, the second is missing, and the third is stored.
        assert_eq!(read(&file, 32..64), [0; 32]);
        assert_eq!([0, 32, 64].map(has_to_load), [false, false, true]);
        assert!(read(&file, 64..96) == values(64..96, 0));
        drop(turn);
    }

    /// Two readers share the memory; a writer changes chunks below them. What is read is of one content or the other, and
    /// once a change was told of it is the new one.
    #[test]
    fn readers_at_once_see_no_content_that_was_replaced_before() {
        let (sample, array) = sample();
        let newest = AtomicU64::new(0);
        thread::scope(|scope| {
            let (sample, array, newest) = (&sample, &array, &newest);
            let check = move |file: &FlatFile, plane: u64| {
                let before = newest.load(Ordering::SeqCst);
                let range = plane * PLANE..plane * PLANE + 32;
                let found = read(file, plane * PLANE..(plane + 1) * PLANE);
                let after = newest.load(Ordering::SeqCst) + 1;
                let is_of = |seed| found[..32] == values(range.clone(), seed);
                assert!(
                    (before..=after).any(is_of),
                    "plane {plane}: {before} to {after}"
                );
            };
            let readers = [0, 16].map(|first| {
                scope.spawn(move || {
                    for _ in 0..3 {
                        let file = file(array);
                        for plane in first..first + 16 {
                            check(&file, plane);
                        }
                    }
                })
            });
            for seed in 1..6 {
                // The first chunk of each row.
                for number in [0, 64, 128, 192] {
                    let key = sample.put(number, seed);
                    array.hierarchy.store().info().changes.note(&key);
                }
                newest.store(seed, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
