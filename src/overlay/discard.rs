//! Discard: throws changes away, so that the store's own state shows again.

use rustix::fs::AtFlags;

use super::Overlay;
use super::Shared;
use super::journal::Record;
use super::lock;
use crate::error::Error;
use crate::error::Result;
use crate::store::EntryKind;
use crate::store::Key;

impl Overlay {
    /// Throws away what was changed at a path and below; returns how many keys that were. What is open keeps its
    /// content until it is closed.
    ///
    /// `NotFound` if nothing was changed there.
    pub fn discard(&self, path: &Key) -> Result<u64> {
        let _names = lock(&self.0.names);
        for live in self.0.all_live(path) {
            if let Some(key) = live.key() {
                lock(&self.0.state).live.remove(&key);
            }
            live.lose_name();
        }
        let state = lock(&self.0.state);
        let held = state.records.all_held(path);
        let white = state.records.whiteouts(path);
        drop(state);
        let removed = self.0.remove_below(path)?;
        if held.is_empty() && white.is_empty() && removed == 0 {
            let why = "nothing was changed there";
            return Err(Error::new(crate::error::Kind::NotFound, path, why));
        }
        let count = held.len().max(white.len()) as u64;
        let whole = held.iter().map(|(key, _)| Record::Whole(key.clone()));
        let mut records: Vec<Record> = whole.collect();
        records.extend(held.into_iter().map(|(key, _)| Record::Let(key)));
        records.extend(white.into_iter().map(|(key, _)| Record::Show(key)));
        self.0.note(records)?;
        self.0.changed();
        Ok(count.max(removed))
    }
}

impl Shared {
    /// Removes what the upper folder has at a path and below; returns how many files that were.
    fn remove_below(&self, path: &Key) -> Result<u64> {
        let Some(stat) = self.upper.stat(path)? else {
            return Ok(0);
        };
        if self.meta(path, &stat).kind != EntryKind::Directory {
            self.remove_native(path, AtFlags::empty())?;
            self.written(path);
            return Ok(1);
        }
        let mut removed = 0;
        for (name, _) in self.upper_names(path)? {
            removed += self.remove_below(&path.child(&name)?)?;
        }
        if !path.is_root() {
            self.remove_native(path, AtFlags::REMOVEDIR)?;
        }
        Ok(removed)
    }
}
