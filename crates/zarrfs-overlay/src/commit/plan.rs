//! Plans the steps of a commit, and detects conflicts without changing anything.
//!
//! Other programs' changes are detected by their versions. If the store has another version than before the change on
//! the mount, the recorded length and digest tell whether the content differs too. Steps that an interrupted commit has
//! completed are recognized by their content. If the server sends no ETags, the digest is compared, or size and time if
//! no digest was recorded.

use std::collections::HashSet;

use crate::changes::{BaseState, ChangeAction, ChangedKey};
use crate::commit::arrays::ChangedArrays;
use crate::commit::{Commit, Outcome, parallel_keys};
use crate::content;
use crate::layer::ChangeLayer;
use crate::layered_store::LayeredStore;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{ETag, EntryKind, Key, Store};

/// What a commit will do to the store, and the conflicts that were found.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<CommitStep>,
    /// Objects of the store that are in the way of changes, because the changes need folders at their keys.
    pub(crate) files_above: Vec<Key>,
    /// The conflicts that were found, and the counts of the planned steps.
    pub(crate) outcome: Outcome,
}

impl Plan {
    /// Compares every change with the store. `visible` is the store as the mount shows it.
    pub(crate) fn of(
        commit: &Commit<'_>,
        visible: &dyn Store,
        keys: Vec<ChangedKey>,
        arrays: &ChangedArrays,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        let store = &*commit.core.store;
        let probe = Probe {
            context: commit.context,
            store,
            visible,
            layered: commit.layered,
        };
        let obstacles = files_above(commit.context, store, &keys)?;
        let run = |change| probe.run(change);
        for step in parallel_map(parallel_keys(store), keys, &run) {
            let step = step?;
            plan.outcome.without_etag += u64::from(step.has_no_etag);
            let array = || arrays.conflict(commit.layered, &step.change.key);
            match step.conflict(array).filter(|_| !commit.force) {
                Some(why) => {
                    let conflict = (step.change.key, why.to_string());
                    plan.outcome.conflicts.push(conflict);
                }
                None => plan.steps.push(step),
            }
        }
        if !commit.force {
            let why = "is a file in the store, but a directory here";
            let conflicts = obstacles.iter().map(|key| (key.clone(), why.to_string()));
            plan.outcome.conflicts.extend(conflicts);
        }
        plan.files_above = obstacles;
        for change in plan.steps.iter().map(|step| &step.change) {
            plan.outcome.bytes += change.bytes();
            match change.action {
                ChangeAction::Erase => plan.outcome.erased += 1,
                _ => plan.outcome.put += 1,
            }
        }
        Ok(plan)
    }
}

/// A change, together with the state of its key in the store.
pub(crate) struct CommitStep {
    pub(crate) change: ChangedKey,
    pub(crate) now: Option<ETag>,
    /// Whether the store already has the change.
    pub(crate) is_done: bool,
    /// Whether the store has a folder at the key of a file to put, and the user has not removed the folder.
    pub(crate) is_folder: bool,
    /// Whether the store sent no ETag for the object that the change replaces.
    pub(crate) has_no_etag: bool,
}

impl CommitStep {
    /// Returns the conflict of this change with another program's change, or `None`. `array` checks whether a chunk
    /// still matches its array's metadata.
    pub(crate) fn conflict(
        &self,
        array: impl FnOnce() -> Option<&'static str>,
    ) -> Option<&'static str> {
        if self.is_done {
            return None;
        }
        if self.is_folder {
            return Some("is a directory in the store");
        }
        if let Some(why) = array() {
            return Some(why);
        }
        let now = self.now.as_ref().map(|etag| etag.version);
        match (self.change.base, now) {
            (BaseState::Moved | BaseState::Frozen, _) | (BaseState::Unseen, None) => None,
            (base, now) if base.is(now) => None,
            (BaseState::Unseen, Some(_)) => Some("exists in the store, but was unknown here"),
            (BaseState::Known(None), _) => Some("was created in the store by another program"),
            (BaseState::Known(Some(_)), None) => {
                Some("was removed from the store by another program")
            }
            (BaseState::Known(Some(_)), Some(_)) => {
                Some("was changed in the store by another program")
            }
        }
    }
}

/// Compares changes with the current state of their keys in the store.
struct Probe<'a> {
    context: &'a RequestContext,
    store: &'a dyn Store,
    /// The store as the mount shows it, with the changed contents.
    visible: &'a dyn Store,
    layered: &'a LayeredStore,
}

impl Probe<'_> {
    /// Requests the current state of a key in the store.
    fn run(&self, mut change: ChangedKey) -> Result<CommitStep> {
        let now = self.store.etag(self.context, &change.key)?;
        let is_put = change.action != ChangeAction::Erase;
        let is_expected = change.base.is(now.as_ref().map(|etag| etag.version));
        let is_done = match (&change.action, &now) {
            (ChangeAction::Erase, None) => true,
            (ChangeAction::Put(_), Some(_)) if !is_expected => self.has_content(&change.key)?,
            _ => false,
        };
        let has_no_etag = !is_done && change.base.has_no_etag();
        let is_same = || match &now {
            Some(now) if has_no_etag && self.layered.base_content(&change.key).is_none() => {
                let may_be = change.base.may_be(now.version);
                Ok(may_be || self.is_known(&change.key, Some(now))?)
            }
            now => self.is_known(&change.key, now.as_ref()),
        };
        if !is_done && !is_expected && is_same()? {
            let now = now
                .as_ref()
                .map(|etag| etag.version.require_stored(&change.key));
            change.base = BaseState::Known(now.transpose()?);
        }
        let is_folder = is_put
            && self.layered.shows_own_key(&change.key)
            && now.is_none()
            && self.is_folder(&change.key)?;
        Ok(CommitStep {
            change,
            now,
            is_done,
            is_folder,
            has_no_etag,
        })
    }

    /// Whether the store's new version of a key is no conflict: its bytes are the same as before the change, or this
    /// mount made it with an earlier put or removal that got no answer.
    fn is_known(&self, key: &Key, now: Option<&ETag>) -> Result<bool> {
        let (attempted, base) = (self.layered.attempted(key), self.layered.base_content(key));
        let Some(now) = now.filter(|_| !attempted.is_empty() || base.is_some()) else {
            return Ok(attempted.contains(&None));
        };
        let reader = match self.store.open(self.context, key, None) {
            Err(error) if error.kind() == Kind::NotFound => return Ok(false),
            reader => reader?,
        };
        let size = reader.meta(self.context)?.size;
        if attempted.is_empty() && base.is_none_or(|base| base.length != size) {
            return Ok(false);
        }
        let found = content::digest(self.context, &*reader)?;
        let is_known = attempted.contains(&Some(found.digest)) || base == Some(found);
        Ok(is_known && reader.meta(self.context)?.version.may_be(now.version))
    }

    fn is_folder(&self, key: &Key) -> Result<bool> {
        let found = self.store.head(self.context, key)?;
        Ok(found.is_some_and(|meta| meta.kind == EntryKind::Directory))
    }

    fn has_content(&self, key: &Key) -> Result<bool> {
        match self.store.open(self.context, key, None) {
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            stored => content::is_same(
                self.context,
                &*stored?,
                &*self.visible.open(self.context, key, None)?,
            ),
        }
    }
}

/// Returns the objects of the store at keys where the changes need folders, except for objects that are removed anyway.
fn files_above(
    context: &RequestContext,
    store: &dyn Store,
    changes: &[ChangedKey],
) -> Result<Vec<Key>> {
    let (erased, put): (Vec<&ChangedKey>, Vec<&ChangedKey>) = changes
        .iter()
        .partition(|change| change.action == ChangeAction::Erase);
    let erased: HashSet<&Key> = erased.into_iter().map(|change| &change.key).collect();
    let above = |change: &ChangedKey| std::iter::successors(change.key.parent(), Key::parent);
    let folders: HashSet<Key> = put.into_iter().flat_map(above).collect();
    let folders = folders.into_iter();
    let folders: Vec<Key> = folders
        .filter(|key| !key.is_root() && !erased.contains(key))
        .collect();
    let look = |key: Key| Ok(store.etag(context, &key)?.map(|_| key));
    let found = parallel_map(parallel_keys(store), folders, &look);
    let found: Result<Vec<Option<Key>>> = found.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// The phase of a commit in which a key is put: first chunks, then metadata from the leaves up, then consolidated
/// metadata.
pub(crate) fn phase(key: &Key) -> (u8, usize) {
    let height = usize::MAX - key.names().count();
    match key.name() {
        name if document::is_consolidated(name) => (2, height),
        name if document::is_document(name) => (1, height),
        _ => (0, 0),
    }
}

/// Groups the steps of a commit by phase. A group may start only when the group before it is complete.
pub(crate) fn phases(mut puts: Vec<CommitStep>, erases: Vec<CommitStep>) -> Vec<Vec<CommitStep>> {
    puts.sort_by_key(|step| phase(&step.change.key));
    let mut phases: Vec<Vec<CommitStep>> = Vec::new();
    let mut last = None;
    for step in puts {
        let now = phase(&step.change.key);
        if last.replace(now) != Some(now) {
            phases.push(Vec::new());
        }
        if let Some(phase) = phases.last_mut() {
            phase.push(step);
        }
    }
    // Remove metadata documents before chunks, so that readers never find an array whose chunks are gone.
    let (documents, chunks): (Vec<CommitStep>, Vec<CommitStep>) = erases
        .into_iter()
        .partition(|step| phase(&step.change.key).0 > 0);
    phases.extend([documents, chunks]);
    phases
}

/// Adds the keys that an interrupted commit has put and that another program has changed since.
///
/// Such a key is a conflict for the commit that continues, because its other changes belong together with the content
/// that was put. With `force`, the key is put again.
pub(crate) fn with_changed_since_put(
    context: &RequestContext,
    store: &dyn Store,
    frozen: &LayeredStore,
    mut changes: Vec<ChangedKey>,
) -> Result<Vec<ChangedKey>> {
    let look = |change: ChangedKey| -> Result<Option<ChangedKey>> {
        let now = store.etag(context, &change.key)?;
        let is_same = change.base.is(now.map(|etag| etag.version));
        Ok((!is_same).then_some(change))
    };
    let mut put = completed_puts(&frozen.layer)?;
    let others: HashSet<&Key> = changes.iter().map(|change| &change.key).collect();
    put.retain(|change| !others.contains(&change.key));
    for found in parallel_map(parallel_keys(store), put, &look) {
        changes.extend(found?);
    }
    Ok(changes)
}

fn completed_puts(layer: &ChangeLayer) -> Result<Vec<ChangedKey>> {
    let bases = layer.lock().records.bases_below(&Key::root());
    let mut puts = Vec::new();
    for (key, base) in bases.into_iter().filter(|(_, base)| base.is_committed) {
        if let Some(size) = layer.complete_file_size(&key)? {
            puts.push(ChangedKey {
                key,
                action: ChangeAction::Put(size),
                base: BaseState::Known(base.version),
            });
        }
    }
    Ok(puts)
}
