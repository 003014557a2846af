//! Where bytes are: the abstract store interface of the Zarr specifications, and keys.
//!
//! A missing key is `Ok(None)` from here up; an error is never "missing". Every answer carries the version
//! of the object, so that what is cached above can tell whether it is still true. Nothing here knows what
//! a group or an array is.

use std::fmt;
use std::io::IoSliceMut;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use twox_hash::XxHash64;

use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::error::printable;
use crate::stats::Stats;
use crate::store::location::scheme;

pub mod ahead;
pub mod change;
pub mod counting;
pub mod disk;
pub mod listing;
pub mod local;
mod location;
pub mod memo;
pub mod memory;
pub mod object;
pub mod tree;
pub mod zip;

pub use change::Body;
pub use change::Condition;
pub use change::Stamp;
pub use location::local_folder;
pub use location::local_place;
pub use location::shown;
pub use tree::Tree;

/// The name of an object: components joined by `/`, none of them empty, `.`, `..`, longer than 255 bytes or
/// with a NUL in it. The empty key is the store itself. Bytes need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key(Vec<u8>);

impl Key {
    /// The store itself.
    pub fn root() -> Key {
        Key::default()
    }

    /// Checks and takes a key; `Invalid` if a component could not be a name.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Key> {
        let bytes = bytes.into();
        if !bytes.is_empty() {
            for name in bytes.split(|&b| b == b'/') {
                check_name(name)?;
            }
        }
        Ok(Key(bytes))
    }

    /// Returns the key of `name` inside this one; `NameTooLong` or `Invalid` if it could not be a name.
    pub fn child(&self, name: &[u8]) -> Result<Key> {
        check_name(name)?;
        if name.contains(&b'/') {
            return Err(Error::invalid(Key(name.to_vec()), "a name holds no slash"));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Ok(Key(bytes))
    }

    /// Returns the key that holds this one; nothing for the root.
    pub fn parent(&self) -> Option<Key> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|&b| b == b'/').unwrap_or(0);
        Some(Key(self.0.get(..end).unwrap_or_default().to_vec()))
    }

    /// Returns the last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|&b| b == b'/').next().unwrap_or_default()
    }

    /// Returns the components.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the rest of this key below `prefix`, or nothing if it does not lie there.
    pub fn below(&self, prefix: &Key) -> Option<Key> {
        if prefix.is_root() {
            return Some(self.clone());
        }
        match self.0.strip_prefix(prefix.0.as_slice())? {
            [] => Some(Key::root()),
            [b'/', rest @ ..] => Some(Key(rest.to_vec())),
            _ => None,
        }
    }

    /// Whether this is the store itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str("/");
        }
        f.write_str(&printable(&String::from_utf8_lossy(&self.0)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// The longest name that the kernel takes.
const MAX_NAME: usize = 255;

fn check_name(name: &[u8]) -> Result<()> {
    let shown = || printable(&String::from_utf8_lossy(name));
    if name.len() > MAX_NAME {
        return Err(Error::new(
            Kind::NameTooLong,
            shown(),
            "a name has at most 255 bytes",
        ));
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&0) {
        return Err(Error::invalid(format!("'{}'", shown()), "cannot be a name"));
    }
    Ok(())
}

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
pub trait Walk: Send {
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
    fn walk(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn Walk>>> {
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
    fn stamp(&self, key: &Key) -> Result<Option<Stamp>> {
        Err(Error::read_only(key))
    }

    /// Puts an object under a key if the condition holds (`Changed` if not): whole or not at all. Returns the
    /// stamp of what is there now.
    fn put(&self, key: &Key, _body: Body<'_>, _condition: &Condition) -> Result<Stamp> {
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

/// How to open a store.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {
    /// Follow symbolic links of a local store even when they leave it.
    pub follow_symlinks: bool,
    /// How stores on the network are reached.
    pub remote: RemoteConfig,
    /// Where bytes of stores on the network are kept.
    pub shelf: Option<Arc<disk::Shelf>>,
}

/// How to reach a store on the network.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Names and values as the store's own programs have them; some are secrets.
    pub options: Vec<(String, String)>,
    /// Ask without credentials.
    pub anonymous: bool,
    /// A bucket or prefix without any key is a store, too: one that is about to be made.
    pub may_be_empty: bool,
    /// Where the server is, if not where such stores are.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// How long an answer, or a piece of one, may take.
    pub timeout: Duration,
    /// The most requests at a time.
    pub concurrency: usize,
    /// For how long an answer is taken for true.
    pub metadata_ttl: Duration,
    /// The folder that keeps what was read, if there is one.
    pub cache_dir: Option<PathBuf>,
    /// The most bytes that it takes.
    pub cache_size: u64,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            options: Vec::new(),
            anonymous: false,
            may_be_empty: false,
            endpoint: None,
            region: None,
            timeout: Duration::from_secs(60),
            concurrency: 32,
            metadata_ttl: Duration::from_secs(60),
            cache_dir: None,
            cache_size: 10 << 30,
        }
    }
}

impl fmt::Debug for RemoteConfig {
    /// Names of options, without their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.options.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteConfig")
            .field("options", &names)
            .finish_non_exhaustive()
    }
}

/// Opens the store at a path or URL; `Unsupported` for a scheme that is not there, `NotFound` or `Denied` as
/// the store says.
///
/// A file on the way down a path, and a name ending in `.zip` in a URL, is a zip archive; what follows it is a
/// folder in the archive. What is read of the archive is counted, not what is made of it.
pub fn open(location: &str, config: &StoreConfig, stats: &Arc<Stats>) -> Result<Arc<dyn Store>> {
    let name = shown(location);
    let Some(path) = local_folder(location) else {
        return match zip::place::in_url(location).map_err(|error| error.about(&name))? {
            Some(place) => {
                let base = open_remote(&place.folder, Some(&place.archive), config, stats)?;
                let zip = zip::Zip::open(base, &place.archive, &place.inner, &name)?;
                Ok(Arc::new(zip))
            }
            None => open_remote(location, None, config, stats),
        };
    };
    match zip::place::in_path(Path::new(&path)).map_err(|error| error.about(&name))? {
        Some(place) => {
            let base = counted(Arc::new(local::Local::open(&place.folder, config)?), stats);
            match zip::Zip::open(base, &place.archive, &place.inner, &name) {
                Err(error) if error.kind() == Kind::Corrupt && !place.is_named_zip() => {
                    let text = "expected a directory or a zip archive";
                    Err(Error::new(Kind::NotADirectory, name, text))
                }
                zip => Ok(Arc::new(zip?)),
            }
        }
        None => {
            let local = local::Local::open(Path::new(&path), config)?;
            Ok(counted(Arc::new(local), stats))
        }
    }
}

fn counted(store: Arc<dyn Store>, stats: &Arc<Stats>) -> Arc<dyn Store> {
    Arc::new(counting::Counting::new(store, stats.clone()))
}

/// Opens the folder that keeps what is read of a store, if one was asked for; `NotADirectory` or `Denied` if it
/// is not ours. A store on this machine has none.
pub fn open_shelf(
    location: &str,
    remote: &RemoteConfig,
    stats: &Arc<Stats>,
) -> Result<Option<Arc<disk::Shelf>>> {
    match (&remote.cache_dir, local_folder(location)) {
        (None, _) => Ok(None),
        (Some(path), None) => disk::Shelf::open(path, remote.cache_size, stats).map(Some),
        (Some(_), Some(_)) => {
            log::warn!("the store is on this machine: --cache-dir is not used");
            Ok(None)
        }
    }
}

/// Keeps what is read of a store on disk, if there is a place for it.
fn kept(store: Arc<dyn Store>, location: &str, config: &StoreConfig) -> Arc<dyn Store> {
    let Some(shelf) = &config.shelf else {
        return store;
    };
    let identity = disk::identity(&shown(location), &config.remote);
    let drawer = disk::Drawer::open(shelf, &identity);
    Arc::new(disk::Disk::new(store, drawer))
}

/// Opens a store that is not on this machine: counted, and what is far away kept on disk and remembered. Of an
/// archive, `only` is what counts in it.
fn open_remote(
    location: &str,
    only: Option<&Key>,
    config: &StoreConfig,
    stats: &Arc<Stats>,
) -> Result<Arc<dyn Store>> {
    match scheme(location) {
        Some(("memory", _)) => Ok(counted(Arc::new(memory::Memory::default()), stats)),
        Some((scheme, rest)) if object::has(scheme) => {
            let shown = &shown(location);
            let place = object::Place {
                scheme,
                rest,
                shown,
                only,
            };
            let store = object::open(place, &config.remote, stats)?;
            let store = kept(counted(store, stats), location, config);
            let memo = memo::MemoConfig {
                ttl: config.remote.metadata_ttl,
                concurrency: config.remote.concurrency,
                ..memo::MemoConfig::default()
            };
            let memo = memo::Memo::new(store, &memo);
            memo.look_around();
            Ok(Arc::new(memo))
        }
        Some((scheme, _)) => Err(Error::unsupported(
            shown(location),
            format!("stores of kind {scheme}: are not supported"),
        )),
        None => Err(Error::invalid(shown(location), "expected a URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_could_leave_the_store_are_refused() {
        for bad in ["..", "a/../b", "a//b", "/a", "a/", ".", "a\0"] {
            assert!(Key::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            Key::new("x".repeat(256)).unwrap_err().kind(),
            Kind::NameTooLong
        );
    }

    #[test]
    fn keys_take_any_other_bytes() {
        let key = Key::new(b"a/\xff\n \\".to_vec()).unwrap();
        assert_eq!(key.name(), b"\xff\n \\");
        assert_eq!(key.parent(), Some(Key::new("a").unwrap()));
        assert_eq!(
            key.below(&Key::new("a").unwrap()).unwrap().as_bytes(),
            b"\xff\n \\"
        );
        assert_eq!(Key::new("ab").unwrap().below(&Key::new("a").unwrap()), None);
    }
}
