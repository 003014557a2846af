//! Applies journal records to the overlay's state.
//!
//! A whiteout hides the store's objects at and below a key. After a rename, it also shows the objects of another prefix
//! of the store there. The whiteout at a key or at its nearest parent applies. Files of the upper folder are always
//! visible.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::attribute_override::AttributeOverride;
use crate::journal_record::{ContentDigest, JournalRecord, Mark};
use crate::marks::Marks;
use crate::program_copies::ProgramCopies;
use zarr_format::model::document::is_document;
use zarrfs_store::{EncodedBy, Key, StoreVersion};

/// The state of a key in the store before the overlay first changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseVersion {
    /// The store's version; `None` if the store did not have the key, or if a frozen layer changed it before.
    pub version: Option<StoreVersion>,
    /// Whether the content was in a frozen layer, so that an unfinished commit determines the store's version.
    pub is_frozen: bool,
    /// Length and digest of the store's content, if they are known. They tell whether the content has changed too if
    /// the store has another version by now.
    pub content: Option<ContentDigest>,
    /// Whether the store already has the changed content, so that the upper folder need not keep it.
    pub is_committed: bool,
}

impl BaseVersion {
    /// Whether the store did not have the key before the change.
    pub fn is_new(&self) -> bool {
        self.version.is_none() && !self.is_frozen
    }
}

/// A key that hides the store's own objects at and below it, because of a removal or a rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whiteout {
    pub(crate) at: Key,
    /// The key of the store or frozen layer whose objects are visible instead, after a rename; `None` after a removal.
    pub(crate) source: Option<Key>,
}

/// A rename that the journal has as started but not as finished.
#[derive(Clone, Debug)]
pub(crate) struct Renaming {
    pub(crate) from: Key,
    pub(crate) to: Key,
    /// Whether the upper folder has a file or folder at `from`.
    pub(crate) in_upper: bool,
}

/// The state of a layer of changes after all records of its journal.
#[derive(Debug, Default)]
pub(crate) struct Records {
    bases: BTreeMap<Key, BaseVersion>,
    /// The whiteouts by their keys, each with the key that is visible instead, or `None`.
    whiteouts: BTreeMap<Key, Option<Key>>,
    /// The digests of contents whose puts may have reached the store without an answer; `None` stands for a removal.
    attempted: BTreeMap<Key, Vec<Option<u128>>>,
    /// The metadata that changed chunks were encoded with, by array folder or key; `None` if a commit need not check
    /// it.
    encoded: BTreeMap<Key, Option<EncodedBy>>,
    /// Keys of files that were created and are still incomplete.
    incomplete: HashSet<Key>,
    attributes: BTreeMap<Key, Arc<AttributeOverride>>,
    xattr_bytes: usize,
    renaming: Option<Renaming>,
    pub(crate) marks: Marks,
    pub(crate) program_copies: ProgramCopies,
    /// Number of changes that may affect consolidated metadata, to detect that copies are stale.
    document_changes: u64,
}

impl Records {
    pub(crate) fn apply(&mut self, record: JournalRecord) {
        self.mark_copies_stale(&record);
        match record {
            JournalRecord::Base {
                key,
                version,
                is_frozen,
                content,
            } => self.set_base(
                key,
                BaseVersion {
                    version,
                    is_frozen,
                    content,
                    is_committed: false,
                },
            ),
            JournalRecord::Committed { key, version } => self.set_committed(key, version),
            JournalRecord::Attempted { key, digest } => self.add_attempt(key, digest),
            JournalRecord::EncodedBy { at, by } => self.set_encoded(at, by),
            JournalRecord::Reverted(key) => {
                self.attempted.remove(&key);
                self.bases.remove(&key);
            }
            JournalRecord::Whiteout { key, source } => self.set_whiteout(key, source),
            JournalRecord::WhiteoutRemoved(key) => drop(self.whiteouts.remove(&key)),
            JournalRecord::Created(key) => drop(self.incomplete.insert(key)),
            JournalRecord::Completed(key) => drop(self.incomplete.remove(&key)),
            JournalRecord::Attributes { key, attributes } => {
                self.set_attributes(key, Some(attributes));
            }
            JournalRecord::AttributesDropped(key) => self.set_attributes(key, None),
            JournalRecord::RenameStarted { from, to, in_upper } => {
                self.renaming = Some(Renaming { from, to, in_upper });
            }
            JournalRecord::RenameFinished => self.renaming = None,
            JournalRecord::Written { key, mark } => self.set_written(key, mark),
            JournalRecord::Removed(key) => {
                self.program_copies.remove(&key);
                self.marks.set(key, None);
            }
            JournalRecord::Synced { key, inode } => self.marks.set_synced(&key, inode),
            JournalRecord::SyncStarted(epoch) => self.marks.begin_epoch(epoch),
            JournalRecord::SyncFinished(epoch) => self.marks.end_epoch(epoch),
            JournalRecord::Forgotten(key) => {
                self.program_copies.remove(&key);
                self.marks.forget(&key);
            }
            JournalRecord::CopiesWritten(key) => self.program_copies.add(key),
            JournalRecord::CopiesStale { holder, path } => {
                self.program_copies.mark_stale(&holder, path);
            }
            JournalRecord::Closed => {}
        }
    }

    /// Marks copies of metadata documents as stale if the record changes the documents.
    fn mark_copies_stale(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Written { key, .. }
            | JournalRecord::Removed(key)
            | JournalRecord::Forgotten(key)
            | JournalRecord::Reverted(key) => {
                if !is_document(key.name()) {
                    return;
                }
                self.program_copies.mark_document_changed(key);
            }
            JournalRecord::Whiteout { key, .. } | JournalRecord::WhiteoutRemoved(key) => {
                if !self.may_hide_documents(key) {
                    return;
                }
                self.program_copies.mark_tree_changed(key);
            }
            JournalRecord::CopiesWritten(_) | JournalRecord::CopiesStale { .. } => {}
            _ => return,
        }
        self.document_changes += 1;
    }

    /// Whether a whiteout may hide or show metadata documents. The whiteout of a chunk does not: it is recognized by
    /// its recorded version in the store, which folders do not have.
    fn may_hide_documents(&self, key: &Key) -> bool {
        is_document(key.name()) || !self.bases.contains_key(key)
    }

    /// Counts a change of a document again when its file is in place. A reader may have seen the old file after the
    /// journal's record, and have derived consolidated metadata from it.
    pub(crate) fn count_document_change(&mut self) {
        self.document_changes += 1;
    }

    /// Returns a number that increases with each change that may affect consolidated metadata.
    pub(crate) fn document_changes(&self) -> u64 {
        self.document_changes
    }

    /// Returns the metadata documents at and below a prefix that the layer has or had as files.
    pub(crate) fn documents_below(&self, prefix: &Key) -> Vec<Key> {
        self.marks.documents_below(prefix).cloned().collect()
    }

    /// Returns the whiteouts at and below a prefix that may hide metadata documents. Each has the key that is visible
    /// instead, or `None`.
    pub(crate) fn whiteouts_of_documents<'a>(
        &'a self,
        prefix: &'a Key,
    ) -> impl Iterator<Item = (&'a Key, &'a Option<Key>)> {
        below(&self.whiteouts, prefix).filter(|(key, _)| self.may_hide_documents(key))
    }

    /// Replaces the contents of all keys by those that recovery found on disk.
    pub(crate) fn replace_marks(&mut self, synced: BTreeMap<Key, Mark>) {
        self.program_copies
            .retain(|holder| synced.contains_key(holder));
        self.marks.replace(synced);
        self.document_changes += 1;
    }

    fn set_base(&mut self, key: Key, base: BaseVersion) {
        // Keep the first version, because it is the store's state before any change.
        let first = self.bases.entry(key).or_insert(base);
        first.is_committed = false;
    }

    fn set_committed(&mut self, key: Key, version: StoreVersion) {
        let base = BaseVersion {
            version: Some(version),
            is_frozen: false,
            content: None,
            is_committed: true,
        };
        self.attempted.remove(&key);
        self.bases.insert(key, base);
    }

    fn set_encoded(&mut self, at: Key, by: Option<EncodedBy>) {
        self.encoded.remove(&at);
        if by.is_some() || self.encoded_by(&at).is_some() {
            self.encoded.insert(at, by);
        }
    }

    fn set_whiteout(&mut self, key: Key, source: Option<Key>) {
        self.whiteouts.remove(&key);
        // No whiteout is needed if something was renamed and is renamed back to its old name.
        let is_back = source.as_ref() == Some(&key) && self.lower_key(&key) == source;
        if !is_back {
            self.whiteouts.insert(key, source);
        }
    }

    fn set_attributes(&mut self, key: Key, attributes: Option<Arc<AttributeOverride>>) {
        let added = attributes
            .as_ref()
            .map_or(0, |overrides| overrides.xattr_bytes());
        let before = match attributes {
            Some(attributes) => self.attributes.insert(key, attributes),
            None => self.attributes.remove(&key),
        };
        self.xattr_bytes += added;
        self.xattr_bytes -= before.map_or(0, |overrides| overrides.xattr_bytes());
    }

    /// Records that a key has a new file. The file counts as a change and not as a copy of the store's object, unless a
    /// later record of attributes says otherwise.
    fn set_written(&mut self, key: Key, mark: Mark) {
        if let Some(overrides) = self
            .attributes
            .get_mut(&key)
            .filter(|overrides| overrides.is_of_copy)
        {
            Arc::make_mut(overrides).is_of_copy = false;
        }
        self.marks.set(key, Some(mark));
    }

    fn add_attempt(&mut self, key: Key, digest: Option<u128>) {
        let attempted = self.attempted.entry(key).or_default();
        attempted.retain(|known| *known != digest);
        // Remember only the last eight attempts to put a key, to limit the memory.
        if attempted.len() == 8 {
            attempted.remove(0);
        }
        attempted.push(digest);
    }

    /// Returns the shortest list of journal records that restores this state.
    pub(crate) fn summary(&self) -> Vec<JournalRecord> {
        let bases = self.bases.iter().map(|(key, base)| {
            let (key, version) = (key.clone(), base.version);
            match (base.is_committed, version) {
                (true, Some(version)) => JournalRecord::Committed { key, version },
                _ => JournalRecord::Base {
                    key,
                    version,
                    is_frozen: base.is_frozen,
                    content: base.content,
                },
            }
        });
        let whiteouts = self.whiteouts.iter();
        let whiteouts = whiteouts.map(|(key, source)| JournalRecord::Whiteout {
            key: key.clone(),
            source: source.clone(),
        });
        let attempted = self.attempted.iter();
        let attempted = attempted.flat_map(|(key, digests)| attempts(key, digests));
        let encoded = self.encoded.iter();
        let encoded = encoded.map(|(at, by)| JournalRecord::EncodedBy {
            at: at.clone(),
            by: by.clone(),
        });
        let incomplete = self.incomplete.iter().cloned().map(JournalRecord::Created);
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(key, attributes)| JournalRecord::Attributes {
            key: key.clone(),
            attributes: attributes.clone(),
        });
        let renaming = self.renaming.iter().cloned();
        let renaming = renaming.map(|renaming| JournalRecord::RenameStarted {
            from: renaming.from,
            to: renaming.to,
            in_upper: renaming.in_upper,
        });
        bases
            .chain(attempted)
            .chain(whiteouts)
            .chain(encoded)
            .chain(incomplete)
            .chain(renaming)
            .chain(self.marks.summary())
            // The attributes come after the contents, because a content resets `is_of_copy` of its key's attributes.
            .chain(attributes)
            .chain(self.program_copies.summary())
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        let renaming = usize::from(self.renaming.is_some());
        let attempted: usize = self.attempted.values().map(Vec::len).sum();
        self.bases.len()
            + attempted
            + self.whiteouts.len()
            + self.encoded.len()
            + self.incomplete.len()
            + self.attributes.len()
            + renaming
            + self.marks.len()
            + self.program_copies.len()
    }

    /// Returns the approximate size in bytes of the extended attributes in the journal.
    pub(crate) fn xattr_bytes(&self) -> usize {
        self.xattr_bytes
    }

    /// Returns the attributes that were set on a key whose content is not in the layer.
    pub(crate) fn attribute_override(&self, key: &Key) -> Option<Arc<AttributeOverride>> {
        self.attributes.get(key).cloned()
    }

    /// Returns the attributes that were set on keys at and below a prefix whose contents are not in the layer.
    pub(crate) fn attribute_overrides_below(
        &self,
        prefix: &Key,
    ) -> Vec<(Key, Arc<AttributeOverride>)> {
        below(&self.attributes, prefix)
            .map(|(key, overrides)| (key.clone(), overrides.clone()))
            .collect()
    }

    /// Whether the layer got a file of a key after the attributes of the key were recorded, so that the file has them.
    pub(crate) fn is_taken_over(&self, key: &Key, overrides: &AttributeOverride) -> bool {
        !overrides.is_of_copy && self.marks.last(key).is_some()
    }

    /// Returns the keys at and below a prefix whose recorded attributes are no longer needed, because a synced file has
    /// them.
    pub(crate) fn attributes_of_synced(&self, prefix: &Key) -> Vec<Key> {
        let overrides = below(&self.attributes, prefix);
        let taken_over = overrides.filter(|(key, overrides)| self.is_taken_over(key, overrides));
        let keys = taken_over.map(|(key, _)| key);
        let synced = keys.filter(|key| self.marks.is_synced(key));
        synced.cloned().collect()
    }

    /// Drops recorded attributes after a freeze, because the new top layer has them. The attributes of copies remain.
    pub(crate) fn forget_attributes(&mut self) {
        self.attributes.retain(|_, overrides| overrides.is_of_copy);
        let overrides = self.attributes.values();
        self.xattr_bytes = overrides.map(|overrides| overrides.xattr_bytes()).sum();
    }

    /// Returns the key below the layer whose object the layer shows at `key`, or `None` if a whiteout hides it.
    pub(crate) fn lower_key(&self, key: &Key) -> Option<Key> {
        let mut at = key.clone();
        loop {
            if let Some(source) = self.whiteouts.get(&at) {
                let rest = key.below(&at)?;
                return source.as_ref().map(|source| joined(source, &rest));
            }
            match at.parent() {
                Some(parent) => at = parent,
                None => return Some(key.clone()),
            }
        }
    }

    /// Returns the whiteouts at and below a prefix. Each has the key whose objects are visible instead, or `None`.
    pub(crate) fn whiteouts(&self, prefix: &Key) -> Vec<Whiteout> {
        below(&self.whiteouts, prefix)
            .map(|(at, source)| Whiteout {
                at: at.clone(),
                source: source.clone(),
            })
            .collect()
    }

    /// Whether there are no whiteouts, so that every key of the store is visible under its own name.
    pub(crate) fn hides_nothing(&self) -> bool {
        self.whiteouts.is_empty()
    }

    /// Returns the state of a key in the store before its first change, or `None` if the key was not changed.
    pub(crate) fn base(&self, key: &Key) -> Option<BaseVersion> {
        self.bases.get(key).copied()
    }

    /// Whether the store never had a key that was changed, as far as is known. If a put got no answer and a whiteout
    /// hides the key, the store may have it: a whiteout is recorded only for a key that was found there.
    pub(crate) fn is_new(&self, key: &Key) -> bool {
        let may_be_there =
            self.attempted.contains_key(key) && self.lower_key(key).as_ref() != Some(key);
        self.base(key).is_some_and(|base| base.is_new()) && !may_be_there
    }

    /// Returns the digests of contents of a key whose puts may have reached the store without an answer; `None` stands
    /// for a removal.
    pub(crate) fn attempted(&self, key: &Key) -> &[Option<u128>] {
        self.attempted.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns the changed keys at and below a prefix, with their state in the store before the change.
    pub(crate) fn bases_below(&self, prefix: &Key) -> Vec<(Key, BaseVersion)> {
        below(&self.bases, prefix)
            .map(|(key, base)| (key.clone(), *base))
            .collect()
    }

    /// Returns the metadata that a chunk was encoded with, and the key of its record: the chunk's or a parent's.
    /// Returns `None` if the metadata is not known or a commit need not check it.
    pub(crate) fn encoded_by(&self, key: &Key) -> Option<(Key, &EncodedBy)> {
        let mut above = std::iter::successors(Some(key.clone()), Key::parent);
        let (at, by) = above.find_map(|at| self.encoded.get_key_value(&at))?;
        by.as_ref().map(|by| (at.clone(), by))
    }

    /// Whether exactly this key has a record of the metadata that its chunks were encoded with.
    pub(crate) fn is_encoded_at(&self, at: &Key) -> bool {
        self.encoded.contains_key(at)
    }

    /// Returns the records at and below a prefix of the metadata that chunks were encoded with.
    pub(crate) fn encoded_below(&self, prefix: &Key) -> Vec<(Key, Option<EncodedBy>)> {
        below(&self.encoded, prefix)
            .map(|(at, by)| (at.clone(), by.clone()))
            .collect()
    }

    /// Returns the records of the metadata that chunks were encoded with, for arrays whose documents are at and below a
    /// prefix.
    pub(crate) fn encoded_by_document_below(&self, prefix: &Key) -> Vec<(Key, Option<EncodedBy>)> {
        let is_below = |by: &EncodedBy| by.document.below(prefix).is_some();
        let found = self.encoded.iter();
        let found = found.filter(|(_, by)| by.as_ref().is_some_and(is_below));
        found.map(|(at, by)| (at.clone(), by.clone())).collect()
    }

    /// Returns the keys at and below a prefix whose files were created and are still incomplete.
    pub(crate) fn incomplete_below(&self, prefix: &Key) -> Vec<Key> {
        let incomplete = self.incomplete.iter();
        let below = incomplete.filter(|key| key.below(prefix).is_some());
        below.cloned().collect()
    }

    /// Whether the file of a key was created and is still incomplete.
    pub(crate) fn is_incomplete(&self, key: &Key) -> bool {
        self.incomplete.contains(key)
    }

    /// Returns the rename that was started and not finished, if there is one.
    pub(crate) fn unfinished_rename(&self) -> Option<Renaming> {
        self.renaming.clone()
    }
}

/// Returns journal records of attempts to put contents with these digests.
pub(crate) fn attempts(key: &Key, digests: &[Option<u128>]) -> Vec<JournalRecord> {
    let attempted = |digest: &Option<u128>| JournalRecord::Attempted {
        key: key.clone(),
        digest: *digest,
    };
    digests.iter().map(attempted).collect()
}

/// Returns the entries of a map whose keys are at and below a prefix.
pub(crate) fn below<'a, V>(
    map: &'a BTreeMap<Key, V>,
    prefix: &'a Key,
) -> impl Iterator<Item = (&'a Key, &'a V)> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    // Filter the range, because keys are sorted by their bytes: `a-b` comes between `a` and `a/b`.
    map.range::<Key, _>(from)
        .take_while(|(key, _)| key.as_bytes().starts_with(prefix.as_bytes()))
        .filter(|(key, _)| key.below(prefix).is_some())
}

/// Returns what `key` becomes by a rename of `from` to `to`, or `None` if `key` is not at or below `from`.
pub(crate) fn renamed(key: &Key, from: &Key, to: &Key) -> Option<Key> {
    key.below(from).map(|rest| joined(to, &rest))
}

/// Returns the key whose path is `prefix` followed by `rest`.
pub(crate) fn joined(prefix: &Key, rest: &Key) -> Key {
    let names = rest.names();
    names.fold(prefix.clone(), |key, name| {
        // The error cannot occur, because the names of a valid key are valid.
        key.child(name).unwrap_or(key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    fn whiteout(at: &str, source: Option<&str>) -> JournalRecord {
        JournalRecord::Whiteout {
            key: key(at),
            source: source.map(key),
        }
    }

    fn encoded(at: &str, digest: u128) -> JournalRecord {
        let by = Some(EncodedBy {
            document: key("x/zarr.json"),
            folder: key("x"),
            digest,
        });
        JournalRecord::EncodedBy { at: key(at), by }
    }

    fn encoded_by_none(at: &str) -> JournalRecord {
        JournalRecord::EncodedBy {
            at: key(at),
            by: None,
        }
    }

    #[test]
    fn the_nearest_whiteout_gives_the_lower_key() {
        let mut records = Records::default();
        records.apply(whiteout("a", None));
        records.apply(whiteout("a/b", Some("x")));
        records.apply(whiteout("a/b/c", None));
        assert_eq!(records.lower_key(&key("a")), None);
        assert_eq!(records.lower_key(&key("a/z")), None);
        assert_eq!(records.lower_key(&key("a/b")), Some(key("x")));
        assert_eq!(records.lower_key(&key("a/b/d/e")), Some(key("x/d/e")));
        assert_eq!(records.lower_key(&key("a/b/c/d")), None);
        assert_eq!(records.lower_key(&key("ab")), Some(key("ab")));
        let below: Vec<Key> = records
            .whiteouts(&key("a/b"))
            .into_iter()
            .map(|whiteout| whiteout.at)
            .collect();
        assert_eq!(below, [key("a/b"), key("a/b/c")]);
    }

    #[test]
    fn the_first_base_version_is_kept() {
        let mut records = Records::default();
        for version in [Some(StoreVersion(1)), None] {
            let key = key("a");
            records.apply(JournalRecord::Base {
                key,
                version,
                is_frozen: false,
                content: None,
            });
        }
        let base = records.base(&key("a")).unwrap();
        assert_eq!(base.version, Some(StoreVersion(1)));
    }

    #[test]
    fn a_summary_restores_the_same_records() {
        let mut records = Records::default();
        for record in [
            whiteout("a", None),
            whiteout("b", Some("c")),
            JournalRecord::WhiteoutRemoved(key("a")),
            JournalRecord::Created(key("n")),
            JournalRecord::Attempted {
                key: key("h"),
                digest: Some(3),
            },
            JournalRecord::Base {
                key: key("h"),
                version: None,
                is_frozen: true,
                content: None,
            },
            JournalRecord::Base {
                key: key("l"),
                version: Some(StoreVersion(4)),
                is_frozen: false,
                content: Some(ContentDigest {
                    length: 5,
                    digest: 6,
                }),
            },
            JournalRecord::Attributes {
                key: key("k"),
                attributes: AttributeOverride::sample(),
            },
            encoded("x", 1),
            encoded("x/c/0", 2),
            encoded("y", 3),
            encoded_by_none("y"),
            encoded_by_none("x/c/2"),
        ] {
            records.apply(record);
        }
        let mut again = Records::default();
        for record in records.summary() {
            again.apply(record);
        }
        assert_eq!(again.whiteouts, records.whiteouts);
        assert_eq!(
            again.incomplete_below(&Key::root()),
            records.incomplete_below(&Key::root())
        );
        for name in ["h", "l"] {
            assert_eq!(again.base(&key(name)), records.base(&key(name)));
        }
        let overrides = again.attribute_override(&key("k"));
        assert_eq!(overrides, records.attribute_override(&key("k")));
        assert_eq!(again.xattr_bytes(), records.xattr_bytes());
        again.apply(JournalRecord::AttributesDropped(key("k")));
        assert_eq!(again.xattr_bytes(), 0);
        assert_eq!(again.attempted(&key("h")), [Some(3)]);
        for records in [&records, &again] {
            let digest = |at: &str| records.encoded_by(&key(at)).map(|(_, by)| by.digest);
            let found = ["x", "x/c/1", "x/c/0", "x/c/2", "xy", "y"].map(digest);
            assert_eq!(found, [Some(1), Some(1), Some(2), None, None, None]);
            assert_eq!(records.encoded.len(), 3);
        }
        assert_eq!(records.len(), records.summary().len());
    }

    #[test]
    fn the_last_eight_attempted_digests_are_kept() {
        let mut records = Records::default();
        let key = key("a");
        for digest in 0..20 {
            let key = key.clone();
            let digest = Some(digest);
            records.apply(JournalRecord::Attempted { key, digest });
        }
        assert_eq!(
            records.attempted(&key),
            [12, 13, 14, 15, 16, 17, 18, 19].map(Some)
        );
        records.apply(JournalRecord::Reverted(key.clone()));
        assert!(records.attempted(&key).is_empty());
    }
}
