//! What chunks that were written must find under their keys when they are stored, and what becomes of those that do not.
//!
//! A chunk depends on the pieces that were read before they were written in part. A key that has another version by now
//! may still hold these: a commit has brought them into the store, or another inner chunk of the shard was written.

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::dirty_chunk::DirtyChunk;
use crate::error::{Error, Kind, Result};
use crate::grid::{ChunkIndex, Coordinates};
use crate::request_context::RequestContext;
use crate::store::{Condition, Key, Version};

impl OpenArray {
    /// Returns how many written chunks were dropped so far because their keys had changed, and the error of the last.
    pub fn lost(&self) -> (u64, Option<Error>) {
        self.dirty.lost()
    }

    /// Returns the condition of a chunk: the version that its key has now, if all that was read of the old one is still
    /// the same.
    pub(super) fn renewed_condition(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: ChunkIndex,
        chunk: &DirtyChunk,
    ) -> Result<Condition> {
        if chunk.condition == Condition::Any {
            return Ok(Condition::Any);
        }
        let version = self.versions.fetch(context, number.0)?;
        let now = Condition::unchanged(version);
        if now == chunk.condition {
            return Ok(now);
        }
        for (place, digest) in &chunk.read {
            let piece = chunk.indices.get(place);
            if !self.reads_the_same(context, decoder, piece, *digest, version)? {
                return Ok(chunk.condition.clone());
            }
        }
        Ok(now)
    }

    /// Whether a piece of the stored chunk of this version is the one that was read before.
    fn reads_the_same(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        piece: Option<&Coordinates>,
        digest: Option<u64>,
        version: Option<Version>,
    ) -> Result<bool> {
        let Some(piece) = piece.and_then(|piece| decoder.pieces.index(piece)) else {
            return Ok(false);
        };
        match self
            .reader()?
            .versioned_piece(context, piece, &decoder.locate(piece))
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

    /// Notes what became of a chunk that could not be put, and returns the error. If its key has changed, the chunk is
    /// dropped: what was read of it is no longer true. Otherwise it stays, and may have got its key all the same.
    pub(super) fn note_refusal(
        &self,
        context: &RequestContext,
        decoder: &Decoder,
        number: ChunkIndex,
        (key, bytes): (&Key, &[u8]),
        error: Error,
    ) -> Error {
        let indices = decoder.stored.indices(number);
        let held = self.hierarchy.store().get(context, key, bytes.len() as u64);
        let kept = held.ok().flatten().filter(|held| held.bytes == bytes);
        if error.kind() != Kind::Changed {
            if let Some(kept) = kept {
                if let Some(chunk) = self.dirty.get(&indices)
                    && let Ok(pipeline) = decoder.pipeline_of(number)
                {
                    self.dirty.writers().note_stored(&chunk, &pipeline);
                }
                self.dirty.note_kept(&indices, kept.version);
            }
            return error;
        }
        let error = match kept {
            Some(_) => error,
            None => {
                let why = format!("{}; what was written to it here is dropped", error.detail());
                Error::new(Kind::Changed, key, why)
            }
        };
        self.dirty.lose(&indices, &error);
        if let Ok(reader) = self.reader() {
            reader.open.forget(number.0);
        }
        self.hierarchy.store().info().changes.note(key);
        if let Err(error) = self.versions.fetch(context, number.0) {
            log::debug!("{error}: the version of a changed chunk is not known");
        }
        error
    }
}
