//! Operations that modify the tree.
//!
//! The view's tree for the path makes the change, then the inode table is updated.

use std::sync::Arc;

use crate::vfs::files::Handle;
use crate::vfs::{Caller, Fh, Ino, Invalidation, Vfs, gone_is_changed, replaced};
use crate::view::Attr;
use crate::view::store::attr_of_stat;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::array::WrittenKey;
use zarrfs_store::request_context::{RequestContext, is_answer};
use zarrfs_store::tree::{AttrChange, FreeSpace, RenameMode, Setting};
use zarrfs_store::{Key, Tree};

/// A directory and a name in it.
type NameIn<'a> = (Ino, &'a [u8]);

/// A path to change, and the tree that changes it.
pub(super) struct PathInTree {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) at: Key,
    /// If the path is a chunk: keeps other files of its array from being opened for writing.
    _written: Option<WrittenKey>,
}

impl Vfs {
    /// Returns the tree that changes a path; `ReadOnly` if the path is read-only, `Busy` as `View::begin_writing`.
    pub(super) fn tree(&self, context: &RequestContext, path: &Key) -> Result<PathInTree> {
        if !self.config.writable {
            return Err(Error::read_only(path));
        }
        let written = self.view.begin_writing(path)?;
        let why = "the control directory cannot be changed";
        let tree = self.view.tree(context, path)?;
        let (tree, at) = tree.ok_or_else(|| Error::new(Kind::ReadOnly, path, why))?;
        Ok(PathInTree {
            tree,
            at,
            _written: written,
        })
    }

    /// Returns the path of a child.
    pub(super) fn child(&self, parent: Ino, name: &[u8]) -> Result<Key> {
        self.inodes.path(parent)?.child(name)
    }

    /// Writes all of `bytes` to an open file, or changes nothing and returns `WouldWait` if the write has to wait and
    /// the request must not.
    pub fn write(&self, context: &RequestContext, fh: Fh, offset: u64, bytes: &[u8]) -> Result<()> {
        let open = self.file(fh)?;
        let writer = open.writer()?;
        let done = if open.appends {
            context.check_may_wait()?;
            writer.append(context, bytes)
        } else {
            writer.write_at(context, offset, bytes)
        };
        if is_answer(&done) {
            self.note_write(&open, bytes);
        }
        done.map_err(|error| error.about(&open.path))
    }

    /// Writes pages back that a program has changed through mmap.
    pub fn write_pages(
        &self,
        context: &RequestContext,
        fh: Fh,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let open = self.file(fh)?;
        let done = open.writer()?.write_pages(context, offset, bytes);
        if is_answer(&done) {
            self.note_write(&open, bytes);
        }
        done.map_err(|error| error.about(&open.path))
    }

    /// Counts a write. Direct writes bypass the kernel's pages of this inode, but another inode of the file may have
    /// pages.
    fn note_write(&self, open: &Handle, bytes: &[u8]) {
        self.stats.write_requests.add(1);
        self.stats.write_bytes.add(bytes.len() as u64);
        if open.direct {
            for ino in self.inodes.open_beside(open.ino) {
                self.pages.invalidate(ino, Invalidation::LostContent);
            }
        }
    }

    /// Flushes the writes of an open file, so that they survive the end of this process.
    pub fn flush(&self, context: &RequestContext, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        let Ok(file) = open.writer() else {
            return Ok(());
        };
        file.flush(context)
            .map_err(|error| self.not_stored(&open, error))?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Syncs a file, so that writes through any of its handles survive a power loss.
    pub fn sync(&self, context: &RequestContext, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        match (open.writer(), &open.tree_file) {
            (Ok(file), _) | (Err(_), Some(file)) => file
                .sync(context)
                .map_err(|error| self.not_stored(&open, error)),
            (Err(_), None) => self.sync_path(context, &open.path),
        }
    }

    /// Syncs all changes in the tree of a path, so that they survive a power loss.
    fn sync_path(&self, context: &RequestContext, path: &Key) -> Result<()> {
        match self.view.tree(context, path)? {
            Some((tree, at)) if self.config.writable => tree.sync_folder(context, &at),
            _ => Ok(()),
        }
    }

    /// Returns the error of a failed flush. After a conflict the kernel has stale pages, which must not be written
    /// back.
    fn not_stored(&self, open: &Handle, error: Error) -> Error {
        if error.kind() == Kind::Changed {
            self.pages.invalidate(open.ino, Invalidation::LostContent);
        }
        error.about(&open.path)
    }

    /// Reserves space for a range of an open file.
    pub fn allocate(
        &self,
        context: &RequestContext,
        fh: Fh,
        mode: i32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        self.file(fh)?
            .writer()?
            .allocate(context, mode, offset, length)
    }

    /// Sets attributes of an inode, through the handle `fh` if it is open for writing.
    pub fn set_attributes(
        &self,
        context: &RequestContext,
        ino: Ino,
        fh: Option<Fh>,
        change: &AttrChange,
        caller: Caller,
    ) -> Result<Attr> {
        let open = fh.and_then(|fh| self.file(fh).ok());
        let change = &self.without_set_id(ino, *change)?;
        if let Some(file) = open.as_ref().and_then(|open| open.writer().ok()) {
            file.change(context, change)?;
            return Ok(attr_of_stat(&file.stat(context)?));
        }
        // The path may lead to another file by now.
        if let Some(open) = self.open_file(ino, |open| open.tree_file.is_some()) {
            return change_open(context, &open, change);
        }
        let path = || self.path_for(ino, caller, || self.present_path(ino));
        let changed = self.ask(path, |path| {
            let changed = self.tree(context, path)?;
            changed.tree.change(context, &changed.at, change)
        });
        changed.map_err(|error| self.gone(error, ino, caller))?;
        self.getattr(context, ino, caller)
    }

    /// Fails as `check_set_id` does. For a directory the bits are ignored: archives and copies of shared folders have
    /// them on each directory.
    fn without_set_id(&self, ino: Ino, change: AttrChange) -> Result<AttrChange> {
        let Some(mode) = change.mode else {
            return Ok(change);
        };
        if !self.inodes.state(ino).is_directory {
            check_set_id(format!("inode {}", ino.0), mode)?;
        }
        Ok(AttrChange {
            mode: Some(mode & !SET_ID),
            ..change
        })
    }

    /// Removes a name of a file.
    pub fn unlink(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<()> {
        self.change_in(context, parent, name, |path| {
            let removed = self.tree(context, path)?;
            removed.tree.unlink(context, &removed.at)?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<()> {
        self.change_in(context, parent, name, |path| {
            let removed = self.tree(context, path)?;
            removed.tree.remove_folder(context, &removed.at)?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Renames a name; `from` and `to` are directory and name.
    pub fn rename(
        &self,
        context: &RequestContext,
        from: NameIn<'_>,
        to: NameIn<'_>,
        onto: RenameMode,
    ) -> Result<()> {
        let paths = || Ok([self.child(from.0, from.1)?, self.child(to.0, to.1)?]);
        self.change_names(context, paths, |[old, new]| {
            self.rename_paths(context, from, to, (old, new), onto)
        })?;
        self.invalidate_open_files();
        Ok(())
    }

    fn rename_paths(
        &self,
        context: &RequestContext,
        from: NameIn<'_>,
        to: NameIn<'_>,
        paths: (&Key, &Key),
        onto: RenameMode,
    ) -> Result<()> {
        let (old, new) = (self.tree(context, paths.0)?, self.tree(context, paths.1)?);
        check_same(paths.1, &old.tree, &new.tree)?;
        let under_way = self.renames.begin(paths.0, paths.1);
        if let Err(error) = old.tree.rename(context, &old.at, &new.at, onto) {
            under_way.fail();
            return Err(error);
        }
        self.inodes.rename(from, to);
        drop(under_way);
        Ok(())
    }

    /// Syncs the names in a directory, so that they survive a power loss.
    pub fn sync_folder(&self, context: &RequestContext, ino: Ino) -> Result<()> {
        self.sync_path(context, &self.inodes.path(ino)?)
    }

    /// Returns an extended attribute.
    pub fn attribute(&self, context: &RequestContext, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.ask_present(ino, |path| {
            let (tree, at) = self.attributed(context, path)?;
            tree.attribute(context, &at, name)
        });
        value.and_then(|(value, path)| value.ok_or_else(|| not_set(&path, name)))
    }

    /// Returns an extended attribute that the view synthesizes.
    pub fn view_attribute(
        &self,
        context: &RequestContext,
        ino: Ino,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let value = self.ask_present(ino, |path| self.view.attribute(context, path, name));
        value.and_then(|(value, path)| value.ok_or_else(|| not_set(&path, name)))
    }

    /// Returns the names of the extended attributes of an inode.
    pub fn attributes(&self, context: &RequestContext, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let names = self.ask_present(ino, |path| {
            let (tree, at) = self.attributed(context, path)?;
            tree.attributes(context, &at)
        });
        names.map(|(names, _)| names)
    }

    /// Sets an extended attribute, or removes it if `value` is `None`.
    pub fn set_attribute(
        &self,
        context: &RequestContext,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        setting: Setting,
    ) -> Result<()> {
        let done = self.ask_present(ino, |path| {
            let PathInTree { tree, at, .. } = &self.tree(context, path)?;
            match value {
                Some(value) => tree.set_attribute(context, at, name, value, setting),
                None => tree.remove_attribute(context, at, name),
            }
        });
        done.map(|_| ())
    }

    /// Calls `ask` with the current path of an inode; also returns the path.
    fn ask_present<T>(&self, ino: Ino, ask: impl Fn(&Key) -> Result<T>) -> Result<(T, Key)> {
        let asked = self.ask(|| self.present_path(ino), ask);
        asked.map_err(gone_is_changed)
    }

    /// Returns the tree for reading extended attributes; an entry without a tree has none.
    fn attributed(&self, context: &RequestContext, path: &Key) -> Result<(Arc<dyn Tree>, Key)> {
        let why = "has no extended attributes";
        let tree = self.view.tree(context, path)?;
        tree.ok_or_else(|| Error::unsupported(path, why))
    }

    /// Returns the free space, or `None` on a read-only mount.
    pub fn room(&self, context: &RequestContext) -> Result<Option<FreeSpace>> {
        match self.view.tree(context, &Key::root())? {
            Some((tree, _)) if self.config.writable => tree.free_space().map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns the error of a missing extended attribute.
fn not_set(path: &Key, name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name);
    Error::new(Kind::NoAttribute, path, format!("{name} is not set"))
}

/// Sets attributes of an open file, and flushes them if the close of the handle would not.
fn change_open(context: &RequestContext, open: &Handle, change: &AttrChange) -> Result<Attr> {
    let file = open.tree_file.as_ref();
    let file = file.ok_or_else(|| replaced(&open.path))?;
    file.change(context, change)?;
    if !open.writes {
        file.flush(context)?;
    }
    Ok(attr_of_stat(&file.stat(context)?))
}

/// Fails with `CrossDevice` if two paths are in different trees.
pub(super) fn check_same(path: &Key, tree: &Arc<dyn Tree>, other: &Arc<dyn Tree>) -> Result<()> {
    if tree.identity() == other.identity() {
        return Ok(());
    }
    Err(Error::new(Kind::CrossDevice, path, "is in another view"))
}

/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID: u32 = 0o6000;

/// `NotPermitted` for set-ID bits of a file: the mount is `nosuid`, and stores cannot keep the bits.
pub(super) fn check_set_id(what: impl std::fmt::Display, mode: u32) -> Result<()> {
    if mode & SET_ID == 0 {
        return Ok(());
    }
    let why = "set-user-ID and set-group-ID bits are not kept on this mount";
    Err(Error::new(Kind::NotPermitted, what, why))
}
