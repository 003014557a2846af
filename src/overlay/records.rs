//! What the journal's records mean together: which keys of the store are hidden, which stand for others, and what
//! the store held when a key was first changed.
//!
//! A whiteout hides the store's key and all below it, or has another prefix of the store stand there instead
//! (something that was renamed). What the upper folder itself has is shown in any case.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use crate::overlay::journal::JournalRecord;
use crate::store::{Key, Version};

/// What is known of a key that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseVersion {
    /// What the store held when it was first changed; nothing if the key was missing.
    pub version: Option<Version>,
    /// The upper folder's content is still the store's: only attributes were changed.
    pub same: bool,
    /// It was committed: the upper folder need not have it any more.
    pub sent: bool,
}

/// All that the records say.
#[derive(Debug, Default)]
pub(super) struct Records {
    held: HashMap<Key, BaseVersion>,
    white: BTreeMap<Key, Option<Key>>,
    born: HashSet<Key>,
    moving: Option<(Key, Key, bool)>,
}

impl Records {
    /// Takes one record in.
    pub(super) fn apply(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Held { key, version, same } => {
                let sent = false;
                let new = BaseVersion {
                    version,
                    same,
                    sent,
                };
                let held = self.held.entry(key).or_insert(new);
                held.same &= same;
                held.sent &= same;
            }
            JournalRecord::Sent { key, version } => {
                let held = BaseVersion {
                    version: Some(version),
                    same: true,
                    sent: true,
                };
                self.held.insert(key, held);
            }
            JournalRecord::Let(key) => {
                self.held.remove(&key);
            }
            JournalRecord::White { key, of } => {
                self.white.remove(&key);
                // What was renamed back is where it was.
                let is_back = of.as_ref() == Some(&key) && self.lower(&key) == of;
                if !is_back {
                    self.white.insert(key, of);
                }
            }
            JournalRecord::Show(key) => {
                self.white.remove(&key);
            }
            JournalRecord::Born(key) => {
                self.born.insert(key);
            }
            JournalRecord::Whole(key) => {
                self.born.remove(&key);
            }
            JournalRecord::Move { from, to, native } => self.moving = Some((from, to, native)),
            JournalRecord::Moved => self.moving = None,
        }
    }

    /// Returns the records that say the same as all that were taken in.
    pub(super) fn summary(&self) -> Vec<JournalRecord> {
        let held = self.held.iter().map(|(key, held)| {
            let (key, version, same) = (key.clone(), held.version, held.same);
            match (held.sent, version) {
                (true, Some(version)) => JournalRecord::Sent { key, version },
                _ => JournalRecord::Held { key, version, same },
            }
        });
        let white = self.white.iter().map(|(key, of)| JournalRecord::White {
            key: key.clone(),
            of: of.clone(),
        });
        let born = self.born.iter().cloned().map(JournalRecord::Born);
        let moving = self.moving.iter().cloned();
        let moving = moving.map(|(from, to, native)| JournalRecord::Move { from, to, native });
        held.chain(white).chain(born).chain(moving).collect()
    }

    /// Returns which key of the store stands at `key`; nothing if it is hidden.
    pub(super) fn lower(&self, key: &Key) -> Option<Key> {
        let mut at = key.clone();
        loop {
            if let Some(of) = self.white.get(&at) {
                let rest = key.below(&at)?;
                return of.as_ref().map(|of| joined(of, &rest));
            }
            match at.parent() {
                Some(parent) => at = parent,
                None => return Some(key.clone()),
            }
        }
    }

    /// Returns the whiteouts at and below a prefix.
    pub(super) fn whiteouts(&self, prefix: &Key) -> Vec<(Key, Option<Key>)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let range = self.white.range::<Key, _>(from);
        // Keys are in the order of their bytes: others stand between those of a prefix.
        range
            .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
            .filter(|(key, _)| key.below(prefix).is_some())
            .map(|(key, of)| (key.clone(), of.clone()))
            .collect()
    }

    /// Whether no key of the store is hidden.
    pub(super) fn hides_nothing(&self) -> bool {
        self.white.is_empty()
    }

    /// Returns what is known of a key that was changed.
    pub(super) fn held(&self, key: &Key) -> Option<BaseVersion> {
        self.held.get(key).copied()
    }

    /// Returns all keys that were changed at and below a prefix.
    pub(super) fn all_held(&self, prefix: &Key) -> Vec<(Key, BaseVersion)> {
        let below = self.held.iter();
        let below = below.filter(|(key, _)| key.below(prefix).is_some());
        below.map(|(key, held)| (key.clone(), *held)).collect()
    }

    /// Returns the files at a prefix and below that are not whole.
    pub(super) fn born_below(&self, prefix: &Key) -> Vec<Key> {
        let below = self.born.iter().filter(|key| key.below(prefix).is_some());
        below.cloned().collect()
    }

    /// Whether a file is not whole yet.
    pub(super) fn is_born(&self, key: &Key) -> bool {
        self.born.contains(key)
    }

    /// Returns the rename that was begun and not ended.
    pub(super) fn moving(&self) -> Option<(Key, Key, bool)> {
        self.moving.clone()
    }
}

/// Returns the key `rest` below `prefix`.
pub(super) fn joined(prefix: &Key, rest: &Key) -> Key {
    let names = rest.names();
    names.fold(prefix.clone(), |key, name| {
        // Each name was one of a key before.
        key.child(name).unwrap_or(key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn white(at: &str, of: Option<&str>) -> JournalRecord {
        JournalRecord::White {
            key: key(at),
            of: of.map(key),
        }
    }

    #[test]
    fn the_nearest_whiteout_counts() {
        let mut records = Records::default();
        records.apply(white("a", None));
        records.apply(white("a/b", Some("x")));
        records.apply(white("a/b/c", None));
        assert_eq!(records.lower(&key("a")), None);
        assert_eq!(records.lower(&key("a/z")), None);
        assert_eq!(records.lower(&key("a/b")), Some(key("x")));
        assert_eq!(records.lower(&key("a/b/d/e")), Some(key("x/d/e")));
        assert_eq!(records.lower(&key("a/b/c/d")), None);
        assert_eq!(records.lower(&key("ab")), Some(key("ab")));
        let below: Vec<Key> = records
            .whiteouts(&key("a/b"))
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(below, [key("a/b"), key("a/b/c")]);
    }

    #[test]
    fn the_first_version_counts() {
        let mut records = Records::default();
        for (version, same) in [(Some(Version(1)), true), (None, false)] {
            let key = key("a");
            records.apply(JournalRecord::Held { key, version, same });
        }
        let held = records.held(&key("a")).unwrap();
        assert_eq!((held.version, held.same), (Some(Version(1)), false));
    }

    #[test]
    fn a_summary_says_the_same() {
        let mut records = Records::default();
        for record in [
            white("a", None),
            white("b", Some("c")),
            JournalRecord::Show(key("a")),
            JournalRecord::Born(key("n")),
            JournalRecord::Held {
                key: key("h"),
                version: None,
                same: true,
            },
        ] {
            records.apply(record);
        }
        let mut again = Records::default();
        for record in records.summary() {
            again.apply(record);
        }
        assert_eq!(format!("{:?}", again.white), format!("{:?}", records.white));
        assert_eq!(
            again.born_below(&Key::root()),
            records.born_below(&Key::root())
        );
        assert_eq!(again.held(&key("h")), records.held(&key("h")));
    }
}
