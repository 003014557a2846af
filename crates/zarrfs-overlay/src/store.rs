//! Implements `Store` for the overlay, and forwards its prefetch hints.

use std::ops::Range;
use std::sync::Arc;

use crate::layered_store::etag_of;
use crate::open_file::opener;
use crate::pending_object::ObjectPut;
use crate::{Overlay, derived, listing};
use zarr_format::error::{Error, Kind, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{
    ByteRange, Condition, ETag, EncodedBy, EntryKind, FlatListing, Hints, Key, Listing, Meta,
    Object, PutBody, Reader, Store, StoreInfo, Tree, Version,
};

impl Store for Overlay {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let position = self.0.info.changes.position();
        let found = get_visible(self, context, key, limit)?;
        if let Some(object) = &found {
            self.0
                .derived
                .record_read(&self.0.info.changes, key, &object.bytes, position);
        }
        Ok(found)
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        if let Some(derived) = derived::document(&self.0, context, key)? {
            return Ok(Some(derived.object(range.within(derived.meta.size))));
        }
        let get = |store: &dyn Store, lower: &Key| store.get_range(context, lower, range.clone());
        if let Some(found) = get_below(self, key, get)? {
            return Ok(found);
        }
        object(self, context, key, |size| Ok(range.within(size)))
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
        Ok(opener::open(&self.0, context, key)?)
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
        self.0.with_top(|top| top.read_link(context, key))
    }

    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        self.0.with_top(|top| top.is_symlink_cycle(context, key))
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
        let put = ObjectPut {
            core: &self.0,
            context,
            key,
        };
        put.run(body, condition, encoded_by)?;
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
        // Ignore an error: if the key cannot be found below, no cache there has it.
        let _ = get_below(self, key, |store, lower| {
            store.drop_cached(lower, range);
            Ok(())
        });
    }

    fn info(&self) -> &StoreInfo {
        &self.0.info
    }
}

/// Reads a part of an object, so that all bytes are from one version of it.
///
/// Errors: `Changed` if the object keeps changing while it is read.
fn object(
    overlay: &Overlay,
    context: &RequestContext,
    key: &Key,
    span: impl Fn(u64) -> Result<Range<u64>>,
) -> Result<Option<Object>> {
    let reader = match Store::open(overlay, context, key, None) {
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::IsADirectory) => {
            return Ok(None);
        }
        reader => reader?,
    };
    for _ in 0..4 {
        let meta = reader.meta(context)?;
        let span = span(meta.size)?;
        let length =
            usize::try_from(span.end - span.start).map_err(|error| Error::too_large(key, error))?;
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
    let why = "keeps changing while it is being read";
    Err(Error::new(Kind::Changed, key, why))
}

/// Returns a whole object of at most `limit` bytes.
fn get_visible(
    overlay: &Overlay,
    context: &RequestContext,
    key: &Key,
    limit: u64,
) -> Result<Option<Object>> {
    if let Some(derived) = derived::document(&overlay.0, context, key)? {
        check_limit(key, derived.meta.size, limit)?;
        return Ok(Some(derived.object(0..derived.meta.size)));
    }
    if let Some(found) = get_below(overlay, key, |store, lower| {
        store.get(context, lower, limit)
    })? {
        return Ok(found);
    }
    object(overlay, context, key, |size| {
        check_limit(key, size, limit)?;
        Ok(0..size)
    })
}

/// Calls `get` with the store below the upper folder and with the key whose object is visible at `key`. Returns `None`
/// if the upper folder has its own file or a whiteout there.
fn get_below<T>(
    overlay: &Overlay,
    key: &Key,
    get: impl Fn(&dyn Store, &Key) -> Result<T>,
) -> Result<Option<T>> {
    let file = overlay.0.registered(key);
    if file.is_some_and(|file| file.is_pending()) {
        return Ok(None);
    }
    overlay.0.with_top(|top| top.query_below(key, &get))
}

/// Forwards prefetch hints to the store below for keys that are not changed in the upper folder.
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
    let why = format!("{size} bytes exceed the limit of {limit}");
    Err(Error::too_large(key, why))
}

fn is_no_empty_folder(error: &Error) -> bool {
    use Kind::{NotADirectory, NotEmpty, NotFound};
    matches!(error.kind(), NotFound | NotEmpty | NotADirectory)
}
