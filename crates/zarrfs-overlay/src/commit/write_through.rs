//! Write-through: commits each change at once, and returns the store's error.
//!
//! The change goes through the upper folder like any other. If the store refuses it, it stays there, is retried with
//! the next change of that key, and `status` shows it: nothing is lost if the store is unreachable. The paths are
//! locked from the change until it is stored: changes of one path are stored in order, changes of other paths in
//! parallel.

use std::sync::Arc;

use super::Commit;
use crate::OverlayCore;
use crate::name_change::NameChange;
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;

impl OverlayCore {
    /// Commits the changes at these paths, which are locked, if the overlay uses write-through. Fails with `Changed` on
    /// a conflict.
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
            // The store has the change. It is not undone, because the chunk's previous content belongs to the old array
            // as well.
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

    /// Makes a change, and stores it if the overlay uses write-through.
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

    /// Removes or renames names, and stores that if the overlay uses write-through. The folders of the names stay, in
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

/// Returns the error of a conflicting removal or rename. After ESTALE the kernel would retry the path walk and report
/// that the name does not exist, since it was already changed here.
fn not_repeated(error: Error) -> Error {
    match error.kind() {
        Kind::Changed => Error::unavailable(error.subject(), error.detail()),
        _ => error,
    }
}

impl NameChange<'_> {
    /// Creates the folder of a removed name in the upper folder, for stores in which folders exist only as parts of
    /// keys.
    pub(crate) fn keep_folder(&self, path: &Key) -> Result<()> {
        if self.config.write_through {
            self.make_parents(path)?;
        }
        Ok(())
    }
}
