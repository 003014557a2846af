//! Commits the upper folder's changes to the store, or reports conflicts.
//!
//! A commit is a snapshot: it freezes the layer of changes (`freeze`) and works on the frozen layer only, while
//! programs continue in a new layer above. It compares every key with the store before it changes any (`plan`), and
//! compares the metadata of arrays with the metadata that their chunks were encoded with (`arrays`). Keys that were
//! renamed in the store are first copied to the frozen layer (`fetch`). Chunks are stored before the metadata that
//! names them, and removals come last; each request has the compared version as its condition (`apply`). At the end the
//! frozen layer is dropped in one step (`thaw`). After a conflict, an error or a kill, the frozen layer stays and
//! remains visible, and the next commit continues with it. It recognizes objects that are already stored by their
//! content: it neither puts them twice nor mistakes them for another program's changes. A key that was put and that
//! others have changed since is a conflict (`overwritten`). `write_through` brings single paths of the top layer into
//! the store. After a commit or a write-through, the copies of documents in the store's consolidated metadata are
//! updated (`copies`).

use std::sync::Arc;

use crate::Overlay;
use crate::changes::{ChangeAction, ChangeSet, ChangedKey, KeptKeys};
use crate::commit::apply::{Applied, Apply};
use crate::commit::arrays::ChangedArrays;
use crate::commit::plan::Plan;
use crate::layered_store::LayeredStore;
use crate::overlay_core::OverlayCore;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, Store};

mod apply;
mod arrays;
mod copies;
mod fetch;
mod frozen_layer;
pub(crate) mod plan;
mod write_through;

pub use arrays::is_of_array;

/// The maximum number of keys that are compared, fetched or put in parallel. Each needs a thread.
const MAX_PARALLEL_KEYS: usize = 256;

/// During a commit, 1/READERS_SHARE of the store's parallel requests is left to readers.
const READERS_SHARE: usize = 8;

/// Returns the number of keys that are compared, fetched or put in parallel.
pub(crate) fn parallel_keys(store: &dyn Store) -> usize {
    let most = store.info().concurrency.min(MAX_PARALLEL_KEYS);
    most - most / READERS_SHARE
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
    /// Number of keys that the store has as they were written, put by this commit or already there.
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
    pub kept: KeptKeys,
    /// Keys with properties that the store cannot hold and that are no longer in the upper folder, each with these
    /// properties.
    pub lost: KeptKeys,
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
    fn is_whole(&self) -> bool {
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

impl Overlay {
    /// Brings all changes into the store that were complete when the commit began. Later writes are not part of it and
    /// stay in the upper folder. An error after the first change is returned in the outcome.
    pub fn commit(
        &self,
        context: &RequestContext,
        config: CommitConfig,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        let core = &self.0;
        let _one = core.committing.lock();
        if let Err(error) = core.store.info().check_changeable(&core.place)
            && !self.changes(context)?.keys.is_empty()
        {
            return Err(error);
        }
        if config.dry_run {
            return core.compare_all(context, config.force);
        }
        let mut done = Outcome::default();
        // First finish an earlier commit that was interrupted.
        if let Some(frozen) = core.top().frozen.clone() {
            done = core.commit_frozen(context, &frozen, config.force, progress)?;
            if !done.is_whole() {
                return Ok(done);
            }
        }
        let frozen = core.freeze().map_err(|error| {
            let needs = "a commit needs 128 KiB here, a folder for each folder with a file that is being written, \
                         and 300 bytes for each file of which attributes alone were set";
            core.upper.without_room(error, needs)
        });
        let (frozen, left_out) = frozen?;
        let Some(frozen) = frozen else {
            done.kept = core.top().kept(context)?;
            done.kept.extend(left_out);
            return Ok(done);
        };
        let mut outcome = core
            .commit_frozen(context, &frozen, config.force, progress)?
            .after(done);
        outcome.kept.extend(left_out);
        let with_attributes = core.top().keys_with_attributes(&[Key::root()])?;
        outcome.kept.extend(with_attributes);
        Ok(outcome)
    }
}

impl OverlayCore {
    /// Looks for conflicts of all changes, for a dry run.
    fn compare_all(self: &Arc<Self>, context: &RequestContext, force: bool) -> Result<Outcome> {
        let overlay = Overlay(self.clone());
        let ChangeSet {
            keys, kept, lost, ..
        } = overlay.changes(context)?;
        let keys = self.with_all_overwritten(context, keys)?;
        let shown: Arc<dyn Store> = Arc::new(overlay);
        let top = self.top();
        let arrays = self.changed_arrays(context, &shown, &top, &keys, false)?;
        let plan = self.plan(context, &shown, &top, keys, &arrays, force)?;
        Ok(Outcome {
            kept,
            lost,
            ..plan.outcome
        })
    }

    /// Brings a frozen layer into the store, then drops it.
    fn commit_frozen(
        self: &Arc<Self>,
        context: &RequestContext,
        frozen: &Arc<LayeredStore>,
        force: bool,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        let commit = Commit {
            core: self,
            layered: frozen,
            is_live: false,
        };
        let mut outcome = commit.run(context, &[Key::root()], force, progress)?;
        if outcome.is_whole() {
            let thawed = self.thaw(frozen, &outcome.kept);
            let needs =
                "the store has all changes, but the folders of what stays here need some KiB";
            outcome.failed = thawed
                .err()
                .map(|error| self.upper.without_room(error, needs));
        }
        Ok(outcome)
    }

    /// Compares every change with the store. `shown` has the contents, `layered` the names.
    fn plan(
        &self,
        context: &RequestContext,
        shown: &Arc<dyn Store>,
        layered: &LayeredStore,
        keys: Vec<ChangedKey>,
        arrays: &ChangedArrays,
        force: bool,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        let probe = |change| plan::probe(context, &self.store, shown, layered, change);
        let obstacles = plan::files_above(context, &self.store, &keys)?;
        for step in parallel_map(parallel_keys(&*self.store), keys, &probe) {
            let step = step?;
            plan.outcome.without_etag += u64::from(step.lacks_etag);
            let array = || arrays.conflict(layered, &step.change.key);
            match step.conflict(array).filter(|_| !force) {
                Some(why) => {
                    let conflict = (step.change.key, why.to_string());
                    plan.outcome.conflicts.push(conflict);
                }
                None => plan.steps.push(step),
            }
        }
        if !force {
            let why = "is a file in the store, and a folder here";
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

/// A running commit.
pub(crate) struct Commit<'a> {
    core: &'a Arc<OverlayCore>,
    /// The layer whose changes are brought into the store.
    layered: &'a Arc<LayeredStore>,
    /// Whether `layered` is the top layer, which programs change during the commit. The paths are locked then.
    is_live: bool,
}

impl Commit<'_> {
    /// Brings the changes at and below these paths into the store.
    fn run(
        &self,
        context: &RequestContext,
        paths: &[Key],
        force: bool,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        let hidden = self.layered.list_hidden(context, paths)?;
        let mut changes = self.layered.changes_at(context, paths, &hidden)?;
        if hidden.iter().any(|subtree| subtree.moved.is_some()) {
            self.fetch_moved(context, &hidden, &changes)
                .map_err(|error| self.without_room_for_copies(context, error, paths, &hidden))?;
            changes = self.layered.changes_at(context, paths, &hidden)?;
        }
        let ChangeSet {
            mut keys,
            kept,
            lost,
            ..
        } = changes;
        if !self.is_live {
            keys = self.core.with_overwritten(context, self.layered, keys)?;
        }
        let shown: Arc<dyn Store> = self.layered.clone();
        let arrays =
            self.core
                .changed_arrays(context, &shown, self.layered, &keys, self.is_live)?;
        let plan = self
            .core
            .plan(context, &shown, self.layered, keys, &arrays, force)?;
        let conflicts = plan.outcome.conflicts;
        let mut outcome = Outcome {
            without_etag: plan.outcome.without_etag,
            kept,
            lost,
            left: (plan.steps.len() + conflicts.len()) as u64,
            conflicts,
            ..Outcome::default()
        };
        if !outcome.conflicts.is_empty() {
            return Ok(outcome);
        }
        let holders = self.holders(paths);
        let apply = Apply {
            commit: self,
            force,
            applied: Applied::default(),
        };
        let done = apply.run(context, plan.steps, &plan.files_above, progress);
        apply.applied.add_to(&mut outcome);
        match done {
            Ok(conflicts) => {
                outcome.conflicts = conflicts;
                outcome.failed = self.update_copies(context, paths, holders).err();
            }
            Err(error) => outcome.failed = Some(error),
        }
        if outcome.is_whole() && self.is_live {
            // Whiteouts of committed keys hide nothing any more, even if the check below fails.
            outcome.failed = self.core.prune(context, self.layered, paths).err();
        }
        if outcome.is_whole() && !force {
            match arrays.replaced_meanwhile(context, self) {
                Ok(conflicts) => outcome.conflicts = conflicts,
                Err(error) => outcome.failed = Some(error),
            }
        }
        if outcome.is_whole() && !self.is_live {
            let mut emptied = hidden.iter().map(|subtree| &subtree.folders);
            let erased = emptied.try_for_each(|folders| self.core.erase_folders(context, folders));
            outcome.failed = erased.err();
        }
        Ok(outcome)
    }
}
