//! The overlay as a tree of files that programs change.
//!
//! Each operation first asks the store, then locks the names, writes its records to the journal, and is done in the
//! upper folder. `create`, `remove` and `rename` have the steps; the operations on attributes are here.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{AtFlags, OFlags, Stat as Native, XattrFlags};
use rustix::io::Errno;

use super::journal::JournalRecord;
use super::open_file::OpenFile;
use super::upper::os_error;
use super::{Overlay, OverlayCore, Resolved, attributes, wrong_kind};
use crate::error::{Error, Kind, Result};
use crate::store::tree::{
    AttrChange, Credentials, FreeSpace, RenameMode, Setting, Stat, Tree, TreeFile,
};
use crate::store::{EntryKind, Key};

mod create;
mod remove;
pub(super) mod rename;

impl Tree for Overlay {
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn stat(&self, path: &Key) -> Result<Option<Stat>> {
        for _ in 0..MAX_STATS {
            let open = self.0.registered(path);
            let stat = self.0.stat_of_open(path, open.as_deref())?;
            let now = self.0.registered(path);
            // Else the name got another file meanwhile.
            if open.as_ref().map(Arc::as_ptr) == now.as_ref().map(Arc::as_ptr) {
                return Ok(stat);
            }
        }
        self.0.stat_of_open(path, None)
    }

    fn stat_now(&self, path: &Key) -> Option<Stat> {
        // The lock of an open file may be held during a request to the store.
        if self.0.registered(path).is_some() {
            return None;
        }
        let stat = self.0.upper.stat(path).ok()??;
        Some(self.0.upper_stat(path, &stat))
    }

    fn create(&self, path: &Key, maker: &Credentials) -> Result<Arc<dyn TreeFile>> {
        let base = self.0.base_of_free_name(path)?;
        let _names = self.0.names.lock();
        Ok(self.0.create(path, base, maker)?)
    }

    fn open(&self, path: &Key, truncate: bool) -> Result<Arc<dyn TreeFile>> {
        let file = self.0.open_file(path)?;
        if truncate {
            file.change(&AttrChange {
                size: Some(0),
                ..AttrChange::default()
            })?;
        }
        Ok(file)
    }

    fn change(&self, path: &Key, change: &AttrChange) -> Result<()> {
        let found = self.0.find(path)?;
        let found = found.ok_or_else(|| Error::not_found(path))?;
        if self.0.kind(path, &found) != EntryKind::File {
            return self.0.change_special(path, &found, change);
        }
        let file = self.0.open_file(path)?;
        file.change(change)?;
        // There may be no open handle whose close would flush it.
        file.flush()
    }

    fn make_folder(&self, path: &Key, maker: &Credentials) -> Result<()> {
        self.0.make_special(path, |core| core.mkdir(path, maker))
    }

    fn make_link(&self, path: &Key, target: &[u8], maker: &Credentials) -> Result<()> {
        self.0
            .make_special(path, |core| core.symlink(path, target, maker))
    }

    fn make_node(&self, path: &Key, maker: &Credentials) -> Result<()> {
        if create::is_regular(maker) {
            return self.create(path, maker)?.flush();
        }
        create::check_node_kind(path, maker)?;
        self.0.make_special(path, |core| core.mknod(path, maker))
    }

    fn link(&self, from: &Key, to: &Key) -> Result<()> {
        let base = self.0.base_of_free_name(to)?;
        if let Some(Resolved::Lower(..)) = self.0.find(from)? {
            self.0.open_file(from)?.upper_file_for_change()?;
        }
        let names = self.0.names.lock();
        self.0.link(from, to, base)?;
        drop(names);
        self.0.write_through(std::slice::from_ref(to))
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        self.0.find_lower(path)?;
        let names = self.0.names.lock();
        match self.0.find(path)? {
            None => return Err(Error::not_found(path)),
            Some(found) if self.0.kind(path, &found) == EntryKind::Directory => {
                return Err(wrong_kind(path, true));
            }
            Some(_) => self.0.remove_name(path)?,
        }
        self.0.keep_folder(path)?;
        drop(names);
        self.0.write_through_removal(std::slice::from_ref(path))
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        self.0.find_lower(path)?;
        let names = self.0.names.lock();
        self.0.remove_folder(path)?;
        self.0.keep_folder(path)?;
        drop(names);
        self.0.write_through_removal(std::slice::from_ref(path))
    }

    fn rename(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        self.0.find_lower(from)?;
        self.0.find_lower(to)?;
        let names = self.0.names.lock();
        self.0.rename(from, to, onto)?;
        self.0.keep_folder(from)?;
        drop(names);
        self.0.write_through_removal(&[to.clone(), from.clone()])
    }

    fn sync_folder(&self, path: &Key) -> Result<()> {
        self.0.sync_folder(path)
    }

    fn attribute(&self, path: &Key, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.0.file_of_xattrs(path)? {
            None => Ok(None),
            Some(file) => attributes::xattr(&file, name).map_err(|error| os_error(path, error)),
        }
    }

    fn attributes(&self, path: &Key) -> Result<Vec<Vec<u8>>> {
        match self.0.file_of_xattrs(path)? {
            None => Ok(Vec::new()),
            Some(file) => attributes::xattr_names(&file).map_err(|error| os_error(path, error)),
        }
    }

    fn set_attribute(&self, path: &Key, name: &[u8], value: &[u8], setting: Setting) -> Result<()> {
        let flags = match setting {
            Setting::Any => XattrFlags::empty(),
            Setting::Create => XattrFlags::CREATE,
            Setting::Replace => XattrFlags::REPLACE,
        };
        let file = self.0.file_for_xattr_change(path)?;
        rustix::fs::fsetxattr(file, name, value, flags).map_err(|error| os_error(path, error))?;
        self.0.note_change(path);
        Ok(())
    }

    fn remove_attribute(&self, path: &Key, name: &[u8]) -> Result<()> {
        let file = self.0.file_for_xattr_change(path)?;
        rustix::fs::fremovexattr(file, name).map_err(|error| os_error(path, error))?;
        self.0.note_change(path);
        Ok(())
    }

    fn room(&self) -> Result<FreeSpace> {
        let found = rustix::fs::statvfs(self.path())
            .map_err(|error| Error::os(self.path().display(), error))?;
        Ok(FreeSpace {
            block: u32::try_from(found.f_frsize).unwrap_or(4096),
            blocks: found.f_blocks,
            free: found.f_bfree,
            available: found.f_bavail,
            files: found.f_files,
            free_files: found.f_ffree,
        })
    }
}

/// How often a name is looked up again that gets another file each time.
const MAX_STATS: usize = 8;

impl OverlayCore {
    /// Returns what a path is; `open` is its open file, if there is one.
    fn stat_of_open(&self, path: &Key, open: Option<&OpenFile>) -> Result<Option<Stat>> {
        // A file that is being written shows its new length, though its key has the old content.
        if let Some(file) = open.filter(|file| file.is_pending()) {
            return file.stat().map(Some);
        }
        let found = self.find(path)?;
        if let (Some(file), Some(Resolved::Upper(stat))) = (open, &found)
            && !file.is_at(stat)?
        {
            // Another file is being renamed to this path.
            return file.stat().map(Some);
        }
        let stat = found.map(|found| match found {
            Resolved::Lower(_, meta) => Stat {
                meta,
                posix: None,
                content: meta.version.0,
            },
            Resolved::Upper(stat) => self.upper_stat(path, &stat),
        });
        Ok(stat.map(|stat| Stat {
            content: open.map_or(stat.content, OpenFile::content),
            ..stat
        }))
    }

    fn upper_stat(&self, path: &Key, stat: &Native) -> Stat {
        Stat {
            meta: self.meta(path, stat),
            posix: Some(attributes::posix_of(stat)),
            content: stat.st_ino,
        }
    }

    /// Sets attributes of a folder, link, pipe or socket.
    fn change_special(&self, key: &Key, found: &Resolved, change: &AttrChange) -> Result<()> {
        if change.size.is_some() {
            return Err(match self.kind(key, found) {
                EntryKind::Directory => wrong_kind(key, true),
                _ => Error::invalid(key, "has no length that can be set"),
            });
        }
        let _names = self.names.lock();
        if let Resolved::Lower(_, meta) = found {
            match meta.kind {
                EntryKind::Directory => self.copy_up_folder(key)?,
                _ => return Err(Error::read_only(key)),
            }
        }
        let (folder, name) = self
            .upper
            .parent(key)
            .map_err(|error| os_error(key, error))?;
        attributes::set_named(&folder, name, change).map_err(|error| os_error(key, error))?;
        self.note_change(key);
        Ok(())
    }

    /// Returns the upper folder's file or folder of a key; `None` where nothing can have extended attributes.
    fn file_of_xattrs(self: &Arc<Self>, key: &Key) -> Result<Option<Arc<File>>> {
        let found = self.find(key)?.ok_or_else(|| Error::not_found(key))?;
        match (self.kind(key, &found), found) {
            (EntryKind::File, _) => Ok(self.open_file(key)?.upper_file()),
            (EntryKind::Directory, Resolved::Upper(_)) => self.open_upper_folder(key).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the upper folder's file or folder of a key, copied up if only the store has it.
    ///
    /// `NotPermitted` for links, pipes and sockets.
    fn file_for_xattr_change(self: &Arc<Self>, key: &Key) -> Result<Arc<File>> {
        let found = self.find(key)?.ok_or_else(|| Error::not_found(key))?;
        match (self.kind(key, &found), found) {
            (EntryKind::File, _) => {
                let file = self.open_file(key)?.upper_file_for_change()?;
                file.ok_or_else(|| Error::read_only(key))
            }
            (EntryKind::Directory, found) => {
                if let Resolved::Lower(..) = found {
                    let _names = self.names.lock();
                    self.copy_up_folder(key)?;
                }
                self.open_upper_folder(key)
            }
            _ => {
                let why = "links, pipes and sockets have no extended attributes";
                Err(Error::new(Kind::NotPermitted, key, why))
            }
        }
    }

    fn open_upper_folder(&self, key: &Key) -> Result<Arc<File>> {
        let fd = self.upper.open_key(key, OFlags::RDONLY | OFlags::DIRECTORY);
        let fd = fd.map_err(|error| os_error(key, error))?;
        Ok(Arc::new(File::from(fd)))
    }

    /// Gives a file one more name. The names must be locked.
    fn link(&self, from: &Key, to: &Key, base: Option<JournalRecord>) -> Result<()> {
        self.check_free(to)?;
        for file in self.registered_below(from) {
            file.publish_if_complete()?;
        }
        self.check_complete(from)?;
        self.make_parents(to)?;
        // A write under one name changes the content of the other one too.
        let bases = [base, self.base_record(from)?];
        self.record(bases.into_iter().flatten().collect())?;
        let linked = self.upper.parent(from).and_then(|(old, old_name)| {
            let (new, new_name) = self.upper.parent(to)?;
            rustix::fs::linkat(old, old_name, new, new_name, AtFlags::empty())
        });
        if let Err(error) = linked {
            self.forget_created(to)?;
            return Err(os_error(to, error));
        }
        self.note_write(to);
        Ok(())
    }

    /// Fails like the write that failed if a file at a key or below is incomplete for that reason.
    fn check_complete(&self, key: &Key) -> Result<()> {
        for file in self.registered_below(key) {
            file.check_complete()?;
        }
        match self.state.lock().failed_writes.error_below(key) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Keeps the journal and the names of a folder through a loss of power.
    pub(super) fn sync_folder(&self, key: &Key) -> Result<()> {
        let journal = self.state.lock().journal.file();
        let synced = journal.and_then(|file| file.sync_data());
        synced.map_err(|error| Error::os(self.upper.journal().display(), error))?;
        match self.upper.open_key(key, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(os_error(key, error)),
            Ok(fd) => rustix::fs::fsync(fd).map_err(|error| os_error(key, error)),
        }
    }
}
