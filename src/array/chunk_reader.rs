//! Reads the content that a chunk has now.
//!
//! A chunk is written and not stored yet, in memory, on disk, or to be loaded. One that was found is of the version that
//! its stored chunk has, as far as that is known; one that was loaded of another version is checked and loaded again. How
//! a chunk is loaded is left to `ChunkLoader`.

use std::sync::Arc;

use crate::array::assembler::Source;
use crate::array::chunk_loader::ChunkLoader;
use crate::array::chunk_slice::ChunkSlice;
use crate::array::chunk_versions::ChunkVersions;
use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::open_chunks::OpenChunks;
use crate::array::piece::{Cached, Decoded, Lacking, Piece};
use crate::array::read_contents::{ChunkContents, PieceContent, ReadContents};
use crate::array::shard_groups::ShardGroups;
use crate::array::shard_indexes::ShardIndexes;
use crate::array::shard_reader::ShardReader;
use crate::array::stored_array::StoredArray;
use crate::array::version_table::VersionState;
use crate::array::write_buffer::WriteBuffer;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::known::Known;
use crate::request_context::RequestContext;
use crate::store::Version;

/// How often a piece is looked at again that appears while it is taken for missing.
const MAX_LOOKS: usize = 4;

/// How often a read is made whose pieces were of several contents.
const MAX_READS: usize = 8;

/// What a piece of a read is now.
enum CurrentPiece {
    /// Written and not stored yet, or not stored at all.
    Known(Piece),
    /// The one that was decoded of this version of its stored chunk.
    Decoded(ChunkIndex, Version),
}

/// Reads the chunks of an array.
pub(super) struct ChunkReader {
    pub(super) array: Arc<StoredArray>,
    pub(super) decoder: Arc<Decoder>,
    pub(super) versions: Arc<ChunkVersions>,
    pub(super) open: Arc<OpenChunks>,
    pub(super) indexes: Arc<ShardIndexes>,
    pub(super) groups: Arc<ShardGroups>,
    shards: Arc<ShardReader>,
    loader: ChunkLoader,
    /// What was written and is not stored yet.
    buffer: Arc<WriteBuffer>,
}

impl ChunkReader {
    /// Reads the chunks of an array, and before them those of which `buffer` has what was written.
    pub(super) fn new(
        array: Arc<StoredArray>,
        versions: Arc<ChunkVersions>,
        buffer: Arc<WriteBuffer>,
    ) -> Result<Arc<ChunkReader>> {
        let decoder = Arc::new(Decoder::new(array.clone())?);
        let (of_array, of_decoder) = (|| array.clone(), || decoder.clone());
        let indexes = ShardIndexes::new(of_array());
        let groups = ShardGroups::new(of_array(), of_decoder(), indexes.clone());
        let open = OpenChunks::new(of_array(), of_decoder(), versions.clone(), indexes.clone());
        let shards = ShardReader::new(
            of_array(),
            of_decoder(),
            open.clone(),
            indexes.clone(),
            groups.clone(),
        );
        let loader = ChunkLoader::new(of_array(), of_decoder(), versions.clone(), shards.clone());
        Ok(Arc::new(ChunkReader {
            loader,
            shards,
            open,
            indexes,
            groups,
            buffer,
            versions,
            decoder,
            array,
        }))
    }

    /// Returns a piece that was written and is not stored yet.
    pub(super) fn written(&self, piece: ChunkIndex) -> Option<Arc<Decoded>> {
        if self.buffer.is_empty() {
            return None;
        }
        let location = self.decoder.locate(piece);
        self.buffer.find(&location.indices, &location.inner)
    }

    /// Like `written`, without waiting: unknown while a write is copied.
    pub(super) fn written_now(&self, piece: ChunkIndex) -> Known<Arc<Decoded>> {
        if self.buffer.is_empty() {
            return Known::Missing;
        }
        let location = self.decoder.locate(piece);
        self.buffer.find_now(&location.indices, &location.inner)
    }

    /// Whether stored chunks are their own decoded form, in files of this machine, in rows of at least `run` bytes:
    /// then the kernel's cache of the files is all the cache they need.
    pub(super) fn reads_direct(&self, run: u64) -> bool {
        let row = self
            .decoder
            .stored
            .chunk_shape()
            .last()
            .copied()
            .unwrap_or(1);
        !self.decoder.is_encoded()
            && self.array.store().info().folder.is_some()
            && row.saturating_mul(self.array.element as u64) >= run
    }

    /// Returns the pieces of some parts, each once, if all are in memory and current. They are looked up together: a read of
    /// small inner chunks meets a thousand of them.
    pub(super) fn pieces_in_memory(&self, parts: &[ChunkSlice]) -> Option<Vec<Piece>> {
        let current = self.current_pieces(parts)?;
        let keys = current.iter().filter_map(|current| match current {
            CurrentPiece::Known(_) => None,
            CurrentPiece::Decoded(piece, _) => Some((self.array.id, 0, piece.0)),
        });
        let mut cached = self.array.engine.cache.get_all(keys)?.into_iter();
        let piece = |current| match current {
            CurrentPiece::Known(piece) => Some(piece),
            CurrentPiece::Decoded(_, version) => match cached.next()? {
                Cached::Chunk(decoded) if decoded.version == version => Some(Piece::Data(decoded)),
                _ => None,
            },
        };
        current.into_iter().map(piece).collect()
    }

    /// Returns the current content of the pieces of some parts, each once; `None` if one of them is unknown without asking
    /// the store or waiting for a write.
    fn current_pieces(&self, parts: &[ChunkSlice]) -> Option<Vec<CurrentPiece>> {
        let versions = self.versions.lock();
        let mut last = None;
        let mut state = |stored| match last {
            Some((number, state)) if number == stored => state,
            _ => {
                let state = versions.of(stored);
                last = Some((stored, state));
                state
            }
        };
        let current = |group: &[ChunkSlice]| {
            let first = group.first()?;
            let piece = first.piece;
            match self.written_now(piece) {
                Known::Is(written) => return Some(CurrentPiece::Known(Piece::Data(written))),
                Known::Missing => {}
                Known::Unknown => return None,
            }
            match state(self.decoder.stored_number_at(piece, &first.start)) {
                VersionState::Known(None) => Some(CurrentPiece::Known(Piece::Fill)),
                VersionState::Known(Some(version)) => Some(CurrentPiece::Decoded(piece, version)),
                VersionState::Unknown | VersionState::Stale => None,
            }
        };
        parts
            .chunk_by(ChunkSlice::is_of_same_piece)
            .map(current)
            .collect()
    }

    /// Returns where a piece is read: on disk if it is there and not in memory.
    pub(super) fn source(&self, context: &RequestContext, piece: ChunkIndex) -> Result<Source> {
        match self.spilled(piece) {
            Some(version) => Ok(Source::Spilled(version)),
            None => self.piece(context, piece).map(Source::Piece),
        }
    }

    /// Drops a piece from the cache.
    pub(super) fn forget(&self, piece: ChunkIndex) {
        self.array.engine.cache.forget(&(self.array.id, 0, piece.0));
    }

    /// Whether a piece is in the cache or being loaded.
    pub(super) fn has_piece(&self, piece: ChunkIndex) -> bool {
        self.array.engine.cache.has(&(self.array.id, 0, piece.0))
    }

    /// Whether a piece is on disk.
    pub(super) fn is_spilled(&self, piece: ChunkIndex) -> bool {
        let spill = self.array.engine.spill.as_ref();
        spill.is_some_and(|spill| spill.has(&(self.array.id, piece.0)))
    }

    /// Has pieces without a reader leave the disk. A thread does it: a long file takes its time to be cut.
    pub(super) fn give_up_spilled(&self) {
        if let Some(spill) = self
            .array
            .engine
            .spill
            .clone()
            .filter(|spill| !spill.is_empty())
        {
            // What is refused here is done when the next piece goes to disk.
            let give_up = move || spill.drop_unwanted(usize::MAX);
            self.array.engine.decoders.submit(give_up);
        }
    }

    /// Returns the version of a piece that is on disk and not in memory, if the stored chunk is known to have it now.
    pub(super) fn spilled(&self, piece: ChunkIndex) -> Option<Version> {
        if !self.is_spilled(piece) || self.has_piece(piece) || self.written(piece).is_some() {
            return None;
        }
        match self.versions.state(self.decoder.stored_number(piece)) {
            VersionState::Known(version) => version,
            VersionState::Unknown | VersionState::Stale => None,
        }
    }

    /// Returns the current content of a piece, fetched and decoded if need be.
    pub(super) fn piece(&self, context: &RequestContext, piece: ChunkIndex) -> Result<Piece> {
        match self.written(piece) {
            Some(written) => Ok(Piece::Data(written)),
            None => self.stored_piece(context, piece, &self.decoder.locate(piece)),
        }
    }

    /// Returns the current content of a piece as it is stored.
    fn stored_piece(
        &self,
        context: &RequestContext,
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
                self.array.engine.stats.missing_chunks.add(1);
                Ok(Piece::Fill)
            }
            VersionState::Known(Some(version)) => {
                if let Some(decoded) = self.cached(piece, version) {
                    self.array.engine.stats.cache_hit_chunks.add(1);
                    return Ok(Piece::Data(decoded));
                }
                self.forget_other(piece, version);
                match self.loader.load(context, piece, location, Some(version))? {
                    Piece::Data(decoded) if decoded.version == version => Ok(Piece::Data(decoded)),
                    chunk => self.check_loaded(context, piece, location, chunk),
                }
            }
            VersionState::Unknown | VersionState::Stale => {
                self.loader.load(context, piece, location, None)
            }
        }
    }

    /// Returns the current content of a piece as it is stored, and the version of the stored chunk that it was read of;
    /// nothing if the chunk is missing.
    pub(super) fn versioned_piece(
        &self,
        context: &RequestContext,
        piece: ChunkIndex,
        location: &PieceLocation,
    ) -> Result<(Piece, Option<Version>)> {
        for _ in 0..MAX_LOOKS {
            match self.stored_piece(context, piece, location)? {
                Piece::Data(decoded) => {
                    let version = decoded.version;
                    return Ok((Piece::Data(decoded), Some(version)));
                }
                Piece::Fill if location.inner.is_empty() => return Ok((Piece::Fill, None)),
                // A shard may be there without this inner chunk.
                Piece::Fill => match self.shards.without(context, piece, location)? {
                    Some(Lacking::Shard) => return Ok((Piece::Fill, None)),
                    Some(Lacking::InnerChunk(version)) => {
                        return Ok((Piece::Fill, Some(version)));
                    }
                    None => {}
                },
            }
        }
        let why = "is written each time it is read";
        Err(Error::new(Kind::Changed, &self.array.path, why))
    }

    /// Returns a piece that was loaded of another version than was expected, or loads it again if it is not current: a
    /// load that was joined may have begun before the last change.
    fn check_loaded(
        &self,
        context: &RequestContext,
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
                self.loader.load(context, piece, location, Some(version))
            }
        }
    }

    fn is_cached(&self, piece: ChunkIndex) -> bool {
        let cached = self.array.engine.cache.get(&(self.array.id, 0, piece.0));
        cached.is_some()
    }

    fn cached(&self, piece: ChunkIndex, version: Version) -> Option<Arc<Decoded>> {
        match self.array.engine.cache.get(&(self.array.id, 0, piece.0)) {
            Some(Cached::Chunk(decoded)) if decoded.version == version => Some(decoded),
            _ => None,
        }
    }

    /// Drops a piece of another version from the cache, so that loading does not find it.
    fn forget_other(&self, piece: ChunkIndex, version: Version) {
        let key = (self.array.id, 0, piece.0);
        if let Some(Cached::Chunk(decoded)) = self.array.engine.cache.get(&key)
            && decoded.version != version
        {
            self.array.engine.cache.forget(&key);
        }
    }

    /// Makes a read that notes its pieces; again if these were of several contents of one stored chunk, and fails with
    /// `Changed` if they are each time.
    pub(super) fn read_one_content<T>(
        &self,
        context: &RequestContext,
        mut read: impl FnMut(&mut ReadContents) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..MAX_READS {
            let mut contents = ReadContents::default();
            let found = read(&mut contents)?;
            if self.are_of_one(context, contents)? {
                return Ok(found);
            }
        }
        let why = "a chunk is replaced each time it is read";
        Err(Error::new(Kind::Changed, &self.array.path, why))
    }

    /// Whether the pieces of each stored chunk were of one content.
    fn are_of_one(&self, context: &RequestContext, contents: ReadContents) -> Result<bool> {
        let mut pieces = contents.into_pieces();
        if pieces.len() < 2 {
            return Ok(true);
        }
        let number = |&(piece, _): &(ChunkIndex, PieceContent)| self.decoder.stored_number(piece);
        pieces.sort_by_key(number);
        for pieces in pieces.chunk_by(|one, other| number(one) == number(other)) {
            let [first, _, ..] = pieces else { continue };
            let chunk = ChunkContents::of(pieces);
            let kinds = chunk.lacking.len() + usize::from(chunk.version.is_some());
            let may_differ = kinds > 1 && !chunk.lacking.is_empty();
            let differ = may_differ
                && !self
                    .shards
                    .lacks(context, number(first), chunk.version, &chunk.lacking)?;
            if chunk.is_mixed || differ {
                return Ok(false);
            }
        }
        Ok(true)
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
