//! Zarr stores: keys to bytes, wherever they are.
//!
//! A [`Store`] is the abstract store interface of the Zarr specifications. [`backend`] has the stores themselves: folders,
//! zip archives, buckets, web servers, memory. [`layer`] has what is put over them: caches of metadata and of objects,
//! read-ahead, counters. [`open`] puts a stack together for a path or URL. [`sync`] has what threads share.
//!
//! A missing key is `Ok(None)` from here up; an error is never "missing". Each answer carries the version of the object,
//! by which caches find out whether they are current. Groups and arrays are unknown here.
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
pub(crate) mod name_order;
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

/// What a store knows of an object without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What lies there.
    pub kind: EntryKind,
    /// Length in bytes; 0 for directories that are no objects.
    pub size: u64,
    /// Bytes that it takes on the medium.
    pub stored: u64,
    /// When it was last changed.
    pub modified: SystemTime,
    /// Which content it is.
    pub version: Version,
}

impl Meta {
    /// Returns which content it is, and its length.
    pub(crate) fn content(&self) -> (Version, u64) {
        (self.version, self.size)
    }

    /// Whether two answers may be of one content, as far as the store tells contents apart. Where one of them has no ETag,
    /// as some listings have none, size and time count.
    pub(crate) fn may_be_of(&self, other: &Meta) -> bool {
        let is_same_time = || {
            let lacks_one = self.version.is_lasting() != other.version.is_lasting();
            lacks_one && self.seconds() != 0 && self.seconds() == other.seconds()
        };
        self.size == other.size && (self.version.may_be(other.version) || is_same_time())
    }

    /// Returns when it was last changed, in seconds since 1970; 0 if the store does not tell.
    fn seconds(&self) -> u64 {
        let since = self.modified.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    /// Returns what is known of a prefix that is no object.
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

/// What lies under a key.
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
    /// The whole object, or the range that was asked for.
    pub bytes: Vec<u8>,
    /// Length of the whole object.
    pub size: u64,
    /// Which content it is.
    pub version: Version,
    /// When it was last changed, if the store returns that.
    pub modified: Option<SystemTime>,
}

impl Object {
    /// Returns which content it is, and the length of all of it.
    pub(crate) fn content(&self) -> (Version, u64) {
        (self.version, self.size)
    }

    /// Returns what the answer tells without its bytes.
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            kind: EntryKind::File,
            size: self.size,
            stored: self.size,
            modified: self.modified.unwrap_or(UNIX_EPOCH),
            version: self.version,
        }
    }

    /// Returns an empty part of the object that `meta` describes.
    pub(crate) fn without_bytes(meta: &Meta) -> Object {
        Object {
            bytes: Vec::new(),
            size: meta.size,
            version: meta.version,
            modified: Some(meta.modified),
        }
    }
}

/// Which part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From and to; cut off at the object's end.
    Span(Range<u64>),
    /// The last so many bytes.
    Suffix(u64),
}

impl ByteRange {
    /// Returns the part of an object of `size` bytes that the range means.
    pub fn within(&self, size: u64) -> Range<u64> {
        match self {
            ByteRange::Span(span) => {
                span.start.min(size)..span.end.min(size).max(span.start.min(size))
            }
            ByteRange::Suffix(length) => size.saturating_sub(*length)..size,
        }
    }
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The last component of its key.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// The cursor after this name; stable while the directory does not change. Never 0.
    pub cursor: u64,
    /// Its metadata as `head` would return them, if the listing has them.
    pub meta: Option<Meta>,
}

/// A directory read name by name, in constant memory.
pub trait Listing: Send {
    /// Returns the next name, or nothing at the end.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>>;
    /// Goes on after the name that had `cursor`; 0 is the beginning.
    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()>;
    /// Whether names may have to be requested of a network.
    fn may_wait(&self) -> bool {
        true
    }
    /// Which names it leaves out although objects of these names may exist.
    fn left_out(&self) -> LeftOut {
        LeftOut::Nothing
    }
}

/// Names that a listing leaves out: of these it does not tell whether an object exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// It has every name.
    Nothing,
    /// Names that begin with a dot, which nginx and Apache hide.
    DotNames,
    /// The same except metadata documents, which were asked for one by one.
    DotNamesButDocuments,
    /// Any name that it does not have: the store cannot list, and the names are those that something else tells.
    Untold,
}

impl LeftOut {
    /// Whether an object of this name may exist although the listing does not have it.
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

/// All objects under a prefix, whatever folder they are in, page by page.
pub trait FlatListing: Send {
    /// Returns the next objects as the store gives them, with their whole keys, or nothing after the last page.
    fn next(&mut self, context: &RequestContext) -> Result<Option<Vec<(Key, Meta)>>>;
    /// Whether the last page has come; makes no request.
    fn has_ended(&self) -> bool;
}

/// An object kept open. The content that it had when it was opened stays readable though the key is replaced or
/// erased, or reads fail with `Changed`. A file of this machine that is overwritten in place shows its new bytes:
/// callers whose reads must all be of one content compare `meta` after the last of them.
pub trait Reader: Send + Sync {
    /// Returns up to `len` bytes at `offset`; fewer only at the end.
    fn read_at(&self, context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Fills several pieces of memory with the bytes from `offset` on; returns how many there were, fewer
    /// than asked for only at the end.
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
    /// Returns the bytes of several ranges, which ascend and share none; what lies between them is read as well, so that
    /// one request serves, and stays in memory as long as one of them. Each has fewer than asked for only at the end.
    fn read_ranges(&self, context: &RequestContext, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        scattered::read_together(ranges, |offset, length| {
            self.read_at(context, offset, length)
        })
    }
    /// Returns size and version now.
    fn meta(&self, context: &RequestContext) -> Result<Meta>;
    /// Returns the file of this machine that has the bytes and no others, if it is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Properties of a store as a whole; layers pass on those of the store below, or a changed copy.
#[derive(Clone)]
pub struct StoreInfo {
    /// Whether `list` works, and `head` finds prefixes: not every store can list its keys.
    pub lists: bool,
    /// How many keys are worth asking for, or changing, at a time.
    pub concurrency: usize,
    /// For how long metadata may be cached, unless their key is changed through the store.
    pub freshness: Duration,
    /// The folder on this machine that the store is, if it is one.
    pub folder: Option<PathBuf>,
    /// What options, the environment or a profile say of the server, where the URL alone does not name it.
    pub server: Option<Arc<str>>,
    /// Why nothing in the store can be changed, and what to do; `None` if something may be.
    pub unchangeable: Option<&'static str>,
    /// Entries that the store has and does not show.
    pub not_shown: Arc<NotShownEntries>,
    /// The changes made through the store.
    pub changes: Arc<ChangeLog>,
    /// How often all of it was replaced at once.
    pub replacements: Arc<Replacements>,
    /// Whether the store is known to send a part of an object alone: a request for a part may else bring all of it.
    pub sends_parts: Arc<AtomicBool>,
    /// The clock by which answers grow old.
    pub clock: Clock,
}

/// How many keys of a store on this machine are asked for, or changed, at a time.
const LOCAL_CONCURRENCY: usize = 16;

/// The shortest freshness time of a store that is taken for one that never changes.
const NEVER_CHANGES: Duration = Duration::from_secs(365 * 24 * 3600);

/// How old an answer is: from when it counts, and which changes it takes into account.
#[derive(Clone, Copy, Debug)]
pub struct QueryStamp {
    /// When the store was asked for the oldest part of it.
    pub asked: Instant,
    /// The position of the change log before it was asked for.
    pub position: LogPosition,
}

impl StoreInfo {
    /// Describes a store that lists its keys, and to which nothing was changed yet.
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

    /// Asks a question of the store; returns the answer and how old it is, which is more than nothing where a layer
    /// answers from memory.
    pub fn ask<T>(
        &self,
        context: &RequestContext,
        question: impl FnOnce(&RequestContext) -> T,
    ) -> (T, QueryStamp) {
        let position = self.changes.position();
        let (answer, asked) = context.timed(self.clock.now(), question);
        (answer, QueryStamp { asked, position })
    }

    /// `ReadOnly` if nothing in the store can be changed; it is shown as `name`.
    pub fn check_changeable(&self, name: &str) -> Result<()> {
        let why = self
            .unchangeable
            .map(|why| Error::new(Kind::ReadOnly, name, why));
        why.map_or(Ok(()), Err)
    }

    /// Returns for how long an answer still counts that was asked for at `asked`.
    pub fn time_left(&self, asked: Instant) -> Duration {
        let age = self.clock.now().saturating_duration_since(asked);
        self.freshness.saturating_sub(age)
    }

    /// Whether the user says that the store never changes.
    pub fn never_changes(&self) -> bool {
        self.freshness >= NEVER_CHANGES
    }

    /// Whether an answer still counts that was asked for at `asked`.
    pub fn is_fresh(&self, asked: Instant) -> bool {
        !self.time_left(asked).is_zero()
    }
}

/// The drafts' abstract store interface: get, get partial, list a directory, size.
///
/// A key may be an object and a prefix of others at once (stores of objects have such keys, directories have
/// not). `get`, `get_range`, `version`, `etag` and `open` are about the object; `head` and `list` show a
/// `Directory`, so that what lies below can be reached by a path, with size and version of the object. A store may
/// also leave such objects out, if it says so.
pub trait Store: Send + Sync {
    /// Returns a whole object of at most `limit` bytes (`TooLarge` beyond); nothing if the key is missing
    /// or is a prefix only.
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>>;

    /// Returns part of an object.
    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>>;

    /// Returns size and version; nothing if the key is missing. A prefix of other keys is a `Directory`, also if
    /// it is an object as well. Where the context may not wait, the answer is out of memory: a store that has none there
    /// returns `WouldWait`.
    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>>;

    /// Returns the version of an object; nothing if the key is missing or is a prefix only. Costs less than `head`
    /// where objects and prefixes are asked about by requests of their own.
    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>>;

    /// Opens an object for reading piece by piece; `NotFound` if it is missing. `known`, recent metadata of this store,
    /// may save a request; if the object has another version by then, reads fail with `Changed`.
    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>>;

    /// Lists what lies directly under a prefix; `NotADirectory` for an object, `NotFound` if there is nothing,
    /// also below an object.
    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>>;

    /// Begins to read the names of all objects below a prefix, from the folder `from` on, or from one before it;
    /// nothing if that costs more than to list each folder.
    fn list_all(
        &self,
        context: &RequestContext,
        prefix: &Key,
        from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>>;

    /// Returns where a symbolic link points; `Invalid` if the key is none.
    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>>;

    /// Whether a key is a symbolic link to a folder that it lies in: who follows it comes to the same names again.
    fn leads_back(&self, _context: &RequestContext, _key: &Key) -> Result<bool> {
        Ok(false)
    }

    /// Returns the ETag of an object; nothing if the key is missing or is a prefix only. Never from a cache.
    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>>;

    /// Puts an object under a key if the condition holds (`Changed` if not): whole or not at all. Returns the
    /// ETag of what is there now.
    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag>;

    /// Puts a chunk as `put` does. A store that keeps changes for later remembers by which metadata the chunk was
    /// encoded: these are a condition of its commit.
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

    /// Removes an object if the condition holds (`Changed` if not). A missing object is no error where the condition
    /// allows it.
    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()>;

    /// Removes a folder that holds nothing any more, where the store has folders beside its keys.
    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()>;

    /// Has what was put and erased survive a loss of power. A store that is sure of that when it answers does nothing.
    fn sync(&self, _context: &RequestContext) -> Result<()> {
        Ok(())
    }

    /// Forgets what is remembered of a key whose bytes do not read, and of `range` as it was asked for: a proxy may have cut
    /// the answer short, with an honest length under the true version. Makes no request.
    fn doubt(&self, _key: &Key, _range: Option<&ByteRange>) {}

    /// Returns what the store is.
    fn info(&self) -> &StoreInfo;
}

/// Fails with `Unavailable` if an object has another length than the same version of it had before: a server that keeps
/// half of an answer says so of the half.
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

/// Returns the error of a key that is no symbolic link.
pub(crate) fn not_a_link(key: &Key) -> Error {
    Error::invalid(key, "not a symbolic link")
}

/// Announcements of reads, and what is known without a request: an object of its own beside the store.
///
/// A hint changes no result, only how long it takes.
pub trait Hints: Send + Sync {
    /// Announces documents that will be read soon: a store on the network may fetch them concurrently. Returns at once;
    /// errors come with the reads.
    fn prefetch(&self, keys: &[Key]);

    /// Announces that all below these folders, which lie in `top`, will be asked for: a store on the network may list
    /// them together, and returns when it has. Errors come with the questions.
    fn learn_below(&self, _context: &RequestContext, _top: &Key, _folders: &[Key]) {}

    /// Returns all objects below a folder, as a flat listing has them, if they are known without a request.
    fn known_below(&self, _context: &RequestContext, _folder: &Key) -> Option<Vec<(Key, Meta)>> {
        None
    }
}

/// The hints of a store that has none.
pub struct NoHints;

impl Hints for NoHints {
    fn prefetch(&self, _keys: &[Key]) {}
}
