//! The overlay as a tree of files that programs change: each operation is done in the upper folder, after the
//! journal says what the store's part of it is.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::Found;
use super::Overlay;
use super::Shared;
use super::attributes;
use super::journal::Record;
use super::listing;
use super::lock;
use super::upper::failed;
use super::wrong_kind;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;
use crate::store::tree::Change;
use crate::store::tree::Maker;
use crate::store::tree::Onto;
use crate::store::tree::Room;
use crate::store::tree::Setting;
use crate::store::tree::Stat;
use crate::store::tree::Tree;
use crate::store::tree::TreeFile;

impl Tree for Overlay {
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn stat(&self, path: &Key) -> Result<Option<Stat>> {
        // What is being written is longer than what has the key.
        if let Some(live) = self.0.live(path).filter(|live| live.is_pending()) {
            return live.stat().map(Some);
        }
        Ok(self.0.find(path)?.map(|found| match found {
            Found::Lower(_, meta) => Stat { meta, posix: None },
            Found::Upper(stat) => Stat {
                meta: self.0.meta(path, &stat),
                posix: Some(attributes::posix_of(&stat)),
            },
        }))
    }

    fn create(&self, path: &Key, maker: &Maker) -> Result<Arc<dyn TreeFile>> {
        let held = self.prepare(path)?;
        let _names = lock(&self.0.names);
        self.0.check_free(path)?;
        self.0.make_parents(path)?;
        let held = held.filter(|_| lock(&self.0.state).records.held(path).is_none());
        let born = Record::Born(path.clone());
        self.0.note(held.into_iter().chain([born]).collect())?;
        match self.0.make_file(path, maker) {
            Ok(file) => {
                self.0.written(path);
                Ok(self.0.enlist_born(path, file))
            }
            Err(error) => {
                self.0.forget_new(path)?;
                Err(failed(path, error))
            }
        }
    }

    fn open(&self, path: &Key, truncate: bool) -> Result<Arc<dyn TreeFile>> {
        let live = self.0.open_live(path)?;
        if truncate {
            let size = Some(0);
            live.change(&Change {
                size,
                ..Change::default()
            })?;
        }
        Ok(live)
    }

    fn change(&self, path: &Key, change: &Change) -> Result<()> {
        match self.0.find(path)? {
            None => Err(Error::not_found(path)),
            Some(found) => match self.0.kind(path, &found) {
                EntryKind::File => {
                    let live = self.0.open_live(path)?;
                    live.change(change)?;
                    // Nobody has it open who would flush it.
                    live.flush()
                }
                _ => self.0.change_named(path, &found, change),
            },
        }
    }

    fn make_folder(&self, path: &Key, maker: &Maker) -> Result<()> {
        self.make(path, |shared| {
            let (folder, name) = shared.upper.parent(path)?;
            let mode = Mode::from_bits_truncate(maker.mode & attributes::PERMISSIONS);
            rustix::fs::mkdirat(&folder, name, mode)?;
            let change = shared.made_by(&folder, maker, true)?;
            attributes::set_named(&folder, name, &change)
        })
    }

    fn make_link(&self, path: &Key, target: &[u8], maker: &Maker) -> Result<()> {
        self.make(path, |shared| {
            let (folder, name) = shared.upper.parent(path)?;
            rustix::fs::symlinkat(target, &folder, name)?;
            let change = shared.made_by(&folder, maker, false)?;
            attributes::set_named(
                &folder,
                name,
                &Change {
                    mode: None,
                    ..change
                },
            )
        })
    }

    fn make_node(&self, path: &Key, maker: &Maker) -> Result<()> {
        let kind = FileType::from_raw_mode(maker.mode);
        match kind {
            FileType::RegularFile => return self.create(path, maker)?.flush(),
            FileType::Fifo | FileType::Socket => {}
            _ => {
                let why = "devices cannot be made on this mount";
                return Err(Error::new(Kind::NotPermitted, path, why));
            }
        }
        self.make(path, |shared| {
            let (folder, name) = shared.upper.parent(path)?;
            let mode = Mode::from_bits_truncate(maker.mode & attributes::PERMISSIONS);
            rustix::fs::mknodat(&folder, name, kind, mode, 0)?;
            let change = shared.made_by(&folder, maker, false)?;
            attributes::set_named(&folder, name, &change)
        })
    }

    fn link(&self, from: &Key, to: &Key) -> Result<()> {
        let held = self.prepare(to)?;
        if let Some(Found::Lower(..)) = self.0.find(from)? {
            // Fetched before the names are locked.
            self.0.open_live(from)?.native(true)?;
        }
        let names = lock(&self.0.names);
        self.0.check_free(to)?;
        for live in self.0.all_live(from) {
            live.settle()?;
        }
        self.0.make_parents(to)?;
        let mut records: Vec<Record> = held.into_iter().collect();
        // What is written under one name changes the other one too.
        records.extend(self.0.hold(from)?);
        self.0.note(records)?;
        let linked = (|| {
            let (old, old_name) = self.0.upper.parent(from)?;
            let (new, new_name) = self.0.upper.parent(to)?;
            rustix::fs::linkat(old, old_name, new, new_name, AtFlags::empty())
        })();
        if let Err(error) = linked {
            self.0.forget_new(to)?;
            return Err(failed(to, error));
        }
        self.0.written(to);
        drop(names);
        self.0.pass_on(std::slice::from_ref(to))
    }

    fn unlink(&self, path: &Key) -> Result<()> {
        self.0.find_lower(path)?;
        let names = lock(&self.0.names);
        match self.0.find(path)? {
            None => Err(Error::not_found(path)),
            Some(found) if self.0.kind(path, &found) == EntryKind::Directory => {
                Err(wrong_kind(path, true))
            }
            Some(_) => self.0.remove_name(path),
        }?;
        drop(names);
        self.0.pass_on(std::slice::from_ref(path))
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        self.0.find_lower(path)?;
        let names = lock(&self.0.names);
        match self.0.find(path)? {
            None => return Err(Error::not_found(path)),
            Some(found) if self.0.kind(path, &found) != EntryKind::Directory => {
                return Err(wrong_kind(path, false));
            }
            Some(_) => self.0.check_empty(path)?,
        }
        let mut records = Vec::new();
        if self.0.find_lower(path)?.is_some() {
            let below = lock(&self.0.state).records.whiteouts(path);
            records.extend(below.into_iter().map(|(key, _)| Record::Show(key)));
            let (key, of) = (path.clone(), None);
            records.push(Record::White { key, of });
        }
        self.0.note(records)?;
        if self.0.upper.stat(path)?.is_some() {
            self.0.remove_native(path, AtFlags::REMOVEDIR)?;
        }
        self.0.changed();
        drop(names);
        self.0.pass_on(std::slice::from_ref(path))
    }

    fn rename(&self, from: &Key, to: &Key, onto: Onto) -> Result<()> {
        // Asked before the names are locked.
        self.0.find_lower(from)?;
        self.0.find_lower(to)?;
        let names = lock(&self.0.names);
        self.0.rename(from, to, onto)?;
        drop(names);
        self.0.pass_on(&[to.clone(), from.clone()])
    }

    fn sync_folder(&self, path: &Key) -> Result<()> {
        self.0.sync_folder(path)
    }

    fn attribute(&self, path: &Key, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.0.native(path, false)? {
            None => Ok(None),
            Some(file) => attribute(&file, name).map_err(|error| failed(path, error)),
        }
    }

    fn attributes(&self, path: &Key) -> Result<Vec<Vec<u8>>> {
        match self.0.native(path, false)? {
            None => Ok(Vec::new()),
            Some(file) => attribute_names(&file).map_err(|error| failed(path, error)),
        }
    }

    fn set_attribute(&self, path: &Key, name: &[u8], value: &[u8], setting: Setting) -> Result<()> {
        let flags = match setting {
            Setting::Any => XattrFlags::empty(),
            Setting::Create => XattrFlags::CREATE,
            Setting::Replace => XattrFlags::REPLACE,
        };
        let file = self.0.native(path, true)?;
        let file = file.ok_or_else(|| Error::read_only(path))?;
        rustix::fs::fsetxattr(file, name, value, flags).map_err(|error| failed(path, error))?;
        self.0.changed();
        Ok(())
    }

    fn remove_attribute(&self, path: &Key, name: &[u8]) -> Result<()> {
        let file = self.0.native(path, true)?;
        let file = file.ok_or_else(|| Error::read_only(path))?;
        rustix::fs::fremovexattr(file, name).map_err(|error| failed(path, error))?;
        self.0.changed();
        Ok(())
    }

    fn room(&self) -> Result<Room> {
        let found = rustix::fs::statvfs(self.path())
            .map_err(|error| Error::os(self.path().display(), error))?;
        Ok(Room {
            block: u32::try_from(found.f_frsize).unwrap_or(4096),
            blocks: found.f_blocks,
            free: found.f_bfree,
            available: found.f_bavail,
            files: found.f_files,
            free_files: found.f_ffree,
        })
    }
}

impl Overlay {
    /// Checks that a name is free, and returns the record of what the store holds there, before anything is
    /// locked: the store may be far away.
    fn prepare(&self, path: &Key) -> Result<Option<Record>> {
        self.0.check_free(path)?;
        if let Some(parent) = path.parent() {
            self.0.find_lower(&parent)?;
        }
        self.0.hold(path)
    }

    /// Makes something that holds no bytes.
    fn make(
        &self,
        path: &Key,
        native: impl FnOnce(&Shared) -> rustix::io::Result<()>,
    ) -> Result<()> {
        self.0.check_free(path)?;
        let _names = lock(&self.0.names);
        self.0.check_free(path)?;
        self.0.make_parents(path)?;
        native(&self.0).map_err(|error| failed(path, error))?;
        self.0.changed();
        Ok(())
    }
}

impl Shared {
    /// Returns what kind of thing was found.
    pub(super) fn kind(&self, key: &Key, found: &Found) -> EntryKind {
        match found {
            Found::Upper(stat) => self.meta(key, stat).kind,
            Found::Lower(_, meta) => meta.kind,
        }
    }

    /// Says `Exists` if something has the name already, `NotFound` if its folder is not there.
    fn check_free(&self, key: &Key) -> Result<()> {
        if self.find(key)?.is_some() {
            return Err(Error::new(Kind::Exists, key, "is there already"));
        }
        let parent = key.parent().unwrap_or_default();
        match self.find(&parent)? {
            // Who asked has seen the folder, which the store cannot tell.
            None if !self.lower.lists() => Ok(()),
            None => Err(Error::not_found(&parent)),
            Some(found) if self.kind(&parent, &found) != EntryKind::Directory => {
                Err(wrong_kind(&parent, false))
            }
            Some(_) => Ok(()),
        }
    }

    /// Says `NotEmpty` for a folder that shows a name.
    pub(super) fn check_empty(self: &Arc<Self>, key: &Key) -> Result<()> {
        match listing::open(self, key)?.next()? {
            None => Ok(()),
            Some(name) => {
                let name = String::from_utf8_lossy(&name.name).into_owned();
                let why = format!("still holds {name}");
                Err(Error::new(Kind::NotEmpty, key, why))
            }
        }
    }

    fn make_file(&self, key: &Key, maker: &Maker) -> rustix::io::Result<File> {
        let (folder, name) = self.upper.parent(key)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name, flags, Mode::from(0o600))?;
        let change = self.made_by(&folder, maker, false)?;
        attributes::set_open(&fd, &change)?;
        Ok(File::from(fd))
    }

    /// Returns owner and mode of something new: in a folder with the set-group-ID bit, its group.
    fn made_by(
        &self,
        folder: &OwnedFd,
        maker: &Maker,
        is_folder: bool,
    ) -> rustix::io::Result<Change> {
        let parent = rustix::fs::fstat(folder)?;
        let mut mode = maker.mode & attributes::PERMISSIONS;
        let inherits = parent.st_mode & libc::S_ISGID != 0;
        if inherits && is_folder {
            mode |= libc::S_ISGID;
        }
        let root = rustix::process::geteuid().is_root();
        Ok(Change {
            mode: Some(mode),
            uid: root.then_some(maker.uid),
            gid: root.then_some(if inherits { parent.st_gid } else { maker.gid }),
            ..Change::default()
        })
    }

    /// Sets attributes of a folder, link, pipe or socket.
    fn change_named(&self, key: &Key, found: &Found, change: &Change) -> Result<()> {
        if change.size.is_some() {
            let is_folder = self.kind(key, found) == EntryKind::Directory;
            return Err(match is_folder {
                true => wrong_kind(key, true),
                false => Error::invalid(key, "has no length that can be set"),
            });
        }
        let _names = lock(&self.names);
        if let Found::Lower(_, meta) = found {
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
        self.changed();
        Ok(())
    }

    /// Returns the upper folder's file or folder of a key, brought there if it is about to be changed.
    fn native(self: &Arc<Self>, key: &Key, change: bool) -> Result<Option<Arc<File>>> {
        let Some(found) = self.find(key)? else {
            return Err(Error::not_found(key));
        };
        match (self.kind(key, &found), &found) {
            (EntryKind::File, _) => self.open_live(key)?.native(change),
            (EntryKind::Directory, Found::Lower(..)) if !change => Ok(None),
            (EntryKind::Directory, _) => {
                if let Found::Lower(..) = found {
                    let _names = lock(&self.names);
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

    /// Keeps the journal and the names of a folder over a loss of power.
    pub(super) fn sync_folder(&self, key: &Key) -> Result<()> {
        let journal = lock(&self.state).journal.file();
        let synced = journal.and_then(|file| file.sync_data());
        synced.map_err(|error| Error::os(self.upper.journal().display(), error))?;
        match self.upper.open_key(key, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(key, error)),
            Ok(fd) => rustix::fs::fsync(fd).map_err(|error| failed(key, error)),
        }
    }
}

/// Returns an extended attribute of a file.
pub(super) fn attribute(file: impl AsFd, name: &[u8]) -> rustix::io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; LONGEST_ATTRIBUTE];
    match rustix::fs::fgetxattr(file, name, value.as_mut_slice()) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the names of a file's extended attributes.
pub(super) fn attribute_names(file: impl AsFd) -> rustix::io::Result<Vec<Vec<u8>>> {
    let mut names = vec![0; LONGEST_ATTRIBUTE];
    let length = match rustix::fs::flistxattr(file, names.as_mut_slice()) {
        Err(Errno::NOTSUP) => 0,
        length => length?,
    };
    names.truncate(length);
    let names = names.split(|&byte| byte == 0);
    Ok(names
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect())
}

/// The most bytes that an extended attribute, and all their names, may have (`xattr(7)`).
const LONGEST_ATTRIBUTE: usize = 64 << 10;
