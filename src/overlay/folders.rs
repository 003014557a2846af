//! Folders of the upper folder. A folder of the store is made there when something in it changes, and removed
//! again when the store has all that was in it.

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::upper::os_error;
use super::{OverlayCore, attributes, wrong_kind};
use crate::error::Result;
use crate::store::{EntryKind, Key};

impl OverlayCore {
    /// Makes the folders above a key in the upper folder, with the attributes that they have in the store.
    pub(super) fn make_parents(&self, key: &Key) -> Result<()> {
        let Some(parent) = key.parent() else {
            return Ok(());
        };
        if parent.is_root() || self.upper.stat(&parent)?.is_some() {
            return Ok(());
        }
        self.copy_up_folder(&parent)
    }

    /// Makes a folder of the store, and those above it, in the upper folder. `NotADirectory` if it is an object.
    pub(super) fn copy_up_folder(&self, key: &Key) -> Result<()> {
        self.make_parents(key)?;
        let stored = self.find_lower(key)?.map(|(_, meta)| meta);
        if stored.is_some_and(|meta| meta.kind != EntryKind::Directory) {
            return Err(wrong_kind(key, false));
        }
        let change = self.initial_attributes(0o755, stored.map(|meta| meta.modified));
        let made = self.upper.parent(key).and_then(|(folder, name)| {
            match rustix::fs::mkdirat(&folder, name, Mode::from(0o755)) {
                Err(Errno::EXIST) => return Ok(()),
                made => made?,
            }
            attributes::set_named(&folder, name, &change)
        });
        made.map_err(|error| os_error(key, error))
    }

    /// Removes the empty folders above a key from the upper folder, as far as the store has them too.
    pub(super) fn remove_empty_parents(&self, key: &Key) -> Result<()> {
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            if self.find_lower(&folder)?.is_none()
                || self.remove_from_upper(&folder, AtFlags::REMOVEDIR).is_err()
            {
                break;
            }
            self.note_change(&folder);
            at = folder.parent();
        }
        Ok(())
    }
}
