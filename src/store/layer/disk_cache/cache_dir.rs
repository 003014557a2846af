//! The cache as a whole: one folder, one limit, any number of processes.
//!
//! Reading needs no lock; `change` holds it for whatever changes the folder. What fails here, other than at
//! `open`, is said once in the log and ends the use of the cache, never a read.

use std::fmt;
use std::fs::File;
use std::io;
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

/// How often the folder of a store is asked for.
const ATTEMPTS: usize = 10;

/// A folder that holds bytes of stores.
pub struct CacheDir {
    path: PathBuf,
    stats: Arc<Stats>,
    is_off: AtomicBool,
    /// Nothing if the folder could not be opened.
    open: Option<CacheFolder>,
}

impl fmt::Debug for CacheDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shelf").field(&self.path).finish()
    }
}

impl CacheDir {
    /// Opens the folder at `path`, which may take `size` bytes. `NotADirectory` or `Denied` for a folder that is
    /// not ours; where it cannot be used otherwise, the shelf is there and keeps nothing.
    pub fn open(path: &Path, size: u64, stats: &Arc<Stats>) -> Result<Arc<CacheDir>> {
        let opened = folder::open(path)?.and_then(|root| CacheFolder::new(root, size));
        let (open, fault) = match opened {
            Ok(open) => (Some(open), None),
            Err(fault) => (None, Some(fault)),
        };
        stats.disk_limit_bytes.set(size);
        let shelf = CacheDir {
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
    fn in_use(&self) -> Option<&CacheFolder> {
        let is_off = self.is_off.load(Ordering::Relaxed);
        self.open.as_ref().filter(|_| !is_off)
    }

    /// Makes a change under the lock and returns what it gave; nothing if it failed, or if others hold the lock
    /// for too long.
    fn change<T>(&self, work: impl FnOnce(&mut CacheTransaction) -> io::Result<T>) -> Option<T> {
        let open = self.in_use()?;
        let done = CacheTransaction::begin(open, &self.stats).and_then(|change| {
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

/// The part of a shelf that is one store's.
pub struct CacheNamespace {
    shelf: Arc<CacheDir>,
    /// Nothing if it could not be opened.
    folder: Option<OwnedFd>,
}

impl CacheNamespace {
    /// Opens the part of the store that `identity` names.
    pub fn open(shelf: &Arc<CacheDir>, identity: &str) -> CacheNamespace {
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
        CacheNamespace {
            shelf: shelf.clone(),
            folder,
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.shelf.stats
    }

    /// Whether something lies under a label.
    pub fn has(&self, label: &EntryKey) -> bool {
        let folder = self
            .folder
            .as_ref()
            .filter(|_| self.shelf.in_use().is_some());
        let stat = folder.map(|folder| folder::stat(folder, &label.name()));
        matches!(stat, Some(Ok(Some(_))))
    }

    /// Returns what lies under a label, if it is whole.
    pub fn find(&self, label: &EntryKey) -> Option<CacheFile> {
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
        match CacheFile::open(file, length, label) {
            Ok(entry) => Some(entry),
            Err(_) => self.discard(label),
        }
    }

    /// Returns bytes of an entry that was found under a label; nothing if they are not what they were.
    pub fn read(
        &self,
        label: &EntryKey,
        entry: &CacheFile,
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
    fn discard<T>(&self, label: &EntryKey) -> Option<T> {
        self.shelf.stats.disk_corrupt_entries.add(1);
        self.forget(label);
        None
    }

    /// Removes what lies under a label.
    pub fn forget(&self, label: &EntryKey) {
        if let Some(folder) = &self.folder {
            self.shelf
                .change(|change| change.remove(folder, &label.name()));
        }
    }

    /// Keeps bytes under a label, if there is or can be made room for them; returns whether it did.
    pub fn put(&self, label: &EntryKey, facts: &EntryHeader, bytes: &[u8]) -> bool {
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
