//! Opening files of the overlay, and the table of those that are open: all handles of a key share one `OpenFile`.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::OpenFile;
use super::state::ContentSource;
use crate::error::{Error, Kind, Result};
use crate::overlay::upper::os_error;
use crate::overlay::{OverlayCore, Resolved, wrong_kind};
use crate::store::{EntryKind, Key};

/// The open files by their keys.
#[derive(Default)]
pub(in crate::overlay) struct OpenFileTable(HashMap<Key, Weak<OpenFile>>);

impl OpenFileTable {
    /// Returns the open file of a key.
    pub(in crate::overlay) fn get(&self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.get(key)?.upgrade()
    }

    /// Returns the open files at and below a prefix.
    pub(in crate::overlay) fn below(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        let all = self.0.iter();
        let below = all.filter(|(key, _)| key.below(prefix).is_some());
        below.filter_map(|(_, file)| file.upgrade()).collect()
    }

    /// Enters a file under a key, in the place of any other one.
    pub(in crate::overlay) fn register(&mut self, key: &Key, file: &Arc<OpenFile>) {
        self.0.insert(key.clone(), Arc::downgrade(file));
    }

    /// Removes a file, if it is the one of this key.
    pub(in crate::overlay) fn unregister(&mut self, key: &Key, file: &OpenFile) {
        let found = self.0.get(key);
        if found.is_some_and(|found| std::ptr::eq(found.as_ptr(), file)) {
            self.0.remove(key);
        }
    }

    /// Removes the file of a key, and returns it if it is open.
    pub(in crate::overlay) fn remove(&mut self, key: &Key) -> Option<Arc<OpenFile>> {
        self.0.remove(key)?.upgrade()
    }
}

/// How often a file is opened again that is replaced while it is opened.
const MAX_OPEN_ATTEMPTS: usize = 64;

impl OverlayCore {
    /// Opens the file of a key; `NotFound` if there is none, `IsADirectory` if it is a folder.
    pub(in crate::overlay) fn open_file(self: &Arc<Self>, key: &Key) -> Result<Arc<OpenFile>> {
        for _ in 0..MAX_OPEN_ATTEMPTS {
            if let Some(file) = self.registered(key) {
                return Ok(file);
            }
            let (file, lower) = self.open_current(key)?;
            let file = Arc::new(file);
            self.restore_incomplete(key, &file);
            if let Some(other) = self.register_if_first(key, &file) {
                return Ok(other);
            }
            // A later replacement finds the file in the table; one that came before is noticed here.
            if self.is_current(key, &file, lower.as_ref())? {
                return Ok(file);
            }
            file.detach();
            self.state.lock().open_files.unregister(key, &file);
        }
        let why = "is replaced each time it is opened";
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Opens the present content of a key; also returns the store's key of it, if the store has it.
    fn open_current(self: &Arc<Self>, key: &Key) -> Result<(OpenFile, Option<Key>)> {
        let found = self.find(key)?.ok_or_else(|| Error::not_found(key))?;
        match (self.kind(key, &found), found) {
            (EntryKind::Directory, _) => Err(wrong_kind(key, true)),
            (_, Resolved::Lower(lower, meta)) => {
                let reader = self.lower.open(&lower, Some(&meta))?;
                let opened_as = Some((lower.clone(), reader.meta()?.version));
                let source = ContentSource::Lower(reader);
                Ok((OpenFile::new(self, key, source, opened_as), Some(lower)))
            }
            (EntryKind::File, Resolved::Upper(_)) => {
                let source = ContentSource::Upper(Arc::new(self.open_upper(key)?));
                Ok((OpenFile::new(self, key, source, None), None))
            }
            (_, Resolved::Upper(_)) => Err(Error::invalid(key, "is no regular file")),
        }
    }

    /// Marks a file as incomplete that was created, closed, and could not be completed.
    fn restore_incomplete(&self, key: &Key, file: &OpenFile) {
        let overlay = self.state.lock();
        if overlay.records.is_incomplete(key) {
            let failed_writes = overlay.failed_writes.get(key).cloned();
            drop(overlay);
            let mut state = file.lock();
            (state.is_incomplete, state.is_dirty) = (true, true);
            state.failed_writes = failed_writes;
        }
    }

    /// Whether an open file still is the content of its key.
    fn is_current(&self, key: &Key, file: &OpenFile, lower: Option<&Key>) -> Result<bool> {
        match (file.source(), self.upper.stat(key)?) {
            (ContentSource::Upper(file), Some(_)) => self.is_file_of(key, &file),
            (ContentSource::Lower(_), None) => Ok(self.lower_key(key).as_ref() == lower),
            _ => Ok(false),
        }
    }

    /// Whether a file of the upper folder has this key.
    pub(in crate::overlay) fn is_file_of(&self, key: &Key, file: &File) -> Result<bool> {
        let own = rustix::fs::fstat(file).map_err(|error| os_error(key, error))?;
        let found = self.upper.stat(key)?;
        Ok(found.is_some_and(|stat| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino)))
    }

    fn open_upper(&self, key: &Key) -> Result<File> {
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.upper.open_key(key, OFlags::RDWR | safe) {
            // A file without permission to write that belongs to another user.
            Err(Errno::ACCESS) => self.upper.open_key(key, OFlags::RDONLY | safe),
            opened => opened,
        };
        Ok(File::from(opened.map_err(|error| os_error(key, error))?))
    }

    /// Enters a file under its key, unless there is another one, which is returned.
    fn register_if_first(&self, key: &Key, file: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let mut state = self.state.lock();
        let other = state.open_files.get(key);
        if other.is_none() {
            state.open_files.register(key, file);
        }
        other
    }

    /// Enters a file that was just created under a key.
    pub(in crate::overlay) fn register_created(
        self: &Arc<Self>,
        key: &Key,
        file: File,
    ) -> Arc<OpenFile> {
        let file = OpenFile::new(self, key, ContentSource::Upper(Arc::new(file)), None);
        let mut state = file.lock();
        (state.is_incomplete, state.is_dirty) = (true, true);
        drop(state);
        let file = Arc::new(file);
        self.state.lock().open_files.register(key, &file);
        file
    }
}
