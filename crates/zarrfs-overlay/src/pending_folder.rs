//! The folder of files that are being written, or are still needed after a replacement.

use std::fs;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};

use crate::layer_dir::LayerDir;
use zarr_format::error::{Error, Result};
use zarrfs_store::Key;

/// The folder `pending/`, which has files without a key. Names of spare files begin with `spare-`, all others with a
/// number.
pub(crate) struct PendingFolder {
    path: PathBuf,
    fd: OwnedFd,
    last_number: AtomicU64,
}

/// A file in the folder `pending/`.
pub(crate) struct PendingFile {
    pub(crate) name: String,
    pub(crate) inode: u64,
    pub(crate) length: u64,
}

impl PendingFolder {
    pub(crate) fn open(path: PathBuf) -> Result<PendingFolder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| Error::os(path.display(), error))?;
        Ok(PendingFolder {
            path,
            fd,
            last_number: AtomicU64::new(0),
        })
    }

    /// Returns a number that was not returned before, for a unique file name.
    pub(crate) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Creates an empty file for the next content of a key; returns its name in `pending/`.
    pub(crate) fn create(&self, key: &Key) -> rustix::io::Result<(String, File)> {
        let name = self.unused_name(key);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = rustix::fs::openat(&self.fd, &name, flags, mode)?;
        Ok((name, File::from(fd)))
    }

    /// Moves a file from `pending/` to its key, atomically.
    pub(crate) fn publish(
        &self,
        pending: &str,
        dir: &LayerDir,
        key: &Key,
    ) -> rustix::io::Result<()> {
        let (folder, name) = dir.parent(key)?;
        rustix::fs::renameat(&self.fd, pending, folder, name)
    }

    /// Exchanges a file in `pending/` with the file of its key, atomically. Returns the name of the replaced file in
    /// `pending/`.
    pub(crate) fn exchange(
        &self,
        pending: &str,
        dir: &LayerDir,
        key: &Key,
    ) -> rustix::io::Result<String> {
        let (folder, name) = dir.parent(key)?;
        rustix::fs::renameat_with(&self.fd, pending, folder, name, RenameFlags::EXCHANGE)?;
        let retained = self.unused_name(key);
        match rustix::fs::renameat(&self.fd, pending, &self.fd, &retained) {
            Ok(()) => Ok(retained),
            // Ignore the error, because the exchange has happened: the replaced file just has the name of the new file.
            Err(_) => Ok(pending.to_string()),
        }
    }

    /// Marks a file in `pending/` as a spare file by its name, so that recovery removes it instead of rescuing it.
    /// Returns the new name.
    pub(crate) fn mark_spare(&self, pending: &str) -> rustix::io::Result<String> {
        let spare = format!("spare-{}", self.next_number());
        rustix::fs::renameat(&self.fd, pending, &self.fd, &spare)?;
        Ok(spare)
    }

    /// Renames a file in `pending/`, because it gets the next content of a key; returns the new name.
    pub(crate) fn rename(&self, name: &str, key: &Key) -> rustix::io::Result<String> {
        let pending = self.unused_name(key);
        rustix::fs::renameat(&self.fd, name, &self.fd, &pending)?;
        Ok(pending)
    }

    /// Moves the file of a key to `pending/`, to retain it for recovery; returns its name there.
    pub(crate) fn retain(&self, dir: &LayerDir, key: &Key) -> rustix::io::Result<String> {
        let retained = self.unused_name(key);
        let (folder, name) = dir.parent(key)?;
        rustix::fs::renameat(folder, name, &self.fd, &retained)?;
        Ok(retained)
    }

    /// Returns an unused name in `pending/` that tells the key.
    fn unused_name(&self, key: &Key) -> String {
        format!("{}-{}", self.next_number(), name_part(key))
    }

    pub(crate) fn discard(&self, pending: &str) {
        let gone = rustix::fs::unlinkat(&self.fd, pending, AtFlags::empty());
        if let Err(error) = gone {
            log::debug!("pending/{pending}: {error}");
        }
    }

    pub(crate) fn files(&self) -> Result<Vec<PendingFile>> {
        let failed = |error| Error::os(self.path.display(), error);
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let found = entry.metadata().map_err(failed)?;
            // Skip other names: the names that are given here are always UTF-8.
            if let Ok(name) = entry.file_name().into_string() {
                files.push(PendingFile {
                    name,
                    inode: found.ino(),
                    length: found.len(),
                });
            }
        }
        Ok(files)
    }

    pub(crate) fn sync_disk(&self) -> rustix::io::Result<()> {
        rustix::fs::syncfs(&self.fd)
    }
}

/// Returns the last 60 characters of a key in a form that is valid as a part of a file name.
pub(crate) fn name_part(key: &Key) -> String {
    let text = String::from_utf8_lossy(key.as_bytes()).replace('/', "+");
    let skipped = text.chars().count().saturating_sub(60);
    text.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the second rename fails, the exchange has still succeeded: the new file has its key, and the old file is
    /// retained.
    #[test]
    fn an_exchange_succeeds_even_if_its_second_rename_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upper");
        fs::create_dir_all(path.join("keys")).unwrap();
        fs::create_dir_all(path.join("pending")).unwrap();
        let keys = LayerDir::open(&path.join("keys")).unwrap();
        let files = PendingFolder::open(path.join("pending")).unwrap();
        let key = Key::new("a").unwrap();
        fs::write(path.join("keys/a"), "old").unwrap();
        let (name, _) = files.create(&key).unwrap();
        let pending = path.join("pending");
        fs::write(pending.join(&name), "new").unwrap();
        let number = files.last_number.load(Ordering::Relaxed) + 1;
        let in_the_way = format!("{number}-{}", name_part(&key));
        fs::create_dir(pending.join(in_the_way)).unwrap();
        let retained = files.exchange(&name, &keys, &key).unwrap();
        assert_eq!(fs::read(path.join("keys/a")).unwrap(), b"new");
        assert_eq!(fs::read(pending.join(retained)).unwrap(), b"old");
    }
}
