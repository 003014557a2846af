//! What was renamed in the store, fetched before a commit: from then on it is like anything else that was written.

use std::sync::Arc;

use super::Shared;
use super::below::stored_folders;
use super::changes::What;
use super::journal::Record;
use super::lock;
use super::records::joined;
use super::side_by_side::side_by_side;
use crate::error::Result;
use crate::store::Key;

impl Shared {
    /// Brings what was renamed in the store into the upper folder.
    pub(super) fn fetch_moved(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        let changes = self.changes_at(paths)?;
        let moved = changes
            .keys
            .into_iter()
            .filter_map(|change| match change.what {
                What::Copy { from, .. } => Some((change.key, from)),
                _ => None,
            });
        let fetch = |(key, from)| self.fetch(&key, &from);
        let done = side_by_side(moved.collect(), &fetch);
        done.into_iter().collect::<Result<()>>()?;
        let _names = lock(&self.names);
        for path in paths {
            self.keep_moved_folders(path)?;
        }
        Ok(())
    }

    /// Makes the folders that were renamed in the store in the upper folder: those without a key stay there.
    fn keep_moved_folders(&self, path: &Key) -> Result<()> {
        let whiteouts = lock(&self.state).records.whiteouts(path);
        for (at, of) in whiteouts {
            let Some(of) = of.filter(|of| *of != at) else {
                continue;
            };
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
        let live = self.open_live(key)?;
        let version = match live.shown_version(from) {
            Some(version) => Some(version),
            None => self.lower.version(from)?,
        };
        let _names = lock(&self.names);
        let mut records: Vec<Record> = self.hold(key)?.into_iter().collect();
        records.extend(version.and_then(|version| self.hold_moved(from, version)));
        self.note(records)?;
        self.copy_up(key)
    }
}
