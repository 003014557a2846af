//! Zarr stores map keys to bytes in folders, archives, buckets and web servers.
//!
//! A [`Store`] is the abstract store interface of the Zarr specifications. [`backend`] implements it for folders, zip
//! archives, buckets, web servers and memory. [`layer`] has the wrappers over a store: the metadata cache, the disk
//! cache, read-ahead, counters. [`open`] builds a stack of them for a path or URL. [`sync`] has the caches, pools and
//! limits that threads share.
//!
//! A missing key is `Ok(None)`, and an error never means "missing". Each answer carries the version of the object, so
//! that caches can tell whether their copy is stale. This crate knows nothing of groups and arrays.
//!
//! ```
//! use std::sync::Arc;
//!
//! use zarrfs_store::request_context::UNLIMITED;
//! use zarrfs_store::stats::Stats;
//! use zarrfs_store::{Key, StoreConfig};
//!
//! # fn main() -> zarr_format::error::Result<()> {
//! let stats = Arc::new(Stats::default());
//! let store = zarrfs_store::open(&UNLIMITED, "../../samples/climate.zarr", &StoreConfig::default(), &stats)?;
//! let metadata = store.get(&UNLIMITED, &Key::new("tas/zarr.json")?, 1 << 20)?;
//! assert!(metadata.is_some_and(|object| object.bytes.starts_with(b"{")));
//! assert!(store.get(&UNLIMITED, &Key::new("no/such/key")?, 1 << 20)?.is_none());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs, unreachable_pub, clippy::all)]
#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::expect_used,
        clippy::panic,
        clippy::unwrap_used,
        reason = "a test that panics has failed, and its numbers are small"
    )
)]

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::request_context::RequestContext;
use crate::sync::clock::Clock;
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::is_in_node_folder;

pub mod failures;
pub mod known;
pub mod request_context;
pub mod spelling;
pub mod stats;
pub mod sync;

pub mod backend;
mod change_log;
pub mod condition;
pub mod holes;
pub mod layer;
pub mod listing;
mod location;
mod not_shown;
pub mod path_locks;
mod replacements;
mod scattered;
mod stack;
pub mod tree;
mod version;

pub use change_log::{ChangeLog, Dependencies, LogPosition, MovingPosition};
pub use condition::{Condition, ETag, PutBody};
pub use location::{local_folder, local_path, normalized, place, shown};
pub use not_shown::{NotShown, NotShownEntries, NotShownReason};
pub use path_locks::PathLocks;
pub use replacements::Replacements;
pub use scattered::deal_out;
pub use stack::{RemoteConfig, StoreConfig, StoreStack, open, open_cache_dir};
pub use tree::Tree;
pub use version::{StoreVersion, Version};
pub use zarr_format::{EncodedBy, Key};

/// The metadata of an object: everything but its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// File, directory or link.
    pub kind: EntryKind,
    /// Length in bytes; 0 for a directory that is not an object as well.
    pub size: u64,
    /// Bytes allocated on the medium.
    pub stored: u64,
    /// Time of the last change; `UNIX_EPOCH` if the store does not say.
    pub modified: SystemTime,
    /// Version of the content.
    pub version: Version,
}

impl Meta {
    /// Returns version and length, which identify the content.
    pub(crate) fn content(&self) -> (Version, u64) {
        (self.version, self.size)
    }

    /// Whether both may describe the same content. Size and time count if only one of them has an ETag, since some
    /// listings have none.
    pub(crate) fn may_be_of(&self, other: &Meta) -> bool {
        let is_same_time = || {
            let lacks_one = self.version.is_lasting() != other.version.is_lasting();
            lacks_one && self.seconds() != 0 && self.seconds() == other.seconds()
        };
        self.size == other.size && (self.version.may_be(other.version) || is_same_time())
    }

    /// Returns the time of the last change in seconds since 1970; 0 if the store does not say.
    fn seconds(&self) -> u64 {
        let since = self.modified.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// Returns the metadata of a prefix that is not an object.
    pub fn prefix() -> Meta {
        Meta {
            kind: EntryKind::Directory,
            size: 0,
            stored: 0,
            modified: UNIX_EPOCH,
            version: Version::NONE,
        }
    }
}

/// The type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// An object.
    File,
    /// A prefix of other keys.
    Directory,
    /// A symbolic link that stays inside the store (local stores).
    Link,
}

/// An object's bytes.
#[derive(Clone, Debug)]
pub struct Object {
    /// The whole object, or the requested range.
    pub bytes: Vec<u8>,
    /// Length of the whole object.
    pub size: u64,
    /// Version of the content.
    pub version: Version,
    /// Time of the last change, if the store sends it.
    pub modified: Option<SystemTime>,
}

impl Object {
    /// Returns version and length, which identify the content.
    pub(crate) fn content(&self) -> (Version, u64) {
        (self.version, self.size)
    }

    /// Returns the metadata that came with the bytes.
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            kind: EntryKind::File,
            size: self.size,
            stored: self.size,
            modified: self.modified.unwrap_or(UNIX_EPOCH),
            version: self.version,
        }
    }

    /// Returns an object without bytes that has the metadata `meta`.
    pub(crate) fn without_bytes(meta: &Meta) -> Object {
        Object {
            bytes: Vec::new(),
            size: meta.size,
            version: meta.version,
            modified: Some(meta.modified),
        }
    }
}

/// The part of an object that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From start to end, in bytes; clamped to the object's length.
    Span(Range<u64>),
    /// The last N bytes.
    Suffix(u64),
}

impl ByteRange {
    /// Returns the range of offsets in an object of `size` bytes.
    pub fn within(&self, size: u64) -> Range<u64> {
        match self {
            ByteRange::Span(span) => {
                span.start.min(size)..span.end.min(size).max(span.start.min(size))
            }
            ByteRange::Suffix(length) => size.saturating_sub(*length)..size,
        }
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The last component of its key.
    pub name: Vec<u8>,
    /// File, directory or link.
    pub kind: EntryKind,
    /// The cursor after this name; stable while the directory does not change. Never 0.
    pub cursor: u64,
    /// The metadata that `head` would return, if the listing has them.
    pub meta: Option<Meta>,
}

/// A directory read name by name, in constant memory.
pub trait Listing: Send {
    /// Returns the next name, or `None` at the end.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>>;
    /// Continues after the name with this `cursor`; 0 is the beginning.
    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()>;
    /// Whether `next` may have to wait for the network.
    fn may_wait(&self) -> bool {
        true
    }
    /// Returns the names that the listing omits although their objects may exist.
    fn left_out(&self) -> LeftOut {
        LeftOut::Nothing
    }
}

/// The names that a listing omits: a name of this kind that is not listed may still exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// No names: the listing is complete.
    Nothing,
    /// Names that begin with a dot, which nginx and Apache hide.
    DotNames,
    /// Names that begin with a dot, except metadata documents, which were requested one by one.
    DotNamesButDocuments,
    /// Any name: the store cannot list, and the names come from another source, such as metadata.
    Untold,
}

impl LeftOut {
    /// Whether an object of this name may exist although it is not listed.
    pub fn may_have(self, name: &[u8]) -> bool {
        let is_hidden = name.starts_with(b".");
        match self {
            LeftOut::Nothing => false,
            LeftOut::DotNames => is_hidden,
            LeftOut::DotNamesButDocuments => is_hidden && !is_in_node_folder(name),
            LeftOut::Untold => true,
        }
    }
}

/// A recursive listing of all objects under a prefix, page by page.
pub trait FlatListing: Send {
    /// Returns the next page of objects with their full keys, or `None` after the last page.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>>;
    /// Whether the last page was returned; makes no request.
    fn has_ended(&self) -> bool;
}

/// An open object. Its content at the time of opening stays readable when the key is replaced or erased, or reads fail
/// with `Changed`. A local file that is overwritten in place shows its new bytes: a caller that needs all reads to be
/// of one content compares `meta` after the last read.
pub trait Reader: Send + Sync {
    /// Returns up to `len` bytes at `offset`; fewer only at the end of the object.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Fills several buffers with the bytes from `offset` on. Returns the number of bytes, fewer than requested only at
    /// the end of the object.
    fn read_scattered(
        &self,
        context: &RequestContext,
        offset: u64,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(context, offset, wanted)?;
        deal_out(&bytes, parts);
        Ok(bytes.len())
    }
    /// Returns the bytes of several ranges, which must ascend and not overlap. One request reads the gaps between them
    /// as well, and its memory is held until the last range is dropped. A range is shorter than requested only at the
    /// end of the object.
    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        scattered::read_together(ranges, |offset, length| {
            self.read_at(context, offset, length)
        })
    }
    /// Returns the present metadata.
    fn meta(&self, context: &RequestContext) -> Result<Meta>;
    /// Returns the local file that contains exactly these bytes, or `None` if there is no such file.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Properties of a store as a whole. A layer passes on those of the store below it, or a changed copy.
#[derive(Clone)]
pub struct StoreInfo {
    /// Whether `list` works and `head` finds prefixes: some stores cannot list their keys.
    pub lists: bool,
    /// Number of keys to request or change concurrently.
    pub concurrency: usize,
    /// TTL of cached metadata. A change made through the store invalidates them earlier.
    pub freshness: Duration,
    /// The local folder that holds the store, if there is one.
    pub folder: Option<PathBuf>,
    /// The server that options, the environment or a profile name, if the URL does not name it.
    pub server: Option<Arc<str>>,
    /// Why the store is read-only, and the remedy; `None` if it can be changed.
    pub unchangeable: Option<&'static str>,
    /// Entries of the store that have no key.
    pub not_shown: Arc<NotShownEntries>,
    /// Log of the changes made through the store.
    pub changes: Arc<ChangeLog>,
    /// Number of times that the whole store was replaced.
    pub replacements: Arc<Replacements>,
    /// Whether the server honours range requests; otherwise a request for a part may fetch the whole object.
    pub sends_parts: Arc<AtomicBool>,
    /// The clock for TTLs.
    pub clock: Clock,
}

/// Number of keys of a local store to request or change concurrently.
const LOCAL_CONCURRENCY: usize = 16;

/// A TTL of at least this means an immutable store.
const NEVER_CHANGES: Duration = Duration::from_secs(365 * 24 * 3600);

/// The age of an answer: its TTL starts here, and later changes invalidate it.
#[derive(Clone, Copy, Debug)]
pub struct QueryStamp {
    /// Time of the request for its oldest part.
    pub asked: Instant,
    /// Position of the change log before that request.
    pub position: LogPosition,
}

impl StoreInfo {
    /// Describes a store that can list its keys and has no changes yet.
    pub fn new(freshness: Duration) -> StoreInfo {
        StoreInfo {
            lists: true,
            concurrency: LOCAL_CONCURRENCY,
            freshness,
            folder: None,
            server: None,
            unchangeable: None,
            not_shown: Arc::default(),
            changes: Arc::default(),
            replacements: Arc::default(),
            sends_parts: Arc::new(AtomicBool::new(true)),
            clock: Clock::default(),
        }
    }

    /// Runs a query; returns the answer and its stamp, which is older than now if a layer answers from its cache.
    pub fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext) -> T,
    ) -> (T, QueryStamp) {
        let position = self.changes.position();
        let (answer, asked) = context.timed(self.clock.now(), question);
        (answer, QueryStamp { asked, position })
    }

    /// Returns `ReadOnly` if the store cannot be changed; `name` is the subject of the error.
    pub fn check_changeable(&self, name: &str) -> Result<()> {
        let why = self
            .unchangeable
            .map(|why| Error::new(Kind::ReadOnly, name, why));
        why.map_or(Ok(()), Err)
    }

    /// Returns the remaining TTL of an answer that was requested at `asked`.
    pub fn time_left(&self, asked: Instant) -> Duration {
        let age = self.clock.now().saturating_duration_since(asked);
        self.freshness.saturating_sub(age)
    }

    /// Whether the store is immutable, by the TTL that the user gave.
    pub fn never_changes(&self) -> bool {
        self.freshness >= NEVER_CHANGES
    }

    /// Whether an answer that was requested at `asked` is still within its TTL.
    pub fn is_fresh(&self, asked: Instant) -> bool {
        !self.time_left(asked).is_zero()
    }
}

/// The abstract store interface of the Zarr specifications: get, get a range, list a directory, size.
///
/// A key may be an object and a prefix of other keys at once: object stores have such keys, file systems do not.
/// `get`, `get_range`, `version`, `etag` and `open` use the object. `head` and `list` show a `Directory` with the size
/// and version of the object, so that a path can reach the keys below. A store may omit such objects if it says so.
pub trait Store: Send + Sync {
    /// Returns a whole object of at most `limit` bytes (`TooLarge` if it is longer), or `None` if the key is missing or
    /// only a prefix.
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>>;

    /// Returns a part of an object, or `None` if the key is missing or only a prefix.
    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>>;

    /// Returns the metadata, or `None` if the key is missing. A prefix of other keys is a `Directory`, even if it is an
    /// object as well. If the context may not wait, the answer comes from memory or is `WouldWait`.
    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>>;

    /// Returns the version of an object, or `None` if the key is missing or only a prefix. Cheaper than `head` in
    /// stores that need separate requests for objects and prefixes.
    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>>;

    /// Opens an object for reading; `NotFound` if it is missing. `known`, recent metadata of this store, may save a
    /// request; reads fail with `Changed` if the version differs by then.
    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>>;

    /// Lists the direct children of a prefix; `NotADirectory` for an object, `NotFound` if the prefix is missing or
    /// below an object.
    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>>;

    /// Lists all objects below a prefix, from the folder `from` or an earlier one on. Returns `None` if listing each
    /// folder is cheaper.
    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>>;

    /// Returns the target of a symbolic link; `Invalid` if the key is not a link.
    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>>;

    /// Whether the key is a symbolic link to one of its own ancestors, so that a walk would not end.
    fn leads_back(&self, _context: &RequestContext, _key: &Key) -> Result<bool> {
        Ok(false)
    }

    /// Returns the ETag of an object, or `None` if the key is missing or only a prefix. Never from a cache.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>>;

    /// Puts an object atomically if the condition holds (`Changed` if not). Returns the new ETag.
    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag>;

    /// Puts a chunk like `put`. A store that commits changes later records the metadata that the chunk was encoded by,
    /// as a precondition of the commit.
    fn put_chunk(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        _encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        self.put(context, key, body, condition)
    }

    /// Erases an object if the condition holds (`Changed` if not). A missing object is an error only if the condition
    /// demands one.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()>;

    /// Removes an empty folder, in stores that have folders in addition to keys.
    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()>;

    /// Makes all puts and erasures durable against a loss of power; a no-op if the store's answers guarantee that
    /// already.
    fn sync(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    /// Drops the cached answers for a key whose bytes cannot be decoded, and the cached answer for `range`: a proxy may
    /// have truncated the response with a correct Content-Length and the right version. Makes no request.
    fn doubt(&self, _key: &Key, _range: Option<&ByteRange>) {}

    /// Returns the properties of the store.
    fn info(&self) -> &StoreInfo;
}

/// Returns `Unavailable` if the length differs from the known length of the same version: a caching proxy may serve
/// half of a response as if it were complete.
pub(crate) fn check_length(key: &Key, found: (Version, u64), known: (Version, u64)) -> Result<()> {
    if found.0 != known.0 || found.1 == known.1 {
        return Ok(());
    }
    let text = format!(
        "{} bytes came where the same version has {}",
        found.1, known.1
    );
    Err(Error::unavailable(key, text))
}

/// Returns the error for a key that is not a symbolic link.
pub(crate) fn not_a_link(key: &Key) -> Error {
    Error::invalid(key, "not a symbolic link")
}

/// Hints about future reads, and answers that need no request. A separate object next to the store.
///
/// A hint never changes a result, only its latency.
pub trait Hints: Send + Sync {
    /// Prefetches documents that will be read soon; a store on the network may fetch them concurrently. Returns at
    /// once; the reads report the errors.
    fn prefetch(&self, keys: &[Key]);

    /// Announces queries about everything below these folders of `top`. A store on the network may list them with a few
    /// requests, and returns when that is done; the queries report the errors.
    fn learn_below(&self, _context: &RequestContext, _top: &Key, _folders: &[Key]) {}

    /// Returns all objects below a folder, like a recursive listing, or `None` if that needs a request.
    fn known_below(&self, _context: &RequestContext, _folder: &Key) -> Option<Vec<(Key, Meta)>> {
        None
    }
}

/// The hints of a store without prefetching.
pub struct NoHints;

impl Hints for NoHints {
    fn prefetch(&self, _keys: &[Key]) {}
}
