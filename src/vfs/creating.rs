//! Makes files, directories and links, by the tree that the view has for the path; what was made gets an inode.

use std::sync::Arc;

use crate::vfs::changing::{PathInTree, check_same, check_set_id};
use crate::vfs::{Caller, Entry, Ino, OpenOptions, OpenReply, Vfs, replaced};
use crate::view::Attr;
use crate::view::store::attr_of_stat;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{Credentials, TreeFile};
use zarrfs_store::{EntryKind, Key};

/// A new entry of a directory that is not opened.
#[derive(Clone, Debug)]
pub enum NewNode {
    /// A directory.
    Folder,
    /// A symbolic link, and where it points.
    Link(Vec<u8>),
    /// An empty file.
    File,
}

/// How often a file is created again that is there and then is not.
const MAX_CREATE_ATTEMPTS: usize = 64;

/// Bits of a mode that let the owner read and write.
const OWNER_READS_AND_WRITES: u32 = 0o600;

impl Vfs {
    /// Makes a regular file and opens it; opens the one that is there unless it has to be new.
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
        for _ in 0..MAX_CREATE_ATTEMPTS {
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
            // The kernel found no such name: it has come since.
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
        let fh = self.new_handle();
        let ino = self.inodes.create(parent, name, attr.content, fh);
        self.add_file(fh, self.writer(context, ino, path, file)?);
        Ok((self.made_entry(ino, attr), self.open_reply(fh)?))
    }

    /// Opens a file that was to be created. The kernel checks no permission of a file that it takes for a new one, so
    /// `Changed` is returned unless the caller is the owner: the kernel looks again then, and finds the file.
    fn open_found(
        &self,
        context: &RequestContext,
        found: &Entry,
        credentials: &Credentials,
        mode: OpenOptions,
        caller: Caller,
    ) -> Result<(Entry, OpenReply)> {
        if found.attr.kind != EntryKind::File || !self.is_own(&found.attr, credentials) {
            return Err(self.walk_again(found.ino, caller));
        }
        let opened = if mode.writes || mode.truncates {
            self.open_for_writing(context, found.ino, mode, caller)?
        } else {
            self.open(context, found.ino, caller)?
        };
        let attr = self.open_attr(context, found.ino).unwrap_or(found.attr);
        Ok((self.made_entry(found.ino, attr), opened))
    }

    /// Whether a caller may read and write a file because it is the owner, or root.
    fn is_own(&self, attr: &Attr, credentials: &Credentials) -> bool {
        let (owner, mode) = match attr.posix {
            Some(posix) => (posix.uid, posix.mode),
            None => (self.config.uid, !self.config.umask),
        };
        let is_open = mode & OWNER_READS_AND_WRITES == OWNER_READS_AND_WRITES;
        credentials.uid == 0 || (credentials.uid == owner && is_open)
    }

    /// Returns what the kernel is told of a file that was made just now.
    ///
    /// It asks for the attributes once more before it answers the program. They could be kept until then only together
    /// with the name, which the kernel rounds up to some milliseconds and takes through a rename: the file of a chunk that
    /// was made so would show the bytes that it had before a write of the decoded file.
    fn made_entry(&self, ino: Ino, attr: Attr) -> Entry {
        let attr = self.with_ttl(ino, attr);
        Entry { ino, attr }
    }

    /// Looks up what was made just now.
    fn made(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<Entry> {
        let view = |path: &Key| self.view.lookup(context, path);
        let (found, path) = self.find_path(
            || self.child(parent, name),
            |path| self.renames.find(path, view),
        )?;
        let attr = found.ok_or_else(|| Error::not_found(path))?;
        Ok(self.entry(parent, name, attr))
    }

    /// Makes an entry of a directory.
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
            let PathInTree { tree, at, .. } = &self.tree(context, path)?;
            match node {
                NewNode::Folder => tree.make_folder(context, at, credentials),
                NewNode::Link(target) => tree.make_link(context, at, target, credentials),
                NewNode::File => tree.create(context, at, credentials)?.flush(context),
            }?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.made(context, parent, name)
    }

    /// Makes a second file with the bytes that a file has.
    pub fn link(
        &self,
        context: &RequestContext,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Entry> {
        let paths = || Ok([self.present_path(ino)?, self.child(parent, name)?]);
        self.change_names(context, paths, |[from, to]| {
            let (old, new) = (self.tree(context, from)?, self.tree(context, to)?);
            check_same(to, &old.tree, &new.tree)?;
            old.tree.link(context, &old.at, &new.at)?;
            self.inodes.unlink(parent, name);
            Ok(())
        })?;
        self.made(context, parent, name)
    }
}
