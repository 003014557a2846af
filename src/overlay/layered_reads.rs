//! A layer over a store, read as a store itself: a frozen layer is what lies below the layer on top.

use std::fs::File;
use std::sync::Arc;

use super::keys_dir::os_error;
use super::layered_store::{LayeredStore, etag_of};
use super::{Resolved, content, listing};
use crate::error::{Error, Result};
use crate::store::{
    ByteRange, Condition, ETag, EntryKind, FlatListing, Key, Listing, Meta, Object, PutBody,
    Reader, Store, StoreInfo, Version,
};

impl LayeredStore {
    fn upper_reader(&self, key: &Key) -> Result<Option<FrozenReader>> {
        let Some(stat) = self.layer.keys.stat(key)? else {
            return Ok(None);
        };
        let meta = self.layer.meta(key, &stat);
        if meta.kind != EntryKind::File {
            return Ok(None);
        }
        let file = self.frozen_file(key)?;
        Ok(file.map(|(file, _)| FrozenReader { file, meta }))
    }
}

impl Store for LayeredStore {
    fn get(&self, key: &Key, limit: u64) -> Result<Option<Object>> {
        if let Some(found) = self.ask_below(key, |store, lower| store.get(lower, limit))? {
            return Ok(found);
        }
        let Some(reader) = self.upper_reader(key)? else {
            return Ok(None);
        };
        let size = reader.meta.size;
        if size > limit {
            let why = format!("{size} bytes, at most {limit} are read");
            return Err(Error::too_large(key, why));
        }
        reader.object(key, 0, size).map(Some)
    }

    fn get_range(&self, key: &Key, range: ByteRange) -> Result<Option<Object>> {
        let get = |store: &dyn Store, lower: &Key| store.get_range(lower, range.clone());
        if let Some(found) = self.ask_below(key, get)? {
            return Ok(found);
        }
        let Some(reader) = self.upper_reader(key)? else {
            return Ok(None);
        };
        let span = range.within(reader.meta.size);
        reader
            .object(key, span.start, span.end - span.start)
            .map(Some)
    }

    fn head(&self, key: &Key) -> Result<Option<Meta>> {
        Ok(self.find(key)?.map(|found| match found {
            Resolved::Upper(stat) => self.layer.meta(key, &stat),
            Resolved::Lower(_, meta) => meta,
        }))
    }

    fn version(&self, key: &Key) -> Result<Option<Version>> {
        match self.ask_below(key, |store, lower| store.version(lower))? {
            Some(found) => Ok(found),
            None => Ok(self.upper_reader(key)?.map(|reader| reader.meta.version)),
        }
    }

    fn open(&self, key: &Key, known: Option<&Meta>) -> Result<Arc<dyn Reader>> {
        if let Some(reader) = self.ask_below(key, |store, lower| store.open(lower, known))? {
            return Ok(reader);
        }
        let reader = self.upper_reader(key)?;
        Ok(Arc::new(reader.ok_or_else(|| Error::not_found(key))?))
    }

    fn list(&self, prefix: &Key) -> Result<Box<dyn Listing>> {
        let own = LayeredStore {
            layer: self.layer.clone(),
            lower: self.lower.clone(),
            frozen: self.frozen.clone(),
            info: self.info.clone(),
        };
        let own = Arc::new(own);
        listing::open(Arc::new(move || own.clone()), prefix)
    }

    fn list_all(&self, _prefix: &Key, _from: &Key) -> Result<Option<Box<dyn FlatListing>>> {
        Ok(None)
    }

    fn read_link(&self, key: &Key) -> Result<Vec<u8>> {
        match self.find(key)? {
            None => Err(Error::not_found(key)),
            Some(Resolved::Lower(lower, _)) => self.lower.read_link(&lower),
            Some(Resolved::Upper(_)) => {
                let keys = &self.layer.keys;
                let target = keys
                    .parent(key)
                    .and_then(|(folder, name)| rustix::fs::readlinkat(folder, name, Vec::new()));
                let target = target.map_err(|error| os_error(key, error))?;
                Ok(target.into_bytes())
            }
        }
    }

    fn etag(&self, key: &Key) -> Result<Option<ETag>> {
        match self.ask_below(key, |store, lower| store.etag(lower))? {
            Some(found) => Ok(found),
            None => Ok(self.upper_reader(key)?.map(|reader| etag_of(&reader.meta))),
        }
    }

    fn put(&self, key: &Key, _body: PutBody<'_>, _condition: &Condition) -> Result<ETag> {
        Err(Error::read_only(key))
    }

    fn erase(&self, key: &Key, _condition: &Condition) -> Result<()> {
        Err(Error::read_only(key))
    }

    fn erase_folder(&self, prefix: &Key) -> Result<()> {
        Err(Error::read_only(prefix))
    }

    fn info(&self) -> &StoreInfo {
        &self.info
    }
}

/// An open file of a frozen layer.
struct FrozenReader {
    file: File,
    meta: Meta,
}

impl FrozenReader {
    fn object(&self, key: &Key, offset: u64, length: u64) -> Result<Object> {
        let length = usize::try_from(length).map_err(|error| Error::too_large(key, error))?;
        Ok(Object {
            bytes: self.read_at(offset, length)?,
            size: self.meta.size,
            version: self.meta.version,
            modified: Some(self.meta.modified),
        })
    }
}

impl Reader for FrozenReader {
    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        content::read_file(&self.file, offset, len).map_err(|error| Error::os("", error))
    }

    fn meta(&self) -> Result<Meta> {
        Ok(self.meta)
    }
}
