//! Write-through: each change is committed at once, and an error of the store is the change's error.
//!
//! The change goes through the upper folder like any other. What the store did not take stays there, is tried again
//! with the next change of that key, and `status` names it: nothing is lost if the store cannot be reached. The paths
//! are locked from the change until it is in the store: changes of one path come in order, those of others side by
//! side.

use std::sync::Arc;

use super::Commit;
use crate::OverlayCore;
use crate::name_change::NameChange;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

impl OverlayCore {
    /// Commits what was changed at these paths, which are locked, if the overlay writes through. `Changed` for a
    /// conflict.
    pub(crate) fn write_through(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
    ) -> Result<()> {
        if !self.config.write_through {
            return Ok(());
        }
        let top = self.top();
        let commit = Commit {
            core: self,
            layered: &top,
            is_live: true,
        };
        let outcome = commit.run(context, paths, false, &|_, _| {})?.or_failed()?;
        for (key, what) in &outcome.lost {
            log::warn!("{key}: the store cannot hold its {what}");
        }
        match outcome.conflicts.into_iter().next() {
            None => Ok(()),
            // The store has the change. It is not undone: what the chunk was before is of the old array as well.
            Some((document, why)) if outcome.left == 0 => {
                Err(Error::new(Kind::Changed, document, why))
            }
            Some((key, why)) => {
                let why = format!(
                    "{why}; the change is kept in {}",
                    self.upper.path().display()
                );
                Err(Error::new(Kind::Changed, key, why))
            }
        }
    }

    /// Makes a change, and brings it into the store if the overlay writes through.
    pub(crate) fn change_and_store<T>(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<T>,
    ) -> Result<T> {
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths)
        })
    }

    /// Removes names, or renames, and brings that into the store if the overlay writes through. Their folders stay, in
    /// the upper folder or in the store.
    pub(crate) fn remove_and_store(
        self: &Arc<Self>,
        context: &RequestContext,
        paths: &[Key],
        change: impl Fn(&NameChange<'_>) -> Result<()>,
    ) -> Result<()> {
        // In a bucket a folder disappears with its last key, so the upper folder keeps it.
        let keeps_folders = self.config.write_through && self.store.info().folder.is_some();
        self.change_names_and(context, paths, change, || {
            self.write_through(context, paths).map_err(not_repeated)?;
            let mut emptied = paths.iter().filter(|_| keeps_folders);
            emptied.try_for_each(|path| self.remove_empty_parents(context, path))
        })
    }
}

/// Returns the error of a removal or a rename that is in conflict. At ESTALE the kernel would walk the path again, and tell
/// the program that there is no such name: it was changed here.
fn not_repeated(error: Error) -> Error {
    match error.kind() {
        Kind::Changed => Error::unavailable(error.subject(), error.detail()),
        _ => error,
    }
}

impl NameChange<'_> {
    /// Keeps the folder of a name that is removed, where the store has folders only as parts of keys: makes it in the
    /// upper folder.
    pub(crate) fn keep_folder(&self, path: &Key) -> Result<()> {
        if self.config.write_through {
            self.make_parents(path)?;
        }
        Ok(())
    }
}
