//! Operations that change something: each is done by the tree that the view has for the path, and then the table of
//! inodes is brought up to date.

use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::store::tree::{
    AttrChange, Credentials, FreeSpace, OpenMode, RenameMode, Setting, TreeFile,
};
use crate::store::{Key, Tree};
use crate::vfs::{Entry, Fh, FileHandle, Ino, OpenReply, Vfs};
use crate::view::Attr;
use crate::view::store::{ChangingFile, attr_of_stat};

/// A new entry of a directory that is no regular file.
#[derive(Clone, Debug)]
pub enum NewNode {
    /// A directory.
    Folder,
    /// A symbolic link, and where it points.
    Link(Vec<u8>),
    /// A pipe, a socket or an empty file; the mode tells which.
    Special,
}

impl Vfs {
    /// Returns the tree by which a path can be changed, and the path in it; `ReadOnly` if it cannot be changed.
    fn tree(&self, path: &Key) -> Result<(Arc<dyn Tree>, Key)> {
        let tree = if self.config.writable {
            self.view.tree(path)?
        } else {
            None
        };
        tree.ok_or_else(|| Error::read_only(path))
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<Key> {
        self.inodes.path(parent)?.child(name)
    }

    /// Looks up what was made just now.
    fn made(&self, parent: Ino, name: &[u8], path: &Key) -> Result<Entry> {
        let attr = self.view.lookup(path)?;
        let attr = attr.ok_or_else(|| Error::not_found(path))?;
        Ok(self.entry(parent, &name.into(), attr))
    }

    /// Makes a regular file and opens it; `Exists` if there is something.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        credentials: &Credentials,
    ) -> Result<(Entry, OpenReply)> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        let file = tree.create(&at, credentials)?;
        self.inodes.unlink(parent, name);
        let attr = attr_of_stat(&file.stat()?);
        let entry = self.entry(parent, &name.into(), attr);
        Ok((entry, self.add_writer(entry.ino, path, file)))
    }

    /// Opens a file for writing, and empties it first if asked to.
    pub fn open_for_writing(&self, ino: Ino, truncate: bool) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let path = self.inodes.path(ino)?;
        let (tree, at) = self.tree(&path)?;
        let mode = if truncate {
            OpenMode::Truncate
        } else {
            OpenMode::Write
        };
        let file = tree.open(&at, mode)?;
        Ok(self.add_writer(ino, path, file))
    }

    fn add_writer(&self, ino: Ino, path: Key, file: Arc<dyn TreeFile>) -> OpenReply {
        let fh = self.add_file(FileHandle {
            ino,
            path,
            file: Arc::new(ChangingFile(file.clone())),
            version: None,
            writer: Some(file),
        });
        OpenReply {
            fh,
            keep_cache: self.keep_cache(ino, None),
            direct: false,
            writes: true,
        }
    }

    /// Like `write`, if it can be done without waiting.
    pub fn write_now(&self, fh: Fh, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        let open = self.file(fh).ok()?;
        let done = open.writer.as_ref()?.write_now(offset, bytes)?;
        self.count_write(bytes);
        Some(done)
    }

    /// Writes all of `bytes` to an open file.
    pub fn write(&self, fh: Fh, offset: u64, bytes: &[u8]) -> Result<()> {
        let open = self.file(fh)?;
        let done = open.writer()?.write_at(offset, bytes);
        self.count_write(bytes);
        done.map_err(|error| error.about(&open.path))
    }

    fn count_write(&self, bytes: &[u8]) {
        self.stats.write_requests.add(1);
        self.stats.write_bytes.add(bytes.len() as u64);
    }

    /// Makes what was written to an open file survive the end of this process.
    pub fn flush(&self, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        let Some(file) = &open.writer else {
            return Ok(());
        };
        file.flush().map_err(|error| error.about(&open.path))?;
        self.invalidate_open_files();
        Ok(())
    }

    /// Makes what was written to an open file survive a loss of power.
    pub fn sync(&self, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        match &open.writer {
            Some(file) => file.sync().map_err(|error| error.about(&open.path)),
            None => Ok(()),
        }
    }

    /// Reserves room for a range of an open file.
    pub fn allocate(&self, fh: Fh, mode: i32, range: (u64, u64)) -> Result<()> {
        self.file(fh)?.writer()?.allocate(mode, range)
    }

    /// Sets attributes of an inode; through the handle `fh` if that is open for writing.
    pub fn set_attributes(&self, ino: Ino, fh: Option<Fh>, change: &AttrChange) -> Result<Attr> {
        let open = fh.and_then(|fh| self.file(fh).ok());
        let of_handle = open.and_then(|open| open.writer.clone());
        let of_path = || {
            let path = self.inodes.path(ino)?;
            let (tree, at) = self.tree(&path)?;
            tree.change(&at, change)?;
            Ok(())
        };
        match of_handle {
            Some(file) => {
                file.change(change)?;
                return Ok(attr_of_stat(&file.stat()?));
            }
            None => match of_path() {
                Err(error) if self.is_nameless(ino, &error) => {}
                done => return done.and_then(|()| self.getattr(ino)),
            },
        }
        let open = self.open_file(ino, |open| open.writer.is_some());
        let file = open.and_then(|open| open.writer.clone());
        let file = file.ok_or_else(|| Error::not_found(format!("inode {}", ino.0)))?;
        file.change(change)?;
        Ok(attr_of_stat(&file.stat()?))
    }

    /// Whether an operation failed because the last name of the inode was removed.
    fn is_nameless(&self, ino: Ino, error: &Error) -> bool {
        let path = self.inodes.path(ino);
        error.kind() == Kind::NotFound && path.is_err_and(|error| error.kind() == Kind::NotFound)
    }

    /// Makes something that is no regular file.
    pub fn make(
        &self,
        parent: Ino,
        name: &[u8],
        node: &NewNode,
        credentials: &Credentials,
    ) -> Result<Entry> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        match node {
            NewNode::Folder => tree.make_folder(&at, credentials)?,
            NewNode::Link(target) => tree.make_link(&at, target, credentials)?,
            NewNode::Special => tree.make_node(&at, credentials)?,
        }
        self.inodes.unlink(parent, name);
        self.made(parent, name, &path)
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        let (from, to) = (self.inodes.path(ino)?, self.child(parent, name)?);
        let ((tree, old), (other, new)) = (self.tree(&from)?, self.tree(&to)?);
        check_same(&to, &tree, &other)?;
        tree.link(&old, &new)?;
        self.inodes.unlink(parent, name);
        self.inodes.link(ino, parent, name);
        let attr = self.view.lookup(&to)?;
        let attr = attr.ok_or_else(|| Error::not_found(&to))?;
        if let Some(posix) = attr.posix {
            self.inodes.identify(ino, posix.identity);
        }
        Ok(Entry { ino, attr })
    }

    /// Removes a name of a file.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        tree.unlink(&at)?;
        self.invalidate_open_files();
        self.inodes.unlink(parent, name);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        tree.remove_folder(&at)?;
        self.invalidate_open_files();
        self.inodes.unlink(parent, name);
        Ok(())
    }

    /// Renames; `from` and `to` are directory and name.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), onto: RenameMode) -> Result<()> {
        let (old, new) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        let ((tree, old), (other, at)) = (self.tree(&old)?, self.tree(&new)?);
        check_same(&new, &tree, &other)?;
        let same = onto != RenameMode::Exchange && is_same_file(&tree, &old, &at)?;
        tree.rename(&old, &at, onto)?;
        self.invalidate_open_files();
        if !same {
            self.inodes.rename(from, to, onto == RenameMode::Exchange);
        }
        Ok(())
    }

    /// Makes the names of a directory survive a loss of power.
    pub fn sync_folder(&self, ino: Ino) -> Result<()> {
        let path = self.inodes.path(ino)?;
        match self.view.tree(&path)? {
            Some((tree, at)) => tree.sync_folder(&at),
            None => Ok(()),
        }
    }

    /// Returns an extended attribute.
    pub fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let path = self.inodes.path(ino)?;
        let (tree, at) = self.attributed(&path)?;
        let value = tree.attribute(&at, name)?;
        value.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::new(Kind::NoAttribute, &path, format!("{name} is not set"))
        })
    }

    /// Returns the names of the extended attributes.
    pub fn attributes(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let path = self.inodes.path(ino)?;
        let (tree, at) = self.attributed(&path)?;
        tree.attributes(&at)
    }

    /// Sets an extended attribute, or removes it if there is no value.
    pub fn set_attribute(
        &self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        setting: Setting,
    ) -> Result<()> {
        let (tree, at) = self.tree(&self.inodes.path(ino)?)?;
        match value {
            Some(value) => tree.set_attribute(&at, name, value, setting),
            None => tree.remove_attribute(&at, name),
        }
    }

    /// Like `tree`, to read extended attributes; what has no tree has none.
    fn attributed(&self, path: &Key) -> Result<(Arc<dyn Tree>, Key)> {
        let why = "has no extended attributes";
        let tree = self.view.tree(path)?;
        tree.ok_or_else(|| Error::unsupported(path, why))
    }

    /// Returns how much room there is; nothing where nothing can be written.
    pub fn room(&self) -> Result<Option<FreeSpace>> {
        match self.view.tree(&Key::root())? {
            Some((tree, _)) if self.config.writable => tree.room().map(Some),
            _ => Ok(None),
        }
    }
}

/// Fails with `CrossDevice` if two paths are changed by different trees.
fn check_same(path: &Key, tree: &Arc<dyn Tree>, other: &Arc<dyn Tree>) -> Result<()> {
    if tree.identity() == other.identity() {
        return Ok(());
    }
    Err(Error::new(Kind::CrossDevice, path, "is in another view"))
}

/// Whether two paths are names of one file; then a rename does nothing.
fn is_same_file(tree: &Arc<dyn Tree>, from: &Key, to: &Key) -> Result<bool> {
    let identity = |path| -> Result<Option<u64>> {
        let stat = tree.stat(path)?;
        let posix = stat.and_then(|stat| stat.posix);
        Ok(posix
            .filter(|posix| posix.links > 1)
            .map(|posix| posix.identity))
    };
    let from = identity(from)?;
    Ok(from.is_some() && from == identity(to)?)
}
