//! Defines what actors work on: a mount or an overlay, and the store below it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use zarr_format::error::{Error, Kind};
use zarrfs_store::{Condition, EntryKind, Key, PutBody, Store};

use crate::concurrency::history::Failure;
use zarrfs_store::request_context::{RequestContext, UNLIMITED};

/// The result of an operation, or the system call or command that failed.
pub(crate) type Tried<T> = Result<T, Failure>;

/// A way in which a program overwrites a file in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InPlace {
    /// The file is truncated first, then written in two parts.
    Emptied,
    /// The file is overwritten in two parts, then set to its new length.
    Patched,
    Mapped,
}

/// The result of a commit: the keys in conflict, and the files that it did not commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Committed {
    pub(crate) conflicts: Vec<String>,
    pub(crate) kept: Vec<String>,
}

pub(crate) trait Held: Send {
    fn read(&self, context: &RequestContext) -> Tried<Vec<u8>>;
}

/// A directory in which the actors work: a mount, an overlay or a plain directory.
pub(crate) trait World: Sync {
    /// Writes a temporary file, closes it, and renames it to `path`. If `synced` is true, fsyncs it before the close.
    fn replace(
        &self,
        context: &RequestContext,
        path: &str,
        temporary: &str,
        bytes: &[u8],
        synced: bool,
    ) -> Tried<()>;
    /// Overwrites a whole file in place; creates the file if it is missing.
    fn overwrite(
        &self,
        context: &RequestContext,
        path: &str,
        bytes: &[u8],
        how: InPlace,
    ) -> Tried<()>;
    fn append(&self, context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()>;
    fn truncate(&self, context: &RequestContext, path: &str, length: u64) -> Tried<()>;
    fn remove(&self, context: &RequestContext, path: &str) -> Tried<()>;
    fn rename(&self, context: &RequestContext, from: &str, to: &str) -> Tried<()>;
    fn read(&self, context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>>;
    fn length(&self, context: &RequestContext, path: &str) -> Tried<Option<u64>>;
    /// Returns the names in a folder; empty if the folder is missing.
    fn names(&self, context: &RequestContext, folder: &str) -> Tried<Vec<String>>;
    fn hold(&self, context: &RequestContext, path: &str) -> Tried<Option<Box<dyn Held>>>;
    fn read_decoded(&self, array: &str, chunk: u64) -> Tried<Vec<u8>>;
    fn write_decoded(&self, array: &str, chunk: u64, bytes: &[u8]) -> Tried<()>;
    fn commit(&self, context: &RequestContext) -> Tried<Committed>;
    /// Discards the uncommitted changes of a path; returns whether there were any.
    fn discard(&self, context: &RequestContext, path: &str) -> Tried<bool>;
    /// Kills the daemon that serves the directory, and mounts the store again.
    fn kill(&self);
    /// Returns the process that serves the directory, or `None` if no process answers. Between a kill and the next
    /// mount, the directory is the empty directory below the mountpoint.
    fn server(&self) -> Option<u32>;
    /// Returns the paths of files in the upper folder that should be gone after a commit of all changes.
    fn left_over(&self, context: &RequestContext) -> Vec<String>;
    /// Whether there is a files view, with decoded chunks.
    fn has_decoded(&self) -> bool;
}

/// The store below a mount or overlay, as other programs read and change it.
pub(crate) trait Outside: Sync {
    fn get(&self, context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>>;
    fn put(&self, context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()>;
    fn erase(&self, context: &RequestContext, path: &str) -> Tried<()>;
    fn paths(&self) -> Vec<String>;
}

pub(crate) fn failed(call: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure {
        why: error.to_string(),
        ..Failure::new(call, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

pub(crate) fn refused(call: &str) -> impl Fn(Error) -> Failure {
    move |error| Failure {
        why: error.to_string(),
        ..Failure::new(call, error.errno())
    }
}

pub(crate) fn found<T>(done: Tried<T>) -> Tried<Option<T>> {
    match done {
        Err(failure) if failure.errno == libc::ENOENT => Ok(None),
        done => done.map(Some),
    }
}

/// A store in a local folder, changed as other programs change folders.
pub(crate) struct OutsideFolder(pub(crate) PathBuf);

impl Outside for OutsideFolder {
    fn get(&self, _context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>> {
        found(fs::read(self.0.join(path)).map_err(failed("read in the store")))
    }

    fn put(&self, _context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()> {
        let target = self.0.join(path);
        // The temporary file is outside of the store, so that no listing of the store shows it.
        let temporary = self.0.with_extension("foreign");
        let put = || {
            fs::create_dir_all(target.parent().unwrap_or(&self.0))?;
            fs::write(&temporary, bytes)?;
            fs::rename(&temporary, &target)
        };
        put().map_err(failed("put in the store"))
    }

    fn erase(&self, _context: &RequestContext, path: &str) -> Tried<()> {
        let erased =
            found(fs::remove_file(self.0.join(path)).map_err(failed("erase in the store")));
        erased.map(|_| ())
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let below = path.strip_prefix(&self.0).unwrap();
                    paths.push(below.to_string_lossy().into_owned());
                }
            }
        }
        paths.sort();
        paths
    }
}

/// A store that other programs access by its API, such as a bucket.
pub(crate) struct OutsideStore(pub(crate) Arc<dyn Store>);

const LIMIT: u64 = 1 << 20;

/// The number of times that a listing of a server is tried.
const ATTEMPTS: usize = 5;

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

impl Outside for OutsideStore {
    fn get(&self, context: &RequestContext, path: &str) -> Tried<Option<Vec<u8>>> {
        let object = self.0.get(context, &key(path), LIMIT);
        let object = object.map_err(refused("get from the store"))?;
        Ok(object.map(|object| object.bytes))
    }

    fn put(&self, context: &RequestContext, path: &str, bytes: &[u8]) -> Tried<()> {
        let put = self
            .0
            .put(context, &key(path), PutBody::Bytes(bytes), &Condition::Any);
        put.map(|_| ()).map_err(refused("put in the store"))
    }

    fn erase(&self, context: &RequestContext, path: &str) -> Tried<()> {
        match self.0.erase(context, &key(path), &Condition::Any) {
            Err(error) if error.kind() != Kind::NotFound => {
                Err(refused("erase in the store")(error))
            }
            _ => Ok(()),
        }
    }

    fn paths(&self) -> Vec<String> {
        let mut listed = self.try_paths();
        for _ in 1..ATTEMPTS {
            if listed.is_err() {
                listed = self.try_paths();
            }
        }
        listed.unwrap()
    }
}

impl OutsideStore {
    fn try_paths(&self) -> zarr_format::error::Result<Vec<String>> {
        let mut paths = Vec::new();
        let mut folders = vec![Key::root()];
        while let Some(folder) = folders.pop() {
            let mut listing = match self.0.list(&UNLIMITED, &folder) {
                // The folder disappeared with its last key, after it had been listed.
                Err(error) if error.kind() == Kind::NotFound => continue,
                listing => listing?,
            };
            while let Some(name) = listing.next(&UNLIMITED)? {
                let key = folder.child(&name.name)?;
                match name.kind {
                    EntryKind::Directory => folders.push(key),
                    _ => paths.push(key.to_string()),
                }
            }
        }
        paths.sort();
        Ok(paths)
    }
}
