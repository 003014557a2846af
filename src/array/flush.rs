//! Flushing: written chunks are encoded and put under their keys.
//!
//! A chunk that cannot be encoded or put stays as it was written and is tried again by the next flush. Of a shard only
//! the inner chunks that were written are encoded. The fill value is stored like any other content.

use std::borrow::Cow;

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::dirty_chunks::Pieces;
use crate::codec::{InnerChunks, Pipeline};
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::store::{Condition, Key, PutBody};
use crate::sync::budget::Reservation;
use crate::sync::pool::parallel_map;

impl OpenArray {
    /// Stores all that was written to the array, through any handle. Returns the first error, after all chunks were
    /// tried; `Changed` if the metadata give the chunks another meaning by now.
    pub fn flush(&self) -> Result<()> {
        let chunks = self.dirty.chunks();
        if chunks.is_empty() {
            return Ok(());
        }
        self.check_chunks_hold()?;
        let flush = |chunk| self.flush_chunk(&chunk);
        let flushed = parallel_map(self.engine.encoders, chunks, &flush);
        flushed.into_iter().fold(Ok(()), Result::and)
    }

    /// Drops what was written to a chunk, and removes the chunk from the store.
    pub fn erase_chunk(&self, chunk: ChunkIndex) -> Result<()> {
        let indices = self.stored_grid()?.indices(chunk);
        let _lock = self.dirty.lock_chunk(&indices);
        let keys = self.keys(&indices)?;
        let (erased, stamp) = self.ask(|store| {
            let mut keys = keys.iter();
            keys.try_for_each(|key| store.erase(key, &Condition::Any))
        });
        erased?;
        self.versions.note(chunk.0, None, stamp);
        self.dirty.remove(&indices);
        self.dirty.content().renew();
        Ok(())
    }

    /// Drops all that was written and is not stored yet.
    pub fn discard(&self) {
        for chunk in self.dirty.chunks() {
            let _lock = self.dirty.lock_chunk(&chunk);
            self.dirty.remove(&chunk);
        }
    }

    /// Stores what was written to one chunk, if the metadata still give it the same meaning.
    pub(super) fn flush_alone(&self, chunk: &Coordinates) -> Result<()> {
        match self.check_chunks_hold() {
            Ok(()) => self.flush_chunk(chunk),
            Err(error) => {
                self.dirty.note_failure(chunk);
                Err(error)
            }
        }
    }

    /// Stores what was written to one chunk.
    fn flush_chunk(&self, chunk: &Coordinates) -> Result<()> {
        let _lock = self.dirty.lock_chunk(chunk);
        let Some(pieces) = self.dirty.pieces(chunk) else {
            return Ok(());
        };
        let decoder = self.decoder()?;
        // The chunk may lie outside of an array that became smaller.
        let stored = match decoder.stored.index(chunk) {
            Some(number) => self.put_chunk(decoder, number, chunk, &pieces),
            None => Ok(()),
        };
        match &stored {
            Ok(()) => self.dirty.remove(chunk),
            Err(_) => self.dirty.note_failure(chunk),
        }
        stored
    }

    fn put_chunk(
        &self,
        decoder: &Decoder,
        number: ChunkIndex,
        indices: &Coordinates,
        pieces: &Pieces,
    ) -> Result<()> {
        let pipeline = decoder.pipeline_of(number)?;
        let key = self.key_of(indices)?;
        let (bytes, _room) = self
            .encoded(&pipeline, &key, pieces)
            .map_err(|error| error.about(&key))?;
        let body = PutBody::Bytes(&bytes);
        let (etag, stamp) = self.ask(|store| store.put(&key, body, &Condition::Any));
        self.versions.note_put(number.0, etag?.version, stamp);
        self.engine.stats.encoded_chunks.add(1);
        Ok(())
    }

    /// Returns the key that a chunk is stored under, or the first that it may have.
    fn key_of(&self, indices: &[u64]) -> Result<Key> {
        let keys = self.keys(indices)?;
        if keys.len() > 1 {
            for key in &keys {
                if self.hierarchy.store().version(key)?.is_some() {
                    return Ok(key.clone());
                }
            }
        }
        let none = || Error::unsupported(&self.entry.path, "its chunks have no keys");
        keys.into_iter().next().ok_or_else(none)
    }

    /// Returns the bytes of a chunk to be stored, and their room in the budget.
    fn encoded<'a>(
        &self,
        pipeline: &Pipeline,
        key: &Key,
        pieces: &'a Pieces,
    ) -> Result<(Cow<'a, [u8]>, Reservation)> {
        let length = pieces.len() as u64 * pipeline.chunk_bytes() as u64;
        let deadline = self.engine.deadline();
        let room = |bytes| self.engine.cache.reserve(bytes, deadline);
        if pipeline.shards().is_empty() {
            let piece = pieces.values().next().ok_or_else(no_piece)?;
            if pipeline.is_identity() {
                return Ok((Cow::Borrowed(piece.bytes()), room(0)?));
            }
            let room = room(length + length / 8)?;
            return Ok((Cow::Owned(pipeline.encode(piece.bytes())?), room));
        }
        let mut inner = InnerChunks::new();
        let _inner_room = room(length + length / 8)?;
        for (place, piece) in pieces {
            inner.insert(place.clone(), pipeline.encode(piece.bytes())?);
        }
        let added: u64 = inner.values().map(|bytes| bytes.len() as u64).sum();
        let index: u64 = pipeline
            .shards()
            .iter()
            .map(|level| level.index_bytes() as u64)
            .sum();
        let store = self.hierarchy.store();
        loop {
            let size = store.head(key)?.map_or(0, |meta| meta.size);
            let room = room(size.saturating_mul(2).saturating_add(added + index))?;
            let old = match store.get(key, size) {
                // The shard has become longer since.
                Err(error) if error.kind() == Kind::TooLarge => continue,
                answer => answer?,
            };
            let old = old.as_ref().map(|object| object.bytes.as_slice());
            let shard = pipeline.rebuild_shard(old, &inner)?;
            return Ok((Cow::Owned(shard), room));
        }
    }
}

/// Returns the error of a chunk without pieces, of which there is none.
fn no_piece() -> Error {
    Error::invalid("", "no piece of the chunk was written")
}
