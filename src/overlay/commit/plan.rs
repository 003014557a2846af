//! The steps of a commit: each change with what the store has now, and their order.
//!
//! Nothing is changed here. Changes of other programs are seen from the versions; what an earlier commit did that was
//! cut off, from the content.

use crate::error::{Kind, Result};
use crate::model::document;
use crate::overlay::changes::{BaseState, ChangeAction, ChangedKey};
use crate::overlay::{OverlayCore, content};
use crate::store::{ETag, Key, Store};

/// A change, and what the store has now.
pub(super) struct CommitStep {
    pub(super) change: ChangedKey,
    pub(super) now: Option<ETag>,
    /// The store is already as the change would make it.
    pub(super) is_done: bool,
}

impl CommitStep {
    /// Returns what another program did to the key since it was first changed here.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        if self.is_done {
            return None;
        }
        let now = self.now.as_ref().map(|etag| etag.version);
        match (self.change.base, now) {
            (BaseState::Moved, _) | (BaseState::Unseen, None) => None,
            (BaseState::Known(base), now) if base == now => None,
            (BaseState::Unseen, Some(_)) => Some("is in the store, which was not seen before"),
            (BaseState::Known(None), _) => Some("was made by somebody else"),
            (BaseState::Known(Some(_)), None) => Some("was removed by somebody else"),
            (BaseState::Known(Some(_)), Some(_)) => Some("was changed by somebody else"),
        }
    }
}

/// Asks the store what it has of a key now.
pub(super) fn probe(core: &OverlayCore, change: ChangedKey) -> Result<CommitStep> {
    let now = core.lower.etag(&change.key)?;
    let is_expected = change.base == BaseState::Known(now.as_ref().map(|etag| etag.version));
    let is_done = match (&change.action, &now) {
        (ChangeAction::Erase, None) => true,
        (ChangeAction::Put(_), Some(_)) if !is_expected => has_content(core, &change.key)?,
        _ => false,
    };
    Ok(CommitStep {
        change,
        now,
        is_done,
    })
}

/// Whether the store has the bytes that the upper folder has.
fn has_content(core: &OverlayCore, key: &Key) -> Result<bool> {
    match core.lower.open(key, None) {
        Err(error) if error.kind() == Kind::NotFound => Ok(false),
        stored => content::is_same(&*stored?, &*Store::open(&core.files, key, None)?),
    }
}

/// The place of a key in the order of a commit: chunks first, then metadata from the leaves up, then consolidated
/// metadata.
pub(super) fn phase(key: &Key) -> (u8, usize) {
    let height = usize::MAX - key.names().count();
    match key.name() {
        name if document::is_consolidated(name) => (2, height),
        name if document::is_document(name) => (1, height),
        _ => (0, 0),
    }
}

/// Returns the steps in groups, each of which comes after those before it.
pub(super) fn phases(mut puts: Vec<CommitStep>, erases: Vec<CommitStep>) -> Vec<Vec<CommitStep>> {
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
    // Documents go before the chunks that they name.
    let (documents, chunks): (Vec<CommitStep>, Vec<CommitStep>) = erases
        .into_iter()
        .partition(|step| phase(&step.change.key).0 > 0);
    phases.extend([documents, chunks]);
    phases
}
