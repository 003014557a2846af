//! Room in the memory budget for what is read of chunks: taken before it is read.

use std::time::Instant;

use crate::context::{CheckContext, MEMORY_WAIT};
use zarr_format::codec::{Pipeline, ShardLevel};
use zarr_format::error::{Error, Result};
use zarrfs_store::sync::budget::Reservation;

/// The largest shard that is read whole where all of its inner chunks are read, in bytes.
pub(super) const MAX_WHOLE: u64 = 32 << 20;

/// What is noted of an entry of an index, in bytes, at most.
const ENTRY_BYTES: u64 = 96;

/// Takes room for a chunk as it is stored and as it is decoded; `TooLarge` if it will never be there.
pub(super) fn room_of_chunk(
    context: &CheckContext,
    size: u64,
    pipeline: &Pipeline,
) -> Result<Reservation> {
    reserve(context, size.saturating_add(decoded_bytes(size, pipeline)))
}

/// Takes room for a shard: its bytes if it is read whole, an inner chunk, and the indexes; `TooLarge` if it will never be
/// there.
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

/// Takes room for the indexes of a shard alone; `TooLarge` if it will never be there.
pub(super) fn room_of_indexes(
    context: &CheckContext,
    size: u64,
    pipeline: &Pipeline,
) -> Result<Reservation> {
    reserve(context, index_bytes(size, pipeline.shards()))
}

/// Returns how many bytes the indexes of a shard of `size` bytes take, with what is noted of their entries.
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

/// Returns how many bytes a chunk takes while it is decoded. Elements without a fixed length are bounded by far more than
/// they ever take, so that some times what is stored counts.
fn decoded_bytes(size: u64, pipeline: &Pipeline) -> u64 {
    let decoded = pipeline.chunk_bytes() as u64;
    let decoded = if pipeline.has_fixed_length() {
        decoded
    } else {
        decoded.min(size.saturating_mul(64).max(1 << 20))
    };
    decoded.saturating_mul(pipeline.decoded_copies())
}

/// Takes room in the memory budget; `TooLarge` for more than three quarters of it, since nodes and what is noted of
/// copies stay in it meanwhile.
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
