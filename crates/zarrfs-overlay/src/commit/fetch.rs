//! Copies renamed objects of the store to the layer before a commit.
//!
//! The commit then puts the copies under their new names like other files. It removes an old name only if the store
//! still has the version that was copied.

use std::fs::File;
use std::sync::Arc;

use crate::changes::{ChangeAction, ChangeSet, ChangedKey, HiddenSubtree, MovedSubtree};
use crate::commit::{Commit, parallel_keys};
use crate::journal_record::{JournalRecord, Mark};
use crate::layer::{ChangeLayer, Located};
use crate::layer_dir::os_error;
use crate::open_file::state::StoredVersion;
use crate::overlay_core::mode;
use crate::{attributes, content};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, StoreVersion, Version};

/// The renamed objects that a commit must put into the store under their new keys.
pub(crate) struct MovedObjects<'a> {
    pub(crate) commit: &'a Commit<'a>,
    pub(crate) hidden: &'a [HiddenSubtree],
}

impl MovedObjects<'_> {
    /// Copies the renamed objects from the store to the layer of changes.
    pub(crate) fn fetch_all(&self, changes: &ChangeSet) -> Result<()> {
        let fetch = |change: &ChangedKey| match &change.action {
            ChangeAction::Copy { from, .. } => self.fetch(&change.key, from),
            _ => Ok(()),
        };
        let copies = changes.keys.iter().filter(is_copy).collect();
        let fetched = parallel_map(parallel_keys(&*self.commit.core.store), copies, &fetch);
        fetched.into_iter().collect::<Result<()>>()?;
        for HiddenSubtree { at, moved, .. } in self.hidden {
            if let Some(moved) = moved {
                self.make_moved_folders(at, moved)?;
            }
        }
        if self.commit.is_live {
            self.hide_fetched()?;
        }
        // The layer now has files at the new names, so cached listings of the old and new folders are stale.
        self.commit.core.mark_tree_changed(&Key::root());
        Ok(())
    }

    /// Adds the number of bytes that are still needed to the error of a copy that failed on a full disk. Other errors
    /// are returned unchanged.
    pub(crate) fn without_room(&self, error: Error) -> Error {
        let Ok(changes) = self.commit.changes(self.hidden) else {
            return error;
        };
        let left: Vec<u64> = changes
            .keys
            .iter()
            .filter(is_copy)
            .map(ChangedKey::bytes)
            .collect();
        let needs = format!(
            "renamed keys must be copied here first; {} files with {} bytes remain",
            left.len(),
            left.iter().sum::<u64>(),
        );
        self.commit.core.upper.without_room(error, &needs)
    }

    /// Makes the new names of copied objects plain whiteouts: they no longer show the objects under the old names,
    /// because the layer now has copies. The paths are locked, so nothing was renamed in the meantime.
    fn hide_fetched(&self) -> Result<()> {
        let fetched = self.hidden.iter().filter_map(|subtree| {
            let moved = subtree.moved.as_ref()?;
            (moved.source != subtree.at).then_some(&subtree.at)
        });
        let whiteouts = fetched.map(|at| JournalRecord::Whiteout {
            key: at.clone(),
            source: None,
        });
        let _names = self.commit.core.names.lock();
        self.commit.layered.layer.record(whiteouts.collect())
    }

    /// Creates the renamed folders in the layer of changes. An empty folder stays there, because no store can hold it.
    fn make_moved_folders(&self, at: &Key, moved: &MovedSubtree) -> Result<()> {
        for from in &moved.stored.folders {
            if let Some(key) = moved.visible_key(self.commit.layered, from, at) {
                self.make_folder(&key)?;
            }
        }
        Ok(())
    }

    /// Creates a folder and its parents in the layer of changes.
    fn make_folder(&self, key: &Key) -> Result<()> {
        let dir = &self.commit.layered.layer.dir;
        if key.is_root() || dir.stat(key)?.is_some() {
            return Ok(());
        }
        if let Some(parent) = key.parent() {
            self.make_folder(&parent)?;
        }
        let change = self.commit.core.initial_attributes(mode(0o755), None);
        dir.make_folder(key, [change])
    }

    /// Copies the store's object `from`, which was renamed to `key`, to the layer of changes.
    fn fetch(&self, key: &Key, from: &Key) -> Result<()> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let reader = match core.store.open(self.commit.context, from, None) {
            // Another program has removed the object since it was listed, so there is nothing to copy.
            Err(error) if error.kind() == Kind::NotFound => return Ok(()),
            reader => reader?,
        };
        let pending = core.upper.pending.create(key);
        let (name, file) = pending.map_err(|error| os_error(key, error))?;
        let copied =
            content::copy_stored(self.commit.context, &*reader, &file).and_then(|copied| {
                let stored = self.commit.layered.stored_attributes(key);
                let change = core
                    .initial_attributes(stored, Some(reader.meta(self.commit.context)?.modified));
                attributes::set_open(&file, &change).map_err(|error| Error::os("", error))?;
                let version = copied.version.require_stored(from)?;
                let mark = content::mark_with(&file, Some(copied.content.digest));
                let mark = mark.map_err(|error| Error::os(key, error))?;
                let copy = FetchedCopy {
                    name: &name,
                    file: &file,
                    mark,
                    from,
                    version,
                };
                self.give_key(key, copy)
            });
        copied.map_err(|error| {
            core.upper.pending.discard(&name);
            error.about(key)
        })?;
        if self.commit.is_live {
            layer.lock().generations.advance(key);
        }
        Ok(())
    }

    /// Detaches the open file at `key` if it was opened on another version than the copied object. Afterwards every
    /// open file that is registered under the key has the content that the store will have.
    fn revoke_other_content(&self, key: &Key, from: &Key, version: StoreVersion) {
        let Some(file) = self.commit.core.registered(key) else {
            return;
        };
        let opened = file.unwritten_version();
        let is_copied = |opened: StoredVersion| {
            opened.key == *from && Version::from(opened.version).may_be(version.into())
        };
        if opened.is_some_and(|opened| !is_copied(opened)) {
            self.commit.core.revoke_unwritten(key, &file);
        }
    }

    /// Publishes a copy of a renamed object under its new key, unless a program has put another file there.
    fn give_key(&self, key: &Key, copy: FetchedCopy<'_>) -> Result<()> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let (from, version) = (copy.from, copy.version);
        let base = match layer.base(key) {
            Some(_) => None,
            None => {
                let version = core.store.version(self.commit.context, key)?;
                Some(
                    version
                        .map(|version| version.require_stored(key))
                        .transpose()?,
                )
            }
        };
        let _names = self.commit.is_live.then(|| core.names.lock());
        if !matches!(layer.locate(key)?, Located::Lower(visible) if visible == *from) {
            core.upper.pending.discard(copy.name);
            return Ok(());
        }
        if let Some(parent) = key.parent() {
            self.make_folder(&parent)?;
        }
        let mut records = Vec::new();
        if let Some(version) = base {
            records.push(JournalRecord::base(key, version, None));
            if layer.lock().records.encoded_by(key).is_some() {
                // The object was renamed together with its folder, and the array's metadata with it. So it still
                // matches its array.
                let (at, by) = (key.clone(), None);
                records.push(JournalRecord::EncodedBy { at, by });
            }
        }
        let is_hidden = layer.lower_key(from).as_ref() != Some(from);
        let copied = copy.mark.content();
        match layer.base(from) {
            None if is_hidden => {
                let content = copied.filter(|_| core.takes_digest_of(version.into()));
                records.push(JournalRecord::base(from, Some(version), content));
            }
            // Another program has changed the object since its digest was recorded, and the copy has the new content.
            // Drop the digest, which would match again if the program restored the old content.
            Some(base) if base.content.is_some() && base.content != copied => {
                records.push(JournalRecord::Reverted(from.clone()));
                records.push(JournalRecord::base(from, base.version, None));
            }
            _ => {}
        }
        let (written, mark) = (key.clone(), copy.mark);
        records.push(JournalRecord::Written { key: written, mark });
        records.extend(override_attributes_of_copy(layer, key, copy.file, version)?);
        layer.record(records)?;
        if self.commit.is_live {
            self.revoke_other_content(key, from, version);
        }
        let _layout = layer.write_layout();
        layer.publish(&core.upper, copy.name, key).map(drop)
    }
}

fn is_copy(change: &&ChangedKey) -> bool {
    matches!(change.action, ChangeAction::Copy { .. })
}

/// A local copy of a store's object, in the folder `pending/`.
struct FetchedCopy<'a> {
    /// The key and the version of the object that was copied.
    from: &'a Key,
    version: StoreVersion,
    name: &'a str,
    file: &'a File,
    mark: Mark,
}

/// Sets the attributes of a key on the copy of its object, if they were changed without the content. Returns the record
/// that keeps these attributes, because the copy is dropped when the store has the object under its new name.
fn override_attributes_of_copy(
    layer: &ChangeLayer,
    key: &Key,
    copy: &File,
    version: StoreVersion,
) -> Result<Option<JournalRecord>> {
    let Some(mut attributes) = layer.attribute_override(key)? else {
        return Ok(None);
    };
    let applied = attributes.apply_to_copy(copy, version.into());
    applied.map_err(|error| os_error(key, error))?;
    Arc::make_mut(&mut attributes).is_of_copy = true;
    let key = key.clone();
    Ok(Some(JournalRecord::Attributes { key, attributes }))
}
