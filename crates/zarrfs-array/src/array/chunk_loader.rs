//! Loads chunks that are not in memory, from the spill file or the store.
//!
//! Memory is reserved before anything is fetched, and the surplus is returned. Concurrent loads of one chunk share one
//! load. `ChunkReader` decides which version is current.

use std::sync::Arc;

use crate::array::chunk::{CHUNK_OVERHEAD, Cached, Chunk, ChunkLocation, DecodedChunk};
use crate::array::chunk_versions::ChunkVersions;
use crate::array::decoder::{Decoder, Load, usual_length};
use crate::array::shard_reader::ShardReader;
use crate::array::stored_array::StoredArray;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::ChunkIndex;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::{Key, Object, Store, Version};

pub(super) struct ChunkLoader {
    array: Arc<StoredArray>,
    decoder: Arc<Decoder>,
    versions: Arc<ChunkVersions>,
    shards: Arc<ShardReader>,
}

/// A stored chunk that was fetched, and the memory for its encoded and decoded bytes.
struct FetchedChunk {
    key: Key,
    object: Object,
    room: Reservation,
}

impl ChunkLoader {
    pub(super) fn new(
        array: Arc<StoredArray>,
        decoder: Arc<Decoder>,
        versions: Arc<ChunkVersions>,
        shards: Arc<ShardReader>,
    ) -> ChunkLoader {
        ChunkLoader {
            array,
            decoder,
            versions,
            shards,
        }
    }

    /// Returns the current content of a chunk from memory, the spill file or the store. `known` is the version of the
    /// stored chunk.
    pub(super) fn load(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
        known: Option<Version>,
    ) -> Result<Chunk> {
        self.array.engine.stats.cache_miss_chunks.add(1);
        let deadline = self.array.engine.deadline();
        let key = self.array.chunk_key(chunk);
        let loaded = self
            .array
            .engine
            .cache
            .load_optional(context, &key, deadline, || {
                let load = Load {
                    chunk,
                    pipeline: self.decoder.pipeline_of(ChunkIndex(location.stored))?,
                    location,
                    known,
                    estimated: self.decoder.estimated_sizes(),
                    deadline,
                };
                let decoded = self.load_decoded(context, &load)?;
                Ok(decoded.map(|decoded| Cached::Chunk(Arc::new(decoded))))
            });
        match loaded? {
            Some(Cached::Chunk(decoded)) => Ok(Chunk::Data(decoded)),
            None => {
                self.array.engine.stats.missing_chunks.add(1);
                Ok(Chunk::Fill)
            }
            Some(Cached::Index(_)) => Err(Error::corrupt(
                &self.array.path,
                "a fault in zarrfs: found an index instead of a chunk",
            )),
        }
    }

    /// Reads a chunk from the spill file, or else fetches and decodes it; returns `None` if the chunk is not stored.
    fn load_decoded(&self, context: &RequestContext, load: &Load) -> Result<Option<DecodedChunk>> {
        if let Some(decoded) = self.load_spilled(load)? {
            return Ok(Some(decoded));
        }
        match self.load_stored(context, load) {
            // The chunk may be valid, but longer than estimated: load it again without an estimate.
            Err(error) if load.estimated.is_some() && is_of_bytes(&error) => {
                let pipeline = load.pipeline.clone();
                self.load_stored(
                    context,
                    &Load {
                        estimated: None,
                        pipeline,
                        ..*load
                    },
                )
            }
            answer => answer,
        }
    }

    fn load_stored(&self, context: &RequestContext, load: &Load) -> Result<Option<DecodedChunk>> {
        match load.pipeline.shards() {
            [] => self.load_whole(context, load),
            _ => self.shards.load(context, load),
        }
    }

    /// Reads a chunk from the spill file; returns `None` if the current version of the chunk is not there.
    fn load_spilled(&self, load: &Load) -> Result<Option<DecodedChunk>> {
        let (Some(spill), Some(version)) = (&self.array.engine.spill, load.known) else {
            return Ok(None);
        };
        let (length, chunk) = (
            load.pipeline.chunk_bytes(),
            self.array.chunk_key(load.chunk),
        );
        if !spill.has(&chunk) {
            return Ok(None);
        }
        self.decoder.reclaim(length);
        let needed = length as u64 + CHUNK_OVERHEAD;
        let room = self.array.engine.cache.reserve(needed, load.deadline);
        let mut room = room.map_err(|error| error.about(&self.array.path))?;
        let Some(bytes) = spill.read(&chunk, version, length) else {
            return Ok(None);
        };
        room.shrink(bytes.capacity() as u64 + CHUNK_OVERHEAD);
        Ok(Some(DecodedChunk {
            bytes,
            version,
            is_on_disk: true,
            _room: room,
        }))
    }

    /// Fetches and decodes a stored chunk that is not a shard.
    fn load_whole(&self, context: &RequestContext, load: &Load) -> Result<Option<DecodedChunk>> {
        let (found, stamp) = self.array.ask(context, |context, store| {
            self.fetch_whole(context, store, load)
        });
        let found = found?;
        let version = found.as_ref().map(|fetched| fetched.object.version);
        self.versions.record(load.location.stored, version, stamp);
        let decode = |FetchedChunk { key, object, room }| {
            let decoded =
                self.decoder
                    .decode(load, &key, object.version, object.bytes.into(), room);
            // If the length was estimated, the bytes may be valid although decoding failed: the caller loads the chunk
            // again without an estimate.
            decoded.inspect_err(|error| match error.kind() {
                Kind::Corrupt if load.estimated.is_none() => {
                    self.array.store().drop_cached(&key, None);
                }
                _ => {}
            })
        };
        found.map(decode).transpose()
    }

    /// Fetches a stored chunk after reserving memory for its encoded and decoded bytes.
    fn fetch_whole(
        &self,
        context: &RequestContext,
        store: &dyn Store,
        load: &Load,
    ) -> Result<Option<FetchedChunk>> {
        let decoded = load.pipeline.chunk_bytes() as u64;
        let estimated = load.estimated.map(|estimated| estimated.encoded);
        let usual = estimated.unwrap_or_else(|| usual_length(decoded));
        let mut room = self.decoder.reserve(load, usual)?;
        for key in self.array.keys(&load.location.indices)? {
            let object = match store.get(context, &key, usual) {
                Err(error) if error.kind() == Kind::TooLarge && estimated.is_none() => {
                    drop(room);
                    let longest = store.head(context, &key)?.map_or(0, |meta| meta.size);
                    self.decoder.check_length(load, &key, longest)?;
                    room = self.decoder.reserve(load, longest)?;
                    store.get(context, &key, longest)?
                }
                answer => answer?,
            };
            if let Some(object) = object {
                return Ok(Some(FetchedChunk { key, object, room }));
            }
        }
        Ok(None)
    }
}

/// Whether a chunk could not be loaded because of its bytes: they are corrupt, or more than expected.
fn is_of_bytes(error: &Error) -> bool {
    matches!(error.kind(), Kind::TooLarge | Kind::Corrupt)
}

#[cfg(test)]
mod tests {
    use zarr_format::grid::Region;
    use zarrfs_store::layer::Layer;
    use zarrfs_store::request_context::UNLIMITED;

    use super::*;
    use crate::array::flat_file::FlatFile;
    use crate::array::sample_array::SampleArray;

    /// A store in which every request for a chunk fails with `NotFound`, against the contract of `Store::get`.
    struct Losing(Arc<dyn Store>);

    impl Layer for Losing {
        fn below(&self) -> &dyn Store {
            &*self.0
        }

        fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
            if key.to_string().starts_with("c/") {
                return Err(Error::not_found(key));
            }
            self.0.get(context, key, limit)
        }
    }

    #[test]
    fn a_failed_request_is_never_a_missing_chunk() {
        let sample = SampleArray::new(&[8], &[4]);
        let store = Arc::new(Losing(Arc::new(sample.store())));
        let (_, array) = SampleArray::arrays_of(store, 1 << 20);
        let file = FlatFile::new(array, Region::whole(&[8])).unwrap();
        let kind = file
            .read(&UNLIMITED, 0..8)
            .map_err(|error| error.kind())
            .err();
        assert_eq!(kind, Some(Kind::NotFound));
    }
}
