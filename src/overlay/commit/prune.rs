//! After a commit: the upper folder lets go of what the store has by now.

use rustix::fs::AtFlags;

use crate::error::Result;
use crate::overlay::Shared;
use crate::overlay::below::stored_below;
use crate::overlay::journal::JournalRecord;
use crate::store::{Key, Version};

impl Shared {
    /// Removes from the upper folder what the store has by now.
    pub(super) fn clean(&self, paths: &[Key]) -> Result<()> {
        let _names = self.names.lock();
        for path in paths {
            self.show_what_is_gone(path)?;
            let all = self.state.lock().records.all_held(path);
            for (key, held) in all {
                if held.sent && self.lower_key(&key).as_ref() == Some(&key) {
                    self.drop_sent(&key, held.version)?;
                }
            }
        }
        let mut state = self.state.lock();
        let summary = state.records.summary();
        match state.journal.is_long_for(summary.len()) {
            true => state.journal.rewrite(&summary),
            false => Ok(()),
        }
    }

    /// Drops whiteouts at a path and below that hide nothing any more.
    fn show_what_is_gone(&self, path: &Key) -> Result<()> {
        let whiteouts = self.state.lock().records.whiteouts(path);
        let mut shown = Vec::new();
        for (at, _) in whiteouts.iter().rev() {
            let mut hides = false;
            for (key, _) in stored_below(&*self.lower, at)? {
                hides |= !self.known(&key).is_some_and(|held| held.sent);
            }
            if !hides {
                self.erase_folders(at)?;
                shown.push(at.clone());
            }
        }
        self.note(shown.iter().cloned().map(JournalRecord::Show).collect())?;
        shown.iter().for_each(|at| self.tree_changed(at));
        Ok(())
    }

    fn drop_sent(&self, key: &Key, version: Option<Version>) -> Result<()> {
        if let Some(live) = self.live(key) {
            live.was_sent(version);
        }
        self.note(vec![JournalRecord::Let(key.clone())])?;
        if self.upper.stat(key)?.is_some() {
            self.remove_native(key, AtFlags::empty())?;
        }
        self.written(key);
        self.drop_folders(key)
    }

    /// Drops the empty folders above a key that the store has by now: they have nothing left to say.
    pub(super) fn drop_folders(&self, key: &Key) -> Result<()> {
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            if self.find_lower(&folder)?.is_none()
                || self.remove_native(&folder, AtFlags::REMOVEDIR).is_err()
            {
                break;
            }
            self.changed(&folder);
            at = folder.parent();
        }
        Ok(())
    }
}
