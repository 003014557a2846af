//! Bounds what all arrays together have written and not stored.
//!
//! When they hold more than their share of the memory, the chunks that were written longest ago are stored at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use crate::array::chunk_writer::ChunkWriter;
use crate::error::Result;
use crate::grid::Coordinates;
use crate::request_context::RequestContext;

/// Chunks that are not stored yet may hold the memory divided by this.
pub(super) const DIRTY_SHARE: u64 = 4;

/// What all arrays together have still to store.
pub(super) struct WriteBudget {
    /// Bytes of chunks.
    bytes: AtomicU64,
    /// Counts writes, which orders them.
    clock: AtomicU64,
    /// Whether writes are refused: what is here is stored for the last time.
    is_closed: AtomicBool,
    /// The bytes that chunks may hold.
    share: u64,
    /// The arrays that have them.
    writers: Mutex<Vec<Weak<ChunkWriter>>>,
}

impl WriteBudget {
    /// Begins with nothing to be stored, beside all that counts in `memory` bytes.
    pub(super) fn new(memory: u64) -> Arc<WriteBudget> {
        Arc::new(WriteBudget {
            bytes: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            share: memory / DIRTY_SHARE,
            writers: Mutex::default(),
        })
    }

    /// Returns the bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Refuses all writes from now on. Those that an array has taken are in its table.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether writes are refused.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Counts bytes of chunks.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of chunks no more.
    pub(super) fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a write; returns how many there were before.
    pub(super) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the arrays that have something to be stored, and some that no longer have.
    pub(super) fn writers(&self) -> MutexGuard<'_, Vec<Weak<ChunkWriter>>> {
        self.writers.lock()
    }

    /// Registers an array that has something to be stored.
    pub(super) fn note_writer(&self, array: &Arc<ChunkWriter>) {
        let mut writers = self.writers();
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

    /// Stores the chunks that were written longest ago until written chunks hold no more than their share of the
    /// memory. A chunk that cannot be stored stays, and `ChunkWriter::flush` returns the error; once chunks hold twice
    /// their share, it is returned here. The chunk `kept` is left out: its writer will go on.
    pub(super) fn make_room(
        &self,
        context: &RequestContext,
        writer: &ChunkWriter,
        kept: &Coordinates,
    ) -> Result<()> {
        while self.bytes() > self.share {
            let Some((array, chunk)) = self.oldest(writer, kept, false) else {
                break;
            };
            // The failure is noted with the chunk.
            let _ = array.flush_alone(context, &chunk);
        }
        while self.bytes() > self.share.saturating_mul(2) {
            match self.oldest(writer, kept, true) {
                Some((array, chunk)) => array.flush_alone(context, &chunk)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the chunk of any array that was written longest ago; chunks that could not be stored only
    /// `with_failed`.
    fn oldest(
        &self,
        writer: &ChunkWriter,
        kept: &Coordinates,
        with_failed: bool,
    ) -> Option<(Arc<ChunkWriter>, Coordinates)> {
        let writers: Vec<Arc<ChunkWriter>> =
            self.writers().iter().filter_map(Weak::upgrade).collect();
        let oldest = writers.into_iter().filter_map(|array| {
            let kept = (array.array.id == writer.array.id).then_some(kept);
            let (touched, chunk) = array.buffer.oldest(kept, with_failed)?;
            Some((touched, array, chunk))
        });
        let (_, array, chunk) = oldest.min_by_key(|(touched, ..)| *touched)?;
        Some((array, chunk))
    }
}
