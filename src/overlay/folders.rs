//! Folders of the upper folder. A folder of the store is made there when something in it changes, and removed
//! again when the store has all that was in it.

use std::sync::Arc;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::keys_dir::os_error;
use super::layered_store::LayeredStore;
use super::name_change::NameChange;
use super::{OverlayCore, attributes, mode, wrong_kind};
use crate::error::Result;
use crate::store::{EntryKind, Key};

impl NameChange<'_> {
    /// Makes the folders above a key in the upper folder, with the attributes that they have below.
    pub(super) fn make_parents(&self, key: &Key) -> Result<()> {
        let Some(parent) = key.parent() else {
            return Ok(());
        };
        if parent.is_root() || self.top.layer.keys.stat(&parent)?.is_some() {
            return Ok(());
        }
        self.copy_up_folder(&parent)
    }

    /// Makes a folder of the store, and those above it, in the upper folder. `NotADirectory` if it is an object.
    pub(super) fn copy_up_folder(&self, key: &Key) -> Result<()> {
        let stored = self.find_lower(key)?;
        self.make_parents(key)?;
        let meta = stored.as_ref().map(|(_, meta)| meta);
        if meta.is_some_and(|meta| meta.kind != EntryKind::Directory) {
            return Err(wrong_kind(key, false));
        }
        let change = self.initial_attributes(mode(0o755), meta.map(|meta| meta.modified));
        let keys = &self.top.layer.keys;
        let made = keys.parent(key).and_then(|(folder, name)| {
            match rustix::fs::mkdirat(&folder, name, Mode::from(0o755)) {
                Err(Errno::EXIST) => return Ok(()),
                made => made?,
            }
            attributes::set_named(&folder, name, &change)
        });
        made.map_err(|error| os_error(key, error))?;
        match (&self.top.frozen, stored) {
            (Some(frozen), Some((lower, _))) => self.copy_folder_attributes(frozen, &lower, key),
            _ => Ok(()),
        }
    }

    /// Gives a folder the owner and mode that it has in a frozen layer, if that has the folder.
    fn copy_folder_attributes(&self, frozen: &LayeredStore, lower: &Key, key: &Key) -> Result<()> {
        let Some(posix) = frozen.stat(lower)?.and_then(|stat| stat.posix) else {
            return Ok(());
        };
        let keys = &self.top.layer.keys;
        let change = attributes::owner_and_mode(&posix);
        let set = keys
            .parent(key)
            .and_then(|(folder, name)| attributes::set_named(&folder, name, &change));
        set.map_err(|error| os_error(key, error))
    }
}

impl OverlayCore {
    /// Removes the empty folders above a key from the upper folder, as far as what lies below has them too.
    pub(super) fn remove_empty_parents(self: &Arc<Self>, key: &Key) -> Result<()> {
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            let removed = self.change_until_answered(|change| {
                if change.find_lower(&folder)?.is_none() {
                    return Ok(false);
                }
                let keys = &change.top.layer.keys;
                Ok(keys.remove(&folder, AtFlags::REMOVEDIR).is_ok())
            })?;
            if !removed {
                break;
            }
            self.note_change(&folder);
            at = folder.parent();
        }
        Ok(())
    }
}
