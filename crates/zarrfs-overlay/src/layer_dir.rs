//! A folder that stores a layer's files under their keys.
//!
//! Every path is resolved beneath the folder without following links, so no path leads outside. The folder is kept open
//! because it may be renamed. Subfolders are renamed only here, so open subfolders can be cached (`DirfdCache`).

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::attributes;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::sync::locks;
use zarrfs_store::tree::AttrChange;
use zarrfs_store::{EntryKind, Key};

/// Returns the inode of an open file. The key is only for the error.
pub(crate) fn inode_of(key: &Key, file: &File) -> Result<u64> {
    let stat = rustix::fs::fstat(file).map_err(|error| os_error(key, error))?;
    Ok(stat.st_ino)
}

/// The kernel's maximum path length in bytes. A commit cannot put a longer key into a local store.
const MAX_PATH: usize = 4095;

/// Whether a key is longer than the maximum path length.
pub(crate) fn is_too_long(key: &Key) -> bool {
    key.as_bytes().len() > MAX_PATH
}

/// Fails with `NameTooLong` if a key is longer than the maximum path length.
pub(crate) fn check_length(key: &Key) -> Result<()> {
    if is_too_long(key) {
        let why = "a path in a store has at most 4095 bytes";
        return Err(Error::new(Kind::NameTooLong, key, why));
    }
    Ok(())
}

/// An open folder that has files under their keys.
pub(crate) struct LayerDir {
    root: Arc<OwnedFd>,
    folders: DirfdCache,
}

impl LayerDir {
    pub(crate) fn open(path: &Path) -> Result<LayerDir> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty());
        let root = fd.map_err(|error| Error::os(path.display(), error))?;
        Ok(LayerDir {
            root: Arc::new(root),
            folders: DirfdCache::default(),
        })
    }

    /// Returns the open parent folder of a key, and the key's name in it.
    pub(crate) fn parent<'a>(&self, key: &'a Key) -> rustix::io::Result<(Arc<OwnedFd>, &'a OsStr)> {
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

    /// Opens the file or folder of a key, without following symbolic links.
    pub(crate) fn open_key(&self, key: &Key, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut path = if key.is_root() {
            b".".as_slice()
        } else {
            key.as_bytes()
        };
        locks::step();
        let mut above: Option<OwnedFd> = None;
        // Open a long path in parts, because a rename of a folder may have made it longer than the kernel accepts.
        while path.len() > MAX_PATH {
            let start = path.get(..MAX_PATH).unwrap_or_default();
            let end = start.iter().rposition(|&byte| byte == b'/');
            let end = end.ok_or(Errno::NAMETOOLONG)?;
            let folder = self.open_below(above.as_ref(), &path[..end], OFlags::PATH)?;
            (above, path) = (Some(folder), &path[end + 1..]);
        }
        self.open_below(above.as_ref(), path, flags)
    }

    /// Opens the file of a key for reading. It may be a FIFO that another program made, so the open must not block.
    pub(crate) fn open_file(&self, key: &Key) -> rustix::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        self.open_key(key, flags).map(File::from)
    }

    /// Creates a folder and sets its attributes. If the folder exists, nothing is changed.
    pub(crate) fn make_folder(
        &self,
        key: &Key,
        changes: impl IntoIterator<Item = AttrChange>,
    ) -> Result<()> {
        let made = self.parent(key).and_then(|(folder, name)| {
            match rustix::fs::mkdirat(&folder, name, Mode::from(0o755)) {
                // A write-through has created the folder in the meantime.
                Err(Errno::EXIST) => return Ok(()),
                made => made?,
            }
            let mut changes = changes.into_iter();
            changes.try_for_each(|change| attributes::set_named(&folder, name, &change))
        });
        made.map_err(|error| os_error(key, error))
    }

    /// Opens a path below `folder`, or below the layer's folder if `folder` is `None`.
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

    /// Returns the `stat` of a key's file or folder, or `None` if it is missing.
    pub(crate) fn stat(&self, key: &Key) -> Result<Option<Stat>> {
        let found = self
            .parent(key)
            .and_then(|(folder, name)| rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW));
        match found {
            Ok(stat) => Ok(Some(stat)),
            // These errors also mean a symbolic link above the key. Keys do not lead through links, so the key is
            // missing.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(os_error(key, error)),
        }
    }

    /// Returns the kind of a key's file or folder, or `None` if it is missing.
    pub(crate) fn kind(&self, key: &Key) -> Result<Option<EntryKind>> {
        let stat = self.stat(key)?;
        Ok(stat.map(|stat| attributes::kind_of(&stat)))
    }

    /// Whether a file or folder has extended attributes other than `security.` and `system.`.
    pub(crate) fn has_own_xattrs(&self, key: &Key) -> Result<bool> {
        let (folder, name) = self.parent(key).map_err(|error| os_error(key, error))?;
        Ok(attributes::has_own_xattrs(folder, name))
    }

    /// Returns the names in a folder and their kinds; the list is empty if the folder is missing.
    pub(crate) fn names(&self, prefix: &Key) -> Result<Vec<(Vec<u8>, EntryKind)>> {
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

    /// Calls `found` for the regular files at and below a prefix until it returns `true`. Returns whether it returned
    /// `true`. Paths that are too long to be committed are left out.
    pub(crate) fn for_each_file(
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

    /// Returns the kind of a directory entry. `stat` is called only if the file system's listing does not tell the
    /// kind.
    fn entry_kind(&self, prefix: &Key, name: &[u8], found: FileType) -> Result<EntryKind> {
        if found != FileType::Unknown {
            return Ok(attributes::kind_of_type(found));
        }
        let kind = self.kind(&prefix.child(name)?)?;
        Ok(kind.unwrap_or(EntryKind::File))
    }

    /// Removes the file of a key. With the flag `REMOVEDIR`, removes an empty folder.
    pub(crate) fn remove(&self, key: &Key, flags: AtFlags) -> Result<()> {
        let removed = self.parent(key).and_then(|(folder, name)| {
            self.folders
                .change(&[key], || rustix::fs::unlinkat(folder, name, flags))
        });
        removed.map_err(|error| os_error(key, error))
    }

    pub(crate) fn rename(
        &self,
        from: &Key,
        to: &Key,
        flags: RenameFlags,
    ) -> rustix::io::Result<()> {
        self.rename_to(from, self, to, flags)
    }

    /// Renames a file or folder to a key in another layer's folder.
    pub(crate) fn rename_to(
        &self,
        from: &Key,
        other: &LayerDir,
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
            // Drop the target's cached folders, because the rename may have replaced a folder of the same name.
            other.folders.change(&names, || ());
        }
        renamed
    }

    /// Moves the file of a key to another layer's folder, if there is a file.
    pub(crate) fn move_to(&self, other: &LayerDir, key: &Key) -> Result<()> {
        if self.stat(key)?.is_none() {
            return Ok(());
        }
        self.copy_folders_above(other, key)?;
        let moved = self.rename_to(key, other, key, RenameFlags::empty());
        moved.map_err(|error| os_error(key, error))
    }

    /// Creates the parents of a key in another layer's folder, with the attributes that they have in this one.
    pub(crate) fn copy_folders_above(&self, other: &LayerDir, key: &Key) -> Result<()> {
        let Some(folder) = key.parent().filter(|folder| !folder.is_root()) else {
            return Ok(());
        };
        if other.stat(&folder)?.is_some() {
            return Ok(());
        }
        self.copy_folders_above(other, &folder)?;
        let stat = self.stat(&folder)?;
        let posix = stat.map(|stat| attributes::posix_of(&stat));
        other.make_folder(
            &folder,
            posix.map(|posix| attributes::owner_and_mode(&posix)),
        )
    }

    /// Syncs the parents of a key, so that the key's name survives a power loss.
    pub(crate) fn sync_folders_above(&self, key: &Key) -> Result<()> {
        for folder in std::iter::successors(key.parent(), Key::parent) {
            match self.open_key(&folder, OFlags::RDONLY | OFlags::DIRECTORY) {
                // Skip a folder that was renamed in the meantime.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(os_error(&folder, error)),
                Ok(fd) => rustix::fs::fsync(fd).map_err(|error| os_error(&folder, error))?,
            }
        }
        Ok(())
    }
}

/// Converts an errno to an error about a key.
pub(crate) fn os_error(key: &Key, error: Errno) -> Error {
    match error {
        Errno::PERM => Error::new(Kind::NotPermitted, key, "operation not permitted"),
        error => with_room_hint(Error::os(key, error)),
    }
}

/// Completes the error of a full disk by a hint where to free space.
pub(crate) fn with_room_hint(error: Error) -> Error {
    let hint = "free space on the disk of the changes directory";
    if error.kind() != Kind::NoSpace || error.detail().ends_with(hint) {
        return error;
    }
    let why = format!("{}: {hint}", error.detail());
    Error::new(Kind::NoSpace, error.subject(), why)
}

/// Maximum number of cached folders: enough for the paths of a few chunks that are written in parallel.
const CAPACITY: usize = 8;

/// Caches open folders of a layer by their keys, the most recently used first.
///
/// It saves the path lookup when several names in one folder are used in turn. When a folder is removed or renamed, the
/// folder and all folders below it are evicted in the same step.
#[derive(Default)]
pub(crate) struct DirfdCache(Mutex<CachedFolders>);

#[derive(Default)]
struct CachedFolders {
    folders: Vec<(Key, Arc<OwnedFd>)>,
    /// Number of removals and renames of folders so far.
    changes: u64,
}

impl DirfdCache {
    /// Returns an open folder from the cache, or else opens and caches it.
    pub(crate) fn get(
        &self,
        key: &Key,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> rustix::io::Result<Arc<OwnedFd>> {
        let changes = {
            let mut cache = self.0.lock();
            if let Some(place) = cache.folders.iter().position(|(other, _)| other == key) {
                let used = cache.folders.remove(place);
                let folder = Arc::clone(&used.1);
                cache.folders.insert(0, used);
                return Ok(folder);
            }
            cache.changes
        };
        let folder = Arc::new(open()?);
        let mut cache = self.0.lock();
        // Cache the folder only if no folder was renamed while it was opened, because it may now have another name.
        if cache.changes == changes {
            cache.folders.truncate(CAPACITY - 1);
            cache.folders.insert(0, (key.clone(), Arc::clone(&folder)));
        }
        Ok(folder)
    }

    /// Runs `change`, which may remove or rename the folders at `keys`. These folders and all folders below them are
    /// evicted.
    pub(crate) fn change<T>(&self, keys: &[&Key], change: impl FnOnce() -> T) -> T {
        let mut cache = self.0.lock();
        let changed = change();
        cache.changes += 1;
        let is_below = |folder: &Key| keys.iter().any(|key| folder.below(key).is_some());
        cache.folders.retain(|(folder, _)| !is_below(folder));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;
    use std::fs::File;

    fn open() -> rustix::io::Result<OwnedFd> {
        Ok(File::open("/").unwrap().into())
    }

    fn is_kept(folders: &DirfdCache, text: &str) -> bool {
        folders.get(&key(text), || Err(Errno::NOENT)).is_ok()
    }

    #[test]
    fn the_least_recently_used_folder_is_evicted() {
        let folders = DirfdCache::default();
        for number in 0..CAPACITY {
            folders.get(&key(&number.to_string()), open).unwrap();
        }
        assert!(is_kept(&folders, "0"));
        folders.get(&key("more"), open).unwrap();
        assert!(is_kept(&folders, "0") && is_kept(&folders, "more") && !is_kept(&folders, "1"));
    }

    #[test]
    fn a_change_evicts_the_folder_and_its_descendants() {
        let folders = DirfdCache::default();
        for text in ["a", "a/b", "ab", "c/d"] {
            folders.get(&key(text), open).unwrap();
        }
        folders.change(&[&key("a"), &key("c/d")], || ());
        assert!(is_kept(&folders, "ab"));
        assert!(
            ["a", "a/b", "c/d"]
                .iter()
                .all(|text| !is_kept(&folders, text))
        );
    }

    #[test]
    fn a_folder_opened_during_a_change_is_not_cached() {
        let folders = DirfdCache::default();
        let opened = folders.get(&key("a"), || {
            let folder = open();
            folders.change(&[&key("a")], || ());
            folder
        });
        opened.unwrap();
        assert!(!is_kept(&folders, "a"));
    }
}
