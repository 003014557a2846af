//! What was renamed in the store, fetched before a commit: from then on it is like anything else that was written.

use std::collections::HashSet;
use std::sync::Arc;

use super::PARALLEL_KEYS;
use crate::error::{Kind, Result};
use crate::overlay::Shared;
use crate::overlay::below::stored_folders;
use crate::overlay::changes::What;
use crate::overlay::journal::JournalRecord;
use crate::overlay::records::joined;
use crate::store::Key;
use crate::sync::pool::parallel_map;

/// A name, and the store's key that shows there.
type Moved = (Key, Key);

impl Shared {
    /// Brings what was renamed in the store into the upper folder.
    pub(super) fn fetch_moved(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        let before: Vec<Moved> = paths.iter().flat_map(|path| self.moved_to(path)).collect();
        let changes = self.changes_at(paths)?;
        let moved = changes
            .keys
            .into_iter()
            .filter_map(|change| match change.what {
                What::Copy { from, .. } => Some((change.key, from)),
                _ => None,
            });
        let fetch = |(key, from)| self.fetch(&key, &from);
        let done = parallel_map(PARALLEL_KEYS, moved.collect(), &fetch);
        done.into_iter().collect::<Result<()>>()?;
        let _names = self.names.lock();
        for path in paths {
            self.keep_moved_folders(path)?;
        }
        // What the store has under the old names from now on is something else. What was renamed meanwhile was not
        // fetched.
        let now: HashSet<Moved> = paths.iter().flat_map(|path| self.moved_to(path)).collect();
        let fetched = before.into_iter().filter(|moved| now.contains(moved));
        let fetched: Vec<Key> = fetched.map(|(key, _)| key).collect();
        let white = |key: &Key| JournalRecord::White {
            key: key.clone(),
            of: None,
        };
        self.note(fetched.iter().map(white).collect())?;
        fetched.iter().for_each(|key| self.tree_changed(key));
        Ok(())
    }

    /// Returns the names at a path and below that show what the store has under others.
    fn moved_to(&self, path: &Key) -> Vec<Moved> {
        let whiteouts = self.state.lock().records.whiteouts(path);
        let moved = whiteouts.into_iter();
        let moved = moved.filter_map(|(at, of)| of.map(|of| (at, of)));
        moved.filter(|(at, of)| at != of).collect()
    }

    /// Makes the folders that were renamed in the store in the upper folder: those without a key stay there.
    fn keep_moved_folders(&self, path: &Key) -> Result<()> {
        for (at, of) in self.moved_to(path) {
            for from in stored_folders(&*self.lower, &of)? {
                let key = from.below(&of).map(|rest| joined(&at, &rest));
                let Some(key) = key.filter(|key| self.lower_key(key).as_ref() == Some(&from))
                else {
                    continue;
                };
                if self.upper.stat(&key)?.is_none() {
                    self.make_parents(&key)?;
                    self.copy_folder(&key)?;
                }
            }
        }
        Ok(())
    }

    fn fetch(self: &Arc<Self>, key: &Key, from: &Key) -> Result<()> {
        let live = match self.open_live(key) {
            // It was removed or renamed meanwhile.
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            live => live?,
        };
        let version = match live.shown_version(from) {
            Some(version) => Some(version),
            None => self.lower.version(from)?,
        };
        let _names = self.names.lock();
        let mut records: Vec<JournalRecord> = self.hold(key)?.into_iter().collect();
        records.extend(version.and_then(|version| self.hold_moved(from, version)));
        self.note(records)?;
        self.copy_up(key)
    }
}
