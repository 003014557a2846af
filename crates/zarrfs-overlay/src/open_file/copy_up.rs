//! Copy-up: copies a stored content to a pending file before the first write.
//!
//! The state of the file is not locked during the copy, so a slow store blocks only writers of this file. A second
//! writer waits for the first writer's copy.

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

/// A copy of an object of the store.
struct PendingCopy {
    /// Its name in `pending/`.
    name: String,
    file: File,
    /// The content of the copied object, or of the object that will be replaced completely.
    content: Option<StoredContent>,
}

impl OpenFile {
    /// Locks the file, and copies it up first if its content is in the store. `empty` if all of it will be replaced.
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

    /// Copies an object, or only its attributes, to a pending file.
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

    /// Fills that file; returns version and digest of the store's content, if they are known.
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
