//! The operations that change something: each finds who changes what lies at the path, and keeps the table of
//! inodes as the names are from then on.

use std::sync::Arc;

use super::{Entry, Fh, FileHandle, Ino, OpenReply, Vfs};
use crate::error::{Error, Kind, Result};
use crate::store::tree::{AttrChange, Credentials, FreeSpace, RenameMode, Setting, TreeFile};
use crate::store::{Key, Tree};
use crate::view::Attr;
use crate::view::store::{ChangingFile, attr_of_stat};

/// Something new in a directory.
#[derive(Clone, Debug)]
pub enum NewNode {
    /// A directory.
    Folder,
    /// A symbolic link, and where it points.
    Link(Vec<u8>),
    /// A pipe, a socket or an empty file, as the mode says.
    Special,
}

impl Vfs {
    /// Returns who changes what lies at a path; `ReadOnly` if nobody does.
    fn tree(&self, path: &Key) -> Result<(Arc<dyn Tree>, Key)> {
        let tree = match self.config.writable {
            true => self.view.tree(path)?,
            false => None,
        };
        tree.ok_or_else(|| Error::read_only(path))
    }

    fn child(&self, parent: Ino, name: &[u8]) -> Result<Key> {
        self.inodes.path(parent)?.child(name)
    }

    /// Looks up something that was made a moment ago.
    fn made(&self, parent: Ino, name: &[u8], path: &Key) -> Result<Entry> {
        let attr = self.view.lookup(path)?;
        let attr = attr.ok_or_else(|| Error::not_found(path))?;
        Ok(self.entry(parent, name, attr))
    }

    /// Makes a regular file and opens it; `Exists` if there is something.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        maker: &Credentials,
    ) -> Result<(Entry, OpenReply)> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        let file = tree.create(&at, maker)?;
        self.inodes.unlink(parent, name);
        let attr = attr_of_stat(&file.stat()?);
        let entry = self.entry(parent, name, attr);
        Ok((entry, self.enter_written(entry.ino, path, file)))
    }

    /// Opens a file for writing, and empties it first if asked to.
    pub fn open_for_writing(&self, ino: Ino, truncate: bool) -> Result<OpenReply> {
        self.stats.open_requests.add(1);
        let path = self.inodes.path(ino)?;
        let (tree, at) = self.tree(&path)?;
        let file = tree.open(&at, truncate)?;
        Ok(self.enter_written(ino, path, file))
    }

    fn enter_written(&self, ino: Ino, path: Key, file: Arc<dyn TreeFile>) -> OpenReply {
        let fh = self.new_handle();
        let open = FileHandle {
            ino,
            path,
            file: Arc::new(ChangingFile(file.clone())),
            version: None,
            written: Some(file),
        };
        self.enter(fh, Arc::new(open));
        OpenReply {
            fh,
            keep_cache: self.keep_cache(ino, None),
            direct: false,
            writes: true,
        }
    }

    fn written(&self, fh: Fh) -> Result<Arc<dyn TreeFile>> {
        let open = self.file(fh)?;
        let written = open.written.clone();
        written.ok_or_else(|| Error::invalid(&open.path, "is not open for writing"))
    }

    /// Writes if that waits for nothing.
    pub fn write_now(&self, fh: Fh, offset: u64, bytes: &[u8]) -> Option<Result<()>> {
        let file = self.written(fh).ok()?;
        let done = file.write_now(offset, bytes)?;
        self.count_write(bytes);
        Some(done)
    }

    /// Writes all of `bytes` to an open file.
    pub fn write(&self, fh: Fh, offset: u64, bytes: &[u8]) -> Result<()> {
        let open = self.file(fh)?;
        let done = self.written(fh)?.write_at(offset, bytes);
        self.count_write(bytes);
        done.map_err(|error| error.about(&open.path))
    }

    fn count_write(&self, bytes: &[u8]) {
        self.stats.write_requests.add(1);
        self.stats.write_bytes.add(bytes.len() as u64);
    }

    /// Keeps what was written to an open file over the death of this process.
    pub fn flush(&self, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        let Some(file) = &open.written else {
            return Ok(());
        };
        file.flush().map_err(|error| error.about(&open.path))?;
        self.drop_pages();
        Ok(())
    }

    /// Keeps what was written to an open file over a loss of power.
    pub fn sync(&self, fh: Fh) -> Result<()> {
        let open = self.file(fh)?;
        match &open.written {
            Some(file) => file.sync().map_err(|error| error.about(&open.path)),
            None => Ok(()),
        }
    }

    /// Keeps room for a range of an open file.
    pub fn allocate(&self, fh: Fh, mode: i32, range: (u64, u64)) -> Result<()> {
        self.written(fh)?.allocate(mode, range)
    }

    /// Sets attributes of an inode, by the handle through which it is asked if there is one.
    pub fn set_attributes(&self, ino: Ino, fh: Option<Fh>, change: &AttrChange) -> Result<Attr> {
        let of_handle = fh.and_then(|fh| self.written(fh).ok());
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
        let open = self.open_file(ino, |open| open.written.is_some());
        let file = open.and_then(|open| open.written.clone());
        let file = file.ok_or_else(|| Error::not_found(format!("inode {}", ino.0)))?;
        file.change(change)?;
        Ok(attr_of_stat(&file.stat()?))
    }

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
        maker: &Credentials,
    ) -> Result<Entry> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        match node {
            NewNode::Folder => tree.make_folder(&at, maker)?,
            NewNode::Link(target) => tree.make_link(&at, target, maker)?,
            NewNode::Special => tree.make_node(&at, maker)?,
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
        self.drop_pages();
        self.inodes.unlink(parent, name);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn remove_folder(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let path = self.child(parent, name)?;
        let (tree, at) = self.tree(&path)?;
        tree.remove_folder(&at)?;
        self.drop_pages();
        self.inodes.unlink(parent, name);
        Ok(())
    }

    /// Gives something another name; names are directory and name.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), onto: RenameMode) -> Result<()> {
        let (old, new) = (self.child(from.0, from.1)?, self.child(to.0, to.1)?);
        let ((tree, old), (other, at)) = (self.tree(&old)?, self.tree(&new)?);
        check_same(&new, &tree, &other)?;
        let same = onto != RenameMode::Exchange && is_same_file(&tree, &old, &at)?;
        tree.rename(&old, &at, onto)?;
        self.drop_pages();
        if !same {
            self.inodes.rename(from, to, onto == RenameMode::Exchange);
        }
        Ok(())
    }

    /// Keeps the names of a directory over a loss of power.
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

    /// Like `tree`, where nothing is changed: what has no tree has no extended attributes either.
    fn attributed(&self, path: &Key) -> Result<(Arc<dyn Tree>, Key)> {
        let why = "has no extended attributes";
        let tree = self.view.tree(path)?;
        tree.ok_or_else(|| Error::unsupported(path, why))
    }

    /// Returns how much there is room for; nothing where nothing can be written.
    pub fn room(&self) -> Result<Option<FreeSpace>> {
        match self.view.tree(&Key::root())? {
            Some((tree, _)) if self.config.writable => tree.room().map(Some),
            _ => Ok(None),
        }
    }
}

fn check_same(path: &Key, tree: &Arc<dyn Tree>, other: &Arc<dyn Tree>) -> Result<()> {
    match tree.identity() == other.identity() {
        true => Ok(()),
        false => Err(Error::new(Kind::CrossDevice, path, "is in another view")),
    }
}

/// Whether two paths are names of one file: then a rename does nothing.
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
