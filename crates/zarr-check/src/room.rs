//! Reserves memory for chunks and shards before they are read.

use std::time::Instant;

use crate::context::{CheckContext, MEMORY_WAIT};
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Result};
use zarrfs_store::sync::budget::Reservation;

/// A shard of at most this many bytes is read whole if all of its inner chunks are needed.
pub(super) const MAX_WHOLE: u64 = 32 << 20;

/// Upper bound of the memory for an index entry, in bytes.
const ENTRY_BYTES: u64 = 96;

/// Reserves memory for the stored and the decoded chunk; fails with `TooLarge` if that can never fit.
pub(super) fn room_of_chunk(
    context: &CheckContext,
    size: u64,
    pipeline: &Pipeline,
) -> Result<Reservation> {
    reserve(context, size.saturating_add(decoded_bytes(size, pipeline)))
}

/// Reserves memory for a shard: its bytes if it is read whole, one inner chunk, and the indexes. Fails with
/// `TooLarge` if that can never fit.
pub(super) fn room_of_shard(
    context: &CheckContext,
    size: u64,
    pipeline: &Pipeline,
) -> Result<Reservation> {
    let whole = if size <= MAX_WHOLE { size } else { 0 };
    let encoded = size.min(pipeline.stored_bound());
    let inner = encoded.saturating_add(decoded_bytes(encoded, pipeline));
    let indexes = index_bytes(size, pipeline.shards());
    reserve(context, whole.saturating_add(inner).saturating_add(indexes))
}

/// Reserves memory for only the indexes of a shard; fails with `TooLarge` if that can never fit.
pub(super) fn room_of_indexes(
    context: &CheckContext,
    size: u64,
    pipeline: &Pipeline,
) -> Result<Reservation> {
    reserve(context, index_bytes(size, pipeline.shards()))
}

/// Returns the bytes of memory for the indexes of a shard of `size` bytes and their entries.
fn index_bytes(size: u64, levels: &[ShardLevel]) -> u64 {
    let bytes = levels.iter().map(|level| {
        let entries = level.count() as u64;
        let encoded = level.index_bytes() as u64;
        encoded
            .saturating_mul(2)
            .saturating_add(entries.saturating_mul(ENTRY_BYTES))
    });
    let all = bytes.fold(0, u64::saturating_add);
    all.min(size.saturating_mul(ENTRY_BYTES))
}

/// Returns the bytes of memory for decoding a chunk. Variable-length elements have a bound that they never reach, so
/// a multiple of the stored size counts if it is smaller.
fn decoded_bytes(size: u64, pipeline: &Pipeline) -> u64 {
    let decoded = pipeline.chunk_bytes() as u64;
    let decoded = if pipeline.has_fixed_length() {
        decoded
    } else {
        decoded.min(size.saturating_mul(64).max(1 << 20))
    };
    decoded.saturating_mul(pipeline.decoded_copies())
}

/// Reserves memory from the budget. Fails with `TooLarge` for more than 3/4 of it, since nodes and the keys of copies
/// need the rest.
fn reserve(context: &CheckContext, bytes: u64) -> Result<Reservation> {
    let most = context.memory.limit() / 4 * 3;
    if bytes > most {
        let option = context.memory.option();
        let why = format!(
            "needs {bytes} bytes at once, of --memory, which is {option}, {most} are for chunks: give more --memory"
        );
        return Err(Error::too_large("", why));
    }
    context.memory.reserve(bytes, Instant::now() + MEMORY_WAIT)
}
