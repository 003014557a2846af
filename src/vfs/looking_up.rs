//! Lookups: what a name in a directory is, and its inode.
//!
//! Each answer counts as a lookup of the kernel, which takes it back when it forgets the inode. A name whose inode is
//! open with another content is asked for anew before it gets another inode.

use crate::error::{Kind, Result};
use crate::known::Known;
use crate::request_context::RequestContext;
use crate::store::Key;
use crate::vfs::inode::DirLookup;
use crate::vfs::{Caller, Entry, Ino, Vfs};
use crate::view::{Attr, ChildName};

impl Vfs {
    /// Looks up a name, and counts the lookup if there is such a name.
    pub fn lookup(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        caller: Caller,
    ) -> Result<Option<Entry>> {
        self.stats.lookup_requests.add(1);
        let Some(attr) = self.find(context, parent, name, caller)? else {
            return Ok(None);
        };
        if let Some(entry) = self.entry_if_same(parent, name, attr) {
            return Ok(Some(entry));
        }
        // A file that was opened after the view was asked may be the same all the same.
        let attr = self.find(context, parent, name, caller)?;
        Ok(attr.map(|attr| self.entry(parent, name, attr)))
    }

    /// Returns the attributes of a name in a directory, which may be renamed meanwhile.
    fn find(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        caller: Caller,
    ) -> Result<Option<Attr>> {
        let directory = || self.path_for(parent, caller, || self.inodes.path(parent));
        let view = |path: &Key| self.view.lookup(context, path);
        let found = self.find_path(directory, |path| self.renames.find_in(path, name, view))?;
        Ok(found.0)
    }

    /// Like `lookup`, if it is known without waiting.
    pub fn lookup_now(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
    ) -> Result<Known<Entry>> {
        let count = self.renames.count();
        let found = match self.find_now(context, parent, &ChildName::from(name)) {
            // It may be under another name already.
            Ok(Known::Missing) if !self.renames.are_none_since(count) => Known::Unknown,
            // The answer depends on the process that asks.
            Err(error) if error.kind() == Kind::Changed => Known::Unknown,
            found => found?,
        };
        let entry = match found {
            Known::Is(attr) => match self.entry_if_same(parent, name, attr) {
                Some(entry) => Known::Is(entry),
                None => Known::Unknown,
            },
            Known::Missing => Known::Missing,
            Known::Unknown => Known::Unknown,
        };
        if !matches!(entry, Known::Unknown) {
            self.stats.lookup_requests.add(1);
        }
        Ok(entry)
    }

    /// Returns the attributes of a name in a directory, by what is known without waiting.
    pub(super) fn find_now(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
    ) -> Result<Known<Attr>> {
        let dir = match self.inodes.dir(parent)? {
            DirLookup::Resolved(dir) => dir,
            DirLookup::Path(path, changes) => match self.view.dir_now(context, &path) {
                Some(dir) => self.inodes.keep_dir(parent, dir, changes),
                None => return Ok(Known::Unknown),
            },
        };
        Ok(self.view.child_now(context, &dir, name))
    }

    /// Gives a name its inode and counts a lookup of the kernel.
    pub(super) fn entry(&self, parent: Ino, name: &[u8], attr: Attr) -> Entry {
        let ino = self.inodes.look_up(parent, name, &attr);
        let attr = self.with_ttl(ino, attr);
        Entry { ino, attr }
    }

    /// Like `entry`; `None` if the inode of the name is open with another content.
    fn entry_if_same(&self, parent: Ino, name: &[u8], attr: Attr) -> Option<Entry> {
        let ino = self.inodes.look_up_same(parent, name, &attr)?;
        let attr = self.with_ttl(ino, attr);
        Some(Entry { ino, attr })
    }
}
