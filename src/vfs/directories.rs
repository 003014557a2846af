//! Open directories: listings read name by name, each from where the last reply ended.

use parking_lot::Mutex;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::store::{EntryKind, Key, Listing, Name};
use crate::vfs::{Caller, Fh, Ino, Vfs};

/// Takes inode, cursor, kind and name of a directory's entry; returns false if it has no room for it.
pub type DirSink<'a> = dyn FnMut(Ino, u64, EntryKind, &[u8]) -> bool + 'a;

/// An open directory.
pub(super) struct DirHandle {
    ino: Ino,
    path: Key,
    listing: Box<dyn Listing>,
    /// Where the listing stands.
    cursor: u64,
    /// A name that did not fit the last reply.
    kept: Option<Name>,
}

impl Vfs {
    /// Opens a directory.
    pub fn opendir(&self, ino: Ino, caller: Caller) -> Result<Fh> {
        let path = self.inodes.last_path(ino);
        let list = |path: &Key| self.view.list(path);
        let listing = path.and_then(|path| Ok((self.renames.ask(&path, list)?, path)));
        let (listing, path) = listing.map_err(|error| {
            let is_second = self.walks_again(caller);
            let error = self.gone(error, ino, caller);
            if is_second && error.kind() == Kind::Changed {
                // It was there when the path was walked again just now, and has no name any more.
                self.end_walk(caller);
                return Error::not_found(format!("inode {}", ino.0));
            }
            error
        })?;
        self.end_walk(caller);
        let fh = self.new_handle();
        let open = DirHandle {
            ino,
            path,
            listing,
            cursor: 0,
            kept: None,
        };
        let open = Arc::new(Mutex::new(open));
        self.directories.lock().insert(fh, open);
        Ok(fh)
    }

    /// Calls `sink` with inode, cursor, kind and name of each entry after `cursor`, until it returns false: that entry
    /// is the first of the next call.
    pub fn readdir(&self, fh: Fh, cursor: u64, sink: &mut DirSink) -> Result<()> {
        self.stats.readdir_requests.add(1);
        let open = self.directories.lock().get(&fh).cloned();
        let open = open.ok_or_else(|| Error::invalid("handle", "is not open"))?;
        let mut open = open.lock();
        if open.cursor != cursor {
            open.listing.seek(cursor)?;
            open.kept = None;
            open.cursor = cursor;
        }
        while let Some(name) = open.next()? {
            let ino = self.inodes.peek(open.ino, &name.name, name.kind);
            if !sink(ino, name.cursor, name.kind, &name.name) {
                open.kept = Some(name);
                return Ok(());
            }
            open.cursor = name.cursor;
        }
        Ok(())
    }

    /// Closes a directory.
    pub fn releasedir(&self, fh: Fh) {
        let open = self.directories.lock().remove(&fh);
        drop(open);
    }
}

impl DirHandle {
    fn next(&mut self) -> Result<Option<Name>> {
        if self.kept.is_some() {
            return Ok(self.kept.take());
        }
        let next = self.listing.next();
        next.map_err(|error| error.about(&self.path))
    }
}
