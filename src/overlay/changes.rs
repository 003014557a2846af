//! What the upper folder would change in the store: keys to put, keys to erase, and what no key can hold.
//!
//! Only complete files count: a file that is being written is left for a later commit. Nothing is changed here.

use std::collections::BTreeMap;

use rustix::fs::FileType;

use super::listing::{Subtree, list_recursive};
use super::records::joined;
use super::{Overlay, OverlayCore};
use crate::error::Result;
use crate::store::{EntryKind, Key, Version};

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
    Known(Option<Version>),
    /// What the store has shows under another name: its version does not matter.
    Moved,
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
}

/// A whiteout, and what the store has there.
pub(super) struct HiddenSubtree {
    pub(super) at: Key,
    /// The objects at and below it.
    objects: Vec<Key>,
    /// Where a rename left it.
    pub(super) moved: Option<MovedSubtree>,
}

/// What of the store shows under another name.
pub(super) struct MovedSubtree {
    pub(super) source: Key,
    pub(super) stored: Subtree,
}

impl Overlay {
    /// Returns what differs from the store. Lists the store where something was renamed or whole folders were
    /// removed; `Unsupported` if the store cannot list its keys.
    pub fn changes(&self) -> Result<ChangeSet> {
        let all = [Key::root()];
        self.0.changes_at(&all, &self.0.list_hidden(&all)?)
    }
}

impl OverlayCore {
    /// Lists what the store has where whiteouts at these paths and below are.
    pub(super) fn list_hidden(&self, paths: &[Key]) -> Result<Vec<HiddenSubtree>> {
        let mut found = Vec::new();
        for (at, source) in paths.iter().flat_map(|path| self.whiteouts(path)) {
            let objects = list_recursive(&*self.lower, &at)?.objects;
            let moved = match source {
                None => None,
                Some(source) => Some(MovedSubtree {
                    stored: list_recursive(&*self.lower, &source)?,
                    source,
                }),
            };
            found.push(HiddenSubtree {
                at,
                objects: objects.into_iter().map(|(key, _)| key).collect(),
                moved,
            });
        }
        Ok(found)
    }

    /// Returns what differs from the store at these paths and below, given what `list_hidden` found there.
    pub(super) fn changes_at(&self, paths: &[Key], hidden: &[HiddenSubtree]) -> Result<ChangeSet> {
        let whiteouts = self.whiteouts(&Key::root());
        let mut collector = ChangeCollector {
            core: self,
            moved: whiteouts
                .into_iter()
                .filter_map(|(_, source)| source)
                .collect(),
            keys: BTreeMap::new(),
            kept: Vec::new(),
        };
        for path in paths {
            if let Some(kind) = self.upper_kind(path)? {
                collector.add_upper(path.clone(), kind)?;
            }
        }
        for subtree in hidden {
            collector.add_hidden(&subtree.objects)?;
            if let Some(moved) = &subtree.moved {
                collector.add_moved(&subtree.at, moved)?;
            }
        }
        Ok(ChangeSet {
            keys: collector.keys.into_values().collect(),
            kept: collector.kept,
        })
    }

    /// Returns the key below `at` that shows `from`, which is below `source`; `None` if another one shows there, or
    /// the key is where it was.
    pub(super) fn moved_key(&self, from: &Key, source: &Key, at: &Key) -> Option<Key> {
        let key = joined(at, &from.below(source)?);
        let shows = key != *from && self.lower_key(&key).as_ref() == Some(from);
        shows.then_some(key)
    }

    fn upper_kind(&self, key: &Key) -> Result<Option<EntryKind>> {
        let stat = self.upper.stat(key)?;
        Ok(stat.map(|stat| self.meta(key, &stat).kind))
    }

    /// Returns the length in bytes of a file of the upper folder, if it is there and complete.
    fn complete_file_size(&self, key: &Key) -> Result<Option<u64>> {
        let is_incomplete = self.state.lock().records.is_incomplete(key);
        let stat = self.upper.stat(key)?.filter(|stat| {
            !is_incomplete && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        });
        Ok(stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0)))
    }
}

/// Collects changes; each key is listed once.
struct ChangeCollector<'a> {
    core: &'a OverlayCore,
    /// Keys of the store that show under another name; so does all that is below them.
    moved: Vec<Key>,
    keys: BTreeMap<Key, ChangedKey>,
    kept: KeptKeys,
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
    fn add_upper(&mut self, key: Key, kind: EntryKind) -> Result<()> {
        match kind {
            EntryKind::Directory => return self.add_upper_folder(&key),
            EntryKind::Link => self.kept.push((key, "a symbolic link")),
            EntryKind::Pipe | EntryKind::Socket => self.kept.push((key, "a pipe or socket")),
            EntryKind::File => self.add_upper_file(key)?,
        }
        Ok(())
    }

    fn add_upper_folder(&mut self, folder: &Key) -> Result<()> {
        let names = self.core.upper_names(folder)?;
        if names.is_empty() && !folder.is_root() && self.core.find_lower(folder)?.is_none() {
            self.kept.push((folder.clone(), "an empty folder"));
        }
        for (name, kind) in names {
            self.add_upper(folder.child(&name)?, kind)?;
        }
        Ok(())
    }

    fn add_upper_file(&mut self, key: Key) -> Result<()> {
        let state = self.core.state.lock();
        let base = state.records.base(&key);
        let kept = if state.failed_writes.contains(&key) {
            Some("a file that could not be written whole")
        } else if state.records.is_incomplete(&key) {
            Some("a file that is being written")
        } else if base.is_some_and(|base| base.same_content && !base.is_committed) {
            Some("owner, mode or times")
        } else {
            None
        };
        drop(state);
        if let Some(why) = kept {
            self.kept.push((key, why));
        } else if base.is_none_or(|base| !base.is_committed)
            && let Some(size) = self.core.complete_file_size(&key)?
        {
            let base = base.map_or(BaseState::Unseen, |base| BaseState::Known(base.version));
            self.add(key, ChangeAction::Put(size), base);
        }
        Ok(())
    }

    /// Adds those keys of the store that a whiteout hides and for which nothing else shows.
    fn add_hidden(&mut self, objects: &[Key]) -> Result<()> {
        for key in objects {
            if !self.keys.contains_key(key) && !self.shows_file(key)? {
                let base = self.base_state(key, BaseState::Unseen);
                self.add(key.clone(), ChangeAction::Erase, base);
            }
        }
        Ok(())
    }

    /// Adds the keys at and below `at` that show what the store has elsewhere.
    fn add_moved(&mut self, at: &Key, moved: &MovedSubtree) -> Result<()> {
        for (from, meta) in &moved.stored.objects {
            let Some(key) = self.core.moved_key(from, &moved.source, at) else {
                continue;
            };
            if self.core.upper.stat(&key)?.is_some() {
                continue;
            }
            let size = match meta {
                Some(meta) => meta.size,
                None => self.core.lower.head(from)?.map_or(0, |meta| meta.size),
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
        match self.core.base(key) {
            Some(base) => BaseState::Known(base.version),
            None if self.moved.iter().any(|of| key.below(of).is_some()) => BaseState::Moved,
            None => otherwise,
        }
    }

    /// Whether a key shows something that a key of a store can hold.
    fn shows_file(&self, key: &Key) -> Result<bool> {
        if let Some(kind) = self.core.upper_kind(key)? {
            return Ok(kind == EntryKind::File);
        }
        match self.core.lower_key(key) {
            None => Ok(false),
            Some(lower) if lower == *key => Ok(true),
            Some(lower) => {
                let meta = self.core.lower.head(&lower)?;
                Ok(meta.is_some_and(|meta| meta.kind == EntryKind::File))
            }
        }
    }
}
