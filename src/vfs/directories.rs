//! Lists open directories name by name; each reply continues after the last one.
//!
//! The kernel's cursor of a name is the number of the name in the listing, counted from 1 (`cursors`). A `Name` has the
//! listing's own cursor until it is added to a reply.
//!
//! At open, the names for one reply are prefetched unless that takes a network request. Then the first reply comes from
//! memory, and for a short directory also the empty reply at the end. On a writable mount nothing is prefetched, since
//! a program may change the directory between the open and the read.

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

/// An entry in the listing of a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Number of the inode that a lookup of the name would return.
    pub ino: Ino,
    /// The cursor after which the listing continues with the next entry.
    pub cursor: u64,
    /// The type of the entry: directory, file or symbolic link.
    pub kind: EntryKind,
    /// The name of the entry.
    pub name: &'a [u8],
}

/// Function that gets the entries of a directory; it returns false if there is no space for an entry.
pub type DirSink<'a> = dyn FnMut(DirEntry<'_>) -> bool + 'a;

/// An open directory. Its attributes can be read while a thread is reading its names.
struct OpenDir {
    ino: Ino,
    opened: SystemTime,
    handle: Arc<Mutex<DirHandle>>,
}

/// The listing of an open directory, and the names that were read ahead.
struct DirHandle {
    ino: Ino,
    path: Key,
    listing: Box<dyn Listing>,
    /// Number of the last name in a reply.
    cursor: u64,
    cursors: Cursors,
    /// Names after the last reply that were already read from the listing.
    prefetched: VecDeque<Name>,
    /// When the prefetch of names began; `None` as soon as a reply has used these names.
    prefetched_at: Option<Instant>,
    /// Whether the listing has no more names after those in `prefetched`.
    has_ended: bool,
}

#[derive(Default)]
pub(super) struct OpenDirs(Mutex<HashMap<Fh, OpenDir>>);

impl OpenDirs {
    fn get(&self, fh: Fh) -> Option<Arc<Mutex<DirHandle>>> {
        let all = self.0.lock();
        all.get(&fh).map(|open| open.handle.clone())
    }

    /// Returns the attributes of an open directory, which may have lost its name: C libraries read the attributes after
    /// each open of a directory.
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
    /// Opens a directory and prefetches its first names.
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

    /// Passes each entry after `cursor` to `sink` until that returns false; the refused entry comes first in the next
    /// call.
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
            // A request that must not wait ends before a name that is not in memory: the names so far are a valid
            // reply.
            if !self.add_to_reply(&mut open, name, sink) || !(context.may_wait() || open.has_next())
            {
                break;
            }
            next = open.next(context);
        }
        Ok(())
    }

    /// Puts names for which the kernel had no space back into an open directory, to follow `cursor`. Otherwise the
    /// listing would have to seek back, which may take requests to the store. Does nothing if another thread reads the
    /// directory.
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

    /// Adds a name to a reply. If the reply has no space, returns false, and the name comes first in the next reply.
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
    /// Whether the listing continues after `cursor`, and its prefetched names are recent enough to be used.
    fn is_at(&self, cursor: u64) -> bool {
        // 500 ms is only a part of the time after which changes of the store must be visible.
        let is_fresh = |read: Instant| read.elapsed() < Duration::from_millis(500);
        // Cursor 0 after an empty listing may be a rewind, so the directory is read again.
        let was_empty = cursor == 0 && self.has_ended && self.prefetched.is_empty();
        match self.prefetched_at {
            Some(read) => self.cursor == cursor && is_fresh(read),
            None => self.cursor == cursor && !was_empty,
        }
    }

    /// Whether the next name, or the end of the listing, is known without waiting.
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
                // The listing has become shorter, since names were removed.
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

    /// Reads names ahead for one reply. An error is ignored, because the next reply reads the names again, and returns
    /// it.
    fn prefetch(&mut self, context: &RequestContext) {
        let (mut bytes, started) = (0, Instant::now());
        // 16 KiB of names fill a reply.
        while bytes < 16 << 10 && !self.has_ended {
            match self.listing.next(context) {
                Ok(Some(name)) => {
                    bytes += name.name.len() + size_of::<Name>();
                    self.prefetched.push_back(name);
                }
                Ok(None) => self.has_ended = true,
                Err(_) => {
                    self.prefetched.clear();
                    // If the listing cannot rewind, the next reply gets the error.
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

    /// Returns the entries of an open directory after a cursor.
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

    /// Returns the names after a cursor and the cursor of the last one, or `None` if they are not in memory.
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
