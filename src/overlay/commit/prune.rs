//! After a commit: the upper folder drops what the store has.

use rustix::fs::AtFlags;

use crate::error::Result;
use crate::overlay::OverlayCore;
use crate::overlay::journal::JournalRecord;
use crate::overlay::listing::list_recursive;
use crate::store::{Key, Version};

/// A whiteout: the key, and the key of the store that shows there instead.
type Whiteout = (Key, Option<Key>);

impl OverlayCore {
    /// Drops whiteouts and files at these paths and below that say nothing more than the store.
    pub(super) fn prune(&self, paths: &[Key]) -> Result<()> {
        for path in paths {
            self.prune_whiteouts(path)?;
            self.prune_files(path)?;
        }
        let mut state = self.state.lock();
        let summary = state.records.summary();
        if state.journal.is_oversized(summary.len()) {
            state.journal.rewrite(&summary)?;
        }
        Ok(())
    }

    /// Drops the whiteouts at a path and below that hide nothing more.
    fn prune_whiteouts(&self, path: &Key) -> Result<()> {
        let mut idle: Vec<(Whiteout, Vec<Key>)> = Vec::new();
        for whiteout in self.whiteouts(path).into_iter().rev() {
            let stored = list_recursive(&*self.lower, &whiteout.0)?;
            let objects: Vec<Key> = stored.objects.into_iter().map(|(key, _)| key).collect();
            if objects.iter().all(|key| self.is_committed(key)) {
                self.erase_folders(&stored.folders)?;
                idle.push((whiteout, objects));
            }
        }
        let _names = self.names.lock();
        let present = self.whiteouts(path);
        let mut shown = Vec::new();
        for (whiteout, objects) in idle {
            // Names may have changed while the store was asked.
            let mut is_idle = present.contains(&whiteout);
            for key in &objects {
                is_idle &= self.is_committed(key) && self.upper.stat(key)?.is_some();
            }
            if is_idle {
                shown.push(whiteout.0);
            }
        }
        let records = shown.iter().cloned().map(JournalRecord::WhiteoutRemoved);
        self.record(records.collect())?;
        shown.iter().for_each(|at| self.note_tree_change(at));
        Ok(())
    }

    fn is_committed(&self, key: &Key) -> bool {
        self.base(key).is_some_and(|base| base.is_committed)
    }

    /// Drops the committed files at a path and below, unless a whiteout hides the store's object.
    fn prune_files(&self, path: &Key) -> Result<()> {
        let _names = self.names.lock();
        let bases = self.state.lock().records.bases_below(path);
        for (key, base) in bases {
            if base.is_committed && self.lower_key(&key).as_ref() == Some(&key) {
                self.drop_committed(&key, base.version)?;
            }
        }
        Ok(())
    }

    fn drop_committed(&self, key: &Key, version: Option<Version>) -> Result<()> {
        if let Some(file) = self.registered(key) {
            file.set_committed(version);
        }
        self.record(vec![JournalRecord::Reverted(key.clone())])?;
        if self.upper.stat(key)?.is_some() {
            self.remove_from_upper(key, AtFlags::empty())?;
        }
        self.note_removal(key);
        self.remove_empty_parents(key)
    }
}
