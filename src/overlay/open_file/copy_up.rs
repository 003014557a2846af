//! Copy up: what the store has of a file is copied to a pending file before it is first written.
//!
//! The state of the file is not locked meanwhile, so that a store that does not answer holds up writers of this file
//! alone. A second writer waits for the first one's copy.

use std::fs::File;
use std::sync::Arc;

use super::OpenFile;
use super::state::{ContentSource, FileState};
use crate::error::{Error, Result};
use crate::overlay::keys_dir::os_error;
use crate::overlay::{attributes, content};
use crate::store::{Key, Reader};
use crate::sync::locks::MutexGuard;

impl OpenFile {
    /// Locks the file, whose content is not only in the store then. `empty` if all of it will be replaced.
    pub(super) fn lock_copied(&self, empty: bool) -> Result<MutexGuard<'_, FileState>> {
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
            let copy = self.copy_of(&*reader, &key, empty);
            state = self.lock();
            state.is_copying = false;
            self.copied.notify_all();
            let (name, file) = copy?;
            // They may have been set during the copy.
            if let Some(kept) = self.core.top().layer.kept_attributes(&state.key_or_root()) {
                kept.give_to(&file)?;
            }
            self.core.open.lock().ids.note_write(self.id);
            state.set_copy(name, Arc::new(file));
        }
    }

    /// Copies what a reader has, or its attributes alone, to a pending file; returns its name in `pending/`.
    fn copy_of(&self, reader: &dyn Reader, key: &Key, empty: bool) -> Result<(String, File)> {
        let upper = &self.core.upper;
        let pending = upper.create_pending(key);
        let (name, file) = pending.map_err(|error| os_error(key, error))?;
        let stored = self.core.top().stored_attributes(key);
        let filled = (|| {
            if !empty {
                self.core
                    .with_room(|| content::copy_stored(reader, &file))?;
            }
            let modified = Some(reader.meta()?.modified);
            let change = self.core.initial_attributes(stored, modified);
            attributes::set_open(&file, &change).map_err(Error::from)
        })();
        match filled {
            Ok(()) => Ok((name, file)),
            Err(error) => {
                upper.discard_pending(&name);
                Err(error.about(key))
            }
        }
    }
}
