//! Plans the steps of a commit, and detects conflicts. Changes nothing.
//!
//! Changes of other programs are detected by the versions. If the store has another version, recorded length and digest
//! of the content decide. Steps that an interrupted commit has completed are recognized by the content. A server
//! without ETags only sends size and time, which count only if no digest was recorded.

use std::collections::HashSet;
use std::sync::Arc;

use crate::changes::{BaseState, ChangeAction, ChangedKey};
use crate::commit::{Outcome, parallel_keys};
use crate::content;
use crate::layered_store::LayeredStore;
use crate::overlay_core::OverlayCore;
use zarr_format::error::{Kind, Result};
use zarr_format::model::document;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{ETag, EntryKind, Key, Store};

/// The plan of a commit.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<CommitStep>,
    /// Objects of the store at keys that the changes need as folders.
    pub(crate) files_above: Vec<Key>,
    /// The conflicts, and the counts of the steps.
    pub(crate) outcome: Outcome,
}

/// A change, with the store's current state.
pub(crate) struct CommitStep {
    pub(crate) change: ChangedKey,
    pub(crate) now: Option<ETag>,
    /// Whether the store already has the result of the change.
    pub(crate) is_done: bool,
    /// Whether the store has a folder at the key of a put, and no whiteout hides it.
    pub(crate) is_folder: bool,
    /// Whether the server sent no ETag for the object that the change replaces.
    pub(crate) lacks_etag: bool,
}

impl CommitStep {
    /// Returns the conflict with another program's change, or `None`. `array` returns the conflict of a chunk with its
    /// array.
    pub(crate) fn conflict(
        &self,
        array: impl FnOnce() -> Option<&'static str>,
    ) -> Option<&'static str> {
        if self.is_done {
            return None;
        }
        if self.is_folder {
            return Some("is a folder in the store");
        }
        if let Some(why) = array() {
            return Some(why);
        }
        let now = self.now.as_ref().map(|etag| etag.version);
        match (self.change.base, now) {
            (BaseState::Moved | BaseState::Frozen, _) | (BaseState::Unseen, None) => None,
            (base, now) if base.is(now) => None,
            (BaseState::Unseen, Some(_)) => Some("is in the store, which was not seen before"),
            (BaseState::Known(None), _) => Some("was made by somebody else"),
            (BaseState::Known(Some(_)), None) => Some("was removed by somebody else"),
            (BaseState::Known(Some(_)), Some(_)) => Some("was changed by somebody else"),
        }
    }
}

/// Queries the store for the current state of a key.
pub(crate) fn probe(
    context: &RequestContext,
    store: &Arc<dyn Store>,
    shown: &Arc<dyn Store>,
    layered: &LayeredStore,
    mut change: ChangedKey,
) -> Result<CommitStep> {
    let now = store.etag(context, &change.key)?;
    let is_put = change.action != ChangeAction::Erase;
    let is_expected = change.base.is(now.as_ref().map(|etag| etag.version));
    let is_done = match (&change.action, &now) {
        (ChangeAction::Erase, None) => true,
        (ChangeAction::Put(_), Some(_)) if !is_expected => {
            has_content(context, &**store, &**shown, &change.key)?
        }
        _ => false,
    };
    let lacks_etag = !is_done && change.base.lacks_etag();
    let is_same = || match &now {
        Some(now) if lacks_etag && layered.base_content(&change.key).is_none() => {
            let may_be = change.base.may_be(now.version);
            Ok(may_be || is_known(context, &**store, layered, &change.key, Some(now))?)
        }
        now => is_known(context, &**store, layered, &change.key, now.as_ref()),
    };
    if !is_done && !is_expected && is_same()? {
        let now = now
            .as_ref()
            .map(|etag| etag.version.require_stored(&change.key));
        change.base = BaseState::Known(now.transpose()?);
    }
    let is_folder = is_put
        && layered.shows_own_key(&change.key)
        && now.is_none()
        && is_folder(context, &**store, &change.key)?;
    Ok(CommitStep {
        change,
        now,
        is_done,
        is_folder,
        lacks_etag,
    })
}

/// Whether the change of a key is allowed although the store has another version than before. It is if the store's
/// object has the same bytes as before, or if a put or removal from here succeeded without an answer.
fn is_known(
    context: &RequestContext,
    store: &dyn Store,
    layered: &LayeredStore,
    key: &Key,
    now: Option<&ETag>,
) -> Result<bool> {
    let (tried, base) = (layered.tried(key), layered.base_content(key));
    let Some(now) = now.filter(|_| !tried.is_empty() || base.is_some()) else {
        return Ok(tried.contains(&None));
    };
    let reader = match store.open(context, key, None) {
        Err(error) if error.kind() == Kind::NotFound => return Ok(false),
        reader => reader?,
    };
    let size = reader.meta(context)?.size;
    if tried.is_empty() && base.is_none_or(|base| base.length != size) {
        return Ok(false);
    }
    let found = content::digest(context, &*reader)?;
    let is_known = tried.contains(&Some(found.digest)) || base == Some(found);
    Ok(is_known && reader.meta(context)?.version.may_be(now.version))
}

fn is_folder(context: &RequestContext, store: &dyn Store, key: &Key) -> Result<bool> {
    let found = store.head(context, key)?;
    Ok(found.is_some_and(|meta| meta.kind == EntryKind::Directory))
}

/// Whether the store has the same bytes as `shown`.
fn has_content(
    context: &RequestContext,
    store: &dyn Store,
    shown: &dyn Store,
    key: &Key,
) -> Result<bool> {
    match store.open(context, key, None) {
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        stored => content::is_same(context, &*stored?, &*shown.open(context, key, None)?),
    }
}

/// Returns the objects of the store at keys that these changes need as folders, except for keys that are removed.
pub(crate) fn files_above(
    context: &RequestContext,
    store: &Arc<dyn Store>,
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
    let found = parallel_map(parallel_keys(&**store), folders, &look);
    let found: Result<Vec<Option<Key>>> = found.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// The position of a key in the order of a commit: chunks first, then metadata from the leaves up, then consolidated
/// metadata.
pub(crate) fn phase(key: &Key) -> (u8, usize) {
    let height = usize::MAX - key.names().count();
    match key.name() {
        name if document::is_consolidated(name) => (2, height),
        name if document::is_document(name) => (1, height),
        _ => (0, 0),
    }
}

/// Returns the steps in groups. Each group must come after the groups before it.
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
    // Documents are removed before the chunks that they name.
    let (documents, chunks): (Vec<CommitStep>, Vec<CommitStep>) = erases
        .into_iter()
        .partition(|step| phase(&step.change.key).0 > 0);
    phases.extend([documents, chunks]);
    phases
}

impl OverlayCore {
    /// Returns these changes, and a put of each key that the frozen layer's commit has put and that has another version
    /// in the store now.
    pub(crate) fn with_overwritten(
        &self,
        context: &RequestContext,
        frozen: &LayeredStore,
        mut changes: Vec<ChangedKey>,
    ) -> Result<Vec<ChangedKey>> {
        let look = |change: ChangedKey| -> Result<Option<ChangedKey>> {
            let now = self
                .store
                .etag(context, &change.key)?
                .map(|etag| etag.version);
            Ok((!change.base.is(now)).then_some(change))
        };
        let mut put = frozen.committed()?;
        let others: HashSet<&Key> = changes.iter().map(|change| &change.key).collect();
        put.retain(|change| !others.contains(&change.key));
        for found in parallel_map(parallel_keys(&*self.store), put, &look) {
            changes.extend(found?);
        }
        Ok(changes)
    }

    /// Does the same for the frozen layer, if there is one.
    pub(crate) fn with_all_overwritten(
        &self,
        context: &RequestContext,
        changes: Vec<ChangedKey>,
    ) -> Result<Vec<ChangedKey>> {
        let frozen: Option<Arc<LayeredStore>> = self.top().frozen.clone();
        match frozen {
            Some(frozen) => self.with_overwritten(context, &frozen, changes),
            None => Ok(changes),
        }
    }
}

impl LayeredStore {
    /// Returns the puts that a commit of the layer has completed.
    fn committed(&self) -> Result<Vec<ChangedKey>> {
        let bases = self.layer.lock().records.bases_below(&Key::root());
        let mut committed = Vec::new();
        for (key, base) in bases.into_iter().filter(|(_, base)| base.is_committed) {
            if let Some(size) = self.layer.complete_file_size(&key)? {
                committed.push(ChangedKey {
                    key,
                    action: ChangeAction::Put(size),
                    base: BaseState::Known(base.version),
                });
            }
        }
        Ok(committed)
    }
}
