//! Sets attributes of an open file, on the layer's file or without a content.
//!
//! The file system of the upper folder decides which attributes are valid: attributes without a content are set on an
//! empty file there, and the resulting attributes are recorded.

use std::fs::File;
use std::sync::Arc;

use super::OpenFile;
use super::state::ContentSource;
use crate::journal_line::JournalRecord;
use crate::kept_attributes::KeptAttributes;
use crate::keys_dir::os_error;
use crate::name_change::NameChange;
use crate::{attributes, content};
use zarr_format::error::{Error, Result};
use zarrfs_store::Key;
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Stat, Time};

impl OpenFile {
    /// Changes attributes with `set`, which gets the file that has them. The names are locked, so a commit freezes the
    /// file either before or after the change.
    ///
    /// Fails with `ReadOnly` for a file without a name whose content is not in the top layer.
    pub(crate) fn change_attributes(
        &self,
        context: &RequestContext,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<()> {
        loop {
            let Some(key) = self.key() else {
                let file = self.upper_file();
                return set(&*file.ok_or_else(|| Error::read_only(Key::root()))?);
            };
            // This may query the store, so it comes before the lock of the names.
            let content = self.stat_of_content(context)?;
            let change = |change: &NameChange<'_>| self.set_as_key(&key, change, content, set);
            if self.core.change_own(context, &key, change)? {
                return Ok(());
            }
        }
    }

    /// Does that for a file that has this key; returns whether it still had the key.
    fn set_as_key(
        &self,
        key: &Key,
        change: &NameChange<'_>,
        content: Stat,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<bool> {
        let state = self.lock();
        if state.key.as_ref() != Some(key) {
            return Ok(false);
        }
        let is_committed = state.is_committed()?;
        // A copy for a write that was then refused may never be published.
        let is_idle_copy = state.pending.is_some() && !state.is_dirty;
        let (own, frozen) = match &state.source {
            ContentSource::Upper(file) if !is_committed => (Some(file), None),
            ContentSource::Frozen(file, _) => (None, Some(&**file)),
            _ => (None, None),
        };
        let kept = change.top.layer.kept_attributes(key)?;
        // A copy needs both: a commit drops the copy and keeps the recorded attributes.
        let is_of_copy = kept.is_some_and(|kept| kept.is_of_copy);
        if own.is_none() || is_idle_copy || is_of_copy {
            change.keep_attributes(key, content, frozen, set)?;
        }
        own.map_or(Ok(()), |file| set(file))?;
        Ok(true)
    }

    /// Returns the attributes that were set without the content, or `None` if the layer's file has the attributes.
    pub(crate) fn kept_attributes(&self) -> Result<Option<Arc<KeptAttributes>>> {
        let state = self.lock();
        let is_in_layer =
            matches!(state.source, ContentSource::Upper(_)) && !state.is_committed()?;
        let key = state.key.as_ref().filter(|_| !is_in_layer);
        match key {
            Some(key) => self.core.top().layer.kept_attributes(key),
            None => Ok(None),
        }
    }

    /// Syncs attributes that were set without the content.
    pub(super) fn sync_kept_attributes(&self) -> Result<()> {
        match (self.kept_attributes()?, self.key()) {
            (Some(_), Some(key)) => {
                let top = self.core.top();
                self.core.sync_name(&top, &key)?;
                top.layer.sync_journal()
            }
            _ => Ok(()),
        }
    }
}

impl NameChange<'_> {
    /// Sets attributes of a key whose content the layer does not have, with `set`. `below` is the `stat` of the content
    /// without kept attributes; `frozen` is its file if a frozen layer has it.
    fn keep_attributes(
        &self,
        key: &Key,
        below: Stat,
        frozen: Option<&File>,
        set: &dyn Fn(&File) -> Result<()>,
    ) -> Result<()> {
        let failed = |error| os_error(key, error);
        let kept = self.top.layer.kept_attributes(key)?;
        let is_of_copy = kept.as_ref().is_some_and(|kept| kept.is_of_copy);
        let shown = kept.as_ref().map_or(below, |kept| kept.over(below));
        let accessed = shown.posix.map(|posix| posix.accessed);
        let times = AttrChange {
            accessed: Some(Time::At(accessed.unwrap_or(shown.meta.modified))),
            modified: Some(Time::At(shown.meta.modified)),
            ..AttrChange::default()
        };
        let (name, file) = self.upper.create_pending(key).map_err(failed)?;
        let before = match (kept, frozen) {
            (Some(kept), _) => kept.give_to(&file),
            (None, Some(frozen)) => content::copy_attributes(frozen, &file),
            (None, None) => {
                let stored = self.top.stored_attributes(key);
                attributes::set_open(&file, &self.initial_attributes(stored, None))
            }
        };
        let kept = before
            .and_then(|()| attributes::set_open(&file, &times))
            .map_err(failed)
            .and_then(|()| set(&file))
            .and_then(|()| KeptAttributes::of(&file, shown.meta.version).map_err(failed));
        self.upper.discard_pending(&name);
        let kept = KeptAttributes {
            is_of_copy,
            ..kept?
        };
        let (key, attributes) = (key.clone(), Arc::new(kept));
        self.record(vec![JournalRecord::Attributes { key, attributes }])
    }
}
