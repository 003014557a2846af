//! Commit: brings the upper folder's changes into the store, or says with whom they are in conflict.
//!
//! Every key is looked at before any is changed. Chunks come before the metadata that names them, removals last;
//! each change is made on the condition that the store still holds what it held. A commit that was cut is run
//! again: what the store has already is seen by its content, not done twice and not taken for somebody else's.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::OFlags;

use super::below::stored_folders;
use super::changes::{ChangeSet, What};
use super::journal::JournalRecord;
use super::upper::failed;
use super::{Overlay, Shared};
use crate::error::{Error, Kind, Result};
use crate::store::{Condition, Key, PutBody};
use crate::sync::pool::parallel_map;
use plan::{CommitStep, phases};

pub mod copy;
mod fetch;
mod plan;
mod prune;
mod write_through;

/// How many keys are compared, fetched or put at a time: a store far away answers them side by side.
const PARALLEL_KEYS: usize = 16;

/// How to commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitConfig {
    /// Only look for conflicts.
    pub dry_run: bool,
    /// Overwrite what others changed.
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
    /// Keys that somebody else changed, and what was found. If there are any, nothing was changed.
    pub conflicts: Conflicts,
    /// What stays in the upper folder, and why.
    pub kept: Vec<(Key, &'static str)>,
}

/// Takes how many keys are done, and how many there are.
pub type ProgressFn<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that somebody else changed, and what was found.
pub type Conflicts = Vec<(Key, String)>;

impl Overlay {
    /// Brings all changes into the store.
    pub fn commit(&self, config: CommitConfig, progress: &ProgressFn) -> Result<Outcome> {
        self.0.commit(&[Key::root()], config, progress)
    }
}

impl Shared {
    /// Brings the changes at these paths and below into the store.
    pub(super) fn commit(
        self: &Arc<Self>,
        paths: &[Key],
        config: CommitConfig,
        progress: &ProgressFn,
    ) -> Result<Outcome> {
        let _one = self.committing.lock();
        if !config.dry_run {
            self.fetch_moved(paths)?;
        }
        let ChangeSet { keys, kept } = self.changes_at(paths)?;
        let mut outcome = Outcome {
            kept,
            ..Outcome::default()
        };
        let looked = parallel_map(PARALLEL_KEYS, keys, &|change| self.look(change));
        let mut steps = Vec::new();
        for step in looked {
            let step = step?;
            match self.conflict(&step).filter(|_| !config.force) {
                Some(why) => outcome.conflicts.push((step.change.key.clone(), why)),
                None => steps.push(step),
            }
        }
        count(&mut outcome, &steps);
        if config.dry_run || !outcome.conflicts.is_empty() {
            return Ok(outcome);
        }
        outcome.conflicts = self.carry_out(steps, config.force, progress)?;
        if outcome.conflicts.is_empty() {
            self.clean(paths)?;
        }
        Ok(outcome)
    }
}

fn count(outcome: &mut Outcome, steps: &[CommitStep]) {
    for step in steps {
        outcome.bytes += step.change.bytes();
        match step.change.what {
            What::Erase => outcome.erased += 1,
            _ => outcome.put += 1,
        }
    }
}

impl Shared {
    fn upper_file(&self, key: &Key) -> Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = self.upper.open_key(key, flags);
        Ok(std::fs::File::from(fd.map_err(|error| failed(key, error))?))
    }

    /// Makes the changes, phase by phase; returns what somebody else changed since it was looked at.
    fn carry_out(
        &self,
        steps: Vec<CommitStep>,
        force: bool,
        progress: &ProgressFn,
    ) -> Result<Conflicts> {
        let total = steps.len();
        let done = AtomicUsize::new(0);
        let (puts, erases): (Vec<CommitStep>, Vec<CommitStep>) = steps
            .into_iter()
            .partition(|step| step.change.what != What::Erase);
        let (erases, late) = self.make_way(&puts, erases, force)?;
        if !late.is_empty() {
            return Ok(late);
        }
        for phase in phases(puts, erases) {
            let late = self.take_all(phase, force, &|| {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            })?;
            if !late.is_empty() {
                return Ok(late);
            }
        }
        Ok(Vec::new())
    }

    /// Makes changes in any order; returns what somebody else changed since it was looked at.
    fn take_all(
        &self,
        steps: Vec<CommitStep>,
        force: bool,
        done: &(dyn Fn() + Sync),
    ) -> Result<Conflicts> {
        let take = |step: CommitStep| {
            let taken = self.take(&step, force);
            done();
            (step.change.key, taken)
        };
        let mut late = Vec::new();
        for (key, taken) in parallel_map(PARALLEL_KEYS, steps, &take) {
            match taken {
                Err(error) if error.kind() == Kind::Changed => {
                    late.push((key, "was changed by somebody else just now".to_string()));
                }
                taken => taken?,
            }
        }
        Ok(late)
    }

    /// Removes first what stands where something is put: a file where a folder comes, and the other way round.
    /// Returns what is left to remove, and what somebody else changed.
    fn make_way(
        &self,
        puts: &[CommitStep],
        erases: Vec<CommitStep>,
        force: bool,
    ) -> Result<(Vec<CommitStep>, Conflicts)> {
        let keys: HashSet<&Key> = puts.iter().map(|step| &step.change.key).collect();
        let above = |key: &Key| std::iter::successors(key.parent(), Key::parent);
        let folders: HashSet<Key> = keys.iter().flat_map(|key| above(key)).collect();
        let stands = |step: &CommitStep| {
            let key = &step.change.key;
            folders.contains(key) || above(key).any(|folder| keys.contains(&folder))
        };
        let (first, later) = erases.into_iter().partition(stands);
        let late = self.take_all(first, force, &|| {})?;
        for key in keys {
            if self.lower_key(key).as_ref() != Some(key) {
                self.erase_folders(key)?;
            }
        }
        Ok((later, late))
    }

    /// Removes the store's folders at a path and below that hold nothing.
    pub(super) fn erase_folders(&self, at: &Key) -> Result<()> {
        for folder in stored_folders(&*self.lower, at)?.iter().rev() {
            self.lower.erase_folder(folder)?;
        }
        Ok(())
    }

    fn take(&self, step: &CommitStep, force: bool) -> Result<()> {
        let key = &step.change.key;
        let condition = match (&step.now, force) {
            (_, true) => Condition::Any,
            (None, _) => Condition::Absent,
            (Some(stamp), _) => Condition::Held(stamp.text.clone()),
        };
        if step.change.what == What::Erase {
            if !step.is_done {
                self.lower.erase(key, &condition)?;
            }
            return self.note(vec![JournalRecord::Let(key.clone())]);
        }
        let writes = self.writes(key);
        let file = self.upper_file(key)?;
        let length = file
            .metadata()
            .map_err(|error| Error::os(key, error))?
            .len();
        let stamp = match (step.is_done, step.now.clone()) {
            (true, Some(stamp)) => stamp,
            _ => self
                .lower
                .put(key, PutBody::File(&file, length), &condition)?,
        };
        let version = stamp.version;
        let _names = self.names.lock();
        let key = key.clone();
        match self.writes(&key) == writes && self.live(&key).is_none_or(|live| !live.is_pending()) {
            true => self.note(vec![JournalRecord::Sent { key, version }]),
            // It was written meanwhile: the next commit starts from what the store has now.
            false => self.note(vec![
                JournalRecord::Let(key.clone()),
                JournalRecord::Held {
                    key,
                    version: Some(version),
                    same: false,
                },
            ]),
        }
    }
}
