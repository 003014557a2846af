//! Pages of the kernel: what they were made of while an array is open for writing, and what becomes of those that are
//! written back over a change that their program has not seen.

use std::ops::Range;

use crate::array::OpenArray;
use crate::array::decoder::{Decoder, PieceLocation};
use crate::array::flat_file::FlatFile;
use crate::error::{Error, Kind, Result};
use crate::grid::ChunkIndex;
use crate::sync::read_bytes::ReadBytes;

/// How often a range is read again that changes while it is read.
const MAX_READS: usize = 3;

impl OpenArray {
    /// Notes that the array was opened for writing.
    pub fn begin_writing(&self) {
        self.dirty.shown().add_writer();
    }

    /// Notes that a handle for writing was closed.
    pub fn end_writing(&self) {
        self.dirty.shown().remove_writer();
    }

    /// Drops pages that were written back to a piece which another program has changed since they were read. Their
    /// writers get the error when they close the file or sync it: the kernel has no error of its own for that.
    pub(super) fn refuse_pages(&self, decoder: &Decoder, location: &PieceLocation) -> Result<()> {
        let key = self.key_of(&location.indices)?;
        let why = "was changed since it was read; what was written to it here is dropped";
        self.dirty.note_lost(&Error::new(Kind::Changed, &key, why));
        self.fetch_version(decoder, location.stored).map(drop)
    }
}

impl FlatFile {
    /// Returns the bytes of a range, and remembers what they were made of while the array is open for writing. The range
    /// must lie in the file.
    pub fn read_shown(&self, range: Range<u64>) -> Result<ReadBytes> {
        if !self.array.dirty.shown().are_wanted() {
            return self.read(range);
        }
        for _ in 0..MAX_READS {
            let before = self.array.content_now();
            let bytes = self.read(range.clone())?;
            self.note_shown(&range)?;
            if self.array.content_now() == before {
                return Ok(bytes);
            }
        }
        self.note_shown(&range)?;
        self.read(range)
    }

    /// Whether it need not be remembered what a range is made of.
    pub fn is_shown(&self, range: &Range<u64>) -> bool {
        let shown = self.array.dirty.shown();
        let Ok(decoder) = self.array.decoder() else {
            return true;
        };
        let mut is_shown = true;
        if shown.are_wanted() {
            self.visit_pieces(decoder, range, |piece, _, _| {
                is_shown = is_shown && shown.has(&decoder.pieces.indices(piece));
            });
        }
        is_shown
    }

    /// Remembers the pieces under a range as they are now.
    fn note_shown(&self, range: &Range<u64>) -> Result<()> {
        let decoder = self.array.decoder()?;
        let shown = self.array.dirty.shown();
        let mut fresh: Vec<ChunkIndex> = Vec::new();
        self.visit_pieces(decoder, range, |piece, _, _| {
            if !shown.has(&decoder.pieces.indices(piece)) {
                fresh.push(piece);
            }
        });
        for piece in fresh {
            let digest = match self.array.written(decoder, piece) {
                Some(written) => Some(written.digest()),
                None => {
                    let location = decoder.locate(piece);
                    let (found, _) = self.array.versioned_piece(decoder, piece, &location)?;
                    found.digest()
                }
            };
            shown.note(decoder.pieces.indices(piece), digest);
        }
        Ok(())
    }
}
