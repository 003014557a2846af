//! Write-through: what was changed goes to the store at once, and the store's error is the change's.
//!
//! It goes by way of the upper folder like any other change: what the store did not take stays there, is tried again
//! with the next change of that key, and `status` names it. Nothing is lost by a store that cannot be reached.

use std::sync::Arc;

use super::CommitConfig;
use crate::error::{Error, Kind, Result};
use crate::overlay::Shared;
use crate::store::Key;

impl Shared {
    /// Brings what was changed at these paths into the store, if that is to be at once.
    pub(crate) fn pass_on(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        if !self.config.through {
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

    /// Makes sure that the folder of a name outlives it, where the store has folders only as parts of keys. The
    /// names must be locked.
    pub(crate) fn keep_folder(&self, path: &Key) -> Result<()> {
        match self.config.through {
            true => self.make_parents(path),
            false => Ok(()),
        }
    }

    /// Like `pass_on`, for names that were removed: their folders stay, here or in the store.
    pub(crate) fn pass_on_removed(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        self.pass_on(paths)?;
        // A bucket that has them now may have them no more in a moment.
        if self.config.through && self.lower.info().folder.is_some() {
            let _names = self.names.lock();
            for path in paths {
                self.drop_folders(path)?;
            }
        }
        Ok(())
    }
}
