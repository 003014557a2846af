//! The overlay as a writable tree of files.
//!
//! Each operation is a `NameChange`: it queries the store, locks the names, writes records to the journal, and then
//! changes the upper folder. Names that zarrfs itself uses for files in a store are refused.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::{OFlags, XattrFlags};

use crate::attribute_override::AttributeOverride;
use crate::encodings::NewContent;
use crate::layer_dir::{check_length, os_error};
use crate::layered_store::{LayeredStore, Resolved};
use crate::name_change::NameChange;
use crate::open_file::{OpenFile, opener};
use crate::overlay_core::{OverlayCore, wrong_kind};
use crate::pending_object::Link;
use crate::rename::Rename;
use crate::{Overlay, attributes, derived};
use zarr_format::error::{Error, Result};
use zarrfs_store::backend::local::check_names;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{
    AttrChange, Credentials, FreeSpace, OpenMode, RenameMode, Setting, Stat, Tree, TreeFile,
};
use zarrfs_store::{EntryKind, Key};

impl Tree for Overlay {
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn stat(&self, context: &RequestContext, path: &Key) -> Result<Option<Stat>> {
        // For a file with unpublished writes, return the `stat` of the open file, because its key still has the old
        // length.
        if let Some(file) = self.0.registered(path) {
            // Check first whether the caller may wait: the open file may be locked while the store is asked.
            context.check_may_wait()?;
            if file.is_pending() {
                return file.stat(context).map(Some);
            }
        }
        let derived = if context.may_wait() {
            derived::document(&self.0, context, path)?
        } else {
            None
        };
        let (stat, overrides) = self.0.with_top(|top| top.stat(context, path))?;
        if let Some(stat) = &stat
            && derived::may_differ(&self.0, path, stat.meta.version)
        {
            context.check_may_wait()?;
        }
        if let Some(derived) = derived {
            let stat = derived.stat();
            return Ok(Some(
                overrides.map_or(stat, |overrides| overrides.applied_to(stat)),
            ));
        }
        Ok(stat.map(|stat| {
            let stat = with_id(&self.0, context, path, stat);
            overrides.map_or(stat, |overrides| overrides.applied_to(stat))
        }))
    }

    fn create(
        &self,
        context: &RequestContext,
        path: &Key,
        maker: &Credentials,
    ) -> Result<Arc<dyn TreeFile>> {
        check_new(path)?;
        self.0.encodings(context).find(path)?;
        let paths = std::slice::from_ref(path);
        let file = self
            .0
            .change_names(context, paths, |change| change.create(path, maker))?;
        Ok(file.open_as(OpenMode::Write))
    }

    fn open(
        &self,
        context: &RequestContext,
        path: &Key,
        mode: OpenMode,
    ) -> Result<Arc<dyn TreeFile>> {
        if mode != OpenMode::Read {
            self.0.encodings(context).find(path)?;
        }
        let file = opener::open(&self.0, context, path)?.open_as(mode);
        if mode == OpenMode::Truncate {
            file.change(
                context,
                &AttrChange {
                    size: Some(0),
                    ..AttrChange::default()
                },
            )?;
        }
        Ok(file)
    }

    fn change(&self, context: &RequestContext, path: &Key, change: &AttrChange) -> Result<()> {
        let found = self.0.with_top(|top| top.find(context, path))?;
        let found = found.ok_or_else(|| Error::not_found(path))?;
        if LayeredStore::kind(&found) != EntryKind::File {
            return change_special(&self.0, context, path, change);
        }
        if change.size.is_some() {
            self.0.encodings(context).find(path)?;
        }
        opener::change(&self.0, context, path, |file| {
            file.change(context, change)?;
            // Flush now: if no program has the file open, no close will publish the change.
            file.flush(context)
        })
    }

    fn make_folder(&self, context: &RequestContext, path: &Key, maker: &Credentials) -> Result<()> {
        make_special(&self.0, context, path, |change| change.mkdir(path, maker))
    }

    fn make_link(
        &self,
        context: &RequestContext,
        path: &Key,
        target: &[u8],
        maker: &Credentials,
    ) -> Result<()> {
        make_special(&self.0, context, path, |change| {
            change.symlink(path, target, maker)
        })
    }

    fn link(&self, context: &RequestContext, from: &Key, to: &Key) -> Result<()> {
        check_new(to)?;
        self.0.encodings(context).find(to)?;
        Link {
            core: &self.0,
            context,
            from,
            to,
        }
        .run()
    }

    fn unlink(&self, context: &RequestContext, path: &Key) -> Result<()> {
        self.0.encodings(context).find(path)?;
        self.0
            .remove_and_store(context, std::slice::from_ref(path), |change| {
                match change.find(path)? {
                    None => return Err(Error::not_found(path)),
                    Some(found) if LayeredStore::kind(&found) == EntryKind::Directory => {
                        return Err(wrong_kind(path, true));
                    }
                    Some(_) => {}
                }
                change.keep_folder(path)?;
                change.remove_name(path)?;
                change.record_document(path, &NewContent::Nothing)
            })
    }

    fn remove_folder(&self, context: &RequestContext, path: &Key) -> Result<()> {
        self.0
            .remove_and_store(context, std::slice::from_ref(path), |change| {
                change.keep_folder(path)?;
                change.remove_folder(path)
            })
    }

    fn rename(
        &self,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        onto: RenameMode,
    ) -> Result<()> {
        check_new(to)?;
        self.0.encodings(context).find(to)?;
        let renamed = self.0.encodings(context).content_as(from, to)?;
        let paths = [to.clone(), from.clone()];
        self.0.remove_and_store(context, &paths, |change| {
            change.keep_folder(from)?;
            Rename { change, from, to }.run(onto)?;
            if from == to {
                return Ok(());
            }
            change.record_document(from, &NewContent::Nothing)?;
            change.record_document(to, &renamed)
        })
    }

    fn sync_folder(&self, _context: &RequestContext, _path: &Key) -> Result<()> {
        self.0.sync_all()
    }

    fn attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        match xattrs(&self.0, context, path)? {
            Xattrs::None => Ok(None),
            Xattrs::Override(overrides) => Ok(overrides.xattrs.get(name).cloned()),
            Xattrs::Of(file) => {
                attributes::xattr(&file, name).map_err(|error| os_error(path, error))
            }
        }
    }

    fn attributes(&self, context: &RequestContext, path: &Key) -> Result<Vec<Vec<u8>>> {
        match xattrs(&self.0, context, path)? {
            Xattrs::None => Ok(Vec::new()),
            Xattrs::Override(overrides) => Ok(overrides.xattrs.keys().cloned().collect()),
            Xattrs::Of(file) => {
                attributes::xattr_names(&file).map_err(|error| os_error(path, error))
            }
        }
    }

    fn set_attribute(
        &self,
        context: &RequestContext,
        path: &Key,
        name: &[u8],
        value: &[u8],
        setting: Setting,
    ) -> Result<()> {
        let flags = match setting {
            Setting::Any => XattrFlags::empty(),
            Setting::Create => XattrFlags::CREATE,
            Setting::Replace => XattrFlags::REPLACE,
        };
        change_xattrs(&self.0, context, path, &|file| {
            rustix::fs::fsetxattr(file, name, value, flags).map_err(|error| os_error(path, error))
        })?;
        self.0.mark_changed(path);
        Ok(())
    }

    fn remove_attribute(&self, context: &RequestContext, path: &Key, name: &[u8]) -> Result<()> {
        change_xattrs(&self.0, context, path, &|file| {
            rustix::fs::fremovexattr(file, name).map_err(|error| os_error(path, error))
        })?;
        self.0.mark_changed(path);
        Ok(())
    }

    fn free_space(&self) -> Result<FreeSpace> {
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

/// Where the extended attributes of a key are.
enum Xattrs {
    /// The key has no extended attributes.
    None,
    /// In the journal's record, because they were set while the content was not in the layer.
    Override(Arc<AttributeOverride>),
    /// On the upper folder's file or folder.
    Of(Arc<File>),
}

/// Fails with `NotPermitted` or `NameTooLong` if a commit could not put the new name into a store.
pub(crate) fn check_new(path: &Key) -> Result<()> {
    check_names(path)?;
    check_length(path)
}

/// Returns `stat` with the file ID (inode number) of the key.
fn with_id(core: &OverlayCore, context: &RequestContext, path: &Key, stat: Stat) -> Stat {
    let file = core.registered(path);
    // Ignore the open file if another program has replaced the object that it was opened on.
    let is_same = |file: &Arc<OpenFile>| {
        let opened = file.unwritten_version();
        opened.is_none_or(|opened| stat.meta.version.may_be(opened.version.into()))
    };
    let file = file.filter(is_same);
    if let Some(file) = &file
        && let Some(posix) = stat.posix
        && file.inode().is_some_and(|inode| inode != posix.identity)
        && let Ok(own) = file.stat(context)
    {
        // The open file is another one than the file that was found, because a rename is in progress. Return the open
        // file's `stat`.
        return own;
    }
    let mut open = core.open.lock();
    let id = match (&file, stat.posix) {
        (Some(file), _) => Some(file.id()),
        (None, Some(posix)) => Some(open.ids.of_upper(path, posix.identity)),
        (None, None) => open.ids.of_stored(path, stat.meta.version),
    };
    drop(open);
    let content = id.unwrap_or(stat.content);
    Stat { content, ..stat }
}

fn change_special(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    key: &Key,
    change: &AttrChange,
) -> Result<()> {
    core.change_own(context, key, |names| {
        let found = names.find(key)?.ok_or_else(|| Error::not_found(key))?;
        let kind = LayeredStore::kind(&found);
        if change.size.is_some() {
            return Err(match kind {
                EntryKind::Directory => wrong_kind(key, true),
                _ => Error::invalid(key, "only the length of regular files can be set"),
            });
        }
        match (found, kind) {
            (Resolved::Upper(_), _) => {}
            (Resolved::Lower(..), EntryKind::Directory) => names.copy_up_folder(key)?,
            (Resolved::Lower(..), _) => return Err(Error::read_only(key)),
        }
        let set = names.top.layer.dir.parent(key);
        let set = set.and_then(|(folder, name)| attributes::set_named(&folder, name, change));
        set.map_err(|error| os_error(key, error))?;
        names.mark_changed(key);
        Ok(())
    })
}

/// Returns where the extended attributes of a key are.
fn xattrs(core: &OverlayCore, context: &RequestContext, key: &Key) -> Result<Xattrs> {
    core.with_top(|top| {
        let overrides = top.layer.attribute_override(key)?;
        let found = top
            .find(context, key)?
            .ok_or_else(|| Error::not_found(key))?;
        let is_below = matches!(found, Resolved::Lower(..));
        match LayeredStore::kind(&found) {
            EntryKind::File => {}
            EntryKind::Directory if !is_below => return open_folder(top, key).map(Xattrs::Of),
            _ => return Ok(Xattrs::None),
        }
        let open = core.registered(key);
        let overrides = match &open {
            Some(file) => file.attribute_override()?,
            None => overrides.filter(|_| is_below),
        };
        Ok(match (overrides, open.and_then(|file| file.upper_file())) {
            (Some(overrides), _) => Xattrs::Override(overrides),
            (None, Some(file)) => Xattrs::Of(file),
            (None, None) => match top.frozen_file(key)? {
                Some((file, _)) => Xattrs::Of(Arc::new(file)),
                None => Xattrs::None,
            },
        })
    })
}

/// Changes extended attributes of a key with `set`, which is called with the file or folder that has them.
///
/// Fails with `Unsupported` for symbolic links.
fn change_xattrs(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    key: &Key,
    set: &dyn Fn(&File) -> Result<()>,
) -> Result<()> {
    let found = core.with_top(|top| top.find(context, key))?;
    let found = found.ok_or_else(|| Error::not_found(key))?;
    match LayeredStore::kind(&found) {
        EntryKind::File => opener::change(core, context, key, |file| {
            file.change_attributes(context, set)
        }),
        EntryKind::Directory => core.change_own(context, key, |change| {
            change.copy_up_folder(key)?;
            set(&*open_folder(&change.top, key)?)
        }),
        _ => {
            let why = "symbolic links have no extended attributes";
            Err(Error::unsupported(key, why))
        }
    }
}

/// Calls `make` to create a folder or a symbolic link, if its name is valid and free.
fn make_special(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    path: &Key,
    make: impl Fn(&NameChange<'_>) -> rustix::io::Result<()>,
) -> Result<()> {
    check_new(path)?;
    core.change_names(context, std::slice::from_ref(path), |change| {
        change.check_free(path)?;
        change.make_parents(path)?;
        make(change).map_err(|error| os_error(path, error))?;
        change.mark_changed(path);
        Ok(())
    })
}

/// Opens a folder of the top layer, for its extended attributes.
fn open_folder(top: &LayeredStore, key: &Key) -> Result<Arc<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = top.layer.dir.open_key(key, flags);
    Ok(Arc::new(File::from(
        fd.map_err(|error| os_error(key, error))?,
    )))
}
