//! Changes names under a lock, with answers that the store gave before.
//!
//! The lock of the names is not held during requests to the store. If a change needs an answer that is not known yet,
//! it stops before it has changed anything. Then the store is asked without the lock (`lower_answers`), and the change
//! is retried. So a request that is interrupted while it waits for the store has changed nothing.
//!
//! When something in a folder of the store changes, the folder is created in the upper folder too. It is removed when
//! the store has all of its contents.

use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::attribute_override::AttributeOverride;
use crate::encodings::NewContent;
use crate::journal_record::{ContentDigest, JournalRecord};
use crate::layer_dir::os_error;
use crate::layered_store::{LayeredStore, Resolved, etag_of};
use crate::lower_answers::LowerAnswers;
use crate::open_file::OpenFile;
use crate::open_file::opener::register_created;
use crate::overlay_core::{OverlayCore, already_exists, mode, wrong_kind};
use crate::pending_object::PendingObject;
use crate::{attributes, content};
use zarr_format::error::{Error, Kind, Result};
use zarr_format::model::document::describes_node;
use zarrfs_store::sync::file_limits::Permit;
use zarrfs_store::tree::{AttrChange, Credentials, Stat, Time};
use zarrfs_store::{Condition, EncodedBy, EntryKind, Key, Meta, Version};

/// A change of names that is being made, under the lock of the names.
pub(crate) struct NameChange<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) top: Arc<LayeredStore>,
    pub(crate) answers: &'a LowerAnswers,
}

impl Deref for NameChange<'_> {
    type Target = Arc<OverlayCore>;

    fn deref(&self) -> &Arc<OverlayCore> {
        self.core
    }
}

/// Returns the error for a rename or removal of a folder or a metadata document in a store that cannot list its keys.
pub(crate) fn unlisted_keys(key: &Key) -> Error {
    let why = "the store does not list keys, so directories cannot be renamed or removed";
    Error::unsupported(key, why)
}

impl NameChange<'_> {
    /// Creates the parent of a removed name in the upper folder. Otherwise the parent would disappear with its last key
    /// in a store without real folders, such as a bucket.
    pub(crate) fn keep_folder(&self, path: &Key) -> Result<()> {
        if self.config.write_through {
            self.make_parents(path)?;
        }
        Ok(())
    }

    /// Fails with `Unsupported` if the removed file is an array's or group's metadata document and the store cannot
    /// list its keys. The chunks would remain, because their keys are unknown, and a new array of that name would show
    /// them.
    pub(crate) fn check_removable(&self, key: &Key) -> Result<()> {
        let is_document = describes_node(key.name()) && !self.core.store.info().lists;
        if is_document && self.find_lower(key)?.is_some() {
            return Err(unlisted_keys(key));
        }
        Ok(())
    }

    /// Returns the key and metadata of the object below the top layer that is visible at `key`, or `None` if there is
    /// none.
    pub(crate) fn find_lower(&self, key: &Key) -> Result<Option<(Key, Meta)>> {
        let Some(lower) = self.top.layer.lower_key(key) else {
            return Ok(None);
        };
        let meta = self.answers.head(&lower)?;
        Ok(meta.map(|meta| (lower, meta)))
    }

    /// Returns where the content or folder of a key is, or `None` if it does not exist.
    pub(crate) fn find(&self, key: &Key) -> Result<Option<Resolved>> {
        if let Some(stat) = self.top.layer.dir.stat(key)? {
            return Ok(Some(Resolved::Upper(stat)));
        }
        let found = self.find_lower(key)?;
        Ok(found.map(|(lower, meta)| Resolved::Lower(lower, meta)))
    }

    /// Fails with `NotEmpty` if a folder on the mount has a name in it. Fails with `Unsupported` if the store has the
    /// folder but cannot list it.
    pub(crate) fn check_empty(&self, prefix: &Key) -> Result<()> {
        match self.answers.first_name(prefix, &self.info.changes)? {
            None if self.store.info().lists => Ok(()),
            None => match self.find_lower(prefix)? {
                Some(_) => Err(unlisted_keys(prefix)),
                None => Ok(()),
            },
            Some(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                let why = format!("not empty: contains {name}");
                Err(Error::new(Kind::NotEmpty, prefix, why))
            }
        }
    }

    /// Whether an unfinished commit also changes the key.
    pub(crate) fn is_frozen(&self, lower: &Key) -> Result<bool> {
        match &self.top.frozen {
            Some(frozen) => frozen.layer.is_changed(lower),
            None => Ok(false),
        }
    }

    /// Returns a record of the store's version of a key before its first change, or `None` if that version is recorded
    /// already. The digest is included if the object has at most `limit` bytes.
    pub(crate) fn base_record(&self, key: &Key, limit: u64) -> Result<Option<JournalRecord>> {
        let (version, is_frozen, content) = match self.top.layer.base(key) {
            Some(base) if !base.is_committed => return Ok(None),
            Some(base) => (base.version, base.is_frozen, None),
            None if self.is_frozen(key)? => (None, true, None),
            None => match self.answers.content(key, limit)? {
                None => (None, false, None),
                Some(found) => match found.version {
                    Version::Store(version) => (Some(version), false, found.content),
                    // A commit has copied the store's object to the frozen layer since the store was asked.
                    Version::Upper(_) => (None, true, None),
                },
            },
        };
        Ok(Some(JournalRecord::Base {
            key: key.clone(),
            version,
            is_frozen,
            content,
        }))
    }

    /// Returns a record of the store's version of a key that a rename has hidden. Returns `None` if the key is not
    /// hidden or has such a record. `content` is length and digest of that version, if they are known.
    pub(crate) fn moved_base_record(
        &self,
        from: &Key,
        version: Version,
        content: Option<ContentDigest>,
    ) -> Result<Option<JournalRecord>> {
        let layer = &self.top.layer;
        let is_hidden = layer.lower_key(from).as_ref() != Some(from);
        if !is_hidden || layer.base(from).is_some() {
            return Ok(None);
        }
        let version = match version {
            Version::Store(version) if !self.is_frozen(from)? => Some(version),
            _ => None,
        };
        let is_frozen = version.is_none();
        Ok(Some(JournalRecord::Base {
            key: from.clone(),
            version,
            is_frozen,
            content: content.filter(|_| !is_frozen),
        }))
    }

    /// Creates the parents of a key in the upper folder, with the attributes that they have in the store or the frozen
    /// layer.
    pub(crate) fn make_parents(&self, key: &Key) -> Result<()> {
        let Some(parent) = key.parent() else {
            return Ok(());
        };
        if parent.is_root() {
            return Ok(());
        }
        self.copy_up_folder(&parent)
    }

    /// Copies a folder of the store and its parents to the upper folder, unless the upper folder has it already. Fails
    /// with `NotADirectory` if the key is a file.
    pub(crate) fn copy_up_folder(&self, key: &Key) -> Result<()> {
        match self.top.layer.dir.kind(key)? {
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
        let changes = std::iter::once(stored_as).chain(frozen_as);
        self.top.layer.dir.make_folder(key, changes)
    }

    /// Creates a new file under a free name, and opens it.
    pub(crate) fn create(&self, path: &Key, maker: &Credentials) -> Result<Arc<OpenFile>> {
        self.check_free(path)?;
        let permit = Permit::take().map_err(|error| error.about(path))?;
        let base = match self.top.layer.base(path) {
            None => self.base_record(path, content::MAX_REPLACED)?,
            Some(_) => None,
        };
        self.make_parents(path)?;
        let created = JournalRecord::Created(path.clone());
        let layout = self.top.layer.write_layout();
        // Drop attributes that are still recorded for this name. They belong to a file that another program has removed
        // from the store.
        let mut records = self.top.layer.dropped_attributes(path);
        records.extend(base.into_iter().chain([created]));
        self.record(records)?;
        match self.create_in_upper(path, maker) {
            Ok((file, inode)) => {
                self.mark_written(path);
                Ok(register_created(self.core, path, file, inode, permit))
            }
            Err(error) => {
                drop(layout);
                self.forget_created(path)?;
                Err(os_error(path, error))
            }
        }
    }

    /// Fails with `Exists` if a name is in use, with `NotFound` if its parent folder is missing.
    pub(crate) fn check_free(&self, key: &Key) -> Result<()> {
        // Do both checks before returning an error, so that the store is asked for all missing answers together.
        let (found, above) = (self.find(key), self.check_folder_of(key));
        if found?.is_some() {
            return Err(already_exists(key));
        }
        above
    }

    /// Fails with `NotFound` if the parent folder of a name is missing.
    pub(crate) fn check_folder_of(&self, key: &Key) -> Result<()> {
        let parent = key.parent().unwrap_or_default();
        match self.find(&parent)? {
            // A store that cannot list its keys does not know its folders. The kernel has looked this folder up before,
            // so it exists.
            None if !self.store.info().lists => Ok(()),
            None => Err(Error::not_found(&parent)),
            Some(found) if LayeredStore::kind(&found) != EntryKind::Directory => {
                Err(wrong_kind(&parent, false))
            }
            Some(_) => Ok(()),
        }
    }

    fn create_in_upper(&self, key: &Key, maker: &Credentials) -> rustix::io::Result<(File, u64)> {
        let (folder, name) = self.top.layer.dir.parent(key)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name, flags, Mode::from(0o600))?;
        let change = attributes_of_new(maker);
        attributes::set_open(&fd, &change)?;
        let inode = rustix::fs::fstat(&fd)?.st_ino;
        Ok((File::from(fd), inode))
    }

    pub(crate) fn mkdir(&self, key: &Key, maker: &Credentials) -> rustix::io::Result<()> {
        let (folder, name) = self.top.layer.dir.parent(key)?;
        rustix::fs::mkdirat(&folder, name, permissions(maker))?;
        let change = attributes_of_new(maker);
        attributes::set_named(&folder, name, &change)
    }

    pub(crate) fn symlink(
        &self,
        key: &Key,
        target: &[u8],
        maker: &Credentials,
    ) -> rustix::io::Result<()> {
        let (folder, name) = self.top.layer.dir.parent(key)?;
        rustix::fs::symlinkat(target, &folder, name)?;
        let change = AttrChange {
            mode: None,
            ..attributes_of_new(maker)
        };
        attributes::set_named(&folder, name, &change)
    }

    pub(crate) fn remove_name(&self, key: &Key) -> Result<()> {
        self.check_removable(key)?;
        let layer = &self.top.layer;
        let is_in_upper = layer.dir.stat(key)?.is_some();
        let mut records = Vec::new();
        if let Some((stored, meta)) = self.find_lower(key)? {
            records.extend(self.base_record(key, content::MAX_REMOVED)?);
            if stored != *key && !is_in_upper {
                records.extend(self.moved_base_record(&stored, meta.version, None)?);
            }
            records.push(JournalRecord::Whiteout {
                key: key.clone(),
                source: None,
            });
        }
        if is_in_upper {
            records.push(JournalRecord::Removed(key.clone()));
        }
        records.extend(layer.dropped_attributes(key));
        let layout = layer.write_layout();
        self.record(records)?;
        if is_in_upper {
            layer.remove_file(&self.upper, key)?;
        }
        self.detach(key);
        self.open.lock().ids.remove(key);
        drop(layout);
        self.forget_created(key)?;
        self.mark_removed(key);
        Ok(())
    }

    /// Drops the journal's records of a file that was created and removed again, because the store never had it.
    pub(crate) fn forget_created(&self, key: &Key) -> Result<()> {
        let state = self.top.layer.lock();
        let mut records = Vec::new();
        if state.records.is_incomplete(key) {
            records.push(JournalRecord::Completed(key.clone()));
        }
        if state.records.is_new(key) {
            records.push(JournalRecord::Reverted(key.clone()));
        }
        drop(state);
        self.record(records)
    }

    pub(crate) fn remove_folder(&self, path: &Key) -> Result<()> {
        let found = self.find(path)?.ok_or_else(|| Error::not_found(path))?;
        if LayeredStore::kind(&found) != EntryKind::Directory {
            return Err(wrong_kind(path, false));
        }
        let (stored, empty) = (self.find_lower(path), self.check_empty(path));
        let is_stored = stored?.is_some();
        empty?;
        let layer = &self.top.layer;
        let mut records = layer.dropped_attributes(path);
        if is_stored {
            let below = layer
                .whiteouts(path)
                .into_iter()
                .map(|whiteout| whiteout.at);
            records.extend(below.map(JournalRecord::WhiteoutRemoved));
            records.push(JournalRecord::Whiteout {
                key: path.clone(),
                source: None,
            });
        }
        self.record(records)?;
        if layer.dir.stat(path)?.is_some() {
            layer.dir.remove(path, AtFlags::REMOVEDIR)?;
        }
        self.mark_tree_changed(path);
        Ok(())
    }

    /// Updates the recorded metadata of chunks after a program has put or removed an array's metadata document.
    pub(crate) fn record_document(&self, key: &Key, content: &NewContent) -> Result<()> {
        self.record(
            self.encoding_cache
                .record_document(&self.top.layer, key, content),
        )
    }

    /// Returns kind, size and version of a file or folder that was found.
    pub(crate) fn meta(&self, key: &Key, found: &Resolved) -> Meta {
        match found {
            Resolved::Upper(stat) => self.top.layer.meta(key, stat),
            Resolved::Lower(_, meta) => *meta,
        }
    }

    /// Returns a record of the store's version before the put of an object, or `None` if it is recorded already. Fails
    /// with `Changed` if the content in the upper folder is not the version that `condition` requires.
    pub(crate) fn base_of_put(
        &self,
        key: &Key,
        condition: &Condition,
    ) -> Result<Option<JournalRecord>> {
        let record = self.base_record(key, content::MAX_REPLACED)?;
        let found = self.find(key)?;
        let is_stored = match &found {
            None | Some(Resolved::Upper(_)) => false,
            Some(Resolved::Lower(lower, _)) => lower == key && !self.is_frozen(key)?,
        };
        let is_deferred = is_stored && !self.config.write_through;
        let (Condition::Version(expected), true) = (condition, is_deferred) else {
            let now = found.map(|found| etag_of(&self.meta(key, &found)));
            condition.check(key, now.as_ref())?;
            return Ok(record);
        };
        let Some(expected) = expected.stored() else {
            // The caller read the object from the upper folder, and a commit has put it into the store since. Only the
            // caller can check whether the store has the same content.
            let why = "was committed since it was read; read the file again";
            return Err(Error::new(Kind::Changed, key, why));
        };
        Ok(record.map(|record| match record {
            JournalRecord::Base {
                key,
                version,
                content,
                ..
            } => {
                let content = content.filter(|_| {
                    version.is_some_and(|known| Version::from(known).may_be(expected.into()))
                });
                JournalRecord::base(&key, Some(expected), content)
            }
            other => other,
        }))
    }

    /// Publishes a pending file under the key of its object. For a chunk, `encoded_by` is the metadata that it was
    /// encoded with.
    pub(crate) fn publish_object(
        &self,
        key: &Key,
        pending: PendingObject<'_>,
        base: Option<JournalRecord>,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<()> {
        let layer = &self.top.layer;
        let mut records: Vec<JournalRecord> = base.into_iter().collect();
        if layer.dir.stat(key)?.is_none()
            && layer.lower_key(key).as_ref() != Some(key)
            && let Some((from, meta)) = self.find_lower(key)?
        {
            records.extend(self.moved_base_record(&from, meta.version, None)?);
        }
        if layer.lock().records.is_incomplete(key) {
            // The object replaces a new file that a program was still writing, so no incomplete file remains.
            records.push(JournalRecord::Completed(key.clone()));
        }
        records.push(JournalRecord::Written {
            key: key.clone(),
            mark: pending.mark,
        });
        if pending.has_program_copies {
            records.push(JournalRecord::CopiesWritten(key.clone()));
        }
        self.make_parents(key)?;
        self.record_encoded(records, encoded_by)?;
        let layout = layer.write_layout();
        let mut open = self.open.lock();
        let id = open.ids.new_id();
        open.ids.set(key, id, pending.mark.inode);
        drop(open);
        layer.publish(&self.upper, pending.name, key)?;
        self.revoke(key);
        drop(layout);
        self.mark_written(key);
        Ok(())
    }

    /// Lets `set` change attributes of a key whose content is not in the top layer, and records them. `below` is the
    /// `stat` of the content without recorded attributes, and `frozen` is the frozen layer's file, if there is one.
    pub(crate) fn override_attributes(
        &self,
        key: &Key,
        below: Stat,
        frozen: Option<&File>,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<()> {
        let failed = |error| os_error(key, error);
        let overrides = self.top.layer.attribute_override(key)?;
        let is_of_copy = overrides
            .as_ref()
            .is_some_and(|overrides| overrides.is_of_copy);
        let current = overrides
            .as_ref()
            .map_or(below, |overrides| overrides.applied_to(below));
        let accessed = current.posix.map(|posix| posix.accessed);
        let times = AttrChange {
            accessed: Some(Time::At(accessed.unwrap_or(current.meta.modified))),
            modified: Some(Time::At(current.meta.modified)),
            ..AttrChange::default()
        };
        let (name, file) = self.upper.pending.create(key).map_err(failed)?;
        let before = match (overrides, frozen) {
            (Some(overrides), _) => overrides.apply_to(&file),
            (None, Some(frozen)) => content::copy_attributes(frozen, &file),
            (None, None) => {
                let stored = self.top.stored_attributes(key);
                attributes::set_open(&file, &self.initial_attributes(stored, None))
            }
        };
        let overrides = before
            .and_then(|()| attributes::set_open(&file, &times))
            .map_err(failed)
            .and_then(|()| set(&file))
            .and_then(|()| AttributeOverride::of(&file, current.meta.version).map_err(failed));
        self.upper.pending.discard(&name);
        let overrides = AttributeOverride {
            is_of_copy,
            ..overrides?
        };
        let (key, attributes) = (key.clone(), Arc::new(overrides));
        self.record(vec![JournalRecord::Attributes { key, attributes }])
    }
}

fn permissions(maker: &Credentials) -> Mode {
    Mode::from_bits_truncate(maker.mode & attributes::PERMISSIONS)
}

fn attributes_of_new(maker: &Credentials) -> AttrChange {
    attributes::change_of(maker.mode & attributes::PERMISSIONS, maker.uid, maker.gid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::CommitConfig;
    use crate::testing::key;
    use crate::{Overlay, OverlayConfig};
    use zarrfs_store::backend::memory::MemoryStore;
    use zarrfs_store::request_context::UNLIMITED;
    use zarrfs_store::tree::Tree;

    #[test]
    fn copy_up_of_an_existing_folder_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::default());
        store.set(key("d/x"), b"x".to_vec());
        let config = OverlayConfig::default();
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
        // Make the commit fail with a conflict, so that its frozen layer stays.
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
