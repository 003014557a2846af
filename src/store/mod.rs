//! Where bytes are: the abstract store interface of the Zarr specifications, and keys.
//!
//! A missing key is `Ok(None)` from here up; an error is never "missing". Every answer carries the version
//! of the object, so that what is cached above can tell whether it is still true. Nothing here knows what
//! a group or an array is.

use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use twox_hash::XxHash64;

use crate::error::{Error, Result};

pub mod backend;
pub mod condition;
mod key;
pub mod layer;
pub mod listing;
mod location;
mod stack;
pub mod tree;

pub use condition::{Condition, ETag, PutBody};
pub use key::Key;
pub use location::{local_folder, local_place, shown};
pub use stack::{RemoteConfig, StoreConfig, open, open_shelf};
pub use tree::Tree;

/// Tells one content of a key from another: made of the ETag, or of inode, size and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub u64);

impl Version {
    /// Returns the version of a content that these bytes name.
    ///
    /// The same in every process: versions are written down.
    pub fn of(name: &[u8]) -> Version {
        Version(XxHash64::oneshot(0, name))
    }
}

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
    /// Returns what is known of a prefix that is no object.
    pub fn prefix() -> Meta {
        Meta {
            kind: EntryKind::Directory,
            size: 0,
            stored: 0,
            modified: UNIX_EPOCH,
            version: Version(0),
        }
    }
}

/// What lies under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An object.
    File,
    /// A prefix of other keys.
    Directory,
    /// A symbolic link that stays inside the store (local stores).
    Link,
    /// A pipe that somebody made on a mount.
    Pipe,
    /// A socket that somebody made on a mount.
    Socket,
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
    /// When it was last changed, where the answer tells it.
    pub modified: Option<SystemTime>,
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
    /// Where a listing goes on after this name; stable while the directory does not change. Never 0.
    pub cursor: u64,
    /// What `head` would say, where the listing tells it.
    pub meta: Option<Meta>,
}

/// A directory read name by name, in constant memory.
pub trait Listing: Send {
    /// Returns the next name, or nothing at the end.
    fn next(&mut self) -> Result<Option<Name>>;
    /// Goes on after the name that had `cursor`; 0 is the beginning.
    fn seek(&mut self, cursor: u64) -> Result<()>;
}

/// All objects under a prefix, whatever folder they are in, page by page.
pub trait FlatListing: Send {
    /// Returns the next objects as the store gives them, with their whole keys, or nothing after the last page.
    fn next(&mut self) -> Result<Option<Vec<(Key, Meta)>>>;
    /// Whether the last page has come; asks nobody.
    fn has_ended(&self) -> bool;
}

/// An object kept open: what it held when it was opened stays readable though the key is replaced or erased, or
/// `Changed` is said. A file of this machine that is overwritten in place shows its new bytes: who needs several
/// reads to be of one content compares `meta` after the last of them.
pub trait Reader: Send + Sync {
    /// Returns up to `len` bytes at `offset`; fewer only at the end.
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// Fills several pieces of memory with the bytes from `offset` on; returns how many there were, fewer
    /// than asked for only at the end.
    fn read_scattered(&self, offset: u64, parts: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let wanted = parts.iter().map(|part| part.len()).sum();
        let bytes = self.read_at(offset, wanted)?;
        deal_out(&bytes, parts);
        Ok(bytes.len())
    }
    /// Returns size and version now.
    fn meta(&self) -> Result<Meta>;
}

/// Fills pieces of memory, one after the other, as far as there are bytes.
pub(crate) fn deal_out(bytes: &[u8], parts: &mut [IoSliceMut<'_>]) {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(part.len().min(rest.len()));
        part[..now.len()].copy_from_slice(now);
        rest = later;
    }
}

/// The drafts' abstract store interface: get, get partial, list a directory, size.
///
/// A key may be an object and a prefix of others at once (stores of objects have such keys, directories have
/// not). `get`, `get_range` and `open` are about the object; `head` and `list` show a `Directory`, so that what
/// lies below can be reached by a path, with size and version of the object. A store may also leave such objects
/// out, if it says so.
pub trait Store: Send + Sync {
    /// Returns a whole object of at most `limit` bytes (`TooLarge` beyond); nothing if the key is missing
    /// or is a prefix only.
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>>;

    /// Returns part of an object.
    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>>;

    /// Returns size and version; nothing if the key is missing. A prefix of other keys is a `Directory`, also if
    /// it is an object as well.
    fn head(&self, key: &Key) -> Result<Option<Meta>>;

    /// Returns the version of an object; nothing if the key is missing or is a prefix only.
    fn version(&self, key: &Key) -> Result<Option<Version>> {
        let meta = self.head(key)?;
        let object = meta.filter(|meta| meta.kind != EntryKind::Directory);
        Ok(object.map(|meta| meta.version))
    }

    /// Opens an object for reading piece by piece; `NotFound` if it is missing.
    fn open(&self, key: &Key) -> Result<Arc<dyn Reader>>;

    /// Opens an object of which the store itself said `meta` a short while ago: there may be no need to ask
    /// again. If it has another version by then, reading says `Changed`.
    fn open_known(&self, key: &Key, _meta: &Meta) -> Result<Arc<dyn Reader>> {
        self.open(key)
    }

    /// Lists what lies directly under a prefix; `NotADirectory` for an object, `NotFound` if there is nothing,
    /// also below an object.
    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>>;

    /// Begins to read the names of all objects below a prefix, from the folder `from` on, or from one before it;
    /// nothing if that costs more than to list each folder.
    fn walk(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    /// Returns what `head` would, if that is known without asking: never waits.
    fn head_now(&self, _key: &Key) -> Option<Option<Meta>> {
        None
    }

    /// Hears which documents will be asked for by `get` in a moment: a store that is far away may fetch them side
    /// by side. Returns at once, and says nothing of them.
    fn ask_ahead(&self, _keys: &[Key]) {}

    /// Whether `list` works, and `head` knows prefixes: not every store can tell its keys.
    fn lists(&self) -> bool {
        true
    }

    /// Returns where a link points.
    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        Err(Error::invalid(key, "not a symbolic link"))
    }

    /// Returns for how long an answer may be taken for true, as long as `epoch` stays the same.
    fn freshness(&self) -> Duration;

    /// Returns a number that grows with each change made through this store; what was asked before may have
    /// changed since.
    fn epoch(&self) -> u64 {
        0
    }

    /// Names the content that a key holds; nothing if it is missing or is a prefix only. Asks the store itself.
    fn stamp(&self, key: &Key) -> Result<Option<ETag>> {
        Err(Error::read_only(key))
    }

    /// Puts an object under a key if the condition holds (`Changed` if not): whole or not at all. Returns the
    /// stamp of what is there now.
    fn put(&self, key: &Key, _body: PutBody<'_>, _condition: &Condition) -> Result<ETag> {
        Err(Error::read_only(key))
    }

    /// Removes an object if the condition holds (`Changed` if not). One that is missing already is no error.
    fn erase(&self, key: &Key, _condition: &Condition) -> Result<()> {
        Err(Error::read_only(key))
    }

    /// Removes a folder that holds nothing any more, where the store has folders beside its keys.
    fn erase_folder(&self, _prefix: &Key) -> Result<()> {
        Ok(())
    }

    /// Whether the store itself holds to conditions, in one step with the change: tried once on a key of its own
    /// that is removed again.
    fn honours_conditions(&self) -> Result<bool> {
        Ok(false)
    }

    /// Returns the store as a tree of files that programs may change, if it is one.
    fn tree(&self) -> Option<Arc<dyn Tree>> {
        None
    }

    /// Returns the folder on this machine that the store is, if it is one.
    fn folder(&self) -> Option<&Path> {
        None
    }
}
