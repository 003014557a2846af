//! Commit: brings the upper folder's changes into the store, or tells which keys are in conflict.
//!
//! Every key is compared with the store before any is changed (`plan`). What was renamed in the store is first copied
//! to the upper folder (`fetch`). Chunks come before the metadata that names them, removals last; each change has the
//! version that was compared as its condition (`apply`). At the end the upper folder drops what the store has
//! (`prune`). A commit that was cut off can be run again: what the store already has is seen by its content, neither
//! put twice nor taken for the change of another program.

use std::sync::Arc;

use super::changes::{ChangeAction, ChangeSet, ChangedKey, KeptKeys};
use super::{Overlay, OverlayCore};
use crate::error::Result;
use crate::store::Key;
use crate::sync::pool::parallel_map;
use apply::Apply;
use plan::CommitStep;

mod apply;
pub mod copy;
mod fetch;
mod plan;
mod prune;
mod write_through;

/// How many keys are compared, fetched or put at a time.
const PARALLEL_KEYS: usize = 16;

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
    /// Keys that were put.
    pub put: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Keys that were removed.
    pub erased: u64,
    /// Keys that other programs changed, and what was found. If there are any before the first change, nothing was
    /// changed.
    pub conflicts: Conflicts,
    /// What stays in the upper folder, and why.
    pub kept: KeptKeys,
}

/// Takes how many keys are done, and how many there are.
pub type ProgressFn<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that other programs changed, and what was found.
pub type Conflicts = Vec<(Key, String)>;

impl Overlay {
    /// Brings all changes into the store.
    pub fn commit(&self, config: CommitConfig, progress: &ProgressFn) -> Result<Outcome> {
        self.0.commit(&[Key::root()], config, progress)
    }
}

impl OverlayCore {
    /// Brings the changes at these paths and below into the store.
    fn commit(
        self: &Arc<Self>,
        paths: &[Key],
        config: CommitConfig,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        let _one = self.committing.lock();
        let hidden = self.list_hidden(paths)?;
        let mut changes = self.changes_at(paths, &hidden)?;
        if !config.dry_run && hidden.iter().any(|subtree| subtree.moved.is_some()) {
            self.fetch_moved(&hidden, &changes)?;
            changes = self.changes_at(paths, &hidden)?;
        }
        let ChangeSet { keys, kept } = changes;
        let mut outcome = Outcome {
            kept,
            ..Outcome::default()
        };
        let steps = self.plan(keys, config.force, &mut outcome)?;
        if config.dry_run || !outcome.conflicts.is_empty() {
            return Ok(outcome);
        }
        let apply = Apply {
            core: self,
            force: config.force,
        };
        outcome.conflicts = apply.run(steps, progress)?;
        if outcome.conflicts.is_empty() {
            self.prune(paths)?;
        }
        Ok(outcome)
    }

    /// Compares every change with the store: returns the steps, and enters conflicts and sums into `outcome`.
    fn plan(
        &self,
        keys: Vec<ChangedKey>,
        force: bool,
        outcome: &mut Outcome,
    ) -> Result<Vec<CommitStep>> {
        let mut steps = Vec::new();
        for step in parallel_map(PARALLEL_KEYS, keys, &|change| plan::probe(self, change)) {
            let step = step?;
            match step.conflict().filter(|_| !force) {
                Some(why) => outcome.conflicts.push((step.change.key, why.to_string())),
                None => steps.push(step),
            }
        }
        for change in steps.iter().map(|step| &step.change) {
            outcome.bytes += change.bytes();
            match change.action {
                ChangeAction::Erase => outcome.erased += 1,
                _ => outcome.put += 1,
            }
        }
        Ok(steps)
    }
}
