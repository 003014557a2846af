//! Reads a key's bytes from a range of another object, alone or with neighbours.
//!
//! Variables with tiny chunks are common in netCDF files. At 20 ms latency, 1,000 chunks of 4 KiB took 1,000 requests
//! and 2.3 s from a web server in Python, although 32 run at a time. So if a small range is adjacent to the range of a
//! neighbouring chunk, a whole aligned block is read. The neighbours then find their bytes in memory.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::backend::reference::targets::{Target, Targets};
use crate::backend::reference::{Entry, Reference};
use crate::backend::remote::headers::opaque_tag;
use crate::backend::slice;
use crate::request_context::RequestContext;
use crate::sync::budget::{MemoryBudget, Priority, Reservation};
use crate::sync::cache::Cache;
use crate::sync::single_flight::JOIN_TIMEOUT;
use crate::{ByteRange, EntryKind, Key, Meta, Object, Reader, Version};
use zarr_format::error::{Error, Kind, Result};

/// The range of an object that contains a key's bytes, as a reference states it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) location: Location,
    /// The start of the range, in bytes.
    pub(crate) offset: u64,
    /// The length of the range in bytes; `None` means up to the end of the object.
    pub(crate) length: Option<u64>,
    pub(crate) identity: PartIdentity,
}

/// The object to which a reference leads.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    /// A chunk object of the Icechunk repository itself.
    Repository(Key),
    /// An object outside the repository, by its URL.
    Url(Arc<str>),
}

/// How a reference recognizes that the object was not replaced.
#[derive(Clone, Debug)]
pub(crate) enum PartIdentity {
    /// The object never changes.
    Immutable,
    /// The object must have this ETag.
    ETag(Arc<str>),
    /// The object must not be modified after this time, in seconds since 1970.
    NotModifiedAfter(u32),
    /// The reference does not say which version of the object it means.
    Unknown,
}

impl Part {
    /// Returns the length of the range. If the range ends with the object, the object's length is requested.
    pub(super) fn length(&self, context: &RequestContext, targets: &Targets) -> Result<u64> {
        match self.length {
            Some(length) => Ok(length),
            None => Ok(self.meta(context, targets)?.size),
        }
    }

    /// Returns the metadata of the key's bytes.
    pub(super) fn meta(&self, context: &RequestContext, targets: &Targets) -> Result<Meta> {
        if let (Some(version), Some(size)) = (self.own_version(), self.length) {
            return Ok(Meta {
                kind: EntryKind::File,
                size,
                stored: size,
                modified: UNIX_EPOCH,
                version,
            });
        }
        let target = targets.resolve(context, &self.location)?;
        let meta = target.store.head(context, &target.key)?;
        let meta = meta.filter(|meta| meta.kind == EntryKind::File);
        let meta = meta.ok_or_else(|| target.missing())?;
        let rest = meta.size.saturating_sub(self.offset);
        let size = self.length.unwrap_or(rest);
        Ok(Meta {
            size,
            stored: size,
            version: self.version(meta.version),
            ..meta
        })
    }

    /// Returns the version of the key's bytes if the reference alone determines it, or `None` if the object does.
    fn own_version(&self) -> Option<Version> {
        let identity = match &self.identity {
            PartIdentity::Immutable => "immutable",
            PartIdentity::ETag(etag) => etag,
            PartIdentity::NotModifiedAfter(seconds) => &seconds.to_string(),
            PartIdentity::Unknown => return None,
        };
        Some(Version::of(self.name(identity).as_bytes()))
    }

    /// Returns the version of the key's bytes, given the version of the whole object.
    pub(super) fn version(&self, object: Version) -> Version {
        let of_object = || object.of_part(self.name("").as_bytes());
        self.own_version().unwrap_or_else(of_object)
    }

    /// Returns a text that identifies the range and the version of its object.
    fn name(&self, identity: &str) -> String {
        let (location, offset) = (&self.location, self.offset);
        let length = self.length.unwrap_or(u64::MAX);
        format!("{offset} {length} {identity} {}", location.name())
    }

    /// Reads the range, or only the bytes of it within `span`. The error is `Corrupt` if the object is missing, too
    /// short, or not the one for which the reference was made.
    pub(super) fn read(
        &self,
        context: &RequestContext,
        targets: &Targets,
        span: Option<&ByteRange>,
    ) -> Result<Object> {
        let target = targets.resolve(context, &self.location)?;
        let size = self.length(context, targets)?;
        let span = span.map_or(0..size, |span| span.within(size));
        let start = self.offset.checked_add(span.start);
        let end = self.offset.checked_add(span.end);
        let (Some(start), Some(end)) = (start, end) else {
            return Err(target.too_short(self.offset, size));
        };
        let range = ByteRange::Span(start..end);
        let object = target.store.get_range(context, &target.key, range)?;
        let object = object.ok_or_else(|| target.missing())?;
        self.check_identity(&target, &object)?;
        if object.bytes.len() as u64 != end - start {
            return Err(target.too_short(self.offset, size));
        }
        Ok(Object {
            bytes: object.bytes,
            size,
            version: self.version(object.version),
            modified: object.modified,
        })
    }

    /// Reads the range, or only the bytes of it within `span`, through the cache `blocks` if it is given.
    pub(super) fn read_from(
        &self,
        context: &RequestContext,
        blocks: Option<&Blocks>,
        targets: &Targets,
        span: Option<&ByteRange>,
    ) -> Result<Object> {
        if let Some(blocks) = blocks
            && let Some(object) = blocks.read(context, targets, self, span)?
        {
            return Ok(object);
        }
        self.read(context, targets, span)
    }

    /// Returns `Corrupt` if the object is not the one for which the reference was made.
    fn check_identity(&self, target: &Target, object: &Object) -> Result<()> {
        let is_same = match &self.identity {
            PartIdentity::Immutable | PartIdentity::Unknown => true,
            PartIdentity::ETag(etag) => {
                let expected = opaque_tag(etag).map(|tag| Version::of(tag.as_bytes()));
                // Local files and some servers have no ETags, so a replaced object is not detected there.
                let has_etag = !target.is_local() && object.version.is_lasting();
                !has_etag || expected.is_none_or(|expected| object.version == expected)
            }
            PartIdentity::NotModifiedAfter(seconds) => {
                let limit = UNIX_EPOCH + Duration::from_secs(u64::from(*seconds) + 1);
                object.modified.is_none_or(|modified| modified < limit)
            }
        };
        if is_same {
            return Ok(());
        }
        let why = format!(
            "{} was changed after the reference to it was made",
            target.name()
        );
        Err(Error::corrupt("", why))
    }
}

impl Location {
    /// Returns the object's key or URL.
    fn name(&self) -> String {
        match self {
            Location::Repository(key) => key.to_string(),
            Location::Url(url) => url.to_string(),
        }
    }
}

/// Reads the range of an object that contains a key's bytes.
pub(super) struct PartReader {
    pub(super) part: Part,
    /// The cache through which the range is read; `None` if it is requested alone.
    pub(super) blocks: Option<Arc<Blocks>>,
    pub(super) targets: Arc<Targets>,
    pub(super) key: Key,
    /// The metadata of the key's bytes when the key was opened.
    pub(super) meta: Meta,
}

impl Reader for PartReader {
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.saturating_add(len as u64).min(self.meta.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let span = ByteRange::Span(offset..end);
        let blocks = self.blocks.as_deref();
        let object = self
            .part
            .read_from(context, blocks, &self.targets, Some(&span));
        let object = object.map_err(|error| error.about(&self.key))?;
        if !object.version.may_be(self.meta.version) {
            let why = "was changed while it was open";
            return Err(Error::new(Kind::Changed, &self.key, why));
        }
        Ok(object.bytes)
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}

/// A range of at least this length, in bytes, is requested alone, not with its neighbours.
const SMALL: u64 = 64 << 10;

/// Distance between the starts of two cached blocks, in bytes: at 100 Mbit/s its transfer takes as long as a request at
/// 20 ms latency. A block is longer by `SMALL`, to contain the end of the last range that begins in it.
const BLOCK: u64 = 256 << 10;

/// Caches blocks of objects that contain many small ranges.
pub(super) struct Blocks {
    cache: Arc<Cache<BlockId, Arc<Block>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct BlockId {
    url: Arc<str>,
    number: u64,
    /// The object's version, so that a replaced object gets a new block.
    version: Version,
}

struct Block {
    bytes: Vec<u8>,
    version: Version,
    modified: Option<SystemTime>,
    _memory: Reservation,
}

impl Blocks {
    pub(super) fn new(memory: &Arc<MemoryBudget>) -> Blocks {
        Blocks {
            cache: Cache::new(memory.clone(), Priority::Speculative, None),
        }
    }

    /// Reads a small range, or only the bytes of it within `span`, from the cached block in which it begins. Returns
    /// `None` if the range must be requested alone.
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

/// Whether the range of `key` is small and adjacent to the range of a neighbouring chunk. `find` returns references.
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

/// Returns the keys of the next and the previous chunk along the last dimension.
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
    fn the_neighbours_of_a_chunk_are_found() {
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
