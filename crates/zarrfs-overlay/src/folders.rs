//! Creates folders of the store in the upper folder, and removes them again.
//!
//! A folder is created when something in it changes, and removed when the store has all its contents.

use std::sync::Arc;

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::keys_dir::os_error;
use super::name_change::NameChange;
use super::{OverlayCore, attributes, mode, wrong_kind};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key};

impl NameChange<'_> {
    /// Creates the folders above a key in the upper folder, with the attributes that they have below.
    pub(super) fn make_parents(&self, key: &Key) -> Result<()> {
        let Some(parent) = key.parent() else {
            return Ok(());
        };
        if parent.is_root() {
            return Ok(());
        }
        self.copy_up_folder(&parent)
    }

    /// Creates a folder of the store, and the folders above it, in the upper folder, unless it exists there. Fails with
    /// `NotADirectory` if the key is an object.
    pub(super) fn copy_up_folder(&self, key: &Key) -> Result<()> {
        match self.top.layer.keys.kind(key)? {
            None => {}
            Some(EntryKind::Directory) => return Ok(()),
            Some(_) => return Err(wrong_kind(key, false)),
        }
        let stored = self.find_lower(key)?;
        self.make_parents(key)?;
        let meta = stored.as_ref().map(|(_, meta)| meta);
        if meta.is_some_and(|meta| meta.kind != EntryKind::Directory) {
            return Err(wrong_kind(key, false));
        }
        let stored_as = self.initial_attributes(mode(0o755), meta.map(|meta| meta.modified));
        let frozen_as = match (&self.top.frozen, &stored) {
            (Some(frozen), Some((lower, _))) => frozen.stat_in_layers(lower)?,
            _ => None,
        };
        let frozen_as = frozen_as.map(|posix| attributes::owner_and_mode(&posix));
        let keys = &self.top.layer.keys;
        let made = keys.parent(key).and_then(|(folder, name)| {
            match rustix::fs::mkdirat(&folder, name, Mode::from(0o755)) {
                // A write-through has created it in the meantime.
                Err(Errno::EXIST) => return Ok(()),
                made => made?,
            }
            attributes::set_named(&folder, name, &stored_as)?;
            frozen_as.map_or(Ok(()), |change| {
                attributes::set_named(&folder, name, &change)
            })
        });
        made.map_err(|error| os_error(key, error))
    }
}

impl OverlayCore {
    /// Removes the empty folders above a key from the upper folder, as long as the store below has them too.
    pub(super) fn remove_empty_parents(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
    ) -> Result<()> {
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            let removed = self.change_until_answered(context, |change| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::CommitConfig;
    use crate::{Overlay, OverlayConfig};
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::Tree;

    #[test]
    fn a_folder_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let key = |text: &str| Key::new(text).unwrap();
        let store = Arc::new(MemoryStore::default());
        store.set(key("d/x"), b"x".to_vec());
        let config = OverlayConfig {
            uid: 0,
            gid: 0,
            write_through: false,
        };
        let upper = folder.path().join("upper");
        let overlay = Overlay::open(&upper, store.clone(), "a store", config).unwrap();
        let set_mode = |bits| Tree::change(&overlay, &UNLIMITED, &key("d"), &mode(bits)).unwrap();
        let shown_mode = || {
            let stat = Tree::stat(&overlay, &UNLIMITED, &key("d"))
                .unwrap()
                .unwrap();
            stat.posix.unwrap().mode & 0o7777
        };
        set_mode(0o700);
        Tree::unlink(&overlay, &UNLIMITED, &key("d/x")).unwrap();
        // A conflict keeps the frozen layer.
        store.set(key("d/x"), b"changed".to_vec());
        overlay
            .commit(&UNLIMITED, CommitConfig::default(), &|_, _| {})
            .and_then(crate::commit::Outcome::or_failed)
            .unwrap();
        assert!(overlay.0.top().frozen.is_some());
        assert_eq!(shown_mode(), 0o700);
        let copy_up = || {
            let done = overlay.0.change_names(&UNLIMITED, &[key("d")], |change| {
                change.copy_up_folder(&key("d"))
            });
            done.unwrap();
        };
        copy_up();
        assert_eq!(shown_mode(), 0o700, "that of the frozen layer");
        set_mode(0o750);
        copy_up();
        assert_eq!(shown_mode(), 0o750);
    }
}
