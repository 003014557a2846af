//! A local directory as a store.
//!
//! Names are raw bytes. Nothing but regular files and directories is ever read. `root` finds the directory that the
//! store's path names, `directory` resolves keys and ensures that none leads outside the store, `circle` tells links that
//! lead back to where they lie, `reader` reads open files, `listing` lists directories, `stat` converts the kernel's file
//! status, `hints` tells what the kernel has in memory, `writer` makes changes, with `atomic_file`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::backend::local::directory::{StoreRoot, failed};
use crate::backend::local::listing::LocalListing;
use crate::backend::local::reader::{LocalReader, read_span};
use crate::backend::local::stat::{modified, size_of, version_of};
use crate::known::Known;
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreConfig, StoreInfo, Version,
};
use zarr_format::error::{Error, Kind, Result};

mod atomic_file;
mod circle;
mod directory;
mod hints;
mod listing;
mod reader;
mod root;
mod stat;
mod writer;

use crate::request_context::RequestContext;
use circle::leads_back;

/// Whether a name is kept for files that are on their way into a store.
pub fn is_reserved_name(name: &[u8]) -> bool {
    atomic_file::is_temp_name(name)
}

/// `NotPermitted` for a path with a name that is kept for files on their way into a store.
pub fn check_names(path: &Key) -> Result<()> {
    if path.names().any(is_reserved_name) {
        let why = "names of this form are kept for files on their way into a store";
        return Err(Error::new(Kind::NotPermitted, path, why));
    }
    Ok(())
}

/// Why nothing is put into a mount of zarrfs: an object would arrive there under a name of `check_names`, which no mount
/// takes, since its own commit could not put such a key.
const IN_OUR_MOUNT: &str = "lies in a mount of zarrfs, into which no other zarrfs writes: name the store that is mounted \
    there";

/// How long the metadata of a local file may be cached.
const FRESHNESS: Duration = Duration::from_secs(1);

/// How often an object is read again because it was overwritten meanwhile.
const MAX_READS: usize = 4;

/// A directory as a store.
#[derive(Clone)]
pub struct LocalStore {
    directory: Arc<StoreRoot>,
    info: StoreInfo,
}

impl LocalStore {
    /// Opens the store in the directory at `path`.
    pub fn open(path: &Path, config: &StoreConfig) -> Result<LocalStore> {
        let info = StoreInfo::new(FRESHNESS);
        let (changes, clock) = (info.changes.clone(), info.clock.clone());
        let directory = StoreRoot::new(path, config.follow_symlinks, changes, clock)?;
        let folder = Some(directory.path().to_path_buf());
        let unchangeable = directory.is_in_our_mount().then_some(IN_OUR_MOUNT);
        Ok(LocalStore {
            directory: Arc::new(directory),
            info: StoreInfo {
                folder,
                unchangeable,
                ..info
            },
        })
    }

    /// Notes a change, also a failed one: part of it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.note(key);
        done
    }

    /// Reads the part of an object that `span` returns for its size. All bytes are of one content; `Changed` if the file
    /// is overwritten during every attempt.
    fn object(
        &self,
        key: &Key,
        span: impl Fn(u64) -> Result<Range<u64>>,
    ) -> Result<Option<Object>> {
        for _ in 0..MAX_READS {
            let Some((fd, stat)) = self.directory.open_file(key)? else {
                return Ok(None);
            };
            let (size, version) = (size_of(&stat), version_of(&stat));
            let span = span(size)?;
            let bytes = read_span(&fd, span.start, span.end - span.start)
                .map_err(|error| failed(key, error))?;
            let after = rustix::fs::fstat(&fd).map_err(|error| failed(key, error))?;
            if version_of(&after) == version {
                return Ok(Some(Object {
                    bytes,
                    size,
                    version,
                    modified: Some(modified(&stat)),
                }));
            }
        }
        let why = "is written each time it is read";
        Err(Error::new(Kind::Changed, key, why))
    }
}

impl Store for LocalStore {
    fn get(&self, _context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.object(key, |size| {
            if size > limit {
                let text = format!("{size} bytes, at most {limit} are read");
                return Err(Error::too_large(key, text));
            }
            Ok(0..size)
        })
    }

    fn get_range(
        &self,
        _context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        self.object(key, |size| Ok(range.within(size)))
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        if context.may_wait() {
            return self.directory.head(key);
        }
        match self.directory.known_head(key) {
            Known::Unknown => context.check_may_wait().map(|()| None),
            known => Ok(known.found()),
        }
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let object = self
            .head(context, key)?
            .filter(|meta| meta.kind != EntryKind::Directory);
        Ok(object.map(|meta| meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        match self.directory.open_file(key)? {
            Some((fd, _)) => Ok(Arc::new(LocalReader::new(fd, key)?)),
            None if self
                .head(context, key)?
                .is_some_and(|meta| meta.kind == EntryKind::Directory) =>
            {
                Err(Error::new(Kind::IsADirectory, key, "is a directory"))
            }
            None => Err(Error::not_found(key)),
        }
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match self.directory.open(prefix, flags) {
            // A key below a file is missing.
            Err(Errno::NOTDIR) if self.head(context, prefix)?.is_none() => {
                return Err(Error::not_found(prefix));
            }
            opened => opened.map_err(|error| failed(prefix, error))?,
        };
        let store = self.directory.clone();
        Ok(Box::new(LocalListing::new(fd, prefix, store)))
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn leads_back(&self, _context: &RequestContext, key: &Key) -> Result<bool> {
        Ok(leads_back(self.directory.path(), key))
    }

    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        let target = self.directory.link_target(key)?;
        if leads_back(self.directory.path(), key) && target.starts_with(b"/") {
            let why = "a symbolic link to a folder that it lies in";
            return Err(Error::corrupt(key, why));
        }
        if !self.directory.shows_as_link(key, &target) {
            let why = "a symbolic link that leaves the store (see --follow-symlinks)";
            return Err(Error::new(Kind::Denied, key, why));
        }
        Ok(target)
    }

    fn etag(&self, _context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        writer::etag(&self.directory, key)
    }

    /// Puts a file, with the mode of the one that it replaces. It is on the disk when this returns.
    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.changed(key, writer::put(&self.directory, key, body, condition))
    }

    /// Removes a file. The condition is checked under the lock of the key, which all of zarrfs takes: another program
    /// can still replace the file between the check and the removal, since the kernel has no conditional unlink(2).
    fn erase(&self, _context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        self.changed(key, writer::erase(&self.directory, key, condition))
    }

    fn erase_folder(&self, _context: &RequestContext, prefix: &Key) -> Result<()> {
        self.changed(prefix, writer::erase_folder(&self.directory, prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}
