//! Puts an object or links a file: a pending file gets the key.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::derived::has_program_copies;
use crate::discard::discard_refused;
use crate::journal_record::Mark;
use crate::layer_dir::os_error;
use crate::layered_store::LayeredStore;
use crate::name_change::NameChange;
use crate::open_file::{OpenFile, opener};
use crate::overlay_core::{OverlayCore, already_exists, wrong_kind};
use crate::{attributes, content, derived};
use zarr_format::dialect::consolidated::{ConsolidatedDocument, MAX_DOCUMENT};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::tree::{AttrChange, Time};
use zarrfs_store::{Condition, EncodedBy, EntryKind, Key, PutBody, Reader, Store};

/// A complete file in `pending/` that is about to get its key.
#[derive(Clone, Copy)]
pub(crate) struct PendingObject<'a> {
    pub(crate) name: &'a str,
    pub(crate) mark: Mark,
    /// Whether the file is consolidated metadata with copies that a program wrote.
    pub(crate) has_program_copies: bool,
}

/// A new text of consolidated metadata, and the condition of its put.
struct HolderEdit {
    bytes: Vec<u8>,
    condition: Condition,
    /// Whether the text has other copies than the author can have read, so that they are the author's.
    has_new_copies: bool,
}

pub(crate) struct ObjectPut<'a> {
    pub(crate) core: &'a Arc<OverlayCore>,
    pub(crate) context: &'a RequestContext,
    pub(crate) key: &'a Key,
}

impl ObjectPut<'_> {
    /// Puts an object; it replaces the current content of the key.
    ///
    /// A version in `condition` is the version that the new content was made from. If the upper folder has another
    /// content now, the put fails with `Changed`. Whether the store still has that version is checked by the commit,
    /// which uses it as the version before the change. If write-through fails because another program has changed the
    /// object, the put is undone.
    pub(crate) fn run(
        &self,
        body: PutBody<'_>,
        condition: &Condition,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<()> {
        let (core, context, key) = (self.core, self.context, self.key);
        let edit = self.holder_edit(&body, condition)?;
        let has_program_copies = edit.as_ref().is_some_and(|edit| edit.has_new_copies);
        let (body, condition) = match &edit {
            Some(edit) => (PutBody::Bytes(&edit.bytes), &edit.condition),
            None => (body, condition),
        };
        let (name, file) = core
            .upper
            .pending
            .create(key)
            .map_err(|error| os_error(key, error))?;
        let paths = std::slice::from_ref(key);
        let was_changed = Cell::new(false);
        let filled = core.with_room(|| self.fill(&body, &file));
        let put = filled.and_then(|mark| {
            let publish = |change: &NameChange<'_>| {
                if let Some(found) = change.find(key)?
                    && LayeredStore::kind(&found) == EntryKind::Directory
                {
                    return Err(wrong_kind(key, true));
                }
                let base = change.base_of_put(key, condition)?;
                was_changed.set(base.is_none());
                let pending = PendingObject {
                    name: &name,
                    mark,
                    has_program_copies,
                };
                change.publish_object(key, pending, base, encoded_by)
            };
            core.change_names_and(context, paths, publish, || {
                match core.write_through(context, paths) {
                    Err(error) if error.kind() == Kind::Changed && !was_changed.get() => {
                        discard_refused(core, key)?;
                        Err(error)
                    }
                    done => done,
                }
            })
        });
        put.map_err(|error| {
            // Nothing is removed if the file was published, because it does not have this name any more.
            core.upper.pending.discard(&name);
            error.about(key)
        })
    }

    /// Returns the text to put for consolidated metadata. If only members other than the copies were edited, the text
    /// gets the stored copies, and the version of the stored text becomes the condition. Returns `None` for other keys.
    fn holder_edit(&self, body: &PutBody<'_>, condition: &Condition) -> Result<Option<HolderEdit>> {
        let (core, context, key) = (self.core, self.context, self.key);
        let Some(holder) = ConsolidatedDocument::of_key(key).filter(|_| body.len() <= MAX_DOCUMENT)
        else {
            return Ok(None);
        };
        let bytes = body.read()?;
        if !holder.may_have_copies(&bytes) {
            return Ok(None);
        }
        let derived = derived::document(core, context, key)?;
        let condition = match (&derived, condition) {
            (Some(derived), Condition::Version(read)) if *read == derived.meta.version => {
                Condition::Version(derived.source)
            }
            _ => condition.clone(),
        };
        let stored = core.with_top(|top| Store::get(&**top, context, key, MAX_DOCUMENT))?;
        let stored = stored.map(|object| object.bytes).unwrap_or_default();
        let visible = derived.as_ref().map_or(&stored, |derived| &derived.bytes);
        // Copies that are neither those of the mount nor those of the store are the author's own.
        let has_new_copies =
            !holder.has_same_copies(&bytes, visible) && !holder.has_same_copies(&bytes, &stored);
        let edited = holder.with_copies_of(&bytes, &stored);
        Ok(Some(HolderEdit {
            bytes: edited.filter(|_| !has_new_copies).unwrap_or(bytes),
            condition,
            has_new_copies,
        }))
    }

    /// Writes an object's bytes to a pending file, which gets the mode of the file that it replaces. Returns inode,
    /// length and digest.
    fn fill(&self, body: &PutBody<'_>, file: &File) -> Result<Mark> {
        let (core, key) = (self.core, self.key);
        let mut digest = XxHash3_128::new();
        let mut at = 0;
        while at < body.len() {
            let end = body
                .len()
                .min(at.saturating_add(content::COPY_BUFFER as u64));
            let piece = body.part(at..end)?;
            let written = file.write_all_at(&piece, at);
            written.map_err(|error| Error::os("", error))?;
            digest.write(&piece);
            at = end;
        }
        let top = core.top();
        let change = match (top.layer.attribute_override(key)?, top.stat_in_layers(key)?) {
            (Some(overrides), _) => overrides.owner_and_mode(),
            (None, Some(posix)) => attributes::owner_and_mode(&posix),
            (None, None) => core.initial_attributes(top.stored_attributes(key), None),
        };
        attributes::set_open(file, &change).map_err(|error| Error::os("", error))?;
        content::mark_with(file, Some(digest.finish_128())).map_err(|error| Error::os(key, error))
    }
}

/// A hard link (link(2)) of the file `from` at the new key `to`, which is made as a copy.
///
/// Programs write a file under a temporary name and then link it, so that its final name appears only with a complete
/// content and only if the name is free: zarr-python's `set_if_not_exists` does this. A copy is enough for such
/// programs; a store cannot hold one file under two names.
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
        // Check here too, to save the copy; the check under the lock of the names decides.
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

    /// Publishes the copy under the key `to` if the key is free. With write-through, also puts it into the store.
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
                // Another program has created the object in the store first, so undo the link.
                Err(error) if error.kind() == Kind::Changed && !was_changed.get() => {
                    discard_refused(core, to)?;
                    Err(already_exists(to))
                }
                done => done,
            }
        })
    }
}
