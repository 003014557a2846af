//! Lists the upper folder's changes: keys to put or erase, and uncommittable keys.
//!
//! Only complete files are listed, since a file that is being written waits for a later commit. Nothing is changed
//! here.

use std::collections::{BTreeMap, HashSet};

use crate::layer::ChangeLayer;
use crate::layer_dir::is_too_long;
use crate::layered_store::LayeredStore;
use crate::listing::{Subtree, list_recursive};
use crate::records::{BaseVersion, Whiteout, joined};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, StoreVersion, Version};

/// What a commit does to a changed key in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// Put the upper folder's file, whose length in bytes is given.
    Put(u64),
    /// Put the object that the store has under the key `from`, because the object was renamed.
    Copy {
        /// The key under which the store has the object.
        from: Key,
        /// The object's length in bytes.
        size: u64,
    },
    /// Remove the key from the store.
    Erase,
}

/// What is known about the store's object of a key before the mount changed the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseState {
    /// The store's version of the key is unknown.
    Unseen,
    /// The store's version when the mount first changed the key; `None` if the store did not have the key.
    Known(Option<StoreVersion>),
    /// The store's object was renamed on the mount, so its version does not matter.
    Moved,
    /// An unfinished commit also changes the key. That commit comes first and determines the store's version.
    Frozen,
}

/// A key that was changed on the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The changed key.
    pub key: Key,
    /// What a commit does to the key in the store.
    pub action: ChangeAction,
    /// The state of the store's object before the change.
    pub base: BaseState,
}

impl ChangedKey {
    /// Whether the store did not have the key before the change.
    pub fn is_new(&self) -> bool {
        self.base == BaseState::Known(None)
    }

    /// Returns the number of bytes that a commit writes to the store for the changed key.
    pub fn bytes(&self) -> u64 {
        match self.action {
            ChangeAction::Put(size) | ChangeAction::Copy { size, .. } => size,
            ChangeAction::Erase => 0,
        }
    }
}

/// Keys, each with a reason or a property that its list is about.
pub type KeysWithReason = Vec<(Key, &'static str)>;

/// All changes of the upper folder, as a commit sees them.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// The changed keys, in order.
    pub keys: Vec<ChangedKey>,
    /// Keys that a commit leaves in the upper folder, each with the reason.
    pub uncommittable: KeysWithReason,
    /// Keys that a commit puts without some of their properties, because no store can hold those properties. Each key
    /// has the names of the properties.
    pub lost: KeysWithReason,
    /// The keys that an interrupted commit has not finished. The next commit continues with these keys.
    pub frozen: HashSet<Key>,
}

/// A whiteout, with the objects and folders of the store that it hides.
pub(crate) struct HiddenSubtree {
    pub(crate) at: Key,
    /// The store's objects at and below `at`.
    objects: Vec<Key>,
    /// The store's folders at and below `at`, each before its subfolders.
    pub(crate) folders: Vec<Key>,
    /// The subtree of the store that was renamed to `at`, or `None` if `at` is only removed.
    pub(crate) moved: Option<MovedSubtree>,
}

impl HiddenSubtree {
    /// Lists the objects and folders of the store that are hidden by the whiteouts at and below `paths`.
    pub(crate) fn list(
        layered: &LayeredStore,
        context: &RequestContext,
        paths: &[Key],
    ) -> Result<Vec<HiddenSubtree>> {
        let mut found = Vec::new();
        for Whiteout { at, source } in paths.iter().flat_map(|path| layered.layer.whiteouts(path)) {
            let stored = list_recursive(context, &*layered.lower, &at)?;
            let objects = stored.objects.into_iter().map(|(key, _)| key).collect();
            let moved = match source {
                None => None,
                Some(source) => Some(MovedSubtree {
                    stored: list_recursive(context, &*layered.lower, &source)?,
                    source,
                }),
            };
            found.push(HiddenSubtree {
                at,
                objects,
                folders: stored.folders,
                moved,
            });
        }
        Ok(found)
    }
}

/// A subtree of the store that was renamed on the mount.
pub(crate) struct MovedSubtree {
    pub(crate) source: Key,
    pub(crate) stored: Subtree,
}

impl MovedSubtree {
    /// Returns the key under which the renamed object `from` is visible at or below `at`. Returns `None` if it is not
    /// visible there, or was not renamed.
    pub(crate) fn visible_key(&self, layered: &LayeredStore, from: &Key, at: &Key) -> Option<Key> {
        let key = joined(at, &from.below(&self.source)?);
        let shows = key != *from && layered.layer.lower_key(&key).as_ref() == Some(from);
        shows.then_some(key)
    }
}

impl ChangeSet {
    /// Returns the differences between the mount and the store, including those of an unfinished commit.
    pub(crate) fn of_overlay(top: &LayeredStore, context: &RequestContext) -> Result<ChangeSet> {
        let changes = ChangeSet::of_layer(top, context)?;
        match &top.frozen {
            None => Ok(changes),
            Some(frozen) => Ok(changes.over(ChangeSet::of_layer(frozen, context)?)),
        }
    }

    /// Returns the differences between one layer of changes and the store.
    pub(crate) fn of_layer(layered: &LayeredStore, context: &RequestContext) -> Result<ChangeSet> {
        let all = [Key::root()];
        let hidden = HiddenSubtree::list(layered, context, &all)?;
        ChangeSet::at(layered, context, &all, &hidden)
    }

    /// Returns the differences between a layer of changes and the store at and below `paths`. `hidden` is the result of
    /// `HiddenSubtree::list`.
    pub(crate) fn at(
        layered: &LayeredStore,
        context: &RequestContext,
        paths: &[Key],
        hidden: &[HiddenSubtree],
    ) -> Result<ChangeSet> {
        let whiteouts = layered.layer.whiteouts(&Key::root());
        let mut collector = ChangeCollector {
            layered,
            moved: whiteouts
                .into_iter()
                .filter_map(|whiteout| whiteout.source)
                .collect(),
            keys: BTreeMap::new(),
            uncommittable: Vec::new(),
            lost: Vec::new(),
        };
        for path in paths {
            if let Some(kind) = layered.layer.dir.kind(path)? {
                collector.add_upper(context, path.clone(), kind)?;
            }
        }
        for subtree in hidden {
            collector.add_hidden(context, &subtree.objects)?;
            if let Some(moved) = &subtree.moved {
                collector.add_moved(context, &subtree.at, moved)?;
            }
        }
        collector
            .uncommittable
            .extend(keys_with_attributes(&layered.layer, paths)?);
        Ok(ChangeSet {
            keys: collector.keys.into_values().collect(),
            uncommittable: collector.uncommittable,
            lost: collector.lost,
            frozen: HashSet::new(),
        })
    }

    /// Merges the changes of the top layer with those of the frozen layer, `below`, which an unfinished commit writes.
    fn over(self, below: ChangeSet) -> ChangeSet {
        let frozen = below.keys.iter().map(|change| change.key.clone()).collect();
        let keys = below.keys.into_iter();
        let mut keys: BTreeMap<Key, ChangedKey> =
            keys.map(|change| (change.key.clone(), change)).collect();
        for mut change in self.keys {
            if let Some(below) = keys.remove(&change.key) {
                change.base = below.base;
            }
            if let ChangeAction::Copy { size, .. } = change.action {
                // The frozen layer may contain the source of this copy, and the store may not have it yet. So the
                // content is put, not copied within the store.
                change.action = ChangeAction::Put(size);
            }
            let is_undone = change.action == ChangeAction::Erase && change.is_new();
            if !is_undone {
                keys.insert(change.key.clone(), change);
            }
        }
        let together = |mut below: KeysWithReason, above: KeysWithReason| {
            below.extend(above);
            below.sort();
            below.dedup_by(|one, other| one.0 == other.0);
            below
        };
        ChangeSet {
            frozen,
            keys: keys.into_values().collect(),
            uncommittable: together(below.uncommittable, self.uncommittable),
            lost: together(below.lost, self.lost),
        }
    }
}

/// Returns the keys at and below `paths` whose attributes were set, but not their content. No store can hold such
/// attributes.
pub(crate) fn keys_with_attributes(layer: &ChangeLayer, paths: &[Key]) -> Result<KeysWithReason> {
    let mut found = KeysWithReason::new();
    for path in paths {
        let keys = layer.keys_with_attributes(path)?.into_iter();
        found.extend(keys.map(|key| (key, "owner, mode, times or extended attributes")));
    }
    Ok(found)
}

impl BaseState {
    /// Whether `now`, the store's version of a key, is the version before the change; `None` means that the key is
    /// missing.
    pub(crate) fn is(self, now: Option<Version>) -> bool {
        matches!(self, BaseState::Known(base) if base.map(Version::from) == now)
    }

    /// Whether the store sent no ETag for the object before the change.
    pub(crate) fn has_no_etag(self) -> bool {
        matches!(self, BaseState::Known(Some(base)) if !Version::from(base).is_lasting())
    }

    /// Whether the store's object may still be the one before the change, if the store now has version `now`. Versions
    /// without an ETag are compared by size and time.
    pub(crate) fn may_be(self, now: Version) -> bool {
        matches!(self, BaseState::Known(Some(base)) if now.may_be(base.into()))
    }
}

fn state_of_base(base: BaseVersion) -> BaseState {
    if base.is_frozen {
        BaseState::Frozen
    } else {
        BaseState::Known(base.version)
    }
}

struct ChangeCollector<'a> {
    layered: &'a LayeredStore,
    /// Keys of the store that were renamed, alone or as a folder with everything in it.
    moved: Vec<Key>,
    keys: BTreeMap<Key, ChangedKey>,
    uncommittable: KeysWithReason,
    lost: KeysWithReason,
}

impl ChangeCollector<'_> {
    fn add(&mut self, key: Key, action: ChangeAction, base: BaseState) {
        let change = ChangedKey {
            key: key.clone(),
            action,
            base,
        };
        self.keys.insert(key, change);
    }

    /// Adds the upper folder's files at and below a key to the changes.
    fn add_upper(&mut self, context: &RequestContext, key: Key, kind: EntryKind) -> Result<()> {
        if is_too_long(&key) {
            self.uncommittable
                .push((key, "path longer than 4095 bytes"));
            return Ok(());
        }
        match kind {
            EntryKind::Directory => return self.add_upper_folder(context, &key),
            EntryKind::Link => self.uncommittable.push((key, "symbolic link")),
            EntryKind::File => self.add_upper_file(key)?,
        }
        Ok(())
    }

    fn add_upper_folder(&mut self, context: &RequestContext, folder: &Key) -> Result<()> {
        let names = self.layered.layer.dir.names(folder)?;
        if names.is_empty() && !folder.is_root() && !self.is_in_store(context, folder)? {
            self.uncommittable.push((folder.clone(), "empty directory"));
        } else if !folder.is_root() {
            self.add_lost(folder)?;
        }
        for (name, kind) in names {
            self.add_upper(context, folder.child(&name)?, kind)?;
        }
        Ok(())
    }

    /// Whether the store has a folder of this name that is visible and was not renamed.
    fn is_in_store(&self, context: &RequestContext, folder: &Key) -> Result<bool> {
        let is_own = self.layered.layer.lower_key(folder).as_ref() == Some(folder);
        Ok(is_own && self.layered.lower.head(context, folder)?.is_some())
    }

    fn add_upper_file(&mut self, key: Key) -> Result<()> {
        let state = self.layered.layer.lock();
        let base = state.records.base(&key);
        let is_incomplete = state.records.is_incomplete(&key);
        drop(state);
        if is_incomplete {
            self.uncommittable.push((key, "incomplete file"));
        } else if base.is_none_or(|base| !base.is_committed)
            && let Some(size) = self.layered.layer.complete_file_size(&key)?
        {
            let base = base.map_or(BaseState::Unseen, state_of_base);
            self.add_lost(&key)?;
            self.add(key, ChangeAction::Put(size), base);
        }
        Ok(())
    }

    /// Notes that a file or folder has properties which no store can hold, and which a commit therefore drops.
    fn add_lost(&mut self, key: &Key) -> Result<()> {
        // If the file is only a copy of the store's content, its attributes stay in the journal and are not lost.
        let overrides = self.layered.layer.attribute_override(key)?;
        if overrides.is_none() && self.layered.layer.dir.has_own_xattrs(key)? {
            self.lost.push((key.clone(), "extended attributes"));
        }
        Ok(())
    }

    /// Adds a removal for each of `objects` that is hidden by a whiteout and has no file in its place.
    fn add_hidden(&mut self, context: &RequestContext, objects: &[Key]) -> Result<()> {
        for key in objects {
            if !self.keys.contains_key(key) && !self.shows_file(context, key)? {
                let base = self.base_state(key, BaseState::Unseen);
                self.add(key.clone(), ChangeAction::Erase, base);
            }
        }
        Ok(())
    }

    /// Adds a copy for each object of the renamed subtree `moved` that is visible at or below `at`.
    fn add_moved(
        &mut self,
        context: &RequestContext,
        at: &Key,
        moved: &MovedSubtree,
    ) -> Result<()> {
        for (from, meta) in &moved.stored.objects {
            let Some(key) = moved.visible_key(self.layered, from, at) else {
                continue;
            };
            if self.layered.layer.dir.stat(&key)?.is_some() {
                continue;
            }
            let size = match meta {
                Some(meta) => meta.size,
                None => self
                    .layered
                    .lower
                    .head(context, from)?
                    .map_or(0, |meta| meta.size),
            };
            // The first change of a key records the store's version. Without a record, the store had no object at this
            // key.
            let base = self.base_state(&key, BaseState::Known(None));
            let from = from.clone();
            self.add(key, ChangeAction::Copy { from, size }, base);
        }
        Ok(())
    }

    /// Returns the recorded state of a key in the store before the change. If nothing was recorded and the key was not
    /// renamed, returns `otherwise`.
    fn base_state(&self, key: &Key, otherwise: BaseState) -> BaseState {
        match self.layered.layer.base(key) {
            Some(base) => state_of_base(base),
            None if self.moved.iter().any(|of| key.below(of).is_some()) => BaseState::Moved,
            None => otherwise,
        }
    }

    /// Whether the mount shows a regular file at a key.
    fn shows_file(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if let Some(kind) = self.layered.layer.dir.kind(key)? {
            return Ok(kind == EntryKind::File);
        }
        match self.layered.layer.lower_key(key) {
            None => Ok(false),
            Some(lower) if lower == *key => Ok(true),
            Some(lower) => {
                let meta = self.layered.lower.head(context, &lower)?;
                Ok(meta.is_some_and(|meta| meta.kind == EntryKind::File))
            }
        }
    }
}
