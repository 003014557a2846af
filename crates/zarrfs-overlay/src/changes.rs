//! Lists the upper folder's changes: keys to put or erase, and uncommittable keys.
//!
//! Only complete files are listed: a file that is being written waits for a later commit. This module changes nothing.

use std::collections::{BTreeMap, HashSet};

use crate::layer::ChangeLayer;
use crate::layer_dir::is_too_long;
use crate::layered_store::LayeredStore;
use crate::listing::{Subtree, list_recursive};
use crate::records::{BaseVersion, Whiteout, joined};
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, StoreVersion, Version};

/// The action of a commit on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// Put the upper folder's content, of this length in bytes.
    Put(u64),
    /// Put the content that the store has under another key.
    Copy {
        /// The other key.
        from: Key,
        /// The content's length in bytes.
        size: u64,
    },
    /// Remove the key.
    Erase,
}

/// The store's state of a key before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseState {
    /// The store's version was never seen.
    Unseen,
    /// The version when the key was first changed; `None` if the key was missing.
    Known(Option<StoreVersion>),
    /// The store's object is visible under another name, so its version does not matter.
    Moved,
    /// A frozen layer has the key. The commit of that layer comes first and determines the store's version.
    Frozen,
}

/// A changed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: Key,
    /// The action of a commit on the key.
    pub action: ChangeAction,
    /// The store's state before the change.
    pub base: BaseState,
}

impl ChangedKey {
    /// Whether the store did not have the key.
    pub fn is_new(&self) -> bool {
        self.base == BaseState::Known(None)
    }

    /// Returns the number of bytes that a commit writes.
    pub fn bytes(&self) -> u64 {
        match self.action {
            ChangeAction::Put(size) | ChangeAction::Copy { size, .. } => size,
            ChangeAction::Erase => 0,
        }
    }
}

/// Keys that cannot be committed now, each with the reason.
pub type KeysWithReason = Vec<(Key, &'static str)>;

/// All changes of the upper folder.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// Keys, in order.
    pub keys: Vec<ChangedKey>,
    /// Keys that stay in the upper folder, each with the reason.
    pub uncommittable: KeysWithReason,
    /// Keys with properties that no store can hold and that a commit drops, each with these properties.
    pub lost: KeysWithReason,
    /// The keys that belong to a commit that began and did not finish; the next commit continues with them.
    pub frozen: HashSet<Key>,
}

/// A whiteout, and the objects and folders of the store that it covers.
pub(crate) struct HiddenSubtree {
    pub(crate) at: Key,
    /// The objects at and below it.
    objects: Vec<Key>,
    /// The folders at and below it, each before the folders in it.
    pub(crate) folders: Vec<Key>,
    /// The place that a rename moved the subtree from.
    pub(crate) moved: Option<MovedSubtree>,
}

impl HiddenSubtree {
    /// Lists the objects and folders of the store below the whiteouts at and below these paths.
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

/// A subtree of the store that is visible under another name.
pub(crate) struct MovedSubtree {
    pub(crate) source: Key,
    pub(crate) stored: Subtree,
}

impl MovedSubtree {
    /// Returns the key at or below `at` where the store's key `from` is visible, or `None` if it is not visible there,
    /// or is visible under its own name.
    pub(crate) fn visible_key(&self, layered: &LayeredStore, from: &Key, at: &Key) -> Option<Key> {
        let key = joined(at, &from.below(&self.source)?);
        let shows = key != *from && layered.layer.lower_key(&key).as_ref() == Some(from);
        shows.then_some(key)
    }
}

impl ChangeSet {
    /// Returns the differences from the store, in the top layer and in a frozen layer.
    pub(crate) fn of_overlay(top: &LayeredStore, context: &RequestContext) -> Result<ChangeSet> {
        let changes = ChangeSet::of_layer(top, context)?;
        match &top.frozen {
            None => Ok(changes),
            Some(frozen) => Ok(changes.over(ChangeSet::of_layer(frozen, context)?)),
        }
    }

    /// Returns the differences of one layer from the store below.
    pub(crate) fn of_layer(layered: &LayeredStore, context: &RequestContext) -> Result<ChangeSet> {
        let all = [Key::root()];
        let hidden = HiddenSubtree::list(layered, context, &all)?;
        ChangeSet::at(layered, context, &all, &hidden)
    }

    /// Returns the differences from the store below at and below these paths. `hidden` is the result of
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

    /// Returns the combination of these changes and the changes of the layer below.
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
                // The store may not have the source yet: the layer below may put it. So the content is put, not copied.
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

/// Returns the keys at and below these paths on which only attributes were set: no store can hold these.
pub(crate) fn keys_with_attributes(layer: &ChangeLayer, paths: &[Key]) -> Result<KeysWithReason> {
    let mut found = KeysWithReason::new();
    for path in paths {
        let keys = layer.keys_with_attributes(path)?.into_iter();
        found.extend(keys.map(|key| (key, "owner, mode, times or extended attributes")));
    }
    Ok(found)
}

impl BaseState {
    /// Whether the store's version is the same as before the change; `None` means that the key is missing.
    pub(crate) fn is(self, now: Option<Version>) -> bool {
        matches!(self, BaseState::Known(base) if base.map(Version::from) == now)
    }

    /// Whether the server sent no ETag for the version before the change.
    pub(crate) fn has_no_etag(self) -> bool {
        matches!(self, BaseState::Known(Some(base)) if !Version::from(base).is_lasting())
    }

    /// Whether `now` may be the version that the store had before the change. Versions without an ETag are compared by
    /// size and time.
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

/// Collects changes; each key is listed once.
struct ChangeCollector<'a> {
    layered: &'a LayeredStore,
    /// Keys of the store that are visible under another name, with everything below them.
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

    /// Adds the upper folder's files at and below a key.
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

    /// Whether the store has a folder of the same name at this place.
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

    /// Records the properties of a file or folder that no store can hold, so that a commit drops them.
    fn add_lost(&mut self, key: &Key) -> Result<()> {
        // If the file is only a copy of the store's content, its attributes stay in the journal and are not lost.
        let overrides = self.layered.layer.attribute_override(key)?;
        if overrides.is_none() && self.layered.layer.dir.has_own_xattrs(key)? {
            self.lost.push((key.clone(), "extended attributes"));
        }
        Ok(())
    }

    /// Adds the keys of the store that a whiteout hides and that no file replaces.
    fn add_hidden(&mut self, context: &RequestContext, objects: &[Key]) -> Result<()> {
        for key in objects {
            if !self.keys.contains_key(key) && !self.shows_file(context, key)? {
                let base = self.base_state(key, BaseState::Unseen);
                self.add(key.clone(), ChangeAction::Erase, base);
            }
        }
        Ok(())
    }

    /// Adds the keys at and below `at` where objects are visible that the store has under other keys.
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
            // If no base was recorded, the store had no object at this key.
            let base = self.base_state(&key, BaseState::Known(None));
            let from = from.clone();
            self.add(key, ChangeAction::Copy { from, size }, base);
        }
        Ok(())
    }

    /// Returns the base of a key, or `otherwise` if no version was recorded and the key did not move.
    fn base_state(&self, key: &Key, otherwise: BaseState) -> BaseState {
        match self.layered.layer.base(key) {
            Some(base) => state_of_base(base),
            None if self.moved.iter().any(|of| key.below(of).is_some()) => BaseState::Moved,
            None => otherwise,
        }
    }

    /// Whether a file, which a store can hold, is visible at a key.
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
