//! Write-through: each change is committed at once, and an error of the store is the change's error.
//!
//! The change goes through the upper folder like any other. What the store did not take stays there, is tried again
//! with the next change of that key, and `status` names it: nothing is lost if the store cannot be reached.

use std::sync::Arc;

use super::CommitConfig;
use crate::error::{Error, Kind, Result};
use crate::overlay::OverlayCore;
use crate::store::Key;

impl OverlayCore {
    /// Commits what was changed at these paths, if the overlay writes through. `Changed` for a conflict.
    pub(in crate::overlay) fn write_through(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        if !self.config.write_through {
            return Ok(());
        }
        let outcome = self.commit(paths, CommitConfig::default(), &|_, _| {})?;
        match outcome.conflicts.into_iter().next() {
            None => Ok(()),
            Some((key, why)) => {
                let why = format!(
                    "{why}; the change is kept in {}",
                    self.upper.path().display()
                );
                Err(Error::new(Kind::Changed, key, why))
            }
        }
    }

    /// Keeps the folder of a name that is removed, where the store has folders only as parts of keys: makes it in the
    /// upper folder. The names must be locked.
    pub(in crate::overlay) fn keep_folder(&self, path: &Key) -> Result<()> {
        if self.config.write_through {
            self.make_parents(path)?;
        }
        Ok(())
    }

    /// Like `write_through`, for names that were removed: their folders stay, in the upper folder or in the store.
    pub(in crate::overlay) fn write_through_removal(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        self.write_through(paths)?;
        // In a bucket a folder disappears with its last key, so the upper folder keeps it.
        if self.config.write_through && self.lower.info().folder.is_some() {
            let _names = self.names.lock();
            for path in paths {
                self.remove_empty_parents(path)?;
            }
        }
        Ok(())
    }
}
