//! The cache folder, which processes and machines share under one limit.
//!
//! Reads and writes take no lock; `accounting` limits the size. A file system error after `open` is logged once and
//! turns the cache off; it never fails a read.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::accounting::{Accounting, FORMAT};
use super::entry::{CacheFile, EntryHeader, EntryKey, seal};
use super::folder;
use crate::stats::Stats;
use crate::sync::clock::Clock;
use zarr_format::error::Result;

/// The folder of the disk cache (`--cache-dir`), which all stores share.
pub struct CacheDir {
    path: PathBuf,
    stats: Arc<Stats>,
    is_off: AtomicBool,
    folder: Option<Arc<Accounting>>,
}

impl fmt::Debug for CacheDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheDir").field(&self.path).finish()
    }
}

impl CacheDir {
    /// Opens the cache folder at `path` with a limit of `size` bytes. The error is `NotADirectory` if it is not a
    /// directory, or `Denied` if other users may write to it. After any other error the cache is off.
    pub fn open(path: &Path, size: u64, stats: &Arc<Stats>) -> Result<Arc<CacheDir>> {
        let opened = folder::open(path)?.and_then(|root| Accounting::new(root, size, stats));
        let (folder, fault) = match opened {
            Ok(folder) => (Some(folder), None),
            Err(fault) => (None, Some(fault)),
        };
        stats.disk_limit_bytes.set(size);
        let cache = CacheDir {
            path: path.to_path_buf(),
            stats: stats.clone(),
            is_off: AtomicBool::new(false),
            folder,
        };
        if let Some(fault) = fault {
            cache.turn_off(&fault);
        }
        Ok(Arc::new(cache))
    }

    /// Turns the cache off because of a file system error, which is logged once.
    fn turn_off(&self, fault: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            log::warn!("{path}: {fault}; --cache-dir is not used any more");
        }
    }

    fn active(&self) -> Option<&Arc<Accounting>> {
        let is_off = self.is_off.load(Ordering::Relaxed);
        self.folder.as_ref().filter(|_| !is_off)
    }

    /// Runs an operation on the cache folder. After an error, turns the cache off and returns `None`.
    fn attempt<T>(&self, work: impl FnOnce(&Arc<Accounting>) -> io::Result<T>) -> Option<T> {
        let done = work(self.active()?);
        done.inspect_err(|fault| self.turn_off(fault)).ok()
    }
}

/// The entries of one store in the disk cache.
pub struct CacheNamespace {
    cache: Arc<CacheDir>,
    folder: Option<OwnedFd>,
}

impl CacheNamespace {
    /// Opens the cached entries of the store that the digest `identity` identifies.
    pub fn open(cache: &Arc<CacheDir>, identity: &str) -> CacheNamespace {
        let digest = Sha256::new().chain_update(FORMAT).chain_update("\n");
        let digest = digest.chain_update(identity).finalize();
        let number = digest.iter().take(8);
        let number = number.fold(0, |number, &byte| number << 8 | u64::from(byte));
        CacheNamespace {
            cache: cache.clone(),
            folder: cache.attempt(|cache| cache.root.open_store(number)),
        }
    }

    /// Returns the present time by the clock of the cache folder's file system, which is the same for all machines that
    /// share the folder. `clock` is this machine's clock.
    pub(super) fn date(&self, clock: &Clock) -> SystemTime {
        let offset = self
            .cache
            .folder
            .as_ref()
            .map(|folder| folder.clock_offset());
        let offset = offset.unwrap_or(0);
        let by = Duration::from_secs(offset.unsigned_abs());
        let (date, is_ahead) = (clock.date(), offset > 0);
        let there = if is_ahead {
            date.checked_add(by)
        } else {
            date.checked_sub(by)
        };
        there.unwrap_or(date)
    }

    /// Returns the counters of the mount's requests.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.cache.stats
    }

    pub(super) fn count_hit(&self, bytes: &[u8]) {
        let stats = self.stats();
        stats.disk_hit_requests.add(1);
        stats.disk_hit_bytes.add(bytes.len() as u64);
    }

    fn active(&self) -> Option<&OwnedFd> {
        self.cache.active().and(self.folder.as_ref())
    }

    /// Whether the entry's file exists. Its checksums are not verified.
    pub fn has(&self, key: &EntryKey) -> bool {
        let stat = self
            .active()
            .map(|folder| folder::stat(folder, &key.name()));
        matches!(stat, Some(Ok(Some(_))))
    }

    /// Opens a cached entry, or returns `None` if it is missing or damaged.
    pub fn find(&self, key: &EntryKey) -> Option<CacheFile> {
        let folder = self.active()?;
        let flags = OFlags::RDONLY | folder::SAFE;
        let file = match rustix::fs::openat(folder, key.name(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return None,
            // The entry is a symbolic link, which zarrfs never creates, so the link is removed.
            Err(Errno::LOOP) => return self.discard(key),
            Err(error) => {
                self.cache.turn_off(&error.into());
                return None;
            }
        };
        let length = file.metadata().ok().filter(|meta| meta.is_file())?.len();
        match CacheFile::open(file, length, key) {
            Ok(entry) => Some(entry),
            Err(_) => self.discard(key),
        }
    }

    /// Reads a range of an entry, or returns `None` if the entry is damaged.
    pub fn read(&self, key: &EntryKey, entry: &CacheFile, range: Range<u64>) -> Option<Vec<u8>> {
        match entry.read(range) {
            Ok(bytes) => {
                entry.touch();
                Some(bytes)
            }
            Err(_) => self.discard(key),
        }
    }

    fn discard<T>(&self, key: &EntryKey) -> Option<T> {
        self.cache.stats.disk_corrupt_entries.add(1);
        self.forget(key);
        None
    }

    /// Removes a cached entry.
    pub fn forget(&self, key: &EntryKey) {
        if let Some(folder) = &self.folder {
            self.cache
                .attempt(|_| folder::remove(folder, &key.name()).map(drop));
        }
    }

    /// Writes an entry if the cache folder has room for it. Returns whether the entry was written.
    pub fn put(&self, key: &EntryKey, header: &EntryHeader, bytes: &[u8]) -> bool {
        let Some(folder) = self.active() else {
            return false;
        };
        let end = seal(key, header, bytes);
        let put = self
            .cache
            .attempt(|cache| cache.put(folder, &key.name(), [bytes, &end]));
        put.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryStore;
    use crate::layer::Layer;
    use crate::layer::counting::CountingStore;
    use crate::layer::disk_cache::DiskCache;
    use crate::request_context::UNLIMITED;
    use crate::{Key, Store, StoreInfo};

    /// A store on a machine whose clock differs from that of the cache folder.
    struct Elsewhere(MemoryStore, StoreInfo);

    impl Layer for Elsewhere {
        fn below(&self) -> &dyn Store {
            &self.0
        }

        fn info(&self) -> &StoreInfo {
            &self.1
        }
    }

    fn machine(memory: &MemoryStore, folder: &Path, ahead: u64) -> (DiskCache, Clock, Arc<Stats>) {
        let (clock, stats) = (Clock::stopped(), Arc::new(Stats::default()));
        let cache = CacheDir::open(folder, 1 << 30, &stats).unwrap();
        clock.advance(Duration::from_secs(ahead));
        let behind = -i64::try_from(ahead).unwrap();
        let offset = &cache.folder.as_ref().unwrap().clock_offset;
        offset.store(behind, Ordering::Relaxed);
        let info = StoreInfo {
            clock: clock.clone(),
            ..StoreInfo::new(Duration::from_secs(60))
        };
        let store = CountingStore::new(Arc::new(Elsewhere(memory.clone(), info)), stats.clone());
        let entries = CacheNamespace::open(&cache, "store");
        (DiskCache::new(Arc::new(store), entries), clock, stats)
    }

    #[test]
    fn cached_answers_keep_their_age_if_clocks_differ() {
        let (memory, key) = (MemoryStore::default(), Key::new("a").unwrap());
        memory.set(key.clone(), b"bytes".to_vec());
        for (one, other) in [(0, 600), (600, 0)] {
            let folder = tempfile::tempdir().unwrap();
            let (writer, ..) = machine(&memory, folder.path(), one);
            Layer::get(&writer, &UNLIMITED, &key, 100).unwrap();
            let (reader, clock, stats) = machine(&memory, folder.path(), other);
            // The TTL counts from the request of the machine that cached the answer.
            for (passed, heads) in [(0, 0), (50, 0), (9, 1)] {
                clock.advance(Duration::from_secs(passed));
                let found = Layer::get(&reader, &UNLIMITED, &key, 100).unwrap();
                assert_eq!(found.unwrap().bytes, b"bytes");
                assert_eq!(stats.store_head_requests.get(), heads, "{one} {passed}");
            }
            assert_eq!(stats.store_get_requests.get(), 0);
        }
    }
}
