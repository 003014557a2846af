//! Commit: brings the upper folder's changes into the store, or tells which keys are in conflict.
//!
//! A commit is a snapshot: it freezes the layer of changes (`freeze`), and works from that alone while programs go on in
//! a new layer above. Every key is compared with the store before any is changed (`plan`),
//! and the arrays of chunks with what these were encoded by (`arrays`). What was renamed in the
//! store is first copied to the frozen layer (`fetch`). Chunks come before the metadata that names them, removals last;
//! each change has the version that was compared as its condition (`apply`). At the end the frozen layer is dropped in
//! one step (`thaw`). After a conflict, an error or a kill it stays where it is and shows as before; the next commit
//! goes on with it: what the store already has is seen by its content, neither put twice nor taken for the change of
//! another program; what was put and others have changed since is a conflict (`overwritten`). `write_through` brings
//! single paths of the layer on top into the store. After each of them the store's copies of the documents in
//! consolidated metadata are brought up to date (`copies`).

use std::sync::Arc;

use super::changes::{ChangeAction, ChangeSet, ChangedKey, KeptKeys};
use super::layered_store::LayeredStore;
use super::{Overlay, OverlayCore};
use apply::{Applied, Apply};
use arrays::ChangedArrays;
use plan::Plan;
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Key, Store};

mod apply;
mod arrays;
mod copies;
pub mod copy;
mod fetch;
mod freeze;
mod overwritten;
mod plan;
mod prune;
mod thaw;
mod write_through;

pub use arrays::is_of_array;

/// The most keys that are compared, fetched or put at a time: each has a thread.
const MAX_PARALLEL_KEYS: usize = 256;

/// Of so many requests that may be under way one is left to those who read meanwhile.
const READERS_SHARE: usize = 8;

/// Returns how many keys of a store are compared, fetched or put at a time.
fn parallel_keys(store: &dyn Store) -> usize {
    let most = store.info().concurrency.min(MAX_PARALLEL_KEYS);
    most - most / READERS_SHARE
}

/// How to commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitConfig {
    /// Only look for conflicts.
    pub dry_run: bool,
    /// Overwrite what other programs changed.
    pub force: bool,
}

/// What a commit did, or would do.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Keys that the store has as they were written, put by this commit or found there.
    pub put: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Keys that were removed.
    pub erased: u64,
    /// Keys without an ETag: length and digest of what was read of them before were compared, or size and time.
    pub without_etag: u64,
    /// Changes that the store does not have: the commit ended early, and the next one goes on with them.
    pub left: u64,
    /// Keys that other programs changed, and what was found. Those that are found while changes are compared end the
    /// commit before it changes anything; others may be found when some changes are in the store.
    pub conflicts: Conflicts,
    /// The error that ended the commit.
    pub failed: Option<Error>,
    /// What stays in the upper folder, and why.
    pub kept: KeptKeys,
    /// What the store cannot hold and is not in the upper folder any more: the keys, and what of them.
    pub lost: KeptKeys,
}

/// Takes how many keys are done, and how many there are.
pub type ProgressFn<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that other programs changed, and what was found.
pub type Conflicts = Vec<(Key, String)>;

impl Outcome {
    /// Adds what another commit did before this one.
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
    /// Brings all changes into the store that were complete when the commit began. What is written meanwhile is not
    /// part of it, and stays as it is. An error that ends it after the first change is part of the outcome.
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
        // What an earlier commit has left comes first.
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
    /// Looks for conflicts of all changes.
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

    /// Brings a frozen layer into the store, and drops it then.
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

/// A commit at work.
struct Commit<'a> {
    core: &'a Arc<OverlayCore>,
    /// The layer whose changes are brought into the store.
    layered: &'a Arc<LayeredStore>,
    /// Whether it is the layer on top, which programs change meanwhile; the paths are locked then.
    is_live: bool,
}

impl Commit<'_> {
    /// Brings the changes at these paths and below into the store.
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
            // What the store has hides nothing there any more, whatever becomes of the next look.
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
