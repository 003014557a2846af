//! Creates files, folders and symbolic links in the upper folder.
//!
//! Names that zarrfs itself uses for files in a store are refused.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

use super::check_new;
use crate::journal_line::JournalRecord;
use crate::keys_dir::os_error;
use crate::layered_store::LayeredStore;
use crate::name_change::NameChange;
use crate::open_file::OpenFile;
use crate::{OverlayCore, attributes, content, wrong_kind};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::file_limits::Permit;
use zarrfs_store::tree::{AttrChange, Credentials};
use zarrfs_store::{EntryKind, Key};

impl OverlayCore {
    /// Creates a folder or a symbolic link with `make`.
    pub(super) fn make_special(
        self: &Arc<Self>,
        context: &RequestContext,
        path: &Key,
        make: impl Fn(&NameChange<'_>) -> rustix::io::Result<()>,
    ) -> Result<()> {
        check_new(path)?;
        self.change_names(context, std::slice::from_ref(path), |change| {
            change.check_free(path)?;
            change.make_parents(path)?;
            make(change).map_err(|error| os_error(path, error))?;
            change.note_change(path);
            Ok(())
        })
    }
}

impl NameChange<'_> {
    /// Creates a file and opens it.
    pub(super) fn create(&self, path: &Key, maker: &Credentials) -> Result<Arc<OpenFile>> {
        self.check_free(path)?;
        let permit = Permit::take().map_err(|error| error.about(path))?;
        let base = match self.top.layer.base(path) {
            None => self.base_record(path, content::MAX_REPLACED)?,
            Some(_) => None,
        };
        self.make_parents(path)?;
        let created = JournalRecord::Created(path.clone());
        let shape = self.top.layer.reshape();
        // Another program may have removed a file that had attributes.
        let mut records = self.top.layer.dropped_attributes(path);
        records.extend(base.into_iter().chain([created]));
        self.record(records)?;
        match self.create_in_upper(path, maker) {
            Ok((file, inode)) => {
                self.note_write(path);
                Ok(self.register_created(path, file, inode, permit))
            }
            Err(error) => {
                drop(shape);
                self.forget_created(path)?;
                Err(os_error(path, error))
            }
        }
    }

    /// Fails with `Exists` if the name is in use, `NotFound` if its folder is missing.
    pub(super) fn check_free(&self, key: &Key) -> Result<()> {
        // Evaluate both, so that missing answers are requested together.
        let (found, above) = (self.find(key), self.check_folder_of(key));
        if found?.is_some() {
            return Err(Error::new(Kind::Exists, key, "is there already"));
        }
        above
    }

    /// Fails with `NotFound` if the folder of a name is missing.
    pub(super) fn check_folder_of(&self, key: &Key) -> Result<()> {
        let parent = key.parent().unwrap_or_default();
        match self.find(&parent)? {
            // A store that cannot list does not know its folders, but the kernel has looked this one up.
            None if !self.store.info().lists => Ok(()),
            None => Err(Error::not_found(&parent)),
            Some(found) if LayeredStore::kind(&found) != EntryKind::Directory => {
                Err(wrong_kind(&parent, false))
            }
            Some(_) => Ok(()),
        }
    }

    /// Creates a file; returns it and its inode.
    fn create_in_upper(&self, key: &Key, maker: &Credentials) -> rustix::io::Result<(File, u64)> {
        let (folder, name) = self.top.layer.keys.parent(key)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name, flags, Mode::from(0o600))?;
        let change = attributes_of_new(maker);
        attributes::set_open(&fd, &change)?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok((File::from(fd), inode))
    }

    /// Creates a folder in the upper folder.
    pub(super) fn mkdir(&self, key: &Key, maker: &Credentials) -> rustix::io::Result<()> {
        let (folder, name) = self.top.layer.keys.parent(key)?;
        rustix::fs::mkdirat(&folder, name, permissions(maker))?;
        let change = attributes_of_new(maker);
        attributes::set_named(&folder, name, &change)
    }

    /// Creates a symbolic link in the upper folder.
    pub(super) fn symlink(
        &self,
        key: &Key,
        target: &[u8],
        maker: &Credentials,
    ) -> rustix::io::Result<()> {
        let (folder, name) = self.top.layer.keys.parent(key)?;
        rustix::fs::symlinkat(target, &folder, name)?;
        let change = AttrChange {
            mode: None,
            ..attributes_of_new(maker)
        };
        attributes::set_named(&folder, name, &change)
    }
}

fn permissions(maker: &Credentials) -> Mode {
    Mode::from_bits_truncate(maker.mode & attributes::PERMISSIONS)
}

/// Returns owner and mode of a new file, folder or link.
fn attributes_of_new(maker: &Credentials) -> AttrChange {
    let is_root = rustix::process::geteuid().is_root();
    AttrChange {
        mode: Some(maker.mode & attributes::PERMISSIONS),
        uid: is_root.then_some(maker.uid),
        gid: is_root.then_some(maker.gid),
        ..AttrChange::default()
    }
}
