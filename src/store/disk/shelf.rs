//! The cache as a whole: one folder, one limit, any number of processes.
//!
//! What changes the folder holds its lock, which all processes share, so there is never more than one file on
//! its way in, and none whose writer lives when somebody else holds the lock. Room is made and written down
//! before a file begins; a file is complete before it has its name. Reading needs no lock. Whatever fails
//! here, other than at `open`, is said once in the log and ends the use of the cache, never a read.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::TryLockError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::fs::FallocateFlags;
use rustix::fs::FlockOperation;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::entry::Entry;
use super::entry::Facts;
use super::entry::Label;
use super::entry::seal;
use super::folder;
use super::folder::Aged;
use super::ledger::Ledger;
use crate::error::Result;
use crate::stats::Stats;
use crate::store::Version;

/// How long a change waits for the changes of others, before it is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the folder of a store is asked for.
const ATTEMPTS: usize = 10;

/// How long a look at a lock that somebody else holds is put off.
const PAUSE: Duration = Duration::from_micros(200);

/// One part in so many of the size is left to the folders' own tables of names.
const FOR_NAMES: u64 = 32;

/// A folder that holds bytes of stores.
pub struct Shelf {
    path: PathBuf,
    stats: Arc<Stats>,
    is_off: AtomicBool,
    /// Nothing if the folder could not be opened.
    open: Option<Open>,
}

struct Open {
    root: OwnedFd,
    limit: u64,
    /// Room is taken in units of this many bytes.
    block: u64,
    changes: Mutex<Changes>,
}

/// What only one thread at a time may use.
struct Changes {
    ledger: Ledger,
    /// What was used least when somebody looked last; the first of them is the last in the list.
    oldest: Vec<Aged>,
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shelf").field(&self.path).finish()
    }
}

impl Shelf {
    /// Opens the folder at `path`, which may take `size` bytes. `NotADirectory` or `Denied` for a folder that is
    /// not ours; where it cannot be used otherwise, the shelf is there and keeps nothing.
    pub fn open(path: &Path, size: u64, stats: &Arc<Stats>) -> Result<Arc<Shelf>> {
        let opened = folder::open(path)?.and_then(|root| Open::new(root, size));
        let (open, fault) = match opened {
            Ok(open) => (Some(open), None),
            Err(fault) => (None, Some(fault)),
        };
        stats.disk_limit_bytes.set(size);
        let shelf = Shelf {
            path: path.to_path_buf(),
            stats: stats.clone(),
            is_off: AtomicBool::new(false),
            open,
        };
        if let Some(fault) = fault {
            shelf.turn_off(&fault);
        }
        // What another process with a larger size has left may be too much.
        shelf.change(|change| change.make_room(0).map(drop));
        Ok(Arc::new(shelf))
    }

    /// Says what is wrong and keeps nothing from now on.
    fn turn_off(&self, fault: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            log::warn!("{path}: {fault}; nothing is cached there from now on");
        }
    }

    /// Returns the folder, as long as it is in use.
    fn in_use(&self) -> Option<&Open> {
        let is_off = self.is_off.load(Ordering::Relaxed);
        self.open.as_ref().filter(|_| !is_off)
    }

    /// Makes a change under the lock and returns what it gave; nothing if it failed, or if others hold the lock
    /// for too long.
    fn change<T>(&self, work: impl FnOnce(&mut Change) -> io::Result<T>) -> Option<T> {
        let open = self.in_use()?;
        let done = Change::begin(open, &self.stats).and_then(|change| {
            let Some(mut change) = change else {
                return Ok(None);
            };
            let given = work(&mut change)?;
            change.end()?;
            Ok(Some(given))
        });
        done.unwrap_or_else(|fault| {
            self.turn_off(&fault);
            None
        })
    }
}

impl Open {
    fn new(root: OwnedFd, size: u64) -> io::Result<Open> {
        let flags = OFlags::RDWR | OFlags::CREATE | folder::SAFE;
        let lock = rustix::fs::openat(&root, folder::LOCK, flags, folder::PRIVATE_FILE)?;
        let lock = File::from(lock);
        if !lock.metadata()?.is_file() {
            return Err(io::Error::other("'lock' is not a file"));
        }
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        Ok(Open {
            root,
            limit: size.saturating_sub(size / FOR_NAMES),
            block: unit.clamp(4 << 10, 1 << 20),
            changes: Mutex::new(Changes {
                ledger: Ledger::new(lock),
                oldest: Vec::new(),
            }),
        })
    }
}

/// A change of the folder, under its lock.
struct Change<'a> {
    open: &'a Open,
    stats: &'a Stats,
    changes: MutexGuard<'a, Changes>,
    held: u64,
}

impl<'a> Change<'a> {
    /// Waits for the lock; nothing if that takes too long.
    fn begin(open: &'a Open, stats: &'a Stats) -> io::Result<Option<Change<'a>>> {
        let deadline = Instant::now() + PATIENCE;
        let Some(changes) = wait(&open.changes, deadline) else {
            return Ok(None);
        };
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        while let Err(error) = rustix::fs::flock(changes.ledger.file(), exclusive) {
            match error {
                Errno::WOULDBLOCK if Instant::now() < deadline => thread::sleep(PAUSE),
                Errno::WOULDBLOCK => return Ok(None),
                Errno::INTR => {}
                error => return Err(error.into()),
            }
        }
        let held = changes.ledger.held();
        let mut change = Change {
            open,
            stats,
            changes,
            held: held.unwrap_or(0),
        };
        change.check_place()?;
        if held.is_none() {
            change.count()?;
        }
        change.changes.ledger.write(change.held, false)?;
        Ok(Some(change))
    }

    /// A lock that was removed or replaced is no longer everybody's.
    fn check_place(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let ours = self.changes.ledger.file().metadata()?;
        let there = folder::stat(&self.open.root, folder::LOCK)?;
        match there.is_some_and(|there| there.st_ino == ours.ino()) {
            true => Ok(()),
            false => Err(io::Error::other("its lock was removed")),
        }
    }

    /// Counts what is there.
    fn count(&mut self) -> io::Result<()> {
        let found = folder::look_through(&self.open.root, self.open.block)?;
        self.held = found.held;
        self.changes.oldest = found.oldest;
        self.changes.oldest.reverse();
        Ok(())
    }

    /// Removes what was used least until `bytes` more fit; false if they do not.
    fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        let mut looks = 0;
        while self.held.saturating_add(bytes) > self.open.limit {
            match self.changes.oldest.pop() {
                Some(aged) => {
                    if let Some(length) = aged.remove()? {
                        self.give_back(length);
                        self.stats.disk_evicted_entries.add(1);
                    }
                }
                None if looks < 2 => {
                    looks += 1;
                    self.count()?;
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn give_back(&mut self, length: u64) {
        let bytes = folder::charge(length, self.open.block);
        self.held = self.held.saturating_sub(bytes);
    }

    /// Writes a file and puts it in the place of what has its name; false if there is no room for it.
    fn put(&mut self, folder: impl AsFd, name: &str, parts: [&[u8]; 2]) -> io::Result<bool> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let charge = folder::charge(length, self.open.block);
        if charge > self.open.limit || !self.make_room(charge)? {
            return Ok(false);
        }
        if let Err(error) = self.write(length, parts) {
            folder::remove(&self.open.root, folder::ARRIVING)?;
            return Err(error);
        }
        let replaced = folder::stat(&folder, name)?;
        rustix::fs::renameat(&self.open.root, folder::ARRIVING, &folder, name)?;
        self.held = self.held.saturating_add(charge);
        if let Some(replaced) = replaced {
            self.give_back(replaced.st_size as u64);
        }
        self.stats.disk_written_bytes.add(length);
        Ok(true)
    }

    fn write(&self, length: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        let root = &self.open.root;
        folder::remove(root, folder::ARRIVING)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | folder::SAFE;
        let file = rustix::fs::openat(root, folder::ARRIVING, flags, folder::PRIVATE_FILE)?;
        // Some file systems take room in advance for a file that grows; not for one that has it all.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let mut file = File::from(file);
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    fn remove(&mut self, folder: impl AsFd, name: &str) -> io::Result<()> {
        if let Some(there) = folder::stat(&folder, name)? {
            folder::remove(&folder, name)?;
            self.give_back(there.st_size as u64);
        }
        Ok(())
    }

    /// Makes the folder of a store, if need be.
    fn make_store(&mut self, name: &str) -> io::Result<()> {
        if !self.make_room(self.open.block)? {
            return Err(io::Error::other("--cache-size is too small"));
        }
        match rustix::fs::mkdirat(&self.open.root, name, folder::PRIVATE_FOLDER) {
            Ok(()) => self.held = self.held.saturating_add(self.open.block),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn end(self) -> io::Result<()> {
        self.stats.disk_held_bytes.set(self.held);
        self.changes.ledger.write(self.held, true)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // Fails only for what is no file.
        let _ = rustix::fs::flock(self.changes.ledger.file(), FlockOperation::Unlock);
    }
}

/// Waits for a lock of this process.
fn wait(changes: &Mutex<Changes>, deadline: Instant) -> Option<MutexGuard<'_, Changes>> {
    loop {
        match changes.try_lock() {
            Ok(changes) => return Some(changes),
            Err(TryLockError::Poisoned(changes)) => return Some(PoisonError::into_inner(changes)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// The part of a shelf that is one store's.
pub struct Drawer {
    shelf: Arc<Shelf>,
    /// Nothing if it could not be opened.
    folder: Option<OwnedFd>,
}

impl Drawer {
    /// Opens the part of the store that `identity` names.
    pub fn open(shelf: &Arc<Shelf>, identity: &str) -> Drawer {
        let name = format!(
            "{}{:016x}",
            folder::STORE,
            Version::of(identity.as_bytes()).0
        );
        // Others may be busy for longer than one change waits.
        let mut attempts = 0..ATTEMPTS;
        while attempts.next().is_some() && shelf.in_use().is_some() {
            if shelf.change(|change| change.make_store(&name)).is_some() {
                break;
            }
        }
        let opened = shelf
            .in_use()
            .map(|open| folder::open_store(&open.root, &name));
        let folder = match opened.transpose() {
            Ok(folder) => folder,
            Err(fault) => {
                shelf.turn_off(&fault);
                None
            }
        };
        Drawer {
            shelf: shelf.clone(),
            folder,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.shelf.stats
    }

    /// Whether something lies under a label.
    pub fn has(&self, label: &Label) -> bool {
        let folder = self
            .folder
            .as_ref()
            .filter(|_| self.shelf.in_use().is_some());
        let stat = folder.map(|folder| folder::stat(folder, &label.name()));
        matches!(stat, Some(Ok(Some(_))))
    }

    /// Returns what lies under a label, if it is whole.
    pub fn find(&self, label: &Label) -> Option<Entry> {
        self.shelf.in_use()?;
        let folder = self.folder.as_ref()?;
        let flags = OFlags::RDONLY | folder::SAFE;
        let file = match rustix::fs::openat(folder, label.name(), flags, folder::PRIVATE_FILE) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return None,
            // A link; nobody who may write here makes any.
            Err(Errno::LOOP) => return self.discard(label),
            Err(error) => {
                self.shelf.turn_off(&error.into());
                return None;
            }
        };
        let length = file.metadata().ok().filter(|meta| meta.is_file())?.len();
        match Entry::open(file, length, label) {
            Ok(entry) => Some(entry),
            Err(_) => self.discard(label),
        }
    }

    /// Returns bytes of an entry that was found under a label; nothing if they are not what they were.
    pub fn read(
        &self,
        label: &Label,
        entry: &Entry,
        range: std::ops::Range<u64>,
    ) -> Option<Vec<u8>> {
        match entry.read(range) {
            Ok(bytes) => {
                entry.touch();
                Some(bytes)
            }
            Err(_) => self.discard(label),
        }
    }

    /// Removes what cannot be right.
    fn discard<T>(&self, label: &Label) -> Option<T> {
        self.shelf.stats.disk_corrupt_entries.add(1);
        self.forget(label);
        None
    }

    /// Removes what lies under a label.
    pub fn forget(&self, label: &Label) {
        if let Some(folder) = &self.folder {
            self.shelf
                .change(|change| change.remove(folder, &label.name()));
        }
    }

    /// Keeps bytes under a label, if there is or can be made room for them; returns whether it did.
    pub fn put(&self, label: &Label, facts: &Facts, bytes: &[u8]) -> bool {
        let (Some(folder), Some(_)) = (&self.folder, self.shelf.in_use()) else {
            return false;
        };
        let end = seal(label, facts, bytes);
        let kept = self
            .shelf
            .change(|change| change.put(folder, &label.name(), [bytes, &end]));
        kept.unwrap_or(false)
    }
}
