//! What was renamed in the store is copied to the upper folder before a commit: after that it is put like anything
//! that was written.

use std::sync::Arc;

use super::PARALLEL_KEYS;
use crate::error::{Kind, Result};
use crate::overlay::OverlayCore;
use crate::overlay::changes::{ChangeAction, ChangeSet, HiddenSubtree, MovedSubtree};
use crate::overlay::journal::JournalRecord;
use crate::store::Key;
use crate::sync::pool::parallel_map;

impl OverlayCore {
    /// Copies what was renamed in the store to the upper folder. From then on the whiteouts hide only.
    pub(super) fn fetch_moved(
        self: &Arc<Self>,
        hidden: &[HiddenSubtree],
        changes: &ChangeSet,
    ) -> Result<()> {
        let copies = changes
            .keys
            .iter()
            .filter_map(|change| match &change.action {
                ChangeAction::Copy { from, .. } => Some((&change.key, from)),
                _ => None,
            });
        let fetch = |(key, from)| self.fetch(key, from);
        let fetched = parallel_map(PARALLEL_KEYS, copies.collect(), &fetch);
        fetched.into_iter().collect::<Result<()>>()?;
        let _names = self.names.lock();
        let mut fetched = Vec::new();
        for HiddenSubtree { at, moved, .. } in hidden {
            // A whiteout that has changed since shows something that was not fetched.
            let moved = moved.as_ref().filter(|moved| self.is_moved(at, moved));
            if let Some(moved) = moved {
                self.make_moved_folders(at, moved)?;
                fetched.push(at);
            }
        }
        let whiteouts = fetched.iter().map(|at| JournalRecord::Whiteout {
            key: Key::clone(at),
            source: None,
        });
        self.record(whiteouts.collect())?;
        fetched.into_iter().for_each(|at| self.note_tree_change(at));
        Ok(())
    }

    /// Whether a key shows what the store has elsewhere, as it was when it was listed.
    fn is_moved(&self, at: &Key, moved: &MovedSubtree) -> bool {
        let present = self.whiteouts(at);
        moved.source != *at
            && present
                .iter()
                .any(|(key, source)| key == at && source.as_ref() == Some(&moved.source))
    }

    /// Makes the folders that were renamed in the store: those without a key in them stay in the upper folder.
    fn make_moved_folders(&self, at: &Key, moved: &MovedSubtree) -> Result<()> {
        for from in &moved.stored.folders {
            let key = self.moved_key(from, &moved.source, at);
            if let Some(key) = key
                && self.upper.stat(&key)?.is_none()
            {
                self.copy_up_folder(&key)?;
            }
        }
        Ok(())
    }

    /// Copies the store's object `from`, which shows at `key`, to the upper folder.
    fn fetch(self: &Arc<Self>, key: &Key, from: &Key) -> Result<()> {
        let file = match self.open_file(key) {
            // Removed or renamed since the changes were collected.
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            file => file?,
        };
        file.copy_up()?;
        let base = self.base_record(key)?;
        let version = match file.opened_version(from) {
            Some(version) => Some(version),
            None => self.lower.version(from)?,
        };
        let _names = self.names.lock();
        if file.key().as_ref() != Some(key) {
            return Ok(());
        }
        let mut records: Vec<JournalRecord> = base.into_iter().collect();
        records.extend(version.and_then(|version| self.moved_base_record(from, version)));
        self.record(records)?;
        file.publish_copy()
    }
}
