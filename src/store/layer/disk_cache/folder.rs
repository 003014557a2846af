//! The files of a cache's folder: opened only if no other user may write there, looked through, removed.
//!
//! Below the folder no symbolic link is followed. It holds `lock`, at most one file `arriving`, and a folder
//! `store-...` for each store with its files, which are named by 32 hexadecimal digits.

use std::ffi::CStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// The name of a file that is being written.
pub(super) const ARRIVING: &str = "arriving";

/// The name of the file whose lock makes changes exclusive, and which has the account.
pub(super) const LOCK: &str = "lock";

/// How the names of stores' folders begin.
pub(super) const STORE_PREFIX: &str = "store-";

/// How everything in the folder is opened: links are not followed, and pipes and devices do not block.
pub(super) const SAFE: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

pub(super) const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
pub(super) const PRIVATE_FOLDER: Mode = Mode::RWXU;

/// Opens the folder of a cache, which is made if it is missing. `NotADirectory` if it is something else, `Denied` if
/// another user owns it or may write to it; the inner error is one of the file system.
pub(super) fn open(path: &Path) -> Result<io::Result<OwnedFd>> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => return Ok(Err(made.err().unwrap_or(error))),
    };
    let refused = |kind, text: &str| Err(Error::new(kind, path.display(), text));
    if !meta.is_dir() {
        return refused(Kind::NotADirectory, "--cache-dir must be a directory");
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return refused(Kind::Denied, "--cache-dir belongs to another user");
    }
    if meta.mode() & 0o022 != 0 {
        return refused(Kind::Denied, "--cache-dir can be written by other users");
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty()).map_err(io::Error::from))
}

/// Opens the folder of one store.
pub(super) fn open_store(root: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | SAFE;
    Ok(rustix::fs::openat(root, name, flags, Mode::empty())?)
}

/// A file of the cache that may be removed.
pub(super) struct EvictionCandidate {
    used: (i64, u64),
    folder: Arc<OwnedFd>,
    name: String,
}

/// What a cache holds.
pub(super) struct Inventory {
    /// Sorted, what was used least recently first; not more than a bounded number.
    pub(super) candidates: Vec<EvictionCandidate>,
    /// Bytes of everything.
    pub(super) held: u64,
}

/// The most eviction candidates that are remembered, about 10 MiB.
const MAX_CANDIDATES: usize = 1 << 16;

/// Returns the bytes that a file of `length` bytes may take in blocks of `block` bytes: a 256th more is for the file
/// system's maps of its blocks.
pub(super) fn charge(length: u64, block: u64) -> u64 {
    length
        .saturating_add(length / 256)
        .checked_next_multiple_of(block)
        .unwrap_or(u64::MAX)
}

/// Looks through the whole folder, and removes what a dead process left unfinished. To be called under the lock only.
pub(super) fn look_through(root: impl AsFd, block: u64) -> io::Result<Inventory> {
    let root = root.as_fd();
    remove(root, ARRIVING)?;
    let mut found = Inventory {
        candidates: Vec::new(),
        held: empty_cache(block),
    };
    for name in names(root)? {
        if !is_hexadecimal(name.strip_prefix(STORE_PREFIX), 16) {
            continue;
        }
        let Ok(folder) = open_store(root, &name) else {
            continue;
        };
        found.held = found.held.saturating_add(block);
        count_store(Arc::new(folder), block, &mut found)?;
    }
    found
        .candidates
        .sort_unstable_by_key(|candidate| candidate.used);
    found.candidates.truncate(MAX_CANDIDATES);
    Ok(found)
}

/// Returns the bytes of a cache without stores: the folder itself and the lock.
fn empty_cache(block: u64) -> u64 {
    block.saturating_mul(2)
}

/// Counts the files of one store.
fn count_store(folder: Arc<OwnedFd>, block: u64, found: &mut Inventory) -> io::Result<()> {
    for name in Dir::read_from(&*folder)? {
        let name = text(name?.file_name());
        if !is_hexadecimal(Some(&name), 32) {
            continue;
        }
        let Some(stat) = stat(&*folder, &name)? else {
            continue;
        };
        found.held = found.held.saturating_add(charge(length(&stat), block));
        found.candidates.push(EvictionCandidate {
            used: used(&stat),
            folder: folder.clone(),
            name,
        });
        if found.candidates.len() >= 2 * MAX_CANDIDATES {
            found
                .candidates
                .select_nth_unstable_by_key(MAX_CANDIDATES, |candidate| candidate.used);
            found.candidates.truncate(MAX_CANDIDATES);
        }
    }
    Ok(())
}

impl EvictionCandidate {
    /// Removes the file unless it was used meanwhile; returns its length in bytes, or nothing if it stays.
    pub(super) fn remove(&self) -> io::Result<Option<u64>> {
        match stat(&*self.folder, &self.name)? {
            Some(stat) if used(&stat) == self.used => {
                remove(&*self.folder, &self.name)?;
                Ok(Some(length(&stat)))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the length of a file in bytes.
pub(super) fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// Returns when a file was used last.
fn used(stat: &Stat) -> (i64, u64) {
    (stat.st_mtime, stat.st_mtime_nsec)
}

/// Returns the metadata of a file; nothing if there is none, or a directory.
pub(super) fn stat(folder: impl AsFd, name: &str) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => Ok(None),
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes a file, if there is one.
pub(super) fn remove(folder: impl AsFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn names(folder: impl AsFd) -> io::Result<Vec<String>> {
    let names = Dir::read_from(folder)?;
    names
        .map(|entry| Ok(text(entry?.file_name())))
        .collect::<io::Result<Vec<_>>>()
}

fn text(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

fn is_hexadecimal(name: Option<&str>, digits: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.is_some_and(|name| name.len() == digits && name.bytes().all(is_digit))
}
