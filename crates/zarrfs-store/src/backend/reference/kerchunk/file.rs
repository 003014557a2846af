//! Opens a kerchunk reference file: an object that contains chunk references as JSON.

use std::sync::Arc;
use std::time::SystemTime;

use crate::backend::current::Source;
use crate::backend::reference::{Entry, ReferenceTable};
use crate::request_context::RequestContext;
use crate::sync::budget::MemoryBudget;
use crate::{EntryKind, HiddenEntries, Key, Listing, Meta, Reader, Store, StoreInfo, Version};
use zarr_format::error::{Error, Kind, Result};

use super::json::Pieces;
use super::references::ReferenceText;
use super::table::{Table, TableBuilder};
use super::targets::TargetBase;

/// A kerchunk reference file, and how to read it.
pub(super) struct ReferenceFile {
    pub(super) base: Arc<dyn Store>,
    pub(super) key: Key,
    /// The group in the reference file that is shown as the root of the store.
    pub(super) inner: Key,
    /// The folder against which relative URLs in the references are resolved.
    pub(super) folder: TargetBase,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) hidden: Arc<HiddenEntries>,
    pub(super) display_name: String,
}

/// The references of one version of a kerchunk reference file.
pub(super) struct References {
    table: Arc<Table>,
    inner: Key,
    meta: Meta,
}

impl ReferenceFile {
    /// Reads the reference file, piece by piece.
    pub(super) fn read(&self, context: &RequestContext) -> Result<Arc<References>> {
        let read = || {
            let reader = self.base.open(context, &self.key, None)?;
            let meta = reader.meta(context)?;
            let pieces = FilePieces {
                context,
                file: self,
                reader: &*reader,
                size: meta.size,
                position: 0,
            };
            let builder = TableBuilder::new(&self.memory, &self.hidden);
            let table = ReferenceText::new(pieces, builder).table(&self.folder);
            if !reader.meta(context)?.version.may_be(meta.version) {
                return Err(Error::unavailable("", "was changed while it was read"));
            }
            Ok(Arc::new(References {
                table: Arc::new(table?),
                inner: self.inner.clone(),
                meta,
            }))
        };
        read().map_err(|error| error.about(&self.display_name))
    }
}

impl Source for ReferenceFile {
    type Content = References;

    fn info(&self) -> &StoreInfo {
        self.base.info()
    }

    fn refresh(&self, context: &RequestContext, old: &Arc<References>) -> Result<Arc<References>> {
        let name = &self.display_name;
        // While the reference file is missing or being written, its chunks are unavailable, neither missing nor
        // corrupt.
        let failed = |error: Error| match error.kind() {
            Kind::NotFound | Kind::Corrupt => Error::unavailable(name, error.detail()),
            _ => error,
        };
        let meta = self.base.head(context, &self.key);
        match meta.map_err(|error| error.about(name))? {
            Some(meta) if meta.may_be_of(&old.meta) => Ok(old.clone()),
            Some(meta) if meta.kind == EntryKind::File => self.read(context).map_err(failed),
            _ => Err(Error::unavailable(name, "the reference file is gone")),
        }
    }
}

impl References {
    /// Prepends to a key the group that is shown as the root of the store.
    fn full(&self, key: &Key) -> Result<Key> {
        match (self.inner.is_root(), key.is_root()) {
            (true, _) => Ok(key.clone()),
            (_, true) => Ok(self.inner.clone()),
            _ => Key::new([self.inner.as_bytes(), b"/", key.as_bytes()].concat()),
        }
    }
}

impl ReferenceTable for References {
    fn find(&self, _context: &RequestContext, key: &Key) -> Result<Entry> {
        let found = self.table.find(&self.full(key)?);
        found.map_err(|error| error.about(key))
    }

    fn list(self: Arc<Self>, _context: &RequestContext, prefix: &Key) -> Result<Box<dyn Listing>> {
        let prefix = self.full(prefix)?;
        Ok(Box::new(self.table.clone().list(&prefix)))
    }

    fn modified(&self) -> SystemTime {
        self.meta.modified
    }

    fn version(&self) -> Version {
        self.meta.version
    }
}

/// Reads a kerchunk reference file piece by piece.
struct FilePieces<'a> {
    context: &'a RequestContext,
    file: &'a ReferenceFile,
    reader: &'a dyn Reader,
    size: u64,
    position: u64,
}

impl FilePieces<'_> {
    /// Returns the unread rest of the file, for servers that send the file only as a whole.
    fn rest(&mut self) -> Result<Vec<u8>> {
        let limit = self.file.memory.limit() / 2;
        let object = self.file.base.get(self.context, &self.file.key, limit)?;
        let bytes = object.map(|object| object.bytes).unwrap_or_default();
        let position = usize::try_from(self.position).unwrap_or(usize::MAX);
        self.position = self.size;
        Ok(bytes.get(position..).unwrap_or_default().to_vec())
    }
}

impl Pieces for FilePieces<'_> {
    fn next(&mut self) -> Result<Vec<u8>> {
        let left = self.size.saturating_sub(self.position);
        let sends_parts = &self.file.base.info().sends_parts;
        if left > 0 && self.position > 0 && !sends_parts.load(std::sync::atomic::Ordering::Relaxed)
        {
            return self.rest();
        }
        // A long file is read in pieces of 4 MiB, so that it is never in memory as a whole.
        let length = usize::try_from(left.min(4 << 20)).unwrap_or(0);
        if length == 0 {
            return Ok(Vec::new());
        }
        let piece = self.reader.read_at(self.context, self.position, length)?;
        if piece.len() != length {
            return Err(Error::unavailable("", "was truncated while it was read"));
        }
        self.position += length as u64;
        Ok(piece)
    }
}
