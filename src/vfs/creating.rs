//! Creates files, directories and links, with inodes for them.

use std::sync::Arc;

use crate::vfs::changing::{PathInTree, check_same, check_set_id};
use crate::vfs::{Caller, Entry, Ino, OpenOptions, OpenReply, Vfs, replaced};
use crate::view::Attr;
use crate::view::store::attr_of_stat;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{Credentials, TreeFile};
use zarrfs_store::{EntryKind, Key};

/// A new entry that is not opened.
#[derive(Clone, Debug)]
pub enum NewNode {
    /// A directory.
    Folder,
    /// A symbolic link with its target.
    Link(Vec<u8>),
    /// An empty file.
    File,
}

/// How often a create is retried if the file exists at the create and is missing at the lookup.
const MAX_CREATE_ATTEMPTS: usize = 64;

/// The owner's read and write permission bits.
const OWNER_READS_AND_WRITES: u32 = 0o600;

impl Vfs {
    /// Creates and opens a regular file; opens an existing file unless `mode.is_new`.
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
            // The kernel found no such name: it was created since.
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

    /// Opens an existing file in reply to a create. The kernel does not check the permissions of a file that it takes
    /// for new, so this returns `Changed` unless the caller is the owner: then the kernel looks the name up again and
    /// finds the file.
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

    /// Whether a caller may read and write a file as its owner or as root.
    fn is_own(&self, attr: &Attr, credentials: &Credentials) -> bool {
        let (owner, mode) = match attr.posix {
            Some(posix) => (posix.uid, posix.mode),
            None => (self.config.uid, !self.config.umask),
        };
        let is_open = mode & OWNER_READS_AND_WRITES == OWNER_READS_AND_WRITES;
        credentials.uid == 0 || (credentials.uid == owner && is_open)
    }

    /// Returns the kernel's entry for a new file.
    ///
    /// The kernel queries the attributes again before it answers the program. They cannot be cached until then without
    /// the name, whose TTL the kernel rounds up to some milliseconds and which it keeps across a rename: the file of a
    /// chunk created this way would show stale bytes after a write of the decoded file.
    fn made_entry(&self, ino: Ino, attr: Attr) -> Entry {
        let attr = self.with_ttl(ino, attr);
        Entry { ino, attr }
    }

    /// Looks up a new entry.
    fn made(&self, context: &RequestContext, parent: Ino, name: &[u8]) -> Result<Entry> {
        let view = |path: &Key| self.view.lookup(context, path);
        let (found, path) = self.find_path(
            || self.child(parent, name),
            |path| self.renames.find(path, view),
        )?;
        let attr = found.ok_or_else(|| Error::not_found(path))?;
        Ok(self.entry(parent, name, attr))
    }

    /// Creates an entry of a directory.
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

    /// Creates a second file with the bytes of a file, in place of a hard link.
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
