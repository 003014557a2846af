//! A file that is open: the same content for all who have it open, whatever happens to its name.
//!
//! What is written first goes into a pending file, a copy of what was there, and gets its key in one step when it
//! is flushed: until then a cut leaves the old content. A file that was just made lies at its key at once, marked
//! as not whole. Files with several names, and very large ones, are changed in place. Reading and writing is
//! `handle`'s.

use parking_lot::{Mutex, MutexGuard};
use std::fs::File;
use std::sync::Arc;

use super::journal::JournalRecord;
use super::upper::failed;
use super::{Shared, attributes, content};
use crate::error::{Error, Result};
use crate::store::{Key, Reader, Version};
use failed_writes::FailedWrites;

pub(crate) mod failed_writes;
mod io;
mod table;

/// A file of the overlay that is open.
pub(super) struct OpenFile {
    pub(super) shared: Arc<Shared>,
    pub(super) body: Mutex<FileState>,
}

pub(super) struct FileState {
    /// Nothing once the file has no name any more.
    pub(super) key: Option<Key>,
    pub(super) source: ContentSource,
    /// The file's name in `pending`, if its content is not under its key yet.
    pub(super) pending: Option<String>,
    /// It was made and is not marked as whole.
    pub(super) is_born: bool,
    /// Something was written since the last flush.
    pub(super) is_dirty: bool,
    /// The store did not take it when it should have.
    pub(super) is_unsent: bool,
    /// What could not be written of it.
    pub(super) torn: Option<FailedWrites>,
    /// Which key of the store it showed when it was opened, and what the store held there.
    held: Option<(Key, Version)>,
}

#[derive(Clone)]
pub(super) enum ContentSource {
    Lower(Arc<dyn Reader>),
    Upper(Arc<File>),
}

/// Files that take more than this are changed in place, in bytes on disk.
const MOST_COPIED: u64 = 256 << 20;

impl OpenFile {
    pub(super) fn new(
        shared: &Arc<Shared>,
        key: &Key,
        source: ContentSource,
        held: Option<(Key, Version)>,
    ) -> OpenFile {
        OpenFile {
            shared: shared.clone(),
            body: Mutex::new(FileState {
                key: Some(key.clone()),
                source,
                pending: None,
                is_born: false,
                is_dirty: false,
                is_unsent: false,
                torn: None,
                held,
            }),
        }
    }

    pub(super) fn body(&self) -> MutexGuard<'_, FileState> {
        self.body.lock()
    }

    /// Whether its content is not that of its key yet.
    pub(super) fn is_pending(&self) -> bool {
        self.body().pending.is_some()
    }

    /// Returns the key; nothing once the file has no name.
    pub(super) fn key(&self) -> Option<Key> {
        self.body().key.clone()
    }

    /// Takes the name away: what is open stays, and goes when it is closed.
    pub(super) fn lose_name(&self) {
        self.body().key = None;
    }

    /// Returns the version that a key of the store had when this file showed it, if it did.
    pub(super) fn shown_version(&self, from: &Key) -> Option<Version> {
        let body = self.body();
        let held = body.held.as_ref();
        held.filter(|(key, _)| key == from)
            .map(|(_, version)| *version)
    }

    /// Says that the store has its content now, under this version.
    pub(super) fn was_sent(&self, version: Option<Version>) {
        let mut body = self.body();
        body.held = body.key.clone().zip(version);
    }

    /// Gives it another key.
    pub(super) fn set_key(&self, key: Key) {
        self.body().key = Some(key);
    }

    /// Makes a file that can be written: a copy of what is there, or an empty one.
    pub(super) fn begin(&self, body: &mut FileState, empty: bool) -> Result<()> {
        if body.pending.is_some() || body.is_born {
            return Ok(());
        }
        if let ContentSource::Upper(file) = &body.source {
            let stat = rustix::fs::fstat(file).map_err(Error::from)?;
            let size = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
            // One that has a key and no name was committed and is in the upper folder no more.
            let is_there = stat.st_nlink > 0;
            if stat.st_nlink > 1 || body.key.is_none() || (is_there && !empty && size > MOST_COPIED)
            {
                return Ok(());
            }
        }
        let key = body.key.clone().unwrap_or_default();
        let (name, file) = self
            .shared
            .upper
            .begin(&key)
            .map_err(|error| failed(&key, error))?;
        if let Err(error) = self.fill(body, &file, empty) {
            self.shared.upper.drop_pending(&name);
            return Err(error.about(&key));
        }
        body.source = ContentSource::Upper(Arc::new(file));
        body.pending = Some(name);
        Ok(())
    }

    /// Gives a pending file what the one before it has: its content, if asked to, and its attributes.
    fn fill(&self, body: &FileState, to: &File, empty: bool) -> Result<()> {
        match &body.source {
            ContentSource::Upper(from) => {
                if !empty {
                    content::copy_data(from, to).map_err(|error| Error::os("", error))?;
                }
                content::copy_attributes(from, to).map_err(Error::from)
            }
            ContentSource::Lower(reader) => {
                if !empty {
                    content::copy_stored(&**reader, to)?;
                }
                let meta = reader.meta()?;
                let change = self.shared.first_change(0o644, Some(meta.modified));
                attributes::set_open(to, &change).map_err(Error::from)
            }
        }
    }

    /// Gives a pending file its key. The names must be locked.
    pub(super) fn publish(&self, body: &mut FileState) -> Result<()> {
        let Some(key) = body.key.clone() else {
            return Ok(());
        };
        if let Some(torn) = body.missing() {
            return Err(torn.error(&key));
        }
        let mut records = Vec::new();
        if body.is_dirty || body.pending.is_some() {
            records.extend(self.held(&key, body)?);
        }
        if body.is_born {
            records.push(JournalRecord::Whole(key.clone()));
        }
        self.shared.make_parents(&key)?;
        self.shared.note(records)?;
        body.is_born = false;
        if let Some(name) = &body.pending {
            let upper = &self.shared.upper;
            upper
                .publish(name, &key)
                .map_err(|error| failed(&key, error))?;
            body.pending = None;
            self.shared.written(&key);
        }
        body.is_dirty = false;
        Ok(())
    }

    /// Returns the records of what the store held, as far as something new is to be said.
    pub(super) fn held(&self, key: &Key, body: &FileState) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        let mut same = !body.is_dirty;
        let mut shown = None;
        match &body.held {
            Some((from, version)) if from == key => shown = Some(*version),
            // What was renamed is another content for its new key, and the old one goes with it.
            Some((from, version)) => {
                same = false;
                records.extend(self.shared.hold_moved(from, *version));
            }
            None => {}
        }
        let known = self.shared.state.lock().records.held(key);
        let version = match known {
            Some(known) if known.same == same || same => return Ok(records),
            Some(known) => known.version,
            None if shown.is_some() => shown,
            None => self.shared.lower.version(key)?,
        };
        let key = key.clone();
        records.push(JournalRecord::Held { key, version, same });
        Ok(records)
    }

    /// Gives what was written its key, if something was and nothing of it is missing. The names must be locked.
    pub(super) fn settle(&self) -> Result<()> {
        let mut body = self.body();
        match (body.is_dirty || body.pending.is_some()) && body.missing().is_none() {
            true => self.publish(&mut body),
            false => Ok(()),
        }
    }

    /// Says `NoSpace`, or why else, if something could not be written that keeps the file from its key.
    pub(super) fn check_whole(&self) -> Result<()> {
        let body = self.body();
        match body.missing() {
            Some(torn) => Err(torn.error(&body.key.clone().unwrap_or_default())),
            None => Ok(()),
        }
    }

    pub(super) fn source(&self) -> ContentSource {
        self.body().source.clone()
    }

    /// Returns the file itself for extended attributes, brought into the upper folder if `change`.
    pub(super) fn native(&self, change: bool) -> Result<Option<Arc<File>>> {
        if change {
            let _names = self.shared.names.lock();
            let mut body = self.body();
            if matches!(body.source, ContentSource::Lower(_)) || is_committed(&body)? {
                self.begin(&mut body, false)?;
                self.publish(&mut body)?;
            }
        }
        match self.source() {
            ContentSource::Upper(file) => Ok(Some(file)),
            ContentSource::Lower(_) => Ok(None),
        }
    }
}

impl FileState {
    /// Returns what is missing of a content that has no key yet; what is changed in place is there as it is.
    fn missing(&self) -> Option<&FailedWrites> {
        let waits = self.pending.is_some() || self.is_born;
        self.torn.as_ref().filter(|_| waits)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let body = self.body.get_mut();
        if let Some(name) = &body.pending {
            let upper = &self.shared.upper;
            match (&body.key, &body.torn) {
                (Some(key), Some(torn)) => {
                    log::warn!("{}; its content is as before", torn.error(key));
                    upper.drop_pending(name);
                    self.shared.written(key);
                }
                (Some(_), None) if body.is_dirty => {
                    log::error!("pending/{name}: could not be given its key, and stays there");
                }
                _ => upper.drop_pending(name),
            }
        }
        let Some(key) = &body.key else { return };
        let mut state = self.shared.state.lock();
        if state
            .live
            .get(key)
            .is_some_and(|live| live.strong_count() == 0)
        {
            state.live.remove(key);
        }
    }
}

/// Whether a file has a key that the upper folder has no more, since the store has it.
fn is_committed(body: &FileState) -> Result<bool> {
    match &body.source {
        ContentSource::Upper(file) if body.key.is_some() => {
            let stat = rustix::fs::fstat(file).map_err(Error::from)?;
            Ok(stat.st_nlink == 0)
        }
        _ => Ok(false),
    }
}
