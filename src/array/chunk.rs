//! The content that a piece has now: written and not stored yet, in memory, on disk, or to be loaded.
//!
//! A piece that was found is of the version that its stored chunk has, as far as that is known; one that was loaded of
//! another version is checked and loaded again. How a piece is loaded is left to `loading`.

use std::sync::Arc;

use crate::array::OpenArray;
use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::piece::{Cached, Decoded, Lacking, Piece};
use crate::array::version_table::VersionState;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::known::Known;
use crate::request_context::RequestContext;
use crate::store::Version;

/// How often a piece is looked at again that appears while it is taken for missing.
const MAX_LOOKS: usize = 4;

impl OpenArray {
    /// Returns a piece that was written and is not stored yet.
    pub(super) fn written(&self, decoder: &Decoder, piece: ChunkIndex) -> Option<Arc<Decoded>> {
        if self.dirty.is_empty() {
            return None;
        }
        let location = decoder.locate(piece);
        self.dirty.find(&location.indices, &location.inner)
    }

    /// Like `written`, without waiting: unknown while a write is copied.
    pub(super) fn written_now(&self, decoder: &Decoder, piece: ChunkIndex) -> Known<Arc<Decoded>> {
        if self.dirty.is_empty() {
            return Known::Missing;
        }
        let location = decoder.locate(piece);
        self.dirty.find_now(&location.indices, &location.inner)
    }

    /// Drops a piece from the cache.
    pub(super) fn forget(&self, piece: ChunkIndex) {
        self.engine.cache.forget(&(self.id, 0, piece.0));
    }

    /// Whether a piece is in the cache or being loaded.
    pub(super) fn has_piece(&self, piece: ChunkIndex) -> bool {
        self.engine.cache.has(&(self.id, 0, piece.0))
    }

    /// Whether a piece is on disk.
    pub(super) fn is_spilled(&self, piece: ChunkIndex) -> bool {
        let spill = self.engine.spill.as_ref();
        spill.is_some_and(|spill| spill.has(&(self.id, piece.0)))
    }

    /// Has pieces without a reader leave the disk. A thread does it: a long file takes its time to be cut.
    pub(super) fn give_up_spilled(&self) {
        if let Some(spill) = self.engine.spill.clone().filter(|spill| !spill.is_empty()) {
            // What is refused here is done when the next piece goes to disk.
            let give_up = move || spill.drop_unwanted(usize::MAX);
            self.engine.decoders.submit(give_up);
        }
    }

    /// Returns the version of a piece that is on disk and not in memory, if the stored chunk is known to have it now.
    pub(super) fn spilled(&self, decoder: &Decoder, piece: ChunkIndex) -> Option<Version> {
        if !self.is_spilled(piece)
            || self.has_piece(piece)
            || self.written(decoder, piece).is_some()
        {
            return None;
        }
        match self.versions.state(decoder.stored_number(piece)) {
            VersionState::Known(version) => version,
            VersionState::Unknown | VersionState::Stale => None,
        }
    }

    /// Returns the current content of a piece, fetched and decoded if need be.
    pub(super) fn piece(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
    ) -> Result<Piece> {
        match self.written(decoder, piece) {
            Some(written) => Ok(Piece::Data(written)),
            None => self.stored_piece(context, decoder, piece, &decoder.locate(piece)),
        }
    }

    /// Returns the current content of a piece as it is stored.
    fn stored_piece(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        location: &PieceLocation,
    ) -> Result<Piece> {
        let mut state = self.versions.state(location.stored);
        if state == VersionState::Unknown && self.is_cached(piece) {
            // It was loaded just now, or its version was dropped since: then the piece may be of an older content.
            state = match self.versions.state(location.stored) {
                VersionState::Unknown => VersionState::Stale,
                known => known,
            };
        }
        if state == VersionState::Stale {
            state = VersionState::Known(self.versions.fetch(context, location.stored)?);
        }
        match state {
            VersionState::Known(None) => {
                self.engine.stats.missing_chunks.add(1);
                Ok(Piece::Fill)
            }
            VersionState::Known(Some(version)) => {
                if let Some(decoded) = self.cached(piece, version) {
                    self.engine.stats.cache_hit_chunks.add(1);
                    return Ok(Piece::Data(decoded));
                }
                self.forget_other(piece, version);
                match self.load(context, decoder, piece, location, Some(version))? {
                    Piece::Data(decoded) if decoded.version == version => Ok(Piece::Data(decoded)),
                    chunk => self.check_loaded(context, decoder, piece, location, chunk),
                }
            }
            VersionState::Unknown | VersionState::Stale => {
                self.load(context, decoder, piece, location, None)
            }
        }
    }

    /// Returns the current content of a piece as it is stored, and the version of the stored chunk that it was read of;
    /// nothing if the chunk is missing.
    pub(super) fn versioned_piece(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        location: &PieceLocation,
    ) -> Result<(Piece, Option<Version>)> {
        for _ in 0..MAX_LOOKS {
            match self.stored_piece(context, decoder, piece, location)? {
                Piece::Data(decoded) => {
                    let version = decoded.version;
                    return Ok((Piece::Data(decoded), Some(version)));
                }
                Piece::Fill if location.inner.is_empty() => return Ok((Piece::Fill, None)),
                // A shard may be there without this inner chunk.
                Piece::Fill => match self.shard_without(context, decoder, (piece, location))? {
                    Some(Lacking::Shard) => return Ok((Piece::Fill, None)),
                    Some(Lacking::InnerChunk(version)) => {
                        return Ok((Piece::Fill, Some(version)));
                    }
                    None => {}
                },
            }
        }
        let why = "is written each time it is read";
        Err(Error::new(Kind::Changed, &self.path, why))
    }

    /// Returns a piece that was loaded of another version than was expected, or loads it again if it is not current: a
    /// load that was joined may have begun before the last change.
    fn check_loaded(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: ChunkIndex,
        location: &PieceLocation,
        chunk: Piece,
    ) -> Result<Piece> {
        let loaded = match &chunk {
            Piece::Data(decoded) => Some(decoded.version),
            Piece::Fill => None,
        };
        match self.versions.state(location.stored) {
            VersionState::Known(known) if known == loaded => return Ok(chunk),
            _ => {}
        }
        match self.versions.fetch(context, location.stored)? {
            known if known == loaded => Ok(chunk),
            None => Ok(Piece::Fill),
            Some(version) => {
                self.forget_other(piece, version);
                self.load(context, decoder, piece, location, Some(version))
            }
        }
    }

    fn is_cached(&self, piece: ChunkIndex) -> bool {
        let cached = self.engine.cache.get(&(self.id, 0, piece.0));
        cached.is_some()
    }

    fn cached(&self, piece: ChunkIndex, version: Version) -> Option<Arc<Decoded>> {
        match self.engine.cache.get(&(self.id, 0, piece.0)) {
            Some(Cached::Chunk(decoded)) if decoded.version == version => Some(decoded),
            _ => None,
        }
    }

    /// Drops a piece of another version from the cache, so that loading does not find it.
    fn forget_other(&self, piece: ChunkIndex, version: Version) {
        let key = (self.id, 0, piece.0);
        if let Some(Cached::Chunk(decoded)) = self.engine.cache.get(&key)
            && decoded.version != version
        {
            self.engine.cache.forget(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use crate::array::flat_file::FlatFile;
    use crate::array::sample_array::{SampleArray, read, values};
    use crate::grid::Region;

    #[test]
    fn a_cached_piece_whose_version_was_dropped_is_not_used_unchecked() {
        let count = 8192;
        let sample = SampleArray::new(&[count], &[1]);
        let array = sample.open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[count])).unwrap();
        assert!(read(&file, 0..count) == values(0..count, 0));
        let key = sample.put(0, 1);
        array.hierarchy.store().info().changes.note(&key);
        assert_eq!(read(&file, 0..1), values(0..1, 1));
    }

    /// Two readers share memory that has no room for a row of chunks, while chunks change. What is read is of one content or
    /// the other, and of the new one once its change was noted.
    #[test]
    fn readers_at_once_see_no_content_that_was_replaced_before() {
        const PLANE: u64 = 256 * 256;
        let sample = SampleArray::new(&[32, 256, 256], &[8, 32, 32]);
        let array = sample.open(512 << 10);
        let newest = AtomicU64::new(0);
        thread::scope(|scope| {
            let (array, newest) = (&array, &newest);
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
            for first in [0, 16] {
                scope.spawn(move || {
                    let region = Region::whole(&[32, 256, 256]);
                    let file = FlatFile::new(array.clone(), region).unwrap();
                    (first..first + 16).for_each(|plane| check(&file, plane));
                });
            }
            for seed in 1..6 {
                // The first chunk of each row.
                for number in [0, 64, 128, 192] {
                    let key = sample.put(number, seed);
                    array.hierarchy.store().info().changes.note(&key);
                }
                newest.store(seed, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
        });
    }
}
