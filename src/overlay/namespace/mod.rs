//! The overlay as a tree of files that programs change: each operation is done in the upper folder, after the
//! journal says what the store's part of it is.

use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat as Native, XattrFlags};
use rustix::io::Errno;

use super::journal::JournalRecord;
use super::upper::failed;
use super::{Overlay, Resolved, Shared, attributes, listing, wrong_kind};
use crate::error::{Error, Kind, Result};
use crate::store::tree::{
    AttrChange, Credentials, FreeSpace, RenameMode, Setting, Stat, Tree, TreeFile,
};
use crate::store::{EntryKind, Key};

mod create;
pub(crate) mod rename;

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
            Resolved::Lower(_, meta) => Stat { meta, posix: None },
            Resolved::Upper(stat) => self.0.upper_stat(path, &stat),
        }))
    }

    fn stat_now(&self, path: &Key) -> Option<Stat> {
        // Who writes it may be waiting for the store.
        if self.0.live(path).is_some() {
            return None;
        }
        let stat = self.0.upper.stat(path).ok()??;
        Some(self.0.upper_stat(path, &stat))
    }

    fn create(&self, path: &Key, maker: &Credentials) -> Result<Arc<dyn TreeFile>> {
        let held = self.prepare(path)?;
        let _names = self.0.names.lock();
        self.0.check_free(path)?;
        self.0.make_parents(path)?;
        let held = held.filter(|_| self.0.state.lock().records.held(path).is_none());
        let born = JournalRecord::Born(path.clone());
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
            live.change(&AttrChange {
                size,
                ..AttrChange::default()
            })?;
        }
        Ok(live)
    }

    fn change(&self, path: &Key, change: &AttrChange) -> Result<()> {
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

    fn make_folder(&self, path: &Key, maker: &Credentials) -> Result<()> {
        self.make(path, |shared| {
            let (folder, name) = shared.upper.parent(path)?;
            let mode = Mode::from_bits_truncate(maker.mode & attributes::PERMISSIONS);
            rustix::fs::mkdirat(&folder, name, mode)?;
            let change = shared.made_by(&folder, maker, true)?;
            attributes::set_named(&folder, name, &change)
        })
    }

    fn make_link(&self, path: &Key, target: &[u8], maker: &Credentials) -> Result<()> {
        self.make(path, |shared| {
            let (folder, name) = shared.upper.parent(path)?;
            rustix::fs::symlinkat(target, &folder, name)?;
            let change = shared.made_by(&folder, maker, false)?;
            attributes::set_named(
                &folder,
                name,
                &AttrChange {
                    mode: None,
                    ..change
                },
            )
        })
    }

    fn make_node(&self, path: &Key, maker: &Credentials) -> Result<()> {
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
        if let Some(Resolved::Lower(..)) = self.0.find(from)? {
            // Fetched before the names are locked.
            self.0.open_live(from)?.native(true)?;
        }
        let names = self.0.names.lock();
        self.0.check_free(to)?;
        for live in self.0.all_live(from) {
            live.settle()?;
        }
        self.0.check_whole(from)?;
        self.0.make_parents(to)?;
        let mut records: Vec<JournalRecord> = held.into_iter().collect();
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
        let names = self.0.names.lock();
        match self.0.find(path)? {
            None => Err(Error::not_found(path)),
            Some(found) if self.0.kind(path, &found) == EntryKind::Directory => {
                Err(wrong_kind(path, true))
            }
            Some(_) => self.0.remove_name(path),
        }?;
        self.0.keep_folder(path)?;
        drop(names);
        self.0.pass_on_removed(std::slice::from_ref(path))
    }

    fn remove_folder(&self, path: &Key) -> Result<()> {
        self.0.find_lower(path)?;
        let names = self.0.names.lock();
        match self.0.find(path)? {
            None => return Err(Error::not_found(path)),
            Some(found) if self.0.kind(path, &found) != EntryKind::Directory => {
                return Err(wrong_kind(path, false));
            }
            Some(_) => self.0.check_empty(path)?,
        }
        let mut records = Vec::new();
        if self.0.find_lower(path)?.is_some() {
            let below = self.0.state.lock().records.whiteouts(path);
            records.extend(below.into_iter().map(|(key, _)| JournalRecord::Show(key)));
            let (key, of) = (path.clone(), None);
            records.push(JournalRecord::White { key, of });
        }
        self.0.note(records)?;
        if self.0.upper.stat(path)?.is_some() {
            self.0.remove_native(path, AtFlags::REMOVEDIR)?;
        }
        self.0.keep_folder(path)?;
        self.0.tree_changed(path);
        drop(names);
        self.0.pass_on_removed(std::slice::from_ref(path))
    }

    fn rename(&self, from: &Key, to: &Key, onto: RenameMode) -> Result<()> {
        // Asked before the names are locked.
        self.0.find_lower(from)?;
        self.0.find_lower(to)?;
        let names = self.0.names.lock();
        self.0.rename(from, to, onto)?;
        self.0.keep_folder(from)?;
        drop(names);
        self.0.pass_on_removed(&[to.clone(), from.clone()])
    }

    fn sync_folder(&self, path: &Key) -> Result<()> {
        self.0.sync_folder(path)
    }

    fn attribute(&self, path: &Key, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.0.native(path, false)? {
            None => Ok(None),
            Some(file) => attributes::attribute(&file, name).map_err(|error| failed(path, error)),
        }
    }

    fn attributes(&self, path: &Key) -> Result<Vec<Vec<u8>>> {
        match self.0.native(path, false)? {
            None => Ok(Vec::new()),
            Some(file) => attributes::attribute_names(&file).map_err(|error| failed(path, error)),
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
        self.0.changed(path);
        Ok(())
    }

    fn remove_attribute(&self, path: &Key, name: &[u8]) -> Result<()> {
        let file = self.0.native(path, true)?;
        let file = file.ok_or_else(|| Error::read_only(path))?;
        rustix::fs::fremovexattr(file, name).map_err(|error| failed(path, error))?;
        self.0.changed(path);
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

impl Shared {
    fn upper_stat(&self, path: &Key, stat: &Native) -> Stat {
        Stat {
            meta: self.meta(path, stat),
            posix: Some(attributes::posix_of(stat)),
        }
    }

    /// Returns what kind of thing was found.
    pub(super) fn kind(&self, key: &Key, found: &Resolved) -> EntryKind {
        match found {
            Resolved::Upper(stat) => self.meta(key, stat).kind,
            Resolved::Lower(_, meta) => meta.kind,
        }
    }

    /// Says `NotEmpty` for a folder that shows a name.
    pub(super) fn check_empty(self: &Arc<Self>, key: &Key) -> Result<()> {
        let mut names = listing::open(self, key)?;
        while let Some(name) = names.next()? {
            if self.holds(&key.child(&name.name)?)? {
                let name = String::from_utf8_lossy(&name.name).into_owned();
                let why = format!("still holds {name}");
                return Err(Error::new(Kind::NotEmpty, key, why));
            }
        }
        Ok(())
    }

    /// Whether something is there that a listing shows. Some buckets list folders for a while after their last key
    /// was erased, which only a write-through does before the folder is removed.
    fn holds(self: &Arc<Self>, key: &Key) -> Result<bool> {
        let may_linger = self.config.through && self.lower.info().folder.is_none();
        match self.find(key)? {
            Some(Resolved::Lower(_, meta)) if may_linger && meta.kind == EntryKind::Directory => {
                match listing::open(self, key) {
                    Err(error) if error.kind() == Kind::NotFound => Ok(false),
                    names => Ok(names?.next()?.is_some()),
                }
            }
            found => Ok(found.is_some()),
        }
    }

    /// Keeps the journal and the names of a folder over a loss of power.
    pub(super) fn sync_folder(&self, key: &Key) -> Result<()> {
        let journal = self.state.lock().journal.file();
        let synced = journal.and_then(|file| file.sync_data());
        synced.map_err(|error| Error::os(self.upper.journal().display(), error))?;
        match self.upper.open_key(key, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(key, error)),
            Ok(fd) => rustix::fs::fsync(fd).map_err(|error| failed(key, error)),
        }
    }
}
