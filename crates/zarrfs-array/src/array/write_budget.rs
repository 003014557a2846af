//! Counts the dirty bytes of all arrays, and flushes chunks over the limit.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::array::chunk_writer::ChunkWriter;
use crate::array::write_buffer::DirtyBytes;
use zarr_format::error::Result;
use zarr_format::grid::Coordinates;
use zarrfs_store::request_context::RequestContext;

/// The number of dirty bytes in all arrays of a mount, and its limit.
pub(super) struct WriteBudget {
    pub(super) dirty: Arc<DirtyBytes>,
    pub(super) limit: u64,
    /// The chunk writers of the arrays with dirty chunks, and of some arrays that no longer have any.
    pub(super) writers: Mutex<Vec<Weak<ChunkWriter>>>,
}

impl WriteBudget {
    /// Creates the write budget of a mount with `memory` bytes of memory: dirty chunks may use 1/4 of it.
    pub(super) fn new(memory: u64) -> WriteBudget {
        WriteBudget {
            dirty: Arc::default(),
            limit: memory / 4,
            writers: Mutex::default(),
        }
    }

    pub(super) fn register(&self, writer: &Arc<ChunkWriter>) {
        let mut writers = self.writers.lock();
        let is_known = |known: &Weak<ChunkWriter>| known.as_ptr() == Arc::as_ptr(writer);
        if writer.buffer.is_empty() || !writers.iter().any(is_known) {
            writers.retain(|other| {
                let other = other.upgrade();
                other.is_some_and(|other| {
                    !other.buffer.is_empty() && other.array.id != writer.array.id
                })
            });
            writers.push(Arc::downgrade(writer));
        }
    }

    /// Returns the chunk writers of the arrays with dirty chunks, and of some arrays that no longer have any.
    pub(super) fn writers(&self) -> Vec<Arc<ChunkWriter>> {
        self.writers
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Flushes the least recently written chunks until the dirty bytes are within the limit. A chunk that cannot be
    /// stored stays dirty, and a later `ChunkWriter::flush` returns the error; once there are twice as many dirty bytes
    /// as the limit allows, this function returns the error. The chunk `edited` of `writer` is not flushed, since it is
    /// about to be edited.
    pub(super) fn make_room(
        &self,
        context: &RequestContext,
        writer: &ChunkWriter,
        edited: &Coordinates,
    ) -> Result<()> {
        while self.dirty.bytes.load(Ordering::Relaxed) > self.limit {
            let Some((array, chunk)) = self.oldest(writer, edited, false) else {
                break;
            };
            // The error is not lost: the chunk is marked as failed, and a later flush returns the error.
            let _ = array.flush_alone(context, &chunk);
        }
        while self.dirty.bytes.load(Ordering::Relaxed) > self.limit.saturating_mul(2) {
            match self.oldest(writer, edited, true) {
                Some((array, chunk)) => array.flush_alone(context, &chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the least recently written chunk of any array, but not the chunk `edited` of `writer`; chunks that could
    /// not be stored are included only if `with_failed` is true.
    fn oldest(
        &self,
        writer: &ChunkWriter,
        edited: &Coordinates,
        with_failed: bool,
    ) -> Option<(Arc<ChunkWriter>, Coordinates)> {
        let oldest = self.writers().into_iter().filter_map(|array| {
            let edited = (array.array.id == writer.array.id).then_some(edited);
            let (touched, chunk) = array.buffer.oldest(edited, with_failed)?;
            Some((touched, array, chunk))
        });
        let (_, array, chunk) = oldest.min_by_key(|(touched, ..)| *touched)?;
        Some((array, chunk))
    }
}
