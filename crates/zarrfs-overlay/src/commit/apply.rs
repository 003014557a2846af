//! Applies the changes of a commit to the store, phase by phase.
//!
//! Each put or removal has the condition that the store still has the version that was compared with the change. When
//! it is done, the journal records that.

use std::collections::HashSet;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::changes::{ChangeAction, ChangedKey};
use crate::commit::plan::{CommitStep, phases};
use crate::commit::{Commit, Conflicts, Outcome, ProgressFn, erase_folders, parallel_keys};
use crate::content;
use crate::journal_record::JournalRecord;
use crate::layer_dir::os_error;
use crate::listing::list_recursive;
use zarr_format::dialect::consolidated::{ConsolidatedDocument, MAX_DOCUMENT};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::sync::pool::parallel_map;
use zarrfs_store::{Condition, ETag, Key, PutBody};

/// A commit that passed the check for conflicts, or that overwrites other programs' changes.
pub(crate) struct Apply<'a> {
    pub(crate) commit: &'a Commit<'a>,
    pub(crate) applied: Applied,
}

/// Counts of the changes that the commit has made in the store.
#[derive(Default)]
pub(crate) struct Applied {
    put: AtomicU64,
    bytes: AtomicU64,
    erased: AtomicU64,
}

impl Applied {
    fn count(&self, change: &ChangedKey) {
        self.bytes.fetch_add(change.bytes(), Ordering::Relaxed);
        let count = match change.action {
            ChangeAction::Erase => &self.erased,
            _ => &self.put,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of made changes to `outcome`, and subtracts them from its count of remaining changes.
    pub(crate) fn add_to(&self, outcome: &mut Outcome) {
        outcome.put += self.put.load(Ordering::Relaxed);
        outcome.bytes += self.bytes.load(Ordering::Relaxed);
        outcome.erased += self.erased.load(Ordering::Relaxed);
        let done = outcome.put + outcome.erased;
        outcome.left = outcome.left.saturating_sub(done);
    }
}

impl Apply<'_> {
    /// Applies the changes to the store. Returns the keys that other programs changed since the comparison. Objects at
    /// `files_above` are removed first, because the changes need folders there: only a forced commit has any.
    pub(crate) fn run(
        &self,
        steps: Vec<CommitStep>,
        files_above: &[Key],
        progress: &ProgressFn,
    ) -> Result<Conflicts> {
        for file in files_above {
            self.commit
                .core
                .store
                .erase(self.commit.context, file, &Condition::Any)?;
        }
        let total = steps.len();
        progress(0, total);
        let done = AtomicUsize::new(0);
        let (puts, erases): (Vec<CommitStep>, Vec<CommitStep>) = steps
            .into_iter()
            .partition(|step| step.change.action != ChangeAction::Erase);
        let (erases, conflicts) = self.remove_obstacles(&puts, erases)?;
        if !conflicts.is_empty() {
            return Ok(conflicts);
        }
        for phase in phases(puts, erases) {
            let conflicts = self.apply_all(phase, &|| {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            })?;
            if !conflicts.is_empty() {
                return Ok(conflicts);
            }
        }
        Ok(Vec::new())
    }

    /// Removes what is in the way of puts: objects at keys that must become folders, and folders at keys that must
    /// become objects. Returns the remaining removals, and the keys that other programs changed.
    fn remove_obstacles(
        &self,
        puts: &[CommitStep],
        erases: Vec<CommitStep>,
    ) -> Result<(Vec<CommitStep>, Conflicts)> {
        let keys: HashSet<&Key> = puts.iter().map(|step| &step.change.key).collect();
        let above = |key: &Key| std::iter::successors(key.parent(), Key::parent);
        let folders: HashSet<Key> = keys.iter().flat_map(|key| above(key)).collect();
        let is_obstacle = |step: &CommitStep| {
            let key = &step.change.key;
            folders.contains(key) || above(key).any(|folder| keys.contains(&folder))
        };
        let (obstacles, others) = erases.into_iter().partition(is_obstacle);
        let conflicts = self.apply_all(obstacles, &|| {})?;
        let core = self.commit.core;
        for step in puts {
            let key = &step.change.key;
            let is_hidden = self.commit.layered.layer.lower_key(key).as_ref() != Some(key);
            if !step.is_folder && !is_hidden {
                continue;
            }
            let stored = list_recursive(self.commit.context, &*core.store, key)?;
            if step.is_folder {
                let mut below = stored.objects.iter().map(|(key, _)| key);
                below.try_for_each(|key| {
                    core.store.erase(self.commit.context, key, &Condition::Any)
                })?;
            }
            erase_folders(self.commit.context, &*core.store, &stored.folders)?;
        }
        Ok((others, conflicts))
    }

    /// Applies the steps in any order. Returns the keys that other programs changed since the comparison.
    fn apply_all(&self, steps: Vec<CommitStep>, done: &(dyn Fn() + Sync)) -> Result<Conflicts> {
        let apply = |step: CommitStep| {
            let applied = self.apply_step(&step);
            done();
            (step.change.key, applied)
        };
        let mut conflicts = Vec::new();
        for (key, applied) in parallel_map(parallel_keys(&*self.commit.core.store), steps, &apply) {
            match applied {
                Err(error) if error.kind() == Kind::Changed => {
                    conflicts.push((
                        key,
                        "was changed in the store during the commit".to_string(),
                    ));
                }
                applied => applied?,
            }
        }
        Ok(conflicts)
    }

    fn apply_step(&self, step: &CommitStep) -> Result<()> {
        let condition = match &step.now {
            _ if self.commit.force => Condition::Any,
            None => Condition::Absent,
            Some(etag) => Condition::Match(etag.text.clone()),
        };
        match step.change.action {
            ChangeAction::Erase => self.erase(step, &condition)?,
            _ => self.put(step, &condition)?,
        }
        self.applied.count(&step.change);
        Ok(())
    }

    fn erase(&self, step: &CommitStep, condition: &Condition) -> Result<()> {
        let key = &step.change.key;
        if !step.is_done {
            self.record_attempt(key, None)?;
            self.commit
                .core
                .store
                .erase(self.commit.context, key, condition)?;
        }
        self.record(JournalRecord::Reverted(key.clone()))
    }

    /// Records in the journal that a step is complete or about to start. If the disk is full, a step of a frozen layer
    /// is not recorded: the frozen layer does not change, so the next commit can compare its files with the store
    /// instead.
    fn record(&self, record: JournalRecord) -> Result<()> {
        let layer = &self.commit.layered.layer;
        if self.commit.is_live {
            layer.record(vec![record])
        } else {
            layer.record_if_room(vec![record])
        }
    }

    fn put(&self, step: &CommitStep, condition: &Condition) -> Result<()> {
        let (core, layer) = (self.commit.core, &self.commit.layered.layer);
        let key = &step.change.key;
        let number = layer.generation(key);
        let file = layer.dir.open_file(key);
        let file = file.map_err(|error| os_error(key, error))?;
        let etag = match &step.now {
            Some(etag) if step.is_done => etag.clone(),
            _ => self.put_file(step, &file, condition)?,
        };
        let (record_key, version) = (key.clone(), etag.version.require_stored(key)?);
        let committed = JournalRecord::Committed {
            key: record_key,
            version,
        };
        if !self.commit.is_live {
            return self.record(committed);
        }
        let _names = core.names.lock();
        let is_pending = core.registered(key).is_some_and(|file| file.is_pending());
        let is_unchanged = layer.generation(key) == number && layer.is_file_of(key, &file)?;
        if is_unchanged && !is_pending {
            return layer.record(vec![committed]);
        }
        // A program has written the file during the put, so the key still counts as changed. The version that the put
        // created is now the store's version before that change.
        layer.record(vec![
            JournalRecord::Reverted(key.clone()),
            JournalRecord::base(key, Some(version), None),
        ])
    }

    fn put_file(&self, step: &CommitStep, file: &File, condition: &Condition) -> Result<ETag> {
        let key = &step.change.key;
        if let Some(bytes) = self.with_stored_copies(step, file)? {
            self.commit.record_document_put(key, &bytes)?;
            return self.commit.core.store.put(
                self.commit.context,
                key,
                PutBody::Bytes(&bytes),
                condition,
            );
        }
        self.record_attempt(key, Some(file))?;
        let length = file
            .metadata()
            .map_err(|error| Error::os(key, error))?
            .len();
        let body = PutBody::FileAsIs(file, length);
        self.commit
            .core
            .store
            .put(self.commit.context, key, body, condition)
    }

    /// Returns the text to put for a consolidated document that zarrfs itself edited: the edited members, with the
    /// copies of metadata that the store has now. Returns `None` for other files, and for a renamed document, since the
    /// store has another document there.
    fn with_stored_copies(&self, step: &CommitStep, file: &File) -> Result<Option<Vec<u8>>> {
        let (key, store) = (&step.change.key, &self.commit.core.store);
        let layer = &self.commit.layered.layer;
        let is_program = layer.lock().records.program_copies.stale(key).is_some();
        let is_edited = !is_program && layer.lower_key(key).as_ref() == Some(key);
        let Some(holder) = ConsolidatedDocument::of_key(key).filter(|_| is_edited) else {
            return Ok(None);
        };
        let length = file
            .metadata()
            .map_err(|error| Error::os(key, error))?
            .len();
        let length = usize::try_from(length.min(MAX_DOCUMENT)).unwrap_or(usize::MAX);
        let own = content::read_file(file, 0, length).map_err(|error| Error::os(key, error))?;
        if !holder.may_have_copies(&own) {
            return Ok(None);
        }
        // Drop the cached document: it may be older than the version that was compared with the change.
        store.info().changes.record(key);
        let stored = store.get(self.commit.context, key, MAX_DOCUMENT)?;
        let read = stored.as_ref().map(|object| object.version);
        let compared = step.now.as_ref().map(|etag| etag.version);
        let is_same = match (read, compared) {
            (Some(read), Some(compared)) => read.may_be(compared),
            (read, compared) => read == compared,
        };
        if !self.commit.force && !is_same {
            let why = "was changed in the store during the commit";
            return Err(Error::new(Kind::Changed, key, why));
        }
        Ok(stored.and_then(|stored| holder.with_copies_of(&own, &stored.bytes)))
    }

    /// Records a put or a removal before the request. If no answer arrives or the process ends, the record tells what
    /// the store may have done.
    fn record_attempt(&self, key: &Key, file: Option<&File>) -> Result<()> {
        let digest = file.map(content::file_digest).transpose();
        let attempted = JournalRecord::Attempted {
            digest: digest.map_err(|error| Error::os(key, error))?,
            key: key.clone(),
        };
        self.record(attempted)
    }
}
