//! Copies a file to a second key, for link(2).
//!
//! Programs write a file under a temporary name and then link it, so that its final name appears only with a complete
//! content and only if the name is free: zarr-python's `set_if_not_exists` does this. A second key is enough for them;
//! a store cannot hold one file under two names.

use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;

use crate::derived::has_program_copies;
use crate::layer_dir::os_error;
use crate::layered_store::LayeredStore;
use crate::name_change::NameChange;
use crate::open_file::OpenFile;
use crate::overlay_core::OverlayCore;
use crate::store::PendingObject;
use crate::{attributes, content};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Time};
use zarrfs_store::{EntryKind, Key, Reader};

impl OverlayCore {
    /// Creates the key `to` with the current bytes and attributes of `from`.
    ///
    /// Errors: `Exists` if the key `to` exists, `NotPermitted` if `from` is not a regular file.
    pub(crate) fn link(
        self: &Arc<Self>,
        context: &RequestContext,
        from: &Key,
        to: &Key,
    ) -> Result<()> {
        let found = self.look(|top| Ok((top.find(context, from)?, top.find(context, to)?)))?;
        let source = found.0.ok_or_else(|| Error::not_found(from))?;
        if LayeredStore::kind(&source) != EntryKind::File {
            self.change_until_answered(context, |change| change.check_free(to))?;
            let why = "only a regular file can have a second key";
            return Err(Error::new(Kind::NotPermitted, from, why));
        }
        // This is checked again under the lock of the names; here it saves the copy.
        if found.1.is_some() {
            return Err(exists(to));
        }
        let source = self.open_file(context, from)?;
        source.check_complete()?;
        let (name, file) = self
            .upper
            .pending
            .create(to)
            .map_err(|error| os_error(to, error))?;
        let linked = self
            .copy_to(context, &source, from, &file)
            .and_then(|()| content::mark_of(&file).map_err(|error| Error::os(to, error)))
            .and_then(|mark| {
                let pending = PendingObject {
                    name: &name,
                    mark,
                    has_program_copies: has_program_copies(to, &file)?,
                };
                self.publish_link(context, from, to, pending)
            });
        linked.inspect_err(|_| self.upper.pending.discard(&name))
    }

    /// Copies content, attributes and time of a file to a pending file.
    fn copy_to(
        &self,
        context: &RequestContext,
        source: &OpenFile,
        from: &Key,
        to: &File,
    ) -> Result<()> {
        content::copy_stored(context, source, to).map_err(|error| error.about(from))?;
        let modified = source.meta(context)?.modified;
        let kept = self.top().layer.kept_attributes(from)?;
        let times = AttrChange {
            modified: Some(Time::At(modified)),
            ..AttrChange::default()
        };
        let set = match (kept, source.upper_file()) {
            (Some(kept), _) => kept
                .give_to(to)
                .and_then(|()| attributes::set_open(to, &times)),
            (None, Some(upper)) => {
                content::copy_attributes(&upper, to).and_then(|()| attributes::set_open(to, &times))
            }
            (None, None) => {
                let stored = self.top().stored_attributes(from);
                attributes::set_open(to, &self.initial_attributes(stored, Some(modified)))
            }
        };
        set.map_err(|error| Error::os("", error))
    }

    /// Publishes a pending file with the bytes of `from` under `to` if that key is free, and stores it with
    /// write-through.
    fn publish_link(
        self: &Arc<Self>,
        context: &RequestContext,
        from: &Key,
        to: &Key,
        pending: PendingObject<'_>,
    ) -> Result<()> {
        let paths = std::slice::from_ref(to);
        let was_changed = Cell::new(false);
        let linked = self.content_as(context, from, to)?;
        let publish = |change: &NameChange<'_>| {
            change.check_free(to)?;
            let base = change.base_record(to, content::MAX_REPLACED)?;
            was_changed.set(base.is_none());
            change.publish_object(to, pending, base, None)?;
            change.note_document(to, &linked)
        };
        self.change_names_and(context, paths, publish, || {
            if !self.config.write_through {
                return Ok(());
            }
            match self.write_through(context, paths) {
                // Another program was first, like in `put`.
                Err(error) if error.kind() == Kind::Changed && !was_changed.get() => {
                    self.take_back(to)?;
                    Err(exists(to))
                }
                done => done,
            }
        })
    }
}

fn exists(key: &Key) -> Error {
    Error::new(Kind::Exists, key, "is there already")
}
