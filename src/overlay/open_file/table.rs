//! Opening files of the overlay, and the table of those that are open: one `OpenFile` for all who open the same key.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{ContentSource, OpenFile};
use crate::error::{Error, Kind, Result};
use crate::overlay::upper::failed;
use crate::overlay::{Resolved, Shared, wrong_kind};
use crate::store::{EntryKind, Key};

/// How often a file is opened that is replaced meanwhile.
const MOST_OPENINGS: usize = 64;

impl Shared {
    /// Opens the file of a key; `NotFound` if there is none, `IsADirectory` if it is one.
    pub(crate) fn open_live(self: &Arc<Shared>, key: &Key) -> Result<Arc<OpenFile>> {
        for _ in 0..MOST_OPENINGS {
            if let Some(live) = self.live(key) {
                return Ok(live);
            }
            let (live, lower) = self.found_live(key)?;
            let live = Arc::new(live);
            let state = self.state.lock();
            if state.records.is_born(key) {
                // Whoever made it could not finish it.
                let mut body = live.body();
                (body.is_born, body.is_dirty) = (true, true);
                body.torn = state.torn.get(key).cloned();
            }
            drop(state);
            if let Some(other) = self.enlist(key, &live) {
                return Ok(other);
            }
            // Whoever replaces the file from now on finds it listed; whoever did before is seen here.
            if self.is_current(key, &live, lower.as_ref())? {
                return Ok(live);
            }
            self.strike(key, &live);
        }
        let why = "is replaced each time it is opened";
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Opens what a key is now; returns under which key the store has it, if the store and not the upper folder has.
    fn found_live(self: &Arc<Shared>, key: &Key) -> Result<(OpenFile, Option<Key>)> {
        match self.find(key)? {
            None => Err(Error::not_found(key)),
            Some(Resolved::Upper(stat)) => match self.meta(key, &stat).kind {
                EntryKind::Directory => Err(wrong_kind(key, true)),
                EntryKind::File => {
                    Ok((OpenFile::new(self, key, self.open_native(key)?, None), None))
                }
                _ => Err(Error::invalid(key, "is no regular file")),
            },
            Some(Resolved::Lower(_, meta)) if meta.kind == EntryKind::Directory => {
                Err(wrong_kind(key, true))
            }
            Some(Resolved::Lower(lower, meta)) => {
                let reader = self.lower.open(&lower, Some(&meta))?;
                let held = reader.meta()?.version;
                let (source, at) = (ContentSource::Lower(reader), lower.clone());
                Ok((
                    OpenFile::new(self, key, source, Some((lower, held))),
                    Some(at),
                ))
            }
        }
    }

    /// Whether an open file is still what its key is.
    fn is_current(&self, key: &Key, live: &OpenFile, lower: Option<&Key>) -> Result<bool> {
        let upper = self.upper.stat(key)?;
        match (&live.body().source, upper) {
            (ContentSource::Upper(file), Some(stat)) => {
                let own = rustix::fs::fstat(file).map_err(|error| failed(key, error))?;
                Ok((own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino))
            }
            (ContentSource::Lower(_), None) => Ok(self.lower_key(key).as_ref() == lower),
            _ => Ok(false),
        }
    }

    /// Takes a file out of those that are open under a key.
    fn strike(&self, key: &Key, live: &Arc<OpenFile>) {
        live.lose_name();
        let mut state = self.state.lock();
        let listed = state.live.get(key);
        if listed.is_some_and(|listed| std::ptr::eq(listed.as_ptr(), Arc::as_ptr(live))) {
            state.live.remove(key);
        }
    }

    fn open_native(&self, key: &Key) -> Result<ContentSource> {
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.upper.open_key(key, OFlags::RDWR | safe) {
            // One that nobody may write, and that this program does not own.
            Err(Errno::ACCESS) => self.upper.open_key(key, OFlags::RDONLY | safe),
            opened => opened,
        };
        let fd = opened.map_err(|error| failed(key, error))?;
        Ok(ContentSource::Upper(Arc::new(File::from(fd))))
    }

    /// Enters a file among those that are open, unless somebody else was faster: returns theirs.
    fn enlist(&self, key: &Key, live: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let mut state = self.state.lock();
        if let Some(other) = state.live.get(key).and_then(|other| other.upgrade()) {
            return Some(other);
        }
        state.live.insert(key.clone(), Arc::downgrade(live));
        None
    }

    /// Enters a file that was just made under a key.
    pub(crate) fn enlist_born(self: &Arc<Shared>, key: &Key, file: File) -> Arc<OpenFile> {
        let live = OpenFile::new(self, key, ContentSource::Upper(Arc::new(file)), None);
        let mut body = live.body();
        (body.is_born, body.is_dirty) = (true, true);
        drop(body);
        let live = Arc::new(live);
        let mut state = self.state.lock();
        state.live.insert(key.clone(), Arc::downgrade(&live));
        live
    }

    /// Returns the open files at and below a key.
    pub(crate) fn all_live(&self, prefix: &Key) -> Vec<Arc<OpenFile>> {
        let state = self.state.lock();
        let below = state.live.iter();
        let below = below.filter(|(key, _)| key.below(prefix).is_some());
        below.filter_map(|(_, live)| live.upgrade()).collect()
    }

    /// Brings a file of the store into the upper folder. The names must be locked.
    pub(crate) fn copy_up(self: &Arc<Shared>, key: &Key) -> Result<()> {
        let live = self.open_live(key)?;
        let mut body = live.body();
        live.begin(&mut body, false)?;
        live.publish(&mut body)
    }
}
