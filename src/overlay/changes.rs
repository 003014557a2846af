//! What the upper folder would change in the store: keys to put, keys to erase, and what no key can hold.
//!
//! Only what is whole counts: files that are being written are left for later. Nothing is changed here.

use std::collections::BTreeMap;

use rustix::fs::FileType;

use super::below::stored_below;
use super::records::joined;
use super::{BaseVersion, Overlay, Shared};
use crate::error::Result;
use crate::store::{EntryKind, Key, Version};

/// What happens to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It gets the upper folder's content, of so many bytes.
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

/// What the store held under a key before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseState {
    /// That was never seen.
    Unseen,
    /// This, when the key was first changed; nothing if it was missing.
    Held(Option<Version>),
    /// Whatever it is, it shows under another name.
    Moved,
}

/// A key that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: Key,
    /// What happens to it.
    pub what: What,
    /// What the store held there.
    pub before: BaseState,
}

impl ChangedKey {
    /// Whether the store did not have the key.
    pub fn is_new(&self) -> bool {
        self.before == BaseState::Held(None)
    }

    /// How many bytes are written.
    pub fn bytes(&self) -> u64 {
        match self.what {
            What::Put(size) | What::Copy { size, .. } => size,
            What::Erase => 0,
        }
    }
}

/// Everything that the upper folder has for the store.
#[derive(Clone, Debug, Default)]
pub struct ChangeSet {
    /// Keys, in order.
    pub keys: Vec<ChangedKey>,
    /// What stays in the upper folder, and why.
    pub kept: Vec<(Key, &'static str)>,
}

impl Overlay {
    /// Returns what differs from the store. Names of the store are listed where something was renamed or whole
    /// folders were removed; `Unsupported` if the store cannot do that.
    pub fn changes(&self) -> Result<ChangeSet> {
        self.0.changes_at(&[Key::root()])
    }
}

impl Shared {
    pub(super) fn known(&self, key: &Key) -> Option<BaseVersion> {
        self.state.lock().records.held(key)
    }

    /// Returns what differs from the store at these paths and below.
    pub(super) fn changes_at(&self, paths: &[Key]) -> Result<ChangeSet> {
        let mut found = ChangeSet::default();
        let mut keys: BTreeMap<Key, ChangedKey> = BTreeMap::new();
        for path in paths {
            if let Some(stat) = self.upper.stat(path)? {
                let kind = self.meta(path, &stat).kind;
                self.upper_change(path.clone(), kind, &mut keys, &mut found.kept)?;
            }
            let whiteouts = self.state.lock().records.whiteouts(path);
            for (at, of) in whiteouts {
                self.hidden_changes(&at, &mut keys)?;
                if let Some(of) = of {
                    self.moved_changes(&at, &of, &mut keys)?;
                }
            }
        }
        found.keys = keys.into_values().collect();
        Ok(found)
    }

    /// Adds the files that the upper folder has in a folder and below.
    fn upper_changes(
        &self,
        folder: &Key,
        keys: &mut BTreeMap<Key, ChangedKey>,
        kept: &mut Vec<(Key, &'static str)>,
    ) -> Result<()> {
        let names = self.upper_names(folder)?;
        if names.is_empty() && !folder.is_root() && self.find_lower(folder)?.is_none() {
            kept.push((folder.clone(), "an empty folder"));
        }
        for (name, kind) in names {
            self.upper_change(folder.child(&name)?, kind, keys, kept)?;
        }
        Ok(())
    }

    /// Adds what the upper folder has of a key.
    fn upper_change(
        &self,
        key: Key,
        kind: EntryKind,
        keys: &mut BTreeMap<Key, ChangedKey>,
        kept: &mut Vec<(Key, &'static str)>,
    ) -> Result<()> {
        match kind {
            EntryKind::Directory => return self.upper_changes(&key, keys, kept),
            EntryKind::Link => kept.push((key, "a symbolic link")),
            EntryKind::Pipe | EntryKind::Socket => kept.push((key, "a pipe or socket")),
            EntryKind::File => {
                let known = self.known(&key);
                let state = self.state.lock();
                let (is_born, is_torn) =
                    (state.records.is_born(&key), state.torn.contains_key(&key));
                drop(state);
                match known {
                    _ if is_torn => kept.push((key, "a file that could not be written whole")),
                    _ if is_born => kept.push((key, "a file that is being written")),
                    Some(held) if held.sent => {}
                    Some(held) if held.same => kept.push((key, "owner, mode or times")),
                    known => {
                        let change = self.put(key, known)?;
                        keys.extend(change.map(|change| (change.key.clone(), change)));
                    }
                }
            }
        }
        Ok(())
    }

    fn put(&self, key: Key, known: Option<BaseVersion>) -> Result<Option<ChangedKey>> {
        let Some(stat) = self.upper.stat(&key)? else {
            return Ok(None);
        };
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(is_file.then(|| ChangedKey {
            key,
            what: What::Put(u64::try_from(stat.st_size).unwrap_or(0)),
            before: known.map_or(BaseState::Unseen, |held| BaseState::Held(held.version)),
        }))
    }

    /// Adds the store's keys that a whiteout hides.
    fn hidden_changes(&self, at: &Key, keys: &mut BTreeMap<Key, ChangedKey>) -> Result<()> {
        let moved = self.moved();
        let is_moved = |key: &Key| moved.iter().any(|of| key.below(of).is_some());
        for (key, _) in stored_below(&*self.lower, at)? {
            if keys.contains_key(&key) || self.shows_file(&key)? {
                continue;
            }
            let before = match self.known(&key) {
                Some(held) => BaseState::Held(held.version),
                None if is_moved(&key) => BaseState::Moved,
                None => BaseState::Unseen,
            };
            let what = What::Erase;
            keys.insert(key.clone(), ChangedKey { key, what, before });
        }
        Ok(())
    }

    /// Returns what of the store shows under another name.
    fn moved(&self) -> Vec<Key> {
        let whiteouts = self.state.lock().records.whiteouts(&Key::root());
        whiteouts.into_iter().filter_map(|(_, of)| of).collect()
    }

    /// Whether something that a key can hold is shown there.
    fn shows_file(&self, key: &Key) -> Result<bool> {
        if let Some(stat) = self.upper.stat(key)? {
            return Ok(self.meta(key, &stat).kind == EntryKind::File);
        }
        match self.lower_key(key) {
            None => Ok(false),
            Some(lower) if lower == *key => Ok(true),
            Some(lower) => {
                let meta = self.lower.head(&lower)?;
                Ok(meta.is_some_and(|meta| meta.kind == EntryKind::File))
            }
        }
    }

    /// Adds the keys that show what the store has under others.
    fn moved_changes(
        &self,
        at: &Key,
        of: &Key,
        keys: &mut BTreeMap<Key, ChangedKey>,
    ) -> Result<()> {
        let moved = self.moved();
        let is_moved = |key: &Key| moved.iter().any(|of| key.below(of).is_some());
        for (from, meta) in stored_below(&*self.lower, of)? {
            let Some(rest) = from.below(of) else { continue };
            let key = joined(at, &rest);
            // It was renamed, and back.
            if key == from {
                continue;
            }
            if self.lower_key(&key).as_ref() != Some(&from) || self.upper.stat(&key)?.is_some() {
                continue;
            }
            let before = match self.known(&key) {
                Some(held) => BaseState::Held(held.version),
                None if is_moved(&key) => BaseState::Moved,
                // There was nothing that would have been hidden.
                None => BaseState::Held(None),
            };
            let size = match meta {
                Some(meta) => meta.size,
                None => self.lower.head(&from)?.map_or(0, |meta| meta.size),
            };
            let what = What::Copy { from, size };
            keys.insert(key.clone(), ChangedKey { key, what, before });
        }
        Ok(())
    }
}
