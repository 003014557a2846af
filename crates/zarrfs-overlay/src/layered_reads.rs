//! Implements the read-only `Store` of a layer over a store, such as a frozen layer.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::keys_dir::os_error;
use super::layer::Located;
use super::layered_store::{LayeredStore, etag_of};
use super::{Resolved, attributes, content, listing};
use zarr_format::error::{Error, Result};
use zarrfs_store::request_context::RequestContext;
use zarrfs_store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Version,
};

impl LayeredStore {
    /// Opens the layer's file of a key, or returns `None` if it has none.
    pub(super) fn own_reader(&self, key: &Key) -> Result<Option<FrozenReader>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match self.layer.keys.open_key(key, flags) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(error) => return Err(os_error(key, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| os_error(key, error))?;
        let meta = self.layer.meta(key, &stat);
        let is_file = meta.kind == EntryKind::File;
        Ok(is_file.then_some(FrozenReader { file, meta }))
    }

    /// Calls `below` if the store below has a key, `own` if the layer has a file of it. Returns `None` if neither has
    /// it.
    fn read<T>(
        &self,
        key: &Key,
        below: impl Fn(&dyn Store, &Key) -> Result<Option<T>>,
        own: impl Fn(FrozenReader) -> Result<T>,
    ) -> Result<Option<T>> {
        loop {
            if let Some(found) = self.ask_below(key, &below)? {
                return Ok(found);
            }
            if let Some(reader) = self.own_reader(key)? {
                return own(reader).map(Some);
            }
            // If the file existed, a commit or a discard removed it between the two lookups.
            let is_gone = match self.layer.locate(key)? {
                Located::Lower(_) => true,
                Located::Upper(stat) => attributes::kind_of(&stat) == EntryKind::File,
                Located::Hidden => false,
            };
            if !is_gone {
                return Ok(None);
            }
        }
    }
}

impl Store for LayeredStore {
    fn get(&self, context: &RequestContext, key: &Key, limit: u64) -> Result<Option<Object>> {
        let below = |store: &dyn Store, lower: &Key| store.get(context, lower, limit);
        self.read(key, below, |reader| {
            let size = reader.meta.size;
            if size > limit {
                let why = format!("{size} bytes, at most {limit} are read");
                return Err(Error::too_large(key, why));
            }
            reader.object(context, key, 0, size)
        })
    }

    fn get_range(
        &self,
        context: &RequestContext,
        key: &Key,
        range: ByteRange,
    ) -> Result<Option<Object>> {
        let below = |store: &dyn Store, lower: &Key| store.get_range(context, lower, range.clone());
        self.read(key, below, |reader| {
            let span = range.within(reader.meta.size);
            reader.object(context, key, span.start, span.end - span.start)
        })
    }

    fn head(&self, context: &RequestContext, key: &Key) -> Result<Option<Meta>> {
        Ok(self.find(context, key)?.map(|found| match found {
            Resolved::Upper(stat) => self.layer.meta(key, &stat),
            Resolved::Lower(_, meta) => meta,
        }))
    }

    fn version(&self, context: &RequestContext, key: &Key) -> Result<Option<Version>> {
        let below = |store: &dyn Store, lower: &Key| store.version(context, lower);
        self.read(key, below, |reader| Ok(reader.meta.version))
    }

    fn open(
        &self,
        context: &RequestContext,
        key: &Key,
        known: Option<&Meta>,
    ) -> Result<Arc<dyn Reader>> {
        let below = |store: &dyn Store, lower: &Key| store.open(context, lower, known).map(Some);
        let reader = self.read(key, below, |reader| Ok(Arc::new(reader) as Arc<dyn Reader>))?;
        reader.ok_or_else(|| Error::not_found(key))
    }

    fn list(&self, context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let own = LayeredStore {
            layer: self.layer.clone(),
            lower: self.lower.clone(),
            frozen: self.frozen.clone(),
            info: self.info.clone(),
        };
        let own = Arc::new(own);
        listing::open(context, Arc::new(move || own.clone()), prefix)
    }

    fn list_all(
        &self,
        _context: &RequestContext,
        _prefix: &Key,
        _from: &Key,
    ) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn drop_cached(&self, key: &Key, range: Option<&ByteRange>) {
        // If the key cannot be looked up below, nothing about it is cached there.
        let _ = self.ask_below(key, |store: &dyn Store, lower: &Key| {
            store.drop_cached(lower, range);
            Ok(Some(()))
        });
    }

    /// Returns whether a link below leads to one of its ancestors. The layer's own links are never followed.
    fn is_symlink_cycle(&self, context: &RequestContext, key: &Key) -> Result<bool> {
        match self.layer.locate(key)? {
            Located::Lower(lower) => self.lower.is_symlink_cycle(context, &lower),
            Located::Upper(_) | Located::Hidden => Ok(false),
        }
    }

    fn read_link(&self, context: &RequestContext, key: &Key) -> Result<Vec<u8>> {
        loop {
            match self.find(context, key)? {
                None => return Err(Error::not_found(key)),
                Some(Resolved::Lower(lower, _)) => return self.lower.read_link(context, &lower),
                Some(Resolved::Upper(_)) => {}
            }
            let found = self.layer.keys.parent(key);
            let target =
                found.and_then(|(folder, name)| rustix::fs::readlinkat(folder, name, Vec::new()));
            match target {
                // It has left the layer since.
                Err(Errno::NOENT) => {}
                target => return Ok(target.map_err(|error| os_error(key, error))?.into_bytes()),
            }
        }
    }

    fn etag(&self, context: &RequestContext, key: &Key) -> Result<Option<ETag>> {
        let below = |store: &dyn Store, lower: &Key| store.etag(context, lower);
        self.read(key, below, |reader| Ok(etag_of(&reader.meta)))
    }

    fn put(
        &self,
        _context: &RequestContext,
        key: &Key,
        _body: PutBody<'_>,
        _condition: &Condition,
    ) -> Result<ETag> {
        Err(Error::read_only(key))
    }

    fn erase(&self, _context: &RequestContext, key: &Key, _condition: &Condition) -> Result<()> {
        Err(Error::read_only(key))
    }

    fn erase_folder(&self, _context: &RequestContext, prefix: &Key) -> Result<()> {
        Err(Error::read_only(prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// An open file of a layer, with its metadata when it was opened.
pub(super) struct FrozenReader {
    file: File,
    meta: Meta,
}

impl FrozenReader {
    fn object(
        &self,
        context: &RequestContext,
        key: &Key,
        offset: u64,
        length: u64,
    ) -> Result<Object> {
        let length = usize::try_from(length).map_err(|error| Error::too_large(key, error))?;
        Ok(Object {
            bytes: self.read_at(context, offset, length)?,
            size: self.meta.size,
            version: self.meta.version,
            modified: Some(self.meta.modified),
        })
    }
}

impl Reader for FrozenReader {
    fn read_at(&self, _context: &RequestContext, offset: u64, len: usize) -> Result<Vec<u8>> {
        content::read_file(&self.file, offset, len).map_err(|error| Error::os("", error))
    }

    fn meta(&self, _context: &RequestContext) -> Result<Meta> {
        Ok(self.meta)
    }
}
