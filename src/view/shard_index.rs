//! The index of a shard as JSON: where it lies, whether it is sound, and where its inner chunks are.

use serde_json::{Map, Value, json};

use crate::array::ShardFile;
use crate::error::Result;
use crate::grid::joined_indices;
use crate::json_text::render;

/// The most inner chunks that the text of an index names.
const MAX_TOLD: usize = 100_000;

/// Returns the text of `index.json`. Offsets count from the beginning of the shard, but for its own, which is that in the
/// stored object; offsets and lengths are in bytes.
pub(super) fn index_text(shard: &ShardFile) -> Result<Vec<u8>> {
    let place = shard.index_range();
    let state = match (shard.fault(), shard.has_checksum()) {
        (None, true) => "correct",
        (None, false) => "none",
        (Some(error), true) if error.detail().contains("checksum") => "wrong",
        (Some(_), _) => "not read",
    };
    let mut members = json!({
        "key": String::from_utf8_lossy(shard.key.as_bytes()),
        "offset": shard.bytes().start,
        "length": shard.byte_length(),
        "index": {
            "offset": place.as_ref().map(|place| place.start),
            "length": place.as_ref().map(|place| place.end - place.start),
            "checksum": state,
        },
        "chunks_per_shard": shard.inner().counts(),
    });
    let more = match shard.fault() {
        Some(error) => json!({"error": error.to_string()}),
        None => told_chunks(shard),
    };
    if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
        members.extend(more);
    }
    Ok(render(&members))
}

/// Returns where each stored inner chunk lies, and how many bytes nothing uses.
fn told_chunks(shard: &ShardFile) -> Value {
    let mut chunks = Map::new();
    let mut used: Vec<(u64, u64)> = Vec::new();
    used.extend(shard.index_range().map(|place| (place.start, place.end)));
    let mut stored = 0_u64;
    for number in 0..shard.inner().len() {
        let told = match shard.range(number) {
            Ok(None) => continue,
            Ok(Some(range)) => {
                used.push((range.start, range.end));
                json!({"offset": range.start, "length": range.end - range.start})
            }
            Err(error) => json!({"error": error.detail()}),
        };
        stored += 1;
        if chunks.len() < MAX_TOLD {
            chunks.insert(joined_indices(&shard.indices(number)), told);
        }
    }
    let not_told = stored - chunks.len() as u64;
    json!({
        "stored_chunks": stored,
        "unused": unused(shard.byte_length(), used),
        "chunks": chunks,
        "chunks_not_told": not_told,
    })
}

/// Returns how many bytes of a length lie in none of these ranges.
fn unused(length: u64, mut used: Vec<(u64, u64)>) -> u64 {
    used.sort_unstable();
    let (mut end, mut unused) = (0, 0);
    for (from, to) in used {
        unused += from.saturating_sub(end);
        end = end.max(to);
    }
    unused + length.saturating_sub(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_between_and_behind_ranges_are_unused() {
        assert_eq!(unused(10, vec![(6, 8), (0, 2), (1, 3), (0, 1)]), 3 + 2);
        assert_eq!(unused(3, vec![]), 3);
        assert_eq!(unused(3, vec![(0, 3)]), 0);
    }
}
