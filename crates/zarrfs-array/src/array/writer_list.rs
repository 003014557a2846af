//! Lists the arrays with dirty chunks, and flushes chunks over the limit.
//!
//! If dirty chunks hold more than their share of the memory, the least recently written ones are flushed at once.

use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::array::chunk_writer::ChunkWriter;
use zarr_format::error::Result;
use zarr_format::grid::Coordinates;
use zarrfs_store::request_context::RequestContext;

/// The arrays of a mount with dirty chunks, and some that no longer have any.
#[derive(Default)]
pub(super) struct WriterList(Mutex<Vec<Weak<ChunkWriter>>>);

impl WriterList {
    /// Returns the arrays with dirty chunks, and some that no longer have any.
    pub(super) fn list(&self) -> MutexGuard<'_, Vec<Weak<ChunkWriter>>> {
        self.0.lock()
    }

    /// Registers an array that may have dirty chunks.
    pub(super) fn note(&self, array: &Arc<ChunkWriter>) {
        let mut writers = self.list();
        let is_known = |known: &Weak<ChunkWriter>| known.as_ptr() == Arc::as_ptr(array);
        if array.buffer.is_empty() || !writers.iter().any(is_known) {
            writers.retain(|writer| {
                let writer = writer.upgrade();
                writer.is_some_and(|writer| {
                    !writer.buffer.is_empty() && writer.array.id != array.array.id
                })
            });
            writers.push(Arc::downgrade(array));
        }
    }

    /// Flushes the least recently written chunks until dirty chunks hold at most their share of the memory. If a chunk
    /// cannot be stored, it stays dirty and `ChunkWriter::flush` returns the error; once dirty chunks hold twice their
    /// share, it is returned here. The chunk `kept` is not flushed, since its writer is about to edit it.
    pub(super) fn make_room(
        &self,
        context: &RequestContext,
        writer: &ChunkWriter,
        kept: &Coordinates,
    ) -> Result<()> {
        let budget = &writer.array.engine.write_budget;
        while budget.bytes() > budget.share() {
            let Some((array, chunk)) = self.oldest(writer, kept, false) else {
                break;
            };
            // The failure is recorded with the chunk.
            let _ = array.flush_alone(context, &chunk);
        }
        while budget.bytes() > budget.share().saturating_mul(2) {
            match self.oldest(writer, kept, true) {
                Some((array, chunk)) => array.flush_alone(context, &chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the least recently written chunk of any array; chunks that could not be stored are included only
    /// `with_failed`.
    fn oldest(
        &self,
        writer: &ChunkWriter,
        kept: &Coordinates,
        with_failed: bool,
    ) -> Option<(Arc<ChunkWriter>, Coordinates)> {
        let writers: Vec<Arc<ChunkWriter>> = self.list().iter().filter_map(Weak::upgrade).collect();
        let oldest = writers.into_iter().filter_map(|array| {
            let kept = (array.array.id == writer.array.id).then_some(kept);
            let (touched, chunk) = array.buffer.oldest(kept, with_failed)?;
            Some((touched, array, chunk))
        });
        let (_, array, chunk) = oldest.min_by_key(|(touched, ..)| *touched)?;
        Some((array, chunk))
    }
}
