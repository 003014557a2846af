//! Open directories: listings are read name by name, continuing after the last reply.
//!
//! The cursor of a name is its number in the order of the listing, counted from 1 (`cursors`); a `Name` has the
//! listing's own cursor until it is added to a reply.
//!
//! At open, the names of one reply are prefetched unless that takes a network request. With prefetched names the first
//! reply comes from memory, and so does the empty reply at the end. On a writable mount nothing is prefetched, since a
//! program may change a directory between the open and the read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use crate::vfs::cursors::Cursors;
use crate::vfs::{Caller, Entry, Fh, Ino, Vfs};
use crate::view::Attr;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::{RequestContext, is_answer};
use zarrfs_store::{EntryKind, Key, Listing, Name};

/// An entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The inode that a lookup of the name would return.
    pub ino: Ino,
    /// The cursor after which the listing continues with the next entry.
    pub cursor: u64,
    /// Directory, file or link.
    pub kind: EntryKind,
    /// The name of the entry.
    pub name: &'a [u8],
}

/// Receives the entries of a directory; returns false if it has no space for one.
pub type DirSink<'a> = dyn FnMut(DirEntry<'_>) -> bool + 'a;

/// An open directory; accessible without waiting for the thread that lists it.
struct OpenDir {
    ino: Ino,
    opened: SystemTime,
    handle: Arc<Mutex<DirHandle>>,
}

/// The listing of an open directory.
struct DirHandle {
    ino: Ino,
    path: Key,
    listing: Box<dyn Listing>,
    /// The number of the last name returned in a reply.
    cursor: u64,
    cursors: Cursors,
    /// The following names that were already read from the listing.
    prefetched: VecDeque<Name>,
    /// When the prefetch began, if no reply has used it yet.
    prefetched_at: Option<Instant>,
    /// Whether the listing has no names after `prefetched`.
    has_ended: bool,
}

/// The open directories.
#[derive(Default)]
pub(super) struct OpenDirs(Mutex<HashMap<Fh, OpenDir>>);

impl OpenDirs {
    fn get(&self, fh: Fh) -> Option<Arc<Mutex<DirHandle>>> {
        let all = self.0.lock();
        all.get(&fh).map(|open| open.handle.clone())
    }

    /// Returns the attributes of an open directory. C libraries query the attributes after each open of a directory,
    /// which may have lost its name by then.
    pub(super) fn attr(&self, ino: Ino) -> Option<Attr> {
        let all = self.0.lock();
        let open = all.values().find(|open| open.ino == ino)?;
        let attr = Entry::unknown(ino, EntryKind::Directory).attr;
        Some(Attr {
            modified: open.opened,
            ..attr
        })
    }
}

impl Vfs {
    /// Opens a directory.
    pub fn opendir(&self, context: &RequestContext, ino: Ino, caller: Caller) -> Result<Fh> {
        let path = || self.path_for(ino, caller, || self.inodes.last_path(ino));
        let listing = self
            .renames
            .retry_query(path, |path| self.view.list(context, path));
        let (listing, path) =
            listing.map_err(|error| self.estale.error_of_path(error, ino, caller))?;
        self.estale.end(caller);
        let fh = self.handles.new_number();
        let mut open = DirHandle {
            ino,
            path,
            listing,
            cursor: 0,
            cursors: Cursors::default(),
            prefetched: VecDeque::new(),
            prefetched_at: None,
            has_ended: false,
        };
        if !self.config.writable && !open.listing.may_wait() {
            open.prefetch(context);
        }
        let open = OpenDir {
            ino,
            opened: SystemTime::now(),
            handle: Arc::new(Mutex::new(open)),
        };
        self.directories.0.lock().insert(fh, open);
        Ok(fh)
    }

    /// Calls `sink` with each entry after `cursor`, until it returns false; the rejected entry is the first of the
    /// next call.
    pub fn readdir(
        &self,
        context: &RequestContext,
        fh: Fh,
        cursor: u64,
        sink: &mut DirSink,
    ) -> Result<()> {
        let open = self.directories.get(fh);
        let open = open.ok_or_else(|| Error::invalid("handle", "not open"))?;
        let mut open = context.lock(&open)?;
        if !open.is_at(cursor) {
            open.seek(context, cursor)?;
        }
        let mut next = open.next(context);
        if is_answer(&next) {
            self.stats.readdir_requests.add(1);
        }
        while let Some(name) = next? {
            // The names added so far are a valid reply: a request that may not wait ends before a name that is not in
            // memory.
            if !self.add_to_reply(&mut open, name, sink) || !(context.may_wait() || open.has_next())
            {
                break;
            }
            next = open.next(context);
        }
        Ok(())
    }

    /// Puts the names after `cursor`, for which the kernel had no space, back into the open directory; without this the
    /// listing would have to seek back, which may cost requests. Does nothing if another thread reads the directory.
    pub fn return_names(&self, fh: Fh, cursor: u64, names: Vec<Name>) {
        let open = self.directories.get(fh);
        let mut open = match open.as_ref().and_then(|open| open.try_lock()) {
            Some(open) => open,
            None => return,
        };
        if names.last().is_none_or(|last| last.cursor != open.cursor) {
            return;
        }
        let of_listing = |name: Name| {
            let cursor = open.cursors.recent(name.cursor)?;
            Some(Name { cursor, ..name })
        };
        let names: Option<Vec<Name>> = names.into_iter().map(of_listing).collect();
        if let Some(names) = names {
            for name in names.into_iter().rev() {
                open.prefetched.push_front(name);
            }
            open.cursor = cursor;
        }
    }

    /// Adds a name to a reply; returns false, and keeps the name, if there is no space.
    fn add_to_reply(&self, open: &mut DirHandle, name: Name, sink: &mut DirSink) -> bool {
        let ino = self.inodes.number_of(open.ino, &name.name);
        let number = open.cursors.record(open.cursor, name.cursor);
        let entry = DirEntry {
            ino,
            cursor: number,
            kind: name.kind,
            name: &name.name,
        };
        if !sink(entry) {
            open.prefetched.push_front(name);
            return false;
        }
        (open.cursor, open.prefetched_at) = (number, None);
        true
    }

    /// Closes a directory.
    pub fn releasedir(&self, fh: Fh) {
        let open = self.directories.0.lock().remove(&fh);
        drop(open);
    }
}

impl DirHandle {
    /// Whether the next name is the one after `cursor`, and was not prefetched too long ago.
    fn is_at(&self, cursor: u64) -> bool {
        // 500 ms is only a part of the time after which a change of the store must be visible.
        let is_fresh = |read: Instant| read.elapsed() < Duration::from_millis(500);
        // Cursor 0 may be the end of an empty directory or a rewind to its beginning.
        let was_empty = cursor == 0 && self.has_ended && self.prefetched.is_empty();
        match self.prefetched_at {
            Some(read) => self.cursor == cursor && is_fresh(read),
            None => self.cursor == cursor && !was_empty,
        }
    }

    /// Whether the next name, or the end, is known without waiting.
    fn has_next(&self) -> bool {
        self.has_ended || !self.prefetched.is_empty()
    }

    fn seek(&mut self, context: &RequestContext, cursor: u64) -> Result<()> {
        context.check_may_wait()?;
        let (known, of_listing) = self.cursors.nearest(cursor);
        self.listing.seek(context, of_listing)?;
        self.prefetched.clear();
        (self.cursor, self.prefetched_at, self.has_ended) = (known, None, false);
        while self.cursor < cursor {
            match self.next(context)? {
                Some(name) => self.cursor = self.cursors.record(self.cursor, name.cursor),
                // The listing has become shorter.
                None => break,
            }
        }
        Ok(())
    }

    fn next(&mut self, context: &RequestContext) -> Result<Option<Name>> {
        if let Some(name) = self.prefetched.pop_front() {
            return Ok(Some(name));
        }
        if self.has_ended {
            return Ok(None);
        }
        context.check_may_wait()?;
        let next = self.listing.next(context);
        let next = next.map_err(|error| error.about(&self.path))?;
        self.has_ended = next.is_none();
        Ok(next)
    }

    /// Prefetches the names of one reply. An error is not returned here: the next reply reads the names again and
    /// returns it.
    fn prefetch(&mut self, context: &RequestContext) {
        let (mut bytes, started) = (0, Instant::now());
        // A reply has no space for more.
        while bytes < 16 << 10 && !self.has_ended {
            match self.listing.next(context) {
                Ok(Some(name)) => {
                    bytes += name.name.len() + size_of::<Name>();
                    self.prefetched.push_back(name);
                }
                Ok(None) => self.has_ended = true,
                Err(_) => {
                    self.prefetched.clear();
                    // If the listing cannot rewind, the next reply gets that error.
                    let _ = self.seek(context, 0);
                    return;
                }
            }
        }
        self.prefetched_at = Some(started);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::vfs;
    use zarrfs_store::StoreConfig;
    use zarrfs_store::backend::local::LocalStore;
    use zarrfs_store::request_context::{UNLIMITED, WITHOUT_WAITING};

    fn mounted(path: &std::path::Path, writable: bool) -> Vfs {
        let store = LocalStore::open(path, &StoreConfig::default()).unwrap();
        vfs::mounted(store, writable)
    }

    /// Returns the entries after a cursor.
    fn read(vfs: &Vfs, context: &RequestContext, fh: Fh, cursor: u64) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut sink = |entry: DirEntry<'_>| {
            names.push(Name {
                name: entry.name.to_vec(),
                kind: entry.kind,
                cursor: entry.cursor,
                meta: None,
            });
            true
        };
        vfs.readdir(context, fh, cursor, &mut sink)?;
        Ok(names)
    }

    /// Returns the names after a cursor and the last cursor, or `None` if they are not in memory.
    fn listed_names(vfs: &Vfs, fh: Fh, cursor: u64) -> Option<(Vec<Vec<u8>>, u64)> {
        let names = read(vfs, &WITHOUT_WAITING, fh, cursor);
        let names = is_answer(&names).then(|| names.unwrap())?;
        let last = names.last().map_or(cursor, |name| name.cursor);
        Some((names.into_iter().map(|name| name.name).collect(), last))
    }

    #[test]
    fn opening_a_short_directory_reads_it_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        let vfs = mounted(folder.path(), false);
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        let (names, last) = listed_names(&vfs, fh, 0).unwrap();
        assert_eq!(names, [b"a"]);
        assert_eq!(listed_names(&vfs, fh, last), Some((Vec::new(), last)));
        fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(listed_names(&vfs, fh, 0), None, "it is read anew");
        assert_eq!(read(&vfs, &UNLIMITED, fh, 0).unwrap().len(), 2);
    }

    #[test]
    fn an_empty_directory_is_read_again_after_a_rewind() {
        let folder = tempfile::tempdir().unwrap();
        let vfs = mounted(folder.path(), true);
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        let names = || {
            let names = read(&vfs, &WITHOUT_WAITING, fh, 0);
            names.or_else(|_| read(&vfs, &UNLIMITED, fh, 0)).unwrap()
        };
        assert!(names().is_empty());
        fs::write(folder.path().join("a"), "").unwrap();
        assert_eq!(names().len(), 1);
    }

    #[test]
    fn a_long_directory_buffers_its_first_names_and_repeats_none() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..500 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let vfs = mounted(folder.path(), false);
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        let (mut names, last) = listed_names(&vfs, fh, 0).unwrap();
        assert!((10..400).contains(&names.len()), "{}", names.len());
        assert_eq!(listed_names(&vfs, fh, last), None);
        let rest = read(&vfs, &UNLIMITED, fh, last).unwrap();
        names.extend(rest.into_iter().map(|name| name.name));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 500);
    }

    #[test]
    fn names_that_did_not_fit_are_listed_next() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let vfs = mounted(folder.path(), true);
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        let mut names = read(&vfs, &UNLIMITED, fh, 0).unwrap();
        let rest = names.split_off(20);
        let (cursor, text) = (names[19].cursor, |name: &Name| name.name.clone());
        vfs.return_names(fh, cursor, rest.clone());
        let (again, last) = listed_names(&vfs, fh, cursor).unwrap();
        assert_eq!(again, rest.iter().map(text).collect::<Vec<_>>());
        assert_eq!(last, rest[29].cursor);
        let late = vec![rest[0].clone()];
        vfs.return_names(fh, cursor, late);
        assert_eq!(
            listed_names(&vfs, fh, last),
            Some((Vec::new(), last)),
            "it went on"
        );
    }

    #[test]
    fn a_file_made_in_an_open_writable_directory_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let vfs = mounted(folder.path(), true);
        let fh = vfs.opendir(&UNLIMITED, Ino::ROOT, Caller(1)).unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        assert_eq!(listed_names(&vfs, fh, 0), None);
        assert_eq!(read(&vfs, &UNLIMITED, fh, 0).unwrap().len(), 1);
    }
}
