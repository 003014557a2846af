//! What the upper folder would change in the store: keys to put, keys to erase, and what no key can hold.
//!
//! Only complete files count: a file that is being written is left for a later commit. Nothing is changed here.

use std::collections::{BTreeMap, HashSet};

use super::Overlay;
use super::key_ranges::joined;
use super::keys_dir::is_too_long;
use super::layered_store::LayeredStore;
use super::listing::{Subtree, list_recursive};
use super::records::BaseVersion;
use zarr_format::error::Result;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{EntryKind, Key, StoreVersion, Version};

/// What a commit does to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeAction {
    /// It gets the upper folder's content, of this length in bytes.
    Put(u64),
    /// It gets what the store has under another key.
    Copy {
        /// The other key.
        from: Key,
        /// The content's length in bytes.
        size: u64,
    },
    /// It is removed.
    Erase,
}

/// What is known of the store's state of a key before the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseState {
    /// The store's version was never seen.
    Unseen,
    /// The version when the key was first changed; `None` if the key was missing.
    Known(Option<StoreVersion>),
    /// What the store has shows under another name: its version does not matter.
    Moved,
    /// What a frozen layer has: its commit comes first, and tells the version.
    Frozen,
}

/// A key that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: Key,
    /// What a commit does to it.
    pub action: ChangeAction,
    /// What the store had there before.
    pub base: BaseState,
}

impl ChangedKey {
    /// Whether the store did not have the key.
    pub fn is_new(&self) -> bool {
        self.base == BaseState::Known(None)
    }

    /// Returns how many bytes a commit writes.
    pub fn bytes(&self) -> u64 {
        match self.action {
            ChangeAction::Put(size) | ChangeAction::Copy { size, .. } => size,
            ChangeAction::Erase => 0,
        }
    }
}

/// What of the upper folder cannot be committed now, and why.
pub type KeptKeys = Vec<(Key, &'static str)>;

/// Everything that the upper folder changes in the store.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// Keys, in order.
    pub keys: Vec<ChangedKey>,
    /// What stays in the upper folder, and why.
    pub kept: KeptKeys,
    /// What no store can hold and is gone after a commit: the keys, and what of them.
    pub lost: KeptKeys,
    /// Those of the keys with which a commit began that did not finish; the next one goes on with them.
    pub frozen: HashSet<Key>,
}

/// A whiteout, and what the store has there.
pub(super) struct HiddenSubtree {
    pub(super) at: Key,
    /// The objects at and below it.
    objects: Vec<Key>,
    /// The folders at and below it, each before those in it.
    pub(super) folders: Vec<Key>,
    /// Where a rename left it.
    pub(super) moved: Option<MovedSubtree>,
}

/// What of the store shows under another name.
pub(super) struct MovedSubtree {
    pub(super) source: Key,
    pub(super) stored: Subtree,
}

impl Overlay {
    /// Returns what differs from the store, in the layer that programs change and in one that a commit has frozen. Lists
    /// the store where something was renamed or whole folders were removed: of a store that cannot list its keys, what
    /// is known to be there.
    pub fn changes(&self, context: &RequestContext) -> Result<ChangeSet> {
        let top = self.0.top();
        let changes = top.changes(context)?;
        match &top.frozen {
            None => Ok(changes),
            Some(frozen) => Ok(changes.over(frozen.changes(context)?)),
        }
    }
}

impl ChangeSet {
    /// Returns what these changes and those of the layer below them are together.
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
                // The source may be what the layer below puts.
                change.action = ChangeAction::Put(size);
            }
            let is_undone = change.action == ChangeAction::Erase && change.is_new();
            if !is_undone {
                keys.insert(change.key.clone(), change);
            }
        }
        let together = |mut below: KeptKeys, above: KeptKeys| {
            below.extend(above);
            below.sort();
            below.dedup_by(|one, other| one.0 == other.0);
            below
        };
        ChangeSet {
            frozen,
            keys: keys.into_values().collect(),
            kept: together(below.kept, self.kept),
            lost: together(below.lost, self.lost),
        }
    }
}

impl LayeredStore {
    /// Returns what differs from the store below.
    pub(super) fn changes(&self, context: &RequestContext) -> Result<ChangeSet> {
        let all = [Key::root()];
        self.changes_at(context, &all, &self.list_hidden(context, &all)?)
    }

    /// Returns what no key of a store can hold, and why it stays in the layer.
    pub(super) fn kept(&self, context: &RequestContext) -> Result<KeptKeys> {
        Ok(self.changes(context)?.kept)
    }

    /// Lists what the store has where whiteouts at these paths and below are.
    pub(super) fn list_hidden(
        &self,
        context: &RequestContext,
        paths: &[Key],
    ) -> Result<Vec<HiddenSubtree>> {
        let mut found = Vec::new();
        for (at, source) in paths.iter().flat_map(|path| self.layer.whiteouts(path)) {
            let stored = list_recursive(context, &*self.lower, &at)?;
            let objects = stored.objects.into_iter().map(|(key, _)| key).collect();
            let moved = match source {
                None => None,
                Some(source) => Some(MovedSubtree {
                    stored: list_recursive(context, &*self.lower, &source)?,
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

    /// Returns what differs from the store at these paths and below, given what `list_hidden` found there.
    pub(super) fn changes_at(
        &self,
        context: &RequestContext,
        paths: &[Key],
        hidden: &[HiddenSubtree],
    ) -> Result<ChangeSet> {
        let whiteouts = self.layer.whiteouts(&Key::root());
        let mut collector = ChangeCollector {
            layered: self,
            moved: whiteouts
                .into_iter()
                .filter_map(|(_, source)| source)
                .collect(),
            keys: BTreeMap::new(),
            kept: Vec::new(),
            lost: Vec::new(),
        };
        for path in paths {
            if let Some(kind) = self.layer.keys.kind(path)? {
                collector.add_upper(context, path.clone(), kind)?;
            }
        }
        for subtree in hidden {
            collector.add_hidden(context, &subtree.objects)?;
            if let Some(moved) = &subtree.moved {
                collector.add_moved(context, &subtree.at, moved)?;
            }
        }
        collector.kept.extend(self.keys_with_attributes(paths)?);
        Ok(ChangeSet {
            keys: collector.keys.into_values().collect(),
            kept: collector.kept,
            lost: collector.lost,
            frozen: HashSet::new(),
        })
    }

    /// Returns the keys at these paths and below of which attributes alone were set: no store can hold those.
    pub(super) fn keys_with_attributes(&self, paths: &[Key]) -> Result<KeptKeys> {
        let mut kept = KeptKeys::new();
        for path in paths {
            let keys = self.layer.keys_with_attributes(path)?.into_iter();
            kept.extend(keys.map(|key| (key, "owner, mode, times or extended attributes")));
        }
        Ok(kept)
    }

    /// Returns the key below `at` that shows `from`, which is below `source`; `None` if another one shows there, or
    /// the key is where it was.
    pub(super) fn moved_key(&self, from: &Key, source: &Key, at: &Key) -> Option<Key> {
        let key = joined(at, &from.below(source)?);
        let shows = key != *from && self.layer.lower_key(&key).as_ref() == Some(from);
        shows.then_some(key)
    }
}

impl BaseState {
    /// Whether the store has what it had before the change: this version, or nothing.
    pub(super) fn is(self, now: Option<Version>) -> bool {
        matches!(self, BaseState::Known(base) if base.map(Version::from) == now)
    }

    /// Whether the server sent no ETag of what it had.
    pub(super) fn lacks_etag(self) -> bool {
        matches!(self, BaseState::Known(Some(base)) if !Version::from(base).is_lasting())
    }

    /// Whether the store has what it had before the change, by size and time of an object without ETag.
    pub(super) fn may_be(self, now: Version) -> bool {
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
    /// Keys of the store that show under another name; so does all that is below them.
    moved: Vec<Key>,
    keys: BTreeMap<Key, ChangedKey>,
    kept: KeptKeys,
    lost: KeptKeys,
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

    /// Adds what the upper folder has at a key and below.
    fn add_upper(&mut self, context: &RequestContext, key: Key, kind: EntryKind) -> Result<()> {
        if is_too_long(&key) {
            self.kept.push((key, "a path of more than 4095 bytes"));
            return Ok(());
        }
        match kind {
            EntryKind::Directory => return self.add_upper_folder(context, &key),
            EntryKind::Link => self.kept.push((key, "a symbolic link")),
            EntryKind::File => self.add_upper_file(key)?,
        }
        Ok(())
    }

    fn add_upper_folder(&mut self, context: &RequestContext, folder: &Key) -> Result<()> {
        let names = self.layered.layer.keys.names(folder)?;
        if names.is_empty() && !folder.is_root() && !self.is_in_store(context, folder)? {
            self.kept.push((folder.clone(), "an empty folder"));
        } else if !folder.is_root() {
            self.add_lost(folder)?;
        }
        for (name, kind) in names {
            self.add_upper(context, folder.child(&name)?, kind)?;
        }
        Ok(())
    }

    /// Whether the store has a folder under its own name.
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
            self.kept.push((key, "a file that is not written whole"));
        } else if base.is_none_or(|base| !base.is_committed)
            && let Some(size) = self.layered.layer.complete_file_size(&key)?
        {
            let base = base.map_or(BaseState::Unseen, state_of_base);
            self.add_lost(&key)?;
            self.add(key, ChangeAction::Put(size), base);
        }
        Ok(())
    }

    /// Adds what no store can hold of a file that is put, or of a folder.
    fn add_lost(&mut self, key: &Key) -> Result<()> {
        // Those of a copy are kept without it.
        let kept = self.layered.layer.kept_attributes(key)?;
        if kept.is_none() && self.layered.layer.keys.has_own_xattrs(key)? {
            self.lost.push((key.clone(), "extended attributes"));
        }
        Ok(())
    }

    /// Adds those keys of the store that a whiteout hides and for which nothing else shows.
    fn add_hidden(&mut self, context: &RequestContext, objects: &[Key]) -> Result<()> {
        for key in objects {
            if !self.keys.contains_key(key) && !self.shows_file(context, key)? {
                let base = self.base_state(key, BaseState::Unseen);
                self.add(key.clone(), ChangeAction::Erase, base);
            }
        }
        Ok(())
    }

    /// Adds the keys at and below `at` that show what the store has elsewhere.
    fn add_moved(
        &mut self,
        context: &RequestContext,
        at: &Key,
        moved: &MovedSubtree,
    ) -> Result<()> {
        for (from, meta) in &moved.stored.objects {
            let Some(key) = self.layered.moved_key(from, &moved.source, at) else {
                continue;
            };
            if self.layered.layer.keys.stat(&key)?.is_some() {
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
            // Without a base there was nothing at the key that would have been hidden.
            let base = self.base_state(&key, BaseState::Known(None));
            let from = from.clone();
            self.add(key, ChangeAction::Copy { from, size }, base);
        }
        Ok(())
    }

    /// Returns the base of a key, or `otherwise` if neither a version was recorded nor the key moved.
    fn base_state(&self, key: &Key, otherwise: BaseState) -> BaseState {
        match self.layered.layer.base(key) {
            Some(base) => state_of_base(base),
            None if self.moved.iter().any(|of| key.below(of).is_some()) => BaseState::Moved,
            None => otherwise,
        }
    }

    /// Whether a key shows something that a key of a store can hold.
    fn shows_file(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        if let Some(kind) = self.layered.layer.keys.kind(key)? {
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
