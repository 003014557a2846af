//! Reads the current content of chunks.
//!
//! A chunk comes from the write buffer, from memory, from the spill file, or is loaded. A cached chunk is used only if
//! its version is the known version of its stored chunk; a chunk that was loaded with another version is checked and
//! loaded again. `ChunkLoader` does the loading.

use std::sync::Arc;
use std::time::Instant;

use crate::array::chunk::{Cached, Chunk, ChunkLocation, DecodedChunk, MissingChunk, Source};
use crate::array::chunk_loader::ChunkLoader;
use crate::array::chunk_versions::{ChunkVersions, VersionState};
use crate::array::decoder::Decoder;
use crate::array::file_layout::ChunkSlice;
use crate::array::open_chunks::OpenChunks;
use crate::array::read_versions::{ReadChunk, ReadVersions, StoredChunkRead};
use crate::array::shard::ShardIndexes;
use crate::array::shard_groups::ShardGroups;
use crate::array::shard_reader::ShardReader;
use crate::array::stored_array::StoredArray;
use crate::array::write_buffer::WriteBuffer;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::Presence;
use zarrfs_store::Version;
use zarrfs_store::request_context::RequestContext;

/// The current content of a chunk, if no request to the store is needed to know it.
enum CurrentChunk {
    /// The content itself: the chunk is dirty, or it is not stored.
    Known(Chunk),
    /// The content of the cached chunk, if it was decoded from this version of the stored chunk.
    InMemory(ChunkIndex, Version),
}

pub(super) struct ChunkReader {
    pub(super) array: Arc<StoredArray>,
    pub(super) decoder: Arc<Decoder>,
    pub(super) versions: Arc<ChunkVersions>,
    pub(super) open: Arc<OpenChunks>,
    pub(super) indexes: Arc<ShardIndexes>,
    pub(super) groups: Arc<ShardGroups>,
    shards: Arc<ShardReader>,
    loader: ChunkLoader,
    buffer: Arc<WriteBuffer>,
}

impl ChunkReader {
    /// Creates a reader that returns dirty chunks of `buffer` before stored ones.
    pub(super) fn new(
        array: Arc<StoredArray>,
        versions: Arc<ChunkVersions>,
        buffer: Arc<WriteBuffer>,
    ) -> Result<Arc<ChunkReader>> {
        let decoder = Arc::new(Decoder::new(array.clone())?);
        let indexes = ShardIndexes::new(array.clone());
        let groups = ShardGroups::new(array.clone(), decoder.clone(), indexes.clone());
        let open = OpenChunks::new(
            array.clone(),
            decoder.clone(),
            versions.clone(),
            indexes.clone(),
        );
        let shards = ShardReader::new(
            array.clone(),
            decoder.clone(),
            open.clone(),
            indexes.clone(),
            groups.clone(),
        );
        let loader = ChunkLoader::new(
            array.clone(),
            decoder.clone(),
            versions.clone(),
            shards.clone(),
        );
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

    pub(super) fn written(&self, chunk: ChunkIndex) -> Option<Arc<DecodedChunk>> {
        if self.buffer.is_empty() {
            return None;
        }
        let location = self.decoder.locate(chunk);
        self.buffer.find(&location.indices, &location.inner)
    }

    /// Returns a chunk if it is dirty; returns `Unknown`, without waiting, while a write copies its bytes into the
    /// write buffer.
    fn try_written(&self, chunk: ChunkIndex) -> Presence<Arc<DecodedChunk>> {
        if self.buffer.is_empty() {
            return Presence::Missing;
        }
        let location = self.decoder.locate(chunk);
        self.buffer.try_find(&location.indices, &location.inner)
    }

    /// Whether stored chunks are uncompressed local files whose rows have at least `run` bytes: these files need no
    /// other cache than the kernel's page cache.
    pub(super) fn reads_direct(&self, run: u64) -> bool {
        let shape = self.decoder.stored.chunk_shape();
        let row = shape.last().copied().unwrap_or(1);
        !self.decoder.is_encoded()
            && self.array.info.folder.is_some()
            && row.saturating_mul(self.array.element as u64) >= run
    }

    /// Returns a chunk from memory if it is current at the time `now`, or `None`. `number` is the number of its stored
    /// chunk.
    pub(super) fn in_memory(
        &self,
        chunk: ChunkIndex,
        number: u64,
        now: Instant,
    ) -> Option<Arc<DecodedChunk>> {
        // The write buffer is checked before the version is looked up. A flush records the new version of a dirty chunk
        // before it removes the chunk from the write buffer. So if the buffer is empty here, the version that is looked
        // up next includes every completed write.
        if !self.buffer.is_empty() {
            return None;
        }
        let state = self.versions.lock(now).state(number);
        match state {
            VersionState::Known(Some(version)) => self.cached(chunk, version),
            _ => None,
        }
    }

    /// Returns the chunks that a read needs, each once, if all are in memory and current. One lookup serves all chunks:
    /// a read may need a thousand small inner chunks.
    pub(super) fn all_in_memory(&self, slices: &[ChunkSlice], now: Instant) -> Option<Vec<Chunk>> {
        let current = self.current(slices, now)?;
        let keys = current.iter().filter_map(|current| match current {
            CurrentChunk::Known(_) => None,
            CurrentChunk::InMemory(chunk, _) => Some(self.array.chunk_key(*chunk)),
        });
        let mut cached = self.array.engine.cache.get_all(keys)?.into_iter();
        let chunk = |current| match current {
            CurrentChunk::Known(chunk) => Some(chunk),
            CurrentChunk::InMemory(_, version) => match cached.next()? {
                Cached::Chunk(decoded) if decoded.version == version => Some(Chunk::Data(decoded)),
                _ => None,
            },
        };
        current.into_iter().map(chunk).collect()
    }

    /// Returns the current content of the chunks that a read needs, each once; `None` if one chunk takes a request to
    /// the store, or has to wait for a write.
    fn current(&self, slices: &[ChunkSlice], now: Instant) -> Option<Vec<CurrentChunk>> {
        let versions = self.versions.lock(now);
        let has_written = !self.buffer.is_empty();
        let mut last = None;
        let mut state = |stored| match last {
            Some((number, state)) if number == stored => state,
            _ => {
                let state = versions.state(stored);
                last = Some((stored, state));
                state
            }
        };
        let current = |group: &[ChunkSlice]| {
            let first = group.first()?;
            let chunk = first.chunk;
            if has_written {
                match self.try_written(chunk) {
                    Presence::Is(written) => {
                        return Some(CurrentChunk::Known(Chunk::Data(written)));
                    }
                    Presence::Missing => {}
                    Presence::Unknown => return None,
                }
            }
            match state(self.decoder.stored_number_at(chunk, &first.start)) {
                VersionState::Known(None) => Some(CurrentChunk::Known(Chunk::Fill)),
                VersionState::Known(Some(version)) => Some(CurrentChunk::InMemory(chunk, version)),
                VersionState::Unknown | VersionState::Stale => None,
            }
        };
        slices
            .chunk_by(ChunkSlice::is_of_same_chunk)
            .map(current)
            .collect()
    }

    /// Returns where to read a chunk: from the spill file if the chunk is only there, or else from memory, after
    /// loading it.
    pub(super) fn source(&self, context: &RequestContext, chunk: ChunkIndex) -> Result<Source> {
        match self.spilled(chunk) {
            Some(version) => Ok(Source::Spilled(version)),
            None => self.get(context, chunk).map(Source::Chunk),
        }
    }

    pub(super) fn forget(&self, chunk: ChunkIndex) {
        self.array.engine.cache.forget(&self.array.chunk_key(chunk));
    }

    pub(super) fn has(&self, chunk: ChunkIndex) -> bool {
        self.array.engine.cache.has(&self.array.chunk_key(chunk))
    }

    pub(super) fn is_spilled(&self, chunk: ChunkIndex) -> bool {
        let spill = self.array.engine.spill.as_ref();
        spill.is_some_and(|spill| spill.has(&self.array.chunk_key(chunk)))
    }

    /// Removes chunks that have no reader from the spill file. A decoder thread does it, because truncating a long file
    /// takes long.
    pub(super) fn give_up_spilled(&self) {
        let spill = self.array.engine.spill.clone();
        if let Some(spill) = spill.filter(|spill| !spill.is_empty()) {
            // If the thread pool refuses the job, the chunks stay in the spill file until the next spill drops some of
            // them.
            let give_up = move || spill.drop_unneeded(usize::MAX);
            self.array.engine.decoders.submit(give_up);
        }
    }

    /// Returns the version of a chunk that is spilled and not in memory, if it is known to be the current version.
    pub(super) fn spilled(&self, chunk: ChunkIndex) -> Option<Version> {
        if !self.is_spilled(chunk) || self.has(chunk) || self.written(chunk).is_some() {
            return None;
        }
        match self.versions.state(self.decoder.stored_number(chunk)) {
            VersionState::Known(version) => version,
            VersionState::Unknown | VersionState::Stale => None,
        }
    }

    /// Returns the current content of a chunk; fetches and decodes it if necessary.
    pub(super) fn get(&self, context: &RequestContext, chunk: ChunkIndex) -> Result<Chunk> {
        match self.written(chunk) {
            Some(written) => Ok(Chunk::Data(written)),
            None => self.get_stored(context, chunk, &self.decoder.locate(chunk)),
        }
    }

    /// Whether a chunk is stored or dirty. An inner chunk counts as stored if the index of its shard is corrupt.
    pub(super) fn is_stored(&self, context: &RequestContext, chunk: ChunkIndex) -> Result<bool> {
        if self.written(chunk).is_some() {
            return Ok(true);
        }
        let location = self.decoder.locate(chunk);
        if self.versions.current(context, location.stored)?.is_none() {
            return Ok(false);
        }
        if location.inner.is_empty() || self.is_cached(chunk) {
            return Ok(true);
        }
        match self.shards.find_missing(context, chunk, &location) {
            Err(error) if error.kind() == Kind::Corrupt => Ok(true),
            missing => Ok(missing?.is_none()),
        }
    }

    /// Returns the current content of a chunk in the store, from the cache or by loading it; dirty chunks are ignored.
    fn get_stored(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
    ) -> Result<Chunk> {
        let mut state = self.versions.state(location.stored);
        if state == VersionState::Unknown && self.is_cached(chunk) {
            // The first lookup found no version. Either another thread has loaded the chunk and recorded its version
            // since then, or the table has dropped the version; in the second case the cached chunk may be stale.
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
                Ok(Chunk::Fill)
            }
            VersionState::Known(Some(version)) => {
                if let Some(decoded) = self.cached(chunk, version) {
                    self.array.engine.stats.cache_hit_chunks.add(1);
                    return Ok(Chunk::Data(decoded));
                }
                self.forget_other(chunk, version);
                match self.loader.load(context, chunk, location, Some(version))? {
                    Chunk::Data(decoded) if decoded.version == version => Ok(Chunk::Data(decoded)),
                    found => self.check_loaded(context, chunk, location, found),
                }
            }
            VersionState::Unknown | VersionState::Stale => {
                self.loader.load(context, chunk, location, None)
            }
        }
    }

    /// Returns the current content of a chunk in the store, and the version of its stored chunk (`None` if the stored
    /// chunk is missing).
    pub(super) fn get_versioned(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
    ) -> Result<(Chunk, Option<Version>)> {
        // Another program may store the chunk after it was found missing: then the chunk is read again.
        for _ in 0..4 {
            match self.get_stored(context, chunk, location)? {
                Chunk::Data(decoded) => {
                    let version = decoded.version;
                    return Ok((Chunk::Data(decoded), Some(version)));
                }
                Chunk::Fill if location.inner.is_empty() => return Ok((Chunk::Fill, None)),
                // A shard that lacks the inner chunk may exist, and then has a version.
                Chunk::Fill => match self.shards.find_missing(context, chunk, location)? {
                    Some(MissingChunk::Shard) => return Ok((Chunk::Fill, None)),
                    Some(MissingChunk::InnerChunk(version)) => {
                        return Ok((Chunk::Fill, Some(version)));
                    }
                    None => {}
                },
            }
        }
        let why = "keeps changing while it is being read";
        Err(Error::new(Kind::Changed, &self.array.path, why))
    }

    /// Returns a chunk that was loaded with an unexpected version, or loads it again if it is not current: concurrent
    /// loads of a chunk share one load, which may have begun before the last change.
    fn check_loaded(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
        found: Chunk,
    ) -> Result<Chunk> {
        let loaded = match &found {
            Chunk::Data(decoded) => Some(decoded.version),
            Chunk::Fill => None,
        };
        match self.versions.state(location.stored) {
            VersionState::Known(known) if known == loaded => return Ok(found),
            _ => {}
        }
        match self.versions.fetch(context, location.stored)? {
            known if known == loaded => Ok(found),
            None => Ok(Chunk::Fill),
            Some(version) => {
                self.forget_other(chunk, version);
                self.loader.load(context, chunk, location, Some(version))
            }
        }
    }

    fn is_cached(&self, chunk: ChunkIndex) -> bool {
        let cached = self.array.engine.cache.get(&self.array.chunk_key(chunk));
        cached.is_some()
    }

    fn cached(&self, chunk: ChunkIndex, version: Version) -> Option<Arc<DecodedChunk>> {
        match self.array.engine.cache.get(&self.array.chunk_key(chunk)) {
            Some(Cached::Chunk(decoded)) if decoded.version == version => Some(decoded),
            _ => None,
        }
    }

    /// Evicts a chunk from the cache if it has another version than `version`, so that a load does not return it.
    fn forget_other(&self, chunk: ChunkIndex, version: Version) {
        let key = self.array.chunk_key(chunk);
        if let Some(Cached::Chunk(decoded)) = self.array.engine.cache.get(&key)
            && decoded.version != version
        {
            self.array.engine.cache.forget(&key);
        }
    }

    /// Runs a read, which records the versions of its chunks. The read is retried if inner chunks of one stored chunk
    /// came from different versions; it fails with `Changed` after eight attempts.
    pub(super) fn read_one_version<T>(
        &self,
        context: &RequestContext,
        mut read: impl FnMut(&mut ReadVersions) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..8 {
            let mut contents = ReadVersions::default();
            let found = read(&mut contents)?;
            if self.have_one_version(context, contents)? {
                return Ok(found);
            }
        }
        let why = "a chunk keeps changing while it is being read";
        Err(Error::new(Kind::Changed, &self.array.path, why))
    }

    /// Whether all inner chunks that a read took from one stored chunk came from the same content of the stored chunk.
    fn have_one_version(&self, context: &RequestContext, contents: ReadVersions) -> Result<bool> {
        let mut chunks = contents.into_chunks();
        if chunks.len() < 2 {
            return Ok(true);
        }
        let number = |read: &ReadChunk| self.decoder.stored_number(read.chunk);
        chunks.sort_by_key(number);
        for chunks in chunks.chunk_by(|one, other| number(one) == number(other)) {
            let [first, _, ..] = chunks else { continue };
            let taken = StoredChunkRead::of(chunks);
            let kinds = taken.missing.len() + usize::from(taken.version.is_some());
            let may_differ = kinds > 1 && !taken.missing.is_empty();
            let differ = may_differ
                && !self.shards.are_missing(
                    context,
                    number(first),
                    taken.version,
                    &taken.missing,
                )?;
            if taken.is_mixed || differ {
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
    use zarr_format::grid::Region;

    #[test]
    fn a_cached_chunk_with_an_evicted_version_is_checked_before_use() {
        let count = 8192;
        let sample = SampleArray::new(&[count], &[1]);
        let array = sample.open(1 << 20);
        let file = FlatFile::new(array.clone(), Region::whole(&[count])).unwrap();
        assert!(read(&file, 0..count) == values(0..count, 0));
        let key = sample.put(0, 1);
        array.stored.info.changes.record(&key);
        assert_eq!(read(&file, 0..1), values(0..1, 1));
    }

    /// Two readers share memory that has no room for a row of chunks, while chunks change. Each read returns the old or
    /// the new content, and only the new content once the change was recorded.
    #[test]
    fn concurrent_readers_see_no_stale_chunks_after_a_change() {
        let plane_bytes = 256 * 256;
        let sample = SampleArray::new(&[32, 256, 256], &[8, 32, 32]);
        let array = sample.open(512 << 10);
        let newest = AtomicU64::new(0);
        thread::scope(|scope| {
            let (array, newest) = (&array, &newest);
            let check = move |file: &FlatFile, plane: u64| {
                let before = newest.load(Ordering::SeqCst);
                let range = plane * plane_bytes..plane * plane_bytes + 32;
                let found = read(file, plane * plane_bytes..(plane + 1) * plane_bytes);
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
                // The first chunk of each row of chunks.
                for number in [0, 64, 128, 192] {
                    let key = sample.put(number, seed);
                    array.stored.info.changes.record(&key);
                }
                newest.store(seed, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
            }
        });
    }
}
