//! The files of the cache folder: permissions, creation, scan, removal.
//!
//! No symbolic link below the folder is followed. The folder contains the files `usage` and `scan` of `accounting`,
//! temporary files `arriving-...`, and a folder `store-...` per store, whose files have names of 32 hexadecimal digits.
//! These names are the same in all cache formats, so that each version of zarrfs counts and evicts the entries of the
//! others. The format number is hashed into the name of a store's folder, so no version reads the entries of another
//! format.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW,
};
use rustix::io::Errno;

use zarr_format::error::{Error, Kind, Result};

/// Open flags for all files in the cache folder: do not follow symbolic links, and do not block on pipes and devices.
pub(super) const SAFE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Mode of a cache folder that a group shares, and of the folders in it.
const SHARED_FOLDER: u32 = 0o2770;

/// The open cache folder.
pub(super) struct CacheRoot {
    root: OwnedFd,
    /// Whether all users of the cache folder's group share it.
    is_shared: bool,
}

impl AsFd for CacheRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Opens the cache folder, and creates it if it is missing. The error is `NotADirectory` for any other file, or
/// `Denied` if another user owns the folder or can write to it, unless a group shares it. Errors of the file system are
/// in the inner result.
pub(super) fn open(path: &Path) -> Result<io::Result<CacheRoot>> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => return Ok(Err(made.err().unwrap_or(error))),
    };
    let refused = |kind, text: &str| Err(Error::new(kind, path.display(), text));
    if !meta.is_dir() {
        return refused(Kind::NotADirectory, "--cache-dir must be a directory");
    }
    let is_shared = meta.mode() & 0o7777 == SHARED_FOLDER;
    if !is_shared && meta.uid() != rustix::process::geteuid().as_raw() {
        let text = "--cache-dir belongs to another user: choose another directory, or set mode 2770 to share it with a group";
        return refused(Kind::Denied, text);
    }
    if !is_shared && meta.mode() & 0o022 != 0 {
        let text =
            "other users can write to --cache-dir: set mode 700, or 2770 to share it with a group";
        return refused(Kind::Denied, text);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
    Ok(root.map(|root| CacheRoot { root, is_shared }))
}

impl CacheRoot {
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | SAFE;
        let file = rustix::fs::openat(&self.root, name, flags, Mode::RUSR | Mode::WUSR)?;
        if self.is_shared {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o660))?;
        }
        Ok(File::from(file))
    }

    /// Opens or creates a file in the cache folder, and returns whether the file is new. Returns `None` if another
    /// process created or removed the file just now.
    pub(super) fn open_or_create(&self, name: &str) -> io::Result<Option<(File, bool)>> {
        match self.create(name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok(Some((created?, true))),
        }
        match rustix::fs::openat(&self.root, name, OFlags::WRONLY | SAFE, Mode::empty()) {
            Err(Errno::NOENT | Errno::ACCESS) => Ok(None),
            opened => Ok(Some((File::from(opened?), false))),
        }
    }

    /// Writes a file under a temporary name, and renames it when it is complete. Replaces an older file of the same
    /// name.
    pub(super) fn write(&self, folder: impl AsFd, name: &str, parts: [&[u8]; 2]) -> io::Result<()> {
        // The temporary name must be unique for the machine and process. `RandomState` has random keys.
        let number = RandomState::new().hash_one(std::process::id());
        let arriving = format!("arriving-{number:016x}");
        let written = self.create(&arriving).and_then(|mut file| {
            let length = parts.iter().map(|part| part.len() as u64).sum();
            // Some file systems reserve extra space for growing files, which preallocation avoids.
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, length) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
            parts.iter().try_for_each(|part| file.write_all(part))?;
            Ok(rustix::fs::renameat(&self.root, &arriving, folder, name)?)
        });
        if written.is_err() {
            remove(&self.root, &arriving)?;
        }
        written
    }

    /// Opens the folder `store-NUMBER` in the cache folder, and creates it if it is missing.
    pub(super) fn open_store(&self, number: u64) -> io::Result<OwnedFd> {
        let name = format!("store-{number:016x}");
        match rustix::fs::mkdirat(&self.root, &name, Mode::RWXU) {
            Ok(()) if self.is_shared => {
                let made = open_folder(&self.root, &name)?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(SHARED_FOLDER))?;
                return Ok(made);
            }
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // On EACCES, waits up to 500 ms: if another process has just created the folder, it is about to grant the group
        // access.
        let (mut waited, timeout) = (Duration::ZERO, Duration::from_millis(500));
        loop {
            match open_folder(&self.root, &name) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
                Ok(folder) if !self.is_shared || is_open_to_group(&folder)? => return Ok(folder),
                opened if waited > timeout || !self.is_shared => return opened,
                _ => {}
            }
            thread::sleep(Duration::from_millis(10));
            waited += Duration::from_millis(10);
        }
    }

    /// Returns the seconds by which the clock of the file system is ahead of this machine's. File times come from the
    /// clock of the file system, which is the same for all machines that share the folder.
    pub(super) fn clock_offset(&self) -> io::Result<i64> {
        touch(self)?;
        let there = rustix::fs::fstat(self)?;
        let here = SystemTime::now().duration_since(UNIX_EPOCH);
        let here = i64::try_from(here.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        let milliseconds = i64::try_from(there.st_mtime_nsec / 1_000_000).unwrap_or(0);
        let there = there.st_mtime.saturating_mul(1000) + milliseconds;
        Ok((there.saturating_sub(here) + 500).div_euclid(1000))
    }
}

fn open_folder(root: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFE;
    Ok(rustix::fs::openat(root, name, flags, Mode::empty())?)
}

fn is_open_to_group(folder: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(folder)?.st_mode & 0o070 == 0o070)
}

/// Sets the file times to now, by the clock of the file system.
pub(super) fn touch(file: impl AsFd) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(rustix::fs::futimens(file, &times)?)
}

/// A cache file that may be evicted.
pub(super) struct EvictionCandidate {
    used: (i64, u64),
    pub(super) charge: u64,
    folder: Arc<OwnedFd>,
    name: String,
}

/// The cache files that a scan of the cache folder found.
pub(super) struct Inventory {
    /// The files to evict, at most `MAX_CANDIDATES` of them, the least recently used first.
    pub(super) candidates: Vec<EvictionCandidate>,
    pub(super) held: u64,
}

/// Maximum number of files that a scan remembers for eviction; they take about 10 MiB of memory.
const MAX_CANDIDATES: usize = 1 << 16;

/// Returns the bytes on disk of a file of `length` bytes with blocks of `block` bytes, plus 1/256 for the block maps of
/// the file system.
pub(super) fn charge(length: u64, block: u64) -> u64 {
    length
        .saturating_add(length / 256)
        .checked_next_multiple_of(block)
        .unwrap_or(u64::MAX)
}

/// Scans the cache folder, and removes the temporary files of dead processes. `now` is the present time by the clock of
/// the file system, in seconds since 1970.
pub(super) fn scan_files(root: &CacheRoot, block: u64, now: i64) -> io::Result<Inventory> {
    let mut inventory = Inventory {
        candidates: Vec::new(),
        // One block each for the cache folder itself and the files `usage` and `scan`.
        held: block.saturating_mul(3),
    };
    for name in Dir::read_from(root)? {
        let name = text(name?.file_name());
        if name.starts_with("arriving")
            && let Some(stat) = stat(root, &name)?
        {
            // A temporary file without writes for an hour belongs to a dead process.
            if now.saturating_sub(stat.st_mtime) > 3600 {
                remove(root, &name)?;
            } else {
                inventory.held = inventory.held.saturating_add(charge(length(&stat), block));
            }
        }
        if is_hexadecimal(name.strip_prefix("store-"), 16)
            && let Ok(folder) = open_folder(root, &name)
        {
            inventory.held = inventory.held.saturating_add(block);
            count_store(&Arc::new(folder), block, &mut inventory)?;
        }
    }
    inventory
        .candidates
        .sort_unstable_by_key(|candidate| candidate.used);
    inventory.candidates.truncate(MAX_CANDIDATES);
    Ok(inventory)
}

fn count_store(folder: &Arc<OwnedFd>, block: u64, inventory: &mut Inventory) -> io::Result<()> {
    for name in Dir::read_from(&**folder)? {
        let name = text(name?.file_name());
        if !is_hexadecimal(Some(&name), 32) {
            continue;
        }
        let Some(stat) = stat(&**folder, &name)? else {
            continue;
        };
        let charge = charge(length(&stat), block);
        inventory.held = inventory.held.saturating_add(charge);
        inventory.candidates.push(EvictionCandidate {
            used: used(&stat),
            charge,
            folder: folder.clone(),
            name,
        });
        if inventory.candidates.len() >= 2 * MAX_CANDIDATES {
            inventory
                .candidates
                .select_nth_unstable_by_key(MAX_CANDIDATES, |candidate| candidate.used);
            inventory.candidates.truncate(MAX_CANDIDATES);
        }
    }
    Ok(())
}

impl EvictionCandidate {
    /// Evicts the file unless it was used since the scan. Returns whether the file is gone.
    pub(super) fn remove(&self) -> io::Result<bool> {
        match stat(&*self.folder, &self.name)? {
            None => Ok(true),
            Some(stat) if used(&stat) != self.used => Ok(false),
            Some(_) => match remove(&*self.folder, &self.name) {
                // Another user of the group created the file's folder without granting the group access.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
                removed => removed.map(|_| true),
            },
        }
    }
}

fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// Returns the time of the file's last use, which its modification time records.
fn used(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

/// Returns the metadata of a file in a folder, or `None` if the file is missing or a directory.
pub(super) fn stat(folder: impl AsFd, name: &str) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(None),
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file, and returns whether the file existed.
pub(super) fn remove(folder: impl AsFd, name: &str) -> io::Result<bool> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the time in seconds since 1970 by the clock of the file system, which is `offset` seconds ahead.
pub(super) fn now(offset: i64) -> i64 {
    let here = SystemTime::now().duration_since(UNIX_EPOCH);
    let here = i64::try_from(here.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
    here.saturating_add(offset)
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

fn is_hexadecimal(name: Option<&str>, digits: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.is_some_and(|name| name.len() == digits && name.bytes().all(is_digit))
}
