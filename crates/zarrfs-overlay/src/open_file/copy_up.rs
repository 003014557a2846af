//! Copy up: what the store has of a file is copied to a pending file before it is first written.
//!
//! The state of the file is not locked meanwhile, so that a store that does not answer holds up writers of this file
//! alone. A second writer waits for the first one's copy.

use std::fs::File;
use std::sync::Arc;

use super::OpenFile;
use super::state::{ContentSource, FileState};
use crate::content::StoredContent;
use crate::keys_dir::os_error;
use crate::{attributes, content};
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::sync::locks::MutexGuard;
use zarrfs_store::{Key, Reader};

/// A copy of what the store has.
struct PendingCopy {
    /// Its name in `pending/`.
    name: String,
    file: File,
    /// What was copied or, if all of it will be replaced, what the store had.
    content: Option<StoredContent>,
}

impl OpenFile {
    /// Locks the file, whose content is not only in the store then. `empty` if all of it will be replaced.
    pub(super) fn lock_copied(
        &self,
        context: &RequestContext,
        empty: bool,
    ) -> Result<MutexGuard<'_, FileState>> {
        let mut state = self.lock();
        loop {
            let ContentSource::Lower(reader) = &state.source else {
                return Ok(state);
            };
            if state.is_copying {
                self.copied.wait(&mut state);
                continue;
            }
            let (reader, key) = (reader.clone(), state.key_or_root());
            state.is_copying = true;
            drop(state);
            let copy = self.copy_of(context, &*reader, &key, empty);
            state = self.lock();
            state.is_copying = false;
            self.copied.notify_all();
            let copy = copy?;
            // They may have been set during the copy.
            if let Some(kept) = self
                .core
                .top()
                .layer
                .kept_attributes(&state.key_or_root())?
            {
                kept.give_to(&copy.file)
                    .map_err(|error| Error::os("", error))?;
            }
            self.core.open.lock().ids.note_write(self.id);
            state.set_copy(copy.name, Arc::new(copy.file));
            state.note_opened_content(copy.content);
        }
    }

    /// Copies what a reader has, or its attributes alone, to a pending file.
    fn copy_of(
        &self,
        context: &RequestContext,
        reader: &dyn Reader,
        key: &Key,
        empty: bool,
    ) -> Result<PendingCopy> {
        let upper = &self.core.upper;
        let pending = upper.create_pending(key);
        let (name, file) = pending.map_err(|error| os_error(key, error))?;
        match self.fill_copy(context, reader, key, &file, empty) {
            Ok(content) => Ok(PendingCopy {
                name,
                file,
                content,
            }),
            Err(error) => {
                upper.discard_pending(&name);
                Err(error.about(key))
            }
        }
    }

    /// Does that; returns which content the store has, if that is known.
    fn fill_copy(
        &self,
        context: &RequestContext,
        reader: &dyn Reader,
        key: &Key,
        to: &File,
        empty: bool,
    ) -> Result<Option<StoredContent>> {
        let core = &self.core;
        let mut content = None;
        if !empty {
            content = Some(core.with_room(|| content::copy_stored(context, reader, to))?);
        } else if core.takes_digests() {
            content = content::short_content(context, reader, content::MAX_REPLACED)?;
        }
        let stored = core.top().stored_attributes(key);
        let change = core.initial_attributes(stored, Some(reader.meta(context)?.modified));
        attributes::set_open(to, &change).map_err(|error| Error::os("", error))?;
        Ok(content.filter(|(version, _)| core.takes_digest_of(*version)))
    }
}
