//! Discard: throws changes away, so that the store's own state shows again.

use rustix::fs::AtFlags;

use super::below::stored_below;
use super::journal::JournalRecord;
use super::{Overlay, Shared};
use crate::error::{Error, Result};
use crate::store::{EntryKind, Key};

impl Overlay {
    /// Throws away what was changed at a path and below; returns how many keys that were. What is open keeps its
    /// content until it is closed.
    ///
    /// `NotFound` if nothing was changed there.
    pub fn discard(&self, path: &Key) -> Result<u64> {
        let _names = self.0.names.lock();
        let state = self.0.state.lock();
        let held = state.records.all_held(path);
        let white = state.records.whiteouts(path);
        drop(state);
        let open = self.0.all_live(path);
        let pending = open.iter().filter(|live| live.is_pending()).count() as u64;
        let is_there = !path.is_root() && self.0.upper.stat(path)?.is_some()
            || !self.0.upper_names(path).unwrap_or_default().is_empty();
        if held.is_empty() && white.is_empty() && pending == 0 && !is_there {
            let why = "nothing was changed there";
            return Err(Error::new(crate::error::Kind::NotFound, path, why));
        }
        let moved = self.0.hold_hidden(&white)?;
        for live in open {
            if let Some(key) = live.key() {
                self.0.state.lock().live.remove(&key);
            }
            live.lose_name();
        }
        let removed = self.0.remove_below(path)?.max(pending);
        let count = held.len().max(white.len()) as u64;
        let whole = held
            .iter()
            .map(|(key, _)| JournalRecord::Whole(key.clone()));
        let mut records: Vec<JournalRecord> = moved;
        records.extend(whole);
        records.extend(held.into_iter().map(|(key, _)| JournalRecord::Let(key)));
        records.extend(white.into_iter().map(|(key, _)| JournalRecord::Show(key)));
        self.0.note(records)?;
        self.0.tree_changed(path);
        Ok(count.max(removed))
    }
}

impl Shared {
    /// Returns the records of what the store holds where something was renamed from: it stays removed.
    fn hold_hidden(&self, white: &[(Key, Option<Key>)]) -> Result<Vec<JournalRecord>> {
        let mut records = Vec::new();
        for of in white.iter().filter_map(|(_, of)| of.as_ref()) {
            for (key, _) in stored_below(&*self.lower, of)? {
                if let Some(version) = self.lower.version(&key)? {
                    records.extend(self.hold_moved(&key, version));
                }
            }
        }
        Ok(records)
    }

    /// Removes what the upper folder has at a path and below; returns how many files, or folders without any, that
    /// were.
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
        if path.is_root() {
            return Ok(removed);
        }
        self.remove_native(path, AtFlags::REMOVEDIR)?;
        Ok(removed.max(1))
    }
}
