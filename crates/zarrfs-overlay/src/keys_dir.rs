//! A folder of files under keys: what one layer of changes has written.
//!
//! Every path is resolved beneath the folder without following a link, so that none leads outside. The folder is held
//! open: it may be renamed. Folders in it change their names here alone, so that those of a few keys are held open too.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::attributes;
use super::open_folders::OpenFolders;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::sync::locks;
use zarrfs_store::{EntryKind, Key};

/// Returns the inode number of a file that has a key, or is about to have it.
pub(super) fn inode_of(key: &Key, file: &File) -> Result<u64> {
    let stat = rustix::fs::fstat(file).map_err(|error| os_error(key, error))?;
    Ok(stat.st_ino)
}

/// The longest path that the kernel takes, in bytes. A longer one is no key that a commit could put.
const MAX_PATH: usize = 4095;

/// Whether a key is longer than a path may be.
pub(super) fn is_too_long(key: &Key) -> bool {
    key.as_bytes().len() > MAX_PATH
}

/// `NameTooLong` for a key that is longer than a path may be.
pub(super) fn check_length(key: &Key) -> Result<()> {
    if is_too_long(key) {
        let why = "a path in a store has at most 4095 bytes";
        return Err(Error::new(Kind::NameTooLong, key, why));
    }
    Ok(())
}

/// A folder of files under keys, open.
pub(super) struct KeysDir {
    root: Arc<OwnedFd>,
    folders: OpenFolders,
}

impl KeysDir {
    /// Opens the folder at `path`.
    pub(super) fn open(path: &Path) -> Result<KeysDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty());
        let root = fd.map_err(|error| Error::os(path.display(), error))?;
        Ok(KeysDir {
            root: Arc::new(root),
            folders: OpenFolders::default(),
        })
    }

    /// Returns the folder that holds a key, and the key's name in it.
    pub(super) fn parent<'a>(&self, key: &'a Key) -> rustix::io::Result<(Arc<OwnedFd>, &'a OsStr)> {
        let Some(parent) = key.parent() else {
            return Ok((Arc::clone(&self.root), OsStr::new(".")));
        };
        let name = OsStr::from_bytes(key.name());
        locks::step();
        if parent.is_root() {
            return Ok((Arc::clone(&self.root), name));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = self
            .folders
            .get(&parent, || self.open_key(&parent, flags))?;
        Ok((folder, name))
    }

    /// Opens the file or folder of a key, without following links.
    pub(super) fn open_key(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut path = if key.is_root() {
            b".".as_slice()
        } else {
            key.as_bytes()
        };
        locks::step();
        let mut above: Option<OwnedFd> = None;
        // A folder that was renamed may have made a path longer than the kernel takes.
        while path.len() > MAX_PATH {
            let start = path.get(..MAX_PATH).unwrap_or_default();
            let end = start.iter().rposition(|&byte| byte == b'/');
            let end = end.ok_or(Errno::NAMETOOLONG)?;
            let folder = self.open_below(above.as_ref(), &path[..end], OFlags::PATH)?;
            (above, path) = (Some(folder), &path[end + 1..]);
        }
        self.open_below(above.as_ref(), path, flags)
    }

    /// Opens a path in a folder that was opened, or in all of it.
    fn open_below(
        &self,
        folder: Option<&OwnedFd>,
        path: &[u8],
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let (folder, path) = (folder.unwrap_or(&self.root), OsStr::from_bytes(path));
        rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve)
    }

    /// Returns the attributes of the file or folder of a key; `None` if there is none.
    pub(super) fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let found = self
            .parent(key)
            .and_then(|(folder, name)| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(stat) => Ok(Some(stat)),
            // A link above the key: what it points at has other keys.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(os_error(key, error)),
        }
    }

    /// Returns what a key is; `None` if there is nothing.
    pub(super) fn kind(&self, key: &Key) -> Result<Option<EntryKind>> {
        let stat = self.stat(key)?;
        Ok(stat.map(|stat| attributes::kind_of(&stat)))
    }

    /// Whether programs have given the file or folder of a key extended attributes.
    pub(super) fn has_own_xattrs(&self, key: &Key) -> Result<bool> {
        let (folder, name) = self.parent(key).map_err(|error| os_error(key, error))?;
        Ok(attributes::has_own_xattrs(folder, name))
    }

    /// Returns the names and kinds in the folder of a prefix; none if there is no such folder.
    pub(super) fn names(&self, prefix: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match self.open_key(prefix, flags) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => opened.map_err(|error| os_error(prefix, error))?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(|error| os_error(prefix, error))? {
            let entry = entry.map_err(|error| os_error(prefix, error))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = self.entry_kind(prefix, name, entry.file_type())?;
                names.push((name.to_vec(), kind));
            }
        }
        Ok(names)
    }

    /// Calls `found` for each regular file at a prefix and below that a commit may put until it returns true; returns
    /// whether it did.
    pub(super) fn for_each_file(
        &self,
        prefix: &Key,
        found: &mut dyn FnMut(&Key) -> Result<bool>,
    ) -> Result<bool> {
        for (name, kind) in self.names(prefix)? {
            let key = prefix.child(&name)?;
            let is_found = match kind {
                _ if is_too_long(&key) => false,
                EntryKind::Directory => self.for_each_file(&key, found)?,
                EntryKind::File => found(&key)?,
                _ => false,
            };
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the kind of a directory entry; asks for it where the file system's listing does not tell.
    fn entry_kind(&self, prefix: &Key, name: &[u8], found: FileType) -> Result<EntryKind> {
        if found != FileType::Unknown {
            return Ok(attributes::kind_of_type(found));
        }
        let kind = self.kind(&prefix.child(name)?)?;
        Ok(kind.unwrap_or(EntryKind::File))
    }

    /// Removes the file of a key, or its empty folder with `REMOVEDIR`.
    pub(super) fn remove(&self, key: &Key, flags: AtFlags) -> Result<()> {
        let removed = self.parent(key).and_then(|(folder, name)| {
            self.folders
                .change(&[key], || rustix::fs::unlinkat(folder, name, flags))
        });
        removed.map_err(|error| os_error(key, error))
    }

    /// Renames a file or folder.
    pub(super) fn rename(
        &self,
        from: &Key,
        to: &Key,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        self.rename_to(from, self, to, flags)
    }

    /// Renames a file or folder to a key of another folder.
    pub(super) fn rename_to(
        &self,
        from: &Key,
        other: &KeysDir,
        to: &Key,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = other.parent(to)?;
        let names = [from, to];
        let renamed = self.folders.change(&names, || {
            rustix::fs::renameat_with(old, old_name, new, new_name, flags)
        });
        if !std::ptr::eq(self, other) {
            // A folder that had the name there was replaced.
            other.folders.change(&names, || ());
        }
        renamed
    }
}

/// Returns an error of the kernel as an error about a key.
pub(super) fn os_error(key: &Key, error: Errno) -> Error {
    match error {
        Errno::PERM => Error::new(Kind::NotPermitted, key, "is not permitted"),
        error => Error::os(key, error),
    }
}
