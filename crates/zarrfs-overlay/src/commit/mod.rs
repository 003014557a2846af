//! Commits the upper folder's changes to the store, or reports conflicts.
//!
//! A commit is a snapshot: it freezes the layer of changes (`frozen_layer`) and works on the frozen layer only, while
//! programs continue in a new layer above. It compares every key with the store before it changes any (`plan`), and
//! compares the metadata of arrays with the metadata that their chunks were encoded with (`arrays`). Keys that were
//! renamed in the store are first copied to the frozen layer (`fetch`). Chunks are stored before the metadata that
//! names them, and removals come last; each request has the compared version as its condition (`apply`). At the end the
//! frozen layer is dropped in one step. After a conflict, an error or a kill, the frozen layer stays and remains
//! visible, and the next commit continues with it. It recognizes objects that are already stored by their content: it
//! neither puts them twice nor mistakes them for another program's changes. If another program has changed a key after
//! the commit put it, that is a conflict (`plan`). `write_through` brings single paths of the top layer into the store.
//! After a commit or a write-through, the copies of documents in the store's consolidated metadata are updated
//! (`copies`).

use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::Overlay;
use crate::changes::{ChangeSet, HiddenSubtree, KeysWithReason, keys_with_attributes};
use crate::commit::apply::{Applied, Apply};
use crate::commit::arrays::ChangedArrays;
use crate::commit::copies::CopyUpdate;
use crate::commit::fetch::MovedObjects;
use crate::commit::frozen_layer::Thaw;
use crate::commit::plan::{Plan, with_changed_since_put};
use crate::journal_record::JournalRecord;
use crate::layered_store::LayeredStore;
use crate::overlay_core::OverlayCore;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{Key, Store};

mod apply;
mod arrays;
pub(crate) mod copies;
mod fetch;
mod frozen_layer;
pub(crate) mod plan;
pub(crate) mod write_through;

pub use arrays::is_of_array;
pub(crate) use frozen_layer::freeze;

/// Returns the number of keys that are compared, fetched or put in parallel. Each key needs a thread. 1/8 of the
/// store's parallel requests is left to readers.
pub(crate) fn parallel_keys(store: &dyn Store) -> usize {
    let most = store.info().concurrency.min(256);
    most - most / 8
}

/// Options of a commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitConfig {
    /// Only look for conflicts.
    pub dry_run: bool,
    /// Overwrite changes of other programs.
    pub force: bool,
}

/// The result of a commit, or of a dry run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of keys whose written content the store has: this commit put it, or it was already there.
    pub put: u64,
    /// Number of bytes of these keys.
    pub bytes: u64,
    /// Number of keys that were removed.
    pub erased: u64,
    /// Number of keys without an ETag, for which length and digest, or size and time, were compared instead.
    pub without_etag: u64,
    /// Number of changes that are not in the store because the commit ended early. The next commit continues with them.
    pub left: u64,
    /// Keys that other programs changed, each with the conflict. A conflict found during the comparison ends the commit
    /// before it changes anything; a later one may be found after some changes were stored.
    pub conflicts: Conflicts,
    /// The error that ended the commit.
    pub failed: Option<Error>,
    /// Keys that stay in the upper folder, each with the reason.
    pub uncommittable: KeysWithReason,
    /// Keys with properties that the store cannot hold and that are no longer in the upper folder, each with these
    /// properties.
    pub lost: KeysWithReason,
}

/// Called with the number of keys that are done and the total number of keys.
pub type ProgressFn<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that other programs changed, each with a description of the conflict.
pub type Conflicts = Vec<(Key, String)>;

impl Outcome {
    /// Adds the counts of a commit that ran before this one.
    fn after(mut self, before: Outcome) -> Outcome {
        self.put += before.put;
        self.bytes += before.bytes;
        self.erased += before.erased;
        self.without_etag += before.without_etag;
        self.lost.extend(before.lost);
        self
    }

    /// Whether the store has all changes.
    fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.failed.is_none()
    }

    /// Returns the outcome, or the error that ended the commit.
    pub fn or_failed(mut self) -> Result<Outcome> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

/// Brings all changes into the store.
pub(crate) fn run(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    config: CommitConfig,
    progress: &ProgressFn,
) -> Result<Outcome> {
    let _one = core.committing.lock();
    if let Err(error) = core.store.info().check_changeable(&core.place)
        && !ChangeSet::of_overlay(&core.top(), context)?.keys.is_empty()
    {
        return Err(error);
    }
    if config.dry_run {
        return compare_all(core, context, config.force);
    }
    let mut done = Outcome::default();
    // A frozen layer is left from a commit that was interrupted: finish that commit first.
    if let Some(frozen) = core.top().frozen.clone() {
        done = commit_frozen(core, context, &frozen, config.force, progress)?;
        if !done.is_complete() {
            return Ok(done);
        }
    }
    let frozen = freeze(core).map_err(|error| {
        let needs = "a commit needs 128 KiB here, and some space for each file that is being written; free some space";
        core.upper.without_room(error, needs)
    });
    let (frozen, left_out) = frozen?;
    let Some(frozen) = frozen else {
        done.uncommittable = ChangeSet::of_layer(&core.top(), context)?.uncommittable;
        done.uncommittable.extend(left_out);
        return Ok(done);
    };
    let mut outcome = commit_frozen(core, context, &frozen, config.force, progress)?.after(done);
    outcome.uncommittable.extend(left_out);
    let with_attributes = keys_with_attributes(&core.top().layer, &[Key::root()])?;
    outcome.uncommittable.extend(with_attributes);
    Ok(outcome)
}

/// Looks for conflicts of all changes, for a dry run.
fn compare_all(core: &Arc<OverlayCore>, context: &RequestContext, force: bool) -> Result<Outcome> {
    let overlay = Overlay(core.clone());
    let ChangeSet {
        mut keys,
        uncommittable,
        lost,
        ..
    } = ChangeSet::of_overlay(&core.top(), context)?;
    let top = core.top();
    if let Some(frozen) = &top.frozen {
        keys = with_changed_since_put(context, &*core.store, frozen, keys)?;
    }
    let commit = Commit {
        core,
        context,
        layered: &top,
        paths: &[Key::root()],
        force,
        is_live: false,
    };
    let arrays = ChangedArrays::read(&commit, &overlay, &keys)?;
    let plan = Plan::of(&commit, &overlay, keys, &arrays)?;
    Ok(Outcome {
        uncommittable,
        lost,
        ..plan.outcome
    })
}

/// Brings a frozen layer into the store, then drops it.
fn commit_frozen(
    core: &Arc<OverlayCore>,
    context: &RequestContext,
    frozen: &Arc<LayeredStore>,
    force: bool,
    progress: &ProgressFn,
) -> Result<Outcome> {
    let commit = Commit {
        core,
        context,
        layered: frozen,
        paths: &[Key::root()],
        force,
        is_live: false,
    };
    let mut outcome = commit.run(progress)?;
    if outcome.is_complete() {
        let thawed = Thaw { core, frozen }.run(&outcome.uncommittable);
        let needs = "the store has all changes, but the directories that stay here need a few KiB";
        outcome.failed = thawed
            .err()
            .map(|error| core.upper.without_room(error, needs));
    }
    Ok(outcome)
}

/// Removes empty folders of the store. Each folder in `folders` comes before the folders in it.
fn erase_folders(context: &RequestContext, store: &dyn Store, folders: &[Key]) -> Result<()> {
    let mut inner_first = folders.iter().rev();
    inner_first.try_for_each(|folder| store.erase_folder(context, folder))
}

/// A running commit.
pub(crate) struct Commit<'a> {
    core: &'a Arc<OverlayCore>,
    context: &'a RequestContext,
    /// The layer whose changes are brought into the store.
    layered: &'a Arc<LayeredStore>,
    /// The changes at and below these paths are brought into the store.
    paths: &'a [Key],
    /// Whether changes of other programs are overwritten.
    force: bool,
    /// Whether `layered` is the top layer, which programs change during the commit. The paths are locked then.
    is_live: bool,
}

impl Commit<'_> {
    /// Returns the changes at and below the paths. `hidden` is the result of `HiddenSubtree::list`.
    fn changes(&self, hidden: &[HiddenSubtree]) -> Result<ChangeSet> {
        ChangeSet::at(self.layered, self.context, self.paths, hidden)
    }

    /// Brings the changes into the store.
    fn run(&self, progress: &ProgressFn) -> Result<Outcome> {
        let (context, paths, core) = (self.context, self.paths, self.core);
        let hidden = HiddenSubtree::list(self.layered, context, paths)?;
        let mut changes = self.changes(&hidden)?;
        if hidden.iter().any(|subtree| subtree.moved.is_some()) {
            let moved = MovedObjects {
                commit: self,
                hidden: &hidden,
            };
            moved
                .fetch_all(&changes)
                .map_err(|error| moved.without_room(error))?;
            changes = self.changes(&hidden)?;
        }
        let ChangeSet {
            mut keys,
            uncommittable,
            lost,
            ..
        } = changes;
        if !self.is_live {
            keys = with_changed_since_put(context, &*core.store, self.layered, keys)?;
        }
        let arrays = ChangedArrays::read(self, &**self.layered, &keys)?;
        let plan = Plan::of(self, &**self.layered, keys, &arrays)?;
        let conflicts = plan.outcome.conflicts;
        let mut outcome = Outcome {
            without_etag: plan.outcome.without_etag,
            uncommittable,
            lost,
            left: (plan.steps.len() + conflicts.len()) as u64,
            conflicts,
            ..Outcome::default()
        };
        if !outcome.conflicts.is_empty() {
            return Ok(outcome);
        }
        let copies = CopyUpdate::of(self);
        let holders = copies.holders();
        let apply = Apply {
            commit: self,
            applied: Applied::default(),
        };
        let done = apply.run(plan.steps, &plan.files_above, progress);
        apply.applied.add_to(&mut outcome);
        match done {
            Ok(conflicts) => {
                outcome.conflicts = conflicts;
                outcome.failed = copies.run(holders).err();
            }
            Err(error) => outcome.failed = Some(error),
        }
        if outcome.is_complete() && self.is_live {
            // This comes before the check below, which may fail: the whiteouts of committed keys hide nothing any more
            // in either case.
            outcome.failed = write_through::prune(self).err();
        }
        if outcome.is_complete() && !self.force {
            match arrays.replaced_meanwhile(self) {
                Ok(conflicts) => outcome.conflicts = conflicts,
                Err(error) => outcome.failed = Some(error),
            }
        }
        if outcome.is_complete() && !self.is_live {
            let mut emptied = hidden.iter().map(|subtree| &subtree.folders);
            let erased =
                emptied.try_for_each(|folders| erase_folders(context, &*core.store, folders));
            outcome.failed = erased.err();
        }
        Ok(outcome)
    }

    /// Records the put of a document, for two cases. If no answer comes, the record tells a later commit what may have
    /// been put. And if a program writes the document at the same time, the base of its change is older than the
    /// version that this put creates; the record tells that no other program made that version.
    fn record_document_put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let attempted = JournalRecord::Attempted {
            key: key.clone(),
            digest: Some(XxHash3_128::oneshot(bytes)),
        };
        // The top layer gets the record in any case: a program may already have opened the document and write it before
        // the put, and nothing shows that yet.
        self.core
            .top()
            .layer
            .record_if_room(vec![attempted.clone()])?;
        let layer = &self.layered.layer;
        let is_known = layer.base(key).is_some() || self.core.registered(key).is_some();
        if is_known && !self.is_live {
            layer.record_if_room(vec![attempted])?;
        }
        Ok(())
    }
}
