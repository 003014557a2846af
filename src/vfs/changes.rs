//! Changes names and attributes; answers requests about extended attributes and free space.
//!
//! The view's tree for the path makes the change, then the inode table is updated.

use std::sync::Arc;

use crate::vfs::handles::Handle;
use crate::vfs::{
    Caller, Entry, Fh, Ino, NameIn, OpenOptions, OpenReply, Vfs, gone_is_changed, replaced,
};
use crate::view::store::attr_of_stat;
use crate::view::{Attr, PathInTree};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_array::array::WrittenKey;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Credentials, FreeSpace, RenameMode, Setting, TreeFile};
use zarrfs_store::{EntryKind, Key, Tree};

/// The kind of a file or directory to be created.
#[derive(Clone, Debug)]
pub enum NewNode {
    /// An empty directory.
    Folder,
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// An empty regular file.
    File,
}

/// A path that may be changed, and the tree that changes it.
pub(super) struct WritablePath {
    pub(super) tree: Arc<dyn Tree>,
    pub(super) at: Key,
    /// Keeps other files of the same array from being opened for writing; only for the path of a chunk.
    _written: Option<WrittenKey>,
}

impl Vfs {
    /// Creates and opens a regular file. If the file exists, opens it, or fails if `mode.is_new` is set.
    pub fn create(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        credentials: &Credentials,
        mode: OpenOptions,
        caller: Caller,
    ) -> Result<(Entry, OpenReply)> {
        check_set_id(String::from_utf8_lossy(name), credentials.mode)?;
        // Tries again if other programs remove the existing file between the create and the lookup.
        for _ in 0..64 {
            let created = self.change_in(context, parent, name, |path| {
                let made = self.tree(context, path)?;
                Ok((
                    made.tree.create(context, &made.at, credentials)?,
                    path.clone(),
                ))
            });
            match created {
                Ok((file, path)) => return self.add_created(context, parent, name, &path, file),
                Err(error) if error.kind() != Kind::Exists || mode.is_new => return Err(error),
                Err(_) => {}
            }
            // Another program has created the file after the kernel's lookup, which found no such name.
            if let Some(found) = self.lookup(context, parent, name, caller)? {
                let opened = self.open_found(context, &found, credentials, mode, caller);
                if opened.is_err() {
                    self.forget(found.ino, 1);
                }
                return opened;
            }
        }
        Err(replaced(self.child(parent, name)?))
    }

    fn add_created(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        path: &Key,
        file: Arc<dyn TreeFile>,
    ) -> Result<(Entry, OpenReply)> {
        let attr = attr_of_stat(&file.stat(context)?);
        let fh = self.handles.new_number();
        // The inode is made last, so that nothing has to be undone if the file cannot be opened.
        let handle = self.writer(context, parent, path, file)?;
        let ino = self.inodes.create(parent, name, attr.content, fh);
        self.handles.insert(fh, Handle { ino, ..handle });
        Ok((self.entry_of(ino, attr), self.open_reply(fh)?))
    }

    /// Opens an existing file in reply to a create. The kernel takes the file for new, and does not check its
    /// permissions. So this returns `Changed`, after which the kernel looks the name up again and checks them, unless
    /// the program runs as root or as the owner.
    fn open_found(
        &self,
        context: &RequestContext,
        found: &Entry,
        credentials: &Credentials,
        mode: OpenOptions,
        caller: Caller,
    ) -> Result<(Entry, OpenReply)> {
        if found.attr.kind != EntryKind::File || !self.is_own(&found.attr, credentials) {
            return Err(self.estale.walk_again(found.ino, caller));
        }
        let opened = if mode.writes || mode.truncates {
            self.open_for_writing(context, found.ino, mode, caller)?
        } else {
            self.open(context, found.ino, caller)?
        };
        let attr = self.open_attr(context, found.ino).unwrap_or(found.attr);
        Ok((self.entry_of(found.ino, attr), opened))
    }

    /// Whether a program may read and write a file, as root or as its owner.
    fn is_own(&self, attr: &Attr, credentials: &Credentials) -> bool {
        let (owner, mode) = match attr.posix {
            Some(posix) => (posix.uid, posix.mode),
            None => (self.config.uid, !self.config.umask),
        };
        let is_permitted = mode & 0o400 != 0 && mode & 0o200 != 0;
        credentials.uid == 0 || (credentials.uid == owner && is_permitted)
    }

    fn look_up_created(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<Entry> {
        let view = |path: &Key| self.view.lookup(context, path);
        let (found, path) = self.renames.retry_find(
            || self.child(parent, name),
            |path| self.renames.find(path, view),
        )?;
        let attr = found.ok_or_else(|| Error::not_found(path))?;
        Ok(self.entry(parent, name, attr))
    }

    /// Creates a file, directory or symbolic link, and looks its name up.
    pub fn make(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        node: &NewNode,
        credentials: &Credentials,
    ) -> Result<Entry> {
        if !matches!(node, NewNode::Folder) {
            check_set_id(String::from_utf8_lossy(name), credentials.mode)?;
        }
        self.change_in(context, parent, name, |path| {
            let WritablePath { tree, at, .. } = &self.tree(context, path)?;
            match node {
                NewNode::Folder => tree.make_folder(context, at, credentials),
                NewNode::Link(target) => tree.make_link(context, at, target, credentials),
                NewNode::File => tree.create(context, at, credentials)?.flush(context),
            }?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.look_up_created(context, parent, name)
    }

    /// Creates a copy of a file, because a store has no hard links.
    pub fn link(
        &self,
        context: &RequestContext,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Entry> {
        let paths = || Ok([self.current_path(ino)?, self.child(parent, name)?]);
        self.change_names(context, paths, |[from, to]| {
            let (old, new) = (self.tree(context, from)?, self.tree(context, to)?);
            check_same(to, &old.tree, &new.tree)?;
            old.tree.link(context, &old.at, &new.at)?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.look_up_created(context, parent, name)
    }

    /// Removes the name of a file.
    pub fn unlink(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(
            context,
            parent,
            name,
            |WritablePath { tree, at, .. }| tree.unlink(context, at),
        )
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(
            context,
            parent,
            name,
            |WritablePath { tree, at, .. }| tree.remove_folder(context, at),
        )
    }

    fn remove(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        remove: impl Fn(&WritablePath) -> Result<()>,
    ) -> Result<()> {
        self.change_in(context, parent, name, |path| {
            remove(&self.tree(context, path)?)?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Moves a file or directory to another name.
    pub fn rename(
        &self,
        context: &RequestContext,
        from: NameIn<'_>,
        to: NameIn<'_>,
        onto: RenameMode,
    ) -> Result<()> {
        let paths = || {
            let old = self.child(from.parent, from.name)?;
            Ok([old, self.child(to.parent, to.name)?])
        };
        self.change_names(context, paths, |[old_path, new_path]| {
            let (old, new) = (self.tree(context, old_path)?, self.tree(context, new_path)?);
            check_same(new_path, &old.tree, &new.tree)?;
            let under_way = self.renames.begin(old_path, new_path);
            if let Err(error) = old.tree.rename(context, &old.at, &new.at, onto) {
                under_way.fail();
                return Err(error);
            }
            self.inodes.rename(from, to);
            drop(under_way);
            Ok(())
        })?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Sets attributes of a file or directory, through the handle `fh` if that is open for writing.
    pub fn set_attributes(
        &self,
        context: &RequestContext,
        ino: Ino,
        fh: Option<Fh>,
        change: &AttrChange,
        caller: Caller,
    ) -> Result<Attr> {
        let open = fh.and_then(|fh| self.handles.get(fh).ok());
        let change = &self.without_set_id(ino, *change)?;
        if let Some(file) = open.as_ref().and_then(|open| open.writer().ok()) {
            file.change(context, change)?;
            return Ok(attr_of_stat(&file.stat(context)?));
        }
        // Uses an open handle if there is one, since the path may lead to another file by now.
        if let Some(open) = self.open_file(ino, |open| open.tree_file.is_some()) {
            return change_open(context, &open, change);
        }
        let path = || self.path_for(ino, caller, || self.current_path(ino));
        let changed = self.renames.retry_query(path, |path| {
            let changed = self.tree(context, path)?;
            changed.tree.change(context, &changed.at, change)
        });
        changed.map_err(|error| self.estale.error_of_path(error, ino, caller))?;
        self.getattr(context, ino, caller)
    }

    /// Removes the set-ID bits from the mode of a directory, since archives and shared folders have them on each
    /// directory. For a file, set-ID bits are an error.
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

    /// Returns an extended attribute.
    pub fn attribute(&self, context: &RequestContext, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let value = self.query_current(ino, |path| {
            let PathInTree { tree, at } = self.tree_with_attributes(context, path)?;
            tree.attribute(context, &at, name)
        });
        value.and_then(|(value, path)| value.ok_or_else(|| no_attribute(&path, name)))
    }

    /// Returns an extended attribute with a fact about the node, which the view generates.
    pub fn view_attribute(
        &self,
        context: &RequestContext,
        ino: Ino,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        let value = self.query_current(ino, |path| self.view.attribute(context, path, name));
        value.and_then(|(value, path)| value.ok_or_else(|| no_attribute(&path, name)))
    }

    /// Returns the names of the stored extended attributes of an inode.
    pub fn attributes(&self, context: &RequestContext, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let names = self.query_current(ino, |path| {
            let PathInTree { tree, at } = self.tree_with_attributes(context, path)?;
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
        let done = self.query_current(ino, |path| {
            let WritablePath { tree, at, .. } = &self.tree(context, path)?;
            match value {
                Some(value) => tree.set_attribute(context, at, name, value, setting),
                None => tree.remove_attribute(context, at, name),
            }
        });
        done.map(|_| ())
    }

    /// Calls `query` with the current path of an inode; returns the answer and the path.
    fn query_current<T>(&self, ino: Ino, query: impl Fn(&Key) -> Result<T>) -> Result<(T, Key)> {
        let answer = self.renames.retry_query(|| self.current_path(ino), query);
        answer.map_err(gone_is_changed)
    }

    /// Returns the tree that stores the extended attributes of a path. Fails with `Unsupported` if the path has no
    /// tree.
    fn tree_with_attributes(&self, context: &RequestContext, path: &Key) -> Result<PathInTree> {
        let why = "extended attributes are not supported here";
        let tree = self.view.tree(context, path)?;
        tree.ok_or_else(|| Error::unsupported(path, why))
    }

    /// Returns the free space for changes, or `None` on a read-only mount.
    pub fn free_space(&self, context: &RequestContext) -> Result<Option<FreeSpace>> {
        match self.view.tree(context, &Key::root())? {
            Some(root) if self.config.writable => root.tree.free_space().map(Some),
            _ => Ok(None),
        }
    }

    /// Writes the names in a directory to disk, so that they survive a power loss.
    pub fn sync_folder(&self, context: &RequestContext, ino: Ino) -> Result<()> {
        self.sync_path(context, &self.inodes.path(ino)?)
    }

    /// Writes all changes in the tree of a path to disk, so that they survive a power loss.
    pub(super) fn sync_path(&self, context: &RequestContext, path: &Key) -> Result<()> {
        match self.view.tree(context, path)? {
            Some(PathInTree { tree, at }) if self.config.writable => tree.sync_folder(context, &at),
            _ => Ok(()),
        }
    }

    /// Returns the tree that changes a path. Fails with `ReadOnly` if the path is read-only, and with `Busy` if another
    /// form of the same elements is open for writing.
    pub(super) fn tree(&self, context: &RequestContext, path: &Key) -> Result<WritablePath> {
        if !self.config.writable {
            return Err(Error::read_only(path));
        }
        let written = self.view.begin_writing(path)?;
        let why = "the directory .zarrfs cannot be changed";
        let tree = self.view.tree(context, path)?;
        let PathInTree { tree, at } = tree.ok_or_else(|| Error::new(Kind::ReadOnly, path, why))?;
        Ok(WritablePath {
            tree,
            at,
            _written: written,
        })
    }

    pub(super) fn child(&self, parent: Ino, name: &[u8]) -> Result<Key> {
        self.inodes.path(parent)?.child(name)
    }

    /// Calls `change` with the path of a name, as `change_names` does.
    pub(super) fn change_in<T>(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        change: impl Fn(&Key) -> Result<T>,
    ) -> Result<T> {
        let paths = || Ok([self.child(parent, name)?]);
        self.change_names(context, paths, |[path]| change(path))
    }

    /// Calls `change` with the paths that `paths_of` returns. If it returns `NotFound` because a folder was renamed
    /// meanwhile, calls it again with the new paths; it must have changed nothing then.
    ///
    /// The second call changes the right file: a renamed folder gets its new name only after the old name is gone, so
    /// the old path cannot lead to another folder.
    pub(super) fn change_names<T, const N: usize>(
        &self,
        context: &RequestContext,
        paths_of: impl Fn() -> Result<[Key; N]>,
        change: impl Fn(&[Key; N]) -> Result<T>,
    ) -> Result<T> {
        context.check_may_wait()?;
        loop {
            let count = self.renames.count();
            let paths = paths_of()?;
            let _locked = self.path_locks.lock_own(&paths);
            if paths_of()? != paths {
                continue;
            }
            let done = change(&paths);
            if !is_missing(&done) {
                return done;
            }
            let moved = self.moved_names(context, &paths)?;
            let done = moved.map_or(done, |moved| change(&moved));
            let have_moved = |path| self.renames.have_moved(path, count);
            if !is_missing(&done) || !paths.iter().any(have_moved) {
                return done;
            }
        }
    }

    /// Returns the paths below the new names of folders, if a rename in progress has moved the folders of the paths,
    /// otherwise `None`.
    fn moved_names<const N: usize>(
        &self,
        context: &RequestContext,
        paths: &[Key; N],
    ) -> Result<Option<[Key; N]>> {
        let mut moved = paths.clone();
        for path in &mut moved {
            let folder = path.parent().unwrap_or_default();
            if let Some(new) = self.renames.moved_path(&folder)
                && self.view.lookup(context, &folder)?.is_none()
            {
                *path = new.child(path.name())?;
            }
        }
        Ok(Some(moved).filter(|moved| moved != paths))
    }
}

fn no_attribute(path: &Key, name: &[u8]) -> Error {
    let name = String::from_utf8_lossy(name);
    Error::new(Kind::NoAttribute, path, format!("{name} is not set"))
}

/// Sets attributes of an open file. If the handle is not open for writing, flushes them, since closing the handle would
/// not.
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
fn check_same(path: &Key, tree: &Arc<dyn Tree>, other: &Arc<dyn Tree>) -> Result<()> {
    if tree.identity() == other.identity() {
        return Ok(());
    }
    Err(Error::new(
        Kind::CrossDevice,
        path,
        "cannot move or link between views",
    ))
}

/// The set-user-ID and set-group-ID bits of a mode.
const SET_ID: u32 = 0o6000;

/// Fails with `NotPermitted` if a mode has set-ID bits: the mount is `nosuid`, and stores cannot keep the bits.
fn check_set_id(what: impl std::fmt::Display, mode: u32) -> Result<()> {
    if mode & SET_ID == 0 {
        return Ok(());
    }
    let why = "set-user-ID and set-group-ID bits are not supported";
    Err(Error::new(Kind::NotPermitted, what, why))
}

/// Whether a change has failed with `NotFound`, for example because a folder above the path was renamed.
fn is_missing<T>(done: &Result<T>) -> bool {
    done.as_ref()
        .is_err_and(|error| error.kind() == Kind::NotFound)
}
