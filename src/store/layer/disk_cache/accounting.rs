//! One change of a cache's folder at a time, over all processes.
//!
//! Who holds the lock of the folder is alone with it: there is never more than one file on its way in, and none
//! whose writer lives when somebody else holds the lock. Room is made, and written down, before a file begins; a
//! file is complete before it has its name. What to do about an error is left to the caller.

use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::folder;
use super::folder::EvictionCandidate;
use super::usage_file::UsageFile;
use crate::stats::Stats;

/// How long a change waits for the changes of others, before it is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a look at a lock that somebody else holds is put off.
const PAUSE: Duration = Duration::from_micros(200);

/// One part in so many of the size is left to the folders' own tables of names.
const FOR_NAMES: u64 = 32;

/// The folder of a cache.
pub(super) struct CacheFolder {
    pub(super) root: OwnedFd,
    limit: u64,
    /// Room is taken in units of this many bytes.
    block: u64,
    changes: Mutex<WriterState>,
}

/// What only one thread at a time may use.
struct WriterState {
    ledger: UsageFile,
    /// What was used least when somebody looked last; the first of them is the last in the list.
    oldest: Vec<EvictionCandidate>,
}

impl CacheFolder {
    pub(super) fn new(root: OwnedFd, size: u64) -> io::Result<CacheFolder> {
        let flags = OFlags::RDWR | OFlags::CREATE | folder::SAFE;
        let lock = rustix::fs::openat(&root, folder::LOCK, flags, folder::PRIVATE_FILE)?;
        let lock = File::from(lock);
        if !lock.metadata()?.is_file() {
            return Err(io::Error::other("'lock' is not a file"));
        }
        let unit = rustix::fs::fstatvfs(&root)?.f_frsize;
        Ok(CacheFolder {
            root,
            limit: size.saturating_sub(size / FOR_NAMES),
            block: unit.clamp(4 << 10, 1 << 20),
            changes: Mutex::new(WriterState {
                ledger: UsageFile::new(lock),
                oldest: Vec::new(),
            }),
        })
    }
}

/// A change of the folder, under its lock.
pub(super) struct CacheTransaction<'a> {
    open: &'a CacheFolder,
    stats: &'a Stats,
    changes: MutexGuard<'a, WriterState>,
    held: u64,
}

impl<'a> CacheTransaction<'a> {
    /// Waits for the lock; nothing if that takes too long.
    pub(super) fn begin(
        open: &'a CacheFolder,
        stats: &'a Stats,
    ) -> io::Result<Option<CacheTransaction<'a>>> {
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
        let mut change = CacheTransaction {
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
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
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
    pub(super) fn put(
        &mut self,
        folder: impl AsFd,
        name: &str,
        parts: [&[u8]; 2],
    ) -> io::Result<bool> {
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

    pub(super) fn remove(&mut self, folder: impl AsFd, name: &str) -> io::Result<()> {
        if let Some(there) = folder::stat(&folder, name)? {
            folder::remove(&folder, name)?;
            self.give_back(there.st_size as u64);
        }
        Ok(())
    }

    /// Makes the folder of a store, if need be.
    pub(super) fn make_store(&mut self, name: &str) -> io::Result<()> {
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

    pub(super) fn end(self) -> io::Result<()> {
        self.stats.disk_held_bytes.set(self.held);
        self.changes.ledger.write(self.held, true)
    }
}

impl Drop for CacheTransaction<'_> {
    fn drop(&mut self) {
        // Fails only for what is no file.
        let _ = rustix::fs::flock(self.changes.ledger.file(), FlockOperation::Unlock);
    }
}

/// Waits for a lock of this process.
fn wait(changes: &Mutex<WriterState>, deadline: Instant) -> Option<MutexGuard<'_, WriterState>> {
    loop {
        match changes.try_lock() {
            Some(changes) => return Some(changes),
            None if Instant::now() < deadline => thread::sleep(PAUSE),
            None => return None,
        }
    }
}
