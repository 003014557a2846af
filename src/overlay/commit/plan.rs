//! What a commit has to do: each change beside what the store holds now, and in which order.
//!
//! Nothing is changed here. What somebody else did is seen from the versions; what an earlier commit did that was
//! cut, from the content.

use crate::error::{Kind, Result};
use crate::model::document;
use crate::overlay::changes::{BaseState, ChangedKey, What};
use crate::overlay::{Shared, content};
use crate::store::{ETag, Key, Store};

/// A change and what the store holds now.
pub(super) struct CommitStep {
    pub(super) change: ChangedKey,
    pub(super) now: Option<ETag>,
    /// The store has it already.
    pub(super) is_done: bool,
}

/// When a key is changed: chunks first, then metadata from the leaves up, then what was consolidated of it.
pub(super) fn phase(key: &Key) -> (u8, usize) {
    let depth = usize::MAX - key.names().count();
    match key.name() {
        name if document::is_consolidated(name) => (2, depth),
        name if document::is_document(name) => (1, depth),
        _ => (0, 0),
    }
}

/// Returns changes in groups, each of which comes after those before it.
pub(super) fn phases(puts: Vec<CommitStep>, erases: Vec<CommitStep>) -> Vec<Vec<CommitStep>> {
    let mut puts = puts;
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
    // What names the removed comes before it, so that nothing names what is gone.
    let (documents, chunks): (Vec<CommitStep>, Vec<CommitStep>) = erases
        .into_iter()
        .partition(|step| phase(&step.change.key).0 > 0);
    phases.extend([documents, chunks]);
    phases
}

impl Shared {
    /// Looks at what the store holds of a key now.
    pub(super) fn look(&self, change: ChangedKey) -> Result<CommitStep> {
        let now = self.lower.etag(&change.key)?;
        let expected = change.before == BaseState::Held(now.as_ref().map(|stamp| stamp.version));
        let is_done = match (&change.what, &now) {
            (What::Erase, None) => true,
            (What::Put(_), Some(_)) if !expected => self.has_already(&change.key)?,
            _ => false,
        };
        Ok(CommitStep {
            change,
            now,
            is_done,
        })
    }

    /// Whether the store has the very bytes that the upper folder has.
    fn has_already(&self, key: &Key) -> Result<bool> {
        match self.lower.open(key, None) {
            Err(error) if error.kind() == Kind::NotFound => Ok(false),
            stored => content::is_same(&*stored?, &*Store::open(&self.files, key, None)?),
        }
    }

    /// Says what somebody else did to a key since it was first changed here.
    pub(super) fn conflict(&self, step: &CommitStep) -> Option<String> {
        if step.is_done {
            return None;
        }
        let now = step.now.as_ref().map(|stamp| stamp.version);
        let why = match (step.change.before, now) {
            (BaseState::Moved, _) | (BaseState::Unseen, None) => return None,
            (BaseState::Held(held), now) if held == now => return None,
            (BaseState::Unseen, Some(_)) => "is in the store, which was not seen before",
            (BaseState::Held(None), _) => "was made by somebody else",
            (BaseState::Held(Some(_)), None) => "was removed by somebody else",
            (BaseState::Held(Some(_)), Some(_)) => "was changed by somebody else",
        };
        Some(why.to_string())
    }
}
