//! Copies a file to a second key, for link(2).
//!
//! Programs write a file under a temporary name and then link it, so that its final name appears only with a complete
//! content and only if the name is free: zarr-python's `set_if_not_exists` does this. A second key is enough for them;
//! a store cannot hold one file under two names.

use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;

use crate::discard::discard_refused;
use crate::holder_text::has_program_copies;
use crate::layer_dir::os_error;
use crate::layered_store::LayeredStore;
use crate::name_change::NameChange;
use crate::object_put::PendingObject;
use crate::open_file::{OpenFile, opener};
use crate::overlay_core::{OverlayCore, already_exists};
use crate::{attributes, content};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Time};
use zarrfs_store::{EntryKind, Key, Reader};

/// A link from the file `from` to the new key `to`.
pub(crate) struct Link<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) context: &'a RequestContext,
    pub(crate) from: &'a Key,
    pub(crate) to: &'a Key,
}

impl Link<'_> {
    /// Creates the key `to` with the current bytes and attributes of `from`.
    ///
    /// Errors: `Exists` if the key `to` exists, `NotPermitted` if `from` is not a regular file.
    pub(crate) fn run(&self) -> Result<()> {
        let (core, context, from, to) = (self.core, self.context, self.from, self.to);
        let found = core.with_top(|top| Ok((top.find(context, from)?, top.find(context, to)?)))?;
        let source = found.0.ok_or_else(|| Error::not_found(from))?;
        if LayeredStore::kind(&source) != EntryKind::File {
            core.change_until_answered(context, |change| change.check_free(to))?;
            let why = "only regular files can have hard links";
            return Err(Error::new(Kind::NotPermitted, from, why));
        }
        // This is checked again under the lock of the names; here it saves the copy.
        if found.1.is_some() {
            return Err(already_exists(to));
        }
        let source = opener::open(core, context, from)?;
        source.check_complete()?;
        let (name, file) = core
            .upper
            .pending
            .create(to)
            .map_err(|error| os_error(to, error))?;
        let linked = self
            .copy_to(&source, &file)
            .and_then(|()| content::mark_of(&file).map_err(|error| Error::os(to, error)))
            .and_then(|mark| {
                let pending = PendingObject {
                    name: &name,
                    mark,
                    has_program_copies: has_program_copies(to, &file)?,
                };
                self.publish(pending)
            });
        linked.inspect_err(|_| core.upper.pending.discard(&name))
    }

    /// Copies content, attributes and time of a file to a pending file.
    fn copy_to(&self, source: &OpenFile, file: &File) -> Result<()> {
        let (core, context, from) = (self.core, self.context, self.from);
        content::copy_stored(context, source, file).map_err(|error| error.about(from))?;
        let modified = source.meta(context)?.modified;
        let overrides = core.top().layer.attribute_override(from)?;
        let times = AttrChange {
            modified: Some(Time::At(modified)),
            ..AttrChange::default()
        };
        let set = match (overrides, source.upper_file()) {
            (Some(overrides), _) => overrides
                .apply_to(file)
                .and_then(|()| attributes::set_open(file, &times)),
            (None, Some(upper)) => content::copy_attributes(&upper, file)
                .and_then(|()| attributes::set_open(file, &times)),
            (None, None) => {
                let stored = core.top().stored_attributes(from);
                attributes::set_open(file, &core.initial_attributes(stored, Some(modified)))
            }
        };
        set.map_err(|error| Error::os("", error))
    }

    /// Publishes a pending file with the bytes of `from` under `to` if that key is free, and stores it with
    /// write-through.
    fn publish(&self, pending: PendingObject<'_>) -> Result<()> {
        let (core, context, from, to) = (self.core, self.context, self.from, self.to);
        let paths = std::slice::from_ref(to);
        let was_changed = Cell::new(false);
        let linked = core.encodings(context).content_as(from, to)?;
        let publish = |change: &NameChange<'_>| {
            change.check_free(to)?;
            let base = change.base_record(to, content::MAX_REPLACED)?;
            was_changed.set(base.is_none());
            change.publish_object(to, pending, base, None)?;
            change.record_document(to, &linked)
        };
        core.change_names_and(context, paths, publish, || {
            if !core.config.write_through {
                return Ok(());
            }
            match core.write_through(context, paths) {
                // Another program was first, like in `put`.
                Err(error) if error.kind() == Kind::Changed && !was_changed.get() => {
                    discard_refused(core, to)?;
                    Err(already_exists(to))
                }
                done => done,
            }
        })
    }
}
