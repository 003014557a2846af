//! Implements `Store` for the overlay, and forwards its prefetch hints.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use twox_hash::XxHash3_128;

use crate::journal_record::{JournalRecord, Mark};
use crate::layer_dir::os_error;
use crate::layered_store::{LayeredStore, Resolved, etag_of};
use crate::name_change::NameChange;
use crate::overlay_core::{OverlayCore, wrong_kind};
use crate::{Overlay, attributes, content, listing};
use zarr_format::dialect::consolidated::{ConsolidatedDocument, MAX_DOCUMENT};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{
    ByteRange, Condition, ETag, EncodedBy, EntryKind, FlatListing, Hints, Key, Listing, Meta,
    Object, PutBody, Reader, Store, StoreInfo, Tree, Version,
};

impl Overlay {
    /// Reads a part of an object. All bytes are from one content.
    ///
    /// Errors: `Changed` if the object is written during each attempt.
    fn object(
        &self,
        context: &RequestContext,
        key: &Key,
        span: impl Fn(u64) -> Result<Range<u64>>,
    ) -> Result<Option<Object>> {
        let reader = match Store::open(self, context, key, None) {
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::IsADirectory) => {
                return Ok(None);
            }
            reader => reader?,
        };
        for _ in 0..MAX_READ_ATTEMPTS {
            let meta = reader.meta(context)?;
            let span = span(meta.size)?;
            let length = usize::try_from(span.end - span.start)
                .map_err(|error| Error::too_large(key, error))?;
            let bytes = reader.read_at(context, span.start, length)?;
            if reader.meta(context)?.version == meta.version {
                return Ok(Some(Object {
                    bytes,
                    size: meta.size,
                    version: meta.version,
                    modified: Some(meta.modified),
                }));
            }
        }
        let why = "is written each time it is read";
        Err(Error::new(Kind::Changed, key, why))
    }

    /// Returns a whole object of at most `limit` bytes.
    fn get_shown(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        if let Some(derived) = self.0.derived(context, key)? {
            check_limit(key, derived.meta.size, limit)?;
            return Ok(Some(derived.object(0..derived.meta.size)));
        }
        if let Some(found) = self.get_below(key, |store, lower| store.get(context, lower, limit))? {
            return Ok(found);
        }
        self.object(context, key, |size| {
            check_limit(key, size, limit)?;
            Ok(0..size)
        })
    }

    /// Calls `get` with the store below and the key that is visible at `key`. Returns `None` if the upper folder has
    /// the key or a whiteout hides it.
    fn get_below<T>(
        &self,
        key: &Key,
        get: impl Fn(&dyn Store, &Key) -> Result<T>,
    ) -> Result<Option<T>> {
        let file = self.0.registered(key);
        if file.is_some_and(|file| file.is_pending()) {
            return Ok(None);
        }
        self.0.look(|top| top.ask_below(key, &get))
    }
}

/// Size of a copied block in bytes.
const COPY_BUFFER: u64 = 1 << 20;

/// Maximum number of attempts to read an object that is being written.
const MAX_READ_ATTEMPTS: usize = 4;

impl Store for Overlay {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let position = self.0.info.changes.position();
        let found = self.get_shown(context, key, limit)?;
        if let Some(object) = &found {
            self.0.note_read(key, &object.bytes, position);
        }
        Ok(found)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if let Some(derived) = self.0.derived(context, key)? {
            return Ok(Some(derived.object(range.within(derived.meta.size))));
        }
        let get = |store: &dyn Store, lower: &Key| store.get_range(context, lower, range.clone());
        if let Some(found) = self.get_below(key, get)? {
            return Ok(found);
        }
        self.object(context, key, |size| Ok(range.within(size)))
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        Ok(Tree::stat(self, context, key)?.map(|stat| stat.meta))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let object = self
            .head(context, key)?
            .filter(|meta| meta.kind != EntryKind::Directory);
        Ok(object.map(|meta| meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        _known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        Ok(self.0.open_file(context, key)?)
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        listing::of_overlay(context, &self.0, prefix)
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        self.0.look(|top| top.read_link(context, key))
    }

    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        self.0.look(|top| top.is_symlink_cycle(context, key))
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let meta = self.head(context, key)?;
        let meta = meta.filter(|meta| meta.kind == EntryKind::File);
        Ok(meta.map(|meta| etag_of(&meta)))
    }

    fn put(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
    ) -> Result<ETag> {
        self.put_chunk(context, key, body, condition, None)
    }

    fn put_chunk(
        &self,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<ETag> {
        self.0.put(context, key, body, condition, encoded_by)?;
        let etag = self.etag(context, key)?;
        etag.ok_or_else(|| Error::not_found(key))
    }

    fn erase(&self, context: &RequestContext, key: &Key, condition: &Condition) -> Result<()> {
        let paths = std::slice::from_ref(key);
        self.0.change_and_store(context, paths, |change| {
            let found = change.find(key)?;
            let meta = found.as_ref().map(|found| change.meta(key, found));
            let etag = meta.filter(|meta| meta.kind == EntryKind::File);
            condition.check(key, etag.as_ref().map(etag_of).as_ref())?;
            match found {
                Some(_) => change.remove_name(key),
                None => Ok(()),
            }
        })
    }

    fn erase_folder(&self, context: &RequestContext, prefix: &Key) -> Result<()> {
        if prefix.is_root() {
            return Ok(());
        }
        match self.remove_folder(context, prefix) {
            Err(error) if is_no_empty_folder(&error) => Ok(()),
            done => done,
        }
    }

    fn sync(&self, _context: &RequestContext) -> Result<()> {
        self.0.sync_all()
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        // If the key cannot be looked up below, nothing about it is cached there.
        let _ = self.get_below(key, |store, lower| {
            store.drop_cached(lower, range);
            Ok(())
        });
    }

    fn info(&self) -> &StoreInfo {
        &self.0.info
    }
}

/// Forwards prefetch hints to the store below, for keys that it has.
pub(crate) struct OverlayHints {
    pub(crate) overlay: Overlay,
    pub(crate) below: Arc<dyn Hints>,
}

impl Hints for OverlayHints {
    fn prefetch(&self, keys: &[Key]) {
        let top = self.overlay.0.top();
        let stored = keys.iter().filter_map(|key| top.stored_key(key));
        let keys: Vec<Key> = stored.collect();
        self.below.prefetch(&keys);
    }
}

/// Fails with `TooLarge` for an object of more than `limit` bytes.
fn check_limit(key: &Key, size: u64, limit: u64) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    let why = format!("{size} bytes, at most {limit} are read");
    Err(Error::too_large(key, why))
}

/// A file in `pending/` that is about to get its key.
#[derive(Clone, Copy)]
pub(crate) struct PendingObject<'a> {
    pub(crate) name: &'a str,
    pub(crate) mark: Mark,
    /// Whether a program wrote copies of documents into it.
    pub(crate) has_program_copies: bool,
}

/// The new content of a document that may hold copies of others.
struct HolderEdit {
    bytes: Vec<u8>,
    condition: Condition,
    /// Whether the copies differ from the copies that were shown.
    has_new_copies: bool,
}

fn is_no_empty_folder(error: &Error) -> bool {
    use Kind::{NotADirectory, NotEmpty, NotFound};
    matches!(error.kind(), NotFound | NotEmpty | NotADirectory)
}

impl OverlayCore {
    /// Puts an object, replacing the current content of the key.
    ///
    /// The version in a condition is the version that the object was made from. If the upper folder has another content
    /// now, the error is `Changed`. The commit compares the version in the store below: the expected version is
    /// recorded as the base of the change. If an overlay with write-through cannot store the object because another
    /// program was first, the change is undone.
    fn put(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
        body: PutBody<'_>,
        condition: &Condition,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<()> {
        let edit = self.holder_edit(context, key, &body, condition)?;
        let has_program_copies = edit.as_ref().is_some_and(|edit| edit.has_new_copies);
        let (body, condition) = match &edit {
            Some(edit) => (PutBody::Bytes(&edit.bytes), &edit.condition),
            None => (body, condition),
        };
        let (name, file) = self
            .upper
            .pending
            .create(key)
            .map_err(|error| os_error(key, error))?;
        let paths = std::slice::from_ref(key);
        let was_changed = Cell::new(false);
        let filled = self.with_room(|| self.fill_object(key, &body, &file));
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
            self.change_names_and(context, paths, publish, || {
                match self.write_through(context, paths) {
                    Err(error) if error.kind() == Kind::Changed && !was_changed.get() => {
                        self.take_back(key)?;
                        Err(error)
                    }
                    done => done,
                }
            })
        });
        put.map_err(|error| {
            // After publication the pending file has left this name.
            self.upper.pending.discard(&name);
            error.about(key)
        })
    }

    /// Returns the new content of a document that may hold copies: an edit of other members keeps the copies of the
    /// stored text, and has that text's version as its condition. Returns `None` for any other key.
    fn holder_edit(
        self: &Arc<Self>,
        context: &RequestContext,
        key: &Key,
        body: &PutBody<'_>,
        condition: &Condition,
    ) -> Result<Option<HolderEdit>> {
        let Some(holder) = ConsolidatedDocument::of_key(key).filter(|_| body.len() <= MAX_DOCUMENT)
        else {
            return Ok(None);
        };
        let bytes = body.read()?;
        if !holder.may_have_copies(&bytes) {
            return Ok(None);
        }
        let derived = self.derived(context, key)?;
        let condition = match (&derived, condition) {
            (Some(derived), Condition::Version(read)) if *read == derived.meta.version => {
                Condition::Version(derived.source)
            }
            _ => condition.clone(),
        };
        let stored = self.look(|top| Store::get(&**top, context, key, MAX_DOCUMENT))?;
        let stored = stored.map(|object| object.bytes).unwrap_or_default();
        let shown = derived.as_ref().map_or(&stored, |derived| &derived.bytes);
        // Documents may have changed since the edited text was read.
        let has_new_copies =
            !holder.has_same_copies(&bytes, shown) && !holder.has_same_copies(&bytes, &stored);
        let edited = holder.with_copies_of(&bytes, &stored);
        Ok(Some(HolderEdit {
            bytes: edited.filter(|_| !has_new_copies).unwrap_or(bytes),
            condition,
            has_new_copies,
        }))
    }

    /// Writes an object to a pending file, with the mode of the file that it replaces; returns the content's mark.
    fn fill_object(&self, key: &Key, body: &PutBody<'_>, file: &File) -> Result<Mark> {
        let mut digest = XxHash3_128::new();
        let mut at = 0;
        while at < body.len() {
            let end = body.len().min(at.saturating_add(COPY_BUFFER));
            let piece = body.part(at..end)?;
            let written = file.write_all_at(&piece, at);
            written.map_err(|error| Error::os("", error))?;
            digest.write(&piece);
            at = end;
        }
        let top = self.top();
        let change = match (top.layer.kept_attributes(key)?, top.stat_in_layers(key)?) {
            (Some(kept), _) => kept.owner_and_mode(),
            (None, Some(posix)) => attributes::owner_and_mode(&posix),
            (None, None) => self.initial_attributes(top.stored_attributes(key), None),
        };
        attributes::set_open(file, &change).map_err(|error| Error::os("", error))?;
        content::mark_with(file, Some(digest.finish_128())).map_err(|error| Error::os(key, error))
    }
}

impl NameChange<'_> {
    /// Returns kind, size and version of the object or folder found at a key.
    fn meta(&self, key: &Key, found: &Resolved) -> Meta {
        match found {
            Resolved::Upper(stat) => self.top.layer.meta(key, stat),
            Resolved::Lower(_, meta) => *meta,
        }
    }

    /// Returns the base record of an object that is put with a condition, or `None` if the key has one already. Fails
    /// with `Changed` if the upper folder has another content than the condition names.
    fn base_of_put(&self, key: &Key, condition: &Condition) -> Result<Option<JournalRecord>> {
        let record = self.base_record(key, content::MAX_REPLACED)?;
        let found = self.find(key)?;
        let is_stored = match &found {
            None | Some(Resolved::Upper(_)) => false,
            Some(Resolved::Lower(lower, _)) => lower == key && !self.is_frozen(key)?,
        };
        let is_deferred = is_stored && !self.config.write_through;
        let (Condition::Version(expected), true) = (condition, is_deferred) else {
            let now = found.map(|found| etag_of(&self.meta(key, &found)));
            condition.check(key, now.as_ref())?;
            return Ok(record);
        };
        let Some(expected) = expected.stored() else {
            // It was read from the upper folder. The caller must check whether the store has had the same content since
            // a commit.
            let why = "was committed since it was read";
            return Err(Error::new(Kind::Changed, key, why));
        };
        Ok(record.map(|record| match record {
            JournalRecord::Base {
                key,
                version,
                content,
                ..
            } => JournalRecord::Base {
                key,
                version: Some(expected),
                is_frozen: false,
                content: content.filter(|_| {
                    version.is_some_and(|known| Version::from(known).may_be(expected.into()))
                }),
            },
            other => other,
        }))
    }

    /// Moves a pending file to the key of its object. `encoded_by` is the metadata that encoded it, if it is a chunk.
    pub(crate) fn publish_object(
        &self,
        key: &Key,
        pending: PendingObject<'_>,
        base: Option<JournalRecord>,
        encoded_by: Option<&EncodedBy>,
    ) -> Result<()> {
        let layer = &self.top.layer;
        let mut records: Vec<JournalRecord> = base.into_iter().collect();
        if layer.dir.stat(key)?.is_none()
            && layer.lower_key(key).as_ref() != Some(key)
            && let Some((from, meta)) = self.find_lower(key)?
        {
            records.extend(self.moved_base_record(&from, meta.version, None)?);
        }
        if layer.lock().records.is_incomplete(key) {
            // It replaces a file that was being written.
            records.push(JournalRecord::Completed(key.clone()));
        }
        records.push(JournalRecord::Written {
            key: key.clone(),
            mark: pending.mark,
        });
        if pending.has_program_copies {
            records.push(JournalRecord::CopiesWritten(key.clone()));
        }
        self.make_parents(key)?;
        self.record_encoded(records, encoded_by)?;
        let shape = layer.reshape();
        let mut open = self.open.lock();
        let id = open.ids.new_id();
        open.ids.set(key, id, pending.mark.inode);
        drop(open);
        layer.publish(&self.upper, pending.name, key)?;
        self.revoke(key);
        drop(shape);
        self.note_write(key);
        Ok(())
    }
}
