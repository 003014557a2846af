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
    /// Returns a whole object, or `None` if the key is missing or only a prefix. The error is `TooLarge` if the object
    /// has more than `limit` bytes.
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>>;

    /// Returns a range of an object, or `None` if the key is missing or only a prefix.
    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>>;

    /// Returns the metadata of a key, or `None` if the key is missing. A prefix of other keys is a `Directory`, even if
    /// it is an object as well. If the context may not wait, the answer comes from memory, or the error is `WouldWait`.
    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>>;

    /// Returns the version of an object, or `None` if the key is missing or only a prefix. Cheaper than `head` in
    /// stores that need separate requests for objects and prefixes.
    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>>;

    /// Opens an object for reading. The error is `NotFound` if the key is missing, and in no other case: readers take it
    /// for a missing chunk, which has the fill value. `known`, recent metadata from this store, may save a request; if
    /// the object has another version by then, reads fail with `Changed`.
    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>>;

    /// Lists the direct children of a prefix. The error is `NotADirectory` for an object, or `NotFound` if the prefix
    /// is missing or below an object.
    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>>;

    /// Lists all objects below a prefix, beginning at the folder `from` or before it in the order of keys. Returns
    /// `None` if it is cheaper to list each folder by itself.
    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    /// Returns the target of a symbolic link. The error is `Invalid` if the key is not a link.
    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(key, "not a symbolic link"))
    }

    /// Whether the key is a symbolic link to one of its own ancestors, so that a walk would not end.
    fn is_symlink_cycle(&self, _context: &RequestContext, _key: &Key) -> Result<bool> {
        Ok(false)
    }

    /// Returns the present ETag of an object, never a cached one, or `None` if the key is missing or only a prefix.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>>;

    /// Puts an object atomically if the condition holds, and returns the new ETag. The error is `Changed` if the
    /// condition fails, or `ReadOnly` if the store cannot be changed.
    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        _body: PutBody<'_>,
        _condition: &Condition,
    ) -> Result<ETag> {
        Err(self.info().read_only(key))
    }

    /// Puts a chunk if the condition holds. A store that commits changes later also records the metadata by which the
    /// chunk was encoded, as a precondition of the commit.
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

    /// Erases an object if the condition holds. The error is `Changed` if the condition fails, or `ReadOnly` if the
    /// store cannot be changed. A missing object is an error only if the condition demands an object.
    fn erase(&self, _context: &RequestContext, key: &Key, _condition: &Condition) -> Result<()> {
        Err(self.info().read_only(key))
    }

    /// Removes an empty folder, in a store such as a local folder that has folders in addition to keys.
    fn erase_folder(&self, _context: &RequestContext, _prefix: &Key) -> Result<()> {
        Ok(())
    }

    /// Makes all puts and erasures durable against a loss of power. Does nothing if the store has made them durable
    /// before it returned.
    fn sync(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    /// Drops the cached bytes of a key whose bytes cannot be decoded, and those of `range`: a proxy may have truncated
    /// the response with a correct Content-Length and the right version. Makes no request.
    fn drop_cached(&self, _key: &Key, _range: Option<&ByteRange>) {}

    /// Returns the properties of the store.
    fn info(&self) -> &StoreInfo;
}

/// The TTL of objects that never change: 100 years.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Properties of a store as a whole. A layer returns those of the wrapped store, or a changed copy.
#[derive(Clone)]
pub struct StoreInfo {
    /// Whether the store can list its keys, so that `list` works and `head` finds prefixes.
    pub lists: bool,
    /// Number of keys that a caller should request or change concurrently.
    pub concurrency: usize,
    /// How long cached metadata are used. A change made through the store invalidates them earlier.
    pub freshness: Duration,
    /// The local folder that holds the store, if there is one.
    pub folder: Option<PathBuf>,
    /// Distinguishes stores with the same URL. It is the bucket's server if options, the environment or a profile name
    /// it, or a digest of the credentials for a web server.
    pub server: Option<Arc<str>>,
    /// Why the store is read-only, and the remedy, or `None` if the store can be changed.
    pub unchangeable: Option<&'static str>,
    /// How far an archive with the name `.ozx` follows the recommendations of RFC-9 of OME-NGFF.
    pub ozx_layout: Option<Arc<ArchiveLayout>>,
    /// Entries of an archive or bucket that no listing shows.
    pub hidden_entries: Arc<HiddenEntries>,
    /// Log of the changes made through the store.
    pub changes: Arc<ChangeLog>,
    /// Number of times that the whole store was replaced, as an open zip archive may be.
    pub archive_generation: Arc<ArchiveGeneration>,
    /// Whether the server honours range requests. If not, a request for a range may fetch the whole object.
    pub sends_parts: Arc<AtomicBool>,
    /// The clock by which TTLs are measured.
    pub clock: Clock,
}

impl StoreInfo {
    /// Returns the properties of a writable store that can list its keys.
    pub fn new(freshness: Duration) -> StoreInfo {
        StoreInfo {
            lists: true,
            // The default for local stores; stores on the network set another number.
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

    /// Runs a query of the store. Returns the answer, with the time of its request, which is earlier than now if a
    /// cache answers, and the position of the change log before the query.
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

    /// Returns `ReadOnly` if the store cannot be changed. The error is about the file or key `name`.
    pub fn check_changeable(&self, name: &str) -> Result<()> {
        match self.unchangeable {
            Some(why) => Err(Error::new(Kind::ReadOnly, name, why)),
            None => Ok(()),
        }
    }

    /// Returns the error for a change of `key` in a read-only store.
    fn read_only(&self, key: &Key) -> Error {
        let why = self.unchangeable.unwrap_or("the store is read-only");
        Error::new(Kind::ReadOnly, key, why)
    }

    /// Returns the remaining TTL of an answer that was requested at `request_time`.
    pub fn time_left(&self, request_time: Instant) -> Duration {
        let age = self.clock.now().saturating_duration_since(request_time);
        self.freshness.saturating_sub(age)
    }

    /// Whether the objects count as immutable: the user gave a TTL of at least a year.
    pub(crate) fn never_changes(&self) -> bool {
        self.freshness >= Duration::from_secs(365 * 24 * 3600)
    }

    /// Whether an answer that was requested at `request_time` is still within its TTL.
    pub fn is_fresh(&self, request_time: Instant) -> bool {
        !self.time_left(request_time).is_zero()
    }
}

/// Takes hints about future reads of a store, and returns cached answers.
///
/// A hint never changes a result, only its latency.
pub trait Hints: Send + Sync {
    /// Prefetches metadata documents that will be read soon, and returns at once. Errors are ignored, since the reads
    /// will report them.
    fn prefetch(&self, keys: &[Key]);

    /// Announces that everything below the given folders, all of them in `top`, will be listed and queried. A store on
    /// the network may list it with few requests before this method returns. Errors are ignored, since the queries will
    /// report them.
    fn prefetch_below(&self, _context: &RequestContext, _top: &Key, _folders: &[Key]) {}

    /// Returns all objects below a folder, or `None` if they are not all cached.
    fn cached_below(&self, _context: &RequestContext, _folder: &Key) -> Option<Vec<(Key, Meta)>> {
        None
    }
}

/// Ignores all hints, for a store that does not prefetch.
pub struct NoHints;

impl Hints for NoHints {
    fn prefetch(&self, _keys: &[Key]) {}
}

/// What a cache says about a key: unknown, missing, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence<T> {
    /// The cache has no answer, so only a request to the store can tell.
    Unknown,
    /// The key is known to be missing.
    Missing,
    /// The key is known to exist, and has this value.
    Is(T),
}

impl<T> Presence<T> {
    /// Applies a function to the value, if there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Presence<U> {
        match self {
            Presence::Unknown => Presence::Unknown,
            Presence::Missing => Presence::Missing,
            Presence::Is(value) => Presence::Is(change(value)),
        }
    }

    /// Returns the value, or `None` if the key is missing or unknown.
    pub fn value(self) -> Option<T> {
        match self {
            Presence::Is(value) => Some(value),
            Presence::Unknown | Presence::Missing => None,
        }
    }
}

impl<T> From<Result<Option<T>>> for Presence<T> {
    /// Converts the result of a query of the cache: an error is `Unknown`.
    fn from(answer: Result<Option<T>>) -> Presence<T> {
        answer.map_or(Presence::Unknown, Presence::from)
    }
}

impl<T> From<Option<T>> for Presence<T> {
    /// Converts an answer of the store: `None` means that the key is missing.
    fn from(answer: Option<T>) -> Presence<T> {
        answer.map_or(Presence::Missing, Presence::Is)
    }
}
