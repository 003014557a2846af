//! Changes chunks in memory and stores them.
//!
//! A chunk that is written in part is read first; a chunk that is written whole is not. Dirty chunks stay in the write
//! buffer, where every reader of the array sees them, until a flush encodes and puts them. The put is conditional: the
//! key must still hold the content that was read before the edit. If the key has another version but the same content,
//! there is no conflict, because a commit into the store, or a write to another inner chunk of the shard, changes only
//! the version. On a conflict the chunk is dropped, the flush of each of its writers returns `Changed`, and the next
//! write begins with the stored content. If encoding or putting fails for another reason, the chunk stays dirty and the
//! next flush retries it. Only the written inner chunks of a shard are encoded. The fill value is stored like any other
//! content.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use crate::array::chunk::{CHUNK_OVERHEAD, Chunk, ChunkLocation, DecodedChunk};
use crate::array::chunk_reader::ChunkReader;
use crate::array::dirty_chunk::{Basis, DirtyChunk, ReadDigest, WrittenSubchunk};
use crate::array::stored_array::StoredArray;
use crate::array::write_buffer::WriteBuffer;
use zarr_format::buffer;
use zarr_format::codec::{InnerChunks, Pipeline};
use zarr_format::dialect::encoding;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::grid::{ChunkIndex, Coordinates};
use zarr_format::model::DataType;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};
use zarrfs_store::sync::budget::Reservation;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Condition, EncodedBy, Key, PutBody, Version};

/// The number of copies of a chunk that writing needs in memory: before the edit, after the edit, and encoded.
const COPIES: u64 = 3;

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSource {
    /// A write call of a program, which passed all of the bytes.
    Program,
    /// Write-back of the kernel's page cache: a program changed only some bytes of the pages, through mmap.
    Pages,
}

pub(super) struct ChunkEdit<'a> {
    pub(super) is_whole: bool,
    pub(super) source: WriteSource,
    pub(super) apply: &'a dyn Fn(&mut [u8]),
}

pub(super) struct ChunkWriter {
    pub(super) array: Arc<StoredArray>,
    pub(super) reader: Arc<ChunkReader>,
    pub(super) buffer: Arc<WriteBuffer>,
    /// The metadata that the chunks are encoded by, which are computed once.
    encoded_by: OnceLock<Option<EncodedBy>>,
}

impl ChunkWriter {
    /// Creates a writer that edits chunks in `buffer`, which may hold dirty chunks already.
    pub(super) fn new(reader: Arc<ChunkReader>, buffer: Arc<WriteBuffer>) -> Arc<ChunkWriter> {
        Arc::new(ChunkWriter {
            array: reader.array.clone(),
            reader,
            buffer,
            encoded_by: OnceLock::new(),
        })
    }

    /// Fails with `ReadOnly` if the codecs are lossy and writing through lossy codecs is not allowed, and with
    /// `TooLarge` if the chunks are too large for the memory.
    pub(super) fn check_writable(&self) -> Result<()> {
        let refuse = |why: &str| Err(Error::new(Kind::ReadOnly, &self.array.path, why));
        let limits = &self.array.engine.limits;
        if self.reader.decoder.pipeline.is_lossy() && !limits.lossy {
            return refuse("the codecs are lossy: use --lossy to allow writing");
        }
        let length = self.reader.decoder.pipeline.chunk_bytes() as u64;
        if length.saturating_mul(COPIES) > limits.memory {
            let found = format!(
                "writing a chunk of {length} bytes needs {} bytes of memory: give more --memory",
                length.saturating_mul(COPIES)
            );
            return Err(Error::too_large(&self.array.path, found));
        }
        Ok(())
    }

    /// Fails with `Invalid` if an element of fewer than eight bits has a value outside its data type; the codecs would
    /// keep only its lower bits.
    pub(super) fn check_values(&self, elements: &[u8]) -> Result<()> {
        let DataType::Small(number) = &self.array.metadata.data_type else {
            return Ok(());
        };
        match number.first_invalid_code(elements) {
            None => Ok(()),
            Some(code) => {
                let why = format!("the byte 0x{code:02x} is not a valid {}", number.name);
                Err(Error::invalid(&self.array.path, why))
            }
        }
    }

    /// Edits the elements of a chunk, which is read first unless all its elements are written. Refuses page write-back
    /// to a chunk whose content has changed since the kernel read the pages.
    pub(super) fn edit(
        self: &Arc<ChunkWriter>,
        context: &RequestContext,
        chunk: ChunkIndex,
        edit: &ChunkEdit,
    ) -> Result<()> {
        let location = self.reader.decoder.locate(chunk);
        // To make room, a flush may store chunks of other requests, so the limits of this request do not apply to it.
        self.array
            .engine
            .write_budget
            .make_room(&UNLIMITED, self, &location.indices)?;
        let _lock = self.buffer.lock_chunk(&location.indices);
        let (stored, place) = (&location.indices, &location.inner);
        let indices = self.reader.decoder.grid.indices(chunk);
        let has_pages =
            edit.source == WriteSource::Pages && self.buffer.writers.has_pages(&indices);
        let is_whole = edit.is_whole && !has_pages;
        if has_pages
            && let Some(ReadDigest(read)) = self.buffer.rest_digest(stored, place)
            && self.buffer.writers.has_other_pages(&indices, read)
        {
            // The content that the dirty chunk was edited from is newer than the kernel's pages.
            return self.refuse_pages(context, chunk, &location);
        }
        let permit = context.permit_change()?;
        if self.buffer.edit(stored, place, is_whole, edit.apply)? {
            return Ok(());
        }
        permit.give_back();
        let (current, basis) = match self.buffer.find(stored, place) {
            _ if is_whole => (Chunk::Fill, Basis::Nothing),
            Some(written) => (Chunk::Data(written), Basis::Written),
            None => match self.unwritten_chunk(context, chunk, &location, has_pages)? {
                Some(found) => found,
                None => return self.refuse_pages(context, chunk, &location),
            },
        };
        let mut fresh = self.editable(chunk, &location, current)?;
        let _permit = context.permit_change()?;
        (edit.apply)(&mut fresh.bytes);
        let written = WrittenSubchunk {
            place: location.inner.into_vec(),
            indices,
            decoded: Arc::new(fresh),
            basis,
        };
        self.buffer.put(&location.indices, written)?;
        // The chunk writer is registered after every edit, because other arrays remove writers without dirty chunks
        // from the list.
        self.array.engine.write_budget.register(self);
        Ok(())
    }

    /// Returns the stored content of a chunk that is not dirty, with its version and digest as the basis of the edit.
    /// Returns `None` if the kernel's pages show another content.
    fn unwritten_chunk(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
        has_pages: bool,
    ) -> Result<Option<(Chunk, Basis)>> {
        let (current, version) = self.reader.get_versioned(context, chunk, location)?;
        let (indices, digest) = (self.reader.decoder.grid.indices(chunk), current.digest());
        if has_pages && self.buffer.writers.has_other_pages(&indices, digest) {
            return Ok(None);
        }
        Ok(Some((current, Basis::Stored(version, digest))))
    }

    /// Returns a dirty copy of a chunk that can be edited, because no reader shares it.
    fn editable(
        &self,
        chunk: ChunkIndex,
        location: &ChunkLocation,
        current: Chunk,
    ) -> Result<DecodedChunk> {
        let pipeline = self
            .reader
            .decoder
            .pipeline_of(ChunkIndex(location.stored))?;
        let length = pipeline.chunk_bytes();
        match current {
            Chunk::Data(current) => {
                self.reader.forget(chunk);
                match Arc::try_unwrap(current) {
                    Ok(chunk) => Ok(chunk.into_dirty()),
                    Err(shared) => Ok(DecodedChunk::dirty(
                        shared.bytes().to_vec(),
                        self.array.reserve(length as u64 + CHUNK_OVERHEAD)?,
                    )),
                }
            }
            Chunk::Fill => {
                let room = self.array.reserve(length as u64 + CHUNK_OVERHEAD)?;
                let fill = &self.array.metadata.fill_value.bytes;
                let bytes = if fill.iter().all(|&byte| byte == 0) {
                    vec![0; length]
                } else {
                    fill.repeat(length / fill.len().max(1))
                };
                Ok(DecodedChunk::dirty(bytes, room))
            }
        }
    }

    /// Stores all dirty chunks of the array, no matter which open file wrote them. After an error the remaining chunks
    /// are still tried, and the first error is returned; `Changed` if new metadata give the stored chunks another
    /// meaning.
    pub(super) fn flush(&self, context: &RequestContext) -> Result<()> {
        let chunks = self.buffer.chunks();
        if chunks.is_empty() {
            return Ok(());
        }
        self.array.check_chunks_hold(context)?;
        let flush = |chunk| self.flush_chunk(context, &chunk);
        let flushed = parallel_map(self.array.engine.encoders, chunks, &flush);
        flushed.into_iter().fold(Ok(()), Result::and)
    }

    /// Stores one dirty chunk, unless new metadata give the stored chunks another meaning.
    pub(super) fn flush_alone(&self, context: &RequestContext, chunk: &Coordinates) -> Result<()> {
        match self.array.check_chunks_hold(context) {
            Ok(()) => self.flush_chunk(context, chunk),
            Err(error) => {
                self.buffer.mark_failed(chunk);
                Err(error)
            }
        }
    }

    /// Stores one dirty chunk, and removes it from the write buffer if that succeeds.
    fn flush_chunk(&self, context: &RequestContext, indices: &Coordinates) -> Result<()> {
        let _lock = self.buffer.lock_chunk(indices);
        let Some(chunk) = self.buffer.get(indices) else {
            return Ok(());
        };
        // If the array became smaller, the chunk may be outside of it and is dropped.
        let stored = match self.reader.decoder.stored.index(indices) {
            Some(number) => self.store_chunk(context, number, &chunk),
            None => Ok(()),
        };
        match &stored {
            Ok(()) => self.buffer.remove(indices),
            Err(_) => self.buffer.mark_failed(indices),
        }
        stored
    }

    fn store_chunk(
        &self,
        context: &RequestContext,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<()> {
        self.put_chunk(context, number, chunk)?;
        let pipeline = self.reader.decoder.pipeline_of(number)?;
        self.buffer.writers.record_stored(chunk, &pipeline);
        Ok(())
    }

    /// Encodes a chunk and puts it on the condition that the stored content is unchanged. If the key has another
    /// version but still the content that the chunk was edited from, the put is retried with that version.
    fn put_chunk(
        &self,
        context: &RequestContext,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<()> {
        let pipeline = self.reader.decoder.pipeline_of(number)?;
        let key = self
            .array
            .key_of(context, &self.reader.decoder.stored.indices(number))?;
        let mut condition = self.renewed_condition(context, number, chunk)?;
        // The put fails if the key changes during each attempt.
        let mut attempts = 8;
        loop {
            let encoded = self.encoded(context, &pipeline, &key, chunk);
            let encoded = encoded.map_err(|error| error.about(&key))?;
            let needed = match &condition {
                Condition::Any => &encoded.condition,
                read => read,
            };
            let body = PutBody::Bytes(&encoded.bytes);
            let by = self.encoded_by();
            let (put, stamp) = self.array.ask(context, |context, store| {
                store.put_chunk(context, &key, body, needed, by)
            });
            let error = match put {
                Ok(etag) => {
                    self.reader
                        .versions
                        .record_put(number.0, etag.version, stamp);
                    self.array.engine.stats.encoded_chunks.add(1);
                    return Ok(());
                }
                Err(error) => error,
            };
            attempts -= 1;
            if error.kind() == Kind::Changed && attempts > 0 && *needed != Condition::Any {
                self.array.info.changes.record(&key);
                let renewed = self.renewed_condition(context, number, chunk)?;
                if renewed == Condition::Any || renewed != condition {
                    condition = renewed;
                    continue;
                }
            }
            return Err(self.handle_refusal(context, number, &key, &encoded.bytes, error));
        }
    }

    /// Returns the metadata that chunks are encoded by. The overlay records them with the chunks: committing the chunks
    /// is a conflict if the array has other metadata by then.
    fn encoded_by(&self) -> Option<&EncodedBy> {
        let by = || match &self.array.draft_keys {
            Some((document, folder)) => {
                let (document, folder) = (document.clone(), folder.clone());
                Some(encoding::of_draft_array(
                    document,
                    folder,
                    &self.array.metadata,
                ))
            }
            None => encoding::of_array(&self.array.path, &self.array.metadata),
        };
        self.encoded_by.get_or_init(by).as_ref()
    }

    fn encoded<'a>(
        &self,
        context: &RequestContext,
        pipeline: &Pipeline,
        key: &Key,
        chunk: &'a DirtyChunk,
    ) -> Result<EncodedChunk<'a>> {
        let subchunks = &chunk.subchunks;
        let length = subchunks.len() as u64 * pipeline.chunk_bytes() as u64;
        let deadline = self.array.engine.deadline();
        let room = |bytes| self.array.engine.cache.reserve(bytes, deadline);
        if pipeline.shards().is_empty() {
            let subchunk = subchunks.values().next().ok_or_else(no_subchunk)?;
            let (bytes, room) = if pipeline.is_identity() {
                (Cow::Borrowed(subchunk.bytes()), room(0)?)
            } else {
                let room = room(length + length / 8)?;
                (Cow::Owned(pipeline.encode(subchunk.bytes())?), room)
            };
            return Ok(EncodedChunk {
                bytes,
                condition: Condition::Any,
                _room: room,
            });
        }
        let mut inner = InnerChunks::new();
        let _inner_room = room(length + length / 8)?;
        for (place, subchunk) in subchunks {
            inner.insert(place.clone(), pipeline.encode(subchunk.bytes())?);
        }
        self.rebuilt(context, pipeline, key, &inner)
    }

    /// Returns the bytes of a shard in which some inner chunks are replaced, and all other inner chunks are as stored.
    fn rebuilt(
        &self,
        context: &RequestContext,
        pipeline: &Pipeline,
        key: &Key,
        inner: &InnerChunks,
    ) -> Result<EncodedChunk<'static>> {
        let added: u64 = inner.values().map(|bytes| bytes.len() as u64).sum();
        let levels = pipeline.shards().iter();
        let index: u64 = levels.map(|level| level.index_bytes() as u64).sum();
        let store = self.array.store();
        loop {
            let size = store.head(context, key)?.map_or(0, |meta| meta.size);
            let needed = size.saturating_mul(2).saturating_add(added + index);
            let room = self
                .array
                .engine
                .cache
                .reserve(needed, self.array.engine.deadline())?;
            let old = match store.get(context, key, size) {
                // The shard has become longer since its length was requested.
                Err(error) if error.kind() == Kind::TooLarge => continue,
                answer => answer?,
            };
            let bytes = old.as_ref().map(|object| object.bytes.as_slice());
            return Ok(EncodedChunk {
                bytes: Cow::Owned(pipeline.rebuild_shard(bytes, inner)?),
                condition: Condition::unchanged(old.as_ref().map(|object| object.version)),
                _room: room,
            });
        }
    }

    /// Returns the condition for putting a dirty chunk: the present version of its key if each subchunk that was read
    /// for an edit still has the same content, or else the old condition, with which the put fails.
    fn renewed_condition(
        &self,
        context: &RequestContext,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<Condition> {
        if chunk.condition == Condition::Any {
            return Ok(Condition::Any);
        }
        let version = self.reader.versions.fetch(context, number.0)?;
        let now = Condition::unchanged(version);
        if now == chunk.condition {
            return Ok(now);
        }
        for (place, digest) in &chunk.read {
            let subchunk = chunk.indices.get(place);
            if !self.reads_the_same(context, subchunk, *digest, version)? {
                return Ok(chunk.condition.clone());
            }
        }
        Ok(now)
    }

    /// Whether a subchunk has the given digest in the given version of its stored chunk.
    fn reads_the_same(
        &self,
        context: &RequestContext,
        chunk: Option<&Coordinates>,
        digest: Option<u64>,
        version: Option<Version>,
    ) -> Result<bool> {
        let Some(chunk) = chunk.and_then(|chunk| self.reader.decoder.grid.index(chunk)) else {
            return Ok(false);
        };
        match self
            .reader
            .get_versioned(context, chunk, &self.reader.decoder.locate(chunk))
        {
            Ok((found, of)) => {
                let is_of_version = match (of, version) {
                    (Some(of), Some(version)) => of.may_be(version),
                    (of, version) => of == version,
                };
                Ok(is_of_version && found.digest() == digest)
            }
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::Changed) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Handles a put that failed, and returns the error. On a conflict the chunk is dropped, since it was edited from
    /// stale content. After any other error the chunk stays dirty; the put may have succeeded although it returned an
    /// error.
    fn handle_refusal(
        &self,
        context: &RequestContext,
        number: ChunkIndex,
        key: &Key,
        bytes: &[u8],
        error: Error,
    ) -> Error {
        let indices = self.reader.decoder.stored.indices(number);
        let stored = self.array.store().get(context, key, bytes.len() as u64);
        let same = stored.ok().flatten().filter(|stored| stored.bytes == bytes);
        if error.kind() != Kind::Changed {
            if let Some(same) = same {
                if let Some(chunk) = self.buffer.get(&indices)
                    && let Ok(pipeline) = self.reader.decoder.pipeline_of(number)
                {
                    self.buffer.writers.record_stored(&chunk, &pipeline);
                }
                self.buffer.confirm(&indices, same.version);
            }
            return error;
        }
        let error = match same {
            Some(_) => error,
            None => {
                let why = format!(
                    "{}; conflict: the changes made here are dropped",
                    error.detail()
                );
                Error::new(Kind::Changed, key, why)
            }
        };
        self.buffer.abandon(&indices, &error);
        self.reader.open.forget(number.0);
        self.array.info.changes.record(key);
        if let Err(error) = self.reader.versions.fetch(context, number.0) {
            log::debug!("cannot get the version of a changed chunk: {error}");
        }
        error
    }

    /// Drops page write-back to a chunk that another program has changed since the kernel read the pages. Writers get
    /// the error at close or fsync, because the kernel reports no error for the write-back itself.
    pub(super) fn refuse_pages(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
        location: &ChunkLocation,
    ) -> Result<()> {
        let key = self.array.key_of(context, &location.indices)?;
        self.buffer
            .writers
            .refuse(&self.reader.decoder.grid.indices(chunk));
        let why = "conflict: the chunk was changed by another program, and the changes made here are dropped";
        self.buffer
            .record_loss(&Error::new(Kind::Changed, &key, why));
        self.reader
            .versions
            .fetch(context, location.stored)
            .map(drop)
    }

    /// Returns the digest of the stored content that a dirty chunk was edited from, or of the stored content if the
    /// chunk is not dirty. Returns `None` if the chunk is not stored, or was written whole.
    pub(super) fn stored_digest(
        &self,
        context: &RequestContext,
        chunk: ChunkIndex,
    ) -> Result<Option<u64>> {
        let location = self.reader.decoder.locate(chunk);
        let read = self.buffer.read_digest(&location.indices, &location.inner);
        if let Some(ReadDigest(digest)) = read {
            return Ok(digest);
        }
        let (found, _) = self.reader.get_versioned(context, chunk, &location)?;
        Ok(found.digest())
    }

    /// Returns how many partly written chunks are read at the same time: few enough to fit in the memory for dirty
    /// chunks.
    pub(super) fn edits_at_once(&self) -> usize {
        let length = self.reader.decoder.pipeline.chunk_bytes() as u64;
        let most = self.array.engine.write_budget.limit / length.saturating_mul(COPIES).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        most.clamp(1, self.array.engine.encoders)
    }
}

struct EncodedChunk<'a> {
    bytes: Cow<'a, [u8]>,
    /// The condition of the put if the dirty chunk sets none: that the shard has the version that was read while
    /// encoding.
    condition: Condition,
    _room: Reservation,
}

impl Drop for EncodedChunk<'_> {
    fn drop(&mut self) {
        if let Cow::Owned(bytes) = std::mem::take(&mut self.bytes) {
            buffer::recycle(bytes);
        }
    }
}

/// Returns the error for a dirty chunk without subchunks. No program sees it, because a chunk becomes dirty only when a
/// subchunk is written.
fn no_subchunk() -> Error {
    Error::invalid("", "no inner chunk was written")
}
