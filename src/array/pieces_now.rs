//! The pieces under a read that are in memory and current, looked up together.
//!
//! A read of small inner chunks meets a thousand of them, so there is one lock of each table for all, and a stored chunk
//! is looked up once for the pieces of it that come one after another. One piece that is missing is left, with all the
//! others, to the thread that loads it.

use crate::array::OpenArray;
use crate::array::decoder::Decoder;
use crate::array::parts::Part;
use crate::array::piece::{Cached, Piece};
use crate::array::versions::VersionState;
use crate::grid::ChunkIndex;
use crate::store::Version;

/// What a piece is now.
enum Current {
    /// Written and not stored yet, or not stored at all.
    Known(Piece),
    /// The one that was decoded of this version of its stored chunk.
    Decoded(ChunkIndex, Version),
}

impl OpenArray {
    /// Returns the pieces of some parts, each once, if all are in memory and current.
    pub(super) fn pieces_now(&self, decoder: &Decoder, parts: &[Part]) -> Option<Vec<Piece>> {
        let current = self.current(decoder, parts)?;
        let keys = current.iter().filter_map(|current| match current {
            Current::Known(_) => None,
            Current::Decoded(piece, _) => Some((self.id, 0, piece.0)),
        });
        let mut cached = self.engine.cache.get_all(keys)?.into_iter();
        let piece = |current| match current {
            Current::Known(piece) => Some(piece),
            Current::Decoded(_, version) => match cached.next()? {
                Cached::Chunk(decoded) if decoded.version == version => Some(Piece::Data(decoded)),
                _ => None,
            },
        };
        current.into_iter().map(piece).collect()
    }

    /// Returns what the pieces of some parts are, each once; nothing if the store has to be asked for one of them.
    fn current(&self, decoder: &Decoder, parts: &[Part]) -> Option<Vec<Current>> {
        let now = self.versions.now();
        let versions = self.versions.lock();
        let mut last = None;
        let mut state = |stored| match last {
            Some((number, state)) if number == stored => state,
            _ => {
                let state = self.version_in(&versions, decoder, stored, now);
                last = Some((stored, state));
                state
            }
        };
        let current = |group: &[Part]| {
            let piece = group.first()?.piece;
            if let Some(written) = self.written(decoder, piece) {
                return Some(Current::Known(Piece::Data(written)));
            }
            match state(decoder.stored_number(piece)) {
                VersionState::Known(None) => Some(Current::Known(Piece::Fill)),
                VersionState::Known(Some(version)) => Some(Current::Decoded(piece, version)),
                VersionState::Unknown | VersionState::Stale => None,
            }
        };
        parts
            .chunk_by(Part::is_of_same_piece)
            .map(current)
            .collect()
    }
}
