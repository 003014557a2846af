//! Changes of a cache's folder: one at a time, over all processes, with an account of the bytes that it holds.
//!
//! The holder of the lock file's lock is alone with the folder: at most one file is on its way in, and a file that is on
//! its way in while the lock is free was left by a dead process. Room is made, and written down, before a file is begun,
//! and a file is complete before it gets its name. What an error means is left to the caller.

use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::io;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use super::folder;
use super::folder::EvictionCandidate;
use crate::stats::Stats;
use crate::store::Version;

/// How long a change waits for the changes of others before it is given up.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait before a lock that is held is tried again.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_micros(200);

/// One part in so many of the size is left to the file system's tables of names.
const SHARE_FOR_NAMES: u64 = 32;

/// The folder of a cache.
pub(super) struct CacheFolder {
    pub(super) root: OwnedFd,
    /// Bytes that the folder may hold.
    limit: u64,
    /// Room is taken in units of this many bytes.
    block: u64,
    writer: Mutex<WriterState>,
}

/// What only one thread at a time may use.
struct WriterState {
    usage: UsageFile,
    /// What was used least recently when the folder was looked through last; the next to go is the last of them.
    candidates: Vec<EvictionCandidate>,
}

impl CacheFolder {
    /// Opens a folder that may take `size` bytes.
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
            limit: size.saturating_sub(size / SHARE_FOR_NAMES),
            block: unit.clamp(4 << 10, 1 << 20),
            writer: Mutex::new(WriterState {
                usage: UsageFile::new(lock),
                candidates: Vec::new(),
            }),
        })
    }
}

/// A change of the folder, under its lock.
pub(super) struct CacheTransaction<'a> {
    folder: &'a CacheFolder,
    stats: &'a Stats,
    writer: MutexGuard<'a, WriterState>,
    /// Bytes in the folder.
    held: u64,
}

impl<'a> CacheTransaction<'a> {
    /// Waits for the lock; nothing if that takes too long.
    pub(super) fn begin(
        folder: &'a CacheFolder,
        stats: &'a Stats,
    ) -> io::Result<Option<CacheTransaction<'a>>> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        let Some(writer) = folder.writer.try_lock_until(deadline) else {
            return Ok(None);
        };
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        while let Err(error) = rustix::fs::flock(writer.usage.file(), exclusive) {
            match error {
                Errno::WOULDBLOCK if Instant::now() < deadline => {
                    thread::sleep(LOCK_RETRY_INTERVAL)
                }
                Errno::WOULDBLOCK => return Ok(None),
                Errno::INTR => {}
                error => return Err(error.into()),
            }
        }
        let held = writer.usage.held();
        let mut change = CacheTransaction {
            folder,
            stats,
            writer,
            held: held.unwrap_or(0),
        };
        change.check_lock_file()?;
        if held.is_none() {
            change.count()?;
        }
        change.writer.usage.write(change.held, false)?;
        Ok(Some(change))
    }

    /// Fails if the lock file was removed or replaced: other processes then lock another one.
    fn check_lock_file(&self) -> io::Result<()> {
        let ours = self.writer.usage.file().metadata()?;
        let there = folder::stat(&self.folder.root, folder::LOCK)?;
        if there.is_some_and(|there| there.st_ino == ours.ino()) {
            Ok(())
        } else {
            Err(io::Error::other("its lock was removed"))
        }
    }

    /// Counts the bytes in the folder.
    fn count(&mut self) -> io::Result<()> {
        let found = folder::look_through(&self.folder.root, self.folder.block)?;
        self.held = found.held;
        self.writer.candidates = found.candidates;
        self.writer.candidates.reverse();
        Ok(())
    }

    /// Removes what was used least recently until `bytes` more fit; false if they do not.
    pub(super) fn make_room(&mut self, bytes: u64) -> io::Result<bool> {
        let mut counted = 0;
        while self.held.saturating_add(bytes) > self.folder.limit {
            match self.writer.candidates.pop() {
                Some(candidate) => {
                    if let Some(length) = candidate.remove()? {
                        self.release(length);
                        self.stats.disk_evicted_entries.add(1);
                    }
                }
                None if counted < 2 => {
                    counted += 1;
                    self.count()?;
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn release(&mut self, length: u64) {
        let bytes = folder::charge(length, self.folder.block);
        self.held = self.held.saturating_sub(bytes);
    }

    /// Writes a file, which replaces one of its name; false if there is no room for it.
    pub(super) fn put(
        &mut self,
        folder: impl AsFd,
        name: &str,
        parts: [&[u8]; 2],
    ) -> io::Result<bool> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let charge = folder::charge(length, self.folder.block);
        if charge > self.folder.limit || !self.make_room(charge)? {
            return Ok(false);
        }
        if let Err(error) = self.write(length, parts) {
            folder::remove(&self.folder.root, folder::ARRIVING)?;
            // A file that is longer than this process may write does not fit; others may.
            return match error.raw_os_error() {
                Some(libc::EFBIG) => Ok(false),
                _ => Err(error),
            };
        }
        let replaced = folder::stat(&folder, name)?;
        rustix::fs::renameat(&self.folder.root, folder::ARRIVING, &folder, name)?;
        self.held = self.held.saturating_add(charge);
        if let Some(replaced) = replaced {
            self.release(folder::length(&replaced));
        }
        self.stats.disk_written_bytes.add(length);
        Ok(true)
    }

    fn write(&self, length: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        let root = &self.folder.root;
        folder::remove(root, folder::ARRIVING)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | folder::SAFE;
        let file = rustix::fs::openat(root, folder::ARRIVING, flags, folder::PRIVATE_FILE)?;
        // Some file systems take more room in advance for a file that grows, but none for one that has it all.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let mut file = File::from(file);
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    /// Removes a file, if there is one.
    pub(super) fn remove(&mut self, folder: impl AsFd, name: &str) -> io::Result<()> {
        if let Some(there) = folder::stat(&folder, name)? {
            folder::remove(&folder, name)?;
            self.release(folder::length(&there));
        }
        Ok(())
    }

    /// Makes the folder of a store, if need be.
    pub(super) fn make_store(&mut self, name: &str) -> io::Result<()> {
        if !self.make_room(self.folder.block)? {
            return Err(io::Error::other("--cache-size is too small"));
        }
        match rustix::fs::mkdirat(&self.folder.root, name, folder::PRIVATE_FOLDER) {
            Ok(()) => self.held = self.held.saturating_add(self.folder.block),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Writes down what the folder holds now.
    pub(super) fn end(self) -> io::Result<()> {
        self.stats.disk_held_bytes.set(self.held);
        self.writer.usage.write(self.held, true)
    }
}

impl Drop for CacheTransaction<'_> {
    fn drop(&mut self) {
        // Fails only for something that is no file.
        let _ = rustix::fs::flock(self.writer.usage.file(), FlockOperation::Unlock);
    }
}

const MAGIC: &[u8; 8] = b"zarrfsL\x01";

/// Magic, bytes held, mark, boot of the machine, checksum.
const LENGTH: usize = 36;

/// The bytes that a cache holds, written where every process reads them: into its lock file. Used only under the lock.
///
/// The number is never less than what is there. It is marked before the folder is changed, and the mark is taken away
/// afterwards, so that it is counted anew after a process died in between, or after a boot of the machine.
struct UsageFile {
    file: File,
    /// Which boot of the machine this is; files of an earlier one may be lost or torn.
    boot: u64,
}

impl UsageFile {
    /// Takes the account that a lock file has.
    fn new(file: File) -> UsageFile {
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        UsageFile {
            file,
            boot: Version::of(&boot).number(),
        }
    }

    /// Returns the lock file.
    fn file(&self) -> &File {
        &self.file
    }

    /// Returns the bytes held; nothing if they have to be counted.
    fn held(&self) -> Option<u64> {
        let mut text = [0; LENGTH];
        self.file.read_exact_at(&mut text, 0).ok()?;
        let (record, sum) = text.split_at(LENGTH - 4);
        let number = |at: usize| {
            let eight = record.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(eight))
        };
        let is_whole = record.starts_with(MAGIC) && crc32c::crc32c(record).to_le_bytes() == sum;
        let is_final = number(16) == Some(0) && number(24) == Some(self.boot);
        number(8).filter(|_| is_whole && is_final)
    }

    /// Writes down the bytes held; `is_final` if the folder is not about to change.
    fn write(&self, held: u64, is_final: bool) -> io::Result<()> {
        let mut record = MAGIC.to_vec();
        for number in [held, u64::from(!is_final), self.boot] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c::crc32c(&record);
        record.extend_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&record, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_final_record_of_this_boot_counts() {
        let mut usage = UsageFile::new(tempfile::tempfile().unwrap());
        assert_eq!(usage.held(), None);
        usage.write(5, true).unwrap();
        assert_eq!(usage.held(), Some(5));
        usage.write(6, false).unwrap();
        assert_eq!(usage.held(), None);
        usage.write(7, true).unwrap();
        usage.file().write_all_at(b"x", 9).unwrap();
        assert_eq!(usage.held(), None);
        usage.write(7, true).unwrap();
        usage.boot ^= 1;
        assert_eq!(usage.held(), None);
    }
}
