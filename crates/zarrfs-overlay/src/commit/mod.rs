//! Commits the upper folder's changes to the store, or reports conflicts.
//!
//! A commit is a snapshot: it freezes the layer of changes (`frozen_layer`) and works on the frozen layer only, while
//! programs continue in a new layer above it. It compares every key with the store before it changes any key (`plan`),
//! and compares the metadata of arrays with the metadata that their chunks were encoded with (`arrays`). Objects that
//! were renamed on the mount are first copied to the frozen layer (`fetch`). Chunks are put before their metadata, and
//! removals come last; each request has the compared version as its condition (`apply`). At the end the frozen layer is
//! dropped in one step. After a conflict, an error or a kill, the frozen layer stays visible, and the next commit
//! continues with it. The next commit recognizes by their content the objects that are already in the store, so it does
//! not put them twice or report them as conflicts. A conflict is also reported if another program has changed a key
//! after the commit put it. `write_through` commits single paths of the top layer. At the end, a commit or a
//! write-through updates the copies of metadata in the store's consolidated metadata (`copies`).

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

/// Returns the number of keys that a commit compares, fetches or puts in parallel: one thread each, and 1/8 of the
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
    /// Overwrite keys that other programs have changed in the store since their change on the mount.
    pub force: bool,
}

/// The result of a commit, or of a dry run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of keys whose new content is in the store: put by this commit or by an interrupted one before it.
    pub put: u64,
    /// Total size in bytes of the contents that are counted in `put`.
    pub bytes: u64,
    /// Number of keys that the commit removed from the store.
    pub erased: u64,
    /// Number of keys that were compared by length and digest, or by size and time, because the store sent no ETag.
    pub without_etag: u64,
    /// Number of changes that are not in the store because the commit ended early. The next commit continues with them.
    pub left: u64,
    /// Keys that other programs changed, each with a description of the conflict. A conflict is usually found before
    /// the commit changes the store, but may also be found after it has put some keys.
    pub conflicts: Conflicts,
    /// The error that ended the commit; `None` if there was no error.
    pub failed: Option<Error>,
    /// Keys that the commit leaves in the upper folder, each with the reason.
    pub uncommittable: KeysWithReason,
    /// Keys that the commit has put without some of their properties, because no store can hold these. Each key has the
    /// names of the properties.
    pub lost: KeysWithReason,
}

/// Progress of a commit: called with the number of finished keys and the total number of keys.
pub type ProgressFn<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that other programs changed, each with a description of the conflict.
pub type Conflicts = Vec<(Key, String)>;

impl Outcome {
    /// Adds the counts of `before`, the outcome of an interrupted commit that was completed first.
    fn after(mut self, before: Outcome) -> Outcome {
        self.put += before.put;
        self.bytes += before.bytes;
        self.erased += before.erased;
        self.without_etag += before.without_etag;
        self.lost.extend(before.lost);
        self
    }

    /// Whether the commit ended without a conflict or an error.
    fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.failed.is_none()
    }

    /// Returns the outcome as an error if an error ended the commit.
    pub fn or_failed(mut self) -> Result<Outcome> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

/// Commits all changes of the overlay to the store.
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
    // Finish an interrupted commit first, which has left a frozen layer.
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

/// Looks for conflicts of all changes with the store, without changing anything.
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

/// Commits a frozen layer to the store, then drops the layer.
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

/// Removes empty folders from the store. In `folders`, each folder comes before its subfolders.
fn erase_folders(context: &RequestContext, store: &dyn Store, folders: &[Key]) -> Result<()> {
    let mut inner_first = folders.iter().rev();
    inner_first.try_for_each(|folder| store.erase_folder(context, folder))
}

/// A running commit.
pub(crate) struct Commit<'a> {
    core: &'a Arc<OverlayCore>,
    context: &'a RequestContext,
    /// The layer whose changes are committed.
    layered: &'a Arc<LayeredStore>,
    /// Only the changes at and below these paths are committed.
    paths: &'a [Key],
    /// Whether the commit overwrites keys that other programs changed.
    force: bool,
    /// Whether `layered` is the top layer, where programs make changes during the commit. Then `paths` are locked.
    is_live: bool,
}

impl Commit<'_> {
    /// Lists the changes that the commit has to make. `hidden` is the result of `HiddenSubtree::list`.
    fn changes(&self, hidden: &[HiddenSubtree]) -> Result<ChangeSet> {
        ChangeSet::at(self.layered, self.context, self.paths, hidden)
    }

    /// Compares the changes with the store, and makes them there if there is no conflict.
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
            // Drop the whiteouts before the check below, which may fail: the keys are committed in either case, so the
            // whiteouts hide nothing any more.
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

    /// Records the digest of a document before it is put. If no answer comes, a later commit learns from the record
    /// what the store may have. It also shows that the store's new version is from this mount, if a program writes the
    /// document at the same time.
    fn record_document_put(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        let attempted = JournalRecord::Attempted {
            key: key.clone(),
            digest: Some(XxHash3_128::oneshot(bytes)),
        };
        // Record the put in the top layer in any case, because a program may already have opened the document to write
        // it.
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
