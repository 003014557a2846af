//! Opening files of the overlay, and the table of those that are open: one `Live` for all who open the same key.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Found;
use super::Shared;
use super::live::Live;
use super::live::Source;
use super::lock;
use super::upper::failed;
use super::wrong_kind;
use crate::error::Error;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;

impl Shared {
    /// Opens the file of a key; `NotFound` if there is none, `IsADirectory` if it is one.
    pub(super) fn open_live(self: &Arc<Shared>, key: &Key) -> Result<Arc<Live>> {
        if let Some(live) = self.live(key) {
            return Ok(live);
        }
        let (source, held) = match self.find(key)? {
            None => return Err(Error::not_found(key)),
            Some(Found::Upper(stat)) => match self.meta(key, &stat).kind {
                EntryKind::Directory => return Err(wrong_kind(key, true)),
                EntryKind::File => (self.open_native(key)?, None),
                _ => return Err(Error::invalid(key, "is no regular file")),
            },
            Some(Found::Lower(_, meta)) if meta.kind == EntryKind::Directory => {
                return Err(wrong_kind(key, true));
            }
            Some(Found::Lower(lower, meta)) => {
                let reader = self.lower.open_known(&lower, &meta)?;
                let held = reader.meta()?.version;
                (Source::Lower(reader), Some((lower, held)))
            }
        };
        let live = Live::new(self, key, source, held);
        if lock(&self.state).records.is_born(key) {
            // Whoever made it could not finish it.
            let mut body = live.body();
            (body.is_born, body.is_dirty) = (true, true);
        }
        Ok(self.enlist(key, live))
    }

    fn open_native(&self, key: &Key) -> Result<Source> {
        let safe = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = match self.upper.open_key(key, OFlags::RDWR | safe) {
            // One that nobody may write, and that this program does not own.
            Err(Errno::ACCESS) => self.upper.open_key(key, OFlags::RDONLY | safe),
            opened => opened,
        };
        let fd = opened.map_err(|error| failed(key, error))?;
        Ok(Source::Upper(Arc::new(File::from(fd))))
    }

    /// Enters a file among those that are open, unless somebody else was faster.
    fn enlist(&self, key: &Key, live: Live) -> Arc<Live> {
        let live = Arc::new(live);
        let mut state = lock(&self.state);
        if let Some(other) = state.live.get(key).and_then(|other| other.upgrade()) {
            drop(state);
            return other;
        }
        state.live.insert(key.clone(), Arc::downgrade(&live));
        live
    }

    /// Enters a file that was just made under a key.
    pub(super) fn enlist_born(self: &Arc<Shared>, key: &Key, file: File) -> Arc<Live> {
        let live = Live::new(self, key, Source::Upper(Arc::new(file)), None);
        let mut body = live.body();
        (body.is_born, body.is_dirty) = (true, true);
        drop(body);
        let live = Arc::new(live);
        let mut state = lock(&self.state);
        state.live.insert(key.clone(), Arc::downgrade(&live));
        live
    }

    /// Returns the open files at and below a key.
    pub(super) fn all_live(&self, prefix: &Key) -> Vec<Arc<Live>> {
        let state = lock(&self.state);
        let below = state.live.iter();
        let below = below.filter(|(key, _)| key.below(prefix).is_some());
        below.filter_map(|(_, live)| live.upgrade()).collect()
    }

    /// Brings a file of the store into the upper folder. The names must be locked.
    pub(super) fn copy_up(self: &Arc<Shared>, key: &Key) -> Result<()> {
        let live = self.open_live(key)?;
        let mut body = live.body();
        live.begin(&mut body, false)?;
        live.publish(&mut body)
    }
}
