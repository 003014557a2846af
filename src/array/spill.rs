//! Decoded pieces on disk: those that left the cache although a reader in order has still to read them.
//!
//! A piece is read back instead of being decoded again, and only for the content and the metadata that it was
//! decoded with. `spill_key` says which pieces are wanted again; the folder and its limits are the disk cache's.

use crate::array::piece::Cached;
use crate::array::spill_key::SpillKey;
use crate::grid::ChunkIndex;
use crate::store::Version;
use crate::store::layer::disk_cache::{CacheNamespace, EntryHeader};

/// The place on disk for the pieces of one store's arrays.
pub(super) struct Spill(pub(super) CacheNamespace);

impl Spill {
    /// Writes an evicted piece to disk, if a reader has still to read it.
    pub(super) fn write_evicted(&self, piece: u64, value: &Cached) {
        let Cached::Chunk(decoded) = value else {
            return;
        };
        let Some(spill_key) = &decoded.spill_key else {
            return;
        };
        let entry = spill_key.entry(piece);
        // A piece that was read from disk may have been dropped there since.
        let is_there = decoded.is_on_disk && self.0.has(&entry);
        if is_there || !decoded.version.is_lasting() || !spill_key.is_wanted(ChunkIndex(piece)) {
            return;
        }
        let bytes = decoded.bytes();
        let header = EntryHeader::now(decoded.version, bytes.len() as u64);
        if self.0.put(&entry, &header, bytes) {
            self.0.stats().spill_written_chunks.add(1);
        }
    }

    /// Whether some content of a piece is on disk.
    pub(super) fn has(&self, spill_key: &SpillKey, piece: u64) -> bool {
        self.0.has(&spill_key.entry(piece))
    }

    /// Returns the bytes of a piece if they are on disk, of this version and `length` many.
    pub(super) fn find(
        &self,
        spill_key: &SpillKey,
        piece: u64,
        (version, length): (Version, usize),
    ) -> Option<Vec<u8>> {
        let name = spill_key.entry(piece);
        let entry = self.0.find(&name)?;
        if entry.header().version != version || entry.len() != length as u64 {
            return None;
        }
        let bytes = self.0.read(&name, &entry, 0..entry.len())?;
        self.0.stats().spill_hit_chunks.add(1);
        Some(bytes)
    }
}
