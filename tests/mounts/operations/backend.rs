//! Runs file operations on a `Vfs` in this process, or on a mount.
//!
//! A `Vfs` and a mount answer with the errno that a program would see. Paths are relative to the root and joined by
//! `/`. Symbolic links on the way are followed; a link at the end only when a file is opened.

use std::sync::Arc;

use zarrfs::view::View;
use zarrfs_store::EntryKind;
use zarrfs_store::request_context::RequestContext;

pub(crate) type Answer<T> = Result<T, i32>;

/// The part of an `lstat` result that the tests compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: EntryKind,
    pub(crate) size: u64,
    pub(crate) ino: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: EntryKind,
    pub(crate) ino: u64,
    pub(crate) cursor: u64,
}

/// A file system on which the tests run: a `Vfs` in this process, or a mount.
pub(crate) trait Backend: Send + Sync {
    /// Returns the attributes of a path; a symbolic link at its end is not followed.
    fn stat(&self, path: &str) -> Answer<Stat>;

    /// Opens a directory and returns the entries after `cursor` (0: from the beginning), without `.` and `..`.
    fn list_after(&self, context: &RequestContext, path: &str, cursor: u64) -> Answer<Vec<Listed>>;

    fn open(&self, context: &RequestContext, path: &str) -> Answer<Box<dyn OpenFile + '_>>;

    fn read_link(&self, context: &RequestContext, path: &str) -> Answer<Vec<u8>>;

    fn list(&self, context: &RequestContext, path: &str) -> Answer<Vec<Listed>> {
        self.list_after(context, path, 0)
    }

    fn names(&self, context: &RequestContext, path: &str) -> Answer<Vec<String>> {
        let listed = self.list(context, path)?.into_iter();
        let mut names: Vec<String> = listed
            .map(|entry| String::from_utf8(entry.name).unwrap())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Opens a file and returns at most `len` bytes at `offset`.
    fn read(
        &self,
        context: &RequestContext,
        path: &str,
        offset: u64,
        len: usize,
    ) -> Answer<Vec<u8>> {
        self.open(context, path)?.read(context, offset, len)
    }

    fn read_whole(&self, context: &RequestContext, path: &str) -> Answer<Vec<u8>> {
        let file = self.open(context, path)?;
        let mut bytes = Vec::new();
        loop {
            // An odd length, so that reads begin at unaligned offsets.
            let part = file.read(context, bytes.len() as u64, 30_011)?;
            if part.is_empty() {
                return Ok(bytes);
            }
            bytes.extend(part);
        }
    }
}

pub(crate) trait OpenFile: Send + Sync {
    /// Returns the bytes at an offset of the file; fewer than `len` only at its end.
    fn read(&self, context: &RequestContext, offset: u64, len: usize) -> Answer<Vec<u8>>;
}

/// A function that makes a file system from a view: a `Vfs` in this process, or a mount.
pub(crate) type Enter = dyn Fn(Arc<dyn View>) -> Box<dyn Backend>;
