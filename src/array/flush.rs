//! Flushing: written chunks are encoded and put under their keys.
//!
//! A chunk is put on the condition that its key still holds what its pieces were read of. If it does not, the chunk is
//! dropped, and the flush of each of its writers says so (`Changed`); the next writer begins with what is stored. A chunk
//! that cannot be encoded or put for another reason stays as it was written and is tried again by the next flush. Of a
//! shard only the inner chunks that were written are encoded. The fill value is stored like any other content.

use std::borrow::Cow;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::dirty_chunk::DirtyChunk;
use crate::codec::{InnerChunks, Pipeline};
use crate::dialect::encoding;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::request_context::RequestContext;
use crate::store::{Condition, EncodedBy, Key, PutBody};
use crate::sync::budget::Reservation;
use crate::sync::buffer;
use crate::sync::pool::parallel_map;

/// How often a chunk is put whose key changes meanwhile.
const MAX_ATTEMPTS: usize = 8;

impl OpenArray {
    /// Stores all that was written to the array, through any handle. Returns the first error, after all chunks were
    /// tried; `Changed` if the metadata give the chunks another meaning by now.
    pub fn flush(&self, context: &RequestContext) -> Result<()> {
        let chunks = self.dirty.chunks();
        if chunks.is_empty() {
            return Ok(());
        }
        self.check_chunks_hold(context)?;
        let flush = |chunk| self.flush_chunk(context, &chunk);
        let flushed = parallel_map(self.engine.encoders, chunks, &flush);
        flushed.into_iter().fold(Ok(()), Result::and)
    }

    /// Stores what was written to one chunk, if the metadata still give it the same meaning.
    pub(super) fn flush_alone(&self, context: &RequestContext, chunk: &Coordinates) -> Result<()> {
        match self.check_chunks_hold(context) {
            Ok(()) => self.flush_chunk(context, chunk),
            Err(error) => {
                self.dirty.note_failure(chunk);
                Err(error)
            }
        }
    }

    /// Stores what was written to one chunk.
    fn flush_chunk(&self, context: &RequestContext, indices: &Coordinates) -> Result<()> {
        let _lock = self.dirty.lock_chunk(indices);
        let Some(chunk) = self.dirty.get(indices) else {
            return Ok(());
        };
        let decoder = self.decoder()?;
        // The chunk may lie outside of an array that became smaller.
        let stored = match decoder.stored.index(indices) {
            Some(number) => self.store_chunk(context, decoder, number, &chunk),
            None => Ok(()),
        };
        match &stored {
            Ok(()) => self.dirty.remove(indices),
            Err(_) => self.dirty.note_failure(indices),
        }
        stored
    }

    fn store_chunk(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<()> {
        self.put_chunk(context, decoder, number, chunk)?;
        let pipeline = decoder.pipeline_of(number)?;
        self.dirty.writers().note_stored(chunk, &pipeline);
        Ok(())
    }

    /// Encodes and puts a chunk on its condition, again if its key has changed meanwhile and the chunk does not depend
    /// on what changed.
    fn put_chunk(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<()> {
        let pipeline = decoder.pipeline_of(number)?;
        let key = self.key_of(context, &decoder.stored.indices(number))?;
        let mut condition = self.renewed_condition(context, decoder, number, chunk)?;
        let mut attempts = MAX_ATTEMPTS;
        loop {
            let encoded = self.encoded(context, &pipeline, &key, chunk);
            let encoded = encoded.map_err(|error| error.about(&key))?;
            let needed = match &condition {
                Condition::Any => &encoded.condition,
                read => read,
            };
            let body = PutBody::Bytes(&encoded.bytes);
            let by = self.encoded_by();
            let (put, stamp) = self.ask(context, |context, store| {
                store.put_chunk(context, &key, body, needed, by)
            });
            let error = match put {
                Ok(etag) => {
                    self.versions.note_put(number.0, etag.version, stamp);
                    self.engine.stats.encoded_chunks.add(1);
                    return Ok(());
                }
                Err(error) => error,
            };
            attempts -= 1;
            if error.kind() == Kind::Changed && attempts > 0 && *needed != Condition::Any {
                self.hierarchy.store().info().changes.note(&key);
                let renewed = self.renewed_condition(context, decoder, number, chunk)?;
                if renewed == Condition::Any || renewed != condition {
                    condition = renewed;
                    continue;
                }
            }
            return Err(self.note_refusal(context, decoder, number, (&key, &encoded.bytes), error));
        }
    }

    /// Returns by which metadata chunks are encoded, which are a condition of their commit.
    fn encoded_by(&self) -> Option<&EncodedBy> {
        let by = || match &self.draft_keys {
            Some((document, folder)) => {
                let (document, folder) = (document.clone(), folder.clone());
                Some(encoding::of_draft_array(document, folder, &self.metadata))
            }
            None => encoding::of_array(&self.path, &self.metadata),
        };
        self.encoded_by.get_or_init(by).as_ref()
    }

    /// Returns the bytes of a chunk to be stored.
    fn encoded<'a>(
        &self,
        context: &RequestContext,
        pipeline: &Pipeline,
        key: &Key,
        chunk: &'a DirtyChunk,
    ) -> Result<EncodedChunk<'a>> {
        let pieces = &chunk.pieces;
        let length = pieces.len() as u64 * pipeline.chunk_bytes() as u64;
        let deadline = self.engine.deadline();
        let room = |bytes| self.engine.cache.reserve(bytes, deadline);
        if pipeline.shards().is_empty() {
            let piece = pieces.values().next().ok_or_else(no_piece)?;
            let (bytes, room) = if pipeline.is_identity() {
                (Cow::Borrowed(piece.bytes()), room(0)?)
            } else {
                let room = room(length + length / 8)?;
                (Cow::Owned(pipeline.encode(piece.bytes())?), room)
            };
            return Ok(EncodedChunk {
                bytes,
                condition: Condition::Any,
                _room: room,
            });
        }
        let mut inner = InnerChunks::new();
        let _inner_room = room(length + length / 8)?;
        for (place, piece) in pieces {
            inner.insert(place.clone(), pipeline.encode(piece.bytes())?);
        }
        self.rebuilt(context, pipeline, key, &inner)
    }

    /// Returns the bytes of a shard with some of its inner chunks replaced, and all others as they are stored.
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
        let store = self.hierarchy.store();
        loop {
            let size = store.head(context, key)?.map_or(0, |meta| meta.size);
            let needed = size.saturating_mul(2).saturating_add(added + index);
            let room = self.engine.cache.reserve(needed, self.engine.deadline())?;
            let old = match store.get(context, key, size) {
                // The shard has become longer since.
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
}

/// A chunk to be put.
struct EncodedChunk<'a> {
    bytes: Cow<'a, [u8]>,
    /// What was read of the key to encode it.
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

/// Returns the error of a chunk without pieces, of which there is none.
fn no_piece() -> Error {
    Error::invalid("", "no piece of the chunk was written")
}
