//! A local directory as a store.
//!
//! Names are raw bytes. Only regular files and directories are ever read. `root` finds the directory that the store's
//! path names, and `directory` resolves keys and ensures that none leads outside the store. `reader` reads open files,
//! `listing` lists directories, and `stat` converts the kernel's file status. `writer` changes objects with
//! `atomic_file`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::Presence;
use crate::backend::local::directory::{StoreDirectory, failed};
use crate::backend::local::listing::LocalListing;
use crate::backend::local::reader::{LocalReader, read_span};
use crate::backend::local::stat::{modified, size_of, version_of};
use crate::backend::{is_a_directory, too_long};
use crate::request_context::RequestContext;
use crate::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreConfig, StoreInfo, Version,
};
use zarr_format::error::{Error, Kind, Result};

mod atomic_file;
mod directory;
mod listing;
mod reader;
mod root;
mod stat;
mod writer;

/// Whether a name is reserved for temporary files.
pub fn is_reserved_name(name: &[u8]) -> bool {
    atomic_file::is_temp_name(name)
}

/// Returns the error `NotPermitted` if a name on the path is reserved for temporary files.
pub fn check_names(path: &Key) -> Result<()> {
    if path.names().any(is_reserved_name) {
        let why = "zarrfs reserves names of this form for temporary files";
        return Err(Error::new(Kind::NotPermitted, path, why));
    }
    Ok(())
}

/// A store in a local directory.
#[derive(Clone)]
pub struct LocalStore {
    directory: Arc<StoreDirectory>,
    info: StoreInfo,
}

impl LocalStore {
    /// Opens the store in the directory at `path`.
    pub fn open(path: &Path, config: &StoreConfig) -> Result<LocalStore> {
        // How long the metadata of a local file may be cached.
        let info = StoreInfo::new(Duration::from_secs(1));
        let (changes, clock) = (info.changes.clone(), info.clock.clone());
        let directory = StoreDirectory::new(path, config.follow_symlinks, changes, clock)?;
        let folder = Some(directory.path().to_path_buf());
        // A new object needs a temporary name first. Mounts refuse those names (`check_names`), since their own commit
        // could not store such a key.
        let unchangeable = directory
            .is_in_our_mount()
            .then_some("is inside a zarrfs mount: use the path of the mounted store instead");
        Ok(LocalStore {
            directory: Arc::new(directory),
            info: StoreInfo {
                folder,
                unchangeable,
                ..info
            },
        })
    }

    /// Records a change. A failed change counts too, since part of it may have been made.
    fn changed<T>(&self, key: &Key, done: Result<T>) -> Result<T> {
        self.info.changes.record(key);
        done
    }

    /// Reads the range of an object that `span` returns for its size. All bytes are from one version; `Changed` if the
    /// file is overwritten during every attempt.
    fn object(
        &self,
        key: &Key,
        span: impl Fn(u64) -> Result<Range<u64>>,
    ) -> Result<Option<Object>> {
        // A read is repeated if the object was overwritten during it.
        for _ in 0..4 {
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
        let why = "keeps changing while it is being read";
        Err(Error::new(Kind::Changed, key, why))
    }
}

impl Store for LocalStore {
    fn get(&self, _context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        self.object(key, |size| {
            if size > limit {
                return Err(too_long(key, size, limit));
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
        match self.directory.cached_head(key) {
            Presence::Unknown => context.check_may_wait().map(|()| None),
            known => Ok(known.value()),
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
                Err(is_a_directory(key))
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

    fn is_symlink_cycle(&self, _context: &RequestContext, key: &Key) -> Result<bool> {
        Ok(self.directory.is_symlink_cycle(key))
    }

    fn read_link(&self, _context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        let target = self.directory.link_target(key)?;
        if self.directory.is_symlink_cycle(key) && target.starts_with(b"/") {
            let why = "a symbolic link to a parent directory";
            return Err(Error::corrupt(key, why));
        }
        if !self.directory.shows_as_link(key, &target) {
            let why =
                "a symbolic link leads out of the store: use --follow-symlinks to follow the link";
            return Err(Error::new(Kind::Denied, key, why));
        }
        Ok(target)
    }

    fn etag(&self, _context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        writer::etag(&self.directory, key)
    }

    /// Puts a file, with the mode of the file that it replaces. The file is on the disk when this returns.
    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.changed(key, writer::put(&self.directory, key, body, condition))
    }

    /// Removes a file. The condition is checked under the lock of the key, which only zarrfs processes take. Another
    /// program can still replace the file between the check and the removal, since the kernel has no conditional
    /// unlink(2).
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
