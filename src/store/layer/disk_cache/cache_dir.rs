//! The cache as a whole: one folder with one limit, which any number of processes share.
//!
//! Reading needs no lock; `accounting` locks the folder for each change. A fault of the file system after `open` is
//! logged once and ends the use of the cache; it never fails a read.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::accounting::{CacheFolder, CacheTransaction};
use super::entry::{CacheFile, EntryHeader, EntryKey, seal};
use super::folder;
use crate::error::Result;
use crate::stats::Stats;
use crate::store::Version;

/// How often to try to make the folder of a store: other processes may be busy for longer than one change waits.
const MAX_ATTEMPTS: usize = 10;

/// A folder that holds bytes of stores.
pub struct CacheDir {
    path: PathBuf,
    stats: Arc<Stats>,
    is_off: AtomicBool,
    /// Nothing if the folder could not be opened.
    folder: Option<CacheFolder>,
}

impl fmt::Debug for CacheDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheDir").field(&self.path).finish()
    }
}

impl CacheDir {
    /// Opens the folder at `path`, which may take `size` bytes. `NotADirectory` if it is something else, `Denied` if
    /// other users may write to it; a folder that cannot be used for another reason keeps nothing.
    pub fn open(path: &Path, size: u64, stats: &Arc<Stats>) -> Result<Arc<CacheDir>> {
        let opened = folder::open(path)?.and_then(|root| CacheFolder::new(root, size));
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
        // A process with a larger limit may have left more than fits now.
        cache.change(|change| change.make_room(0).map(drop));
        Ok(Arc::new(cache))
    }

    /// Logs a fault, and keeps nothing from now on.
    fn turn_off(&self, fault: &io::Error) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            log::warn!("{path}: {fault}; nothing is cached there from now on");
        }
    }

    /// Returns the folder, as long as it is in use.
    fn in_use(&self) -> Option<&CacheFolder> {
        let is_off = self.is_off.load(Ordering::Relaxed);
        self.folder.as_ref().filter(|_| !is_off)
    }

    /// Makes a change under the lock and returns its result; nothing if it failed, or if others hold the lock for too
    /// long.
    fn change<T>(&self, work: impl FnOnce(&mut CacheTransaction) -> io::Result<T>) -> Option<T> {
        let folder = self.in_use()?;
        let done = CacheTransaction::begin(folder, &self.stats).and_then(|change| {
            let Some(mut change) = change else {
                return Ok(None);
            };
            let result = work(&mut change)?;
            change.end()?;
            Ok(Some(result))
        });
        done.unwrap_or_else(|fault| {
            self.turn_off(&fault);
            None
        })
    }
}

/// The part of a cache that is one store's.
pub struct CacheNamespace {
    cache: Arc<CacheDir>,
    /// Nothing if the folder could not be opened.
    folder: Option<OwnedFd>,
}

impl CacheNamespace {
    /// Opens the part of the store that `identity` names.
    pub fn open(cache: &Arc<CacheDir>, identity: &str) -> CacheNamespace {
        let number = Version::of(identity.as_bytes()).number();
        let name = format!("{}{number:016x}", folder::STORE_PREFIX);
        for _ in 0..MAX_ATTEMPTS {
            let made = cache.change(|change| change.make_store(&name));
            if made.is_some() || cache.in_use().is_none() {
                break;
            }
        }
        let opened = cache
            .in_use()
            .map(|parent| folder::open_store(&parent.root, &name));
        let folder = opened.transpose().unwrap_or_else(|fault| {
            cache.turn_off(&fault);
            None
        });
        CacheNamespace {
            cache: cache.clone(),
            folder,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.cache.stats
    }

    /// Counts bytes that were found here.
    pub(super) fn count_hit(&self, bytes: &[u8]) {
        let stats = self.stats();
        stats.disk_hit_requests.add(1);
        stats.disk_hit_bytes.add(bytes.len() as u64);
    }

    /// Returns the folder, as long as it is in use.
    fn in_use(&self) -> Option<&OwnedFd> {
        self.cache.in_use().and(self.folder.as_ref())
    }

    /// Whether there is an entry.
    pub fn has(&self, key: &EntryKey) -> bool {
        let stat = self
            .in_use()
            .map(|folder| folder::stat(folder, &key.name()));
        matches!(stat, Some(Ok(Some(_))))
    }

    /// Opens an entry, if there is one and it is intact.
    pub fn find(&self, key: &EntryKey) -> Option<CacheFile> {
        let folder = self.in_use()?;
        let flags = OFlags::RDONLY | folder::SAFE;
        let file = match rustix::fs::openat(folder, key.name(), flags, folder::PRIVATE_FILE) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return None,
            // A symbolic link, which no process with access to the cache makes.
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

    /// Returns bytes of an entry that was found under `key`; nothing if they are damaged.
    pub fn read(&self, key: &EntryKey, entry: &CacheFile, range: Range<u64>) -> Option<Vec<u8>> {
        match entry.read(range) {
            Ok(bytes) => {
                entry.touch();
                Some(bytes)
            }
            Err(_) => self.discard(key),
        }
    }

    /// Removes a damaged entry.
    fn discard<T>(&self, key: &EntryKey) -> Option<T> {
        self.cache.stats.disk_corrupt_entries.add(1);
        self.forget(key);
        None
    }

    /// Removes an entry.
    pub fn forget(&self, key: &EntryKey) {
        if let Some(folder) = &self.folder {
            self.cache
                .change(|change| change.remove(folder, &key.name()));
        }
    }

    /// Writes an entry, if there is or can be made room for it; returns whether it did.
    pub fn put(&self, key: &EntryKey, header: &EntryHeader, bytes: &[u8]) -> bool {
        let Some(folder) = self.in_use() else {
            return false;
        };
        let end = seal(key, header, bytes);
        let put = self
            .cache
            .change(|change| change.put(folder, &key.name(), [bytes, &end]));
        put.unwrap_or(false)
    }
}
