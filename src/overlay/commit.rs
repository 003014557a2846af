//! Commit: brings the upper folder's changes into the store, or says with whom they are in conflict.
//!
//! Every key is looked at before any is changed. Chunks come before the metadata that names them, removals last;
//! each change is made on the condition that the store still holds what it held. A commit that was cut is run
//! again: what the store has already is seen by its content, not done twice and not taken for somebody else's.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;

use rustix::fs::AtFlags;
use rustix::fs::OFlags;

use super::Overlay;
use super::Shared;
use super::changes::Change;
use super::changes::Changes;
use super::changes::What;
use super::changes::stored_below;
use super::changes::stored_folders;
use super::content;
use super::journal::Record;
use super::lock;
use super::records::joined;
use super::upper::failed;
use crate::error::Error;
use crate::error::Kind;
use crate::error::Result;
use crate::store::Body;
use crate::store::Condition;
use crate::store::Key;
use crate::store::Stamp;
use crate::store::Store;
use crate::store::Version;

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
pub type Progress<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Keys that somebody else changed, and what was found.
pub type Conflicts = Vec<(Key, String)>;

/// How many keys are looked at or put at a time.
const SIDE_BY_SIDE: usize = 16;

/// A change and what the store holds now.
struct Step {
    change: Change,
    now: Option<Stamp>,
    /// The store has it already.
    is_done: bool,
}

impl Overlay {
    /// Brings all changes into the store.
    pub fn commit(&self, config: CommitConfig, progress: &Progress) -> Result<Outcome> {
        self.0.commit(&[Key::root()], config, progress)
    }
}

impl Shared {
    /// Brings the changes at these paths and below into the store.
    pub(super) fn commit(
        self: &Arc<Self>,
        paths: &[Key],
        config: CommitConfig,
        progress: &Progress,
    ) -> Result<Outcome> {
        let _one = lock(&self.committing);
        if !config.dry_run {
            self.fetch_moved(paths)?;
        }
        let Changes { keys, kept } = self.changes_at(paths)?;
        let mut outcome = Outcome {
            kept,
            ..Outcome::default()
        };
        let looked = side_by_side(keys, &|change| self.look(change));
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

fn count(outcome: &mut Outcome, steps: &[Step]) {
    for step in steps {
        match step.change.what {
            What::Put(size) => {
                outcome.put += 1;
                outcome.bytes += size;
            }
            What::Copy(_) => outcome.put += 1,
            What::Erase => outcome.erased += 1,
        }
    }
}

/// Does the same with each of many things, several at a time, in their order.
pub(super) fn side_by_side<T: Send, R: Send>(
    things: Vec<T>,
    work: &(dyn Fn(T) -> R + Sync),
) -> Vec<R> {
    let count = things.len();
    let queue = Mutex::new(things.into_iter().enumerate());
    let done = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE.min(count) {
            scope.spawn(|| {
                loop {
                    let next = lock(&queue).next();
                    let Some((place, thing)) = next else { return };
                    let result = work(thing);
                    lock(&done).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|done| done.into_inner());
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

/// When a key is changed: chunks first, then metadata from the leaves up, then what was consolidated of it.
pub(super) fn phase(key: &Key) -> (u8, usize) {
    let depth = usize::MAX - key.names().count();
    match key.name() {
        b".zmetadata" => (2, depth),
        b"zarr.json" | b".zarray" | b".zgroup" | b".zattrs" | b"attributes.json" => (1, depth),
        name if name.ends_with(b".array.json") || name.ends_with(b".group.json") => (1, depth),
        name if name.ends_with(b".array") || name.ends_with(b".group") => (1, depth),
        _ => (0, 0),
    }
}

impl Shared {
    /// Brings what was renamed in the store into the upper folder.
    fn fetch_moved(self: &Arc<Self>, paths: &[Key]) -> Result<()> {
        let changes = self.changes_at(paths)?;
        let moved = changes
            .keys
            .into_iter()
            .filter_map(|change| match change.what {
                What::Copy(from) => Some((change.key, from)),
                _ => None,
            });
        let fetch = |(key, from)| self.fetch(&key, &from);
        let done = side_by_side(moved.collect(), &fetch);
        done.into_iter().collect::<Result<()>>()?;
        let _names = lock(&self.names);
        for path in paths {
            self.keep_moved_folders(path)?;
        }
        Ok(())
    }

    /// Makes the folders that were renamed in the store in the upper folder: those without a key stay there.
    fn keep_moved_folders(&self, path: &Key) -> Result<()> {
        let whiteouts = lock(&self.state).records.whiteouts(path);
        for (at, of) in whiteouts {
            let Some(of) = of.filter(|of| *of != at) else {
                continue;
            };
            for from in stored_folders(&*self.lower, &of)? {
                let key = from.below(&of).map(|rest| joined(&at, &rest));
                let Some(key) = key.filter(|key| self.lower_key(key).as_ref() == Some(&from))
                else {
                    continue;
                };
                if self.upper.stat(&key)?.is_none() {
                    self.make_parents(&key)?;
                    self.copy_folder(&key)?;
                }
            }
        }
        Ok(())
    }

    fn fetch(self: &Arc<Self>, key: &Key, from: &Key) -> Result<()> {
        let live = self.open_live(key)?;
        let version = match live.shown_version(from) {
            Some(version) => Some(version),
            None => self.lower.version(from)?,
        };
        let _names = lock(&self.names);
        let mut records: Vec<Record> = self.hold(key)?.into_iter().collect();
        records.extend(version.and_then(|version| self.hold_moved(from, version)));
        self.note(records)?;
        self.copy_up(key)
    }

    /// Looks at what the store holds of a key now.
    fn look(&self, change: Change) -> Result<Step> {
        let now = self.lower.stamp(&change.key)?;
        let expected = change.held == Some(now.as_ref().map(|stamp| stamp.version));
        let is_done = match (&change.what, &now) {
            (What::Erase, None) => true,
            (What::Put(_), Some(_)) if !expected => self.has_already(&change.key)?,
            _ => false,
        };
        Ok(Step {
            change,
            now,
            is_done,
        })
    }

    /// Whether the store has the very bytes that the upper folder has.
    fn has_already(&self, key: &Key) -> Result<bool> {
        match self.lower.open(key) {
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            stored => content::is_same(&*stored?, &*Store::open(&self.files, key)?),
        }
    }

    fn upper_file(&self, key: &Key) -> Result<std::fs::File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = self.upper.open_key(key, flags);
        Ok(std::fs::File::from(fd.map_err(|error| failed(key, error))?))
    }

    /// Says what somebody else did to a key since it was first changed here.
    fn conflict(&self, step: &Step) -> Option<String> {
        if step.is_done {
            return None;
        }
        let now = step.now.as_ref().map(|stamp| stamp.version);
        let why = match (step.change.held, now) {
            (Some(held), now) if held == now => return None,
            (None | Some(None), None) => return None,
            (None, Some(_)) => "is in the store, which was not seen before",
            (Some(None), Some(_)) => "was made by somebody else",
            (Some(Some(_)), None) => "was removed by somebody else",
            (Some(Some(_)), Some(_)) => "was changed by somebody else",
        };
        Some(why.to_string())
    }

    /// Makes the changes, phase by phase; returns what somebody else changed since it was looked at.
    fn carry_out(&self, steps: Vec<Step>, force: bool, progress: &Progress) -> Result<Conflicts> {
        let total = steps.len();
        let done = AtomicUsize::new(0);
        let (mut puts, erases): (Vec<Step>, Vec<Step>) = steps
            .into_iter()
            .partition(|step| step.change.what != What::Erase);
        let (erases, late) = self.make_way(&puts, erases, force)?;
        if !late.is_empty() {
            return Ok(late);
        }
        puts.sort_by_key(|step| phase(&step.change.key));
        let mut phases: Vec<Vec<Step>> = Vec::new();
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
        // What names the removed comes before it, so that nothing names what is gone.
        let (documents, chunks): (Vec<Step>, Vec<Step>) = erases
            .into_iter()
            .partition(|step| phase(&step.change.key).0 > 0);
        phases.extend([documents, chunks]);
        for phase in phases {
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
        steps: Vec<Step>,
        force: bool,
        done: &(dyn Fn() + Sync),
    ) -> Result<Conflicts> {
        let take = |step: Step| {
            let taken = self.take(&step, force);
            done();
            (step.change.key, taken)
        };
        let mut late = Vec::new();
        for (key, taken) in side_by_side(steps, &take) {
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
        puts: &[Step],
        erases: Vec<Step>,
        force: bool,
    ) -> Result<(Vec<Step>, Conflicts)> {
        let keys: HashSet<&Key> = puts.iter().map(|step| &step.change.key).collect();
        let above = |key: &Key| std::iter::successors(key.parent(), Key::parent);
        let folders: HashSet<Key> = keys.iter().flat_map(|key| above(key)).collect();
        let stands = |step: &Step| {
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
    fn erase_folders(&self, at: &Key) -> Result<()> {
        for folder in stored_folders(&*self.lower, at)?.iter().rev() {
            self.lower.erase_folder(folder)?;
        }
        Ok(())
    }

    fn take(&self, step: &Step, force: bool) -> Result<()> {
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
            return self.note(vec![Record::Let(key.clone())]);
        }
        let writes = self.writes(key);
        let file = self.upper_file(key)?;
        let length = file
            .metadata()
            .map_err(|error| Error::os(key, error))?
            .len();
        let stamp = match (step.is_done, step.now.clone()) {
            (true, Some(stamp)) => stamp,
            _ => self.lower.put(key, Body::File(&file, length), &condition)?,
        };
        let version = stamp.version;
        let _names = lock(&self.names);
        let key = key.clone();
        match self.writes(&key) == writes && self.live(&key).is_none_or(|live| !live.is_pending()) {
            true => self.note(vec![Record::Sent { key, version }]),
            // It was written meanwhile: the next commit starts from what the store has now.
            false => self.note(vec![
                Record::Let(key.clone()),
                Record::Held {
                    key,
                    version: Some(version),
                    same: false,
                },
            ]),
        }
    }

    /// Removes from the upper folder what the store has by now.
    fn clean(&self, paths: &[Key]) -> Result<()> {
        let _names = lock(&self.names);
        for path in paths {
            self.show_what_is_gone(path)?;
            let all = lock(&self.state).records.all_held(path);
            for (key, held) in all {
                if held.sent && self.lower_key(&key).as_ref() == Some(&key) {
                    self.drop_sent(&key, held.version)?;
                }
            }
        }
        self.changed();
        let mut state = lock(&self.state);
        let summary = state.records.summary();
        match state.journal.is_long_for(summary.len()) {
            true => state.journal.rewrite(&summary),
            false => Ok(()),
        }
    }

    /// Drops whiteouts at a path and below that hide nothing any more.
    fn show_what_is_gone(&self, path: &Key) -> Result<()> {
        let whiteouts = lock(&self.state).records.whiteouts(path);
        let mut shown = Vec::new();
        for (at, _) in whiteouts.iter().rev() {
            let mut hides = false;
            for key in stored_below(&*self.lower, at)? {
                hides |= !self.known(&key).is_some_and(|held| held.sent);
            }
            if !hides {
                self.erase_folders(at)?;
                shown.push(Record::Show(at.clone()));
            }
        }
        self.note(shown)
    }

    fn drop_sent(&self, key: &Key, version: Option<Version>) -> Result<()> {
        if let Some(live) = self.live(key) {
            live.was_sent(version);
        }
        self.note(vec![Record::Let(key.clone())])?;
        if self.upper.stat(key)?.is_some() {
            self.remove_native(key, AtFlags::empty())?;
        }
        self.written(key);
        // Folders that the store has by now have nothing left to say.
        let mut at = key.parent();
        while let Some(folder) = at.filter(|folder| !folder.is_root()) {
            if self.find_lower(&folder)?.is_none()
                || self.remove_native(&folder, AtFlags::REMOVEDIR).is_err()
            {
                break;
            }
            at = folder.parent();
        }
        Ok(())
    }
}
