//! Small ranges of one object that lie side by side, fetched together.
//!
//! Variables with tiny chunks are common in netCDF files. At 20 ms latency, 1,000 chunks of 4 KiB took 1,000 requests
//! and 2.3 s from a web server in Python, although 32 run at a time. A small range whose neighbour touches it is
//! therefore read as part of an aligned block, which its neighbours find in memory.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::backend::reference::part::Part;
use crate::backend::reference::targets::Targets;
use crate::backend::reference::{Entry, Location, Reference};
use crate::backend::slice;
use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::single_flight::JOIN_TIMEOUT;
use crate::{ByteRange, Key, Object, Version};
use zarr_format::error::{Kind, Result};

/// The length from which a range is read alone, in bytes.
const SMALL: u64 = 64 << 10;

/// The distance of blocks, in bytes: at 100 Mbit/s as long as one request at 20 ms. A block also has the end of the last
/// range that begins in it.
const BLOCK: u64 = 256 << 10;

/// Blocks of objects, in memory.
pub(super) struct Blocks {
    cache: Arc<Cache<BlockId, Arc<Block>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct BlockId {
    url: Arc<str>,
    number: u64,
    /// The version of the object, which the store below keeps for its TTL.
    version: Version,
}

struct Block {
    bytes: Vec<u8>,
    version: Version,
    modified: Option<SystemTime>,
    _memory: Reservation,
}

impl Blocks {
    /// Begins without blocks.
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Blocks {
        Blocks {
            cache: Cache::new(memory.clone(), Priority::Speculative, None),
        }
    }

    /// Reads the bytes of a small part, or those within `span`, from the block around it. `None` if the part has to be
    /// read alone.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        targets: &Targets,
        part: &Part,
        span: Option<&ByteRange>,
    ) -> Result<Option<Object>> {
        let (Location::Url(url), Some(length)) = (&part.location, part.length) else {
            return Ok(None);
        };
        let target = targets.resolve(context, &part.location)?;
        let object_version = target.store.version(context, &target.key)?;
        let Some(version) = object_version.filter(|_| !target.is_local()) else {
            return Ok(None);
        };
        let number = part.offset / BLOCK;
        let start = number * BLOCK;
        let id = BlockId {
            url: url.clone(),
            number,
            version,
        };
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let loaded = self.cache.load(context, &id, deadline, || {
            let mut memory = self.cache.reserve(BLOCK + SMALL, deadline)?;
            let range = ByteRange::Span(start..start.saturating_add(BLOCK + SMALL));
            let object = target.store.get_range(context, &target.key, range)?;
            let object = object.ok_or_else(|| target.missing())?;
            memory.shrink(object.bytes.len() as u64);
            Ok(Arc::new(Block {
                bytes: object.bytes,
                version: object.version,
                modified: object.modified,
                _memory: memory,
            }))
        });
        let block = match loaded {
            Err(error) if error.kind() == Kind::TooLarge => return Ok(None),
            loaded => loaded?,
        };
        let first = part.offset - start;
        let is_whole = first + length <= block.bytes.len() as u64;
        if !is_whole || !block.version.may_be(version) {
            return Ok(None);
        }
        let span = span.map_or(0..length, |span| span.within(length));
        Ok(Some(Object {
            bytes: slice(&block.bytes, first + span.start, first + span.end),
            size: length,
            version: part.version(block.version),
            modified: block.modified,
        }))
    }
}

/// Whether a part is small and touches that of the chunk before or after `key`; `find` finds a key.
pub(super) fn is_side_by_side(
    key: &Key,
    part: &Part,
    find: impl Fn(&Key) -> Result<Entry>,
) -> bool {
    let (Location::Url(url), Some(length)) = (&part.location, part.length) else {
        return false;
    };
    if length >= SMALL {
        return false;
    }
    let touches = |other: &Part| {
        let end = |part: &Part| part.offset.checked_add(part.length?);
        let is_same = matches!(&other.location, Location::Url(other) if other == url);
        is_same && (end(part) == Some(other.offset) || end(other) == Some(part.offset))
    };
    neighbours(key).into_iter().flatten().any(|key| {
        let found = find(&key).ok().and_then(|entry| entry.reference);
        matches!(found, Some(Reference::Part(other)) if touches(&other))
    })
}

/// Returns the keys of the chunks after and before one along the last dimension.
fn neighbours(key: &Key) -> [Option<Key>; 2] {
    let bytes = key.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (prefix, number) = bytes.split_at(bytes.len() - digits.count());
    let number = std::str::from_utf8(number)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let named = |number: Option<u64>| {
        let number = number?.to_string();
        Key::new([prefix, number.as_bytes()].concat()).ok()
    };
    [
        named(number.and_then(|number| number.checked_add(1))),
        named(number.and_then(|number| number.checked_sub(1))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_have_neighbours() {
        let names = |key: &str| {
            neighbours(&Key::new(key).unwrap()).map(|key| key.map(|key| key.to_string()))
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(names("a/0.9"), [some("a/0.10"), some("a/0.8")]);
        assert_eq!(names("a/c/1/0"), [some("a/c/1/1"), None]);
        assert_eq!(names("a/.zarray"), [None, None]);
        assert_eq!(names("99999999999999999999"), [None, None]);
    }
}
