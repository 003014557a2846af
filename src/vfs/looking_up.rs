//! Lookups of names, and their inodes.
//!
//! Each reply counts as a lookup that the kernel forgets later. If the inode of a name is open with another content,
//! the name is looked up again before it gets another inode.

use std::sync::Arc;

use crate::vfs::inode::DirLookup;
use crate::vfs::{Caller, Entry, Ino, Vfs};
use crate::view::{Attr, ChildName, ViewDir};
use zarr_format::error::{Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::{RequestContext, is_answer};

impl Vfs {
    /// Looks up a name; counts the lookup if the name exists.
    pub fn lookup(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &[u8],
        caller: Caller,
    ) -> Result<Option<Entry>> {
        let name = ChildName::from(name);
        let entry = self.look_up(context, parent, &name, caller);
        if is_answer(&entry) {
            self.stats.lookup_requests.add(1);
        }
        entry
    }

    fn look_up(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
        caller: Caller,
    ) -> Result<Option<Entry>> {
        let Some(attr) = self.find(context, parent, name, caller)? else {
            return Ok(None);
        };
        if let Some(entry) = self.entry_if_same(parent, name.bytes, attr) {
            return Ok(Some(entry));
        }
        // A file opened after the first query may have the same content.
        let attr = self.find(context, parent, name, caller)?;
        Ok(attr.map(|attr| self.entry(parent, name.bytes, attr)))
    }

    /// Returns the attributes of a name in a directory; handles concurrent renames.
    fn find(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
        caller: Caller,
    ) -> Result<Option<Attr>> {
        let count = self.renames.count();
        match self.find_child(context, parent, name) {
            // It may have been renamed in the meantime.
            Ok(None) if !self.renames.are_none_since(count) => {}
            // The answer depends on the calling process.
            Err(error) if error.kind() == Kind::Changed => {}
            found => return found,
        }
        let directory = || self.path_for(parent, caller, || self.inodes.path(parent));
        let view = |path: &Key| self.view.lookup(context, path);
        let found = self.find_path(directory, |path| {
            self.renames.find_in(path, name.bytes, view)
        })?;
        Ok(found.0)
    }

    /// Returns the attributes of a name in a directory of the inode table.
    pub(super) fn find_child(
        &self,
        context: &RequestContext,
        parent: Ino,
        name: &ChildName<'_>,
    ) -> Result<Option<Attr>> {
        let dir = match self.inodes.dir(parent)? {
            DirLookup::Resolved(dir) => dir,
            DirLookup::Path(path, changes) => {
                // Its children may be in memory even if it is not.
                match self.view.dir(&context.without_waiting(), &path) {
                    Ok(dir) => self.inodes.keep_dir(parent, dir, changes),
                    Err(_) => Arc::new(ViewDir::Path(path)),
                }
            }
        };
        self.view.child(context, &dir, name)
    }

    /// Assigns an inode to a name and counts a lookup.
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
