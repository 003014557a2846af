//! The interface of a store, its properties, and hints about future reads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::backend::zip::ArchiveLayout;
use crate::request_context::RequestContext;
use crate::sync::clock::Clock;
use crate::{
    ArchiveGeneration, ByteRange, ChangeLog, Condition, ETag, EncodedBy, FlatListing,
    HiddenEntries, Key, Listing, Meta, Object, PutBody, QueryStamp, Reader, Version,
};
use zarr_format::error::{Error, Kind, Result};

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
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    /// Returns the target of a symbolic link; `Invalid` if the key is not a link.
    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(key, "not a symbolic link"))
    }

    /// Whether the key is a symbolic link to one of its own ancestors, so that a walk would not end.
    fn is_symlink_cycle(&self, _context: &RequestContext, _key: &Key) -> Result<bool> {
        Ok(false)
    }

    /// Returns the ETag of an object, or `None` if the key is missing or only a prefix. Never from a cache.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>>;

    /// Puts an object atomically if the condition holds (`Changed` if not). Returns the new ETag. `ReadOnly` in a store
    /// that cannot be changed.
    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        _body: PutBody<'_>,
        _condition: &Condition,
    ) -> Result<ETag> {
        Err(self.info().read_only(key))
    }

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
    /// demands one. `ReadOnly` in a store that cannot be changed.
    fn erase(&self, _context: &RequestContext, key: &Key, _condition: &Condition) -> Result<()> {
        Err(self.info().read_only(key))
    }

    /// Removes an empty folder, in stores that have folders in addition to keys.
    fn erase_folder(&self, _context: &RequestContext, _prefix: &Key) -> Result<()> {
        Ok(())
    }

    /// Makes all puts and erasures durable against a loss of power; a no-op if the store's answers guarantee that
    /// already.
    fn sync(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    /// Drops the cached answers for a key whose bytes cannot be decoded, and the cached answer for `range`: a proxy may
    /// have truncated the response with a correct Content-Length and the right version. Makes no request.
    fn drop_cached(&self, _key: &Key, _range: Option<&ByteRange>) {}

    /// Returns the properties of the store.
    fn info(&self) -> &StoreInfo;
}

/// The TTL of objects that never change: no mount lives that long.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

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
    /// Distinguishes the store from other stores with the same URL. It is the bucket's server, if options, the
    /// environment or a profile name it, or a digest of the credentials for a web server.
    pub server: Option<Arc<str>>,
    /// Why the store is read-only, and the remedy; `None` if it can be changed.
    pub unchangeable: Option<&'static str>,
    /// The layout of an archive with the name `.ozx`.
    pub ozx_layout: Option<Arc<ArchiveLayout>>,
    /// Entries of the store that have no key.
    pub hidden_entries: Arc<HiddenEntries>,
    /// Log of the changes made through the store.
    pub changes: Arc<ChangeLog>,
    /// Number of times that the whole store was replaced.
    pub archive_generation: Arc<ArchiveGeneration>,
    /// Whether the server honours range requests; otherwise a request for a part may fetch the whole object.
    pub sends_parts: Arc<AtomicBool>,
    /// The clock for TTLs.
    pub clock: Clock,
}

impl StoreInfo {
    /// Describes a store that can list its keys and has no changes yet.
    pub fn new(freshness: Duration) -> StoreInfo {
        StoreInfo {
            lists: true,
            // The number for local stores; network stores set their own.
            concurrency: 16,
            freshness,
            folder: None,
            server: None,
            unchangeable: None,
            ozx_layout: None,
            hidden_entries: Arc::default(),
            changes: Arc::default(),
            archive_generation: Arc::default(),
            sends_parts: Arc::new(AtomicBool::new(true)),
            clock: Clock::default(),
        }
    }

    /// Runs a query. Returns the answer and its stamp, whose time is earlier than now if a layer answers from its
    /// cache.
    pub fn ask<T>(
        &self,
        context: &RequestContext,
        query: impl FnOnce(&RequestContext) -> T,
    ) -> (T, QueryStamp) {
        let position = self.changes.position();
        let (answer, request_time) = context.timed(self.clock.now(), query);
        (
            answer,
            QueryStamp {
                request_time,
                position,
            },
        )
    }

    /// Returns `ReadOnly` if the store cannot be changed; `name` is the subject of the error.
    pub fn check_changeable(&self, name: &str) -> Result<()> {
        match self.unchangeable {
            Some(why) => Err(Error::new(Kind::ReadOnly, name, why)),
            None => Ok(()),
        }
    }

    /// Returns the error of a change of `key` in a store that cannot be changed.
    fn read_only(&self, key: &Key) -> Error {
        let why = self.unchangeable.unwrap_or("the store is read-only");
        Error::new(Kind::ReadOnly, key, why)
    }

    /// Returns the remaining TTL of an answer that was requested at `request_time`.
    pub fn time_left(&self, request_time: Instant) -> Duration {
        let age = self.clock.now().saturating_duration_since(request_time);
        self.freshness.saturating_sub(age)
    }

    /// Whether the store is immutable: the user gave a TTL of at least a year.
    pub(crate) fn never_changes(&self) -> bool {
        self.freshness >= Duration::from_secs(365 * 24 * 3600)
    }

    /// Whether an answer that was requested at `request_time` is still within its TTL.
    pub fn is_fresh(&self, request_time: Instant) -> bool {
        !self.time_left(request_time).is_zero()
    }
}

/// Takes hints about future reads of a store, and gives answers that need no request.
///
/// A hint never changes a result, only its latency.
pub trait Hints: Send + Sync {
    /// Prefetches documents that will be read soon; a store on the network may fetch them concurrently. Returns at
    /// once; the reads report the errors.
    fn prefetch(&self, keys: &[Key]);

    /// Announces queries about everything below these folders of `top`. A store on the network may list them with a few
    /// requests, and returns when that is done; the queries report the errors.
    fn prefetch_below(&self, _context: &RequestContext, _top: &Key, _folders: &[Key]) {}

    /// Returns all objects below a folder, like a recursive listing, or `None` if that needs a request.
    fn cached_below(&self, _context: &RequestContext, _folder: &Key) -> Option<Vec<(Key, Meta)>> {
        None
    }
}

/// The hints of a store without prefetching.
pub struct NoHints;

impl Hints for NoHints {
    fn prefetch(&self, _keys: &[Key]) {}
}

/// An answer from memory: unknown, known to be missing, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence<T> {
    /// Not in memory; only a request to the store can tell.
    Unknown,
    /// Known to be missing.
    Missing,
    /// Known to exist, with this value.
    Is(T),
}

impl<T> Presence<T> {
    /// Applies a function to the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Presence<U> {
        match self {
            Presence::Unknown => Presence::Unknown,
            Presence::Missing => Presence::Missing,
            Presence::Is(value) => Presence::Is(change(value)),
        }
    }

    /// Returns the value, or `None` if it is missing or unknown.
    pub fn value(self) -> Option<T> {
        match self {
            Presence::Is(value) => Some(value),
            Presence::Unknown | Presence::Missing => None,
        }
    }
}

impl<T> From<Result<Option<T>>> for Presence<T> {
    /// Converts a fallible answer: an error is `Unknown`.
    fn from(answer: Result<Option<T>>) -> Presence<T> {
        answer.map_or(Presence::Unknown, Presence::from)
    }
}

impl<T> From<Option<T>> for Presence<T> {
    /// Converts an answer of the store: `None` is `Missing`.
    fn from(answer: Option<T>) -> Presence<T> {
        answer.map_or(Presence::Missing, Presence::Is)
    }
}
