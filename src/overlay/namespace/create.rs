//! Making names in the upper folder, and the attributes of what has one.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Kind, Result};
use crate::overlay::journal::JournalRecord;
use crate::overlay::upper::failed;
use crate::overlay::{Overlay, Resolved, Shared, attributes, wrong_kind};
use crate::store::tree::{AttrChange, Credentials};
use crate::store::{EntryKind, Key};

impl Overlay {
    /// Checks that a name is free, and returns the record of what the store holds there, before anything is
    /// locked: the store may be far away.
    pub(super) fn prepare(&self, path: &Key) -> Result<Option<JournalRecord>> {
        self.0.check_free(path)?;
        if let Some(parent) = path.parent() {
            self.0.find_lower(&parent)?;
        }
        self.0.hold(path)
    }

    /// Makes something that holds no bytes.
    pub(super) fn make(
        &self,
        path: &Key,
        native: impl FnOnce(&Shared) -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.0.check_free(path)?;
        let _names = self.0.names.lock();
        self.0.check_free(path)?;
        self.0.make_parents(path)?;
        native(&self.0).map_err(|error| failed(path, error))?;
        self.0.changed(path);
        Ok(())
    }
}

impl Shared {
    /// Says `Exists` if something has the name already, `NotFound` if its folder is not there.
    pub(super) fn check_free(&self, key: &Key) -> Result<()> {
        if self.find(key)?.is_some() {
            return Err(Error::new(Kind::Exists, key, "is there already"));
        }
        let parent = key.parent().unwrap_or_default();
        match self.find(&parent)? {
            // Who asked has seen the folder, which the store cannot tell.
            None if !self.lower.info().lists => Ok(()),
            None => Err(Error::not_found(&parent)),
            Some(found) if self.kind(&parent, &found) != EntryKind::Directory => {
                Err(wrong_kind(&parent, false))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) fn make_file(&self, key: &Key, maker: &Credentials) -> rustix::io::Result<File> {
        let (folder, name) = self.upper.parent(key)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name, flags, Mode::from(0o600))?;
        let change = self.made_by(&folder, maker, false)?;
        attributes::set_open(&fd, &change)?;
        Ok(File::from(fd))
    }

    /// Returns owner and mode of something new: in a folder with the set-group-ID bit, its group.
    pub(super) fn made_by(
        &self,
        folder: &OwnedFd,
        maker: &Credentials,
        is_folder: bool,
    ) -> rustix::io::Result<AttrChange> {
        let parent = rustix::fs::fstat(folder)?;
        let mut mode = maker.mode & attributes::PERMISSIONS;
        let inherits = parent.st_mode & libc::S_ISGID != 0;
        if inherits && is_folder {
            mode |= libc::S_ISGID;
        }
        let root = rustix::process::geteuid().is_root();
        Ok(AttrChange {
            mode: Some(mode),
            uid: root.then_some(maker.uid),
            gid: root.then_some(if inherits { parent.st_gid } else { maker.gid }),
            ..AttrChange::default()
        })
    }

    /// Sets attributes of a folder, link, pipe or socket.
    pub(super) fn change_named(
        &self,
        key: &Key,
        found: &Resolved,
        change: &AttrChange,
    ) -> Result<()> {
        if change.size.is_some() {
            let is_folder = self.kind(key, found) == EntryKind::Directory;
            return Err(match is_folder {
                true => wrong_kind(key, true),
                false => Error::invalid(key, "has no length that can be set"),
            });
        }
        let _names = self.names.lock();
        if let Resolved::Lower(_, meta) = found {
            match meta.kind {
                EntryKind::Directory => {
                    self.make_parents(key)?;
                    self.copy_folder(key)?;
                }
                _ => return Err(Error::read_only(key)),
            }
        }
        let (folder, name) = self.upper.parent(key).map_err(|error| failed(key, error))?;
        attributes::set_named(&folder, name, change).map_err(|error| failed(key, error))?;
        self.changed(key);
        Ok(())
    }

    /// Returns the upper folder's file or folder of a key, brought there if it is about to be changed.
    pub(super) fn native(self: &Arc<Self>, key: &Key, change: bool) -> Result<Option<Arc<File>>> {
        let Some(found) = self.find(key)? else {
            return Err(Error::not_found(key));
        };
        match (self.kind(key, &found), &found) {
            (EntryKind::File, _) => self.open_live(key)?.native(change),
            (EntryKind::Directory, Resolved::Lower(..)) if !change => Ok(None),
            (EntryKind::Directory, _) => {
                if let Resolved::Lower(..) = found {
                    let _names = self.names.lock();
                    self.make_parents(key)?;
                    self.copy_folder(key)?;
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let fd = self.upper.open_key(key, flags);
                let fd = fd.map_err(|error| failed(key, error))?;
                Ok(Some(Arc::new(File::from(fd))))
            }
            (_, _) if !change => Ok(None),
            (_, _) => {
                let why = "links, pipes and sockets have no extended attributes";
                Err(Error::new(Kind::NotPermitted, key, why))
            }
        }
    }
}
